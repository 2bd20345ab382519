"""The newest of many values, within a count and a size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

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
