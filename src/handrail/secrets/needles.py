"""Searches a text for many strings at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

SOON = 4096
"""After this many characters, in however many texts, building a finder in C pays (0.7 ms with its
import). Until then each needle is searched for in Python: 300 characters take 3 µs, with the finder
0.4 µs; a MiB would take 5 ms and more, with the finder 0.05 ms.
"""
TOGETHER = 32
"""How many needles one finder searches for. With twice as many a MiB would take 1.4 ms, because the
processor then advances one byte at a time.
"""


_NEVER = (b"\xff\xfe\x00\xff", b"\xff\xfe\x01\xff")
"""No text has these bytes. With them a finder looks for the beginnings of all its strings at once;
else it may stop at each of the rarest bytes of them, which takes 30 times as long.
"""


class Needles:
    """Strings that are searched for together. Mutable: builds its finders when they are needed.

    ``parts``: each of the strings contains one of these. There are fewer parts than strings, and
    only parts are searched for until there is a finder.
    """

    __slots__ = ("_finders", "_needles", "_parts", "_unread")

    def __init__(self, texts: Iterable[str], parts: Iterable[str] | None = None) -> None:
        self._needles = tuple(dict.fromkeys(map(_as_bytes, texts)))
        self._parts = (
            self._needles if parts is None else tuple(dict.fromkeys(map(_as_bytes, parts)))
        )
        self._unread = SOON
        self._finders: tuple[Any, ...] | None = None

    def __or__(self, other: Needles) -> Needles:
        """A search for the strings of both."""
        both = Needles(())
        both._needles = (*self._needles, *other._needles)
        both._parts = (*self._parts, *other._parts)
        return both

    def may_occur_in(self, text: str | bytes) -> bool:
        """False if the text, or its bytes, contains none of the strings; fast then. True if it
        contains a string or only a part, or if it has no UTF-8 form (lone surrogates).
        """
        if isinstance(text, str):
            try:
                data = utf8(text)
            except UnicodeEncodeError:
                return True
        else:
            data = text
        finders = self._finders
        if finders is None:
            self._unread -= len(data)
            if self._unread > 0:
                return any(map(data.__contains__, self._parts))
            finders = self._finders = _finders(self._needles)
        return any(find(data) for find in finders)


def utf8(text: str) -> bytes:
    """The text as bytes, as the environment has it."""
    return text.encode("utf-8", "surrogateescape")


def _as_bytes(text: str) -> bytes:
    try:
        return utf8(text)
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _finders(needles: tuple[bytes, ...]) -> tuple[Any, ...]:
    from ahocorasick_rs import BytesAhoCorasick, MatchKind

    count = -(-len(needles) // TOGETHER)
    slices = [needles[start::count] for start in range(count)]
    return tuple(
        # Leftmost match: only such a finder scans many bytes at a time.
        BytesAhoCorasick(
            [*some, *_NEVER], matchkind=MatchKind.LeftmostFirst
        ).find_matches_as_indexes
        for some in slices
    )
