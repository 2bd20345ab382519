"""The items of a group."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Generator, Iterator, Mapping
from typing import Any, cast

from handrail.steps.verbs import Step


class Items:
    """The items of ``for_each``, which each attempt takes from the first one on. Mutable.

    An iterator yields each of its items once. If there may be another attempt (``again``), the
    items that it yielded are kept for it.
    """

    __slots__ = ("_again", "_given", "_kept")

    def __init__(self, given: Any, *, again: bool) -> None:
        self._given = given
        self._again = again
        self._kept: Iterator[Any] | None = None

    def from_first(self) -> Iterator[Any]:
        """The items, or the pairs of a mapping.

        Raises:
            Exception: what the user's ``__iter__`` raised.
        """
        given = self._given
        if isinstance(given, Mapping):
            return iter(cast("Mapping[object, object]", given).items())
        items: Iterator[Any] = iter(given)
        if items is not given or not self._again:
            return items
        if self._kept is None:
            (self._kept,) = itertools.tee(items, 1)
        return copy.copy(self._kept)


def is_body(made: Step[Any] | Generator[Any, Any, Any]) -> bool:
    """True if the function returned a generator, which yields the member's steps."""
    return hasattr(made, "gi_frame") and hasattr(made, "send")
