"""The command ``handrail``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, as ``entry.main`` does; the exit code, also of Ctrl-C while modules load."""
    try:
        from handrail.cli.entry import main as run

        return run(arguments)
    except KeyboardInterrupt:
        print("handrail: interrupted", file=sys.stderr)
        return 130
