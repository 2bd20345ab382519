"""TextJournal: the laws of a journal, and how its process fails and dies."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from handrail import Executor, JournalFailed, LeaseLost, RunLocked, Steps, step, workflow
from handrail.model.events import SignalReceived, StepStarted, WorkflowStarted, stamp
from handrail.ports.journal import Letter
from handrail.testing import ProcessGone, TextJournal
from handrail.testing.contracts import JournalContract
from handrail.testing.contracts.journal import MakeJournal
from handrail.testing.text_journal import GroupingTextJournal


class TestTextJournal(JournalContract):
    @pytest.fixture
    def make_journal(self) -> MakeJournal:
        """The same store, opened anew each time."""
        return TextJournal().reopened


class TestGroupingTextJournal(JournalContract):
    @pytest.fixture
    def make_journal(self) -> MakeJournal:
        """The same, which stores several events in one write."""
        return GroupingTextJournal().reopened


@dataclass
class Plan:
    """What a step of these tests gives."""

    title: str


def plan() -> Plan:
    """An object of our own class."""
    return Plan("x")


@workflow
def ship() -> Steps[str]:
    """Two steps."""
    made = yield from step("plan").call(plan)
    return (yield from step("say").call(lambda: made.title))


def started(run_id: str = "r", seq: int = 1) -> WorkflowStarted:
    """The first event of a run."""
    return stamp(WorkflowStarted("w"), run_id, seq, 1.0)


def test_what_it_keeps_is_text() -> None:
    """A value comes back with its type, as another object."""
    journal = TextJournal()
    done = Executor(journal=journal).options(run_id="r").run_sync(ship)
    (ended,) = [
        event.result
        for event in journal.events("r")
        if type(event).__name__ == "StepCompleted" and event.path == "plan"
    ]
    made = Executor(journal=journal).resume_sync("r", ship).step("plan").output
    assert made == Plan("x") == done.step("plan").output
    assert made is not done.step("plan").output
    assert journal.records("r")[0].kind == "WorkflowStarted"
    assert ended.status == "succeeded"


def test_the_nth_write_fails_and_the_next_one_does_not() -> None:
    """Nothing is kept of a write that fails, and the same number can be stored after it."""
    journal = TextJournal(fail_at=1)
    with pytest.raises(JournalFailed, match="No space left"):
        journal.append(started())
    assert journal.events("r") == []
    journal.append(started())
    assert journal.events("r") == [started()]


def test_after_its_last_write_the_process_is_gone() -> None:
    """Every call raises from then on, and what was kept can be read by another process."""
    journal = TextJournal(stop_at=1)
    journal.append(started())
    with pytest.raises(ProcessGone, match="before write 2"):
        journal.append(stamp(StepStarted("a", "python"), "r", 2, 2.0))
    for call in (journal.runs, lambda: journal.events("r"), lambda: journal.letters("r", 0)):
        with pytest.raises(ProcessGone):
            call()
    assert journal.reopened().events("r") == [started()]


def test_an_abrupt_end_comes_after_the_write() -> None:
    """The last write is kept, although it never returned."""
    journal = TextJournal(stop_at=1, abrupt=True)
    with pytest.raises(ProcessGone, match="after write 1"):
        journal.append(started())
    assert journal.reopened().events("r") == [started()]


def test_letters_are_writes_too() -> None:
    """A process can die before it has posted a letter."""
    journal = TextJournal(stop_at=0)
    with pytest.raises(ProcessGone):
        journal.post(Letter(stamp(SignalReceived("go"), "r", 0, 1.0)))
    assert journal.reopened().letters("r", 0) == []


def test_the_lease_of_a_living_process_is_respected_and_that_of_a_dead_one_is_not() -> None:
    """Another process gets it once the holder is dead, and the dead one can write nothing more."""
    journal = TextJournal()
    journal.append(started())
    lease = journal.acquire("r")
    other = journal.reopened()
    with pytest.raises(RunLocked):
        other.acquire("r")
    journal.kill()
    other.acquire("r").release()
    lease.release()
    journal.gone = False  # it was not dead, only slow
    with pytest.raises(LeaseLost):
        journal.append(stamp(StepStarted("a", "python"), "r", 2, 2.0))
