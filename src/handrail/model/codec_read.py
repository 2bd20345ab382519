"""A value from a JSON tree in which objects may have tags."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from handrail.model.codec_annotations import read_annotation, read_limits
from handrail.model.codec_builtins import PAIRED, READERS, Node
from handrail.model.codec_places import (
    field_places,
    item_place,
    one_data_class,
    pair_places,
)
from handrail.model.codec_pydantic import ARGUMENTS, specialised
from handrail.model.codec_shapes import Shape
from handrail.model.codec_write import TAG, class_of

_READERS = {**READERS, "meta": read_limits}

VALUE = "$v"
"""Where a user's codec has put what it made; no field of a data class has such a name."""


class Unreadable(Exception):
    """An object in a tree that no value can be made of here."""

    def __init__(self, tag: str, why: str, *, unknown: bool = False, misfit: bool = False) -> None:
        super().__init__(tag, why)
        self.tag = tag
        self.why = why
        self.unknown = unknown
        self.misfit = misfit


class Names(Protocol):
    """What the names in a tree mean."""

    def shape(self, tag: str, place: Any) -> Shape:
        """The data class of a tag; ``place`` is what is declared where it was found, or None."""
        ...

    def type(self, name: str) -> Any:
        """The type of this name."""
        ...

    def decoder(self, tag: str) -> Callable[[Any], Any]:
        """What makes a value of what a user's codec has written."""
        ...


class Reading:
    """The reading of one tree; it is used up by that: values take the place of what stood for them.

    Without ``placed`` nothing is asked of the declared type, which is much faster.
    """

    __slots__ = ("_shapes", "names", "placed")

    def __init__(self, names: Names, *, placed: bool = False) -> None:
        self.names = names
        self.placed = placed
        self._shapes: dict[str, Shape] = {}

    def read(self, tree: Any, place: Any = None) -> Any:
        """The value that a tree stands for.

        Raises:
            Unreadable: a tag in it means nothing here, or its value could not be built.
        """
        kind = class_of(tree)
        if kind is list:
            for index, item in enumerate(tree):
                if class_of(item) is dict or class_of(item) is list:
                    inner = None if place is None else item_place(place, index)
                    tree[index] = self.read(item, inner)
            return tree
        if kind is not dict:
            return tree
        node: Node = tree
        if TAG in node:
            return self._tagged(node, place)
        inner = None if place is None else pair_places(place)[1]
        for key, item in node.items():
            if class_of(item) is dict or class_of(item) is list:
                node[key] = self.read(item, inner)
        return node

    def _tagged(self, node: Node, place: Any) -> Any:
        tag = node.pop(TAG)
        if class_of(tag) is not str:
            raise Unreadable(str(tag), "it is no tag")
        if ":" in tag:
            return self._custom(tag, node) if VALUE in node else self._record(tag, node, place)
        if tag == "type":
            return self._type(node)
        reader = _READERS.get(tag)
        if reader is None:
            raise Unreadable(tag, "this version of handrail does not know it")
        if tag in PAIRED:
            try:
                self._pairs(node, place)
            except (KeyError, IndexError, TypeError) as error:
                raise Unreadable(tag, "it is no list of keys and values") from error
        else:
            for key, item in node.items():
                if class_of(item) is list or class_of(item) is dict:
                    node[key] = self.read(item, place)
        return _built(tag, reader, node)

    def _pairs(self, node: Node, place: Any) -> None:
        key_place, item_place = (None, None) if place is None else pair_places(place)
        for pair in node["v"]:
            pair[0] = self.read(pair[0], key_place)
            pair[1] = self.read(pair[1], item_place)
        if class_of(node.get("factory")) is dict:
            node["factory"] = self.read(node["factory"])

    def _record(self, tag: str, node: Node, place: Any) -> Any:
        shape = self._shapes.get(tag)
        if shape is None:
            shape = self.names.shape(tag, place)
            if not self.placed:  # then the tag alone says which class it is
                self._shapes[tag] = shape
        if ARGUMENTS in node:
            shape = self._specialised(shape, node)
        places = self._places(shape, place) if self.placed else {}
        for key, item in node.items():
            if class_of(item) is dict or class_of(item) is list:
                node[key] = self.read(item, places.get(key))
        renamed = self.placed and tag != shape.tag
        if renamed and not shape.known.issuperset(node):
            raise Unreadable(
                tag, f"no class of this name is loaded, and {shape.tag} has not all of its fields"
            )
        return _built(tag, shape.read, node)

    def _specialised(self, shape: Shape, node: Node) -> Shape:
        made = {ARGUMENTS: self.read(node.pop(ARGUMENTS))}
        found: Shape = _built(shape.tag, lambda made: specialised(shape, made[ARGUMENTS]), made)
        return found

    def _places(self, shape: Shape, place: Any) -> dict[str, Any]:
        declared = None if place is None else one_data_class(place)
        fits = getattr(declared, "__origin__", declared) is shape.cls
        return field_places(declared if fits else shape.cls)

    def _custom(self, tag: str, node: Node) -> Any:
        decode = self.names.decoder(tag)
        return _built(tag, lambda made: decode(made[VALUE]), {VALUE: self.read(node[VALUE])})

    def _type(self, node: Node) -> Any:
        name = str(node.get("v", ""))
        origin = self.names.type(name)
        if "args" in node:
            self.read(node["args"])
        return _built(name, lambda made: read_annotation(origin, name, made), node)


def _built(tag: str, build: Callable[[Node], Any], node: Node) -> Any:
    try:
        return build(node)
    except Exception as error:
        why = f"building it raised {type(error).__name__}: {error}"
        raise Unreadable(tag, why, misfit=True) from error
