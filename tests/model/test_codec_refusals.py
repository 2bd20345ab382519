"""What cannot come back equal is refused, with the part of it and the reason."""

from __future__ import annotations

import functools
import re
import threading
from collections import UserDict
from collections.abc import Callable, Iterator
from dataclasses import InitVar, dataclass, field
from datetime import datetime, timedelta, tzinfo
from typing import Any, NamedTuple

import attrs
import pytest

from handrail import Codec, OutputNotSerializable, TypeCodec

CODEC = Codec()
LOCK = threading.Lock()


@dataclass
class Holder:
    item: Any


@dataclass
class Keyed(dict[str, Any]):
    name: str = ""


class Text(str):
    __slots__ = ()


class Numbers(list[int]):
    pass


class Plain:
    def __init__(self) -> None:
        self.a = 1


class Row(NamedTuple):
    item: Any


@dataclass
class Growing:
    words: list[str]

    def __post_init__(self) -> None:
        self.words = [*self.words, "more"]


@dataclass
class Picky:
    size: int

    def __post_init__(self) -> None:
        if self.size > 3:
            raise ValueError(f"{self.size} is too big")


@dataclass
class Doubled:
    twice: int = field(init=False)
    base: InitVar[int]

    def __post_init__(self, base: int) -> None:
        self.twice = 2 * base


@attrs.define
class Lower:
    word: str = attrs.field(converter=str.lower)


class Lazy:
    item = property(lambda self: 1 / 0)


@dataclass
class Explosive(Lazy):
    item: int

    def __init__(self) -> None:
        pass


class Summer(tzinfo):
    """Two hours ahead."""

    def utcoffset(self, when: datetime | None, /) -> timedelta:
        """Ahead of UTC."""
        return timedelta(hours=2)

    def dst(self, when: datetime | None, /) -> timedelta:
        """Ahead of winter."""
        return timedelta(hours=1)

    def tzname(self, when: datetime | None, /) -> str:
        """Its name."""
        return "summer"


def _numbers() -> Iterator[int]:
    yield 1


def _grown() -> Growing:
    return Growing(["a"])


def _changed(value: Any, **changes: Any) -> Any:
    for name, item in changes.items():
        object.__setattr__(value, name, item)  # past converters and validators
    return value


def _cycle() -> list[Any]:
    inner: dict[str, Any] = {}
    inner["back"] = [inner]
    return [0, Holder(inner)]


def _mutual() -> Holder:
    one, other = Holder(None), Holder(None)
    one.item, other.item = other, one
    return one


@pytest.mark.parametrize(
    ("make", "field", "why"),
    [
        (lambda: LOCK, "output", "_thread.lock is not data"),
        (lambda: Holder([0, {"a": LOCK}]), "output.item[1]['a']", "_thread.lock is not data"),
        (lambda: {1: LOCK}, "output[1]", "_thread.lock is not data"),
        (lambda: {(1, LOCK): 1}, None, "_thread.lock is not data"),
        (lambda: (1, (2, LOCK)), "output[1][1]", "_thread.lock is not data"),
        (lambda: {LOCK}, "output{...}", "_thread.lock is not data"),
        (lambda: Row(LOCK), "output.item", "_thread.lock is not data"),
        (object, "output", "object is not data"),
        (Plain, "output", f"{__name__}.Plain is not data"),
        (lambda: print, "output", "builtin_function_or_method is not data"),
        (lambda: _numbers, "output", "function is not data"),
        (_numbers, "output", "generator is not data"),
        (lambda: iter([1]), "output", "list_iterator is not data"),
        (lambda: ..., "output", "ellipsis is not data"),
        (lambda: NotImplemented, "output", "NotImplementedType is not data"),
        (lambda: memoryview(b"a"), "output", "memoryview is not data"),
        (lambda: functools.partial(print), "output", "functools.partial is not data"),
        (lambda: ValueError("a"), "output", "ValueError is an exception"),
        (lambda: UserDict(a=1), "output", "collections.UserDict is not data"),
        (
            lambda: Text("a"),
            "output",
            f"{__name__}.Text is a subclass of str, and only str itself is written",
        ),
        (
            lambda: [Numbers()],
            "output[0]",
            f"{__name__}.Numbers is a subclass of list, and only list itself is written",
        ),
        (
            lambda: Keyed(name="a"),
            "output",
            f"{__name__}.Keyed is a subclass of dict, and only dict itself is written",
        ),
        (
            lambda: datetime(2024, 1, 1, tzinfo=Summer()),
            "output.tzinfo",
            f"{__name__}.Summer is not data",
        ),
        (_cycle, "output[1].item['back'][0]", "it contains itself"),
        (_mutual, "output.item.item", "it contains itself"),
        (_grown, "output.words", 'it comes back as ["a","more","more"], not as ["a","more"]'),
        (
            lambda: [_changed(Picky(1), size=9)],
            "output",
            f"{__name__}:Picky does not come back: building it raised ValueError: 9 is too big",
        ),
        (
            lambda: {"a": (_changed(Lower("a"), word="A"),)},
            "output['a'][0].word",
            'it comes back as "a", not as "A"',
        ),
        (Explosive, "output.item", "reading it raised ZeroDivisionError: division by zero"),
    ],
)  # fmt: skip
def test_what_cannot_come_back_is_refused(
    make: Callable[[], Any], field: str | None, why: str
) -> None:
    """The error names the step, the part of the value, and why it cannot be recorded."""
    with pytest.raises(OutputNotSerializable) as caught:
        CODEC.dump(make(), where="step 'a'")
    error = caught.value
    assert (error.where, error.why) == ("step 'a'", why)
    assert field is None or error.field == field
    assert str(error).startswith(f"step 'a': {error.field} cannot be recorded: {why}.")


def test_the_root_of_the_path_is_what_the_caller_calls_it() -> None:
    """Inputs are called by the name of the parameter, say."""
    told = "workflow 'ship': task[0] cannot be recorded: _thread.lock is not data"
    with pytest.raises(OutputNotSerializable, match=re.escape(told)):
        CODEC.dump([LOCK], where="workflow 'ship'", root="task")


def test_two_classes_of_one_name_are_refused() -> None:
    """One name can mean only one class when it is read."""

    def make() -> Any:
        @dataclass
        class Local:
            a: int = 1

        return Local()

    one = make()
    assert CODEC.dump([one, one]).count("Local") == 2
    with pytest.raises(OutputNotSerializable, match=r"output\[1\] .* two classes named .*Local"):
        CODEC.dump([one, make()])


def test_a_field_that_no_constructor_takes_is_set() -> None:
    """A class whose constructor takes something else than its fields is built by its fields."""
    value = Doubled(3)
    back = CODEC.load(CODEC.dump(value))
    assert (type(back), back.twice) == (Doubled, 6)


def test_a_field_that_was_never_set_stays_unset() -> None:
    """What an object has not got is not made up when it comes back."""
    value = Holder(1)
    del value.item
    with pytest.raises(OutputNotSerializable, match="missing 1 required positional argument"):
        CODEC.dump([1, value])
    unset = Doubled.__new__(Doubled)
    assert not hasattr(CODEC.load(CODEC.dump(unset)), "twice")


def test_what_changes_while_it_is_written_is_refused() -> None:
    """A dict that is filled meanwhile, by another thread say, is told as that."""
    held: dict[Any, Any] = {"x": Plain()}

    def fill(value: Any) -> int:
        held[len(held)] = value.a
        return 1

    codec = Codec((TypeCodec(Plain, fill, lambda _: Plain()),))
    with pytest.raises(OutputNotSerializable, match="it changed while it was being written"):
        codec.dump(held)
