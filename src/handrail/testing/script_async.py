"""Runs a coroutine that waits for nothing, without an event loop."""

from __future__ import annotations

import inspect
from contextvars import Context, copy_context
from typing import Any


def run_to_end(value: Any, whose: str, context: Context | None = None) -> Any:
    """The value itself, or what an awaitable comes to if it never has to wait.

    Raises:
        AssertionError: it waits for something, and a script has no event loop to wait in.
    """
    if not inspect.isawaitable(value):
        return value
    iterator = value.__await__()
    inside = copy_context() if context is None else context
    try:
        inside.run(next, iterator)
    except StopIteration as stop:
        return stop.value
    close = getattr(iterator, "close", None)
    if close is not None:
        close()
    raise AssertionError(
        f"{whose} waits for something, and a Script has no event loop to wait in. Say what it "
        f"gives instead of calling it, or test this workflow with an Executor."
    )
