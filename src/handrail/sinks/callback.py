"""A function as a sink."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from handrail.errors import WrongUse
from handrail.model.events import Event, Progress


class CallbackSink:
    """Calls a function with every event and progress notice, on the event loop, in order.

    The function must be sync and quick: the run waits for it. If it raises, the sink is dropped.

    Raises:
        WrongUse: ``callback`` is no function, or an async one, which nobody would await.
    """

    def __init__(self, callback: Callable[[Event | Progress], Any]) -> None:
        if not callable(callback):
            raise WrongUse(f"CallbackSink takes a function of one event, got {callback!r}")
        if inspect.iscoroutinefunction(callback):
            raise WrongUse(
                f"CallbackSink calls its function and does not await it, so {callback!r} cannot be "
                f"async. Put the event into a queue there, and await in a task of your own."
            )
        self._callback = callback

    def emit(self, event: Event | Progress, /) -> None:
        """Call the function."""
        self._callback(event)
