"""Where a process is killed, and which of the many places are tried."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias, cast

from handrail.errors import WrongUse

When: TypeAlias = Literal["before", "after"]
Point: TypeAlias = tuple[int, When]
"""The number of a record, from 1 in each process, and on which side of its write."""
Plan: TypeAlias = tuple[Point, ...]
"""The points at which one process after the other is killed; the last process lives."""


def all_points(records: int) -> list[Plan]:
    """Both sides of every record."""
    return [((number, when),) for number in range(1, records + 1) for when in _SIDES]


def spread(plans: Sequence[Plan], limit: int | None) -> list[Plan]:
    """At most ``limit`` of them, the first and the last included, evenly spread."""
    if limit is None or limit >= len(plans):
        return list(plans)
    if limit == 1:
        return [plans[len(plans) // 2]]
    last = len(plans) - 1
    return [plans[round(index * last / (limit - 1))] for index in range(limit)]


def second_point(index: int, records: int) -> Point:
    """Where the process that resumed is killed too: another place for each ``index``."""
    return 1 + (_STRIDE * index) % max(records, 1), _SIDES[index % 2]


def chosen(only: Iterable[Any]) -> list[Plan]:
    """The plans that the user wrote down: a point, or a sequence of points, each.

    Raises:
        WrongUse: one of them is neither.
    """
    return [_plan(one) for one in only]


def _plan(given: Any) -> Plan:
    if _is_point(given):
        return (cast("Point", tuple(given)),)
    if isinstance(given, (list, tuple)):
        points = cast("Sequence[Any]", given)
        if points and all(map(_is_point, points)):
            return tuple(cast("Point", tuple(point)) for point in points)
    raise WrongUse(
        f"only= lists points like (7, 'before') or (7, 'after'), or lists of such for one crash "
        f"after the other, got {given!r}"
    )


def _is_point(given: Any) -> bool:
    if not isinstance(given, (list, tuple)):
        return False
    parts = cast("Sequence[Any]", given)
    return len(parts) == 2 and type(parts[0]) is int and parts[0] > 0 and parts[1] in _SIDES


_SIDES: tuple[When, When] = ("before", "after")
_STRIDE = 7
