"""A run for people, as plain data without words: its steps, waits, incidents and spending.

``view_of`` reads a history. Which records of it count is for ``RunRecord`` to say; the rest is one
fold. ``record.live_view`` is the same of a run that is under way, event by event, for those who
draw it ten times a second. Whoever shows a run draws one of the two: the console, the log, the
command, a page.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, TypeAlias, cast

from handrail.codec.unresolved import Unresolved
from handrail.model import events as ev
from handrail.model.dataclass import dataclass
from handrail.model.described import raised_in
from handrail.model.paths import is_budget_gate
from handrail.model.results import (
    A_PERSON,
    A_SENDER,
    CommandResult,
    Failure,
    OpenGate,
    RunStatus,
    StepStatus,
    Usage,
    WaitsFor,
    add_usage,
    own_usage,
)
from handrail.ports.journal import RunInfo, wait_begun
from handrail.record.guidance import Told, told_by
from handrail.record.inbox import paused_by, unpause_of
from handrail.record.results import incident_of
from handrail.record.run_record import PathRecord, Recorded
from handrail.record.work_view import WorkView, works_of
from handrail.steps.verbs import LAUNCHED
from handrail.typed.jsonsafe import json_safe

StepState: TypeAlias = StepStatus | Literal["running", "waiting", "interrupted", "open"]
"""``open``: it has begun, no process is running it, and it was not at work itself."""

ShownStatus: TypeAlias = RunStatus | Literal["running", "paused", "dead", "damaged"]
"""``dead``: it has no end, and no process is running it. ``damaged``: its record is not as it was.
``paused``: somebody lets nothing of it begin, whether a process is running it or not.
"""

IncidentKind: TypeAlias = Literal["cap", "retry", "overflow", "re-ask", "fallback", "suspension"]

_WAITS = frozenset({"ask", "wait_for", "sleep"})
_KIND_OF_RUNG: Mapping[str, IncidentKind] = {
    "fallback": "fallback",
    "reask": "re-ask",
    "reframe": "re-ask",
    "compact": "overflow",
    "summarise": "overflow",
}


def state_of(info: RunInfo) -> ShownStatus:
    """How a run stands, by its line in the journal."""
    if info.damaged:
        return "damaged"
    if any(one.kind == "unpause" for one in info.waits_for):
        return "paused"
    if info.holder is not None:
        return "running"
    return info.status or "dead"


@dataclass(frozen=True, slots=True)
class Cause:
    """A failure as it was recorded, and the one inside of it that it came from, if it is known.

    ``place`` is ``file:line`` of the author's code that it passed through last, if it did.
    """

    path: str
    name: str
    error: str
    error_type: str | None = None
    inner: Cause | None = None
    place: str = ""

    @property
    def origin(self) -> Cause:
        """The innermost failure: the step that failed by itself."""
        found = self
        while found.inner is not None:
            found = found.inner
        return found

    def brings(self, error: str) -> bool:
        """True if this is what the error of a step around it speaks of."""
        before, found, _ = error.partition(self.error)
        return bool(found) and (
            f"{self.name!r} failed" in before or f"{self.path!r} failed" in before
        )

    def with_inner(self, below: Iterable[Cause]) -> Cause:
        """The same with the first of the failures below that it speaks of, if it does."""
        inner = next((one for one in below if one.brings(self.error)), None)
        return self if inner is None else replace(self, inner=inner)


@dataclass(frozen=True, slots=True)
class Spent:
    """Launches of agents, and what those used that said it.

    ``unknown_tokens`` and ``unknown_cost`` are the launches that ended without saying it.
    """

    launches: int = 0
    usage: Usage | None = None
    unknown_tokens: int = 0
    unknown_cost: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.launches + other.launches,
            add_usage(self.usage, other.usage),
            self.unknown_tokens + other.unknown_tokens,
            self.unknown_cost + other.unknown_cost,
        )

    def to_dict(self) -> dict[str, Any]:
        """All fields; None in ``usage`` is unknown."""
        return {
            "launches": self.launches,
            "usage": json_safe(self.usage),
            "unknown_tokens": self.unknown_tokens,
            "unknown_cost": self.unknown_cost,
        }


@dataclass(frozen=True, slots=True)
class IncidentView:
    """A failed launch of an agent and what followed; ``over_at``: when the wait for that was over,
    None while it lasts.
    """

    step: ev.LadderStep
    over_at: float | None

    @property
    def kind(self) -> IncidentKind:
        """What it counts as."""
        if self.step.parked:
            return "suspension"
        by_rung = _KIND_OF_RUNG.get(self.step.next.rung)
        return by_rung or ("cap" if self.step.kind == "usage_cap" else "retry")


@dataclass(frozen=True, slots=True)
class SignalWait:
    """A signal that has not come, and whether the step that waits says which payload it takes."""

    name: str
    typed: bool
    path: str = ""


@dataclass(frozen=True, slots=True)
class StepView:
    """One step, member of a group, or question whether a budget may be passed.

    ``duration_ms`` is None while it has no end, ``cause`` None if it has no error, ``answer`` that
    of a question that was answered, ``undone`` the end of its rollback, ``spent`` of an agent's
    step, ``handled`` the failures that it got over, ``given_by`` who gave its output for it,
    ``told`` what people said to its agent.
    """

    path: str
    depth: int
    step_type: str
    state: StepState
    attempts: int = 1
    duration_ms: float | None = None
    cause: Cause | None = None
    output: Any = None
    answer: ev.GateAnswered | None = None
    undone: ev.RollbackCompleted | None = None
    spent: Spent | None = None
    handled: tuple[Failure, ...] = ()
    given_by: str | None = None
    told: tuple[Told, ...] = ()

    @property
    def status(self) -> StepState:
        """The same as ``state``: how it stands, or how it ended."""
        return self.state

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
            "output": json_safe(plain(self.output)),
            **({} if self.spent is None else self.spent.to_dict()),
            **({} if self.answer is None else {"answered_by": self.answer.by}),
            **({"handled": json_safe(self.handled)} if self.handled else {}),
            **({"given_by": self.given_by} if self.given_by else {}),
            **({"told": json_safe(self.told)} if self.told else {}),
            **({} if self.undone is None else {"undone": {"error": self.undone.error}}),
        }


@dataclass(frozen=True, slots=True)
class RunView:
    """A recorded run: its steps, those above before those below them, and what it waits for.

    ``end`` is None if it has none, or was resumed after it. ``suspended_for`` says why its last
    drive was suspended, ``needs`` what a person must do first. ``inbox`` are messages that it has
    not read yet, ``untold`` what people said to agents that was given to none.
    """

    inputs: Any
    end: ev.WorkflowCompleted | None
    suspended_for: str
    steps: tuple[StepView, ...]
    gates: tuple[OpenGate, ...]
    signals: tuple[SignalWait, ...]
    inbox: tuple[ev.Event, ...]
    needs: tuple[str, ...]
    incidents: tuple[IncidentView, ...]
    spent: Spent
    times: tuple[WaitsFor, ...] = ()
    paused: ev.RunSteered | None = None
    untold: tuple[ev.RunSteered, ...] = ()
    works: tuple[WorkView, ...] = ()

    @property
    def waits_for(self) -> tuple[WaitsFor, ...]:
        """What it waits for, people and senders first."""
        gates = (
            WaitsFor("answer", one.path, one.question, A_PERSON, one.deadline) for one in self.gates
        )
        signals = (WaitsFor("signal", one.path, one.name, A_SENDER) for one in self.signals)
        needs = (WaitsFor("person", "", one, A_PERSON) for one in self.needs)
        paused = () if self.paused is None else (unpause_of(self.paused),)
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
            "incidents": [incident_of(one.step) for one in self.incidents],
            "work": [one.to_dict() for one in self.works],
            "untold": [{"text": one.value, "path": one.path, "by": one.by} for one in self.untold],
            "unread": [{"type": type(one).__name__, **_fields(one)} for one in self.inbox],
        }
        steps = [step.to_dict() for step in self.steps]
        return {name: json_safe(value) for name, value in known.items()} | {"steps": steps}


def _fields(event: ev.Event) -> Mapping[str, Any]:
    found = json_safe(event)
    assert isinstance(found, dict)
    return found


def exit_code_of(output: Any) -> int:
    """That of a command's result; 0 of all else."""
    return output.exit_code if isinstance(output, CommandResult) else 0


def plain(value: Any, *, tagged: bool = True) -> Any:
    """A value as data, with what is of a class that is not known here as it is written: with the
    names of classes, or without.
    """
    if isinstance(value, Unresolved):
        return json.loads(value.text) if tagged else value.data
    if type(value) is dict:
        items = cast("Iterable[tuple[Any, Any]]", value.items())
        return {key: plain(one, tagged=tagged) for key, one in items}
    if type(value) in {list, tuple}:
        inside = cast("Iterable[Any]", value)
        return type(value)(plain(one, tagged=tagged) for one in inside)
    return value


# -- a history -------------------------------------------------------------------------------------


def view_of(
    history: Sequence[ev.Event], inbox: Sequence[ev.Event] = (), *, alive: bool, now: float
) -> RunView:
    """A run as its history says. ``inbox``: messages that it has not read yet; ``alive``: a process
    is running it.
    """
    fold = _Fold()
    for event in history:
        fold.apply(event)
    for event in inbox:
        fold.apply(event)
    recorded = Recorded(history)
    spent = {path: account.spent(alive=alive) for path, account in fold.accounts.items()}
    steps = _with_causes(
        [
            fold.completed(one, alive=alive)
            for one in _steps(recorded, fold.kinds, spent, alive=alive)
        ]
    )
    new = (one for one in inbox if isinstance(one, ev.RunSteered) and one.action == "guide")
    return RunView(
        fold.inputs,
        fold.end,
        fold.suspended_for,
        steps,
        () if fold.end is not None else tuple(fold.gates.values()),
        () if fold.end is not None else _signals(recorded, fold, inbox),
        tuple(inbox),
        tuple(dict.fromkeys(fold.needs.values())),
        tuple(fold.incidents(now)),
        sum(spent.values(), Spent()),
        () if fold.end is not None else tuple(fold.times_left(now, alive=alive)),
        None if fold.end is not None else paused_by((*history, *inbox)),
        (*(one.event for one in recorded.guidance.waiting), *new),
        tuple(works_of(recorded)),
    )


class _Fold:
    """What a history says besides its steps. Mutable."""

    def __init__(self) -> None:
        self.inputs: Any = {}
        self.end: ev.WorkflowCompleted | None = None
        self.suspended_for = ""
        self.kinds: dict[str, str] = {}
        self.accepts: dict[str, tuple[str, Any]] = {}
        """Of steps that wait for a signal: its name, and the type of its payload."""
        self.gates: dict[str, OpenGate] = {}
        self.needs: dict[str, str] = {}
        self.times: dict[str, WaitsFor] = {}
        """Of steps that wait for a time: until when, and why."""
        self.accounts: dict[str, _Account] = {}
        self.told: dict[str, list[Told]] = {}
        """What people said to agents, by path."""
        self._failed: list[ev.LadderStep] = []
        self._followed: dict[int, float] = {}
        """When something followed a failed launch, by the launch's place in the list."""
        self._latest: dict[str, int] = {}

    def apply(self, event: ev.Event) -> None:
        """Take note of an event."""
        match event:
            case ev.WorkflowStarted():
                self.inputs = event.inputs
            case ev.StepStarted():
                self._step_started(event)
            case ev.TimerSet() | ev.ClaimWaiting() | ev.ClaimGranted() | ev.ClaimLost():
                self._wait(event)
            case ev.GateOpened():
                self.gates[event.path] = event.gate
            case ev.GateAnswered():
                self.gates.pop(event.path, None)
            case ev.RunResumed():
                self._run_resumed(event)
            case ev.RunSuspended():
                self.end, self.suspended_for = None, event.reason
                self._forget_claims()
            case ev.WorkflowCompleted():
                self.end, self.suspended_for = event, ""
                self.needs.clear()
                self.accepts.clear()
            case ev.LadderStep() | ev.AttemptFailed() | ev.StepCompleted():
                self._launch_over(event)
            case ev.AgentSessionStarted() | ev.BudgetReserved() | ev.BudgetSettled():
                self._account(event)
            case ev.AgentGuided():
                self.told.setdefault(event.path, []).extend(told_by(event))
                self.times.pop(event.path, None)
                self._account(event)
            case _:
                pass

    def _step_started(self, event: ev.StepStarted) -> None:
        path = event.path
        self.kinds[path] = event.step_type
        if event.signal and event.verdict is not False:
            self.accepts[path] = (event.signal, event.accepts)
        if event.step_type in LAUNCHED and event.verdict is not False:
            self.accounts.setdefault(path, _Account()).started()

    def _run_resumed(self, event: ev.RunResumed) -> None:
        self.end, self.suspended_for = None, ""
        self._forget_claims()
        self.needs.clear()
        self.accepts.clear()
        for path in event.superseded:
            self._close_gates(path)
            if path in self.accounts:
                self.accounts[path].forgotten()
        for place, step in enumerate(self._failed):
            if step.parked:
                self._followed.setdefault(place, event.at)

    def _launch_over(self, event: ev.LadderStep | ev.AttemptFailed | ev.StepCompleted) -> None:
        path = event.path
        self._account(event)
        self.times.pop(path, None)
        place = self._latest.pop(path, None)
        if place is not None and not self._failed[place].parked:
            self._followed[place] = event.at
        if isinstance(event, ev.LadderStep):
            self._latest[path] = len(self._failed)
            self._failed.append(event)
            if event.parked:
                self.needs[path] = event.error
            elif (wait := wait_begun(event)) is not None:
                self.times[path] = wait
        elif isinstance(event, ev.StepCompleted):
            self.needs.pop(path, None)
            self.accepts.pop(path, None)
            self._close_gates(path)

    def _wait(self, event: ev.TimerSet | ev.OfClaims) -> None:
        path, wait = event.path, wait_begun(event)
        if isinstance(event, (ev.ClaimGranted, ev.ClaimLost)):
            self.times.pop(path, None)
        elif wait is not None:
            known = self.times.get(path)  # of a launch, its failure has said why already
            if known is None or known.kind != "time" or known.until != wait.until:
                self.times[path] = wait

    def _forget_claims(self) -> None:
        for path in [path for path, wait in self.times.items() if wait.kind == "claim"]:
            del self.times[path]

    def times_left(self, now: float, *, alive: bool) -> Iterator[WaitsFor]:
        """What waits for a time; a process that is there waits for none that is over. One that is
        gone waits for no claim.
        """
        for wait in sorted(self.times.values(), key=lambda one: one.until or 0.0):
            lasts = (wait.until or 0.0) > now
            if alive if wait.kind == "claim" else not alive or lasts:
                yield wait

    def completed(self, step: StepView, *, alive: bool) -> StepView:
        """The step with what people said to its agent; it waits if another has what it claims."""
        told, wait = self.told.get(step.path), self.times.get(step.path)
        if told:
            step = replace(step, told=tuple(told))
        if alive and step.state == "running" and wait is not None and wait.kind == "claim":
            return replace(step, state="waiting")
        return step

    def _account(self, event: Any) -> None:
        if isinstance(event, ev.AgentSessionStarted):
            self.times.pop(event.path, None)
        account = self.accounts.get(event.path)
        if account is not None:
            account.take(event)

    def _close_gates(self, step: str) -> None:
        """Forget a step's own question, and those whether its agent may be launched."""
        for path in list(self.gates):
            if path == step or (is_budget_gate(step, path) and path not in self.kinds):
                del self.gates[path]

    def incidents(self, now: float) -> Iterator[IncidentView]:
        """The failed launches, in order."""
        for place, step in enumerate(self._failed):
            followed = self._followed.get(place)
            due = max(step.due, step.at)
            if step.parked:
                yield IncidentView(step, followed)
            elif followed is not None:
                yield IncidentView(step, min(due, followed))
            else:
                yield IncidentView(step, due if due <= now else None)


def _signals(recorded: Recorded, fold: _Fold, inbox: Sequence[ev.Event]) -> tuple[SignalWait, ...]:
    come = {*recorded.signals_left()}
    come |= {event.name for event in inbox if isinstance(event, ev.SignalReceived)}
    records = ((recorded.at(path), path) for path in recorded.paths_below(""))
    names = {one.signal: path for one, path in records if one.signal and not one.ended()}
    typed = {name for name, accepts in fold.accepts.values() if accepts is not None}
    return tuple(
        SignalWait(name, name in typed, path) for name, path in names.items() if name not in come
    )


# -- steps -----------------------------------------------------------------------------------------


def _steps(
    recorded: Recorded, kinds: Mapping[str, str], spent: Mapping[str, Spent], *, alive: bool
) -> Iterator[StepView]:
    """The steps whose records count, those above before those below them; with no inner causes."""
    tree = recorded.tree_below("", whole=True)
    stack = [(path, 0) for path in reversed(tree.get("", {}))]
    while stack:
        path, depth = stack.pop()
        record, answer = recorded.at(path), recorded.answers.get(path)
        if record.gates and path not in kinds:
            above = recorded.at(path.rpartition("/")[0])
            yield _question(path, depth, record, answer, over=above.ended())
        else:
            kind = kinds.get(path, "member")
            yield _step(path, depth, kind, record, answer, spent=spent.get(path), alive=alive)
        stack += [(below, depth + 1) for below in reversed(tree.get(path, {}))]


def _step(
    path: str,
    depth: int,
    kind: str,
    record: PathRecord,
    answer: ev.GateAnswered | None,
    *,
    spent: Spent | None,
    alive: bool,
) -> StepView:
    end = record.end or record.member_end
    if end is not None:
        cause = None
        if end.error is not None or end.error_type is not None:
            place = raised_in(end.traceback)
            cause = Cause(path, end.name, end.error or "", end.error_type, place=place)
        return StepView(
            path,
            depth,
            kind,
            end.status,
            end.attempts,
            end.duration_ms,
            cause,
            end.output,
            answer,
            record.undone,
            spent,
            end.handled,
            end.given_by,
        )
    state = _unfinished(kind, record, alive=alive)
    attempts = record.attempts + (state in {"running", "interrupted"})
    failed, cause = record.failure, None
    if failed is not None:
        name, place = path.rpartition("/")[2], raised_in(failed.traceback)
        cause = Cause(path, name, failed.error, failed.error_type, place=place)
    return StepView(path, depth, kind, state, attempts, cause=cause, answer=answer, spent=spent)


def _question(
    path: str, depth: int, record: PathRecord, answer: ev.GateAnswered | None, *, over: bool
) -> StepView:
    """What was asked about a step that has no step of its own, and what somebody said."""
    since = min((gate.since for gate in (record.gates or {}).values()), default=0.0)
    if answer is None:
        return StepView(path, depth, "ask", "cancelled" if over else "waiting")
    duration_ms = max(0.0, (answer.at - since) * 1000)
    return StepView(
        path, depth, "ask", "succeeded", 1, duration_ms, output=answer.answer, answer=answer
    )


def _unfinished(kind: str, record: PathRecord, *, alive: bool) -> StepState:
    if kind in _WAITS:
        return "waiting"
    if alive:
        return "running"
    return "interrupted" if record.interrupted else "open"


def _with_causes(steps: list[StepView]) -> tuple[StepView, ...]:
    """The steps, each error with that of the step below that it comes from."""
    below: dict[int, list[Cause]] = {}
    for place in range(len(steps) - 1, -1, -1):  # what is below before what is above it
        step = steps[place]
        failed = below.pop(step.depth + 1, [])
        if step.cause is not None and step.cause.error:
            cause = step.cause.with_inner(failed)
            if cause is not step.cause:
                steps[place] = replace(step, cause=cause)
            if step.state == "failed":
                below.setdefault(step.depth, []).append(cause)
    return tuple(steps)


# -- spending --------------------------------------------------------------------------------------


_REFUSED = frozenset({
    "handrail.errors.BudgetExceeded", "handrail.errors.StepIsPoisonous",
    "handrail.errors.StepWasInterrupted",
})  # fmt: skip
"""Errors of attempts that made no launch, or none besides those that are known."""


class _Account:
    """The launches of one step: each by its number, with what it used itself. Mutable."""

    def __init__(self) -> None:
        self._used: dict[int, Usage | None] = {}
        self._next = 1
        """The number of the launch that is at work, or comes next."""
        self._before: Usage | None = None
        """What the launches before it, in its attempt, used together."""
        self._over = False

    def started(self) -> None:
        if self._before is None:
            self._next = max(self._used, default=0) + 1
        self._over = False

    def forgotten(self) -> None:
        self._before = None

    def take(self, event: Any) -> None:
        self._TAKE[type(event)](self, event)

    def _known(self, event: ev.AgentSessionStarted | ev.BudgetReserved) -> None:
        self._next = event.launch
        self._used.setdefault(event.launch, None)
        self._over = False

    def _settled(self, event: ev.BudgetSettled) -> None:
        self._used[event.launch] = event.usage or self._used.get(event.launch)

    def _climbed(self, event: ev.LadderStep) -> None:
        if event.kind != "budget":  # then no launch was made
            self._ended(event.next.number - 1, event.next.spent)
        self._next = event.next.number
        self._before = event.next.spent

    def _guided(self, event: ev.AgentGuided) -> None:
        if event.next.turn > 1:  # the launch before it was broken off, if it did not fail
            self._ended(event.next.number - 1, event.next.spent)
        self._next = event.next.number
        self._before = event.next.spent
        self._over = False

    def _failed(self, event: ev.AttemptFailed) -> None:
        if event.error_type not in _REFUSED or self._next in self._used:
            self._ended(self._next, event.usage)
        self._attempt_over()

    def _completed(self, event: ev.StepCompleted) -> None:
        # An attempt that failed has said it before; see ``AttemptFailed``.
        status, is_own = event.result.status, not event.result.handled
        if (status == "succeeded" and is_own) or (status == "cancelled" and event.used is not None):
            self._ended(self._next, event.used)
        self._attempt_over()
        self._over = True

    def _attempt_over(self) -> None:
        self._before = None
        self._next = max(self._used, default=0) + 1

    def _ended(self, number: int, total: Usage | None) -> None:
        own = _without(total, self._before)
        self._used[number] = own or self._used.get(number)

    def spent(self, *, alive: bool) -> Spent:
        """The sum."""
        found = Spent()
        for number, used in self._used.items():
            at_work = alive and not self._over and number == self._next
            silent = Usage() if used is None else used
            found += Spent(
                1,
                used,
                int(silent.tokens is None and not at_work),
                int(silent.cost_usd is None and not at_work),
            )
        return found

    _TAKE: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        ev.AgentSessionStarted: _known,
        ev.BudgetReserved: _known,
        ev.BudgetSettled: _settled,
        ev.LadderStep: _climbed,
        ev.AgentGuided: _guided,
        ev.AttemptFailed: _failed,
        ev.StepCompleted: _completed,
    }


def _without(total: Usage | None, before: Usage | None) -> Usage | None:
    """What one launch used, of sums; None if that is not known."""
    if total is None or before is None:
        return total
    own = own_usage(total, before)
    return None if own == Usage(cost_source=own.cost_source) else own
