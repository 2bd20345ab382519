"""The libraries of the extra ``fast`` change how long something takes, and nothing else."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import math
import sys
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.codec import plain
from handrail.codec.codec import Codec
from handrail.errors import OutputNotSerializable
from handrail.secrets import spellings
from handrail.secrets.masking import Mask
from handrail.secrets.spellings import SOON, Needles
from handrail.secrets.values import Secrets, secret_values

FAST = ("ahocorasick_rs", "orjson", "ormsgpack")
pytestmark = pytest.mark.extra(*FAST)


class Colour(enum.IntEnum):
    RED = 1


@contextmanager
def without_fast() -> Iterator[None]:
    """A block in which none of the libraries can be imported."""
    loaded = {name: sys.modules.pop(name, None) for name in FAST}
    sys.modules.update(dict.fromkeys(FAST))  # type: ignore[arg-type]  # None refuses the import
    forget()
    try:
        yield
    finally:
        for name, module in loaded.items():
            del sys.modules[name]
            if module is not None:
                sys.modules[name] = module
        forget()


def forget() -> None:
    """Have the libraries looked for again."""
    plain._libraries.cache_clear()
    spellings._build_finder.cache_clear()


def written(value: object) -> str:
    """The text of a value's record, or of the error that refuses it."""
    try:
        return Codec().dump(value)
    except OutputNotSerializable as refused:
        return str(refused)


PLAIN_ROW = {"id": 1, "name": "ü", "score": 0.5, "tags": ["x", None, True]}


@pytest.mark.parametrize(
    "value",
    [
        *([PLAIN_ROW] * 600, {"rows": [PLAIN_ROW] * 40}, [[]], {}, {"a": {"b": [1.0]}}),
        *([2**53, -(2**63)], [2**63], [1e16, 1e20, 1e-7, -0.0], [math.nan], [math.inf, None]),
        *([(1, 2)] * 40, [b"x"] * 40, {1: "a"}, {"$": "x"}, [{"$": 1}] * 40, ["$", '"$":']),
        *([Colour.RED] * 40, OrderedDict(a=1), [decimal.Decimal(1)] * 40, [dt.date(2026, 1, 2)]),
        *([{1, 2}], ["\ud800"] * 40, [print] * 40, [object()], [[[[]]] * 40] * 40),
    ],
)
def test_a_record_has_the_same_text(value: object) -> None:
    """A value is written, or refused, in the same words with the libraries and without."""
    with without_fast():
        without = written(value)
    assert written(value) == without


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)


@given(
    st.recursive(
        LEAVES | st.binary(max_size=2),
        lambda inner: st.lists(inner, max_size=40) | st.dictionaries(st.text(max_size=2), inner),
        max_leaves=80,
    )
)
def test_any_record_has_the_same_text(value: Any) -> None:
    """Whatever a value has in it, its text is the same with the libraries and without."""
    with without_fast():
        without = written(value)
    assert written(value) == without


@pytest.mark.parametrize(
    ("text", "is_there"),
    [
        *(("a" * SOON + "hunter22", True), ("hunter22" + " " * SOON, True)),
        *((" " * 2 * SOON, False), ("hunter2", False), ("HUNTER22" * 1000, False)),
        *(("\xff\xfe\x00\xff hunter22", True), ("\ud800", True)),
    ],
)
def test_secrets_are_found_alike(text: str, is_there: bool) -> None:
    """What a text contains is found with the finder in C and without it, however long the text."""
    many = [*(f"another {number:03} secret" for number in range(100)), "hunter22"]
    for _ in range(3):
        with without_fast():
            needles = Needles(many)
            assert [needles.may_occur_in(text) for _ in range(3)] == [is_there] * 3
        needles = Needles(many)
        assert [needles.may_occur_in(text) for _ in range(3)] == [is_there] * 3


def test_a_text_is_masked_alike() -> None:
    """The masked text of a long log is the same with the finder in C and without it."""
    environ = {f"KEY_{number}": f"value-of-{number:03}" for number in range(40)}
    log = "\n".join(f"line {number} has value-of-{number:03} in it" for number in range(400))
    with without_fast():
        without = Mask(secret_values(Secrets(), environ)).text(log)
    assert "value-of-007" not in without
    assert "value-of-040" in without
    assert Mask(secret_values(Secrets(), environ)).text(log) == without
