"""When a run was driven, and when each of its steps was at work, from its history.

A step may be at work several times: an attempt fails and another follows, an agent's launch waits
for the end of a usage cap, a process ends and a later one begins the step again. Times are unix
seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import Literal, TypeAlias

from handrail.model import events as ev
from handrail.model.dataclass import dataclass

How: TypeAlias = Literal["", "failed", "interrupted"]
"""How a stretch of work ended; "": as the step did, or it has no end yet."""
Stretch: TypeAlias = "tuple[float, float | None, How]"
"""Start, end (None: it has no end yet), and how it ended."""

_AT_WORK = frozenset({"python", "command", "agent", "generate", "stage"})
"""Kinds of steps whose work ends with the process; the others wait, or contain steps."""
_QUESTION = "question"
"""The kind of a gate that is no step itself, but asks about one: its answer is its end."""
_AGAIN = frozenset({"retry", "cap", "backoff"})


@dataclass(slots=True)
class StepTimes:
    """The times of one step: its stretches, its last beginning, and its end. Mutable."""

    kind: str
    began: float
    ended: float | None = None
    stretches: list[Stretch] = field(default_factory=list["Stretch"])
    since: float | None = None
    """When the open stretch began, or when the next one is due."""

    def begin(self, at: float) -> None:
        """Begin the step, or begin it again after an end; an open stretch continues."""
        if self.ended is not None:
            self.began, self.ended, self.since = at, None, at
        if self.since is None:
            self.since = at

    def stop(self, at: float, how: How) -> None:
        """End the open stretch; one that was not due yet counts only if it failed."""
        since, self.since = self.since, None
        if since is not None and (since <= at or how == "failed"):
            self.stretches.append((min(since, at), at, how))

    def end(self, at: float) -> None:
        """End the step, and its open stretch."""
        if self.ended is None:
            self.stop(at, "")
            self.ended = at

    def wait_until(self, due: float) -> None:
        """Let the next stretch begin at ``due``, unless one is open."""
        if self.since is None:
            self.since = due

    @property
    def all_stretches(self) -> list[Stretch]:
        """The stretches, with the open one."""
        if self.since is None:
            return self.stretches
        return [*self.stretches, (self.since, None, "")]


@dataclass(slots=True)
class Times:
    """The times of a run: of its steps by path, and of its drives (start, end). Mutable."""

    steps: dict[str, StepTimes] = field(default_factory=dict[str, StepTimes])
    drives: list[tuple[float, float | None]] = field(
        default_factory=list["tuple[float, float | None]"]
    )
    last: float = 0.0
    """The time of the last event that was applied."""

    def apply(self, event: ev.Event) -> None:
        """Apply the next event."""
        _apply(self, event, self.last)
        self.last = event.at

    def drives_until(self, last: float | None) -> list[list[float | None]]:
        """The drives; an open one ended at ``last``, if that is not None."""
        return [[began, last if ended is None else ended] for began, ended in self.drives]


def times_of(history: Iterable[ev.Event]) -> Times:
    """The times of a run, from its history."""
    found = Times()
    for event in history:
        found.apply(event)
    return found


def _apply(found: Times, event: ev.Event, before: float) -> None:
    steps = found.steps
    match event:
        case ev.WorkflowStarted() | ev.RunResumed():
            _drive_began(found, event.at, before)
        case ev.WorkflowCompleted() | ev.RunSuspended():
            if found.drives:
                found.drives[-1] = (found.drives[-1][0], event.at)
        case ev.StepStarted() | ev.MemberStarted():
            kind = event.step_type if isinstance(event, ev.StepStarted) else "member"
            steps.setdefault(event.path, StepTimes(kind, event.at)).begin(event.at)
        case ev.GateOpened():
            steps.setdefault(event.path, StepTimes(_QUESTION, event.at)).begin(event.at)
        case ev.StepCompleted() | ev.MemberCompleted():
            began = event.at - event.result.duration_ms / 1000
            steps.setdefault(event.path, StepTimes("", began, since=began)).end(event.at)
        case _:
            step = steps.get(getattr(event, "path", ""))
            if step is not None:
                _apply_to_step(step, event)


def _apply_to_step(step: StepTimes, event: ev.Event) -> None:
    match event:
        case ev.GateAnswered():
            if step.kind == _QUESTION:
                step.end(event.at)
        case ev.AgentSessionStarted():
            step.begin(event.at)
        case ev.StepInterrupted():
            step.stop(event.at, "interrupted")
        case ev.TimerSet():
            if event.reason in _AGAIN:
                step.since = None
                step.wait_until(event.due)
        case ev.AttemptFailed():
            step.stop(event.at, "failed")
        case ev.LadderStep():
            step.stop(event.at, "failed")
            if not event.parked:
                step.wait_until(max(event.due, event.at))
        case _:
            pass


def _drive_began(found: Times, at: float, before: float) -> None:
    if found.drives and found.drives[-1][1] is None:  # the process of that drive was killed
        found.drives[-1] = (found.drives[-1][0], before)
        for step in found.steps.values():
            if step.kind in _AT_WORK and step.since is not None:
                step.stop(max(step.since, before), "interrupted")
    found.drives.append((at, None))
