"""Whether any of some texts occurs in another one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

SOON = 4096
"""After so many characters, in however many texts, a finder in C pays for its making (0.7 ms with
the import). Until then each needle is looked for in Python: of 300 characters that is 3 µs, with
the finder 0.4 µs; of a MiB it would be 5 ms and more, with the finder 0.05 ms.
"""
TOGETHER = 32
"""So many needles are looked for at once: with twice as many a MiB would be 1.4 ms, since the
processor then goes on by one byte at a time.
"""


class Needles:
    """Texts that are looked for together. Mutable: what finds them is made when it is needed.

    ``parts``: each of the texts has one of these in it. There are fewer of them, and only they are
    looked for as long as there is no finder.
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
        """All that both look for."""
        both = Needles(())
        both._needles = (*self._needles, *other._needles)
        both._parts = (*self._parts, *other._parts)
        return both

    def may_occur_in(self, text: str | bytes) -> bool:
        """True if one of them is a part of the text, or of the text in bytes, or one of their parts
        is, or if no bytes stand for it (lone surrogates); quick if it is false.
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
    """The text in bytes, as the environment has it."""
    return text.encode("utf-8", "surrogateescape")


def _as_bytes(text: str) -> bytes:
    try:
        return utf8(text)
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _finders(needles: tuple[bytes, ...]) -> tuple[Any, ...]:
    from ahocorasick_rs import BytesAhoCorasick, MatchKind

    return tuple(
        # The first from the left: only such a finder looks at many bytes at a time.
        BytesAhoCorasick(
            needles[start : start + TOGETHER], matchkind=MatchKind.LeftmostFirst
        ).find_matches_as_indexes
        for start in range(0, len(needles), TOGETHER)
    )
