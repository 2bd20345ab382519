"""The threads that call a workflow's plain functions."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from handrail import Executor, Steps, step, workflow
from handrail.system.threads import call_in_thread, pending_here

WHO = ContextVar("WHO", default="nobody")


def name_of_thread() -> str:
    """The thread that calls this."""
    return threading.current_thread().name


async def in_a_thread(function: Any) -> Any:
    """What the function returns or raises, called by a thread."""
    pending = pending_here()
    assert pending is not None
    return await call_in_thread(function, pending).result()


async def test_one_thread_makes_calls_that_follow_one_another() -> None:
    """It is named, so that a debugger shows whose it is."""
    names = {await in_a_thread(name_of_thread) for _ in range(20)}
    assert len(names) == 1
    assert names.pop().startswith("handrail action ")


async def test_calls_at_one_time_have_a_thread_each() -> None:
    """None waits until another has ended."""
    together = threading.Barrier(3, timeout=30)
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(in_a_thread, together.wait)


async def test_a_call_has_a_copy_of_the_context() -> None:
    """It reads what the caller set, and what it sets itself reaches nobody."""
    WHO.set("the caller")

    def call() -> str:
        was = WHO.get()
        WHO.set("the thread")
        return was

    assert (await in_a_thread(call), await in_a_thread(WHO.get)) == ("the caller", "the caller")


async def test_a_call_may_run_a_loop_of_its_own() -> None:
    """In its thread there is none yet."""

    async def inner() -> int:
        await anyio.lowlevel.checkpoint()
        return 7

    assert await in_a_thread(lambda: anyio.run(inner)) == 7


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), SystemExit(3)])
async def test_an_error_is_raised_where_the_call_is_awaited(error: BaseException) -> None:
    """The thread outlives it."""

    def call() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        await in_a_thread(call)
    assert raised.value is error
    assert await in_a_thread(lambda: "still here") == "still here"


@workflow
def many() -> Steps[None]:
    """More plain functions, one after the other, than may run at once."""
    for number in range(60):
        yield from step(f"s{number}").call(name_of_thread)


async def test_a_call_gives_its_place_back() -> None:
    """As many run at once as anyio's limiter admits; an ended one is none of them."""
    limiter = anyio.to_thread.current_default_thread_limiter()
    assert limiter.total_tokens < 60
    with anyio.fail_after(60):
        assert (await Executor().run(many)).success
    assert limiter.borrowed_tokens == 0


@workflow
def two_threads() -> Steps[tuple[str, str]]:
    """Two plain functions, one after the other."""
    first = yield from step("first").call(name_of_thread)
    second = yield from step("second").call(name_of_thread)
    return first, second


def test_a_forked_process_has_threads_of_its_own() -> None:
    """It does not wait for those of the process that it was forked from."""
    assert Executor().run_sync(two_threads).success
    child = os.fork()
    if not child:
        os._exit(0 if Executor().run_sync(two_threads).success else 1)
    assert os.waitpid(child, 0)[1] == 0


ENDS = """
import threading
from tests.system.test_threads import Executor, two_threads
assert Executor().run_sync(two_threads).success
[thread] = [one for one in threading.enumerate() if one.name.startswith("handrail action")]
import atexit, handrail.system.threads as threads
atexit.unregister(threads._end)
atexit.register(lambda: (threads._end(), print("alive" if thread.is_alive() else "ended")))
"""


def test_no_thread_is_left_when_the_process_ends() -> None:
    """It is told to end, however long it would have waited for another call."""
    ended = subprocess.run(
        [sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout == "ended\n"
