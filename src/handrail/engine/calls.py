"""Calls of the user's functions: async ones on the loop, sync ones in threads.

Each action runs in a copy of the context that the run was started in, so context variables reach
it, and those it sets reach no other step. Two hazards are handled here and nowhere else:
``StopIteration`` and ``GeneratorExit`` must not pass through a coroutine, and a thread cannot be
stopped: it can be asked to stop, and waited for.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextvars import Context
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread

from handrail.engine.current import Current
from handrail.system.threads import ThreadCall, call_in_thread, running_loop

ABANDON_AFTER_S = 1.0
"""How long to wait for the thread of a cancelled sync action before it is abandoned."""

_POLL_S = 0.005


class ActionRaised(Exception):  # a carrier between two lines of this package, never shown
    """Carries an exception that could not be raised through a coroutine."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class Abandoned(Exception):  # as above
    """A cancelled thread did not end in time."""


def is_async(action: Any) -> bool:
    """True if calling this returns a coroutine."""
    code = getattr(action, "__code__", None)
    if code is not None:
        return bool(code.co_flags & inspect.CO_COROUTINE)
    while isinstance(action, functools.partial):
        action = action.func
    return inspect.iscoroutinefunction(action) or inspect.iscoroutinefunction(
        getattr(action, "__call__", None)  # noqa: B004  # asks for the method, to inspect it
    )


async def call(
    action: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    inline: bool,
    current: Current,
) -> Any:
    """What the action returns; an awaitable that a sync action returns is awaited.

    Raises:
        ActionRaised: the action raised StopIteration or GeneratorExit.
        BaseException: whatever else it raised.
    """
    if is_async(action):
        return await action(*args, **kwargs)
    if inline:
        value = _guarded(action, args, kwargs)
    else:
        value = await in_thread(functools.partial(_guarded, action, args, kwargs), current)
    if inspect.isawaitable(value):
        return await value
    return value


def _guarded(action: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    try:
        return action(*args, **kwargs)
    except (StopIteration, GeneratorExit) as error:
        raise ActionRaised(error) from None


async def in_thread(function: Callable[[], Any], current: Current) -> Any:
    """Run a sync function in a thread; as many do so at once as ``anyio``'s limiter admits.

    On cancellation it sets ``current.cancelled``, and waits up to ``ABANDON_AFTER_S`` for the
    thread to end.

    Raises:
        Abandoned: the thread did not end in that time.
    """
    await anyio.lowlevel.checkpoint_if_cancelled()
    limiter = anyio.to_thread.current_default_thread_limiter()
    pending = running_loop().pending()
    try:
        limiter.acquire_on_behalf_of_nowait(pending)
    except anyio.WouldBlock:
        await limiter.acquire_on_behalf_of(pending)
    call: ThreadCall | None = None
    try:
        call = call_in_thread(function, pending)
        return await call.result()
    except anyio.get_cancelled_exc_class():
        if call is None or (call.ended and pending.error is not None):
            raise
        current.cancelled = True
        with anyio.CancelScope(shield=True):
            for _ in range(int(ABANDON_AFTER_S / _POLL_S)):
                if call.ended:
                    break
                await anyio.sleep(_POLL_S)
        if not call.ended:
            raise Abandoned from None
        raise
    finally:
        limiter.release_on_behalf_of(pending)


UNBEGUN: Any = object()


class InContext:
    """Awaits a coroutine, and runs each of its steps in the given context.

    ``first`` is what the coroutine yielded first, if the caller has started it; else ``UNBEGUN``.
    """

    __slots__ = ("_context", "_coroutine", "_first", "abandon")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], context: Context, first: Any) -> None:
        self._coroutine = coroutine
        self._context = context
        self._first = first
        self.abandon = False  # True: the next exception thrown in closes the coroutine

    def __await__(self) -> Generator[Any, Any, Any]:
        run, send, throw = self._context.run, self._coroutine.send, self._coroutine.throw
        waits_for = self._first
        if waits_for is UNBEGUN:
            try:
                waits_for = run(send, None)
            except StopIteration as stop:
                return stop.value
        while True:
            try:
                value = yield waits_for
            except GeneratorExit:
                run(self._coroutine.close)
                raise
            except BaseException as error:  # noqa: BLE001  # passed on, whatever it is
                if self.abandon:
                    with contextlib.suppress(BaseException):
                        run(self._coroutine.close)
                    raise Abandoned from None
                step: Callable[[Any], Any] = throw
                given: Any = error
            else:
                step, given = send, value
            try:
                waits_for = run(step, given)
            except StopIteration as stop:
                return stop.value


async def await_value(value: Any) -> Any:
    """The result of an awaitable.

    Raises:
        ActionRaised: it raised StopIteration. BaseException: whatever else it raised.
    """
    try:
        return await value
    except StopIteration as stop:
        raise ActionRaised(stop) from None
