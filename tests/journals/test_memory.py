"""MemoryJournal: the laws of a journal, and what it says when they are broken."""

from __future__ import annotations

import copy

import pytest

from handrail.journals.memory import MemoryJournal, OutOfSequence
from handrail.model.events import SignalReceived, StepStarted, WorkflowStarted, stamp
from handrail.testing.contracts import JournalContract


class TestMemoryJournal(JournalContract):
    @pytest.fixture
    def make_journal(self) -> type[MemoryJournal]:
        """A new journal each time."""
        return MemoryJournal


def test_it_keeps_the_very_object() -> None:
    """Nothing is encoded, so values of any type can be replayed in this process."""
    journal = MemoryJournal()
    event = stamp(WorkflowStarted("ship", {"value": object()}), "r", 1, 1.0)
    journal.append(event)
    assert journal.events("r")[0] is event


def test_it_is_not_durable() -> None:
    """The engine need not check that outputs can be encoded."""
    assert MemoryJournal().durable is False


def test_a_wrong_number_is_named_with_the_one_expected() -> None:
    """The error has the run, the number that came, and the one that was next."""
    journal = MemoryJournal()
    journal.append(stamp(WorkflowStarted("ship"), "r", 1, 1.0))
    with pytest.raises(OutOfSequence, match="number 3 where 2 is next") as caught:
        journal.append(stamp(StepStarted("a", "python"), "r", 3, 2.0))
    again = copy.copy(caught.value)
    assert (again.run_id, again.seq, again.expected) == ("r", 3, 2)


def test_a_run_may_begin_with_any_event() -> None:
    """A signal for a run that never started is listed, with no name and no status."""
    journal = MemoryJournal()
    journal.append(stamp(SignalReceived("go"), "r", 1, 1.0))
    (info,) = journal.runs()
    assert (info.workflow_name, info.status) == ("", None)
