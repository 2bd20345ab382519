"""A run that one thread drives is reached from another, by any executor on its journal."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import anyio
import pytest

from handrail import CallbackSink, Executor, MemoryJournal, SqliteJournal, Steps, step, workflow
from handrail.engine.journal_users import LONG_RUN
from handrail.model import events as ev
from handrail.testing import TextJournal
from tests.leftovers import journal_threads


@workflow
def waits() -> Steps[Any]:
    """A question, a signal, and something that has no end."""
    answer = yield from step("ask").ask("Go?", choices=["yes", "no"])
    count = yield from step("signal").wait_for("count", int)
    yield from step("told").call(print, answer, count)
    yield from step("endless").call(anyio.sleep, 3_600)


def in_memory(_: Path) -> Any:
    """A journal that no other process can write a letter to."""
    return MemoryJournal()


def on_disk(folder: Path) -> Any:
    """A journal that the driver looks at now and then."""
    return SqliteJournal(folder / "runs.db")


@pytest.mark.parametrize("journal_in", [in_memory, on_disk])
def test_a_request_of_another_thread_reaches_the_drive(
    tmp_path: Path, journal_in: Callable[[Path], Any]
) -> None:
    """Answers, signals and cancellations of a web server's threads are heard at once."""
    before = journal_threads()
    seen = SimpleQueue[Any]()
    journal = journal_in(tmp_path)
    driving = Executor(journal=journal, sinks=[CallbackSink(seen.put)], linger_s=60)
    asking = Executor(journal=journal, workflows=[waits])

    def until(kind: type[Any], path: str) -> None:
        while not (isinstance(event := seen.get(timeout=30), kind) and event.path == path):
            pass

    with ThreadPoolExecutor() as threads:
        driven = threads.submit(driving.options(run_id="r").run_sync, waits)
        until(ev.GateOpened, "ask")
        assert asking.answer_sync("r", "ask", "yes") == "yes"
        until(ev.StepStarted, "signal")
        asking.signal_sync("r", "count", 3)
        until(ev.StepStarted, "endless")
        assert asking.cancel_sync("r", "enough") is None
        result = driven.result(timeout=30)
    assert result.status == "cancelled"
    assert [one.status for one in result.step_results] == 3 * ["succeeded"] + ["cancelled"]
    assert journal_threads() <= before


# -- reading beside the loop -----------------------------------------------------------------------


class SlowToRead(TextJournal):
    """Its runs are long. While ``go_on`` is there, a read of one waits for it; the loop sets it."""

    go_on: threading.Event | None = None
    closed = 0

    def events(self, run_id: str, /, *, secrets: Mapping[str, str] | None = None) -> list[ev.Event]:
        """As ever, but late."""
        if self.go_on is not None:
            assert self.go_on.wait(5), "the event loop stood still"
        return super().events(run_id, secrets=secrets)

    def last_events(self, run_ids: Collection[str], /) -> dict[str, int]:
        """As of runs that take a while to read."""
        return dict.fromkeys(run_ids, LONG_RUN)

    def close(self) -> None:
        """Count how often."""
        self.closed += 1
        super().close()


@workflow
def asked() -> Steps[Any]:
    """A question."""
    return (yield from step("ask").ask("Go?", choices=["yes", "no"]))


async def follow(executor: Executor) -> None:
    """Read the events of a run that has ended."""
    assert [event.seq async for event in executor.follow("over")]


READS: dict[str, Callable[[Executor], Awaitable[Any]]] = {
    "answer": lambda executor: executor.answer("r", "ask", "yes"),
    "cancel": lambda executor: executor.cancel("over"),
    "diff": lambda executor: executor.diff("r", "over"),
    "follow": follow,
    "fork": lambda executor: executor.fork("r"),
    "get": lambda executor: executor.get("r"),
    "go_on": lambda executor: executor.options(run_id="over", existing="go_on").run(asked),
    "pause": lambda executor: executor.pause("r"),
    "plan": lambda executor: executor.plan("r"),
    "result": lambda executor: executor.result("over"),
    "resume": lambda executor: executor.resume("r"),
    "signal": lambda executor: executor.signal("r", "count", 1),
    "skip": lambda executor: executor.complete("r", "ask", "yes"),
}


async def slow_journal() -> tuple[SlowToRead, Executor]:
    """One that has a suspended run and one that has ended, and an executor on it."""
    journal = SlowToRead()
    executor = Executor(journal=journal, workflows=[asked])
    await executor.options(run_id="r").run(asked)
    await Executor(journal=journal, gates="approve").options(run_id="over").run(asked)
    journal.go_on = threading.Event()
    return journal, executor


@pytest.mark.parametrize("name", READS)
async def test_the_event_loop_goes_on_while_a_run_is_read(name: str) -> None:
    """A run may be long, and the application has more to do than to read it."""
    journal, executor = await slow_journal()
    assert journal.go_on is not None
    async with anyio.create_task_group() as group:
        group.start_soon(READS[name], executor)
        await anyio.sleep(0.02)
        journal.go_on.set()


async def test_who_is_cancelled_waits_for_no_read_and_the_read_keeps_the_journal_open() -> None:
    """The thread reads on, with the journal open, and closes it at its end."""
    journal, executor = await slow_journal()
    assert journal.go_on is not None
    closed = journal.closed
    with anyio.move_on_after(0.05) as scope:
        await executor.get("r")
    assert scope.cancelled_caught
    assert journal.closed == closed
    journal.go_on.set()
    with anyio.fail_after(5):
        while journal.closed == closed:  # noqa: ASYNC110  # by a thread
            await anyio.sleep(0.01)
