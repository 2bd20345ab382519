"""Codecs that users bring, types as values, and pydantic models."""

from __future__ import annotations

import typing
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NewType, Optional, TypeVar, Union

import msgspec
import pytest

from handrail import (
    Codec,
    DefinitionError,
    OpenGate,
    OutputNotSerializable,
    TypeCodec,
    Unresolvable,
)

CODEC = Codec()
UserId = NewType("UserId", int)
T = TypeVar("T")


class Money:
    def __init__(self, cents: int, held: Any = None) -> None:
        self.cents = cents
        self.held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


@dataclass
class Bill:
    total: Money


def encode(money: Money) -> Any:
    """The parts of it."""
    return (money.cents, money.held)


def decode(parts: Any) -> Money:
    """What the parts are of."""
    return Money(*parts)


WITH_MONEY = Codec((TypeCodec(Money, encode, decode, "app:Money"),))


def test_a_users_codec_writes_a_class_of_theirs() -> None:
    """What it makes is written like any value, under its name, wherever the class stands."""
    value = [Bill(Money(5, {1, 2})), Money(1, Money(2))]
    text = WITH_MONEY.dump(value)
    assert '{"$":"app:Money","$v":{"$":"tuple","v":[5,{"$":"set","v":[1,2]}]}}' in text
    assert WITH_MONEY.load(text) == value
    assert WITH_MONEY.identity(value) == text


def test_a_users_codec_goes_before_ours() -> None:
    """A data class may be written another way, and records made before are still read."""
    codec = Codec([TypeCodec(Bill, lambda bill: bill.total.cents, lambda c: Bill(Money(c)))])
    text = codec.dump(Bill(Money(5)))
    assert text == f'{{"$":"{__name__}:Bill","$v":5}}'
    assert codec.load(text) == Bill(Money(5))
    assert codec.load(f'{{"$":"{__name__}:Bill","total":3}}') == Bill(3)  # type: ignore[arg-type]


def test_a_record_of_a_codec_that_is_not_given_is_not_read() -> None:
    """The error names the codec that is missing."""
    text = WITH_MONEY.dump(Money(1))
    with pytest.raises(Unresolvable, match="no TypeCodec of this name"):
        CODEC.load(text)
    with pytest.raises(Unresolvable, match="is no data class, and has no TypeCodec"):
        CODEC.load(f'{{"$":"{__name__}:Money","cents":1}}')


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (
            TypeCodec(Money, lambda _: object(), decode),
            r"output\.total cannot .* object is not data",
        ),
        (TypeCodec(Money, encode, lambda _: 1), r"output\.total .* comes back as 1, not as"),
        (TypeCodec(Money, encode, lambda _: 1 / 0), "ZeroDivisionError: division by zero"),
        (TypeCodec(Money, lambda _: 1 / 0, decode), r"output\.total .*encode raised ZeroDivision"),
        (TypeCodec(Money, lambda money: money, decode), "more than 200 levels deep"),
    ],
)
def test_a_users_codec_is_not_trusted(bad: TypeCodec, why: str) -> None:
    """What it writes is read back at once, and must be equal."""
    with pytest.raises(OutputNotSerializable, match=why):
        Codec((bad,)).dump(Bill(Money(1)))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: TypeCodec("a", encode, decode), "takes a class, got 'a'"),
        (lambda: TypeCodec(int, encode, decode), "it is recorded as JSON already"),
        (lambda: TypeCodec(Money, 1, decode), r"encode=\.\.\.\) takes a callable"),
        (lambda: TypeCodec(Money, encode, decode, "money"), "a name contains a colon"),
        (lambda: TypeCodec(Money, encode, decode, "handrail:x"), "a name contains a colon"),
        (
            lambda: Codec(
                [TypeCodec(Money, encode, decode), TypeCodec(Money, encode, decode, "a:b")]
            ),
            "two TypeCodecs for the class .*Money",
        ),
        (
            lambda: Codec([TypeCodec(c, encode, decode, "a:b") for c in (Money, Bill)]),
            "two TypeCodecs for the name a:b",
        ),
        (lambda: Codec([Money]), "takes TypeCodecs, got <class"),  # type: ignore[list-item]
    ],
)
def test_a_wrong_codec_is_a_definition_error(make: Callable[[], Any], why: str) -> None:
    """A mistake is told where the codec is made."""
    with pytest.raises(DefinitionError, match=why):
        make()


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (int, '{"$":"type","v":"int"}'),
        (type(None), '{"$":"type","v":"None"}'),
        (datetime, '{"$":"type","v":"datetime"}'),
        (Path, '{"$":"type","v":"Path"}'),
        (Any, '{"$":"type","v":"typing:Any"}'),
        (Bill, f'{{"$":"type","v":"{__name__}:Bill"}}'),
        (UserId, f'{{"$":"type","v":"{__name__}:UserId"}}'),
        (
            dict[str, int],
            '{"$":"type","v":"dict","args":[{"$":"type","v":"str"},{"$":"type","v":"int"}]}',
        ),
        (Literal["a", 1], '{"$":"type","v":"typing:Literal","args":["a",1]}'),
        (
            tuple[int, ...],
            '{"$":"type","v":"tuple","args":[{"$":"type","v":"int"},{"$":"type","v":"..."}]}',
        ),
    ],
)  # fmt: skip
def test_a_type_is_written_by_its_name(type_: Any, text: str) -> None:
    """Types have a settled form as well."""
    assert CODEC.dump(type_) == text
    assert CODEC.load(text) is type_ or CODEC.load(text) == type_


@pytest.mark.parametrize(
    "type_",
    [
        Bill | None,
        Optional[Bill],  # noqa: UP045  # it is another type than Bill | None
        Union[int, str, list[Bill]],  # noqa: UP007  # as above
        list[dict[str, Bill | None]],
        typing.List[int],  # noqa: UP006  # it is another type than list[int]
        typing.List,  # noqa: UP006  # as above
        type[Bill],
        tuple[()],
        Callable[[int, str], bool],
        Callable[..., bool],
        Annotated[int, msgspec.Meta(ge=1, description="a")],
        Annotated[list[Annotated[str, "x"]], {"a": 1}],
        OpenGate,
    ],
)  # fmt: skip
def test_a_type_comes_back(type_: Any) -> None:
    """Generic, optional and annotated types come back as they were."""
    back = CODEC.load(CODEC.dump([type_]))[0]
    assert (back, type(back)) == (type_, type(type_))


@pytest.mark.parametrize("type_", [Annotated[int, object()], T])
def test_a_type_without_a_name_is_refused(type_: Any) -> None:
    """What cannot be found again by its name is not written."""
    with pytest.raises(OutputNotSerializable):
        CODEC.dump(type_)


def test_an_open_gate_comes_back() -> None:
    """A question with the type of its answer is a value like others."""
    gate = OpenGate("a", "Merge?", ("yes", 1), Bill | None, 1.5, None, {"x"}, has_default=True)
    assert CODEC.load(CODEC.dump(gate)) == gate


@pytest.mark.extra("pydantic")
def test_pydantic_models_come_back_unvalidated() -> None:
    """Which fields were set, what is extra and what is private all come back, as they were."""
    import pydantic

    class Inner(pydantic.BaseModel, frozen=True):
        n: int = 0

    class Model(pydantic.BaseModel, extra="allow"):
        inner: Inner
        tags: set[str] = set()
        word: str = pydantic.Field(default="a", alias="Word")
        _count: int = pydantic.PrivateAttr(default=0)

        @pydantic.field_validator("word")
        @classmethod
        def _shorter(cls, word: str) -> str:
            return word[:-1]

    model = Model(inner=Inner(n=2), Word="abc", other={1: 2}, **{"$": 3})
    model._count = 5
    root = pydantic.RootModel[list[int]]([1])
    for value, declared in [
        (model, Model),
        (Inner(), Inner),
        (Model.model_construct(word=7, inner=Inner()), Model),
        (root, pydantic.RootModel[list[int]]),
    ]:
        text = CODEC.dump(value, declared=declared)
        back = CODEC.load(text, declared)
        assert (back, type(back)) == (value, type(value))
        assert back.model_fields_set == value.model_fields_set
        assert repr(back) == repr(value)
        assert CODEC.dump(back) == text
    model._count = object()  # type: ignore[assignment]
    with pytest.raises(
        OutputNotSerializable, match=r"output\.private\['_count'\] .* object is not"
    ):
        CODEC.dump(model)


@pytest.mark.extra("pydantic")
def test_generic_pydantic_models_come_back() -> None:
    """A model made for certain types is found by the model it was made of."""
    import pydantic

    class Box(pydantic.BaseModel, Generic[T]):
        item: T

    value = [Box[int](item=1), Box[list[str]](item=["a"]), Box[Box[int]](item=Box[int](item=2))]
    back = CODEC.load(CODEC.dump(value), list[Box[Any]])
    assert (back, [type(one) for one in back]) == (value, [type(one) for one in value])
    renamed = '{"$":"old:Box","$args":[{"$":"type","v":"int"}],"item":1}'
    assert CODEC.load(renamed, Box[int]) == value[0]


@pytest.mark.extra("pydantic")
def test_pydantic_dataclasses_come_back() -> None:
    """They are dataclasses whose constructor validates."""
    import pydantic

    @pydantic.dataclasses.dataclass
    class Item:
        n: int
        tags: tuple[str, ...] = ()

    value = Item(3, ("a",))
    assert CODEC.load(CODEC.dump(value), Item) == value
