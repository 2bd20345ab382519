"""While another process has the journal locked, the event loop goes on, and so does all that asked
for the journal once the lock is gone.
"""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NoReturn

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from anyio.lowlevel import checkpoint

from handrail import (
    CallbackSink,
    Executor,
    JournalFailed,
    OpenGate,
    SqliteJournal,
    Steps,
    step,
    workflow,
)
from handrail.engine.inbox import Inbox
from handrail.journals.sqlite import open as sqlite_open
from handrail.model import events as ev
from handrail.testing import JumpClock

LOCK = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1], isolation_level=None)
other.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
other.execute("ROLLBACK")
"""


class Lock:
    """The lock on the journal's file, which another process takes and gives back."""

    def __init__(self, path: Path) -> None:
        self._command = [sys.executable, "-c", LOCK, str(path)]

    def take(self) -> None:
        """Have it taken."""
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "locked\n"

    def give_back(self) -> None:
        """Have it given back."""
        self._process.communicate("\n", timeout=60)


TURNS = 100
"""After so many turns of the loop, whoever is to write has begun."""
Call = Callable[[], Awaitable[Any]]


async def beside_the_loop(lock: Lock, call: Call) -> Any:
    """What a call returns that begins while the file is locked; the loop goes on meanwhile."""
    returned: list[Any] = []

    async def begin() -> None:
        returned.append(await call())

    async with anyio.create_task_group() as group:
        lock.take()
        try:
            group.start_soon(begin)
            for _ in range(TURNS):
                await checkpoint()
            await wait_all_tasks_blocked()
            assert not returned
        finally:
            lock.give_back()
    return returned[0]


@workflow
def asks() -> Steps[Any]:
    """Ask, and then wait for a signal."""
    answer = yield from step("q").ask("Merge?", timeout=3600, default="late")
    return answer, (yield from step("go").wait_for("go"))


@workflow
def brief() -> Steps[str]:
    """Do one step."""
    return (yield from step("s").call(str, "done"))


class Seen:
    """The kinds of the events of a run, to wait for. Mutable."""

    def __init__(self) -> None:
        self._events = defaultdict[str, anyio.Event](anyio.Event)

    def note(self, event: object) -> None:
        """Note an event: a sink's callback."""
        self._events[type(event).__name__].set()

    async def wait(self, kind: type[object]) -> None:
        """Wait for the first event of a kind."""
        await self._events[kind.__name__].wait()


@pytest.fixture
def lock(tmp_path: Path) -> Lock:
    """The lock on the file of the journal."""
    return Lock(tmp_path / "runs.db")


@pytest.fixture
def journal(tmp_path: Path) -> SqliteJournal:
    """The journal."""
    return SqliteJournal(tmp_path / "runs.db")


CALLS: dict[str, Callable[[Executor], Awaitable[Any]]] = {
    "run": lambda executor: executor.run(brief),
    "resume": lambda executor: executor.resume("run"),
    "answer": lambda executor: executor.answer("run", "q", "yes"),
    "signal": lambda executor: executor.signal("run", "go", 1),
    "cancel": lambda executor: executor.cancel("run"),
    "pause": lambda executor: executor.pause("run"),
    "complete": lambda executor: executor.complete("run", "q", "yes"),
    "fork": lambda executor: executor.fork("run"),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_waits_for_the_lock_beside_the_loop(
    lock: Lock, journal: SqliteJournal, name: str
) -> None:
    """Other tasks run while a call waits, and it does its work once the lock is gone."""
    executor = Executor(journal=journal, workflows=[asks])
    async with executor:
        await executor.options(run_id="run").run(asks)
        await beside_the_loop(lock, lambda: CALLS[name](executor))


@pytest.mark.parametrize("name", ["answer", "signal", "pause", "complete"])
async def test_a_live_run_is_reached_beside_the_loop(
    lock: Lock, journal: SqliteJournal, name: str
) -> None:
    """A message to a run that this process drives waits in the same way, and arrives."""
    seen = Seen()
    executor = Executor(journal=journal, sinks=[CallbackSink(seen.note)], linger_s=60)
    async with executor:
        executor.start(asks, run_id="run")
        await seen.wait(ev.GateOpened)
        await beside_the_loop(lock, lambda: CALLS[name](executor))
        kinds = {"answer": ev.GateAnswered, "signal": ev.SignalReceived}
        await seen.wait(kinds.get(name, ev.RunSteered))


async def test_a_message_is_kept_once_if_the_look_for_it_fails(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program may take the file between the write and the look."""
    seen, look = Seen(), Inbox.new

    def locked(_: Inbox) -> NoReturn:
        monkeypatch.setattr(Inbox, "new", look)
        busy = sqlite3.OperationalError("database is locked")
        busy.sqlite_errorcode = sqlite3.SQLITE_BUSY
        raise JournalFailed("runs.db", "reading", str(busy)) from busy

    executor = Executor(journal=journal, sinks=[CallbackSink(seen.note)], linger_s=60)
    async with executor:
        executor.start(asks, run_id="run")
        await seen.wait(ev.GateOpened)
        monkeypatch.setattr(Inbox, "new", locked)
        await executor.signal("run", "go", 1)
        await executor.answer("run", "q", "yes")
        await seen.wait(ev.WorkflowCompleted)
    sent = [one for one in journal.events("run") if isinstance(one, ev.SignalReceived)]
    assert [one.payload for one in sent] == [1]


async def test_the_failure_of_another_journal_is_the_handlers(journal: SqliteJournal) -> None:
    """The run ends with it, as with any error of a gate's handler."""

    async def handler(_: OpenGate) -> str:
        raise JournalFailed("other.db", "reading", "it is gone")

    result = await Executor(journal=journal, gates=handler).run(asks)
    assert (result.status, result.failed_step) == ("failed", "q")
    assert "other.db" in (result.error or "")


async def test_a_gate_times_out_beside_the_loop(lock: Lock, journal: SqliteJournal) -> None:
    """A gate whose time is up is closed in the journal once the lock is gone."""
    seen, clock = Seen(), JumpClock(jumps=False)
    executor = Executor(journal=journal, sinks=[CallbackSink(seen.note)], linger_s=1e6, clock=clock)

    async def time_out() -> None:
        clock.advance(3600)
        await seen.wait(ev.StepCompleted)

    async with executor:
        executor.start(asks, run_id="run")
        await seen.wait(ev.GateOpened)
        await beside_the_loop(lock, time_out)
        state = await executor.get("run")
    assert [one.output for one in state.steps if one.path == "q"] == ["late"]


async def test_the_answer_of_a_handler_waits_beside_the_loop(
    lock: Lock, journal: SqliteJournal
) -> None:
    """What a gate's handler answers is recorded once the lock is gone."""
    asked, seen = anyio.Event(), Seen()

    async def handler(gate: OpenGate) -> str:
        await asked.wait()
        return gate.question

    executor = Executor(journal=journal, sinks=[CallbackSink(seen.note)], gates=handler)

    async def answer() -> None:
        asked.set()
        await seen.wait(ev.GateAnswered)

    async with executor:
        executor.start(asks, run_id="run")
        await seen.wait(ev.GateOpened)
        await beside_the_loop(lock, answer)


async def test_a_lease_is_released_beside_the_loop(lock: Lock, journal: SqliteJournal) -> None:
    """A run that ends while the file is locked returns once its lease is released."""
    taken = anyio.Event()

    def see(event: object) -> None:
        if isinstance(event, ev.WorkflowCompleted):
            lock.take()
            taken.set()

    executor = Executor(journal=journal, sinks=[CallbackSink(see)])
    ended: list[Any] = []

    async def run() -> None:
        ended.append(await executor.run(brief))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await taken.wait()
        await wait_all_tasks_blocked()
        assert not ended
        lock.give_back()
    with contextlib.closing(sqlite3.connect(journal.path)) as connection:
        leases = connection.execute("SELECT pid FROM leases").fetchall()
    assert (ended[0].status, leases) == ("succeeded", [(None,)])


async def test_a_cancelled_call_takes_no_lease(lock: Lock, journal: SqliteJournal) -> None:
    """Who stops waiting for the lock leaves nothing behind that acts later."""
    executor = Executor(journal=journal)
    async with executor:
        await executor.run(brief)
        lock.take()
        async with anyio.create_task_group() as group:
            group.start_soon(executor.options(run_id="run").run, brief)
            await wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        lock.give_back()
        result = await executor.options(run_id="run").run(brief)
    assert (result.status, len(journal.runs())) == ("succeeded", 2)


async def test_a_lock_that_stays_fails_the_call(
    lock: Lock, journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond its patience the journal says what to do, and later calls succeed."""
    executor = Executor(journal=journal)
    async with executor:
        await executor.run(brief)
        monkeypatch.setattr(sqlite_open, "PATIENCE_S", 0.1)
        lock.take()
        with pytest.raises(JournalFailed, match="keeps it locked"):
            await executor.run(brief)
        lock.give_back()
        assert (await executor.run(brief)).status == "succeeded"
