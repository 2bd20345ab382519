"""The order of the steps of a body over several drives.

One drive yields its steps in an order, and that is the order in which they are listed. What it
takes from the record leaves no trace of when it was yielded, so after another drive the order is
put together: steps that began in the last drive stand in its order, and those that did not keep
their place among them. A step whose record was dropped has a place too, to begin again there.
"""

from __future__ import annotations

from collections.abc import Iterable

Key = tuple[int, ...]


class Places:
    """The places of what is below one path. Mutable; ``begun`` is told of each beginning, in order,
    and ``drive_began`` where another drive's follow.
    """

    def __init__(self, children: Iterable[str]) -> None:
        self._keys: dict[str, Key] = {child: (place,) for place, child in enumerate(children)}
        self._next = len(self._keys)
        self._last = ""
        self._inserted: set[str] = set()

    def drive_began(self) -> None:
        """What begins now stands in no order to what began before."""
        self._last = ""
        self._inserted.clear()

    def begun(self, child: str) -> None:
        """Leave it where it was, unless what began before it in this drive stands behind that."""
        last, place = self._last, self._keys.get(child)
        before = self._keys[last] if last else ()
        if place is None or place < before:
            above = before[:-1] if not last or last in self._inserted else before
            self._keys[child] = (*above, self._next)
            self._next += 1
            self._inserted.add(child)
        self._last = child

    def of(self, child: str) -> Key:
        """What to sort by; what never began, a question say, stands behind all that did."""
        return self._keys.get(child, (self._next,))
