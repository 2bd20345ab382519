"""Lines in a stream of bytes, however it was cut into pieces."""

from __future__ import annotations

from dataclasses import dataclass, field

from handrail.system.pump import Stream

LINE_BYTES = 64 << 20
"""The longest line that is kept whole; agents print whole files as one line, screenshots too."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its end (a newline, with or without a carriage return before it).

    ``cut``: it was too long, and this is its beginning. ``end`` is what ended it, nothing if the
    stream did; lines that differ in that alone are equal.
    """

    stream: Stream
    data: bytes
    cut: bool = False
    end: bytes = field(default=b"\n", compare=False)


class LineFramer:
    """Makes lines of the bytes of one stream. Mutable.

    Each byte is looked at once, however long its line is: the pieces of a line are kept as they
    came and are joined when it ends. It is decoded only then, if at all, so that a character which
    came in two pieces is whole.
    """

    __slots__ = ("_cut", "_held_bytes", "_limit", "_pieces", "_stream")

    def __init__(self, stream: Stream, limit_bytes: int = LINE_BYTES) -> None:
        self._stream: Stream = stream
        self._limit = limit_bytes
        self._pieces: list[bytes] = []
        self._held_bytes = 0
        self._cut = False

    def feed(self, data: bytes) -> list[Line]:
        """The lines that these bytes complete."""
        *ends, rest = data.split(b"\n")
        lines: list[Line] = []
        for end in ends:
            self._hold(end)
            lines.append(self._line())
        self._hold(rest)
        return lines

    def finish(self) -> list[Line]:
        """The last line, if it has no newline."""
        return [self._line(b"")] if self._pieces else []

    def _hold(self, piece: bytes) -> None:
        room = self._limit - self._held_bytes
        if len(piece) > room:
            piece = piece[:room]
            self._cut = True
        if piece:
            self._pieces.append(piece)
            self._held_bytes += len(piece)

    def _line(self, end: bytes = b"\n") -> Line:
        data, cut = b"".join(self._pieces), self._cut
        self._pieces.clear()
        self._held_bytes = 0
        self._cut = False
        if cut or not data.endswith(b"\r"):
            return Line(self._stream, data, cut, end)
        return Line(self._stream, data[:-1], cut, b"\r" + end)
