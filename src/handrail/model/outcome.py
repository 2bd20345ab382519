"""Resumes a generator: the one place that sends a value or throws an exception into it."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

YIELDED: Final = 0
RETURNED: Final = 1
RAISED: Final = 2


def resume(
    generator: Generator[Any, Any, Any], value: Any = None, error: BaseException | None = None
) -> tuple[int, Any]:
    """Resume the generator: ``YIELDED``, ``RETURNED`` or ``RAISED``, with the value or exception.

    It raises nothing: even a ``KeyboardInterrupt`` of the body is an outcome, about which the
    caller decides. The result is a pair and no object, because this runs once for each step.
    """
    try:
        return YIELDED, generator.send(value) if error is None else generator.throw(error)
    except StopIteration as stop:
        return RETURNED, stop.value
    except BaseException as raised:  # noqa: BLE001  # every end of a body is an outcome
        return RAISED, raised
