"""Collections limited in count and size, and lists that fit into one message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

import msgspec

V = TypeVar("V")


class Bounded(Generic[V]):
    """Values by key, in the order in which they were put. Mutable.

    It drops nothing by itself: ``surplus`` names the keys to drop before a ``put``, so that the
    caller can record these drops.
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
        """The oldest keys, which the caller must drop before it puts a value of this size."""
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
        """Put a value under a key, as the newest."""
        self.drop(key)
        self._values[key] = value
        self._sizes[key] = size
        self._size += size

    def drop(self, key: str) -> None:
        """Remove a key, if it is there."""
        if self._values.pop(key, None) is not None:
            self._size -= self._sizes.pop(key)


_SPARE = 2_000
"""Bytes reserved for the rest of the message."""


class Fitting:
    """Counts how much room the lists of one message have left. Mutable.

    Clients take messages of up to 1 MiB, and close the connection at a longer one.
    """

    def __init__(self, most: int) -> None:
        self._room = most - _SPARE
        self._omitted = 0

    def all(self, values: Iterable[V]) -> list[V]:
        """The values that there is room for; skips each that is too large."""
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
        """The values without a gap: stops at the first that does not fit after one that did."""
        found: list[V] = []
        for value in values:
            if not (fits := self.all([value])) and found:
                break
            found += fits
        return found

    def newest(self, values: Iterable[V]) -> list[V]:
        """``first`` of values that come newest first; returns them with the newest last."""
        found = self.first(values)
        found.reverse()
        return found

    def omitted(self) -> dict[str, int]:
        """The number of values left out, as a field of the message; empty if there are none."""
        return {"omitted": self._omitted} if self._omitted else {}
