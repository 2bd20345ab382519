"""How Python's own classes are written and read: the short tags."""

from __future__ import annotations

import base64
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar, cast
from uuid import UUID

import msgspec

from handrail.codec.writing import (
    TAG,
    Refused,
    Writer,
    Writing,
    int_text,
    write_dict,
    write_float,
    write_int,
    write_list,
    write_text,
)

Node: TypeAlias = dict[str, Any]
Reader: TypeAlias = Callable[[Node], Any]
"""Builds the value of a tagged object whose parts are values already."""

_PRINTABLE = frozenset({*range(32, 127), *b"\n\r\t"})


def _sequence(tag: str) -> Writer:
    def write(writing: Writing, value: Iterable[Any], depth: int) -> Node:
        return {TAG: tag, "v": writing.items(value, value, depth)}

    return write


def _set(tag: str) -> Writer:
    """A writer that sorts by the items' texts, so that equal sets have equal texts."""

    def write(writing: Writing, value: Iterable[Any], depth: int) -> Node:
        items: list[Any] = []
        for item in value:
            writing.hashed(item)
            try:
                items.append(writing.write(item, depth + 1))
            except Refused as refused:
                raise refused.add_step(value, "{...}") from refused.__cause__
        return {TAG: tag, "v": sorted(items, key=msgspec.json.encode)}

    return write


def _pairs(tag: str) -> Writer:
    def write(writing: Writing, value: dict[Any, Any], depth: int) -> Node:
        return {TAG: tag, "v": writing.pairs(value, value.items(), depth)}

    return write


def _text(tag: str, text: Callable[[Any], str] = str) -> Writer:
    def write(writing: Writing, value: Any, depth: int) -> Node:
        return {TAG: tag, "v": writing.write(text(value), depth + 1)}

    return write


def _windows_path(tag: str) -> Writer:
    def write(writing: Writing, value: PureWindowsPath, depth: int) -> Node:
        writing.proven = False  # the text of some paths, such as //://, reads as another path
        return {TAG: tag, "v": writing.write(str(value), depth + 1)}

    return write


def _bytes(tag: str) -> Writer:
    def write(writing: Writing, value: bytes | bytearray, depth: int) -> Node:
        del writing, depth
        if _PRINTABLE.issuperset(value):
            return {TAG: tag, "text": value.decode("ascii")}
        return {TAG: tag, "base64": base64.b64encode(value).decode("ascii")}

    return write


def _read_bytes(node: Node) -> bytes:
    if "text" in node:
        return str(node["text"]).encode("ascii")
    return base64.b64decode(node["base64"], validate=True)


def _write_deque(writing: Writing, value: deque[Any], depth: int) -> Node:
    node = {TAG: "deque", "v": writing.items(value, value, depth)}
    return node if value.maxlen is None else {**node, "maxlen": value.maxlen}


def _write_defaultdict(writing: Writing, value: defaultdict[Any, Any], depth: int) -> Node:
    try:
        factory = writing.write(value.default_factory, depth + 1)
    except Refused as refused:
        raise refused.add_step(value, ".default_factory") from refused.__cause__
    pairs = writing.pairs(value, value.items(), depth)
    return {TAG: "defaultdict", "factory": factory, "v": pairs}


def _clocked(tag: str) -> Writer:
    """Writes ISO text that includes a plain offset; any other zone beside the local time."""

    def write(writing: Writing, value: datetime | time, depth: int) -> Node:
        zone = value.tzinfo
        if zone is None or _is_plain_offset(zone):
            node: Node = {TAG: tag, "v": value.isoformat()}
        else:
            try:
                written = writing.write(zone, depth + 1)
            except Refused as refused:
                raise refused.add_step(value, ".tzinfo") from refused.__cause__
            node = {TAG: tag, "v": value.replace(tzinfo=None).isoformat(), "zone": written}
        return {**node, "fold": 1} if value.fold else node

    return write


def _is_plain_offset(zone: tzinfo) -> bool:
    """True if ISO text keeps the zone; ``fromisoformat`` reads an offset below a second as UTC."""
    if type(zone) is not timezone:
        return False
    offset, *name = cast("Any", zone).__getinitargs__()
    return not name and not timedelta(0) < abs(offset) < timedelta(seconds=1)


_Clocked = TypeVar("_Clocked", datetime, time)


def _in_zone(value: _Clocked, node: Node) -> _Clocked:
    if "zone" in node:
        value = value.replace(tzinfo=node["zone"])
    return value.replace(fold=1) if "fold" in node else value


def _write_timezone(writing: Writing, value: timezone, depth: int) -> Node:
    offset, *name = cast("Any", value).__getinitargs__()
    node = {TAG: "timezone", "offset": writing.write(offset, depth + 1)}
    return {**node, "name": writing.write(name[0], depth + 1)} if name else node


def _read_timezone(node: Node) -> timezone:
    return timezone(node["offset"], node["name"]) if "name" in node else timezone(node["offset"])


def write_zoneinfo(writing: Writing, value: Any, depth: int) -> Node:
    """A ``zoneinfo.ZoneInfo`` by its key."""
    del writing, depth
    if value.key is None:
        raise Refused("a ZoneInfo without a key has no name to be found by")
    return {TAG: "zoneinfo", "v": value.key}


def _read_zoneinfo(node: Node) -> Any:
    from zoneinfo import ZoneInfo

    return ZoneInfo(node["v"])


def _write_timedelta(writing: Writing, value: timedelta, depth: int) -> Node:
    del writing, depth
    parts = {"days": value.days, "seconds": value.seconds, "microseconds": value.microseconds}
    return {TAG: "timedelta", **{name: part for name, part in parts.items() if part}}


def _read_timedelta(node: Node) -> timedelta:
    return timedelta(node.get("days", 0), node.get("seconds", 0), node.get("microseconds", 0))


def _fraction_text(value: Fraction) -> str:
    return f"{int_text(value.numerator)}/{int_text(value.denominator)}"


def _read_fraction(node: Node) -> Fraction:
    above, _, below = node["v"].partition("/")
    return Fraction(int(above, 0), int(below, 0))


def _numbers(tag: str, *names: str) -> Writer:
    """Writes the numbers that these attributes are."""

    def write(writing: Writing, value: Any, depth: int) -> Node:
        return {TAG: tag, "v": [writing.write(getattr(value, name), depth + 1) for name in names]}

    return write


def _write_unset(writing: Writing, value: Any, depth: int) -> Node:
    del writing, value, depth
    return {TAG: "unset"}


WRITERS: dict[type, Writer] = {
    str: write_text,
    int: write_int,
    float: write_float,
    list: write_list,
    dict: write_dict,
    tuple: _sequence("tuple"),
    set: _set("set"),
    frozenset: _set("frozenset"),
    bytes: _bytes("bytes"),
    bytearray: _bytes("bytearray"),
    datetime: _clocked("datetime"),
    date: _text("date", date.isoformat),
    time: _clocked("time"),
    timedelta: _write_timedelta,
    timezone: _write_timezone,
    UUID: _text("uuid"),
    PosixPath: _text("path"),
    WindowsPath: _windows_path("path"),
    PurePosixPath: _text("PurePosixPath"),
    PureWindowsPath: _windows_path("PureWindowsPath"),
    Decimal: _text("decimal"),
    Fraction: _text("fraction", _fraction_text),
    complex: _numbers("complex", "real", "imag"),
    OrderedDict: _pairs("OrderedDict"),
    Counter: _pairs("Counter"),
    MappingProxyType: _pairs("mappingproxy"),
    defaultdict: _write_defaultdict,
    deque: _write_deque,
    range: _numbers("range", "start", "stop", "step"),
    type(msgspec.UNSET): _write_unset,
}

READERS: dict[str, Reader] = {
    "str": lambda node: str(node["escaped"]).encode("ascii").decode("unicode_escape"),
    "int": lambda node: int(node["v"], 0),
    "float": lambda node: float(node["v"]),
    "dict": lambda node: dict(node["v"]),
    "tuple": lambda node: tuple(node["v"]),
    "set": lambda node: set(node["v"]),
    "frozenset": lambda node: frozenset(node["v"]),
    "bytes": _read_bytes,
    "bytearray": lambda node: bytearray(_read_bytes(node)),
    "datetime": lambda node: _in_zone(datetime.fromisoformat(node["v"]), node),
    "date": lambda node: date.fromisoformat(node["v"]),
    "time": lambda node: _in_zone(time.fromisoformat(node["v"]), node),
    "timedelta": _read_timedelta,
    "timezone": _read_timezone,
    "zoneinfo": _read_zoneinfo,
    "uuid": lambda node: UUID(node["v"]),
    "path": lambda node: Path(node["v"]),
    "PurePosixPath": lambda node: PurePosixPath(node["v"]),
    "PureWindowsPath": lambda node: PureWindowsPath(node["v"]),
    "decimal": lambda node: Decimal(node["v"]),
    "fraction": _read_fraction,
    "complex": lambda node: complex(*node["v"]),
    "OrderedDict": lambda node: OrderedDict(node["v"]),
    "Counter": lambda node: Counter(dict(node["v"])),
    "mappingproxy": lambda node: MappingProxyType(dict(node["v"])),
    "defaultdict": lambda node: defaultdict(node["factory"], node["v"]),
    "deque": lambda node: deque(node["v"], node.get("maxlen")),
    "range": lambda node: range(*node["v"]),
    "unset": lambda _: msgspec.UNSET,
}

PAIRED = frozenset({"dict", "OrderedDict", "Counter", "mappingproxy", "defaultdict"})
"""Tags whose ``v`` is a list of keys and values."""


def is_zoneinfo(cls: type) -> bool:
    """True for ``zoneinfo.ZoneInfo``; does not import ``zoneinfo``, which few programs need."""
    return cls is getattr(sys.modules.get("zoneinfo"), "ZoneInfo", None)
