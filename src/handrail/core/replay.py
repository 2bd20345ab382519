"""What an earlier drive recorded, by path.

A replay goes by path, never by position: the machine asks for each path as it comes to it, so steps
that were added elsewhere, or that end in another order, change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from handrail.errors import StepTimeout
from handrail.model import events as ev
from handrail.model.results import OpenGate, StepResult, qualified

_TIMEOUT = qualified(StepTimeout)


# Typed, and four times as fast as ``dict[...]``: a replay makes one of each for every path.
def _nothing_due() -> dict[tuple[str, int], float]:
    return {}


def _no_gates() -> dict[int, OpenGate]:
    return {}


@dataclass(slots=True)
class PathRecord:
    """What is recorded of one path; filled while the history is read."""

    started_at: float | None = None
    verdict: bool | None = None
    end: StepResult[Any] | None = None
    member_end: StepResult[Any] | None = None
    attempts: int = 0
    failure: ev.AttemptFailed | None = None
    retry_due: float | None = None
    due: dict[tuple[str, int], float] = field(default_factory=_nothing_due)
    gates: dict[int, OpenGate] = field(default_factory=_no_gates)
    signal: str = ""
    index: int = 0

    def result(self) -> StepResult[Any] | None:
        """The recorded end of the step, marked as replayed, or None."""
        return None if self.end is None else replace(self.end, replayed=True)


class Recorded:
    """An index of a run's events that still count. Mutable only while it is being built."""

    def __init__(self, history: Iterable[ev.Event], superseded: Iterable[str] = ()) -> None:
        self.started_at = 0.0
        self.inputs: dict[str, Any] = {}
        self.answers: dict[str, ev.GateAnswered] = {}
        self._signals: dict[str, list[Any]] = {}
        self.completed: ev.WorkflowCompleted | None = None
        self._paths: dict[str, PathRecord] = {}
        self._children: dict[str, dict[str, None]] = {}
        self._takes: dict[type, Callable[[Any], None]] = {
            ev.WorkflowStarted: self._run_started,
            ev.RunResumed: self._run_resumed,
            ev.WorkflowCompleted: self._run_completed,
            ev.StepStarted: self._step_started,
            ev.AttemptFailed: self._attempt_failed,
            ev.TimerSet: self._timer_set,
            ev.StepCompleted: self._step_completed,
            ev.MemberStarted: self._member_started,
            ev.MemberCompleted: self._member_completed,
            ev.GateOpened: self._gate_opened,
            ev.GateAnswered: self._gate_answered,
            ev.SignalReceived: self._signal_received,
        }
        for event in history:
            self._take(event)
        for path in superseded:
            self._forget(path)

    # -- building -------------------------------------------------------------------------------

    def _take(self, event: ev.Event) -> None:
        take = self._takes.get(type(event))
        if take is not None:
            take(event)

    def _run_started(self, event: ev.WorkflowStarted) -> None:
        self.started_at = event.at
        self.inputs = dict(event.inputs)

    def _run_resumed(self, event: ev.RunResumed) -> None:
        for path in event.superseded:
            self._forget(path)

    def _run_completed(self, event: ev.WorkflowCompleted) -> None:
        self.completed = event

    def _step_started(self, event: ev.StepStarted) -> None:
        record = self._record(event.path)
        if record.started_at is None:
            record.started_at = event.at
        record.verdict = event.verdict
        record.index = event.index
        record.signal = event.signal

    def _attempt_failed(self, event: ev.AttemptFailed) -> None:
        record = self._record(event.path)
        record.attempts = max(record.attempts, event.attempt)
        record.failure = event
        record.retry_due = None

    def _timer_set(self, event: ev.TimerSet) -> None:
        record = self._record(event.path)
        record.due.setdefault((event.reason, event.attempt), event.due)
        if event.reason == "retry":
            record.retry_due = event.due

    def _step_completed(self, event: ev.StepCompleted) -> None:
        self._record(event.path).end = event.result

    def _member_started(self, event: ev.MemberStarted) -> None:
        record = self._record(event.path)
        record.index = event.index
        if record.started_at is None:
            record.started_at = event.at

    def _member_completed(self, event: ev.MemberCompleted) -> None:
        self._record(event.path).member_end = event.result

    def _gate_opened(self, event: ev.GateOpened) -> None:
        record = self._record(event.path)
        record.gates.setdefault(record.attempts + 1, event.gate)

    def _gate_answered(self, event: ev.GateAnswered) -> None:
        self.answers.setdefault(event.path, event)

    def _signal_received(self, event: ev.SignalReceived) -> None:
        self._signals.setdefault(event.name, []).append(event.payload)

    def _record(self, path: str) -> PathRecord:
        record = self._paths.get(path)
        if record is None:
            record = self._paths[path] = PathRecord()
            self._children.setdefault(self._home(path), {})[path] = None
        return record

    def _home(self, path: str) -> str:
        """The path of the node that a child belongs to: the nearest one above it that is known.

        ``a~2/b`` belongs to ``a``, unless ``a~2`` is itself a member's path.
        """
        above = path.rpartition("/")[0]
        while above and above not in self._paths:
            head, tilde, digits = above.rpartition("~")
            if tilde and digits.isascii() and digits.isdigit() and head in self._paths:
                return head
            above = above.rpartition("/")[0]
        return above

    def _forget(self, path: str) -> None:
        """Drop what is known of one path; its children keep what they have."""
        if self._paths.pop(path, None) is not None:
            self._children.get(self._home(path), {}).pop(path, None)
        self.answers.pop(path, None)

    # -- asking ---------------------------------------------------------------------------------

    def knows(self, path: str) -> bool:
        """True if anything is recorded of this path."""
        return path in self._paths

    def at(self, path: str) -> PathRecord:
        """What is recorded of this path; an empty record if nothing is."""
        return self._paths.get(path) or PathRecord()

    def signals_left(self) -> dict[str, list[Any]]:
        """The payloads that no recorded ``wait_for`` took, in order of arrival, by name."""
        left = {name: list(payloads) for name, payloads in self._signals.items()}
        for record in self._paths.values():
            if record.signal and record.verdict is not False and _took_a_signal(record.end):
                del left.get(record.signal, [])[:1]
        return left

    def gate(self, path: str, attempt: int) -> OpenGate | None:
        """The gate that this attempt opened."""
        return self.at(path).gates.get(attempt)

    def due(self, path: str, reason: str, attempt: int) -> float | None:
        """The recorded due time of a wait."""
        return self.at(path).due.get((reason, attempt))

    def below(self, path: str) -> Iterator[tuple[str, StepResult[Any]]]:
        """Every finished step below a path, with its result, marked as replayed."""
        stack = list(self._children.get(path, ()))
        while stack:
            known = stack.pop()
            end = self._paths[known].end
            if end is not None:
                yield known, replace(end, replayed=True)
            stack.extend(self._children.get(known, ()))

    def ends(self) -> Iterator[tuple[str, StepResult[Any]]]:
        """Every finished step of the run, by path."""
        for path, record in self._paths.items():
            if record.end is not None:
                yield path, replace(record.end, replayed=True)

    def _index_of(self, path: str) -> int:
        """Its place in a group; 0 for the steps of a body, which keep their order."""
        return self._paths[path].index

    def tree_below(self, path: str) -> dict[str, dict[str, None]]:
        """The children of a path and of all paths below it, in order."""
        found: dict[str, dict[str, None]] = {}
        stack = [path]
        while stack:
            here = stack.pop()
            children = self._children.get(here)
            if children:
                found[here] = dict.fromkeys(sorted(children, key=self._index_of))
                stack.extend(children)
        return found


def _took_a_signal(end: StepResult[Any] | None) -> bool:
    """A ``wait_for`` takes a signal unless it was cancelled or timed out before one came."""
    return end is not None and end.status != "cancelled" and end.error_type != _TIMEOUT
