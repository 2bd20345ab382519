"""A handle on a run, and who drives what is due."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from handrail import (
    Agent,
    AgentError,
    CallbackSink,
    Executor,
    FakeBackend,
    InputsDiffer,
    InvalidInput,
    JournalFailed,
    MemoryJournal,
    RunIdTaken,
    RunNotFound,
    RunState,
    SqliteJournal,
    Steps,
    WorkflowNotFound,
    WrongUse,
    step,
    workflow,
)
from handrail.engine.sweeps import Sweeps
from handrail.model import events as ev
from handrail.model.results import WaitsFor
from handrail.ports.journal import Letter
from handrail.record.due import AGAIN_S, PERSON_S, Due
from handrail.record.run_record import FORKED
from handrail.record.state import info_of, run_state_of
from handrail.testing import JumpClock, ProcessGone, TextJournal
from tests.journals.sqlite_support import change_file

done: list[str] = []


async def price(item: str) -> int:
    """Take a little."""
    await anyio.sleep(0.02)
    done.append(item)
    return len(item)


@workflow
def order(item: str) -> Steps[str]:
    """Look up, ask, and wait to be told."""
    found = yield from step("price").call(price, item)
    answer = yield from step("approve").ask(f"Buy for {found}?", choices=["yes", "no"])
    told = yield from step("told").wait_for("go", str)
    return f"{item}: {answer} {told}"


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    """Forget what other tests did."""
    done.clear()


async def until(executor: Executor, run_id: str, kind: str) -> Any:
    """How the run stands once it is suspended, and waits for this."""
    with anyio.fail_after(10):
        while True:
            found = await executor.get(run_id)
            if found.status == "suspended" and any(one.kind == kind for one in found.waits_for):
                return found
            await anyio.sleep(0.01)


@pytest.mark.parametrize("journal", [TextJournal, MemoryJournal])
async def test_a_run_in_the_background_from_its_start_to_its_result(journal: Any) -> None:
    """Begun once, looked at, followed by several, answered, gone on with, waited for."""
    executor = Executor(workflows=[order], journal=journal())
    seen: dict[int, list[int]] = {0: [], 4: []}

    async def follow(after: int) -> None:
        async for event in executor.follow("o-1", after):
            assert event.to_dict()["type"] == type(event).__name__
            seen[after].append(event.seq)

    async with executor, executor.serve(), anyio.create_task_group() as readers:
        handle = executor.start(order, "tea", run_id="o-1", existing="go_on")
        again = await executor.start(order, "tea", run_id="o-1", existing="go_on")
        assert (handle.run_id, again.run_id) == ("o-1", "o-1")
        readers.start_soon(follow, 0)
        readers.start_soon(follow, 4)
        found = await until(executor, "o-1", "answer")
        assert found.step("price").output == 3
        assert found.step("approve").status == "waiting"
        await executor.answer("o-1", "approve", "yes")
        await until(executor, "o-1", "signal")
        await executor.signal("o-1", "go", "now")
        result = await handle.result()
        assert result.value == "tea: yes now" == (await executor.result("o-1")).value
    found = await executor.get("o-1")
    assert (found.status, found.value, found.waits_for) == ("succeeded", "tea: yes now", ())
    assert found.to_dict()["steps"][0]["output"] == 3
    assert done == ["tea"]
    assert seen[0] == list(range(1, len(seen[0]) + 1))
    assert seen[4] == seen[0][4:]


async def test_a_run_whose_end_is_recorded_has_ended() -> None:
    """Whoever has its result finds it over, also before its drive has given it back."""
    journal = MemoryJournal()
    found: list[RunState] = []

    def look(event: Any) -> None:
        if isinstance(event, ev.WorkflowCompleted):
            found.append(run_state_of(journal, info_of(journal, event.run_id), time.time()))

    await Executor(journal=journal, gates="approve", sinks=[CallbackSink(look)]).run(approved)
    assert [(one.status, one.value) for one in found] == [("succeeded", True)]


@workflow
def approved() -> Steps[bool]:
    """Ask whether to go on."""
    return (yield from step("go?").ask("Go?", type=bool))


@workflow
def asks() -> Steps[int]:
    """Ask, and return the answer."""
    return (yield from step("how many").ask("How many?", type=int))


@pytest.mark.parametrize("journal", [TextJournal, MemoryJournal])
async def test_a_run_that_was_begun_here_needs_no_list_of_workflows(journal: Any) -> None:
    """Its workflow is known by its name from then on, also to copies with other options."""
    executor = Executor(journal=journal())
    async with executor, executor.serve():
        handle = await executor.start(asks, run_id="r")
        copy = executor.options(labels={"a": "b"})
        await until(copy, "r", "answer")
        with pytest.raises(WorkflowNotFound):
            await copy.plan("r")
        assert (await copy.plan("r", asks)).status == "suspended"
        other = await executor.fork("r", outputs={"how many": 2})
        assert (await executor.resume(other, asks)).value == 2
        await executor.complete("r", "how many", 3)
        assert (await handle.result()).value == 3
        again = executor.start(asks, run_id="r", existing="go_on")
        assert (await again.result()).value == (await executor.result("r")).value == 3
    stranger = Executor(journal=executor.journal)
    with pytest.raises(WorkflowNotFound):
        await stranger.result("r")
    assert (await stranger.resume("r", asks)).value == 3
    assert (await stranger.result("r")).value == 3


async def test_of_workflows_of_one_name_the_last_one_given_is_known() -> None:
    """A plan alone gives none; and a handle keeps the workflow that it was begun with."""

    @workflow(name="asks")
    def later() -> Steps[str]:
        return str((yield from step("how many").ask("How many?", type=int)))

    executor = Executor(journal=TextJournal())
    assert (await executor.options(run_id="r").run(asks)).status == "suspended"
    await executor.answer("r", "how many", 3)
    assert (await executor.plan("r", later)).ends == "succeeded"
    assert (await executor.resume("r", asks)).value == 3
    async with Executor(journal=TextJournal(), gates=lambda _: 3) as executor:
        first, second = executor.start(asks), executor.start(later)
        assert ((await first.result()).value, (await second.result()).value) == (3, "3")


async def test_what_cannot_begin_says_so_at_once() -> None:
    """No block, wrong arguments, an id that is taken, a run that is not there."""
    executor = Executor(workflows=[order], journal=TextJournal())
    with pytest.raises(WrongUse, match="async with executor:"):
        executor.start(order, "tea")
    with pytest.raises(RunNotFound):
        await executor.get("nobody")
    with pytest.raises(WrongUse, match="max_runs"):
        async with executor.serve(max_runs=0):
            pass
    async with executor:
        with pytest.raises(InvalidInput):
            executor.start(order, 3)  # type: ignore[arg-type]
        await executor.start(order, "tea", run_id="o-1")
        with pytest.raises(RunIdTaken):
            executor.start(order, "tea", run_id="o-1")
        with pytest.raises(RunNotFound):
            await anext(executor.follow("nobody"))


async def test_a_sync_handler_that_begins_a_run_is_told_what_to_do() -> None:
    """A web framework calls it in a thread, where nothing can run in the background."""
    async with Executor(workflows=[order], journal=TextJournal()) as executor:
        with pytest.raises(WrongUse, match="an async function"):
            await anyio.to_thread.run_sync(executor.start, order, "tea")
        assert executor.journal.runs() == []


async def test_leaving_the_block_suspends_and_the_next_one_goes_on() -> None:
    """As a service that is restarted does, whether it ended in order or was killed."""
    journal = TextJournal()
    async with Executor(workflows=[order], journal=journal) as executor:
        await executor.start(order, "tea", run_id="o-1")
    assert (await executor.get("o-1")).status == "suspended"
    dies = journal.reopened(stop_at=3)
    with pytest.raises(ProcessGone):
        await Executor(workflows=[order], journal=dies).resume("o-1")
    executor = Executor(workflows=[order], journal=dies.reopened())
    assert (await executor.get("o-1")).status == "dead"
    await executor.pause("o-1")
    async with executor.serve():
        await anyio.sleep(0.3)
        assert (await executor.get("o-1")).status == "paused"
        await executor.unpause("o-1")
        await until(executor, "o-1", "answer")
    assert done == ["tea"]


@pytest.mark.parametrize("size", [1, 3])
async def test_a_run_that_was_interrupted_at_many_steps_is_due(size: int) -> None:
    """Its suspension says by what, however many steps were at work, so the next one resumes it."""
    ready = anyio.Event()

    async def slow(_: int) -> None:
        if not ready.is_set():
            await anyio.sleep(30)

    @workflow
    def many() -> Steps[None]:
        yield from step("all").for_each(range(size), lambda n: step("one").call(slow, n))

    journal = TextJournal()
    async with Executor(workflows=[many], journal=journal) as executor:
        with anyio.move_on_after(0.1):
            await executor.options(run_id="r").run(many)
        (suspended,) = [one for one in journal.events("r") if isinstance(one, ev.RunSuspended)]
        assert suspended.reason == "the task that ran it was cancelled"
        ready.set()
        with anyio.fail_after(5):
            async with executor.serve():
                ended = [event async for event in executor.follow("r")][-1]
        assert isinstance(ended, ev.WorkflowCompleted)


async def test_a_step_is_at_work_for_as_long_as_somebody_drives_its_run() -> None:
    """Whoever looks from a process that is none of the run's is told if it was interrupted."""
    journal, found = TextJournal(stop_at=2), []

    async def look() -> None:
        found.append((await Executor(journal=journal).get("r")).step("look").status)

    @workflow
    def looks() -> Steps[None]:
        yield from step("look").call(look)

    with pytest.raises(ProcessGone):
        await Executor(journal=journal).options(run_id="r").run(looks)
    later = await Executor(journal=journal.reopened()).get("r")
    assert (found, later.step("look").status) == (["running"], "interrupted")


async def test_a_run_that_cannot_be_driven_is_not_tried_again_and_again() -> None:
    """Its code is another one now: who serves says so once, and drives the others."""

    @workflow(name="order")
    def other(item: str) -> Steps[None]:
        yield from step("price").call(len, [item])

    journal = TextJournal()
    async with Executor(workflows=[order], journal=journal) as executor:
        await executor.start(order, "tea", run_id="o-1")
        await until(executor, "o-1", "answer")
    executor = Executor(workflows=[other], journal=journal)
    await executor.signal("o-1", "go", "x")
    before = len(journal.events("o-1"))
    async with executor.serve():
        await anyio.sleep(0.5)
    assert len(journal.events("o-1")) <= before + 2


@pytest.mark.parametrize("existing", ["refuse", "go_on"])
async def test_a_request_for_another_run_of_the_id_is_refused_while_the_run_is_driven(
    existing: Any,
) -> None:
    """Of two orders of one id at the same moment one is told, and so is whoever comes later."""
    refused = RunIdTaken if existing == "refuse" else InputsDiffer
    async with Executor(journal=TextJournal()) as executor:
        handles = {
            item: executor.start(order, item, run_id="o-1", existing=existing)
            for item in ("tea", "coffee")
        }
        begun = []
        for item, handle in handles.items():
            with contextlib.suppress(refused):
                begun.append((item, (await handle.state()).status))
        ((item, status),) = begun
        assert status in {"running", "suspended"}
        if existing == "go_on":
            await executor.start(order, item, run_id="o-1", existing=existing)
            with pytest.raises(refused):
                await executor.start(order, "milk", run_id="o-1", existing=existing)
        await until(executor, "o-1", "answer")
    assert done == [item]


async def test_an_error_that_serving_got_over_is_no_longer_raised() -> None:
    """The disk was full for a moment: the result is waited for once the run is driven again."""
    journal = TextJournal(fail_at=3)
    async with Executor(journal=journal) as executor:
        handle = executor.start(order, "tea", run_id="o-1")
        with pytest.raises(JournalFailed):
            await handle.result()
        async with executor.serve():
            await until(executor, "o-1", "answer")
            await executor.answer("o-1", "approve", "yes")
            await executor.signal("o-1", "go", "now")
            with anyio.fail_after(10):
                assert (await handle.result()).value == "tea: yes now"


async def test_what_another_process_made_of_a_run_counts_not_what_its_drive_here_raised() -> None:
    """The disk was full here, and another process has gone on with the run, to its end."""
    journal = TextJournal(fail_at=3)
    other = Executor(journal=journal.reopened(), workflows=[order])
    async with Executor(journal=journal) as executor:
        handle = executor.start(order, "tea", run_id="o-1")
        with pytest.raises(JournalFailed):
            await handle.result()
        async with other, other.serve():
            await until(other, "o-1", "answer")
            with anyio.fail_after(10):
                async with contextlib.aclosing(handle.follow()) as events:
                    kinds = [type(await anext(events)) for _ in range(4)]
                assert ev.RunResumed in kinds
            await executor.answer("o-1", "approve", "yes")
            await executor.signal("o-1", "go", "now")
            with anyio.fail_after(10):
                assert (await handle.result()).value == "tea: yes now"


async def test_a_run_whose_lease_is_lost_is_followed_to_its_end(tmp_path: Path) -> None:
    """This process was taken for dead; who follows the run here learns what came of it."""
    path = tmp_path / "runs.db"
    other = Executor(journal=SqliteJournal(path), workflows=[order], linger_s=100)
    async with Executor(journal=SqliteJournal(path), linger_s=100) as executor, other:
        handle = await executor.start(order, "tea", run_id="o-1")
        await seen(executor, "o-1", ev.GateOpened)
        change_file(path, "UPDATE leases SET pid = NULL")
        async with anyio.create_task_group() as group:
            group.start_soon(other.resume, "o-1")
            await seen(other, "o-1", ev.RunResumed)
            await other.answer("o-1", "approve", "yes")
            await anyio.sleep(0.5)  # both drives read it, and this process may not record it
            group.start_soon(other.signal, "o-1", "go", "now")
            with anyio.fail_after(10):
                assert (await handle.result()).value == "tea: yes now"


async def seen(executor: Executor, run_id: str, kind: type[ev.Event]) -> None:
    """Wait for an event of this kind."""
    with anyio.fail_after(10):
        async with contextlib.aclosing(executor.follow(run_id)) as events:
            async for event in events:
                if isinstance(event, kind):
                    return


@workflow
def naps() -> Steps[None]:
    """Sleep for a day."""
    yield from step("nap").sleep(86_400)


async def test_a_run_that_sleeps_for_long_takes_no_room_from_one_that_was_answered() -> None:
    """Both are due after a restart, and there is room for one: the answer is not kept for a day."""
    journal = TextJournal()
    async with Executor(journal=journal, workflows=[asks]) as executor, executor.serve():
        await executor.start(asks, run_id="asks")
        await until(executor, "asks", "answer")
    async with Executor(journal=journal) as executor:
        await executor.start(naps, run_id="naps")
        await seen(executor, "naps", ev.TimerSet)
    executor = Executor(journal=journal, workflows=[naps, asks])
    async with executor, executor.serve(max_runs=1):
        await seen(executor, "naps", ev.RunResumed)
        await executor.answer("asks", "how many", "1")
        with anyio.fail_after(10):
            assert (await executor.result("asks")).status == "succeeded"


def suspended(*waits: WaitsFor, reason: str = "waiting") -> list[ev.Event]:
    """A run whose drive was suspended, for these waits."""
    return [ev.WorkflowStarted("w", {}), ev.RunSuspended((), (), reason, (), waits)]


WANTS = WaitsFor("answer", "q", "q?", "a person")
DUE: dict[str, tuple[list[ev.Event], list[Any], float, bool]] = {
    "no end": ([ev.WorkflowStarted("w", {})], [], 1, True),
    "over": ([ev.WorkflowStarted("w", {}), ev.WorkflowCompleted("failed")], [], 1, False),
    "waits": (suspended(WANTS), [], 1, False),
    "answered": (suspended(WANTS), [ev.GateAnswered("q", "yes")], 1, True),
    "timed out": (suspended(WANTS), [ev.GateAnswered("q", "yes", "timeout")], 1, False),
    "a signal": (suspended(WANTS), [ev.SignalReceived("go")], 1, True),
    "completed": (suspended(WANTS), [ev.RunSteered("complete", "q", "yes")], 1, True),
    "paused": (suspended(), [ev.SignalReceived("go"), ev.RunSteered("pause")], 1, False),
    "told something": (suspended(WANTS), [ev.RunSteered("guide", value="hm")], 1, False),
    "unpaused": (suspended(), [ev.RunSteered("pause"), ev.RunSteered("unpause")], 1, True),
    "to cancel": (suspended(WANTS), [ev.CancelRequested()], 1, True),
    "asleep": (suspended(WaitsFor("time", "nap", "sleep", "", 50.0)), [], 49, False),
    "awake": (suspended(WaitsFor("time", "nap", "sleep", "", 50.0)), [], 50, True),
    "interrupted": (suspended(WANTS, reason="SIGTERM"), [], 1, True),
    "a fork": (suspended(reason=FORKED), [], 1, False),
    "a fork told": (suspended(reason=FORKED), [ev.GateAnswered("q", "yes")], 1, True),
    "to sign in": (suspended(WaitsFor("person", "a", "sign in", "a person")), [], 1, False),
    "signed in?": (suspended(WaitsFor("person", "a", "sign in", "a person")), [], PERSON_S, True),
}


def journal_of(history: Iterable[ev.Event], letters: Iterable[Any]) -> TextJournal:
    """A journal with one run."""
    journal = TextJournal()
    for number, event in enumerate(history, 1):
        journal.append(ev.stamp(event, "r", number, 0.0))
    for event in letters:
        journal.post(Letter(ev.stamp(event, "r", 0, 0.5)))
    return journal.reopened()


@pytest.mark.parametrize("case", DUE)
async def test_which_runs_are_due(case: str) -> None:
    """A table; and what a drive was begun for is no reason for another one that writes nothing."""
    history, letters, now, is_due = DUE[case]
    journal = journal_of(history, letters)
    due = Due(journal)
    found = due.select_due(journal.runs(), now)
    assert bool(found) == is_due
    for info in found:
        due.note_begun(info, now)
        assert due.select_due(journal.runs(), now + AGAIN_S - 1) == []


async def test_a_drive_in_vain_is_tried_less_and_less_often() -> None:
    """One that writes nothing: up to an hour later, but at once if somebody sends something."""
    journal = journal_of(suspended(WANTS), [ev.GateAnswered("q", "yes")])
    due, now = Due(journal), 1.0
    for wait_s in (60, 120, 240, 480, 960, 1920, *[3600] * 1_100):  # for more than a month
        (info,) = due.select_due(journal.runs(), now)
        due.note_begun(info, now)
        assert due.select_due(journal.runs(), now + wait_s - 1) == []
        now += wait_s
    due.note_begun(journal.runs()[0], now)
    assert not due.select_due(journal.runs(), now + 1)
    journal.post(Letter(ev.stamp(ev.SignalReceived("go"), "r", 0, now)))
    assert due.select_due(journal.runs(), now + 1)


@pytest.mark.parametrize("reason", [None, "exit 3"])
async def test_a_run_that_ends_its_process_each_time_is_tried_less_and_less_often(
    reason: str | None,
) -> None:
    """At once, then after seconds, then minutes: whether the process was killed, or an action
    raises SystemExit, which suspends the run.
    """
    journal = journal_of([ev.WorkflowStarted("w", {})], [])
    due, now, number = Due(journal), 1.0, 1
    for wait_s in (1, 2, 4, 8, 16, 32, 64, 128):
        (info,) = due.select_due(journal.runs(), now)
        due.note_begun(info, now)
        for event in (ev.RunResumed(), *([ev.RunSuspended((), (), reason)] if reason else [])):
            number += 1
            journal.append(ev.stamp(event, "r", number, now))
        assert due.select_due(journal.runs(), now + wait_s - 0.5) == []
        now += wait_s


async def test_a_run_goes_on_once_somebody_signed_in() -> None:
    """It is looked at every ten minutes; nobody has to tell it."""
    clock = JumpClock(jumps=False)
    expired = AgentError("coder", "not logged in", kind="auth")
    coder = Agent("coder", "Work.", backend=FakeBackend([expired, expired, "done"], name="claude"))

    @workflow
    def works() -> Steps[str]:
        return (yield from step("work").agent(coder)).output

    executor = Executor(workflows=[works], clock=clock, journal=TextJournal())
    assert (await executor.options(run_id="r").run(works)).status == "suspended"
    async with executor, executor.serve():
        for _ in range(2):
            await until(executor, "r", "person")
            events = executor.journal.events("r")
            await anyio.sleep(0.3)
            assert executor.journal.events("r") == events
            clock.advance(PERSON_S + 1)
            following = executor.follow("r", len(events))
            with anyio.fail_after(10):
                async with contextlib.aclosing(following) as more:
                    await anext(more)
        with anyio.fail_after(5):
            assert (await executor.result("r")).value == "done"


def costly_runs(journal: Any, spent_s: float) -> None:
    """Have the journal's list of runs take this much of a core's time."""
    runs = journal.runs

    def after_much_work() -> Any:
        began = time.thread_time()
        while time.thread_time() < began + spent_s:
            pass
        return runs()

    journal.runs = after_much_work


async def test_a_message_does_not_wait_for_what_many_runs_cost(tmp_path: Path) -> None:
    """A sweep of many runs takes long, and the next one by itself comes late: one for a message, or
    for a timer, does not, whichever process sent the message.
    """
    journal, seen = SqliteJournal(tmp_path / "runs.db"), list[float]()
    costly_runs(journal, 0.05)

    @workflow
    def naps() -> Steps[None]:
        yield from step("nap").sleep(1.5)

    executor = Executor(workflows=[asks, naps], journal=journal, suspend_timers_after_s=0.1)
    other = Executor(journal=SqliteJournal(tmp_path / "runs.db"))
    await executor.options(run_id="asks").run(asks)
    async with executor, executor.serve():
        await anyio.sleep(0.5)
        for send in (other.answer("asks", "how many", 3), executor.options(run_id="n").run(naps)):
            await send
            began = time.monotonic()
            with anyio.fail_after(10):
                run_id = "n" if seen else "asks"
                assert (await executor.result(run_id)).status == "succeeded"
            seen.append(time.monotonic() - began)


def test_a_sweep_that_failed_has_seen_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one comes at once; one that was made comes again when the journal was written, a
    timer is due, or its cost was saved.
    """
    journal, now, spent = MemoryJournal(), [100.0], [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], thread_time=lambda: spent[0])
    monkeypatch.setattr("handrail.engine.sweeps.time", clock)
    sweeps = Sweeps(journal)
    assert sweeps.is_due(by_timer=False)
    with contextlib.suppress(OSError), sweeps.measured():
        spent[0] += 0.1
        raise OSError
    now[0] += 1.01
    assert sweeps.is_due(by_timer=False)
    with sweeps.measured():
        spent[0] += 0.1
    now[0] += 0.5
    assert not sweeps.is_due(by_timer=True)  # its cost: at most one a second
    now[0] += 0.51
    assert not sweeps.is_due(by_timer=False)
    assert sweeps.is_due(by_timer=True)
    journal.append(ev.stamp(ev.WorkflowStarted("w"), "r", 1, 0.0))
    assert sweeps.is_due(by_timer=False)
    with sweeps.measured():
        spent[0] += 0.1
    now[0] += 29
    assert not sweeps.is_due(by_timer=False)
    now[0] += 2
    assert sweeps.is_due(by_timer=False)


async def test_a_fork_waits_until_somebody_resumes_it() -> None:
    """Who drives what is due leaves it alone; once it was resumed, it is a run as any other."""
    journal = TextJournal()
    executor = Executor(journal=journal, workflows=[order])
    await executor.options(run_id="o-1").run(order, "tea")
    await executor.fork("o-1", at="price", fork_id="f")
    now = executor._parts.clock.now()
    assert Due(journal).select_due(journal.runs(), now + 1) == []
    journal.append(ev.stamp(ev.RunResumed(), "f", len(journal.events("f")) + 1, now))
    assert [one.run_id for one in Due(journal).select_due(journal.runs(), now + 1)] == ["f"]


async def test_a_run_that_a_person_stopped_waits_for_a_person() -> None:
    """Who drives what is due does not undo it."""
    history: list[ev.Event] = [
        ev.WorkflowStarted("w", {}),
        ev.RunSteered("stop", by="ann"),
        ev.RunSuspended((), (), "stopped by ann"),
    ]
    journal = journal_of(history, [])
    assert Due(journal).select_due(journal.runs(), 1) == []
