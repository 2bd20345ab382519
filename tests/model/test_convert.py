"""Values of the annotated type, from Python values, JSON and text."""

from __future__ import annotations

import pickle  # noqa: TID251  # that errors survive it is what is tested
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path, PurePosixPath
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    Protocol,
    TypedDict,
    TypeVar,
)
from uuid import UUID

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.errors import HandrailError, InvalidInput
from handrail.typed.convert import DoesNotFit, convert, fit, fit_json, from_text
from handrail.typed.jsonsafe import json_safe

if TYPE_CHECKING:
    from nowhere import Unresolvable

T = TypeVar("T")
UserId = NewType("UserId", int)


class Color(Enum):
    RED = "r"
    BLUE = "b"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(Enum):
    ONE = 1
    WORD = "w"


@dataclass
class Item:
    name: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Order:
    items: list[Item]
    color: Color = Color.RED
    at: datetime | None = None


@dataclass
class Located:
    name: str
    path: Path


@dataclass
class Tree:
    value: int
    children: list[Tree] = field(default_factory=list)


@dataclass
class Box(Generic[T]):
    inside: T


@dataclass
class Checked:
    age: int

    def __post_init__(self) -> None:
        if self.age < 0:
            raise ValueError(f"age must not be negative, got {self.age}")


@dataclass
class Explosive:
    fuse: int

    def __post_init__(self) -> None:
        raise RuntimeError("boom")


@dataclass
class WithInitVar:
    total: int = field(init=False)
    parts: InitVar[list[int]]

    def __post_init__(self, parts: list[int]) -> None:
        self.total = sum(parts)


@dataclass
class HalfKnown:
    known: int
    unknown: Unresolvable = None


@dataclass
class EitherField:
    part: Item | Located
    mixed: Mixed = Mixed.ONE


@attrs.define
class Point:
    x: int
    tags: list[str] = attrs.Factory(list)


@attrs.define
class Private:
    _secret: int
    either: Item | Located | None = None


class Struct(msgspec.Struct, rename="camel"):
    first_name: str
    item: Item | None = None


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    tricks: list[str]


class Kitten(msgspec.Struct, tag=True):
    lives: int


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Place(NamedTuple):
    rank: int
    located: Located


class Options(TypedDict):
    depth: int
    mode: NotRequired[Literal["fast", "slow"]]


class Chosen(TypedDict):
    part: Item | Located


class Sized(Protocol):
    size: int


class Opaque:
    """A class that is no data."""


class Name(str):
    __slots__ = ()


JSON_CASES: list[tuple[Any, Any, Any]] = [
    ("a", str, "a"),
    (5, int, 5),
    (5, float, 5.0),
    (True, bool, True),
    (None, None, None),
    (None, Optional[int], None),  # noqa: UP045
    (3, int | None, 3),
    ("slow", Literal["fast", "slow"], "slow"),
    (True, Literal[True, "auto"], True),
    ("r", Color, Color.RED),
    ("RED", Color, Color.RED),
    (2, Level, Level.HIGH),
    ("HIGH", Level, Level.HIGH),
    ("w", Mixed, Mixed.WORD),
    (1, Mixed, Mixed.ONE),
    (["r", "BLUE"], list[Color], [Color.RED, Color.BLUE]),
    ([1, 2], tuple[int, ...], (1, 2)),
    ([1, "a"], tuple[int, str], (1, "a")),
    ([1, 2, 1], set[int], {1, 2}),
    ([1], frozenset[int], frozenset({1})),
    ([1], deque[int], deque([1])),
    ([1], Sequence[int], [1]),
    ({"a": 1}, Mapping[str, int], {"a": 1}),
    ({"1": 2}, dict[int, int], {1: 2}),
    ({"1": {"name": "n"}}, dict[int, Item | Located], {1: Item("n")}),
    ({"name": "n"}, Item, Item("n")),
    ({"name": "n", "other": 1}, Item, Item("n")),
    ({"items": [{"name": "n"}], "color": "BLUE"}, Order, Order([Item("n")], Color.BLUE)),
    ({"value": 1, "children": [{"value": 2}]}, Tree, Tree(1, [Tree(2)])),
    ({"inside": {"name": "n"}}, Box[Item], Box(Item("n"))),
    ({"inside": {"name": "n", "path": "p"}}, Box[Item | Located], Box(Located("n", Path("p")))),
    ({"parts": [1, 2]}, WithInitVar, WithInitVar([1, 2])),
    ({"x": 1, "tags": ["t"]}, Point, Point(1, ["t"])),
    ({"_secret": 1, "either": {"name": "n"}}, Private, Private(1, Item("n"))),
    ({"firstName": "f", "item": {"name": "n"}}, Struct, Struct("f", Item("n"))),
    ({"type": "Dog", "tricks": []}, Cat | Dog, Dog([])),
    ([{"type": "Cat", "lives": 9}, 4], list[Cat | Dog | Literal[4]], [Cat(9), 4]),
    ({"type": "Kitten", "lives": 9}, Cat | Kitten | Item, Kitten(9)),
    ([1], Pair, Pair(1)),
    ({"left": 1, "right": "x"}, Pair, Pair(1, "x")),
    ({"depth": 1, "mode": "fast"}, Options, {"depth": 1, "mode": "fast"}),
    ("2024-02-29", date, date(2024, 2, 29)),
    ("2024-02-29T01:02:03Z", datetime, datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC)),
    ("PT90S", timedelta, timedelta(seconds=90)),
    ("12345678123456781234567812345678", UUID, UUID(int=0x12345678123456781234567812345678)),
    ("a/b", Path, Path("a/b")),
    ("a/b", PurePosixPath, PurePosixPath("a/b")),
    ("a/b", Path | int, Path("a/b")),
    ("0.10", Decimal, Decimal("0.10")),
    ("aGk=", bytes, b"hi"),
    ("n", Name, Name("n")),
    (7, UserId, 7),
    (7, Annotated[int, "a comment"], 7),
    (7, Annotated[int, msgspec.Meta(gt=0)], 7),
    ({"name": "n"}, Item | Located, Item("n")),
    ({"name": "n", "path": "p"}, Item | Located, Located("n", Path("p"))),
    ([[1], ["a"]], list[list[int] | list[str]], [[1], ["a"]]),
    ({"part": {"name": "n"}, "mixed": "WORD"}, EitherField, EitherField(Item("n"), Mixed.WORD)),
    ({"known": 1, "unknown": [2]}, HalfKnown, HalfKnown(1, [2])),
    ({"any": 1}, Any, {"any": 1}),
]


@pytest.mark.parametrize(("data", "type_", "expected"), JSON_CASES)
def test_json_data_becomes_the_type(data: Any, type_: Any, expected: Any) -> None:
    """JSON data, or a document of it, becomes an equal value of the very class that the annotation
    names; what is of it already is passed on, not copied.
    """
    found = fit(data, type_)
    assert expected == found
    assert type(expected) is type(found)
    assert expected == fit_json(msgspec.json.encode(data).decode(), type_)
    assert convert(expected, type_, name="p") is expected


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (Opaque(), Opaque),
        (len, Callable[..., int]),
        (int, type[int]),
        (iter([1]), Iterator[int]),
        (Opaque(), Sized),
        ([Item("n")], list[Item]),
        ({"k": Located("n", Path("p"))}, dict[str, Item | Located]),
        (datetime(2024, 1, 1, tzinfo=UTC), date),
        (Item("n"), Any),
        (b"raw", bytes),
    ],
)
def test_python_values_without_a_json_form_pass(value: object, type_: Any) -> None:
    """An instance of an annotated class passes as it is, whatever the class."""
    assert convert(value, type_, name="p") is value


@pytest.mark.parametrize("type_", [Iterator[int], Iterable[int]])
def test_an_iterator_is_not_used_up(type_: Any) -> None:
    """Looking whether an iterator is of its type takes nothing from it."""
    items = convert(iter([1, 2]), type_, name="p")
    assert list(items) == [1, 2]


def test_a_typed_dict_of_parts_msgspec_refuses() -> None:
    """A TypedDict is a dict of its fitted parts."""
    assert {"part": Item("n")} == fit({"part": {"name": "n"}}, Chosen)


def test_instances_and_data_mix() -> None:
    """A list may hold records and the data of records."""
    kept = Item("a")
    found = convert([kept, {"name": "b"}], list[Item], name="p")
    assert [Item("a"), Item("b")] == found


@pytest.mark.parametrize(
    "annotation", ["Unresolvable", "list[Unresolvable]", list["Unresolvable"], Any, TypeVar("Q")]
)
def test_an_annotation_that_cannot_be_resolved_takes_anything(annotation: Any) -> None:
    """A name that is there for type checkers alone converts nothing."""
    value = [object()]
    assert convert(value, annotation, name="p") is value


@pytest.mark.parametrize(
    ("value", "type_", "expected"),
    [
        ("1", int, "input 'p': got '1', expected int"),
        (True, int, "input 'p': got True, expected int"),
        (1.5, int, "input 'p': got 1.5, expected int"),
        (1, str, "input 'p': got 1, expected str"),
        (None, str, "input 'p': got None, expected str"),
        ("abc", Sequence[str], "input 'p': got 'abc', expected Sequence[str]"),
        (3, Opaque, "input 'p': got 3, expected Opaque"),
        (3, Callable[[int], str], "input 'p': got 3, expected Callable[[int], str]"),
        (3, Item | Located, "input 'p': got 3, expected Item | Located"),
        (
            {"k": 1},
            dict[int, Mixed],
            (
                "input 'p': got {'k': 1}, expected dict[int, Mixed(1 | 'w')] "
                "(Expected `int`, got `str` - at `$['k']`)"
            ),
        ),
        (
            [1, "a"],
            list[int],
            "input 'p': got [1, 'a'], expected list[int] (Expected `int`, got `str` - at `$[1]`)",
        ),
        ("z", Color, "input 'p': got 'z', expected Color('r' | 'b')"),
        ("z", Literal["x", 1], "input 'p': got 'z', expected 'x' | 1"),
        (
            {"items": [{"name": "a"}, {"name": "b", "count": "c"}]},
            Order,
            (
                "input 'p': got {'items': [{'name': 'a'}, {'name': 'b', 'count': 'c'}]}, expected "
                "Order(items: list[Item], color: Color('r' | 'b') = ..., at: datetime | None = ...)"
                " (Expected `int`, got `str` - at `$.items[1].count`)"
            ),
        ),
        (
            {},
            Item,
            (
                "input 'p': got {}, expected Item(name: str, count: int = ...) "
                "(Object missing required field `name`)"
            ),
        ),
        (
            {"part": {"name": "n", "count": "x"}},
            EitherField,
            (
                "input 'p': got {'part': {'name': 'n', 'count': 'x'}}, expected "
                "EitherField(part: Item | Located, mixed: Mixed(1 | 'w') = ...) "
                "(not Item: Expected `int`, got `str` - at `$.count`; "
                "not Located: Object missing required field `path` - at `$.part`)"
            ),
        ),
        (
            0,
            Annotated[int, msgspec.Meta(gt=0)],
            "input 'p': got 0, expected int (Expected `int` >= 1)",
        ),
        (
            {"age": -1},
            Checked,
            (
                "input 'p': got {'age': -1}, expected Checked(age: int) "
                "(age must not be negative, got -1)"
            ),
        ),
        (
            {"fuse": 1},
            Explosive,
            "input 'p': got {'fuse': 1}, expected Explosive(fuse: int) (boom)",
        ),
        (
            {"a": [{"path": 3, "name": "n"}]},
            dict[str, list[Located]],
            (
                "input 'p': got {'a': [{'path': 3, 'name': 'n'}]}, "
                "expected dict[str, list[Located]] "
                "(Expected `Path`, got `int` - at `$['a'][0].path`)"
            ),
        ),
        (
            [1, {"name": "n", "path": 3}],
            Place,
            (
                "input 'p': got [1, {'name': 'n', 'path': 3}], expected "
                "Place(rank: int, located: Located) "
                "(Expected `Path`, got `int` - at `$[1].path`)"
            ),
        ),
        (
            [1],
            tuple[int, Item | Located],
            (
                "input 'p': got [1], expected tuple[int, Item | Located] "
                "(Expected `array` of length 2, got 1)"
            ),
        ),
    ],
)
def test_the_error_names_parameter_value_type_and_place(
    value: object, type_: Any, expected: str
) -> None:
    """A misfit says which input, what came, what was expected, and where inside it is wrong."""
    with pytest.raises(InvalidInput) as caught:
        convert(value, type_, name="p")
    assert expected == str(caught.value)
    assert caught.value.parameter == "p"


def test_a_long_value_is_shortened_in_the_error() -> None:
    """The error shows the ends of a long value only."""
    with pytest.raises(InvalidInput) as caught:
        convert("x" * 10_000, int, name="p")
    assert len(str(caught.value)) < 200


def test_a_misfit_survives_pickle() -> None:
    """The error keeps its reason and its path when it is pickled."""
    misfit = DoesNotFit("Expected `int`, got `str`", ".a[0]")
    again = pickle.loads(pickle.dumps(misfit))
    assert (misfit.reason, misfit.path, str(misfit)) == (again.reason, again.path, str(again))
    assert isinstance(misfit, HandrailError)


def test_data_nested_without_end_is_refused() -> None:
    """Data too deep for the interpreter is a misfit, not a RecursionError."""
    data: dict[str, Any] = {"value": 1}
    for _ in range(100_000):
        data = {"value": 1, "children": [data]}
    with pytest.raises(DoesNotFit, match="nested too deeply"):
        fit(data, Tree)
    with pytest.raises(DoesNotFit, match="nested too deeply"):
        fit_json("[" * 100_000 + "]" * 100_000, list[Any])
    while data.get("children"):  # taken apart from outside: its deletion would recurse
        data = data["children"].pop()


def test_a_document_that_is_no_json_says_where() -> None:
    """Broken JSON is a misfit that says what is wrong with it."""
    with pytest.raises(DoesNotFit, match=r"JSON is malformed: trailing comma in object \(byte 7\)"):
        fit_json('{"a":1,}', dict[str, int])


TEXT_CASES: list[tuple[str, Any, Any]] = [
    ("5", str, "5"),
    ('"quoted"', str, '"quoted"'),
    (" edges ", str, " edges "),
    ("5", int, 5),
    (" 5 ", int, 5),
    ("-0.5", float, -0.5),
    ("5", float, 5.0),
    ("inf", float, float("inf")),
    *((word, bool, True) for word in ("true", "True", "yes", "YES", "on", "1", "y")),
    *((word, bool, False) for word in ("false", "no", "off", "0", "N")),
    ("none", int | None, None),
    ("null", int | None, None),
    ("5", int | None, 5),
    ("null", str | None, None),
    ("none", str | None, "none"),
    ("5", str | None, "5"),
    ("5", int | str, 5),
    ("5", str | int, 5),
    ("five", str | int, "five"),
    ("yes", bool | int, True),
    ("r", Color, Color.RED),
    ("RED", Color, Color.RED),
    ("2", Level, Level.HIGH),
    ("HIGH", Level | None, Level.HIGH),
    ("1", Mixed, Mixed.ONE),
    ("fast", Literal["fast", 3], "fast"),
    ("3", Literal["fast", 3], 3),
    ("3", Literal["3"], "3"),
    ('"fast"', Literal["fast"], "fast"),
    ("[1, 2]", list[int], [1, 2]),
    ('["r", "BLUE"]', list[Color], [Color.RED, Color.BLUE]),
    ('{"name": "n"}', Item, Item("n")),
    ('{"name": "n"}', Item | None, Item("n")),
    ('{"name": "n"}', str | Item, Item("n")),
    ("plain", str | Item, "plain"),
    ('{"depth": 1}', Options, {"depth": 1}),
    ("a/b", Path, Path("a/b")),
    ("12", Path, Path("12")),
    ("2024-02-29", date, date(2024, 2, 29)),
    ("2024-02-29T00:00:00", datetime, datetime(2024, 2, 29)),  # noqa: DTZ001
    ("90", timedelta, timedelta(seconds=90)),
    ("P1D", timedelta, timedelta(days=1)),
    ("0.12345678901234567890", Decimal, Decimal("0.12345678901234567890")),
    ("0.12345678901234567890", Decimal | None, Decimal("0.12345678901234567890")),
    ("7", Annotated[int, msgspec.Meta(gt=0)], 7),
    ("7", UserId, 7),
    ("5", Any, 5),
    ('{"a": [1]}', Any, {"a": [1]}),
    ("null", Any, None),
    ('"q"', Any, '"q"'),
    ("some text", Any, "some text"),
    ("[not json", Any, "[not json"),
    ("5", "Unresolvable", 5),
]


@pytest.mark.parametrize(("text", "type_", "expected"), TEXT_CASES)
def test_text_is_read_as_the_type(text: str, type_: Any, expected: Any) -> None:
    """What a person types is read as the annotated type."""
    found = from_text(text, type_, name="p")
    assert expected == found
    assert type(expected) is type(found)


@pytest.mark.parametrize(
    ("text", "type_", "expected"),
    [
        ("three", int, "input 'p': got 'three', expected int"),
        ("", int, "input 'p': got '', expected int"),
        ("maybe", bool, "input 'p': got 'maybe', expected bool (say true or false)"),
        ("[1]", int, "input 'p': got '[1]', expected int"),
        ("a,b", list[str], "input 'p': got 'a,b', expected list[str] (write it as JSON)"),
        ("[1,", list[int], "input 'p': got '[1,', expected list[int] (Input data was truncated)"),
        (
            '[1, "a"]',
            list[int],
            (
                "input 'p': got '[1, \"a\"]', expected list[int] "
                "(Expected `int`, got `str` - at `$[1]`)"
            ),
        ),
        ("green", Color, "input 'p': got 'green', expected Color('r' | 'b')"),
        ("4", Literal["x", 3], "input 'p': got '4', expected 'x' | 3"),
        ("0", Annotated[int, msgspec.Meta(gt=0)], "expected int (Expected `int` >= 1)"),
        ("x", int | None, "input 'p': got 'x', expected int | None"),
        ("2024-13-01", date, "expected date (Invalid RFC3339 encoded date)"),
    ],
)
def test_text_that_cannot_be_read_is_refused(text: str, type_: Any, expected: str) -> None:
    """Text that does not fit is an error with the parameter, the text and the type."""
    with pytest.raises(InvalidInput) as caught:
        from_text(text, type_, name="p")
    assert str(caught.value).endswith(expected)


@pytest.mark.extra("pydantic")
def test_pydantic_models_are_validated_by_pydantic() -> None:
    """A pydantic model is built by pydantic, at the root and inside other types."""
    import pydantic

    class Inner(pydantic.BaseModel):
        when: date

    class Model(pydantic.BaseModel):
        title: str
        inner: list[Inner] = []

    data = {"title": "t", "inner": [{"when": "2024-02-29"}]}
    expected = Model(title="t", inner=[Inner(when=date(2024, 2, 29))])
    assert expected == fit(data, Model)
    assert [expected] == fit_json(f"[{msgspec.json.encode(data).decode()}]", list[Model])
    assert {"k": expected} == convert({"k": expected}, dict[str, Model | None], name="p")
    with pytest.raises(InvalidInput, match=r"valid string \(and 1 more\) - at `\$\.title`"):
        convert({"title": 1, "inner": [{"when": "x"}]}, Model, name="p")
    with pytest.raises(InvalidInput, match=r"- at `\$\[1\]\.inner\[0\]\.when`"):
        convert([data, {"title": "t", "inner": [{}]}], list[Model], name="p")


def test_pydantic_is_not_imported_for_other_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """Converting to other types does not load pydantic."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "pydantic"]:
        monkeypatch.delitem(sys.modules, name)
    assert Order([Item("n")]) == fit({"items": [{"name": "n"}]}, Order)
    assert "pydantic" not in sys.modules


texts = st.text(max_size=5)
leaves: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (str, texts),
    (int, st.integers()),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (bool, st.booleans()),
    (type(None), st.none()),
    (date, st.dates()),
    (datetime, st.datetimes(timezones=st.just(UTC))),
    (timedelta, st.timedeltas(timedelta(days=-999), timedelta(days=999))),
    (UUID, st.uuids()),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False, places=3)),
    (Color, st.sampled_from(Color)),
    (Level, st.sampled_from(Level)),
    (Mixed, st.sampled_from(Mixed)),
    (bytes, st.binary(max_size=5)),
    (Path, st.text("abc/.", min_size=1, max_size=5).map(Path)),
    (Pair, st.builds(Pair, st.integers(), texts)),
    (Item, st.builds(Item, texts, st.integers())),
    (Located, st.builds(Located, texts, st.just(Path("p")))),
    (Point, st.builds(Point, st.integers(), st.lists(texts, max_size=2))),
    (Struct, st.builds(Struct, texts, st.none() | st.builds(Item, texts))),
    (Order, st.builds(Order, st.lists(st.builds(Item, texts), max_size=2), st.sampled_from(Color))),
    (EitherField, st.builds(EitherField, st.builds(Item, texts), st.sampled_from(Mixed))),
    (Options, st.fixed_dictionaries({"depth": st.integers()})),
]
hashable = [pair for pair in leaves if pair[0] in {str, int, date, UUID, Color, Pair}]
keys = [pair for pair in leaves if pair[0] in {str, int, date, UUID, Color}]


def _collections(
    inner: st.SearchStrategy[tuple[Any, st.SearchStrategy[Any]]],
) -> st.SearchStrategy[tuple[Any, st.SearchStrategy[Any]]]:
    return st.one_of(
        inner.map(lambda p: (list[p[0]], st.lists(p[1], max_size=3))),
        inner.map(lambda p: (tuple[p[0], ...], st.lists(p[1], max_size=3).map(tuple))),
        st.tuples(inner, inner).map(
            lambda two: (tuple[two[0][0], two[1][0]], st.tuples(two[0][1], two[1][1]))
        ),
        st.sampled_from(hashable).map(lambda p: (set[p[0]], st.sets(p[1], max_size=3))),
        st.tuples(st.sampled_from(keys), inner).map(
            lambda two: (
                dict[two[0][0], two[1][0]],
                st.dictionaries(two[0][1], two[1][1], max_size=3),
            )
        ),
        inner.map(lambda p: (p[0] | None, st.none() | p[1])),
        inner.map(lambda p: (Box[p[0]], st.builds(Box, p[1]))),
    )


typed_values = st.recursive(st.sampled_from(leaves), _collections, max_leaves=3).flatmap(
    lambda p: p[1].map(lambda value: (p[0], value))
)


@given(typed_values)
def test_what_is_written_as_json_is_read_back(typed: tuple[Any, Any]) -> None:
    """The JSON form of a value, read as the value's type, is an equal value of the same class."""
    type_, value = typed
    data = json_safe(value)
    found = fit(data, type_)
    assert value == found
    assert type(value) is type(found)
    assert value == fit_json(msgspec.json.encode(data).decode(), type_)


@given(typed_values)
def test_a_value_of_its_type_is_never_copied(typed: tuple[Any, Any]) -> None:
    """Whatever its annotation, a value of it comes back as the same object."""
    type_, value = typed
    assert convert(value, type_, name="p") is value


@given(texts, st.sampled_from([type_ for type_, _ in leaves]))
def test_any_text_is_read_or_refused(text: str, type_: Any) -> None:
    """Whatever is typed, the end is a value of the type or InvalidInput."""
    try:
        found = from_text(text, type_, name="p")
    except InvalidInput:
        return
    assert convert(found, type_, name="p") is found


@given(st.recursive(st.none() | st.booleans() | st.floats() | texts, st.lists), typed_values)
def test_any_data_is_fitted_or_refused(data: Any, typed: tuple[Any, Any]) -> None:
    """Whatever the data, the end is a value of the type or DoesNotFit."""
    try:
        found = fit(data, typed[0])
    except DoesNotFit:
        return
    assert convert(found, typed[0], name="p") is found
