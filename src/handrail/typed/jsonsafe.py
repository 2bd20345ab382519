"""Any Python value as strict JSON, for people, logs and reports; nothing here ever raises.

This direction is lossy: some values cannot be read back from what it writes. Given the type,
``handrail.typed.convert`` reads dates, paths, enums and base64 back.
"""

from __future__ import annotations

import base64
import json
import math
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import Field, fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from typing import Any, TypeAlias, cast
from uuid import UUID

import msgspec

from handrail.shortening import shortened
from handrail.typed.reference import ELSEWHERE, IN_VALUE

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

CUT = "..."
MAX_DEPTH = 50
MAX_REPR = 120


def json_safe(value: object) -> Json:
    """``value`` as plain JSON data that ``json.dumps(..., allow_nan=False)`` accepts.

    Records (dataclasses, attrs, Struct, NamedTuple, pydantic) become objects, a ``WorkflowResult``
    without its steps, which have places of their own, and its value once. Enums become their
    values, dates ISO text, a timedelta an ISO 8601 duration, bytes base64 text, sets sorted lists,
    NaN and the infinities ``"NaN"``, ``"Infinity"``, ``"-Infinity"``, exceptions ``"Type: text"``,
    classes and functions their qualified name, anything else its shortened repr. Keys become text;
    of keys that become equal the last wins. Cycles, and values deeper than 50 levels, become
    ``"..."``.
    """
    return _safe(value, ())


def short_repr(value: object, limit: int = MAX_REPR) -> str:
    """``repr(value)`` on one line, at most ``limit`` characters of it; never raises.

    A longer text is cut in its middle, without leaving a piece of a word there; see ``shortening``.
    """
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001  # a user's __repr__ may do anything
        text = f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    if len(text) <= limit:
        return _encodable(text)
    head = (limit - len(CUT)) * 2 // 3
    tail = limit - len(CUT) - head
    return _encodable(shortened(text, head, mark=CUT) + shortened(text, tail, "tail", mark=""))


def record_items(value: object) -> Iterable[tuple[str, object]] | None:
    """The JSON names and the values of a record's fields; None if the value is no record."""
    cls: Any = type(value)
    if isinstance(value, type):
        return None
    if isinstance(value, msgspec.Struct):
        return _struct_items(value)
    if is_dataclass(value):
        shown = (f.name for f in fields(value) if not (f.metadata and _is_elsewhere(value, f)))
        return [(name, getattr(value, name)) for name in shown if hasattr(value, name)]
    if hasattr(cls, "__attrs_attrs__"):
        names = [str(a.name) for a in cls.__attrs_attrs__]
        return [(name, getattr(value, name)) for name in names if hasattr(value, name)]
    if isinstance(value, tuple) and hasattr(cls, "_fields"):
        names = [str(name) for name in cls._fields]
        return list(zip(names, cast("tuple[object, ...]", value), strict=False))
    if hasattr(cls, "__pydantic_validator__") and "pydantic" in sys.modules:
        dumped: Mapping[str, object] = cast("Any", value).model_dump()
        return dumped.items()
    return None


def _is_elsewhere(record: Any, field: Field[Any]) -> bool:
    if field.metadata == IN_VALUE:
        return record.value is not None and record.value is getattr(record, field.name)
    return field.metadata == ELSEWHERE


def _struct_items(value: msgspec.Struct) -> list[tuple[str, object]]:
    config = value.__struct_config__
    tag = [(str(config.tag_field), config.tag)] if config.tag is not None else []
    names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
    items = [(key, getattr(value, name, msgspec.UNSET)) for key, name in names]
    return [*tag, *((key, item) for key, item in items if item is not msgspec.UNSET)]


def _safe(value: object, above: tuple[int, ...]) -> Json:
    try:
        scalar = _scalar(value)
        if scalar is not _NOT_SCALAR:
            return cast("Json", scalar)
        if len(above) >= MAX_DEPTH or id(value) in above:
            return CUT
        return _composite(value, (*above, id(value)))
    except Exception:  # noqa: BLE001  # a user's properties and iterators may do anything
        return short_repr(value)


_NOT_SCALAR = object()


def _scalar(value: object) -> object:
    match value:
        case None | True | False:
            return value
        case Enum():
            return _safe(value.value, (id(value),))
        case str():
            return _encodable(str.__str__(value))
        case int():
            return _integer(int(value))
        case float():
            return _number(float(value))
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return msgspec.to_builtins(value)
        case PurePath() | UUID() | Decimal() | Fraction():
            return _encodable(str(value))
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(cast("bytes", value)).decode("ascii")
        case BaseException():
            return _encodable(f"{type(value).__name__}: {value}".removesuffix(": "))
        case _:
            return _NOT_SCALAR


def _composite(value: object, above: tuple[int, ...]) -> Json:
    items = record_items(value)
    if items is not None:
        return {_key(name): _safe(item, above) for name, item in items}
    match value:
        case Mapping():
            mapping = cast("Mapping[object, object]", value)
            return {_key(key): _safe(item, above) for key, item in mapping.items()}
        case list() | tuple() | deque() | range():
            return [_safe(item, above) for item in cast("Iterable[object]", value)]
        case AbstractSet():
            return _sorted([_safe(item, above) for item in cast("Iterable[object]", value)])
        case _:
            return _name_of(value) or short_repr(value)


def _sorted(items: list[Json]) -> list[Json]:
    try:
        return sorted(cast("list[Any]", items))
    except TypeError:  # items of several types
        return sorted(items, key=json.dumps)


def _name_of(value: object) -> str | None:
    """``module.Qualname`` of a class or function, whose repr would have an address; else None."""
    if not (isinstance(value, type) or hasattr(value, "__code__")):
        return None
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(name, str):
        return None
    return name if module in {None, "builtins"} else f"{module}.{name}"


def _key(key: object) -> str:
    safe = _safe(key, ())
    return safe if isinstance(safe, str) else json.dumps(safe)


def _integer(value: int) -> Json:
    """The integer, or its hexadecimal text if it has more digits than Python will print."""
    limit = sys.get_int_max_str_digits()
    if limit and value.bit_length() > limit * 3:
        return hex(value)
    return value


def _number(value: float) -> Json:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _encodable(text: str) -> str:
    """``text`` with lone surrogates escaped, so that it can be written as UTF-8."""
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
