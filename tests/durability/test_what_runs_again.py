"""The rows of the table in *What runs again when*, tried one by one.

A process dies at a write, or the run comes to another end; then it is resumed, and what was done in
it is what the table says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest

import handrail as h
from handrail.model.events import CancelRequested, stamp
from handrail.testing import ProcessGone, TextJournal

LOG: list[str] = []
FAILING: set[str] = set()
HANDLED = ("d", "handled")
"""These fail, and the run goes on."""
BEFORE = ("a", "d", "handled", "b", "long")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Each test begins with an empty log in which nothing fails."""
    LOG.clear()
    FAILING.clear()
    return iter([None])


def act(what: str) -> str:
    """Note that it was done, and fail if it is to."""
    LOG.append(what)
    if what in FAILING:
        raise OSError(what)
    return what


async def long(what: str) -> str:
    """The same, for a while."""
    LOG.append(what)
    await anyio.sleep(0.2)
    return what


def looks(ctx: h.WorkflowContext) -> None:
    """A check."""
    act("look")


def undo(what: str) -> Callable[[h.WorkflowContext], object]:
    """The rollback of a step."""
    return lambda ctx: act(f"undo {what}")


def first(flow: Any, *fails: str, at: str | None = None) -> tuple[TextJournal, str]:
    """The journal after a first drive in which these fail, and how it ended; with `at`, it died
    after the last write of this kind and path.
    """
    reset(*fails)
    journal = TextJournal()
    result = h.Executor(journal=journal).options(run_id="r").run_sync(flow)
    if at is None:
        return journal, result.status
    places = [f"{record.kind} {record.path}" for record in journal.records("r")]
    LOG.clear()
    return killed_at(flow, len(places) - places[::-1].index(at)), "killed"


def killed_at(flow: Any, writes: int) -> TextJournal:
    """The journal of a process that died after so many writes."""
    journal = TextJournal(stop_at=writes, abrupt=True)
    with pytest.raises(ProcessGone):
        h.Executor(journal=journal).options(run_id="r").run_sync(flow)
    return journal.reopened()


def then(journal: TextJournal, flow: Any, *fails: str, **named: Any) -> tuple[str, list[str]]:
    """How the resumed run ends, and what was done in it."""
    reset(*fails)
    return h.Executor(journal=journal).resume_sync("r", flow, **named).status, LOG.copy()


def reset(*fails: str) -> None:
    """Begin a drive in which these fail."""
    FAILING.clear()
    FAILING.update(fails)
    LOG.clear()


def stopped(flow: Any, path: str, how: str, *fails: str) -> TextJournal:
    """The journal of a run that is cancelled or interrupted when the step at this path begins."""
    reset(*fails)
    journal = TextJournal()

    async def drive() -> None:
        async with h.Executor(journal=journal).options(run_id="r").stream(flow) as run:
            async for event in run:
                if type(event).__name__ == "StepStarted" and getattr(event, "path", "") == path:
                    getattr(run, how)("stop")

    anyio.run(drive)
    return journal


def of_kind(journal: TextJournal, kind: str) -> list[Any]:
    """The events of a kind."""
    return [event for event in journal.events("r") if type(event).__name__ == kind]


@h.workflow
def plain() -> h.Steps[None]:
    """A failure that is handled, a long step, and a clean-up after the failure of the run."""
    yield from h.step("a").call(act, "a").with_rollback(undo("a"))
    yield from h.step("d").call(act, "d").default("none")
    try:
        yield from h.step("handled").call(act, "handled")
    except h.StepFailed:
        yield from h.step("b").call(act, "b")
    yield from h.step("long").call(long, "long").retry(2, backoff=0)
    try:
        yield from h.step("ends").call(act, "ends")
    except h.StepFailed:
        yield from h.step("tidy").call(act, "tidy")
        raise


def test_a_failed_run_does_its_last_steps_again() -> None:
    """What succeeded or defaulted is kept; the failure, its clean-up and what it undid run."""
    journal, status = first(plain, *HANDLED, "ends")
    assert (status, LOG) == ("failed", [*BEFORE, "ends", "tidy", "undo a"])
    again = then(journal, plain, *HANDLED, "ends")
    assert again == ("failed", ["a", "ends", "tidy", "undo a"])
    assert then(journal, plain, *HANDLED) == ("succeeded", ["a", "ends"])


@pytest.mark.parametrize(
    ("at", "status", "done"),
    [
        ("StepCompleted b", "succeeded", ["long", "ends"]),
        ("StepStarted long", "succeeded", ["long", "ends"]),
        ("StepStarted ends", "succeeded", ["ends"]),
        ("StepCompleted ends", "failed", ["tidy", "undo a"]),
        ("StepStarted tidy", "failed", ["tidy", "undo a"]),
        ("StepCompleted tidy", "failed", ["undo a"]),
        ("RollbackStarted a", "failed", ["undo a"]),
        ("RollbackCompleted a", "failed", []),
    ],
)
def test_a_killed_run_does_what_has_no_end(at: str, status: str, done: list[str]) -> None:
    """What is recorded is kept; once rollbacks have begun, only they are finished."""
    journal, _ = first(plain, *HANDLED, "ends", at=at)
    assert then(journal, plain, *HANDLED) == (status, done)


def test_an_interrupted_run_goes_on_where_it_was() -> None:
    """The step that was running runs again, and nothing is rolled back."""
    journal = stopped(plain, "long", "interrupt", *HANDLED)
    assert list(BEFORE) == LOG
    assert then(journal, plain, *HANDLED) == ("succeeded", ["long", "ends"])


def test_a_cancelled_run_does_what_it_undid_again() -> None:
    """The cancelled step runs again, and so does the one that was rolled back."""
    journal = stopped(plain, "long", "cancel", *HANDLED)
    assert [*BEFORE, "undo a"] == LOG
    again = then(journal, plain, *HANDLED, "ends")
    assert again == ("failed", ["a", "long", "ends", "tidy", "undo a"])
    assert then(journal, plain, *HANDLED) == ("succeeded", ["a", "ends"])


def test_a_request_to_cancel_outlives_the_process() -> None:
    """The resume unwinds, and does nothing else."""
    journal, _ = first(plain, *HANDLED, at="StepStarted long")
    number = len(journal.records("r")) + 1
    journal.append(stamp(CancelRequested("stop"), "r", number, 1.0))
    assert then(journal, plain, *HANDLED) == ("cancelled", ["undo a"])


@h.workflow
def tries() -> h.Steps[None]:
    """Three attempts."""
    yield from h.step("t").call(act, "t").retry(3, backoff=0)


def test_attempts_count_until_the_run_has_failed() -> None:
    """A killed run has those left that it had not used; a failed one begins at the first."""
    journal, _ = first(tries, "t", at="AttemptFailed t")
    assert then(journal, tries, "t") == ("failed", [])
    reset("t")
    assert then(killed_at(tries, 3), tries, "t") == ("failed", ["t", "t"])
    journal, _ = first(tries, "t")
    assert then(journal, tries, "t") == ("failed", ["t", "t", "t"])


@h.workflow
def waits() -> h.Steps[None]:
    """A question, a signal and a time at once."""
    yield from h.step("all").parallel(
        h.step("q").ask("?", choices=["y", "n"]),
        h.step("s").wait_for("s", str),
        h.step("nap").sleep(0.15),
        h.step("ends").call(act, "ends"),
        on_error="continue",
    )
    yield from h.step("last").call(act, "last")


def answered(journal: TextJournal) -> TextJournal:
    """The journal, with an answer and two signals sent to the run."""
    executor = h.Executor(journal=journal)
    executor.answer_sync("r", "all/q", "y")
    executor.signal_sync("r", "s", "one")
    executor.signal_sync("r", "s", "two")
    return journal


def gates(journal: TextJournal) -> set[float]:
    """Since when questions were open."""
    return {event.gate.since for event in of_kind(journal, "GateOpened")}


def test_what_waits_stays_open_over_a_suspension() -> None:
    """The gate is the one that was opened, and a second signal stays for a later wait."""
    journal, status = first(waits)
    assert status == "suspended"
    assert then(answered(journal), waits) == ("succeeded", ["last"])
    assert len(gates(journal)) == 1
    assert then(journal, waits, rerun=["last"]) == ("succeeded", ["last"])
    taken = [event for event in of_kind(journal, "StepCompleted") if event.path == "all/s"]
    assert [event.result.output for event in taken] == ["one"]


def test_what_waits_stays_open_over_a_kill() -> None:
    """A timer ends when it would have; the question keeps its age."""
    journal = killed_at(waits, 8)  # all four have begun
    due = {event.due for event in of_kind(journal, "TimerSet")}
    assert then(answered(journal), waits) == ("succeeded", ["ends", "last"])
    assert {event.due for event in of_kind(journal, "TimerSet")} == due
    assert len(gates(journal)) == 1


def test_a_question_of_a_cancelled_run_is_put_again() -> None:
    """Its gate opens a second time."""
    journal, _ = first(waits)
    h.Executor(journal=journal).cancel_sync("r", "stop", waits)
    assert then(journal, waits)[0] == "suspended"
    assert len(gates(journal)) == 2


def member(item: int) -> h.Steps[None]:
    """Two steps for an item."""
    yield from h.step("p").call(act, f"p{item}")
    yield from h.step("q").call(act, f"q{item}")


@h.workflow
def child() -> h.Steps[None]:
    """Two steps below a step."""
    yield from h.step("one").call(act, "one")
    yield from h.step("two").call(act, "two")


@h.workflow
def composed() -> h.Steps[None]:
    """A group, a sub-workflow and a validation."""
    yield from h.step("each").for_each([1, 2], member, max_concurrency=1)
    yield from h.step("child").run_workflow(child)
    fix = h.step("fix").call(act, "fix")
    yield from h.step("check").validate([h.Stage("look", looks)], retry=1, on_failure=fix)


AFTER = ["one", "two", "look"]


@pytest.mark.parametrize(
    ("fails", "at", "drives"),
    [
        (
            ("q2",),
            None,
            [
                (("two",), "failed", ["q2", "one", "two"]),
                (("look",), "failed", ["two", "look", "fix", "look"]),
                ((), "succeeded", ["look"]),
            ],
        ),
        (
            ("p1",),
            None,
            [
                (("q2",), "failed", ["p1", "q1", "p2", "q2"]),
                ((), "succeeded", ["q2", *AFTER]),
            ],
        ),
        ((), "StepCompleted each/1/p", [((), "succeeded", ["q2", *AFTER])]),
        (("two",), None, [((), "succeeded", ["two", "look"])]),
        ((), "StepCompleted child/one", [((), "succeeded", ["two", "look"])]),
        (("look",), "StepCompleted check/1/fix", [((), "succeeded", ["look"])]),
        (("look",), None, [((), "succeeded", ["look"])]),
    ],
)
def test_what_holds_steps_goes_by_its_steps(
    fails: tuple[str, ...],
    at: str | None,
    drives: list[tuple[tuple[str, ...], str, list[str]]],
) -> None:
    """Each step in a group, sub-workflow or validation has the row of its own end."""
    journal, _ = first(composed, *fails, at=at)
    for failing, status, done in drives:
        assert then(journal, composed, *failing) == (status, done)


def test_a_validation_that_ended_the_run_begins_at_round_1() -> None:
    """Its first round is round 1 again."""
    journal, _ = first(composed, "look")
    then(journal, composed)
    last = journal.events("r")[-3]
    assert (getattr(last, "path", ""), getattr(last, "number", 0)) == ("check", 1)


@h.workflow
def three() -> h.Steps[None]:
    """Three steps."""
    for name in "xyz":
        yield from h.step(name).call(act, name)


def test_a_limit_is_hit_again_unless_it_is_raised() -> None:
    """Steps of earlier drives count."""
    journal = TextJournal()
    bounded = h.Executor(journal=journal, limits=h.Limits(max_steps=2))
    assert bounded.options(run_id="r").run_sync(three).status == "failed"
    assert bounded.resume_sync("r", three).status == "failed"
    assert then(journal, three) == ("succeeded", ["z"])
