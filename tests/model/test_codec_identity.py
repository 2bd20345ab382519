"""Texts by which fingerprints know values again."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import pytest

from handrail import Codec, TypeCodec

CODEC = Codec()


@dataclass
class Task:
    name: str
    tool: Any = None


class Tool:
    def use(self) -> None:
        """Does nothing."""


class Nasty:
    @property  # type: ignore[misc]  # it is there to be in the way
    def __class__(self) -> type:
        raise ZeroDivisionError

    def __getattr__(self, name: str) -> Any:
        raise ZeroDivisionError


def _cycle() -> list[Any]:
    held: list[Any] = []
    held.extend([held, held])
    return held


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", '"a"'),
        (None, "null"),
        (3, "3"),
        ((1, "b"), '{"$":"tuple","v":[1,"b"]}'),
        ("\ud800", '{"$":"str","escaped":"\\\\ud800"}'),
        (Tool(), f'"<{__name__}:Tool>"'),
        (Tool, f'{{"$":"type","v":"{__name__}:Tool"}}'),
        (threading.Lock(), '"<_thread:lock>"'),
        (_cycle, f'"<{__name__}:_cycle>"'),
        (Tool().use, f'"<{__name__}:Tool.use>"'),
        (print, '"<builtins:print>"'),
        (functools.partial(_cycle), f'"<partial({__name__}:_cycle)>"'),
        (ValueError("a"), '"<builtins:ValueError>"'),
        (_cycle(), '"<builtins:list>"'),
        (
            [Task("a", Tool()), {"x": len, 2: Tool()}],
            (
                f'[{{"$":"{__name__}:Task","name":"a","tool":"<{__name__}:Tool>"}},'
                f'{{"$":"dict","v":[["x","<builtins:len>"],[2,"<{__name__}:Tool>"]]}}]'
            ),
        ),
    ],
)
def test_what_cannot_be_written_is_named(value: Any, text: str) -> None:
    """The part that cannot be written counts as the name of its class, the rest as it is."""
    assert CODEC.identity(value) == text
    assert CODEC.identity(value) == CODEC.identity(value)


@pytest.mark.parametrize(
    ("value", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({1: "a", (2, 3): {"x", "y"}}, {(2, 3): {"y", "x"}, 1: "a"}),
        ([{"\ud800": {"a": 1, "b": 2}}], [{"\ud800": {"b": 2, "a": 1}}]),
        ({frozenset({"b", "a"}): 1, "z": len}, {"z": len, frozenset({"a", "b"}): 1}),
    ],
)
def test_the_order_of_a_dict_is_no_part_of_it(value: Any, other: Any) -> None:
    """Equal dicts have one text, in whatever order they were filled."""
    assert value == other
    assert CODEC.identity(value) == CODEC.identity(other)


def test_the_order_of_an_ordered_dict_is_part_of_it() -> None:
    """Such dicts are equal only if their order is."""
    one, two = OrderedDict(a=1, b=2), OrderedDict(b=2, a=1)
    assert CODEC.identity(one) != CODEC.identity(two)


def test_an_object_that_is_in_the_way_is_named() -> None:
    """Whatever an object does when it is looked at, its class has a name."""
    assert CODEC.identity([Nasty()]) == f'["<{__name__}:Nasty>"]'


def test_a_codec_that_raises_is_no_reason_to_raise() -> None:
    """A fingerprint is made of whatever there is."""
    codec = Codec((TypeCodec(Tool, lambda _: 1 / 0, lambda _: 1),))
    assert codec.identity([Tool()]) == f'["<{__name__}:Tool>"]'
