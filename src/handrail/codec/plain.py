"""Tests with two libraries in C, where both are installed, whether a value is plain JSON in all its
parts. Without them no value is surely plain, and each is walked over: that comes to the same text.

Each library accepts some classes that the other refuses. ormsgpack has options to refuse tuples,
subclasses, enums and all else that gets a tag in a record, but it packs bytes. orjson refuses
bytes, and ints of more than 53 bits. Both write floats that are not finite; the packed value shows
them.

The walk over the value in Python is 8 times slower: it takes 10 ms for a MiB of rows. And what
orjson writes for the test is already the value's JSON text.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

MANY = 32
"""The test pays for a list or dict of at least so many items."""
PART = 512
"""A longer list is tested in parts of so many items. The items of a part that is not surely plain
are looked at one by one.
"""

_NOT_FINITE = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")
"""A double with an exponent of all ones, in MessagePack; bytes of other values may match too."""
_EXPONENT = re.compile(rb"[0-9]e\+[0-9]")
"""A number that msgspec writes differently, such as ``1e20``; texts may match too."""
_AS_NULL = b"null"
"""What orjson writes for a float that is not finite; None and texts match too."""
_TAGGED = b'"$":'
"""A key that is a tag; inside a text the quotes would be escaped."""


@cache
def _libraries() -> tuple[Any, int, Any, int] | None:
    try:
        import orjson
        import ormsgpack
    except ImportError:  # the extra `fast` has them
        return None

    refuse = (
        ormsgpack.OPT_PASSTHROUGH_BIG_INT
        | ormsgpack.OPT_PASSTHROUGH_DATACLASS
        | ormsgpack.OPT_PASSTHROUGH_DATETIME
        | ormsgpack.OPT_PASSTHROUGH_ENUM
        | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
        | ormsgpack.OPT_PASSTHROUGH_TUPLE
        | ormsgpack.OPT_PASSTHROUGH_UUID
    )
    return ormsgpack.packb, refuse, orjson.dumps, orjson.OPT_STRICT_INTEGER


def is_plain(value: object) -> bool:
    """True if a list or dict surely goes into a record unchanged, without tags."""
    return _dumped(value) is not None


def plain_json(value: object) -> str | None:
    """The JSON text of a list or dict that surely goes into a record unchanged; else None.

    None also if msgspec would write another text.
    """
    dumped = _dumped(value)
    if dumped is None or (b"e+" in dumped and _EXPONENT.search(dumped) is not None):
        return None
    return dumped.decode()


def _dumped(value: object) -> bytes | None:
    """The JSON that orjson writes for a value that is surely plain; else None."""
    libraries = _libraries()
    if libraries is None:
        return None
    pack, refuse, dump, strict = libraries
    try:
        packed = pack(value, None, refuse)
        dumped: bytes = dump(value, None, strict)
    except (TypeError, ValueError, RecursionError):
        return None
    if b"$" in dumped and _TAGGED in dumped:
        return None
    finite = _AS_NULL not in dumped or _NOT_FINITE.search(packed) is None
    return dumped if finite else None
