"""Data classes as the codec sees them: the fields to write, and a way to rebuild the value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

from handrail.codec.builtins import Node
from handrail.codec.state import slots_beside, state_beside
from handrail.codec.writing import INT_MAX, INT_MIN, TAG, Refused, Writing, class_of
from handrail.model.dataclass import dataclass

_ABSENT: Any = object()


@dataclass(frozen=True, slots=True)
class Shape:
    """How values of one data class are taken apart and rebuilt.

    ``proven``: an instance built from another's fields is always equal to it. ``beside`` are keys
    of a record that are no fields. ``known`` has all keys of a record written now; one written
    before the class changed may have more or fewer. ``open``: an instance may have attributes that
    are no fields, in its ``__dict__`` or in ``slots``. ``named``: the fields that a
    fingerprint has, if it leaves some out.
    """

    cls: Any
    tag: str
    names: tuple[str, ...]
    make: Callable[[Node], Any]
    proven: bool
    beside: tuple[str, ...] = ()
    named: tuple[str, ...] | None = None
    known: frozenset[str] = field(init=False)
    open: bool = field(init=False)
    slots: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        known = frozenset((*self.names, *self.beside))
        slots = slots_beside(self.cls, known)
        object.__setattr__(self, "known", known)
        object.__setattr__(self, "slots", slots)
        object.__setattr__(self, "open", bool(slots) or self.cls.__dictoffset__ != 0)

    def write(self, writing: Writing, value: Any, depth: int) -> Node:
        """The value as an object of its fields; fields that are not set are left out."""
        if writing.classes.get(self.tag) is not self.cls:
            writing.met(self.tag, self.cls)
        if not self.proven:
            writing.proven = False
        as_is, names = writing.as_is, self.names
        if writing.names and self.named is not None:
            names = self.named
        node: Node = {TAG: self.tag}
        name = ""
        try:
            for name in names:
                try:
                    item: Any = getattr(value, name, _ABSENT)
                except Exception as error:
                    why = f"reading it raised {type(error).__name__}: {error}"
                    raise Refused(why) from error
                kind = class_of(item)
                if kind in as_is or (kind is int and INT_MIN <= item <= INT_MAX):
                    node[name] = item
                elif item is not _ABSENT:
                    node[name] = writing.write(item, depth + 1)
                else:
                    writing.proven = False
        except Refused as refused:
            raise refused.add_step(value, f".{name}") from refused.__cause__
        if self.open and (self.slots or not self.known.issuperset(value.__dict__)):
            state = state_beside(value, self.known, self.slots)
            if state:
                writing.beside(node, state, depth)
        return node

    def read(self, node: Node) -> Any:
        """The value that an object of fields (without its tag) describes."""
        if not self.known.issuperset(node):
            node = {name: item for name, item in node.items() if name in self.known}
        return self.make(node)


class EnumShape(Shape):
    """The shape of an Enum: it writes members by name, and combined flags by value."""

    __slots__ = ()

    def write(self, writing: Writing, value: Any, depth: int) -> Node:
        """The member's name; its value if it has no name of its own."""
        writing.met(self.tag, self.cls)
        name = value._name_
        if self.cls.__members__.get(name) is value:
            return {TAG: self.tag, "name": name}
        writing.proven = False
        return {TAG: self.tag, "value": writing.write(value.value, depth + 1)}
