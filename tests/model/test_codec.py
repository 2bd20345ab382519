"""The law of the codec: what is written comes back equal, and with the same text."""

from __future__ import annotations

import copy
import enum
import math
import struct
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from handrail import (
    Codec,
    OutputNotSerializable,
    StepResult,
    Unresolvable,
    Unresolved,
    Usage,
)
from handrail.codec import writing
from handrail.codec.plain import is_plain, plain_json

T = TypeVar("T")
CODEC = Codec()


class Colour(enum.Enum):
    RED = "r"
    CRIMSON = "r"  # noqa: PIE796  # a second name of the same member
    BLUE = (1, 2)


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    YES = "yes"


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: Any
    y: Any = 0


@dataclass
class Box(Generic[T]):
    item: T
    note: str = ""


@dataclass(frozen=True, slots=True)
class Sealed:
    item: Any
    number: float = 0.0


@dataclass
class Derived:
    items: list[Any]
    count: int = field(init=False)

    def __post_init__(self) -> None:
        self.count = len(self.items)


@attrs.define
class Private:
    _item: Any
    other: Any = attrs.field(default=None, alias="another")
    late: Any = attrs.field(init=False, default=1)


@attrs.frozen
class Checked:
    text: str = attrs.field(converter=str, validator=attrs.validators.instance_of(str))


class Renamed(msgspec.Struct, rename="camel"):
    first_item: Any
    second_item: Any = msgspec.UNSET


class Tagged(msgspec.Struct, frozen=True, tag="t", kw_only=True):
    item: Any


OFFSETS = st.timedeltas(timedelta(hours=-23), timedelta(hours=23))
ZONES = st.one_of(
    st.none(),
    st.builds(timezone, OFFSETS),
    st.builds(timezone, OFFSETS, st.text(max_size=3)),
    st.sampled_from([ZoneInfo("Europe/Berlin"), ZoneInfo("UTC"), UTC]),
)
ANY_TEXT = st.text(max_size=8) | st.text('a$é/\\"\ud83d\ude00\ud800', max_size=5)  # surrogates, too

KEYS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=2**62, max_value=2**70),
    st.floats(),
    st.complex_numbers(),
    ANY_TEXT,
    st.just("$"),
    st.binary(max_size=8),
    st.dates(),
    st.datetimes(timezones=ZONES, allow_imaginary=True),
    st.datetimes().map(lambda moment: moment.replace(fold=1)),
    st.times(timezones=ZONES),
    st.timedeltas(),
    st.uuids(),
    st.decimals().filter(lambda number: not number.is_snan()),
    st.fractions(),
    st.sampled_from([*Colour, *Level, *Word, Right(0), Right.READ, Right.READ | Right.WRITE]),
    st.builds(Path, ANY_TEXT.filter(lambda text: "\0" not in text)),
    st.builds(PurePosixPath, ANY_TEXT),
    st.builds(PureWindowsPath, st.text("ab/\\:. ", max_size=8)).filter(
        lambda path: PureWindowsPath(str(path)) == path
    ),
    st.sampled_from(
        [ZoneInfo("Asia/Tokyo"), int, Box, Box[int], list[int], range(0), range(9, 1, -2)]
    ),
)
HASHABLE = st.recursive(
    KEYS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.frozensets(inner, max_size=3),
        st.builds(Sealed, inner),
        st.builds(Point, inner, inner),
    ),
    max_leaves=4,
)


def holders(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values that hold values."""
    pairs = st.dictionaries(HASHABLE, inner, max_size=3)
    lists = st.lists(inner, max_size=3)
    return st.one_of(
        lists,
        lists.map(tuple),
        st.builds(deque, lists, st.none() | st.integers(3, 5)),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        pairs,
        pairs.map(OrderedDict),
        pairs.map(MappingProxyType),
        pairs.map(lambda items: defaultdict(list, items)),
        st.builds(Box, inner),
        st.builds(Sealed, inner, st.floats()),
        lists.map(Derived),
        st.tuples(inner, inner).map(lambda two: Private(two[0], another=two[1])),
        inner.map(Renamed),
        st.tuples(inner, inner).map(lambda two: Renamed(*two)),
        inner.map(lambda item: Tagged(item=item)),
        inner.map(Point),
        st.text(max_size=3).map(Checked),
        inner.map(lambda output: StepResult("a", "a", "python", "succeeded", output)),
    )


LEAVES = st.one_of(
    HASHABLE,
    st.decimals(allow_nan=True),
    st.binary(max_size=8).map(bytearray),
    st.sets(HASHABLE, max_size=3),
    st.builds(Counter, st.text(max_size=5)),
)
VALUES = st.recursive(LEAVES, holders, max_leaves=12)


def alike(one: Any, other: Any) -> bool:
    """True if two values have the same classes and parts, NaN being like NaN, and -0.0 not 0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, (float, complex, Decimal)):
        return repr(one) == repr(other)
    if isinstance(one, (datetime, time)):
        return repr(one) == repr(other)
    if isinstance(one, (dict, MappingProxyType)):
        return alike(list(one.items()), list(other.items()))
    if isinstance(one, (set, frozenset)):
        return len(one) == len(other) and all(any(alike(a, b) for b in other) for a in one)
    if isinstance(one, (list, tuple, deque)):
        return len(one) == len(other) and all(map(alike, one, other))
    names = _field_names(one)
    if names is None:
        return bool(one == other)
    return all(alike(getattr(one, name), getattr(other, name)) for name in names)


def _field_names(value: Any) -> list[str] | None:
    if isinstance(value, msgspec.Struct):
        return list(value.__struct_fields__)
    if isinstance(value, type):
        return None
    if attrs.has(type(value)):
        return [a.name for a in attrs.fields(type(value))]
    return list(getattr(value, "__dataclass_fields__", ())) or None


@given(VALUES)
def test_a_value_comes_back_with_its_type_and_text(value: Any) -> None:
    """Whatever is written is read as a value of the same classes, equal, and with the same text."""
    text = CODEC.dump(value)
    back = CODEC.load(text)
    assert alike(value, back), (value, back)
    assert CODEC.dump(back) == text


@given(VALUES, VALUES)
def test_reading_does_not_disturb_what_was_written(one: Any, other: Any) -> None:
    """Writing changes no value, so that writing it again gives the same text."""
    both = [one, {"other": other}]
    assert CODEC.dump(both) == CODEC.dump(both)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=3).filter(lambda key: key != "$"), inner, max_size=4),
)  # fmt: skip


@given(PLAIN)
def test_plain_data_is_plain_json(value: Any) -> None:
    """What JSON knows is written as JSON writes it."""
    assert CODEC.dump(value) == msgspec.json.encode(value).decode()


class Text(str):
    """A class of a user's."""

    __slots__ = ()


class Number(float):
    """Another one."""


class Rows(list[Any]):
    """A third."""


ODD = st.sampled_from([
    *(Text("x"), Number(1.5), Rows(), Level.LOW, Word.YES, Point(1), Sealed(1), Counter("a")),
    *(OrderedDict(a=1), defaultdict(int)),
    *((), (1,), set(), b"x", bytearray(b"y"), memoryview(b"z"), UUID(int=1), date(2024, 5, 1)),
    *(math.nan, math.inf, -math.inf, -math.nan, 2**63, 2**53, -(2**63) - 1, 1j, range(3)),
    *("\ud800", "$", Decimal(1), object(), print, int),
])  # fmt: skip
KEYS = st.text(max_size=3) | st.sampled_from(["$", 1, None, Text("k"), True, b"k", (1,), "\udc00"])
MIXED = st.recursive(
    PLAIN | ODD,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(MIXED, max_size=6) | st.dictionaries(KEYS, MIXED, max_size=6))
@example([1e16, -(2**53) + 1, None, struct.unpack("<d", b"\0\0\0\0\xa1$\xcb\x7f")[0]])
@example([2**63])
@example([1e20, -1.5e300, 1e-7, "1e+20"])
@example([struct.unpack("<d", bytes.fromhex("010000000000f07f"))[0], "a NaN of another kind"])
def test_the_fast_road_is_taken_only_where_the_slow_one_comes_to_the_same(value: Any) -> None:
    """What is told to be plain, the walk over it leaves as it is."""
    if is_plain(value):
        assert looked_at_one_by_one(value) is value
    text = plain_json(value)
    if text is not None:
        assert text == msgspec.json.encode(looked_at_one_by_one(value)).decode()


def looked_at_one_by_one(value: Any) -> Any:
    """The tree of a value whose parts are all too few for the fast road, or the refusal of it."""
    roads: Any = writing
    many, roads.MANY = roads.MANY, sys.maxsize
    try:
        return writing.Writing(CODEC._classes).write(value, 0)
    except writing.Refused as refused:
        return refused
    finally:
        roads.MANY = many


@pytest.mark.parametrize(
    ("value", "is_tried"),
    [(Sealed(1), False), ([Box(Point(1))] * 2, False), (Derived([]), True), (Checked("a"), True)],
)
def test_only_a_class_with_code_of_its_own_is_read_back_before_its_record(
    value: Any, is_tried: bool
) -> None:
    """An ordinary class comes back equal by its nature: a trial reading would only cost time."""
    written = writing.Writing(CODEC._classes)
    written.write(value, 0)
    assert written.proven is not is_tried


@given(PLAIN)
@example([math.pi / (k + 7) for k in range(600)])
def test_rows_of_plain_data_are_told_to_be_plain(value: Any) -> None:
    """Many equal rows need no look at each; where it is not sure, the text is the same."""
    rows = [value] * 600
    assert CODEC.dump(rows) == msgspec.json.encode(rows).decode()


@pytest.mark.extra("orjson", "ormsgpack")
def test_rows_of_a_table_take_the_fast_road() -> None:
    """Ordinary rows are plain, so the libraries in C spare the walk over them."""
    assert is_plain([{"id": 1, "name": "a", "score": 0.5, "tags": ["x", None, True]}] * 100)


@pytest.mark.parametrize("at", [0, 511, 512, 1023, 1100])
def test_one_part_that_is_not_plain_is_found_among_many(at: int) -> None:
    """Wherever it stands in a long list, it is written with its tag, and is named if refused."""
    rows: list[Any] = [{"n": n} for n in range(1101)]
    rows[at] = {"n": (1,)}
    assert CODEC.load(CODEC.dump(rows)) == rows
    rows[at] = {"n": print}
    with pytest.raises(OutputNotSerializable, match=rf"\[{at}\]"):
        CODEC.dump(rows)


def test_what_was_written_before_a_class_had_more_fields_can_be_read() -> None:
    """Fields that are missing have their defaults."""
    text = '{"$":"handrail:Usage","input_tokens":7,"output_tokens":null,"cost_usd":0.5,"turns":1}'
    assert alike(CODEC.load(text), Usage(7, None, 0.5, 1))


@pytest.mark.parametrize(
    ("value", "rest"),
    [
        (Colour.CRIMSON, '"name":"RED"'),
        (Right.READ | Right.WRITE, '"value":3'),
        (Point(1), '"x":1,"y":0'),
        (Box([1]), '"item":[1],"note":""'),
        (Private(1), '"_item":1,"other":null,"late":1'),
        (Renamed(1), '"first_item":1,"second_item":{"$":"unset"}'),
    ],
)
def test_a_data_class_is_flat_under_its_name(value: Any, rest: str) -> None:
    """The object of a data class has its name and its fields, as Python calls them."""
    cls = type(value)
    assert CODEC.dump(value) == f'{{"$":"{cls.__module__}:{cls.__qualname__}",{rest}}}'


def test_equal_sets_have_equal_texts() -> None:
    """The order in which a set was filled does not show."""
    words = [f"w{i}" for i in range(50)]
    assert CODEC.dump(set(words)) == CODEC.dump({words[-i] for i in range(50)})


def test_a_long_text_is_written_as_it_is() -> None:
    """A string of a megabyte costs no more characters than its JSON."""
    text = "x" * 2**20
    assert CODEC.dump(text) == f'"{text}"'


def test_nesting_up_to_the_limit_comes_back() -> None:
    """Two hundred levels are written and read; one more is refused, without a stack overflow."""
    value: Any = 1
    for _ in range(200):
        value = (value,)
    assert CODEC.load(CODEC.dump(value)) == value
    with pytest.raises(OutputNotSerializable, match="nested more than 200 levels deep"):
        CODEC.dump([value, [value]])
    for _ in range(100_000):
        value = [value]
    with pytest.raises(OutputNotSerializable, match="nested more than 200 levels deep"):
        CODEC.dump(value)


def test_an_unresolved_value_is_written_as_it_was_recorded() -> None:
    """What could not be read is passed on unchanged."""
    text = '{"$":"nowhere:Thing","a":1}'
    assert CODEC.load_or_keep(text) == Unresolved(text, "nowhere:Thing")
    assert CODEC.dump(Unresolved(text, "nowhere:Thing")) == text


def test_unresolvable_survives_copying() -> None:
    """The error keeps its parts and its text, copied or sent to another process."""
    error = Unresolvable("a:B", "it is gone")
    again = copy.copy(error)
    assert (again.tag, again.why, str(again)) == ("a:B", "it is gone", str(error))


@pytest.mark.parametrize(
    "text",
    [
        '{"$":1}',
        '{"$":"tuple"}',
        '{"$":"dict","v":[[1]]}',
        '{"$":"dict","v":5}',
        '{"$":"dict"}',
        '{"$":"datetime","v":"noon"}',
        '{"$":"of tomorrow","v":1}',
        '{"$":"type","v":"os:getcwd"}',
        '{"$":"type","v":"eval"}',
        '{"$":"type"}',
        '{"$":"zoneinfo","v":"Nowhere/Land"}',
        '{"$":"app:Money","$v":1}',
    ],
)
def test_what_means_nothing_is_kept(text: str) -> None:
    """A text that no value can be made of comes back as text, from ``load`` as an error."""
    kept = CODEC.load_or_keep(text)
    assert isinstance(kept, Unresolved)
    assert kept.text == text
    with pytest.raises(Unresolvable):
        CODEC.load(text)


def test_lone_surrogates_come_back_from_anywhere() -> None:
    """A string that UTF-8 has no form for may stand in a key, in a set, in a field, in a path."""
    value = Box({"\ud800": [{"\udfff"}, Path("\ud800")], "a": "\ud83d\ude00"}, note="\ud800")
    assert CODEC.load(CODEC.dump(value)) == value
