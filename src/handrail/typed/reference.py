"""Names for code: in a record, and for another process that must find it."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from types import FunctionType, ModuleType
from typing import Any

from handrail.errors import CodeNotFound

OF_RECORD: Mapping[str, Any] = {"handrail": "of the record"}
"""Metadata of fields that say how a result was recorded or read: a fingerprint leaves them out."""

VALUE: Mapping[str, Any] = {"handrail": "value"}
"""Metadata of the one field of an event that holds a value of the user's: a record has it apart."""
STRICT_VALUE: Mapping[str, Any] = {**VALUE, "strict": True}
"""The same, of a value that is refused if its classes could not be found by their names alone."""
OWN_VALUE: Mapping[str, Any] = {**VALUE, "own": True}
"""The same, of handrail's own objects, or a dict by name, with the user's values inside."""
OWN_STRICT_VALUE: Mapping[str, Any] = {**OWN_VALUE, **STRICT_VALUE}

ELSEWHERE: Mapping[str, Any] = {"handrail": "elsewhere"}
"""Metadata of fields that JSON for people leaves out, because what they hold stands elsewhere."""

IN_VALUE: Mapping[str, Any] = {"handrail": "in value"}
"""The same, of a field that often holds the object that the record has as its ``value``."""


def reference(target: Callable[..., Any]) -> str:
    """``module:qualname`` of a callable; ``__main__`` becomes its file's stem.

    A partial is named by its function, a callable object by its class.
    """
    if type(target) is FunctionType and target.__module__ != "__main__":
        return f"{target.__module__}:{target.__qualname__}"
    if isinstance(target, functools.partial):
        return f"partial({reference(target.func)})"
    named = target if hasattr(target, "__qualname__") else type(target)
    module = getattr(named, "__module__", None) or "builtins"
    if module == "__main__":
        module = main_name()
    return f"{module}:{named.__qualname__}"


def main_name() -> str:
    """What ``__main__`` is called in a record: its file's stem."""
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


_MAIN = "__main__"
_KEPT = 4096


class CodeNames:
    """The names of objects by which another process can find them. Mutable: it caches names.

    ``module:qualname`` names a function or class, ``module:NAME`` any object of a module. ``home``
    is the module that is searched first.
    """

    def __init__(self, home: str = "") -> None:
        self._home = home
        self._known: dict[int, tuple[object, str]] = {}

    def name_of(self, value: object) -> str | None:
        """The name for which ``resolve_name`` returns this very object; None if it has none."""
        known = self._known.get(id(value))
        if known is not None and known[0] is value:
            return known[1]
        name = self._find_name(value)
        if name is not None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[id(value)] = value, name
        return name

    def _find_name(self, value: object) -> str | None:
        module: object = getattr(value, "__module__", None) or "builtins"
        path: object = getattr(value, "__qualname__", None)
        if isinstance(module, str) and isinstance(path, str):
            loaded = sys.modules.get(module)
            if loaded is not None and _at(loaded, path) is value:
                return f"{_recorded_module(module)}:{path}"
        first = (self._home, module, type(value).__module__)
        for name, loaded in _modules(first):
            for key, held in list(vars(loaded).items()):
                if held is value:
                    return f"{_recorded_module(name)}:{key}"
        return None


def _modules(first: tuple[object, ...]) -> Iterator[tuple[str, ModuleType]]:
    """All loaded modules: those of ``first``, then by name, so the order is always the same."""
    named = [one for one in dict.fromkeys(first) if isinstance(one, str) and one in sys.modules]
    for name in (*named, *sorted(sys.modules)):
        loaded = sys.modules.get(name)
        if isinstance(loaded, ModuleType):
            yield name, loaded


def _recorded_module(module: str) -> str:
    return main_name() if module == _MAIN else module


def resolve_name(name: str) -> Any:
    """The object of a name; its module is imported if it is not loaded.

    Raises:
        CodeNotFound: this process has no such module or object.
    """
    module, _, path = name.partition(":")
    try:
        loaded = sys.modules[_MAIN] if module == main_name() else importlib.import_module(module)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise CodeNotFound(name, why) from error
    found = _at(loaded, path)
    if found is None:
        raise CodeNotFound(name, f"{module} has no {path}")
    return found


def _at(owner: Any, path: str) -> Any:
    for part in path.split("."):
        owner = getattr(owner, part, None)
    return owner
