"""Reads JSON that a program prints; whatever does not fit counts as absent, not as an error.

Programs change their protocols without notice, and some lines come from other sources. So a line
that is no object is None, and a field of an unexpected type counts as missing.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

import msgspec

Object: TypeAlias = Mapping[str, Any]
"""A decoded JSON object."""

NOTHING: Object = {}

_BEFORE = b"\xef\xbb\xbf \t\r"
"""The UTF-8 byte order mark and blanks, which may precede an object."""
_ERASURE = re.compile(rb"(?:\x1b\[|\xc2\x9b)[0-9;?]*[GHJKfsu]|\x08")
"""After these the terminal's line is written anew, as after a carriage return."""
_CODE = re.compile(
    rb"(?:\x1b\[|\xc2\x9b)[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"
    rb"|\x1b[ -/]*[0-~]|[\x00-\x08\x0e-\x1f]"
)
"""A code for a terminal (CSI, OSC and the others), or a control character; JSON has neither."""
_NOISE = re.compile(rb"[^A-Za-z{\[\"]*")
"""What may stand before JSON on its line, such as a spinner; a log's words may not."""
_DECODER = json.JSONDecoder()
_HALF_PAIRS = (b"\\ud", b"\\uD")


def object_of(line: bytes) -> Object | None:
    """The JSON object in a line; None if the line is anything else. Codes for a terminal, and what
    it overwrites, may stand around it.
    """
    value = _value_of(line, b"{")
    return cast("Object", value) if isinstance(value, dict) else None


def objects_of(line: bytes) -> list[Object]:
    """The JSON objects in a line, which is one of them, or a list of them."""
    value: Object | list[Object] | None = _value_of(line, b"{[")
    return [value] if isinstance(value, dict) else _objects(value)


def _value_of(line: bytes, openers: bytes) -> Any:
    first = line[:1]
    if first != b"{":
        line = line.lstrip(_BEFORE)
        first = line[:1]
    if first and first in openers:
        try:
            return msgspec.json.decode(line)
        except (ValueError, RecursionError):  # broken UTF-8, lone surrogates, NaN, noise
            if (value := _patiently(line)) is not None:
                return value
    elif not any(opener in line for opener in (b"{", b"[")):
        return None
    plain = _CODE.sub(b"", _ERASURE.sub(b"\r", line))
    parts = (part[_NOISE.match(part).end() :] for part in plain.split(b"\r"))  # type: ignore[union-attr]
    found = (_patiently(part) for part in parts if part[:1] and part[:1] in openers)
    return next((value for value in found if value is not None), None)


def _patiently(line: bytes) -> Any:
    """The JSON value at the beginning of a line, if nothing but noise follows; else None."""
    text = line.decode("utf-8", "replace")
    try:
        value, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return None
    if any(one.isalnum() for one in text[end:]):
        return None
    return encodable(value) if any(half in line for half in _HALF_PAIRS) else value


def json_value(text: str) -> tuple[bool, Any]:
    """Whether a text is JSON (NaN is not), and its value."""
    try:
        return True, encodable(json.loads(text, parse_constant=_refuse))
    except (ValueError, RecursionError):
        return False, None


def object_in(data: Object, name: str) -> Object:
    """A field that is an object; an empty one if it is not."""
    value: Object = data.get(name, NOTHING)
    return value if isinstance(value, dict) else NOTHING


def list_in(data: Object, name: str) -> list[Any]:
    """A field that is a list; an empty one if it is not."""
    value: object = data.get(name)
    return cast("list[object]", value) if isinstance(value, list) else []


def objects_in(data: Object, name: str) -> list[Object]:
    """The objects in a field that is a list."""
    return _objects(data.get(name))


def _objects(values: object) -> list[Object]:
    if not isinstance(values, list):
        return []
    return [value for value in cast("list[Object]", values) if isinstance(value, dict)]


def text_in(data: Object, name: str, *others: str) -> str:
    """The first of these fields that is a non-empty text; else an empty text."""
    value = data.get(name)
    if isinstance(value, str) and value:
        return value
    return text_in(data, *others) if others else ""


def number_in(data: Object, name: str) -> float | None:
    """A field that is a finite number and not a bool; else None."""
    value = data.get(name)
    if value is None or isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # a whole number of hundreds of digits
        return None


def whole_in(data: Object, name: str) -> int | None:
    """A field that is a whole number, of either sign."""
    number = number_in(data, name)
    return int(number) if number is not None and number == int(number) else None


def count_in(data: Object, name: str) -> int | None:
    """A field that is a whole number from 0 up."""
    value = data.get(name)
    number = value if type(value) is int else whole_in(data, name)
    return number if number is not None and number >= 0 else None


def as_object(value: object) -> Object:
    """A value that is a JSON object; an empty one if it is not."""
    return cast("Object", value) if isinstance(value, dict) else NOTHING


def encodable(value: Any) -> Any:
    """The same JSON value with ``?`` for lone surrogates, which UTF-8 cannot encode."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {encodable(name): encodable(member) for name, member in members.items()}
    if isinstance(value, list):
        return [encodable(member) for member in cast("list[object]", value)]
    return value


def _refuse(constant: str) -> Any:
    raise ValueError(constant)
