"""Whether a value is JSON through and through, told by two libraries in C.

Each of them goes past some classes that the other one refuses: ormsgpack can be told to refuse
tuples, subclasses, enums and what else has a tag in a record, and would pack bytes; orjson refuses
bytes, and ints of more than 53 bits. Both would write what is not finite: in the packed value it
shows.

A walk over the value in Python tells the same, 8 times slower: of a MiB of rows 10 ms. And what
orjson wrote to tell is the text of the value, which need not be written once more.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

MANY = 32
"""In a list or dict of so many items it is worth while to ask."""
PART = 512
"""Of a longer list so many items at a time are asked for: in those among which one is not plain, or
may not be, each is looked at.
"""

_NOT_FINITE = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")
"""A double whose exponent is all ones, as MessagePack has it; other numbers may look the same."""
_EXPONENT = re.compile(rb"[0-9]e\+[0-9]")
"""A number that has another text by msgspec, ``1e20``; texts may look the same."""
_AS_NULL = b"null"
"""What JSON has in its place; None and texts look the same."""
_TAGGED = b'"$":'
"""A key that is a tag; in a text the quotes would be escaped."""


@cache
def _libraries() -> tuple[Any, int, Any, int]:
    import orjson
    import ormsgpack

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
    """True if a list or dict is written into a record as it is. False where it is not, or where
    that is not sure.
    """
    return _dumped(value) is not None


def plain_json(value: object) -> str | None:
    """The JSON text of a list or dict that is written into a record as it is; None where it is not,
    or where that is not sure, or where the text is not the one that msgspec makes.
    """
    dumped = _dumped(value)
    if dumped is None or (b"e+" in dumped and _EXPONENT.search(dumped) is not None):
        return None
    return dumped.decode()


def _dumped(value: object) -> bytes | None:
    """What orjson makes of a plain value."""
    pack, refuse, dump, strict = _libraries()
    try:
        packed = pack(value, None, refuse)
        dumped: bytes = dump(value, None, strict)
    except (TypeError, ValueError, RecursionError):
        return None
    if b"$" in dumped and _TAGGED in dumped:
        return None
    finite = _AS_NULL not in dumped or _NOT_FINITE.search(packed) is None
    return dumped if finite else None
