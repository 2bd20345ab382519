"""Attributes of an object that are no fields of its class: nothing of them is recorded."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from handrail.codec.writing import TAG, TOO_DEEP, Refused, Writers, Writing, class_of
from handrail.typed.reference import reference

ABSENT: dict[str, Any] = {TAG: "nothing"}
"""In place of an attribute that one of two objects does not have."""

STATE = "@"
"""How a key of a ``Stated`` tree begins that means an attribute, and no field."""

_OF_LIBRARIES = ("__orig_class__", "__pydantic_", "_attrs_")
"""How attributes begin that typing, pydantic and attrs keep for themselves."""


def slots_beside(cls: type, fields: frozenset[str]) -> tuple[str, ...]:
    """The slots of a class that are no fields, and do not only keep a computed value."""
    found = ["args"] if issubclass(cls, BaseException) else []
    for base in cls.__mro__:
        if "__attrs_attrs__" in vars(base) and "__getattr__" in vars(base):
            continue  # attrs has put its cached properties into slots
        for name, slot in vars(base).items():
            if isinstance(slot, types.MemberDescriptorType) and name not in fields:
                found.append(name)
    return tuple(name for name in found if not name.startswith(_OF_LIBRARIES))


def state_beside(value: Any, fields: frozenset[str], slots: tuple[str, ...]) -> dict[str, Any]:
    """The attributes of an object that are no fields, without those of cached properties."""
    state = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    for name in sorted(getattr(value, "__dict__", {}).keys() - fields):
        if not name.startswith(_OF_LIBRARIES) and not _is_cached(class_of(value), name):
            state[name] = value.__dict__[name]
    return state


@functools.lru_cache(4096)
def _is_cached(cls: type, name: str) -> bool:
    """True if the class computes a missing attribute, as ``functools.cached_property`` does."""
    kind = class_of(inspect.getattr_static(cls, name, None))
    is_method = issubclass(kind, (types.FunctionType, classmethod, staticmethod))
    return hasattr(kind, "__get__") and not hasattr(kind, "__set__") and not is_method


def name_of(value: Any) -> str:
    """``<module:qualname>`` of a callable, if it has one; else of the value's class."""
    kind = class_of(value)
    try:
        target: Callable[..., Any] = value if callable(value) else kind
        return f"<{reference(target)}>"
    except Exception:  # noqa: BLE001  # a user's __getattr__ may do anything
        return f"<{reference(kind)}>"


class Stated(Writing):
    """A writing only for comparing two objects: with the attributes that are no fields. Mutable.

    A part that cannot be recorded is taken apart as ``copy`` does; if that fails, too, its class
    stands for it.
    """

    __slots__ = ("_within",)

    def __init__(self, known: Writers, *, surrogates: bool = False) -> None:
        super().__init__(known, surrogates=surrogates)
        self._within = set[int]()

    def beside(self, node: dict[str, Any], state: dict[str, Any], depth: int) -> None:
        """Write the attributes that are no fields."""
        for name, item in state.items():
            node[STATE + name] = self.write(item, depth + 1)

    def write(self, value: Any, depth: int) -> Any:
        """The tree of the value, or of what it consists of."""
        if id(value) in self._within:
            return name_of(value)
        self._within.add(id(value))
        try:
            return super().write(value, depth)
        except Refused as refused:
            return name_of(value) if refused.why == TOO_DEEP else self._parts(value, depth)
        finally:
            self._within.discard(id(value))

    def _parts(self, value: Any, depth: int) -> Any:
        parts: Any = None
        if not hasattr(value, "__qualname__"):
            with suppress(Exception):  # it cannot be copied
                parts = value.__reduce_ex__(4)
        if class_of(parts) is not tuple:
            return name_of(value)
        return [name_of(value), *(self.write(_listed(part), depth + 1) for part in parts)]


def _listed(part: Any) -> Any:
    return list(part) if hasattr(part, "__next__") else part
