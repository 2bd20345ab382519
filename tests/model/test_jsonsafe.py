"""Any Python value as strict JSON."""

from __future__ import annotations

import json
from collections import OrderedDict, deque, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.errors import InvalidInput
from handrail.typed.jsonsafe import MAX_DEPTH, json_safe, record_items, short_repr


class Color(Enum):
    RED = "r"


class Corner(Enum):
    LEFT = (1, 2)


class Level(IntEnum):
    LOW = 1


class Mode(StrEnum):
    FAST = "fast"


@dataclass(frozen=True, slots=True)
class Item:
    name: str
    inside: Any = None


@attrs.define
class Point:
    x: int


class Struct(msgspec.Struct, rename="camel", tag="s"):
    first_name: str
    later: int | msgspec.UnsetType = msgspec.UNSET


class Pair(NamedTuple):
    left: int
    right: str


OldPair = namedtuple("OldPair", ["a", "b"])  # noqa: PYI024 - some code still has them


class Hostile:
    """Everything that can be asked of it raises."""

    def __repr__(self) -> str:
        raise RuntimeError("no")

    def __hash__(self) -> int:
        return 1


class HostileMapping(dict[str, int]):
    def items(self) -> Any:
        """As all else here, broken."""
        raise RuntimeError("no")


class HostileError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


@dataclass
class Broken:
    here: int

    def __getattribute__(self, name: str) -> Any:
        if name == "here":
            raise RuntimeError("no")
        return super().__getattribute__(name)


def function() -> None:
    """One of the things that have a name."""


MODULE = __name__


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (5, 5),
        (1.5, 1.5),
        ("text", "text"),
        ("\ud800", "\\ud800"),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (Color.RED, "r"),
        (Corner.LEFT, [1, 2]),
        (Level.LOW, 1),
        (Mode.FAST, "fast"),
        (date(2024, 1, 2), "2024-01-02"),
        (datetime(2024, 1, 2, 3, tzinfo=UTC), "2024-01-02T03:00:00+00:00"),
        (time(1, 2), "01:02:00"),
        (timedelta(days=1, seconds=3), "P1DT3S"),
        (Path("a/b"), "a/b"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Decimal("0.10"), "0.10"),
        (Decimal("NaN"), "NaN"),
        (Fraction(1, 3), "1/3"),
        (b"hi", "aGk="),
        (bytearray(b"hi"), "aGk="),
        (memoryview(b"hi"), "aGk="),
        (ValueError("bad"), "ValueError: bad"),
        (KeyError("k"), "KeyError: 'k'"),
        (ValueError(), "ValueError"),
        (InvalidInput("p", "1", "int"), "InvalidInput: input 'p': got 1, expected int"),
        ([1, (2, 3)], [1, [2, 3]]),
        (deque([1]), [1]),
        (range(3), [0, 1, 2]),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset({"b", "a"}), ["a", "b"]),
        ({"b", 1}, ["b", 1]),
        ({"a": {1: 2}}, {"a": {"1": 2}}),
        (
            {None: 0, True: 1, 1.5: 2, Color.RED: 3, (1, 2): 4, date(2024, 1, 2): 5},
            {"null": 0, "true": 1, "1.5": 2, "r": 3, "[1, 2]": 4, "2024-01-02": 5},
        ),
        (MappingProxyType({"a": 1}), {"a": 1}),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (Item("n", Item("m")), {"name": "n", "inside": {"name": "m", "inside": None}}),
        (Point(1), {"x": 1}),
        (Struct("f"), {"type": "s", "firstName": "f"}),
        (Pair(1, "r"), {"left": 1, "right": "r"}),
        (OldPair(1, 2), {"a": 1, "b": 2}),
        (int, "int"),
        (Item, f"{MODULE}.Item"),
        (function, f"{MODULE}.function"),
        (list[int], "list[int]"),
        (object, "object"),
        (1 + 2j, "(1+2j)"),
        (Hostile(), "<Hostile whose repr raised RuntimeError>"),
    ],
)
def test_values_become_json(value: object, expected: object) -> None:
    """Each kind of value has its one JSON form."""
    assert expected == json_safe(value)


def test_the_order_of_a_mapping_stays() -> None:
    """Keys come in the order of the mapping, for a person reads them."""
    assert list(json_safe({"b": 1, "a": 2}) or ()) == ["b", "a"]  # type: ignore[arg-type]


def test_a_cycle_is_cut() -> None:
    """A value inside itself is shown once."""
    cycle: dict[str, Any] = {"a": 1}
    cycle["me"] = [cycle]
    assert json_safe(cycle) == {"a": 1, "me": ["..."]}


def test_a_value_met_twice_is_shown_twice() -> None:
    """Only a value inside itself is cut, not one that stands in two places."""
    shared = [1]
    assert json_safe([shared, shared]) == [[1], [1]]


def test_what_lies_too_deep_is_cut() -> None:
    """Below the depth limit there is an ellipsis."""
    deep: Any = "bottom"
    for _ in range(10_000):
        deep = [deep]
    shown = json.dumps(json_safe(deep))
    assert shown == "[" * MAX_DEPTH + '"..."' + "]" * MAX_DEPTH
    while isinstance(deep, list):  # taken apart from outside: its deletion would recurse
        deep = deep.pop()


@pytest.mark.parametrize(
    "value", [HostileMapping(a=1), HostileError(), Broken(1), [Hostile()], {Hostile(): Hostile()}]
)
def test_it_never_raises(value: object) -> None:
    """Values whose own methods raise are shown some other way."""
    assert json.dumps(json_safe(value), allow_nan=False)


def test_an_iterator_is_not_used_up() -> None:
    """Showing an iterator takes nothing from it."""
    numbers: Iterator[int] = iter([1, 2])
    json_safe(numbers)
    assert list(numbers) == [1, 2]


def test_an_integer_too_long_to_print_is_hexadecimal() -> None:
    """Where Python refuses decimal digits, JSON text gets hexadecimal ones."""
    assert json_safe(10**100) == 10**100
    huge = 1 << 20_000
    assert hex(huge) == json_safe(huge)
    json.dumps(json_safe([huge]))


@pytest.mark.extra("pydantic")
def test_pydantic_models_are_objects() -> None:
    """A pydantic model is shown by its fields, and its secrets are not."""
    import pydantic

    class Model(pydantic.BaseModel):
        when: date
        key: pydantic.SecretStr

    model = Model(when=date(2024, 1, 2), key=pydantic.SecretStr("hush"))
    shown = json_safe(model)
    assert isinstance(shown, dict)
    assert shown["when"] == "2024-01-02"
    assert "hush" not in json.dumps(shown)


def test_a_class_is_no_record() -> None:
    """The fields of a record are those of an instance, not of its class."""
    assert record_items(Item) is None
    assert list(record_items(Point(1)) or ()) == [("x", 1)]


def test_a_long_repr_keeps_both_ends() -> None:
    """A repr is cut in the middle, to the limit exactly."""
    text = short_repr("a" * 500 + "z" * 500, limit=60)
    assert len(text) == 60
    assert text.startswith("'aaa")
    assert text.endswith("zzz'")
    assert "..." in text
    assert short_repr([1]) == "[1]"


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.text(st.characters(categories=["Cs"]))
    | st.binary()
    | st.decimals()
    | st.datetimes()
    | st.timedeltas()
    | st.uuids()
    | st.complex_numbers()
    | st.sampled_from([Color.RED, Level.LOW, ValueError("e"), int, function])
    | st.builds(Hostile),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers() | st.floats() | st.none(), inner)
        | st.builds(Item, st.text(), inner)
        | st.sets(st.integers() | st.text() | st.floats() | st.none())
    ),
    max_leaves=10,
)


@given(values)
def test_what_it_returns_is_strict_json(value: object) -> None:
    """Every drawn value passes the strictest encoders, and is written as UTF-8."""
    shown = json_safe(value)
    written = json.dumps(shown, allow_nan=False, ensure_ascii=False)
    assert shown == json.loads(written.encode("utf-8"))


@given(values)
def test_json_stays_as_it_is(value: object) -> None:
    """What is JSON already is not changed by being made so again."""
    shown = json_safe(value)
    assert shown == json_safe(shown)
