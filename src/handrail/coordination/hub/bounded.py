"""The newest of many values, within a count and a size; and lists that fit into one message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

import msgspec

V = TypeVar("V")


class Bounded(Generic[V]):
    """Values by key, in the order in which they came. Mutable.

    It drops nothing by itself: ``surplus`` says what has to go before a value is put, so that
    whoever puts it can have that recorded.
    """

    def __init__(self, most: int, most_size: int) -> None:
        self._most = most
        self._most_size = most_size
        self._values: dict[str, V] = {}
        self._sizes: dict[str, int] = {}
        self._size = 0

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._values)

    def get(self, key: str) -> V | None:
        """The value under a key, or None."""
        return self._values.get(key)

    def values(self) -> Iterator[V]:
        """All values, the oldest first."""
        return iter(self._values.values())

    def newest(self) -> Iterator[V]:
        """All values, the newest first."""
        return reversed(self._values.values())

    def surplus(self, size: int) -> list[str]:
        """The oldest keys, as many as have to go before a value of this size is put."""
        found: list[str] = []
        count, total = len(self._values) + 1, self._size + size
        for key, its_size in self._sizes.items():
            if count <= self._most and total <= self._most_size:
                break
            found.append(key)
            count -= 1
            total -= its_size
        return found

    def put(self, key: str, value: V, size: int) -> None:
        """Put a value under a key, where it is the newest."""
        self.drop(key)
        self._values[key] = value
        self._sizes[key] = size
        self._size += size

    def drop(self, key: str) -> None:
        """Take away what is under a key, if anything is."""
        if self._values.pop(key, None) is not None:
            self._size -= self._sizes.pop(key)


_SPARE = 2_000
"""Bytes of all else in the message."""


class Fitting:
    """Counts what several lists of one message may still have. Mutable.

    Clients take messages of up to 1 MiB, and end the connection at a longer one.
    """

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
