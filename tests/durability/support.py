"""What the proofs share: one run's lives, each of which may end in a crash, and what they did."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, settings

from handrail import Executor, WorkflowResult
from handrail.core import conductor
from handrail.model import events as ev
from handrail.model.paths import ancestors_of
from handrail.record.reading import ended, recorded_result
from handrail.record.run_record import Recorded
from handrail.testing import JumpClock, ProcessGone, TextJournal
from handrail.testing.crash_trial import RunScenario, counted
from handrail.testing.shapes import Act, Shape
from tests.durability.flows import FLOWS
from tests.testing import by_hand

RUN = "run"
SOAKING = settings().max_examples > 100
LAW = settings(suppress_health_check=list(HealthCheck))
LEAVES = frozenset({"python", "command", "agent", "generate", "stage"})

Crash = tuple[int, bool]
"""After how many writes of its life a process dies, and whether the last one still returns."""


@dataclass(frozen=True)
class Did:
    """One attempt or rollback that was performed, and in which life (from 0)."""

    life: int
    kind: str
    path: str
    attempt: int


@dataclass
class Story:
    """What happened to one run until its end, or until nobody can help it on."""

    result: WorkflowResult[Any]
    history: list[ev.Event]
    did: list[Did]
    found: list[list[ev.Event]]
    """What was recorded when each life began."""
    read: WorkflowResult[Any] | None = None
    """The result as the record has it, if the run has ended."""

    def performed(self, path: str, kind: str = "attempt") -> list[int]:
        """The lives in which this was performed."""
        return [did.life for did in self.did if (did.path, did.kind) == (path, kind)]


class EveryGate(Mapping[str, Any]):
    """The same answer to every question."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def __getitem__(self, path: str) -> Any:
        return self._answer

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __contains__(self, path: object) -> bool:
        return True


@dataclass
class Lives:
    """Drives one run through crashes, on a clock that goes on from life to life. Mutable."""

    flow: Any
    backend: str = "asyncio"
    gates: Any = None
    answers: Mapping[str, Any] = field(default_factory=lambda: EveryGate("yes"))
    signals: Mapping[str, Sequence[Any]] = field(default_factory=lambda: {"go": range(1, 1000)})
    args: tuple[Any, ...] = ()
    again: bool = False
    """Resume the run although it has ended."""
    cancels: str | None = None
    """Do not resume the run but cancel it, for this reason."""
    rerun: tuple[str, ...] = ()
    """What is to run again although it succeeded."""
    options: dict[str, Any] = field(default_factory=dict)
    few: int = conductor.GATHER_ABOVE
    """With more at work than that, ends that have come are recorded as one."""
    journal: TextJournal = field(default_factory=TextJournal)
    clock: JumpClock = field(default_factory=JumpClock)
    did: list[Did] = field(default_factory=list)
    found: list[list[ev.Event]] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)
    """How many writes each life made, or tried."""

    def through(self, crashes: Iterable[Crash] = ()) -> Story:
        """Live through these crashes, then to the end."""
        for writes, returns in crashes:
            result = self.live(stop_at=writes, abrupt=not returns)
            if result is not None:
                return self.story(result)
        result = self.live()
        assert result is not None
        return self.story(result)

    def live(self, **ends: Any) -> WorkflowResult[Any] | None:
        """One life; its result, or None if its process died. ``ends``: those of a TextJournal."""
        self.journal = self.journal.reopened(**ends)
        self.found.append(self.journal.events(RUN))
        few, conductor.GATHER_ABOVE = conductor.GATHER_ABOVE, self.few
        try:
            with counted(self._note):
                return anyio.run(self._live, backend=self.backend)
        except ProcessGone:
            return None
        finally:
            conductor.GATHER_ABOVE = few
            self.writes.append(self.journal.writes)

    def once(self) -> WorkflowResult[Any]:
        """One life that is resumed once, and in which nobody answers or sends anything."""
        self.journal = self.journal.reopened()
        self.found.append(self.journal.events(RUN))
        executor = Executor(journal=self.journal, gates=self.gates, clock=self.clock)
        with counted(self._note):
            return anyio.run(executor.resume, RUN, self.flow, backend=self.backend)

    def story(self, result: WorkflowResult[Any]) -> Story:
        """All that happened so far."""
        history = self.journal.reopened().events(RUN)
        read = None
        if ended(history) is not None:
            read = recorded_result(RUN, self.flow.definition, history, self.journal.codec)
        return Story(result, history, self.did, self.found, read)

    def at_its_end(self) -> bool:
        """True if there is nothing to go on with: the run has ended, or was never begun."""
        history = self.journal.reopened().events(RUN)
        return not history or ended(history) is not None

    def _note(self, kind: str, path: str, attempt: int, /, *, once: bool) -> None:
        self.did.append(Did(len(self.found) - 1, kind, path, attempt))

    async def _live(self) -> WorkflowResult[Any]:
        with anyio.fail_after(30):
            options = {"gates": self.gates, "clock": self.clock, **self.options}
            executor = Executor(journal=self.journal, **options)
            scenario = RunScenario(
                self.flow, RUN, self.args, answers=self.answers, signals=self.signals
            )
            if self.cancels is not None and not _cancels(self.found[-1]):
                result = await executor.cancel(RUN, self.cancels, self.flow)
                assert result is not None
                return result
            if self.rerun or (self.again and ended(self.found[-1]) is not None):
                result = await executor.resume(RUN, self.flow, rerun=self.rerun)
                if result.status != "suspended":
                    return result
            return await scenario.finish(executor, self.journal)

    def twin(self) -> Lives:
        """A copy of the run as it stands, for somebody else to go on with."""
        clock = JumpClock(self.clock.now())
        return replace(
            self, journal=self.journal.copied(), clock=clock, did=[], found=[], writes=[]
        )


def _cancels(history: Iterable[ev.Event]) -> bool:
    return any(isinstance(event, ev.CancelRequested) for event in history)


def lives(name: str, backend: str = "asyncio") -> Lives:
    """A run of this flow, before its first life."""
    flow, args = FLOWS[name]
    return Lives(flow, backend, args=args)


@functools.cache
def every_crash(name: str) -> list[Crash]:
    """Every write of this flow, if nothing happens to it, and in turn one of its two sides: both
    leave the same record.
    """
    whole = lives(name)
    whole.through()
    return [(writes, writes % 2 == 0) for writes in range(whole.writes[0] + 1)]


backends = pytest.mark.parametrize(
    "backend",
    ["asyncio", pytest.param("trio", marks=[pytest.mark.soak, pytest.mark.extra("trio")])],
)
"""What a record leads to is no matter of the loop: the other one comes in the soak alone."""
every_flow = pytest.mark.parametrize("name", FLOWS)


def essence(result: WorkflowResult[Any]) -> Any:
    """What must be the same, however often the process died: no durations, and of what groups say
    of their failures only that they failed: which failure they name is decided by time.
    """
    return {
        "result": by_hand.essence(result),
        "failed_step": result.failed_step,
        "rollback_errors": result.rollback_errors,
        "waiting": ([gate.path for gate in result.waiting], result.waiting_signals),
        "errors": {
            one.path: (one.error, one.error_type)
            for one in result.step_results
            if one.step_type in LEAVES
        },
    }


def with_rollbacks(part: Any) -> Any:
    """A drawn workflow, or a part of one, in which every call has a rollback."""
    if isinstance(part, tuple):
        return tuple(map(with_rollbacks, part))
    if not is_dataclass(part):
        return part
    given = {one.name: with_rollbacks(getattr(part, one.name)) for one in fields(part)}
    if isinstance(part, Shape) and isinstance(part.what, Act):
        given["rollback"] = "succeeds"
    return type(part)(**given)


# -- laws ---------------------------------------------------------------------------------------


def nothing_recorded_is_performed_again(story: Story) -> None:
    """What had its end in the record when a life began, and was not superseded, is not performed in
    it.
    """
    recorded = [counting(story.history, len(found)) for found in story.found]
    for did in story.did:
        assert (did.kind, did.path, 0) not in recorded[did.life], did
        assert (did.kind, did.path, did.attempt) not in recorded[did.life], did


def counting(history: Sequence[ev.Event], length: int) -> set[tuple[str, str, int]]:
    """What the first events say is done for good, if the next one supersedes none of it: attempts
    and rollbacks by path; attempt 0 stands for all.
    """
    done: set[tuple[str, str, int]] = set()
    for event in history[: length + 1]:
        match event:
            case ev.RunResumed():
                done = {one for one in done if one[1] not in event.superseded}
            case _ if event.seq > length:
                break
            case ev.StepCompleted():
                done.add(("attempt", event.path, 0))
            case ev.AttemptFailed():
                done.add(("attempt", event.path, event.attempt))
            case ev.RollbackCompleted():
                done.add(("rollback", event.path, 0))
            case _:
                pass
    return done


def performed_at_most_once_a_life(story: Story) -> None:
    """No life performs one attempt, or one rollback, twice."""
    assert len(set(story.did)) == len(story.did), story.did


def gates_are_answered_once(story: Story) -> None:
    """A gate has one answer in the record, and a letter is recorded once."""
    answered = [event.path for event in story.history if isinstance(event, ev.GateAnswered)]
    assert len(answered) == len(set(answered)), answered
    letters = [
        event.letter
        for event in story.history
        if isinstance(event, (ev.GateAnswered, ev.SignalReceived)) and event.letter
    ]
    assert len(letters) == len(set(letters)), letters


def signals_are_taken_once(story: Story) -> None:
    """No two steps that ended got the same signal, and none got one that was not sent."""
    waits = {
        event.path
        for event in story.history
        if isinstance(event, ev.StepStarted) and event.step_type == "wait_for"
    }
    taken = [
        one.output
        for one in story.result.step_results
        if one.path in waits and one.status == "succeeded" and isinstance(one.output, int)
    ]
    sent = [one.payload for one in story.history if isinstance(one, ev.SignalReceived)]
    assert len(taken) == len(set(taken)), taken
    assert set(taken) <= set(sent)


def ends_are_recorded_once(story: Story) -> None:
    """Everything has one end in the record, and what is undone is undone once, unless that was
    superseded.
    """
    ended_paths: set[str] = set()
    undone: set[str] = set()
    for event in story.history:
        match event:
            case ev.RunResumed():
                ended_paths.difference_update(event.superseded)
                undone.difference_update(event.superseded)
            case ev.StepCompleted() | ev.MemberCompleted():
                assert event.path not in ended_paths, event
                ended_paths.add(event.path)
            case ev.RollbackCompleted():
                assert event.path not in undone, event
                undone.add(event.path)
            case _:
                pass


def what_can_be_undone_is_undone(story: Story) -> None:
    """A run that failed, or was cancelled, leaves nothing that has a rollback and succeeded,
    wherever it stands and in whichever life, or attempt, it was done.
    """
    assert left_undone(story) == set()


def what_can_be_undone_is_undone_or_named(story: Story) -> None:
    """The same of a run whose code was edited, so that it may not come to its rollback any more."""
    assert left_undone(story) <= {error.path for error in story.result.rollback_errors}


def left_undone(story: Story) -> set[str]:
    """What has a rollback and succeeded, and was not undone, though the run failed."""
    if story.result.status not in {"failed", "cancelled"}:
        return set()
    with_rollback, left = set[str](), set[str]()
    for event in story.history:
        match event:
            case ev.RunResumed():
                left.difference_update(event.superseded)
            case ev.StepStarted() if event.rollback:
                with_rollback.add(event.path)
            case ev.StepCompleted() if event.status == "succeeded" and event.path in with_rollback:
                left.add(event.path)
            case ev.RollbackCompleted():
                left.discard(event.path)
            case _:
                pass
    return left


def what_was_undone_is_done_again(story: Story) -> None:
    """Once the run succeeds, as far as it comes to it, to whatever end: but for what was undone in
    a failure that the workflow went on from.

    What is undone then is undone before the end, or the attempt, of something that it stands in.
    """
    if story.result.status != "succeeded":
        return
    listed = {one.path for one in story.result.step_results}
    known = Recorded(story.history).begun()
    done = {event.path: event.seq for event in story.history if isinstance(event, ev.StepCompleted)}
    for drive in runs_to_an_end(story.history):
        ends = {
            event.path: event.seq
            for event in drive
            if isinstance(event, (ev.StepCompleted, ev.AttemptFailed))
        }
        for event in drive:
            undone = isinstance(event, ev.RollbackCompleted) and event.path in listed
            if undone and done.get(event.path, 0) < event.seq:
                above = [ends.get(one, 0) for one in ancestors_of(event.path, known)]
                assert max(above, default=0) > event.seq, event


def runs_to_an_end(history: Sequence[ev.Event]) -> list[list[ev.Event]]:
    """The history, cut behind each end of the run."""
    found: list[list[ev.Event]] = [[]]
    for event in history:
        found[-1].append(event)
        if isinstance(event, ev.WorkflowCompleted):
            found.append([])
    return found


def nothing_was_lost(story: Story) -> None:
    """What one life found, the next one found too, at the same place; numbers have no hole."""
    assert [one.seq for one in story.history] == list(range(1, len(story.history) + 1))
    for found in story.found:
        assert story.history[: len(found)] == found


def the_record_lists_the_same(story: Story) -> None:
    """Who asks for the result later gets what the last drive gave."""
    if story.read is not None:
        assert essence(story.read) == essence(story.result)


def it_ended_once(story: Story) -> None:
    """The run has one end, and nothing after it."""
    last = ended(story.history)
    if story.result.status != "suspended":
        assert last is story.history[-1]
    ends = [event for event in story.history if isinstance(event, ev.WorkflowCompleted)]
    assert len(ends) == (story.result.status != "suspended")


LAWS = (
    nothing_recorded_is_performed_again,
    performed_at_most_once_a_life,
    gates_are_answered_once,
    signals_are_taken_once,
    ends_are_recorded_once,
    nothing_was_lost,
    the_record_lists_the_same,
    what_can_be_undone_is_undone,
    what_was_undone_is_done_again,
    it_ended_once,
)


def hold(story: Story) -> None:
    """Check every law of a story in which nothing was superseded."""
    for law in LAWS:
        law(story)
