"""Builds a value from a JSON tree in which objects may have tags."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any, Protocol

from handrail.codec.builtins import PAIRED, READERS, Node
from handrail.codec.class_shapes import Shape
from handrail.codec.classes import (
    ARGUMENTS,
    is_data,
    is_model,
    read_annotation,
    read_limits,
    specialised,
)
from handrail.codec.writing import TAG, class_of
from handrail.typed.schema import (
    LISTS,
    MAPS,
    SETS,
    hints_of,
    is_list,
    members,
    plain,
    record_fields,
    shape_of,
)


def data_classes(declared: Any) -> list[type]:
    """Every data class in a type: in its arguments, in the types of its fields, and so on."""
    found: list[type] = []
    seen: list[Any] = []
    waiting = [declared]
    while waiting:
        type_ = plain(waiting.pop())
        if type_ in seen:
            continue
        seen.append(type_)
        origin, arguments = shape_of(type_)
        waiting.extend(one for one in _flat(arguments) if not _is_value(one))
        if origin not in found and is_data(origin):
            found.append(origin)
            waiting.extend(_hints(origin).values())
            waiting.extend(getattr(origin, "__orig_bases__", ()))
    return found


def _hints(cls: Any) -> dict[str, Any]:
    """The fields' types; pydantic has resolved the names in them, local ones too."""
    if is_model(cls):
        return {name: info.annotation for name, info in cls.__pydantic_fields__.items()}
    return hints_of(cls)


def _flat(arguments: typing.Iterable[Any]) -> list[Any]:
    """The arguments as one flat list; those of a Callable are a list inside the list."""
    flat: list[Any] = []
    for argument in arguments:
        flat.extend(argument if is_list(argument) else [argument])
    return flat


def _is_value(argument: Any) -> bool:
    """True for what a Literal lists: it is no type."""
    return argument is ... or isinstance(argument, (str, bytes, int))


def members_of(place: Any) -> list[Any]:
    """The types that a value at a place may have: a union as its members."""
    type_ = plain(place)
    union = members(type_)
    if union is None:
        return [type_]
    return [inner for member in union for inner in members_of(member)]


def one_data_class(place: Any) -> Any:
    """The data class declared at a place (with its arguments) if there is just one, else None."""
    found = [type_ for type_ in members_of(place) if is_data(shape_of(type_)[0])]
    return found[0] if len(found) == 1 else None


def item_place(place: Any, index: int) -> Any:
    """The type declared for an item of a list, set or tuple."""
    for type_ in members_of(place):
        origin, arguments = shape_of(type_)
        if origin is tuple and arguments and arguments[-1] is not ...:
            return arguments[index] if index < len(arguments) else None
        if arguments and (origin in LISTS or origin in SETS or origin is tuple):
            return arguments[0]
    return None


def pair_places(place: Any) -> tuple[Any, Any]:
    """The types declared for the keys and for the values of a mapping."""
    for type_ in members_of(place):
        origin, arguments = shape_of(type_)
        if len(arguments) == 2 and isinstance(origin, type) and issubclass(origin, MAPS):
            return arguments
    return None, None


def field_places(place: Any) -> dict[str, Any]:
    """The types of the fields of a data class, type variables replaced by its arguments."""
    origin = shape_of(place)[0]
    places = dict(_hints(origin))
    for field in record_fields(place) or ():
        places[field.key if field.key in places else field.argument] = field.type
    return places


_READERS = {**READERS, "meta": read_limits}

VALUE = "$v"
"""The key for what a ``TypeCodec`` has encoded; no field of a data class can have such a name."""


class Unreadable(Exception):
    """An object in a tree cannot be turned into a value here.

    ``unknown``: its name was not found. ``misfit``: building the value raised.
    """

    def __init__(self, tag: str, why: str, *, unknown: bool = False, misfit: bool = False) -> None:
        super().__init__(tag, why)
        self.tag = tag
        self.why = why
        self.unknown = unknown
        self.misfit = misfit


class Names(Protocol):
    """Finds the classes for the names in a tree."""

    def shape(self, tag: str, place: Any) -> Shape:
        """The data class of a tag; ``place`` is the type declared at the tag's place, or None."""
        ...

    def type(self, name: str) -> Any:
        """The type of this name."""
        ...

    def decoder(self, tag: str) -> Callable[[Any], Any]:
        """The ``decode`` of the user's ``TypeCodec`` of this name."""
        ...


class Reading:
    """Reads one tree, and uses it up: values replace the objects of the tree in place.

    ``placed``: the declared types help to find classes; without it reading is much faster.
    """

    __slots__ = ("_shapes", "names", "placed")

    def __init__(self, names: Names, *, placed: bool = False) -> None:
        self.names = names
        self.placed = placed
        self._shapes: dict[str, Shape] = {}

    def read(self, tree: Any, place: Any = None) -> Any:
        """The value of a tree.

        Raises:
            Unreadable: a tag in it is not known here, or its value could not be built.
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
            if not self.placed:  # then the class depends on the tag alone
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
