"""Leaving a stream on purpose, and being cancelled in it: two things."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import pydoc
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail import (
    Current,
    Executor,
    Run,
    SqliteJournal,
    Steps,
    WorkflowContext,
    WrongUse,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.testing import TextJournal
from tests.engine.support import RUN, same

UNDONE: list[str] = []
BEGUN: list[str] = []


def undo(ctx: WorkflowContext) -> None:
    """Note it."""
    UNDONE.append(ctx.path)


async def forever() -> None:
    """Note it, and wait until cancelled."""
    BEGUN.append("second")
    await anyio.sleep_forever()


@workflow
def flow(*, ends: bool = False) -> Steps[Any]:
    """One step that can be undone, and one that never ends."""
    yield from step("first").call(same).with_rollback(undo)
    yield from step("second").call(same if ends else forever)


async def scope_cancelled(run: Run[Any], begun: Callable[[], None]) -> None:
    """A cancel scope around the block, as of ``move_on_after`` or a server that shuts down."""
    with anyio.CancelScope() as scope:
        async with run:
            async for event in run:
                if isinstance(event, ev.StepStarted) and event.path == "second":
                    begun()
                    scope.cancel()
    assert scope.cancelled_caught


async def task_cancelled(run: Run[Any], begun: Callable[[], None]) -> None:
    """The host's task, as by Ctrl-C under ``asyncio.run``."""

    async def host() -> None:
        async with run:
            async for event in run:
                if isinstance(event, ev.StepStarted) and event.path == "second":
                    begun()
                    task.cancel()

    task = asyncio.get_running_loop().create_task(host())
    with pytest.raises(asyncio.CancelledError):
        await task


async def block_left(run: Run[Any], begun: Callable[[], None]) -> None:
    """The block is left while the run goes on."""
    async with run:
        async for event in run:
            if isinstance(event, ev.StepStarted) and event.path == "second":
                begun()
                break


async def raised(run: Run[Any], begun: Callable[[], None]) -> None:
    """The host's own code raises."""
    with contextlib.suppress(ZeroDivisionError):
        async with run:
            begun()
            while not BEGUN:  # noqa: ASYNC110  # the flow is of both loops, an event of one
                await anyio.sleep(0.001)
            raise ZeroDivisionError


@pytest.mark.parametrize(
    ("stop", "status"),
    [
        (scope_cancelled, "suspended"),
        (task_cancelled, "suspended"),
        (block_left, "cancelled"),
        (raised, "cancelled"),
    ],
)
async def test_who_is_cancelled_in_a_stream_can_resume_its_run(
    stop: Any, status: str, anyio_backend_name: str
) -> None:
    """Cancelled in the block the drive is interrupted; who leaves it cancels the run."""
    if stop is task_cancelled and anyio_backend_name == "trio":
        return  # there one cancels scopes
    UNDONE.clear()
    BEGUN.clear()
    journal, begun = TextJournal(), list[bool]()
    with anyio.fail_after(5):
        run = Executor(journal=journal).options(run_id=RUN).stream(flow)
        await stop(run, lambda: begun.append(True))
    assert (begun, run.result.status) == ([True], status)
    assert (["first"] if status == "cancelled" else []) == UNDONE
    if status == "suspended":
        resumed = await Executor(journal=journal).resume(RUN, workflow(name="flow")(ending))
        assert (resumed.status, UNDONE) == ("succeeded", [])


def ending() -> Steps[Any]:
    """The same workflow, whose second step ends."""
    yield from flow.definition.function(ends=True)


async def test_a_loop_that_is_cancelled_does_not_end_as_if_the_run_had() -> None:
    """Events that are taken without a pause: the end of the loop means the end of the run."""
    journal, after = TextJournal(), list[str]()
    with anyio.CancelScope() as scope:
        async with Executor(journal=journal).options(run_id=RUN).stream(flow) as run:
            async for event in run:
                if isinstance(event, ev.StepStarted) and event.path == "second":
                    scope.cancel()
                    with anyio.CancelScope(shield=True):
                        await anyio.sleep(0.2)  # the drive ends meanwhile
            after.append(run.result.status)
    assert after == []
    assert run.result.status == "suspended"


@pytest.mark.parametrize("seconds", [0.4, 1.6], ids=["in time", "left behind"])
async def test_a_cancelled_task_suspends_its_run_while_a_thread_works(seconds: float) -> None:
    """Whether the sync action ends within the grace of a second, or is left behind."""
    journal = TextJournal()

    @workflow
    def slow() -> Steps[Any]:
        yield from step("sync").call(time.sleep, seconds)  # noqa: TID251  # a thread that works

    with anyio.move_on_after(0.1) as scope:
        await Executor(journal=journal).options(run_id=RUN).run(slow)
    assert scope.cancelled_caught
    kinds = [type(event) for event in journal.events(RUN)]
    assert kinds[-2:] == [ev.StepInterrupted, ev.RunSuspended]


def test_ctrl_c_under_asyncio_run_suspends_a_streamed_run(tmp_path: Path) -> None:
    """A process that is stopped by SIGINT leaves a run that can be resumed, and nothing undone."""
    program = f"""
        import asyncio, sys
        sys.path.insert(0, {str(Path.cwd())!r})
        from handrail import Executor, SqliteJournal
        from tests.engine.test_stream_stopped import flow

        async def main():
            executor = Executor(journal=SqliteJournal("runs.db"))
            async with executor.options(run_id="r").stream(flow) as run:
                async for event in run:
                    if getattr(event, "path", "") == "second":
                        print("begun", flush=True)

        asyncio.run(main())
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "begun\n"
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=20)
    assert "KeyboardInterrupt" in errors
    journal = SqliteJournal(tmp_path / "runs.db")
    (info,) = journal.runs()
    assert info.status == "suspended"
    assert not [one for one in journal.events("r") if isinstance(one, ev.RollbackStarted)]
    journal.close()


async def test_a_stream_that_was_not_entered_is_refused() -> None:
    """Nobody would drive the run, and the first event would be waited for forever."""
    with anyio.fail_after(5), pytest.raises(WrongUse, match=r"async with executor\.stream"):
        async for _ in Executor().stream(flow):
            pass


async def test_two_tasks_that_iterate_over_one_run_are_refused() -> None:
    """Each would get a part of the events, and one would wait for ever."""
    ended: list[str] = []

    async def reader(run: Run[Any]) -> None:
        try:
            async for _ in run:
                pass
        except WrongUse as error:
            ended.append(str(error))

    with anyio.fail_after(5):
        async with Executor().stream(flow) as run, anyio.create_task_group() as group:
            group.start_soon(reader, run)
            group.start_soon(reader, run)
            await anyio.sleep(0.1)
            run.cancel()
    (said,) = ended
    assert said.startswith(f"two tasks iterate over run {run.run_id}")


def test_what_an_action_learns_can_be_looked_up() -> None:
    """`help` and `inspect` read the class of `current()`."""
    assert "path" in inspect.signature(Current).parameters
    assert "idempotency_key" in pydoc.render_doc(Current, renderer=pydoc.plaintext)
