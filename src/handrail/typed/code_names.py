"""Code and objects by the names that their modules have for them, so that another process finds
them: ``module:qualname`` of functions and classes, ``module:NAME`` of any object of a module.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from handrail.errors import CodeNotFound
from handrail.typed.reference import main_name

_MAIN = "__main__"
_KEPT = 4096


class CodeNames:
    """The names of objects. Mutable: it remembers what it found.

    ``home`` is the module in which an object is looked for first.
    """

    def __init__(self, home: str = "") -> None:
        self._home = home
        self._known: dict[int, tuple[object, str]] = {}

    def name_of(self, value: object) -> str | None:
        """The name by which ``resolved`` gives this very object; None if it has none."""
        known = self._known.get(id(value))
        if known is not None and known[0] is value:
            return known[1]
        name = self._found(value)
        if name is not None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[id(value)] = value, name
        return name

    def _found(self, value: object) -> str | None:
        module: object = getattr(value, "__module__", None) or "builtins"
        path: object = getattr(value, "__qualname__", None)
        if isinstance(module, str) and isinstance(path, str):
            loaded = sys.modules.get(module)
            if loaded is not None and _at(loaded, path) is value:
                return f"{_shown(module)}:{path}"
        first = (self._home, module, type(value).__module__)
        for name, loaded in _modules(first):
            for key, held in list(vars(loaded).items()):
                if held is value:
                    return f"{_shown(name)}:{key}"
        return None


def _modules(first: tuple[object, ...]) -> Iterator[tuple[str, ModuleType]]:
    """All that are loaded, these first, and then by name: always in the same order."""
    named = [one for one in dict.fromkeys(first) if isinstance(one, str) and one in sys.modules]
    for name in (*named, *sorted(sys.modules)):
        loaded = sys.modules.get(name)
        if isinstance(loaded, ModuleType):
            yield name, loaded


def _shown(module: str) -> str:
    return main_name() if module == _MAIN else module


def resolved(name: str) -> Any:
    """The object of a name; its module is imported if it is not loaded.

    Raises:
        CodeNotFound: there is none here.
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
