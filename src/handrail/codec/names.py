"""What a codec knows of classes: how to write each, and which class a name in a record means."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from handrail.codec.builtins import WRITERS, is_zoneinfo, write_zoneinfo
from handrail.codec.class_shapes import Shape
from handrail.codec.classes import (
    is_annotation,
    is_data,
    shape_of_class,
    write_annotation,
    write_limits,
)
from handrail.codec.reading import Unreadable, data_classes, one_data_class
from handrail.codec.types import find_by_name, still_loaded, tag_of, type_by_name
from handrail.codec.writing import WITH_TEXT, Refused, Writer, Writing
from handrail.typed.schema import shape_of

_REMEMBERED = 4096
"""How many classes are remembered; bounds the memory if a program keeps creating classes."""


class Classes:
    """The classes that one codec has met, and how it writes them. Mutable: it learns."""

    __slots__ = ("_declared", "_own", "_shapes", "decoders", "loaded", "writers")

    def __init__(
        self,
        writers: Mapping[type, Writer],
        decoders: Mapping[str, Callable[[Any], Any]],
    ) -> None:
        self._own = {**WRITERS, msgspec.Meta: write_limits, **writers}
        self.writers = dict(self._own)
        self.decoders = decoders
        self.loaded: dict[str, Shape] = {}
        self._shapes: dict[type, Shape | None] = {}
        self._declared: dict[Any, dict[str, type | None]] = {}

    def learn(self, kind: type) -> Writer:
        """The writer for values of a class that was not met before.

        Raises:
            Refused: values of the class cannot be written.
        """
        if len(self.writers) > _REMEMBERED:
            self.writers = dict(self._own)
        writer = self._writer(kind)
        self.writers[kind] = writer
        return writer

    def _writer(self, kind: type) -> Writer:
        shape = self.shape(kind)
        if shape is not None:
            return shape.write
        if is_zoneinfo(kind):
            return write_zoneinfo
        if is_annotation(kind):
            return write_annotation
        raise Refused(why_not(kind))

    def shape(self, cls: type) -> Shape | None:
        """The shape of a data class; None for any other class."""
        if cls not in self._shapes:
            if len(self._shapes) > _REMEMBERED:
                self._shapes.clear()
                self.loaded.clear()
            self._shapes[cls] = shape_of_class(cls)
        return self._shapes[cls]

    def finds(self, met: Mapping[str, Any]) -> bool:
        """True if each tag is known to lead to its class; nearly always, after the first time."""
        loaded = self.loaded
        for tag, cls in met.items():
            known = loaded.get(tag)
            if known is None or known.cls is not cls or not still_loaded(cls):
                return False
        return True

    def declared(self, type_: Any) -> Mapping[str, type | None]:
        """The data classes in a type by their tags; None for a tag that two classes share."""
        try:
            known = self._declared.get(type_)
        except TypeError:  # not hashable, because of an annotation's metadata
            return self._by_tag(data_classes(type_))
        if known is None:
            if len(self._declared) > _REMEMBERED:
                self._declared.clear()
            known = self._declared[type_] = self._by_tag(data_classes(type_))
        return known

    def _by_tag(self, classes: list[type]) -> dict[str, type | None]:
        found: dict[str, type | None] = {}
        for shape in filter(None, map(self.shape, classes)):
            known = found.setdefault(shape.tag, shape.cls)
            if known is not shape.cls:
                found[shape.tag] = None
        return found


def why_not(kind: type) -> str:
    """Why values of a class cannot be written, for people."""
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    base = next((cls for cls in kind.__mro__[1:] if cls in WRITERS or cls in WITH_TEXT), None)
    if base is not None:
        return (
            f"{name} is a subclass of {base.__name__}, and only {base.__name__} itself is written"
        )
    if issubclass(kind, BaseException):
        return f"{name} is an exception"
    return f"{name} is not data"


class Resolution:
    """Finds the classes for the names in a record, given the declared type."""

    __slots__ = ("_classes", "_declared")

    def __init__(self, classes: Classes, declared: Any) -> None:
        self._classes = classes
        self._declared = _NONE if declared is Any else classes.declared(declared)

    def shape(self, tag: str, place: Any) -> Shape:
        """The class declared for the tag, else a loaded one, else the only one at ``place``."""
        here = None if place is None else shape_of(one_data_class(place))[0]
        if here is not None and tag_of(here) == tag:
            return self._of(here, tag)
        declared = self._declared.get(tag)
        if declared is not None:
            return self._of(declared, tag)
        return self._loaded(tag) or self._of(here, tag)

    def _loaded(self, tag: str) -> Shape | None:
        known = self._classes.loaded.get(tag)
        if known is not None and still_loaded(known.cls):
            return known
        found = find_by_name(tag)
        if found is None:
            return None
        shape = self._classes.loaded[tag] = self._of(found, tag)
        return shape

    def _of(self, found: Any, tag: str) -> Shape:
        if found is None:
            raise Unreadable(tag, "no class of this name is loaded or declared", unknown=True)
        shape = self._classes.shape(found) if is_data(found) else None
        if shape is None:
            raise Unreadable(tag, "what has this name is no data class, and has no TypeCodec")
        return shape

    def type(self, name: str) -> Any:
        """The type of this name: declared, or loaded."""
        found: Any = self._declared.get(name) or type_by_name(name)
        if found is None:
            raise Unreadable(name, "no type of this name is loaded or declared", unknown=True)
        return found

    def decoder(self, tag: str) -> Callable[[Any], Any]:
        """The ``decode`` of the user's ``TypeCodec`` of this name."""
        try:
            return self._classes.decoders[tag]
        except KeyError:
            raise Unreadable(tag, "the codec has no TypeCodec of this name") from None

    def lost(self, met: Mapping[str, Any]) -> list[str]:
        """The tags that do not lead back to their class, but to another class or to none."""
        lost: list[str] = []
        for tag, cls in met.items():
            declared = self._declared.get(tag)
            if (declared or find_by_name(tag)) is not cls:
                lost.append(tag)
            elif declared is None and self._classes.shape(cls) is not None:
                self._loaded(tag)  # so that ``finds`` knows it from now on
        return lost


_NONE: Mapping[str, Any] = {}


class Locating(Writing):
    """A second writing of a value, which refuses the first class that could not be found again."""

    __slots__ = ("_lost",)

    def __init__(self, known: Classes, lost: Sequence[str], *, surrogates: bool) -> None:
        super().__init__(known, surrogates=surrogates)
        self._lost = lost

    def met(self, tag: str, cls: type) -> None:
        """Refuse the class if its tag is lost."""
        if tag in self._lost:
            name = f"{cls.__module__}.{cls.__qualname__}"
            raise Refused(
                f"the class {name} cannot be found by its name, and is not declared. Name it in "
                f"the return annotation, or move it to the top level of its module"
            )
        super().met(tag, cls)


class Met:
    """Finds classes for a trial reading: those that the writing has just met."""

    __slots__ = ("_classes", "_met")

    def __init__(self, classes: Classes, met: Mapping[str, Any]) -> None:
        self._classes = classes
        self._met = met

    def shape(self, tag: str, place: Any) -> Shape:
        """The class that was met under this name."""
        del place
        shape = self._classes.shape(self._met[tag])
        assert shape is not None
        return shape

    def type(self, name: str) -> Any:
        """The class that was met under this name, else a loaded type."""
        found = self._met.get(name) or type_by_name(name)
        if found is None:
            raise Unreadable(name, "it cannot be found by its name")
        return found

    def decoder(self, tag: str) -> Callable[[Any], Any]:
        """The ``decode`` of the user's ``TypeCodec`` of this name."""
        return self._classes.decoders[tag]
