"""Reading what a program prints as JSON: what does not fit is absent, not an error."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.agents.transport.loose_json import (
    as_object,
    count_in,
    json_value,
    list_in,
    number_in,
    object_in,
    object_of,
    objects_in,
    text_in,
    whole_in,
)


@pytest.mark.parametrize(
    "line",
    [b"", b"  ", b"[1]", b"5", b'"x"', b"null", b"{", b"{]", b"log: {}", b'{"a": ' * 5000, b"\xff"],
)
def test_a_line_that_is_no_object_is_none(line: bytes) -> None:
    """Only whole objects count, however deep or broken a line is."""
    assert object_of(line) is None


def test_an_object_is_read_with_what_is_broken_in_it() -> None:
    """Bytes and characters that cannot be written down are replaced."""
    assert object_of(b' {"a": "\xf0\x9f\x99\x82"}\r') == {"a": "🙂"}
    assert object_of(b'\xef\xbb\xbf{"a": "at the start of a stream"}')
    assert object_of(rb'{"a": "\ud83d\ude42"}') == {"a": "🙂"}
    assert object_of(rb'{"a": ["\ud83d", {"\uDE42": 1}]}') == {"a": ["?", {"?": 1}]}
    assert object_of(b'{"a": "\xff"}') == {"a": "\ufffd"}


@pytest.mark.parametrize(
    "line", [b'DEBUG got {"a": 1}', b'{"a": 1} was sent', b'said: "{"a": 1}"', b"\x1b[0m{", b"x\r["]
)
def test_words_around_an_object_make_it_a_quotation(line: bytes) -> None:
    """Codes for a terminal and what it overwrites may stand there; a log's words may not."""
    assert object_of(line) is None
    assert object_of(b"\x1b[32mwait\r\x1b[K" + b'{"a": "\\u001b[0m x"}\x1b[0m') == {
        "a": "\x1b[0m x"
    }


@pytest.mark.parametrize("text", ["", "x", "{", "NaN", "[Infinity]"])
def test_what_is_no_json_has_no_value(text: str) -> None:
    """NaN is no JSON, though Python reads it."""
    assert json_value(text) == (False, None)


def test_json_has_a_value() -> None:
    """Null is a value too."""
    assert json_value(' {"a": [1]} ') == (True, {"a": [1]})
    assert json_value("null") == (True, None)


def test_fields_of_the_wanted_type_are_read() -> None:
    """Each reader gives the field as it is."""
    data = {"o": {"a": 1}, "l": [1, {"b": 2}], "t": "x", "n": 1.5, "w": -3.0, "c": 7}
    assert object_in(data, "o") == {"a": 1}
    assert list_in(data, "l") == [1, {"b": 2}]
    assert objects_in(data, "l") == [{"b": 2}]
    assert text_in(data, "missing", "t") == "x"
    assert (number_in(data, "n"), whole_in(data, "w"), count_in(data, "c")) == (1.5, -3, 7)
    assert (whole_in(data, "n"), count_in(data, "w")) == (None, None)


@given(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(10**400)
    | st.lists(st.integers()) | st.dictionaries(st.text(), st.integers())
)  # fmt: skip
def test_fields_of_another_type_are_absent(value: Any) -> None:
    """Whatever stands in a field, it is of the type that was asked for, or as if missing."""
    data = {"f": value}
    assert object_in(data, "f") == (value if isinstance(value, dict) else {})
    assert as_object(value) == object_in(data, "f")
    assert list_in(data, "f") == (value if isinstance(value, list) else [])
    assert text_in(data, "f") == (value if isinstance(value, str) else "")
    number = number_in(data, "f")
    assert number is None or number == value
    assert isinstance(value, bool) is False or number is None
