"""Runs async functions for callers without an event loop; refuses callers inside one."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

import anyio

from handrail.errors import HandrailError, InsideEventLoop

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


def sync_twin(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, P], T]:
    """The ``_sync`` form of an executor's async method, for callers without an event loop."""
    name = method.__name__

    @functools.wraps(method)
    def twin(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        call = functools.partial(method, self, *args, **kwargs)
        return run_outside(f"{name}_sync()", f"await executor.{name}(...)", call)

    twin.__name__ = f"{name}_sync"
    twin.__qualname__ = f"{method.__qualname__}_sync"
    twin.__doc__ = f"``{name}`` for callers without an event loop."
    return twin


def run_outside(name: str, instead: str, function: Callable[..., Awaitable[T]], *args: Any) -> T:
    """The result of an async function, run in an event loop of its own.

    Raises:
        InsideEventLoop: a loop runs in this thread; the text says to write ``instead``.
    """
    refuse_inside_loop(name, f"Write: {instead}.")
    kept: list[T] = []

    async def keep() -> None:  # asyncio's repr of a task has its result, which may be large
        kept.append(await function(*args))

    try:
        anyio.run(keep)
    except (KeyboardInterrupt, HandrailError) as error:  # only the caller's line is of interest
        raise error.with_traceback(None) from error.__cause__
    return kept[0]


def refuse_inside_loop(name: str, instead: str) -> None:
    """Raise ``InsideEventLoop`` if an event loop runs in this thread.

    Raises:
        InsideEventLoop: a loop runs; in a workflow's body the text names ``.subworkflow`` too.
    """
    if not _loop_runs_here():
        return
    if _in_a_body():
        child = 'yield from step("name").subworkflow(workflow, {...})'
        instead = f"{instead.rstrip('.')}, or in a workflow's body, as here: {child}."
    raise InsideEventLoop(name, instead)


def _loop_runs_here() -> bool:
    # Another thread may be importing asyncio or trio: without these names no loop runs yet.
    running = getattr(sys.modules.get("asyncio"), "_get_running_loop", None)
    if running is not None and running() is not None:
        return True
    in_trio_run = getattr(getattr(sys.modules.get("trio"), "lowlevel", None), "in_trio_run", None)
    return in_trio_run is not None and bool(in_trio_run())


def _in_a_body() -> bool:
    from handrail.model import outcome

    here = inspect.currentframe()
    while here is not None:
        if here.f_code is outcome.resume.__code__:
            return True
        here = here.f_back
    return False
