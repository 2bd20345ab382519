"""Lists that are shortened so that a client can take the message that they are in.

Clients take messages of up to 1 MiB, and end the connection at a longer one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

V = TypeVar("V")

_SPARE = 2_000
"""Bytes of all else in the message."""


class Fitting:
    """Counts what several lists of one message may still have. Mutable."""

    def __init__(self, most: int) -> None:
        self._room = most - _SPARE
        self._omitted = 0

    def all(self, values: Iterable[V]) -> list[V]:
        """As many of them as there is room for, from the first on."""
        found: list[V] = []
        for value in values:
            size = len(msgspec.json.encode(value)) + 1
            if size > self._room:
                self._omitted += 1
            else:
                self._room -= size
                found.append(value)
        return found

    def first(self, values: Iterable[V]) -> list[V]:
        """The same without a gap: it ends at the first for which there is no room."""
        found: list[V] = []
        for value in values:
            if not (fits := self.all([value])) and found:
                break
            found += fits
        return found

    def newest(self, values: Iterable[V]) -> list[V]:
        """The same of values that come newest first; the newest is the last that is returned."""
        found = self.first(values)
        found.reverse()
        return found

    def omitted(self) -> dict[str, int]:
        """How many were left out; nothing if none was."""
        return {"omitted": self._omitted} if self._omitted else {}
