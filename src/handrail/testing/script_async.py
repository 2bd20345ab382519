"""Runs a coroutine that waits for nothing, without an event loop."""

from __future__ import annotations

import inspect
from contextvars import Context, copy_context
from typing import Any


class NeedsEventLoop(AssertionError):
    """An async function waits for something, and a script has no event loop to wait in."""

    def __init__(self, whose: str) -> None:
        super().__init__(whose)
        self.whose = whose

    def __str__(self) -> str:
        return (
            f"{self.whose} waits for something, and a Script has no event loop to wait in. Say "
            f"what it gives instead of calling it, or test this workflow with an Executor."
        )


def run_to_end(value: Any, whose: str, context: Context | None = None) -> Any:
    """The value itself, or what an awaitable comes to if it never has to wait.

    Raises:
        NeedsEventLoop: it waits for something.
    """
    if not inspect.isawaitable(value):
        return value
    iterator = value.__await__()
    inside = copy_context() if context is None else context
    try:
        inside.run(next, iterator)
    except StopIteration as stop:
        return stop.value
    except RuntimeError as error:
        if not _lacks_a_loop(error):
            raise
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()
    raise NeedsEventLoop(whose)


def _lacks_a_loop(error: RuntimeError) -> bool:
    """True for the ways in which asyncio, anyio and trio say that no event loop runs."""
    kind = type(error).__name__
    return kind in {"NoEventLoopError", "AsyncLibraryNotFoundError"} or str(error) in {
        "no running event loop",
        "must be called from async context",
    }
