"""What every journal must hold to; subclass the suite in your tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from handrail.model.events import (
    Event,
    RunResumed,
    RunSuspended,
    SignalReceived,
    StepStarted,
    WorkflowCompleted,
    WorkflowStarted,
    stamp,
)
from handrail.ports.journal import Journal
from handrail.testing.contracts.sample_events import RUN, sample_events

MakeJournal: TypeAlias = Callable[[], Journal]


async def store(journal: Journal, *events: Event, sync: bool = False) -> None:
    """Append the events, and wait until they are stored."""
    for event in events:
        stored = journal.append(event, sync=sync)
        if stored is not None:
            await stored


class JournalContract:
    """The laws of the port ``Journal``. Its tests are async, for anyio's pytest plugin.

    ::

        class TestMyJournal(JournalContract):
            @pytest.fixture
            def make_journal(self, tmp_path):
                return lambda: MyJournal(tmp_path / "runs")

    ``make_journal`` gives a journal of the same store each time it is called; what a durable
    journal stored is there at the next call, what another one stored need not be.
    """

    @pytest.fixture
    def make_journal(self) -> MakeJournal:
        """A function that opens the journal of this test; override it."""
        raise NotImplementedError("override the fixture make_journal")

    @pytest.mark.anyio
    async def test_events_come_back_equal_and_in_order(self, make_journal: MakeJournal) -> None:
        """Every kind of event is given back as it was appended."""
        journal = make_journal()
        await store(journal, *sample_events())
        found = list(journal.events(RUN))
        journal.close()
        assert found == sample_events()

    @pytest.mark.anyio
    async def test_the_first_number_is_one(self, make_journal: MakeJournal) -> None:
        """A run that does not begin with 1 is refused, and stays unknown."""
        journal = make_journal()
        with pytest.raises(Exception, match="2"):
            await store(journal, stamp(WorkflowStarted("w"), "r", 2, 1.0))
        found = (list(journal.events("r")), list(journal.runs()))
        journal.close()
        assert found == ([], [])

    @pytest.mark.anyio
    @pytest.mark.parametrize("wrong", [1, 2, 4], ids=["first", "repeated", "hole"])
    async def test_any_other_number_than_the_next_is_refused(
        self, make_journal: MakeJournal, wrong: int
    ) -> None:
        """A hole or a repetition raises, nothing of it is kept, and the run can go on."""
        journal = make_journal()
        first = stamp(WorkflowStarted("w"), "r", 1, 1.0)
        second = stamp(StepStarted("a", "python"), "r", 2, 2.0)
        third = stamp(StepStarted("b", "python"), "r", 3, 3.0)
        await store(journal, first, second)
        with pytest.raises(Exception, match=str(wrong)):
            await store(journal, stamp(StepStarted("x", "python"), "r", wrong, 3.0))
        await store(journal, third)
        found = list(journal.events("r"))
        journal.close()
        assert found == [first, second, third]

    @pytest.mark.anyio
    async def test_runs_are_numbered_apart(self, make_journal: MakeJournal) -> None:
        """Events of one run neither move the numbers of another nor show up in it."""
        journal = make_journal()
        ours, theirs = sample_events("a")[:3], sample_events("b")[:3]
        for one, other in zip(ours, theirs, strict=True):
            await store(journal, one, other)
        found = (list(journal.events("a")), list(journal.events("b")))
        journal.close()
        assert found == (ours, theirs)

    def test_an_unknown_run_has_no_events(self, make_journal: MakeJournal) -> None:
        """Asking for a run that is not there is no error."""
        journal = make_journal()
        found = list(journal.events("nobody"))
        journal.close()
        assert found == []

    @pytest.mark.anyio
    async def test_what_was_given_out_does_not_change(self, make_journal: MakeJournal) -> None:
        """A list of events is what there was when it was asked for."""
        journal = make_journal()
        first, second = sample_events()[:2]
        await store(journal, first)
        found = journal.events(RUN)
        await store(journal, second)
        journal.close()
        assert list(found) == [first]

    @pytest.mark.anyio
    async def test_runs_are_listed_oldest_first_with_their_status(
        self, make_journal: MakeJournal
    ) -> None:
        """The list says of each run its workflow, its start, how many events, and how it stands."""
        journal = make_journal()
        drives: dict[str, list[Event]] = {
            "open": [],
            "done": [WorkflowCompleted("succeeded")],
            "suspended": [RunSuspended()],
            "answered": [RunSuspended(), SignalReceived("go")],
            "resumed": [RunSuspended(), RunResumed()],
        }
        for at, (name, events) in enumerate(drives.items()):
            await store(journal, stamp(WorkflowStarted(f"w-{name}"), name, 1, float(at)))
            numbered = [stamp(event, name, seq, 9.0) for seq, event in enumerate(events, 2)]
            await store(journal, *numbered)
        found = [
            (run.run_id, run.workflow_name, run.status, run.started_at, run.events)
            for run in journal.runs()
        ]
        journal.close()
        assert found == [
            ("open", "w-open", None, 0.0, 1),
            ("done", "w-done", "succeeded", 1.0, 2),
            ("suspended", "w-suspended", "suspended", 2.0, 2),
            ("answered", "w-answered", "suspended", 3.0, 3),
            ("resumed", "w-resumed", None, 4.0, 3),
        ]

    @pytest.mark.anyio
    async def test_it_can_be_used_after_it_was_closed(self, make_journal: MakeJournal) -> None:
        """Closing ends no run: what was stored is there, and more can be appended."""
        journal = make_journal()
        first, second = sample_events()[:2]
        await store(journal, first)
        journal.close()
        journal.close()
        await store(journal, second, sync=True)
        found = list(journal.events(RUN))
        journal.close()
        assert found == [first, second]

    @pytest.mark.anyio
    async def test_a_durable_one_keeps_what_it_stored(self, make_journal: MakeJournal) -> None:
        """Another journal of the same store has the events, if the journal says it is durable."""
        journal = make_journal()
        await store(journal, *sample_events())
        journal.close()
        again = make_journal()
        found = list(again.events(RUN))
        again.close()
        assert found == sample_events() or not journal.durable
