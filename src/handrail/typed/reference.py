"""References to callables: how a record names code."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import PurePath
from types import FunctionType
from typing import Any


def reference(target: Callable[..., Any]) -> str:
    """``module:qualname`` of a callable; ``__main__`` becomes its file's stem.

    A partial is named by its function; an object that is called is named by its class.
    """
    if type(target) is FunctionType and target.__module__ != "__main__":
        return f"{target.__module__}:{target.__qualname__}"
    if isinstance(target, functools.partial):
        return f"partial({reference(target.func)})"
    named = target if hasattr(target, "__qualname__") else type(target)
    module = getattr(named, "__module__", None) or "builtins"
    if module == "__main__":
        module = _main_name()
    return f"{module}:{named.__qualname__}"


def _main_name() -> str:
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return _stem(file) if file else "__main__"


@functools.lru_cache(maxsize=1)
def _stem(file: str) -> str:
    return PurePath(file).stem


def importable(target: object) -> bool:
    """True if the callable can be found again by module and qualified name."""
    if isinstance(target, functools.partial):
        return importable(target.func)
    module = sys.modules.get(getattr(target, "__module__", None) or "")
    found: Any = module
    for part in getattr(target, "__qualname__", "<none>").split("."):
        found = getattr(found, part, None)
    return found is target and getattr(target, "__module__", None) != "__main__"
