"""Where a protocol is to be found again, as a text."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def reference_to(protocol: object) -> str:
    """``module:name`` of its class, or ``file.py:name`` if Python was given the file itself."""
    cls: Any = type(protocol)
    module = cls.__module__
    if module == "__main__":
        file = getattr(sys.modules[module], "__file__", None)
        module = str(Path(file).resolve()) if file else module
    return f"{module}:{cls.__qualname__}"
