"""A run for people, as plain data without words: its steps, waits, incidents and spending.

``view_of`` reads a record. ``record.live_view`` does the same for a run that is under way, event by
event, for displays that draw it ten times a second. The console, the log, the command and the page
each draw one of the two.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, Literal, TypeAlias, cast

from handrail.codec.unresolved import Unresolved
from handrail.model import events as ev
from handrail.model.dataclass import dataclass
from handrail.model.described import raised_in
from handrail.model.results import (
    A_PERSON,
    A_SENDER,
    CommandResult,
    Failure,
    OpenGate,
    StepResult,
    StepStatus,
    WaitsFor,
    WorkflowResult,
)
from handrail.record.guidance import GivenGuidance
from handrail.record.inbox import paused_by, unpause_of
from handrail.record.path_tree import PathState, Stretch
from handrail.record.results import incident_of
from handrail.record.run_record import Recorded
from handrail.record.spending import Spent
from handrail.record.status import wait_for_answer
from handrail.record.work_view import WorkView, works_of
from handrail.shortening import reason_of
from handrail.steps.table import verb_of
from handrail.typed.jsonsafe import json_safe

StepState: TypeAlias = StepStatus | Literal["running", "waiting", "interrupted", "open"]
"""``open``: it has begun, no process drives its run, and it was not at work itself."""

IncidentKind: TypeAlias = Literal["cap", "retry", "overflow", "re-ask", "fallback", "suspension"]

_KIND_OF_RUNG: Mapping[str, IncidentKind] = {
    "fallback": "fallback",
    "reask": "re-ask",
    "reframe": "re-ask",
    "compact": "overflow",
    "summarise": "overflow",
}


@dataclass(frozen=True, slots=True)
class FailureCause:
    """A failure as recorded, and ``inner``, the failure below that caused it, if that is known.

    ``place`` is ``file:line`` of the author's code that it passed through last, if it did.
    """

    path: str
    name: str
    error: str
    error_type: str | None = None
    inner: FailureCause | None = None
    place: str = ""

    @classmethod
    def of(
        cls,
        path: str,
        name: str,
        end: StepResult[Any] | ev.AttemptFailed | ev.WorkflowCompleted | WorkflowResult[Any],
    ) -> FailureCause:
        """The failure of a step, an attempt or a run, from its end."""
        place = raised_in(end.traceback)
        return cls(path, name, end.error or "", end.error_type, place=place)

    @property
    def origin(self) -> FailureCause:
        """The innermost failure: the step that failed by itself."""
        origin = self
        while origin.inner is not None:
            origin = origin.inner
        return origin

    def place_in(self, error: str) -> int | None:
        """Where the error of a step around it names this failure; None if it does not."""
        before, found, _ = error.partition(self.error)
        is_named = f"{self.name!r} failed" in before or f"{self.path!r} failed" in before
        return len(before) if found and is_named else None

    def with_inner(self, below: Iterable[FailureCause]) -> FailureCause:
        """This failure, caused by the failure ``below`` that its error names first, if any.

        ``below`` has the last failure first: of two attempts at a step, the second one counts.
        """
        places = ((cause.place_in(self.error), cause) for cause in below)
        named = [(place, cause) for place, cause in places if place is not None]
        return replace(self, inner=min(named, key=itemgetter(0))[1]) if named else self


@dataclass(frozen=True, slots=True)
class IncidentView:
    """A failed launch of an agent; ``over_at``: when the wait after it was over, None while it
    lasts.
    """

    step: ev.LadderStep
    over_at: float | None

    @property
    def kind(self) -> IncidentKind:
        """The kind by which incidents are counted."""
        if self.step.parked:
            return "suspension"
        by_rung = _KIND_OF_RUNG.get(self.step.next.rung)
        return by_rung or ("cap" if self.step.kind == "usage_cap" else "retry")


@dataclass(frozen=True, slots=True)
class OpenSignal:
    """A signal that has not come, and the type of its payload, if one is declared."""

    name: str
    accepts: Any
    path: str = ""


@dataclass(frozen=True, slots=True)
class StepView:
    """A step, a member of a group, or a question whether a budget may be exceeded.

    ``duration_ms`` is None without an end, ``cause`` None without an error. ``answer`` is that of
    an answered question, ``undone`` the end of its rollback, ``spent`` of an agent's step.
    ``handled``: the failures that its fallback, default or skip handled. ``given_by``: the person
    who gave its output. ``told``: the guidance that its agent got.
    """

    path: str
    depth: int
    step_type: str
    state: StepState
    attempts: int = 1
    duration_ms: float | None = None
    cause: FailureCause | None = None
    output: Any = None
    answer: ev.GateAnswered | None = None
    undone: ev.RollbackCompleted | None = None
    spent: Spent | None = None
    handled: tuple[Failure, ...] = ()
    given_by: str | None = None
    told: tuple[GivenGuidance, ...] = ()
    size: int | None = None
    """Of a group: how many members it has, if that is known."""
    began: float | None = None
    """When it began, or began again after an end."""
    ended_at: float | None = None
    stretches: tuple[Stretch, ...] = ()
    """When it was at work."""

    @property
    def status(self) -> StepState:
        """The same as ``state``."""
        return self.state

    @property
    def reason(self) -> str | None:
        """The error on one line, of the step that failed by itself; None without an error."""
        origin = None if self.cause is None else self.cause.origin
        return None if origin is None else reason_of(origin.error, origin.error_type)

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON-safe data."""
        return {
            "path": self.path,
            "step_type": self.step_type,
            "status": self.state,
            "attempts": self.attempts,
            "duration_ms": self.duration_ms,
            "error": None if self.cause is None else self.cause.error or None,
            "error_type": None if self.cause is None else self.cause.error_type,
            "reason": self.reason,
            "cause": json_safe(self.cause),
            "given_by": self.given_by,
            "output": json_safe(plain(self.output)),
            **({} if self.spent is None else self.spent.to_dict()),
            **({} if self.answer is None else {"answered_by": self.answer.by}),
            **({"handled": json_safe(self.handled)} if self.handled else {}),
            **({"told": json_safe(self.told)} if self.told else {}),
            **({} if self.undone is None else {"undone": {"error": self.undone.error}}),
        }


@dataclass(frozen=True, slots=True)
class RunView:
    """A recorded run: its steps, parents before children, and what it waits for.

    ``end`` is None if it has none, or was resumed after it. ``suspended_for`` says why its last
    drive was suspended, ``needs`` what a person must do first. ``inbox``: messages that it has not
    read yet. ``untold``: guidance that some agents, or all, have yet to get. ``stuck``: what it
    waits for, whatever else, because the code cannot go on with its record. ``denied``: what its
    sandboxes refused.
    """

    inputs: Any
    end: ev.WorkflowCompleted | None
    suspended_for: str
    steps: tuple[StepView, ...]
    gates: tuple[OpenGate, ...]
    signals: tuple[OpenSignal, ...]
    inbox: tuple[ev.Event, ...]
    needs: tuple[str, ...]
    incidents: tuple[IncidentView, ...]
    spent: Spent
    times: tuple[WaitsFor, ...] = ()
    paused: ev.RunSteered | None = None
    untold: tuple[ev.RunSteered, ...] = ()
    works: tuple[WorkView, ...] = ()
    stuck: WaitsFor | None = None
    denied: tuple[ev.SandboxDenied, ...] = ()
    drives: tuple[tuple[float, float | None], ...] = ()
    """When each drive began and ended; the end of one that goes on, or was killed, is None."""

    @property
    def waits_for(self) -> tuple[WaitsFor, ...]:
        """What it waits for, people and senders first."""
        gates = map(wait_for_answer, self.gates)
        signals = (WaitsFor("signal", wait.path, wait.name, A_SENDER) for wait in self.signals)
        needs = (WaitsFor("person", "", what, A_PERSON) for what in self.needs)
        paused = () if self.paused is None else (unpause_of(self.paused),)
        if self.stuck is not None:
            return (*paused, self.stuck)
        return (*paused, *needs, *gates, *signals, *self.times)

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON-safe data."""
        end = self.end
        known: dict[str, Any] = {
            "inputs": plain(self.inputs),
            "value": None if end is None else plain(end.value),
            "error": None if end is None else end.error,
            "failed_step": None if end is None else end.failed_step,
            "orphaned": () if end is None else end.orphaned,
            **self.spent.to_dict(),
            "steps": (),
            "waiting": self.gates,
            "waiting_signals": [wait.name for wait in self.signals],
            "needs": self.needs,
            "waits_for": self.waits_for,
            "incidents": [incident_of(incident.step) for incident in self.incidents],
            "work": [work.to_dict() for work in self.works],
            "denied": [{"path": d.path, "what": d.what, "source": d.source} for d in self.denied],
            "untold": [{"text": act.value, "path": act.path, "by": act.by} for act in self.untold],
            "unread": [{"type": type(event).__name__, **_fields(event)} for event in self.inbox],
        }
        steps = [step.to_dict() for step in self.steps]
        return {name: json_safe(value) for name, value in known.items()} | {"steps": steps}


def _fields(event: ev.Event) -> Mapping[str, Any]:
    data = json_safe(event)
    assert isinstance(data, dict)
    return data


def end_view(
    result: StepResult[Any],
    cause: FailureCause | None = None,
    answer: ev.GateAnswered | None = None,
) -> StepView:
    """The end of a step as it is shown, from its result."""
    return StepView(
        result.path, 0, result.step_type, result.status, result.attempts, result.duration_ms, cause,
        result.output, answer, handled=result.handled, given_by=result.given_by,
        spent=None if result.usage is None else Spent(1, result.usage),
    )  # fmt: skip


def end_in(events: Iterable[ev.Event], step: StepView) -> StepResult[Any] | None:
    """The result of a step among the events of its path; None if it has not ended since."""
    ends = [event.result for event in events if isinstance(event, ev.Ended)]
    return ends[-1] if ends and step.duration_ms is not None else None


def exit_code_of(output: Any) -> int:
    """The exit code of a command's result; 0 for any other output."""
    return output.exit_code if isinstance(output, CommandResult) else 0


def plain(value: Any, *, tagged: bool = True) -> Any:
    """A value as data. Values of a class that is not known here become their recorded JSON, with
    the names of classes if ``tagged``.
    """
    if isinstance(value, Unresolved):
        return json.loads(value.text) if tagged else value.data
    if type(value) is dict:
        items = cast("Iterable[tuple[Any, Any]]", value.items())
        return {key: plain(item, tagged=tagged) for key, item in items}
    if type(value) in {list, tuple}:
        inside = cast("Iterable[Any]", value)
        return type(value)(plain(item, tagged=tagged) for item in inside)
    return value


# -- a record --------------------------------------------------------------------------------------


def view_of(
    recorded: Recorded,
    inbox: Sequence[ev.Event] = (),
    *,
    alive: bool,
    now: float,
    stuck: WaitsFor | None = None,
) -> RunView:
    """The view of a run by its record. ``inbox``: messages that it has not read yet; ``alive``: a
    process drives it; ``stuck``: what it waits for if the code cannot go on with its record.
    """
    return _View(recorded, alive=alive, now=now).with_messages(inbox, stuck)


class _View:
    """How a run stands at one time."""

    def __init__(self, recorded: Recorded, *, alive: bool, now: float) -> None:
        self._recorded, self._alive, self._now = recorded, alive, now
        self._spent = {path: one.spent(alive=alive) for path, one in recorded.accounts.items()}
        self._works = tuple(works_of(recorded))
        self._sizes = {work.path: work.size for work in self._works if not work.over}

    def with_messages(self, inbox: Sequence[ev.Event], stuck: WaitsFor | None) -> RunView:
        """The view of the run, with messages that it has not read yet."""
        recorded, over = self._recorded, self._recorded.completed is not None
        answered = {event.path for event in inbox if isinstance(event, ev.GateAnswered)}
        gates = (gate for path, gate in recorded.open_gates.items() if path not in answered)
        acts = (act for act in inbox if isinstance(act, ev.RunSteered) and act.action == "guide")
        paused = () if recorded.paused is None else (recorded.paused,)
        return RunView(
            recorded.inputs,
            recorded.completed,
            recorded.suspended_for,
            _with_causes(list(self._steps())),
            () if over else tuple(gates),
            () if over else self._signals(inbox),
            tuple(inbox),
            (*(() if stuck is None else (stuck.what,)), *self._needs()),
            tuple(self._incidents()),
            sum(self._spent.values(), Spent()),
            () if over else tuple(self._times_left()),
            None if over else paused_by((*paused, *inbox)),
            (*(guide.event for guide in recorded.guidance.waiting), *acts),
            self._works,
            stuck,
            tuple(recorded.denied),
            tuple(recorded.drives),
        )

    def _needs(self) -> tuple[str, ...]:
        """What a person must do first."""
        needed = (wait.what for wait in self._recorded.waits.values() if wait.kind == "person")
        return tuple(dict.fromkeys(needed))

    def _times_left(self) -> Iterator[WaitsFor]:
        """The open waits for a time or a claim. While a process drives the run, a time that has
        come is no wait; while none does, no step waits for a claim.
        """
        for wait in sorted(self._recorded.waits.values(), key=lambda wait: wait.until or 0.0):
            lasts = not self._alive or (wait.until or 0.0) > self._now
            if (wait.kind == "time" and lasts) or (wait.kind == "claim" and self._alive):
                yield wait

    def _incidents(self) -> Iterator[IncidentView]:
        """The failed launches, in order."""
        for place, step in enumerate(self._recorded.failed_launches):
            followed = self._recorded.followed.get(place)
            due = max(step.due, step.at)
            if step.parked:
                yield IncidentView(step, followed)
            elif followed is not None:
                yield IncidentView(step, min(due, followed))
            else:
                yield IncidentView(step, due if due <= self._now else None)

    def _signals(self, inbox: Sequence[ev.Event]) -> tuple[OpenSignal, ...]:
        recorded = self._recorded
        come = {*recorded.signals_left()}
        come |= {event.name for event in inbox if isinstance(event, ev.SignalReceived)}
        records = ((recorded.at(path), path) for path in recorded.paths_below(""))
        names = {step.signal: path for step, path in records if step.signal and not step.ended()}
        accepts = {
            one.signal: one.accepts for one in recorded.awaited.values() if one.accepts is not None
        }
        return tuple(
            OpenSignal(name, accepts.get(name), path)
            for name, path in names.items()
            if name not in come
        )

    def _steps(self) -> Iterator[StepView]:
        """The steps whose records count, parents first; without inner causes."""
        tree = self._recorded.tree_below("", whole=True)
        stack = [(path, 0) for path in reversed(tree.get("", {}))]
        while stack:
            path, depth = stack.pop()
            state = self._recorded.at(path)
            is_question = not state.kind and state.gates
            yield (self._question if is_question else self._step)(path, depth, state)
            stack += [(below, depth + 1) for below in reversed(tree.get(path, {}))]

    def _step(self, path: str, depth: int, step: PathState) -> StepView:
        recorded, end = self._recorded, step.end
        kind, told = step.kind or "member", recorded.told.get(path, ())
        answer, spent = recorded.answers.get(path), self._spent.get(path)
        size = self._sizes.get(path, recorded.sizes.get(path))
        if end is None:
            state = self._unfinished(path, kind)
            attempts = step.attempts + (not verb_of(kind).waits and state != "open")
            failed, name = step.failure, path.rpartition("/")[2]
            cause = None if failed is None else FailureCause.of(path, name, failed)
            return StepView(
                path, depth, kind, state, attempts, None, cause, None, answer, None, spent,
                told=told, size=size, began=step.began, stretches=step.stretches,
            )  # fmt: skip
        has_failed = end.error is not None or end.error_type is not None
        cause = FailureCause.of(path, end.name, end) if has_failed else None
        return StepView(
            path, depth, kind, end.status, end.attempts, end.duration_ms, cause, end.output, answer,
            step.undone, spent, end.handled, end.given_by, told, size,
            step.began, step.ended_at, step.stretches,
        )  # fmt: skip

    def _unfinished(self, path: str, kind: str) -> StepState:
        waits = self._recorded.wait_of(path, self._now) is not None
        if verb_of(kind).waits or (self._alive and waits):
            return "waiting"
        if self._alive:
            return "running"
        return "interrupted" if self._recorded.broke_off(path) else "open"

    def _question(self, path: str, depth: int, question: PathState) -> StepView:
        """A question that is no step of its own, such as whether an agent may be launched."""
        recorded = self._recorded
        answer, gates = recorded.answers.get(path), question.gates or {}
        if answer is None:
            over = recorded.at(path.rpartition("/")[0]).ended()
            state: StepState = "cancelled" if over else "waiting"
            return StepView(
                path, depth, "ask", state, began=question.began, stretches=question.stretches
            )
        since = min((gate.since for gate in gates.values()), default=0.0)
        duration_ms = max(0.0, (answer.at - since) * 1000)
        return StepView(
            path, depth, "ask", "succeeded", 1, duration_ms, output=answer.answer, answer=answer,
            began=question.began, ended_at=question.ended_at, stretches=question.stretches,
        )  # fmt: skip


def _with_causes(steps: list[StepView]) -> tuple[StepView, ...]:
    """The steps, each error with the error of the step below that caused it."""
    below: dict[int, list[FailureCause]] = {}
    for place in range(len(steps) - 1, -1, -1):  # children before parents
        step = steps[place]
        failed = below.pop(step.depth + 1, [])
        if step.cause is not None and step.cause.error:
            cause = step.cause.with_inner(failed)
            if cause is not step.cause:
                steps[place] = replace(step, cause=cause)
            if step.state == "failed":
                below.setdefault(step.depth, []).append(cause)
    return tuple(steps)
