"""The items of a group, their keys, and the function that makes a member of each."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Generator, Iterator, Mapping
from typing import Any, cast

from handrail.errors import DefinitionError
from handrail.model.paths import encode_key
from handrail.steps.verbs import ForEachGroup, Step, WorkGroup
from handrail.typed.reference import reference


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


def keyed(verb: ForEachGroup | WorkGroup, item: Any, index: int) -> tuple[Any, str]:
    """The value that the body gets, and the member's encoded key.

    Raises:
        DefinitionError: the key cannot be encoded.
        Exception: what the user's ``key`` raised.
    """
    if isinstance(verb, WorkGroup):
        return item, encode_key(item.id)
    if isinstance(verb.items, Mapping):
        given, value = item
        key = given if verb.key is None else verb.key(value)
    else:
        value = item
        key = index if verb.key is None else verb.key(value)
    try:
        return value, encode_key(key)
    except ValueError as error:
        raise DefinitionError(f"item {index} of {reference(verb.body)}: {error}") from None


def compared_item(verb: ForEachGroup | WorkGroup, item: Any) -> Any:
    """The part of a member's item that must match the record: of a task, its payload."""
    return item.payload if isinstance(verb, WorkGroup) else item


def function_of(verb: ForEachGroup | WorkGroup) -> Any:
    """The function that makes a member from its value: the body itself, or a workflow's."""
    body: Any = verb.body
    definition = getattr(body, "definition", None)
    return body if definition is None else definition.function


def is_body(made: Step[Any] | Generator[Any, Any, Any]) -> bool:
    """True if the function returned a generator, which yields the member's steps."""
    return hasattr(made, "gi_frame") and hasattr(made, "send")
