"""What every journal must do; subclass the suite in your tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import TypeAlias

import pytest

from handrail.errors import RunIdTaken, RunLocked
from handrail.model import events as ev
from handrail.model.events import Event
from handrail.model.results import WaitsFor
from handrail.ports.journal import (
    Journal,
    Letter,
    Message,
    group_append,
    last_events,
    last_letters,
    read_after,
    version_of,
)
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

    Each call of ``make_journal`` returns a journal on the same store. At the next call it must have
    what a durable journal stored; a journal that is not durable may lose it.
    """

    @pytest.fixture
    def make_journal(self) -> MakeJournal:
        """A function that opens the journal of this test; override it."""
        raise NotImplementedError("override the fixture make_journal")

    @pytest.fixture
    def journal(self, make_journal: MakeJournal) -> Generator[Journal]:
        """The journal of this test, closed when it is over."""
        journal = make_journal()
        yield journal
        journal.close()

    @pytest.mark.anyio
    async def test_events_come_back_equal_and_in_order(self, journal: Journal) -> None:
        """Every kind of event is read back as it was appended."""
        await store(journal, *sample_events())
        assert list(journal.events(RUN)) == sample_events()

    @pytest.mark.anyio
    async def test_the_first_number_is_one(self, journal: Journal) -> None:
        """A run that does not begin with 1 is refused, and stays unknown."""
        with pytest.raises(Exception, match="2"):
            await store(journal, ev.stamp(ev.WorkflowStarted("w"), "r", 2, 1.0))
        assert (list(journal.events("r")), list(journal.runs())) == ([], [])

    @pytest.mark.anyio
    @pytest.mark.parametrize("wrong", [1, 2, 4], ids=["first", "repeated", "hole"])
    async def test_any_other_number_than_the_next_is_refused(
        self, journal: Journal, wrong: int
    ) -> None:
        """A gap or a repetition raises, stores nothing, and the run can continue."""
        first = ev.stamp(ev.WorkflowStarted("w"), "r", 1, 1.0)
        second = ev.stamp(ev.StepStarted("a", "python"), "r", 2, 2.0)
        third = ev.stamp(ev.StepStarted("b", "python"), "r", 3, 3.0)
        await store(journal, first, second)
        with pytest.raises(Exception, match=str(wrong)):
            await store(journal, ev.stamp(ev.StepStarted("x", "python"), "r", wrong, 3.0))
        await store(journal, third)
        assert list(journal.events("r")) == [first, second, third]

    @pytest.mark.anyio
    async def test_events_that_are_stored_together_are_all_there_or_none(
        self, journal: Journal
    ) -> None:
        """Events stored together equal events stored one by one; a wrong number refuses them all.

        This is for journals that have ``append_all``.
        """
        together = group_append(journal)
        if together is None:
            return
        events = sample_events()
        large = ev.stamp(
            ev.StepStarted("a" * 100, "python", "x" * 100_000), RUN, len(events) + 1, 9.0
        )
        hole = ev.stamp(ev.StepStarted("b", "python"), RUN, len(events) + 3, 9.0)
        for some, sync in ((events[:1], False), (events[1:5], True), (events[5:], False)):
            stored = together(some, sync=sync)
            if stored is not None:
                await stored
        with pytest.raises(Exception, match=str(hole.seq)):
            together([large, hole])
        found = list(journal.events(RUN))
        await store(journal, large)
        then = journal.events(RUN)[-1]
        assert found == sample_events()
        assert then == large

    @pytest.mark.anyio
    async def test_events_behind_a_number(self, journal: Journal) -> None:
        """The events after a number, perhaps none; None if the run has no event of that number."""
        events = sample_events()
        await store(journal, *events, *sample_events("other")[:3])
        read = read_after(journal)
        found = [read(RUN, after) for after in range(1, len(events) + 1)]
        missing = read(RUN, len(events) + 1), read("other", 4), read("none", 1)
        assert found == [events[after:] for after in range(1, len(events) + 1)]
        assert missing == (None, None, None)

    @pytest.mark.anyio
    async def test_runs_are_numbered_apart(self, journal: Journal) -> None:
        """Events of one run neither move the numbers of another nor show up in it."""
        ours, theirs = sample_events("a")[:3], sample_events("b")[:3]
        for one, other in zip(ours, theirs, strict=True):
            await store(journal, one, other)
        assert (list(journal.events("a")), list(journal.events("b"))) == (ours, theirs)

    @pytest.mark.anyio
    async def test_a_whole_run_is_stored_at_once(self, journal: Journal) -> None:
        """It equals a run stored event by event, large values too, and can be continued."""
        events = sample_events("whole")
        large = ev.stamp(
            ev.WorkflowStarted("w", {"text": "x" * 50_000}, {}, ("whole", "a")), "r", 1, 1.0
        )
        journal.append_run(events)
        sent = Letter(ev.stamp(ev.SignalReceived("go", 1), "r", 0, 3.0))
        journal.append_run([large], letters=[sent])
        await store(journal, ev.stamp(ev.StepStarted("a", "python"), "r", 2, 2.0))
        found = (list(journal.events("whole")), journal.events("r")[0], len(journal.events("r")))
        listed = [(one.run_id, one.events, one.forked_from) for one in journal.runs()]
        letters = list(journal.letters("r", 0))
        assert found == (events, large, 2)
        assert letters == [replace(sent, number=1)]
        assert listed == [("whole", len(events), None), ("r", 2, ("whole", "a"))]

    def test_a_run_may_be_made_of_events_of_another(self, journal: Journal) -> None:
        """The events are numbered by their places, and the other run does not change."""
        first = ev.stamp(ev.WorkflowStarted("w"), "b", 1, 5.0)
        others = sample_events("a")
        journal.append_run(others)
        journal.append_run([first, others[-1], others[1]], secrets={})
        made = [(one.run_id, one.seq, one.at, type(one)) for one in journal.events("b")]
        found = list(journal.events("a"))
        assert made == [
            ("b", 1, 5.0, ev.WorkflowStarted),
            ("b", 2, others[-1].at, type(others[-1])),
            ("b", 3, others[1].at, type(others[1])),
        ]
        assert found == others == sample_events("a")

    @pytest.mark.anyio
    async def test_a_run_that_is_there_is_not_stored_again(self, journal: Journal) -> None:
        """The existing run does not change."""
        first = ev.stamp(ev.WorkflowStarted("w"), "r", 1, 1.0)
        await store(journal, first)
        with pytest.raises(RunIdTaken):
            journal.append_run(sample_events("r"))
        assert list(journal.events("r")) == [first]

    def test_an_unknown_run_has_no_events(self, journal: Journal) -> None:
        """Asking for a run that is not there is no error."""
        assert list(journal.events("nobody")) == []

    @pytest.mark.anyio
    async def test_what_was_given_out_does_not_change(self, journal: Journal) -> None:
        """A list of events does not change when more events are stored."""
        first, second = sample_events()[:2]
        await store(journal, first)
        found = journal.events(RUN)
        await store(journal, second)
        assert list(found) == [first]

    @pytest.mark.anyio
    async def test_runs_are_listed_oldest_first_with_their_status(self, journal: Journal) -> None:
        """The list has each run's workflow, start, number of events and status."""
        drives: dict[str, list[Event]] = {
            "open": [],
            "done": [ev.WorkflowCompleted("succeeded")],
            "suspended": [ev.RunSuspended()],
            "answered": [ev.RunSuspended(), ev.SignalReceived("go")],
            "resumed": [ev.RunSuspended(), ev.RunResumed()],
        }
        for at, (name, events) in enumerate(drives.items()):
            await store(journal, ev.stamp(ev.WorkflowStarted(f"w-{name}"), name, 1, float(at)))
            numbered = [ev.stamp(event, name, seq, 9.0) for seq, event in enumerate(events, 2)]
            await store(journal, *numbered)
        found = [
            (run.run_id, run.workflow_name, run.status, run.started_at, run.events)
            for run in journal.runs()
        ]
        assert found == [
            ("open", "w-open", None, 0.0, 1),
            ("done", "w-done", "succeeded", 1.0, 2),
            ("suspended", "w-suspended", "suspended", 2.0, 2),
            ("answered", "w-answered", "suspended", 3.0, 3),
            ("resumed", "w-resumed", None, 4.0, 3),
        ]

    @pytest.mark.anyio
    async def test_it_says_whether_it_was_written_if_it_can(self, journal: Journal) -> None:
        """Its ``version``, if it has one, changes with each event and each message, and not when it
        is read; its ``last_letters`` and ``last_events`` have the numbers of each run's last ones.
        """
        version = version_of(journal) or object
        seen = [version()]
        await store(journal, ev.stamp(ev.WorkflowStarted("w"), RUN, 1, 0.0))
        seen.append(version())
        last = 0
        for _ in range(2):
            last = journal.post(Letter(ev.stamp(ev.SignalReceived("go"), RUN, 0, 1.0))).number
            seen.append(version())
        for number, one in enumerate(seen):
            assert one not in seen[:number]
        assert last_letters(journal)([RUN, "nobody"])[RUN] >= last == 2
        assert last_events(journal)([RUN, "nobody"])[RUN] >= 1
        if version is not object:
            assert journal.events(RUN)
            assert journal.letters(RUN, 0)
            assert version() == seen[-1]

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

    @pytest.mark.anyio
    async def test_a_run_is_listed_with_its_labels_and_its_last_moment(
        self, journal: Journal
    ) -> None:
        """The list has the labels a run began with, and when its last event happened."""
        first = ev.stamp(ev.WorkflowStarted("w", {}, {"team": "a"}), "r", 1, 1.0)
        await store(journal, first, ev.stamp(ev.StepStarted("a", "python"), "r", 2, 7.5))
        (found,) = journal.runs()
        assert (dict(found.labels), found.updated_at, found.holder) == ({"team": "a"}, 7.5, None)

    @pytest.mark.anyio
    async def test_a_run_without_an_end_waits_for_what_its_last_event_says(
        self, journal: Journal
    ) -> None:
        """The list says until when and why a run waits, until that time is over."""
        far = time.time() + 9_000
        listed: list[tuple[WaitsFor, ...]] = []
        timers: list[Event] = [
            ev.TimerSet("nap", far, "cap"),
            ev.TimerSet("a", 2.0, "retry"),
            ev.StepStarted("a", ""),
        ]
        await store(journal, ev.stamp(ev.WorkflowStarted("w"), "r", 1, 1.0))
        for seq, event in enumerate(timers, 2):
            await store(journal, ev.stamp(event, "r", seq, 1.0))
            listed.append(journal.runs()[0].waits_for)
        assert listed == [(WaitsFor("time", "nap", "usage_cap", "", far),), (), ()]

    @pytest.mark.anyio
    @pytest.mark.parametrize("question", ["Ship it?", "odd\udce9", "with s3cret-value?"])
    async def test_a_suspended_run_is_listed_with_the_text_of_its_question(
        self, journal: Journal, question: str
    ) -> None:
        """Whatever it holds; where a secret was, there is its name."""
        journal.append_run(
            [
                ev.stamp(ev.WorkflowStarted("w"), "r", 1, 1.0),
                ev.stamp(
                    ev.RunSuspended(waits_for=(WaitsFor("answer", "q", question),)), "r", 2, 2.0
                ),
            ],
            secrets={"TOKEN": "s3cret-value"},
        )
        (wait,) = journal.runs()[0].waits_for
        told = [question, question.replace("s3cret-value", "${TOKEN}")]
        assert (wait.path, wait.what) in {("q", text) for text in told}

    @pytest.mark.anyio
    async def test_a_run_has_one_driver_at_a_time(self, journal: Journal) -> None:
        """A second driver is refused, with the first one's process and host, as in the list."""
        await store(journal, ev.stamp(ev.WorkflowStarted("w"), "r", 1, 1.0))
        lease = journal.acquire("r")
        with pytest.raises(RunLocked) as caught:
            journal.acquire("r")
        (found,) = journal.runs()
        lease.release()
        assert caught.value.run_id == "r"
        assert found.holder is not None
        assert (caught.value.pid, caught.value.host) == (found.holder.pid, found.holder.host)

    @pytest.mark.anyio
    async def test_a_lease_can_be_given_back(self, journal: Journal) -> None:
        """After a release the run has no driver, and the next one can take the lease."""
        first = journal.acquire("r")
        await store(journal, ev.stamp(ev.WorkflowStarted("w"), "r", 1, 1.0))
        first.release()
        (idle,) = journal.runs()
        second = journal.acquire("r")
        await store(journal, ev.stamp(ev.StepStarted("a", "python"), "r", 2, 2.0))
        second.release()
        numbers = [event.seq for event in journal.events("r")]
        assert (idle.holder, numbers) == (None, [1, 2])

    def test_an_old_lease_takes_nothing_from_a_new_one(self, journal: Journal) -> None:
        """Releasing a lease twice does not release the lease that came after it."""
        first = journal.acquire("r")
        first.release()
        second = journal.acquire("r")
        first.release()
        with pytest.raises(RunLocked):
            journal.acquire("r")
        second.release()

    def test_runs_are_locked_apart(self, journal: Journal) -> None:
        """A lease of one run does not keep others from driving another run."""
        one, other = journal.acquire("a"), journal.acquire("b")
        one.release()
        other.release()

    def test_close_gives_leases_back(self, journal: Journal) -> None:
        """A closed journal has no leases any more."""
        journal.acquire("r")
        journal.close()
        journal.acquire("r").release()
        journal.close()

    @pytest.mark.anyio
    async def test_events_are_numbered_on_under_a_lease(self, journal: Journal) -> None:
        """Under a lease, too, only the next number is stored, and a refusal can be tried again."""
        lease = journal.acquire("r")
        started = ev.stamp(ev.WorkflowStarted("w"), "r", 1, 1.0)
        step = ev.stamp(ev.StepStarted("a", "python"), "r", 2, 2.0)
        await store(journal, started)
        for wrong in (1, 3):
            with pytest.raises(Exception, match=str(wrong)):
                await store(journal, ev.stamp(ev.StepStarted("x", "python"), "r", wrong, 2.0))
        await store(journal, step)
        lease.release()
        assert list(journal.events("r")) == [started, step]

    def test_letters_are_numbered_in_the_order_they_came(self, journal: Journal) -> None:
        """Messages of one run are numbered from 1, whatever they say, and are read back equal."""
        events: list[Message] = [
            ev.stamp(ev.SignalReceived("go", {"n": 1}, "ann"), "r", 0, 1.0),
            ev.stamp(ev.GateAnswered("merge?", "yes", "bob"), "r", 0, 2.0),
            ev.stamp(ev.CancelRequested("enough"), "r", 0, 3.0),
        ]
        posted = [journal.post(Letter(event)) for event in events]
        found = list(journal.letters("r", 0))
        assert [letter.number for letter in posted] == [1, 2, 3]
        assert found == posted
        assert [letter.event for letter in found] == events

    def test_letters_are_read_from_any_number_on(self, journal: Journal) -> None:
        """A reader gets only the messages after the number that it has read."""
        for at in (1.0, 2.0, 3.0):
            journal.post(Letter(ev.stamp(ev.SignalReceived("go"), "r", 0, at)))
        found = [[letter.number for letter in journal.letters("r", after)] for after in range(5)]
        assert found == [[1, 2, 3], [2, 3], [3], [], []]

    def test_of_one_key_only_the_first_letter_counts(self, journal: Journal) -> None:
        """Posting a second message with a key stores nothing, and returns the first message."""
        first = journal.post(Letter(ev.stamp(ev.GateAnswered("g", "yes"), "r", 0, 1.0), "g"))
        second = journal.post(Letter(ev.stamp(ev.GateAnswered("g", "no"), "r", 0, 2.0), "g"))
        third = journal.post(Letter(ev.stamp(ev.GateAnswered("g", "no"), "r", 0, 3.0), "g 2"))
        found = list(journal.letters("r", 0))
        assert second == first
        assert found == [first, third]

    def test_of_one_key_a_whole_run_has_only_the_first_letter(self, journal: Journal) -> None:
        """Messages that come with a run are kept as if they were posted, behind earlier ones."""
        letters = [
            Letter(ev.stamp(ev.GateAnswered("g", choice), "r", 0, at), key)
            for at, (choice, key) in enumerate([("yes", "g"), ("no", "g"), ("no", "g 2")], 1)
        ]
        earlier = journal.post(Letter(ev.stamp(ev.SignalReceived("go"), "r", 0, 0.0)))
        journal.append_run(sample_events("r"), letters=letters)
        first, _, third = letters
        kept = [earlier, replace(first, number=2), replace(third, number=3)]
        assert list(journal.letters("r", 0)) == kept

    def test_an_empty_key_is_no_key(self, journal: Journal) -> None:
        """Messages without a key do not exclude one another."""
        for at in (1.0, 2.0):
            journal.post(Letter(ev.stamp(ev.SignalReceived("go"), "r", 0, at)))
        assert len(journal.letters("r", 0)) == 2

    def test_letters_of_runs_are_kept_apart(self, journal: Journal) -> None:
        """A key, and a number, count within one run."""
        posted = [
            journal.post(Letter(ev.stamp(ev.GateAnswered("g", run), run, 0, 1.0), "g"))
            for run in "ab"
        ]
        found = [list(journal.letters(run, 0)) for run in "abc"]
        assert [letter.number for letter in posted] == [1, 1]
        assert found == [[posted[0]], [posted[1]], []]

    @pytest.mark.anyio
    async def test_a_letter_is_no_event(self, journal: Journal) -> None:
        """Messages take no event's number, may come before or during a run, and list no run."""
        letter = journal.post(Letter(ev.stamp(ev.SignalReceived("go"), "r", 0, 1.0)))
        before = list(journal.runs())
        lease = journal.acquire("r")
        journal.post(Letter(ev.stamp(ev.SignalReceived("go"), "r", 0, 2.0)))
        await store(journal, ev.stamp(ev.WorkflowStarted("w"), "r", 1, 1.0))
        found = (len(journal.events("r")), len(journal.letters("r", letter.number)))
        lease.release()
        assert (before, found) == ([], (1, 1))

    def test_a_durable_one_keeps_its_letters(self, make_journal: MakeJournal) -> None:
        """Another journal of the same store has the messages, if the journal says it is durable."""
        journal = make_journal()
        posted = journal.post(
            Letter(ev.stamp(ev.GateAnswered("g", "yes", "ann"), "r", 0, 1.0), "g")
        )
        journal.close()
        again = make_journal()
        found = list(again.letters("r", 0))
        again.close()
        assert found == [posted] or not journal.durable

    def test_a_durable_one_excludes_another_of_its_store(self, make_journal: MakeJournal) -> None:
        """Two durable journals on one store allow only one driver a run."""
        journal, other = make_journal(), make_journal()
        lease = journal.acquire("r")
        if journal.durable:
            with pytest.raises(RunLocked):
                other.acquire("r")
        lease.release()
        other.acquire("r").release()
        journal.close()
        other.close()
