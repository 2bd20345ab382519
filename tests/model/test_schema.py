"""JSON schemas of types, and their short names for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    LiteralString,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    Required,
    TypedDict,
    TypeVar,
)

import attrs
import msgspec
import pytest

from handrail.errors import DefinitionError
from handrail.typed.schema import (
    RecordField,
    describe_type,
    hints_of,
    json_schema,
    members,
    plain,
    record_fields,
)

if TYPE_CHECKING:
    from nowhere import Unresolvable

T = TypeVar("T")
Bound = TypeVar("Bound", bound=int)
Constrained = TypeVar("Constrained", int, str)
UserId = NewType("UserId", int)


class Color(Enum):
    RED = "r"
    BLUE = "b"


class Mixed(Enum):
    ONE = 1
    WORD = "w"


@dataclass
class Item:
    name: str
    count: int = 1


@dataclass
class Located:
    name: str
    path: Path


@dataclass
class Tree:
    value: int
    children: list[Tree] = field(default_factory=list)


@dataclass
class EitherTree:
    part: EitherTree | Item | None = None


@dataclass
class Box(Generic[T]):
    inside: list[T]


@dataclass
class WithInitVar:
    total: int = field(init=False)
    parts: InitVar[list[int]]


@dataclass
class HalfKnown:
    known: int
    unknown: Unresolvable = None


@attrs.define
class Point:
    _x: int
    y: int = 0


class Struct(msgspec.Struct, rename="camel"):
    first_name: str


class Pair(NamedTuple):
    left: int
    right: Item | Located


class Options(TypedDict, total=False):
    depth: Required[int]
    mode: str


class Choices(TypedDict):
    mode: NotRequired[Item | Located]


class Name(str):
    __slots__ = ()


class Opaque:
    """A class that is no data."""


ITEM = {
    "title": "Item",
    "type": "object",
    "properties": {"name": {"type": "string"}, "count": {"type": "integer", "default": 1}},
    "required": ["name"],
}
LOCATED = {
    "title": "Located",
    "type": "object",
    "properties": {"name": {"type": "string"}, "path": {"type": "string", "format": "path"}},
    "required": ["name", "path"],
}
EITHER = {"anyOf": [{"$ref": "#/$defs/Item"}, {"$ref": "#/$defs/Located"}]}
TREE = {
    "title": "Tree",
    "type": "object",
    "properties": {
        "value": {"type": "integer"},
        "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
    },
    "required": ["value"],
}


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        (int, {"type": "integer"}),
        (None, {"type": "null"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (Literal[True], {"enum": [True]}),
        (Mixed, {"title": "Mixed", "enum": [1, "w"]}),
        (Any, {}),
        ("Unresolvable", {}),
        (Path, {"type": "string", "format": "path"}),
        (Decimal, {"type": "string", "format": "decimal"}),
        (UserId, {"type": "integer"}),
        (Name, {"type": "string"}),
        (Iterable[int], {"type": "array", "items": {"type": "integer"}}),
        (Iterable, {"type": "array", "items": {}}),
        (Annotated[int, msgspec.Meta(ge=0)], {"type": "integer", "minimum": 0}),
        (Path | int, {"anyOf": [{"type": "string", "format": "path"}, {"type": "integer"}]}),
        (Item, ITEM),
        (Located, LOCATED),
        (
            list[Item],
            {"type": "array", "items": {"$ref": "#/$defs/Item"}, "$defs": {"Item": ITEM}},
        ),
        (Tree, {**TREE, "$defs": {"Tree": TREE}}),
        (Item | Located, {**EITHER, "$defs": {"Item": ITEM, "Located": LOCATED}}),
        (
            dict[str, Item | Located],
            {
                "type": "object",
                "additionalProperties": EITHER,
                "$defs": {"Item": ITEM, "Located": LOCATED},
            },
        ),
        (
            tuple[int, Item | Located],
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}, EITHER],
                "minItems": 2,
                "maxItems": 2,
                "$defs": {"Item": ITEM, "Located": LOCATED},
            },
        ),
        (tuple[Mixed, ...], {"type": "array", "items": {"title": "Mixed", "enum": [1, "w"]}}),
        (
            set[Mixed],
            {
                "type": "array",
                "items": {"title": "Mixed", "enum": [1, "w"]},
                "uniqueItems": True,
            },
        ),
        (
            Choices,
            {
                "title": "Choices",
                "type": "object",
                "properties": {"mode": EITHER},
                "required": [],
                "$defs": {"Item": ITEM, "Located": LOCATED},
            },
        ),
        (
            EitherTree,
            {
                "title": "EitherTree",
                "type": "object",
                "properties": {
                    "part": {
                        "anyOf": [
                            {"type": "object"},
                            {"$ref": "#/$defs/Item"},
                            {"type": "null"},
                        ]
                    }
                },
                "required": [],
                "$defs": {"Item": ITEM},
            },
        ),
        (
            WithInitVar,
            {
                "title": "WithInitVar",
                "type": "object",
                "properties": {"parts": {"type": "array", "items": {"type": "integer"}}},
                "required": ["parts"],
            },
        ),
        (
            HalfKnown,
            {
                "title": "HalfKnown",
                "type": "object",
                "properties": {"known": {"type": "integer"}, "unknown": {}},
                "required": ["known"],
            },
        ),
    ],
)
def test_the_schema_of_a_type(type_: Any, expected: object) -> None:
    """A type's schema says what JSON it is read from, with a record at the root itself."""
    assert expected == json_schema(type_)


@pytest.mark.parametrize(
    "type_", [Opaque, Callable[[int], str], list[Opaque], Item | Opaque, dict[str, type]]
)
def test_a_type_that_is_no_data_has_no_schema(type_: Any) -> None:
    """A type that no JSON can become is refused, naming it, before any model is asked."""
    with pytest.raises(DefinitionError, match="has no JSON form"):
        json_schema(type_)


def _references(node: Any) -> set[str]:
    if isinstance(node, list):
        return set().union(*map(_references, node))
    if not isinstance(node, dict):
        return set()
    here = {node["$ref"]} if "$ref" in node else set()
    return here.union(*map(_references, node.values()))


@pytest.mark.extra("pydantic")
def test_pydantic_definitions_are_found_from_the_root() -> None:
    """The parts of a pydantic model inside another type are where its references point."""
    import pydantic

    Inner = pydantic.create_model("Item", when=(date, ...))  # noqa: N806 - it is a class
    Model = pydantic.create_model("Model", inner=(list[Inner], ...))  # noqa: N806

    schema = json_schema(tuple[Item, list[Model]])
    names = {reference.removeprefix("#/$defs/") for reference in _references(schema)}
    assert names == set(schema["$defs"])
    assert {"Item", "Item_2"} <= names
    assert json.dumps(schema).count('"$defs"') == 1
    assert json_schema(Model)["properties"]["inner"]["items"] == {"$ref": "#/$defs/Item"}


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        (int, "int"),
        (None, "None"),
        (Any, "Any"),
        ("Unresolvable", "Any"),
        (list, "list"),
        (list[int], "list[int]"),
        (dict[str, list[Item]], "dict[str, list[Item]]"),
        (tuple[int, ...], "tuple[int, ...]"),
        (Optional[int], "int | None"),  # noqa: UP045
        (int | list[str], "int | list[str]"),
        (Literal["a", 1], "'a' | 1"),
        (Color, "Color('r' | 'b')"),
        (Annotated[int, msgspec.Meta(gt=0)], "int"),
        (UserId, "int"),
        (Sequence[int], "Sequence[int]"),
        (Mapping[str, Any], "Mapping[str, Any]"),
        (Callable[[int], str], "Callable[[int], str]"),
        (Callable[..., str], "Callable[..., str]"),
        (type[int], "type[int]"),
        (Path, "Path"),
        (Opaque, "Opaque"),
        (Item, "Item(name: str, count: int = ...)"),
        (Box[int], "Box[int](inside: list[int])"),
        (Tree, "Tree(value: int, children: list[Tree] = ...)"),
        (Point, "Point(_x: int, y: int = ...)"),
        (Struct, "Struct(firstName: str)"),
        (Pair, "Pair(left: int, right: Item | Located)"),
        (Options, "Options(depth: int, mode: str = ...)"),
        (Choices, "Choices(mode: Item | Located = ...)"),
    ],
)
def test_a_type_has_a_short_name_for_people(type_: Any, expected: str) -> None:
    """The text reads as the annotation does; a record at the top shows its fields."""
    assert expected == describe_type(type_)


def test_a_record_may_be_named_only() -> None:
    """Without fields a record is its name."""
    assert describe_type(Item, fields=False) == "Item"


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        (Annotated[UserId, "x"], int),
        (NotRequired[Annotated[int, 1]], int),
        (Final[int], int),
        (Final, Any),
        (Bound, int),
        (T, Any),
        (LiteralString, str),
        (InitVar[int], int),
        (object, Any),
        (list[int], list[int]),
    ],
)
def test_what_only_wraps_a_type_is_taken_off(type_: Any, expected: Any) -> None:
    """The plain type is what a value has to be."""
    assert expected == plain(type_)


def test_a_constrained_variable_is_the_union_of_its_constraints() -> None:
    """A type variable with constraints may be any one of them."""
    assert (int, str) == members(plain(Constrained))
    assert members(int) is None


def _recursive_alias() -> dict[str, Any]:
    names: dict[str, Any] = {}
    if sys.version_info >= (3, 12):
        exec("type Nested = dict[str, Nested] | int", names)
    else:  # without the statement an alias cannot refer to itself
        names["Nested"] = dict[str, Any] | int
    return names


def test_a_recursive_alias_is_shown_to_its_first_level() -> None:
    """An alias that stands for itself has an end in its schema and in its name."""
    nested = _recursive_alias()["Nested"]
    objects, integer = json_schema(nested)["anyOf"]
    assert objects.get("additionalProperties", {}) == {}
    assert integer == {"type": "integer"}
    assert describe_type(nested).startswith("dict[str, ")


def test_one_unknown_name_does_not_spoil_the_others() -> None:
    """Annotations that can be resolved are, whatever stands beside them."""

    def function(a: int, b: Unresolvable, c: list[Item]) -> Unresolvable:
        raise NotImplementedError

    assert {"a": int, "b": Any, "c": list[Item], "return": Any} == hints_of(function)


def test_fields_carry_the_names_that_set_them() -> None:
    """A field has a JSON key and the name of its argument, where the two differ."""
    assert (
        RecordField("_x", "x", int, required=True),
        RecordField("y", "y", int, required=False),
    ) == record_fields(Point)
    assert (RecordField("firstName", "first_name", str, required=True),) == record_fields(Struct)
    assert (RecordField("inside", "inside", list[int], required=True),) == record_fields(Box[int])
    assert record_fields(int) is None
    assert record_fields(list[int]) is None
