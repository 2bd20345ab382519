"""``python -m handrail.cli``: the command, where its script is not on PATH."""

from __future__ import annotations

import sys

from handrail.cli import main

if __name__ == "__main__":
    sys.exit(main())
