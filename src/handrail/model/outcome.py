"""How a generator is gone on with: a value sent or an exception thrown, in this one place."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

YIELDED: Final = 0
RETURNED: Final = 1
RAISED: Final = 2


def resume(
    generator: Generator[Any, Any, Any], value: Any = None, error: BaseException | None = None
) -> tuple[int, Any]:
    """What the generator does next: ``YIELDED``, ``RETURNED`` or ``RAISED``, and what.

    It raises nothing itself: ``KeyboardInterrupt`` of the body is an outcome too, the caller
    decides. A pair, not an object: this runs once for each step.
    """
    try:
        return YIELDED, generator.send(value) if error is None else generator.throw(error)
    except StopIteration as stop:
        return RETURNED, stop.value
    except BaseException as raised:  # noqa: BLE001  # every end of a body is an outcome
        return RAISED, raised
