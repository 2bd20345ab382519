"""What is recorded of one path of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from handrail.model import events as ev
from handrail.model.results import OpenGate, StepResult, Usage


class PathState(msgspec.Struct, eq=False, gc=False):  # it is in no cycle
    """What is recorded of one path: a step, a member, or a question. The fold fills it.

    A struct of msgspec's, since a replay makes one for every path. ``*_seq`` are numbers of events.
    """

    kind: str = ""
    """The type of the step, ``member``, or nothing for a question that is no step."""

    started_at: float | None = None
    verdict: bool | None = None
    end: StepResult[Any] | None = None
    """Of a step or a member."""
    attempts: int = 0
    consumed_signal: int = 0
    """The number of the signal that the step consumed; 0 for none."""
    failure: ev.AttemptFailed | None = None
    retry_due: float | None = None
    due: dict[tuple[str, int], float] | None = None
    gates: dict[int, OpenGate] | None = None
    signal: str = ""
    index: int = 0
    attempt: int = 1
    """The attempt of the step above that this path belongs to."""
    fingerprint: str = ""
    fingerprint_at_gate: str = ""
    """The step's fingerprint when its gate opened: a process may die between start and gate."""
    digest: str = ""
    first_seq: int = 0
    """Its start."""
    begun_seq: int = 0
    """Of a step: its start, or where a later drive entered it again."""
    dropped_seq: int = 0
    """Where a resume dropped an earlier record, or end, of it; 0 if none did."""
    ended_seq: int = 0
    causes: dict[str, str] | None = None
    """Of a body that failed: the step whose failure ended each of its attempts, by the beginning of
    the paths in it; empty if the body raised an error of its own.
    """
    group: ev.GroupStarted | None = None
    found: tuple[tuple[str, float], ...] = ()
    """Of a task: the tasks that it brought, by id, with their priorities."""
    derived: str = ""
    """How its output is composed from the records below it; see ``record.outputs``."""
    unreached_children: tuple[str, ...] = ()
    """Recorded children that its end, or its last failed attempt, did not reach."""
    child: ev.SubworkflowEnded | None = None
    """The end of its child workflow."""
    ladder: tuple[ev.LadderStep | ev.AgentGuided, ...] = ()
    session: ev.AgentSessionStarted | None = None
    """Of the launch that was at work last; None once the end of that launch is known."""
    interrupted_usage: Usage | None = None
    """The usage that interrupted launches of this attempt reported."""
    failed_usage: Usage | None = None
    """The usage of its failed attempts."""
    crashes: int = 0
    """How often the process died while this was at work, without a record of that."""
    interrupted: bool = False
    """It was at work when its process ended, and may have taken effect."""
    cleanup: bool = False
    """It was yielded by a body that was being cancelled."""
    rollback: bool = False
    undone: ev.RollbackCompleted | None = None

    def waits_at(self, moment: float) -> bool:
        """True if at this time a pause before its next attempt, or launch, was not yet over."""
        last = self.ladder[-1] if self.ladder else None
        due = self.retry_due or 0.0
        if isinstance(last, ev.LadderStep) and self.session is None:
            due = due or last.due
        return due > moment

    def begin_later(self, later_s: float) -> None:
        """Move its start, and the ends of its waits, to a later time."""
        if self.started_at is not None:
            self.started_at += later_s
        if self.retry_due is not None:
            self.retry_due += later_s
        self.due = {why: due + later_s for why, due in (self.due or {}).items()}
        gates = (self.gates or {}).items()
        self.gates = {attempt: moved_gate(gate, later_s) for attempt, gate in gates}

    @property
    def result(self) -> StepResult[Any] | None:
        """The end of a step, as the run's result lists it: it lists no members."""
        return None if self.kind == "member" else self.end

    @property
    def has_body(self) -> bool:
        """It is a member, or a child workflow."""
        return self.kind in {"member", "subworkflow"}

    @property
    def guidance(self) -> tuple[str, ...]:
        """The guidance that people gave its agent."""
        given = [one.next for one in self.ladder if isinstance(one, ev.AgentGuided)]
        return (*given[-1].said, *given[-1].guidance) if given else ()

    @property
    def reasks(self) -> int:
        """How often its agent was asked again for an answer that fits."""
        failed = [one.next for one in self.ladder if isinstance(one, ev.LadderStep)]
        return failed[-1].reasks if failed else 0

    @property
    def cleanup_seq(self) -> int:
        """Its start, if a body that was being cancelled yielded it; else 0."""
        return self.begun_seq if self.cleanup and self.begun_seq > self.dropped_seq else 0

    @property
    def failed_seq(self) -> int:
        """The end of its last failed attempt, or 0."""
        return self._counting(self.failure)

    @property
    def undone_seq(self) -> int:
        """The end of its rollback, if it did not run again since; else 0."""
        return self._counting(self.undone)

    def _counting(self, event: ev.Event | None) -> int:
        return 0 if event is None or event.seq <= self.dropped_seq else event.seq

    def ended(self) -> bool:
        """True if the step's end, or the member's, is recorded."""
        return self.end is not None

    def drop_end(self, seq: int) -> None:
        """Drop the end, and nothing else: the step is entered again as far as it had come."""
        self.end = self.causes = None
        self.derived = ""
        self.first_seq, self.dropped_seq = 0, seq


def moved_gate(gate: OpenGate, later_s: float) -> OpenGate:
    """The gate, opened later by some seconds."""
    deadline = None if gate.deadline is None else gate.deadline + later_s
    return replace(gate, since=gate.since + later_s, deadline=deadline)
