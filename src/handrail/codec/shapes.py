"""Data classes as the codec sees them: fields to take, and a way to put them together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from handrail.codec.builtins import Node
from handrail.codec.writing import INT_MAX, INT_MIN, TAG, Refused, Writing, class_of

_ABSENT: Any = object()


@dataclass(frozen=True, slots=True)
class Shape:
    """How values of one data class are taken apart and put together.

    ``proven``: an instance made of the fields of another is equal to it, whatever they are.
    ``beside`` are keys for what is no field. ``known``: all keys of a record made now; one that was
    made earlier may have more or fewer, if the class has changed. ``newer`` are fields with
    their defaults that are left out of a fingerprint, and of a record if they have the default.
    """

    cls: Any
    tag: str
    names: tuple[str, ...]
    make: Callable[[Node], Any]
    proven: bool
    beside: tuple[str, ...] = ()
    newer: Mapping[str, Any] = field(default_factory=dict[str, Any])
    known: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "known", frozenset((*self.names, *self.beside)))

    def write(self, writing: Writing, value: Any, depth: int) -> Node:
        """The value as an object of its fields; those that are not set are left out."""
        if writing.classes.get(self.tag) is not self.cls:
            writing.met(self.tag, self.cls)
        if not self.proven:
            writing.proven = False
        as_is, newer = writing.as_is, self.newer
        node: Node = {TAG: self.tag}
        name = ""
        try:
            for name in self.names:
                try:
                    item: Any = getattr(value, name, _ABSENT)
                except Exception as error:
                    why = f"reading it raised {type(error).__name__}: {error}"
                    raise Refused(why) from error
                if name in newer and (writing.names or item == newer[name]):
                    continue
                kind = class_of(item)
                if kind in as_is or (kind is int and INT_MIN <= item <= INT_MAX):
                    node[name] = item
                elif item is not _ABSENT:
                    node[name] = writing.write(item, depth + 1)
                else:
                    writing.proven = False
        except Refused as refused:
            raise refused.inside(value, f".{name}") from refused.__cause__
        return node

    def read(self, node: Node) -> Any:
        """The value that an object of fields (without its tag) stands for."""
        if not self.known.issuperset(node):
            node = {name: item for name, item in node.items() if name in self.known}
        return self.make(node)


class EnumShape(Shape):
    """How members of an Enum are written: by name, and combined flags by value."""

    __slots__ = ()

    def write(self, writing: Writing, value: Any, depth: int) -> Node:
        """The member's name; its value if it has no name of its own."""
        writing.met(self.tag, self.cls)
        name = value._name_
        if self.cls.__members__.get(name) is value:
            return {TAG: self.tag, "name": name}
        writing.proven = False
        return {TAG: self.tag, "value": writing.write(value.value, depth + 1)}
