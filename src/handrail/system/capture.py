"""Output of a process, kept within a bound: its beginning, its end, and how much was between."""

from __future__ import annotations

import codecs

from handrail.errors import DefinitionError
from handrail.shortening import LONGEST_WORD, head_end, tail_start

_LONGEST_UTF8_TAIL = 3


class Capture:
    """Keeps at most ``limit_bytes`` of what it is fed: all of it, or the first and the last half.

    A word that a cut would go through is left out too, see ``shortening``. Mutable; holds no more
    than ``limit_bytes``, two words and one chunk at a time. Kept and left-out bytes always add up
    to the bytes that were fed.
    """

    __slots__ = ("_fed_bytes", "_head", "_head_limit", "_tail", "_tail_limit")

    def __init__(self, limit_bytes: int) -> None:
        if limit_bytes < 0:
            raise DefinitionError(f"limit_bytes must be 0 or more, got {limit_bytes}")
        self._tail_limit = limit_bytes // 2
        self._head_limit = limit_bytes - self._tail_limit
        self._head = bytearray()  # and what follows, as far as a word may go on
        self._tail = bytearray()  # and what is before, as far back as a word may begin
        self._fed_bytes = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes; the oldest ones after the first half make room for them."""
        room = self._head_limit + LONGEST_WORD - len(self._head)
        if room > 0:
            self._head += data[:room]
        _append(self._tail, data, self._tail_limit)
        self._fed_bytes += len(data)

    def text(self) -> tuple[str, int]:
        """The captured text, and how many bytes it leaves out.

        Bytes that are no UTF-8 become U+FFFD. Where something was left out, a line in the middle
        says how much, and a character that the cut went through is left out whole.
        """
        if self._fed_bytes <= self._head_limit + self._tail_limit:
            rest_bytes = max(0, self._fed_bytes - len(self._head))
            rest = self._tail[len(self._tail) - rest_bytes :]
            return (self._head + rest).decode("utf-8", "replace"), 0
        first, last = _first(self._head, self._head_limit), _last(self._tail, self._tail_limit)
        head, head_cut = _whole_head(first)
        tail, tail_cut = _whole_tail(last)
        left_out = self._fed_bytes - len(first) - len(last) + head_cut + tail_cut
        return f"{head}\n[... {left_out} bytes left out ...]\n{tail}", left_out


class Tail:
    """Keeps the last ``limit_bytes`` of what it is fed, from the start of a word. Mutable."""

    __slots__ = ("_data", "_limit")

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._data = bytearray()  # and what is before, as far back as a word may begin

    def feed(self, data: bytes) -> None:
        """Take the next bytes; the oldest ones make room for them."""
        _append(self._data, data, self._limit)

    def text(self) -> str:
        """The text, U+FFFD for what is no UTF-8, without a character that the cut went through."""
        if len(self._data) <= self._limit:
            return self._data.decode("utf-8", "replace")
        return _whole_tail(_last(self._data, self._limit))[0]


def _append(kept: bytearray, data: bytes, limit_bytes: int) -> None:
    kept += data
    excess = len(kept) - limit_bytes - LONGEST_WORD
    if excess > 0:
        del kept[:excess]


def _first(data: bytearray, limit_bytes: int) -> bytearray:
    """At most so many bytes, up to the end of a word."""
    start = max(0, limit_bytes - LONGEST_WORD)
    around = data[start : limit_bytes + LONGEST_WORD].decode("latin-1")
    return data[: start + head_end(around, limit_bytes - start)]


def _last(data: bytearray, limit_bytes: int) -> bytearray:
    """At most so many bytes, from the start of a word."""
    at = len(data) - limit_bytes
    start = max(0, at - LONGEST_WORD)
    around = data[start : at + LONGEST_WORD].decode("latin-1")
    return data[start + tail_start(around, at - start) :]


def _whole_head(data: bytearray) -> tuple[str, int]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data)
    return text, len(decoder.getstate()[0])


def _whole_tail(data: bytearray) -> tuple[str, int]:
    cut = 0
    while cut < min(_LONGEST_UTF8_TAIL, len(data)) and data[cut] & 0xC0 == 0x80:
        cut += 1
    return data[cut:].decode("utf-8", "replace"), cut
