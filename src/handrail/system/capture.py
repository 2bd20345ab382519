"""Output of a process, kept within a bound: its beginning, its end, and how much was between."""

from __future__ import annotations

import codecs

from handrail.errors import DefinitionError

_LONGEST_UTF8_TAIL = 3


class Capture:
    """Keeps at most ``limit_bytes`` of what it is fed: all of it, or the first and the last half.

    Mutable; holds no more than ``limit_bytes`` and one chunk at a time. Kept and left-out bytes
    always add up to the bytes that were fed.
    """

    __slots__ = ("_dropped_bytes", "_head", "_head_limit", "_tail", "_tail_limit")

    def __init__(self, limit_bytes: int) -> None:
        if limit_bytes < 0:
            raise DefinitionError(f"limit_bytes must be 0 or more, got {limit_bytes}")
        self._tail_limit = limit_bytes // 2
        self._head_limit = limit_bytes - self._tail_limit
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped_bytes = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes; the oldest ones after the first half make room for them."""
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        excess = len(self._tail) - self._tail_limit
        if excess > 0:
            del self._tail[:excess]
            self._dropped_bytes += excess

    def text(self) -> tuple[str, int]:
        """The captured text, and how many bytes it leaves out.

        Bytes that are no UTF-8 become U+FFFD. Where something was left out, a line in the middle
        says how much, and a character that the cut went through is left out whole.
        """
        if not self._dropped_bytes:
            return (self._head + self._tail).decode("utf-8", "replace"), 0
        head, head_cut = _whole_head(self._head)
        tail, tail_cut = _whole_tail(self._tail)
        left_out = self._dropped_bytes + head_cut + tail_cut
        return f"{head}\n[... {left_out} bytes left out ...]\n{tail}", left_out


class Tail:
    """Keeps the last ``limit_bytes`` of what it is fed. Mutable."""

    __slots__ = ("_cut", "_data", "_limit")

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._data = bytearray()
        self._cut = False

    def feed(self, data: bytes) -> None:
        """Take the next bytes; the oldest ones make room for them."""
        self._data += data
        excess = len(self._data) - self._limit
        if excess > 0:
            del self._data[:excess]
            self._cut = True

    def text(self) -> str:
        """The text, U+FFFD for what is no UTF-8, without a character that the cut went through."""
        return _whole_tail(self._data)[0] if self._cut else self._data.decode("utf-8", "replace")


def _whole_head(data: bytearray) -> tuple[str, int]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data)
    return text, len(decoder.getstate()[0])


def _whole_tail(data: bytearray) -> tuple[str, int]:
    cut = 0
    while cut < min(_LONGEST_UTF8_TAIL, len(data)) and data[cut] & 0xC0 == 0x80:
        cut += 1
    return data[cut:].decode("utf-8", "replace"), cut
