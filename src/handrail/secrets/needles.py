"""Whether any of some texts occurs in another one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

LONG = 4096
"""A text of so many characters is gone through once, for all needles.

In Python it is gone through for each needle: of a MiB and the eight beginnings of tokens that is
5 ms, and 0.5 ms more for each spelling of each value of a variable. Once is 1.6 ms.
"""


class Needles:
    """Texts that are looked for together. Mutable: what finds them is made when it is needed.

    ``parts``: each of the texts has one of these in it. There are fewer of them, and only they are
    looked for in a text that is not long.
    """

    __slots__ = ("_finds", "_parts", "_texts")

    def __init__(self, texts: Iterable[str], parts: Iterable[str] | None = None) -> None:
        self._texts = tuple(dict.fromkeys(texts))
        self._parts = self._texts if parts is None else tuple(dict.fromkeys(parts))
        self._finds: Any = None

    def __or__(self, other: Needles) -> Needles:
        """All that both look for."""
        return Needles((*self._texts, *other._texts), (*self._parts, *other._parts))

    def may_occur_in(self, text: str) -> bool:
        """True if one of them is a part of the text, or one of their parts is; quick if none is."""
        if len(text) < LONG or not self._texts:
            return any(map(text.__contains__, self._parts))
        if self._finds is None:
            self._finds = _finder(self._texts)
        try:
            return bool(self._finds(text.encode()))
        except UnicodeEncodeError:  # a lone surrogate, which no bytes stand for
            return any(map(text.__contains__, self._parts))


def _finder(texts: tuple[str, ...]) -> Any:
    import ahocorasick_rs

    needles = [text.encode("utf-8", "surrogatepass") for text in texts]
    return ahocorasick_rs.BytesAhoCorasick(needles).find_matches_as_indexes
