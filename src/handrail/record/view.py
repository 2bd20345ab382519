"""A run for people, as plain data without words: its steps, waits, incidents and spending.

``view_of`` reads a history, ``Reading`` one that grows. ``Recorded`` decides which records count;
the rest is one fold. ``record.live_view`` does the same for a run that is under way, event by
event, for displays that draw it ten times a second. The console, the log, the command and the page
each draw one of the two.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, ClassVar, Literal, TypeAlias, cast

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
    Usage,
    WaitsFor,
    WorkflowResult,
    add_usage,
    own_usage,
)
from handrail.record.guidance import GivenGuidance, given_guidance
from handrail.record.inbox import asked_by, paused_by, unpause_of
from handrail.record.results import incident_of
from handrail.record.run_record import Recorded
from handrail.record.status import step_wait_after
from handrail.record.work_view import WorkView, works_of
from handrail.shortening import reason_of
from handrail.steps.verbs import LAUNCHED, WAIT_KINDS
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
        found = self
        while found.inner is not None:
            found = found.inner
        return found

    def place_in(self, error: str) -> int | None:
        """Where the error of a step around it names this failure; None if it does not."""
        before, found, _ = error.partition(self.error)
        is_named = f"{self.name!r} failed" in before or f"{self.path!r} failed" in before
        return len(before) if found and is_named else None

    def with_inner(self, below: Iterable[FailureCause]) -> FailureCause:
        """This failure, caused by the failure ``below`` that its error names first, if any.

        ``below`` has the last failure first: of two attempts at a step, the second one counts.
        """
        places = ((one.place_in(self.error), one) for one in below)
        named = [(place, one) for place, one in places if place is not None]
        return replace(self, inner=min(named, key=itemgetter(0))[1]) if named else self


@dataclass(frozen=True, slots=True)
class Spent:
    """How many launches agents had, and what these used, as far as they reported it.

    ``unknown_tokens`` and ``unknown_cost`` count launches that ended without reporting it.
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

    @property
    def waits_for(self) -> tuple[WaitsFor, ...]:
        """What it waits for, people and senders first."""
        gates = (
            WaitsFor("answer", one.path, one.question, A_PERSON, one.deadline) for one in self.gates
        )
        signals = (WaitsFor("signal", one.path, one.name, A_SENDER) for one in self.signals)
        needs = (WaitsFor("person", "", one, A_PERSON) for one in self.needs)
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
            "incidents": [incident_of(one.step) for one in self.incidents],
            "work": [one.to_dict() for one in self.works],
            "denied": [{"path": d.path, "what": d.what, "source": d.source} for d in self.denied],
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
        return {key: plain(one, tagged=tagged) for key, one in items}
    if type(value) in {list, tuple}:
        inside = cast("Iterable[Any]", value)
        return type(value)(plain(one, tagged=tagged) for one in inside)
    return value


# -- a history -------------------------------------------------------------------------------------


def view_of(
    history: Sequence[ev.Event],
    inbox: Sequence[ev.Event] = (),
    *,
    alive: bool,
    now: float,
    stuck: WaitsFor | None = None,
) -> RunView:
    """The view of a run by its history. ``inbox``: messages that it has not read yet; ``alive``: a
    process drives it; ``stuck``: what it waits for if the code cannot go on with its record.
    """
    return Reading().view_of(history, inbox, alive=alive, now=now, stuck=stuck)


class Reading:
    """Reads one run, whose history grows. Mutable: it knows how far it has read.

    ``Recorded`` takes the same events and decides which records count; the rest is kept here, by
    path.
    """

    def __init__(self) -> None:
        self._known = 0
        self._recorded = Recorded()
        self._suspended_for = ""
        self._kinds: dict[str, str] = {}
        self._sizes: dict[str, int | None] = {}
        """Of groups: how many members they have."""
        self._accepts: dict[str, tuple[str, Any]] = {}
        """Of steps that wait for a signal: its name, and the type of its payload."""
        self._gates: dict[str, OpenGate] = {}
        self._waits: dict[str, WaitsFor] = {}
        """Of steps that wait for a time, for a claim, or for what a person must do first."""
        self._accounts: dict[str, _Account] = {}
        self._told: dict[str, tuple[GivenGuidance, ...]] = {}
        """The guidance that agents got, by path."""
        self._failed: list[ev.LadderStep] = []
        self._refused: list[ev.SandboxDenied] = []
        self._followed: dict[int, float] = {}
        """When another launch, or an end, followed a failed launch, by its index in ``_failed``."""
        self._latest: dict[str, int] = {}

    def view_of(
        self,
        history: Sequence[ev.Event],
        inbox: Sequence[ev.Event] = (),
        *,
        alive: bool,
        now: float,
        stuck: WaitsFor | None = None,
    ) -> RunView:
        """The view of a history that begins with the history of the previous call."""
        self._take(history[self._known :])
        recorded, over = self._recorded, self._recorded.completed is not None
        spent = {path: account.spent(alive=alive) for path, account in self._accounts.items()}
        answered = {one.path for one in inbox if isinstance(one, ev.GateAnswered)}
        gates = (gate for path, gate in self._gates.items() if path not in answered)
        said = (one for one in inbox if isinstance(one, ev.RunSteered) and one.action == "guide")
        paused = () if recorded.paused is None else (recorded.paused,)
        works = tuple(works_of(recorded))
        self._sizes |= {one.path: one.size for one in works if not one.over}
        return RunView(
            recorded.inputs,
            recorded.completed,
            self._suspended_for,
            _with_causes(list(self._steps(spent, now, alive=alive))),
            () if over else tuple(gates),
            () if over else self._signals(inbox),
            tuple(inbox),
            (*(() if stuck is None else (stuck.what,)), *self._needs()),
            tuple(self._incidents(now)),
            sum(spent.values(), Spent()),
            () if over else tuple(self._times_left(now, alive=alive)),
            None if over else paused_by((*paused, *inbox)),
            (*(one.event for one in recorded.guidance.waiting), *said),
            works,
            stuck,
            tuple(self._refused),
        )

    # -- what happened -----------------------------------------------------------------------

    def _take(self, new: Sequence[ev.Event]) -> None:
        self._known += len(new)
        self._recorded.take(new)
        for event in new:
            for take in self._TAKE.get(type(event), ()):
                take(self, event)

    def _run_resumed(self, event: ev.RunResumed) -> None:
        self._suspended_for = ""
        self._forget_waits("claim", "person")
        self._accepts.clear()
        for path in event.superseded:
            self._close_gates(path)
            if path in self._accounts:
                self._accounts[path].forgotten()
        for place, step in enumerate(self._failed):
            if step.parked:
                self._followed.setdefault(place, event.at)

    def _run_suspended(self, event: ev.RunSuspended) -> None:
        self._suspended_for = event.reason
        self._forget_waits("claim")

    def _run_ended(self, _: ev.WorkflowCompleted) -> None:
        self._suspended_for = ""
        self._forget_waits("person")
        self._accepts.clear()

    def _step_started(self, event: ev.StepStarted) -> None:
        path = event.path
        self._kinds[path] = event.step_type
        if event.signal and event.verdict is not False:
            self._accepts[path] = (event.signal, event.accepts)
        if event.step_type in LAUNCHED and event.verdict is not False:
            self._accounts.setdefault(path, _Account()).started()

    def _step_completed(self, event: ev.StepCompleted) -> None:
        self._accepts.pop(event.path, None)
        self._close_gates(event.path)

    def _group_started(self, event: ev.GroupStarted) -> None:
        self._sizes[event.path] = event.size

    def _group_grew(self, event: ev.WorkGrew | ev.GroupCompleted) -> None:
        self._sizes[event.path] = max(self._sizes.get(event.path) or 0, event.total)

    def _gate_opened(self, event: ev.GateOpened) -> None:
        self._gates[event.path] = event.gate

    def _gate_answered(self, event: ev.GateAnswered) -> None:
        self._gates.pop(event.path, None)

    def _close_gates(self, step: str) -> None:
        """Forget a step's own question, and questions whether its agent may be launched."""
        for path in asked_by(step, self._gates, self._kinds):
            del self._gates[path]

    def _launch_over(self, event: ev.LadderStep | ev.AttemptFailed | ev.StepCompleted) -> None:
        place = self._latest.pop(event.path, None)
        if place is not None and not self._failed[place].parked:
            self._followed[place] = event.at

    def _launch_failed(self, event: ev.LadderStep) -> None:
        self._latest[event.path] = len(self._failed)
        self._failed.append(event)

    def _denied(self, event: ev.SandboxDenied) -> None:
        self._refused.append(event)

    def _guided(self, event: ev.AgentGuided) -> None:
        self._told[event.path] = (*self._told.get(event.path, ()), *given_guidance(event))

    def _account(self, event: Any) -> None:
        account = self._accounts.get(event.path)
        if account is not None:
            account.take(event)

    def _wait(self, event: Any) -> None:
        path = event.path
        before = self._waits.get(path)
        wait = step_wait_after(event, before)
        if wait is not None:
            self._waits[path] = wait
        elif before is not None:
            del self._waits[path]

    def _forget_waits(self, *kinds: str) -> None:
        for path in [path for path, wait in self._waits.items() if wait.kind in kinds]:
            del self._waits[path]

    _TAKE: ClassVar[Mapping[type, tuple[Callable[[Any, Any], None], ...]]] = {
        ev.RunResumed: (_run_resumed,),
        ev.RunSuspended: (_run_suspended,),
        ev.WorkflowCompleted: (_run_ended,),
        ev.StepStarted: (_step_started,),
        ev.AttemptFailed: (_account, _wait, _launch_over),
        ev.StepCompleted: (_account, _wait, _launch_over, _step_completed),
        ev.GroupStarted: (_group_started,),
        ev.WorkGrew: (_group_grew,),
        ev.GroupCompleted: (_group_grew,),
        ev.GateOpened: (_gate_opened,),
        ev.GateAnswered: (_gate_answered,),
        ev.TimerSet: (_wait,),
        ev.ClaimWaiting: (_wait,),
        ev.ClaimGranted: (_wait,),
        ev.ClaimLost: (_wait,),
        ev.AgentSessionStarted: (_account, _wait),
        ev.AgentGuided: (_account, _wait, _guided),
        ev.LadderStep: (_account, _wait, _launch_over, _launch_failed),
        ev.BudgetReserved: (_account,),
        ev.BudgetSettled: (_account,),
        ev.SandboxDenied: (_denied,),
    }

    # -- how it stands -----------------------------------------------------------------------

    def _needs(self) -> tuple[str, ...]:
        """What a person must do first."""
        needed = (one.what for one in self._waits.values() if one.kind == "person")
        return tuple(dict.fromkeys(needed))

    def _times_left(self, now: float, *, alive: bool) -> Iterator[WaitsFor]:
        """The open waits for a time or a claim. While a process drives the run, a time that has
        come is no wait; while none does, no step waits for a claim.
        """
        for wait in sorted(self._waits.values(), key=lambda one: one.until or 0.0):
            lasts = not alive or (wait.until or 0.0) > now
            if (wait.kind == "time" and lasts) or (wait.kind == "claim" and alive):
                yield wait

    def _incidents(self, now: float) -> Iterator[IncidentView]:
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

    def _signals(self, inbox: Sequence[ev.Event]) -> tuple[OpenSignal, ...]:
        recorded = self._recorded
        come = {*recorded.signals_left()}
        come |= {event.name for event in inbox if isinstance(event, ev.SignalReceived)}
        records = ((recorded.at(path), path) for path in recorded.paths_below(""))
        names = {one.signal: path for one, path in records if one.signal and not one.ended()}
        accepts = dict(one for one in self._accepts.values() if one[1] is not None)
        return tuple(
            OpenSignal(name, accepts.get(name), path)
            for name, path in names.items()
            if name not in come
        )

    def _steps(self, spent: Mapping[str, Spent], now: float, *, alive: bool) -> Iterator[StepView]:
        """The steps whose records count, parents first; without inner causes."""
        tree = self._recorded.tree_below("", whole=True)
        stack = [(path, 0) for path in reversed(tree.get("", {}))]
        while stack:
            path, depth = stack.pop()
            if path not in self._kinds and self._recorded.at(path).gates:
                yield self._question(path, depth)
            else:
                yield self._step(path, depth, spent.get(path), now, alive=alive)
            stack += [(below, depth + 1) for below in reversed(tree.get(path, {}))]

    def _step(
        self, path: str, depth: int, spent: Spent | None, now: float, *, alive: bool
    ) -> StepView:
        record, answer = self._recorded.at(path), self._recorded.answers.get(path)
        kind, told = self._kinds.get(path, "member"), self._told.get(path, ())
        end = record.end or record.member_end
        if end is None:
            state = self._unfinished(path, kind, now, alive=alive)
            attempts = record.attempts + (kind not in WAIT_KINDS and state != "open")
            failed, name = record.failure, path.rpartition("/")[2]
            cause = None if failed is None else FailureCause.of(path, name, failed)
            return StepView(
                path, depth, kind, state, attempts, None, cause, None, answer, None, spent,
                told=told, size=self._sizes.get(path),
            )  # fmt: skip
        has_failed = end.error is not None or end.error_type is not None
        cause = FailureCause.of(path, end.name, end) if has_failed else None
        return StepView(
            path, depth, kind, end.status, end.attempts, end.duration_ms, cause, end.output, answer,
            record.undone, spent, end.handled, end.given_by, told, self._sizes.get(path),
        )  # fmt: skip

    def _unfinished(self, path: str, kind: str, now: float, *, alive: bool) -> StepState:
        wait = self._waits.get(path)
        lasts = alive and wait is not None and (wait.until is None or wait.until > now)
        if kind in WAIT_KINDS or lasts:
            return "waiting"
        if alive:
            return "running"
        return "interrupted" if self._recorded.broke_off(path) else "open"

    def _question(self, path: str, depth: int) -> StepView:
        """A question that is no step of its own, such as whether an agent may be launched."""
        recorded = self._recorded
        answer, gates = recorded.answers.get(path), recorded.at(path).gates or {}
        if answer is None:
            over = recorded.at(path.rpartition("/")[0]).ended()
            return StepView(path, depth, "ask", "cancelled" if over else "waiting")
        since = min((gate.since for gate in gates.values()), default=0.0)
        duration_ms = max(0.0, (answer.at - since) * 1000)
        return StepView(
            path, depth, "ask", "succeeded", 1, duration_ms, output=answer.answer, answer=answer
        )


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


# -- spending --------------------------------------------------------------------------------------


_REFUSED = frozenset({
    "handrail.errors.BudgetExceeded", "handrail.errors.StepIsPoisonous",
    "handrail.errors.StepWasInterrupted",
})  # fmt: skip
"""Errors of attempts that made no launch, or none beside the known ones."""


class _Account:
    """The launches of one step: what each used itself, by its number. Mutable."""

    def __init__(self) -> None:
        self._used: dict[int, Usage | None] = {}
        self._next = 1
        """The number of the launch that is at work, or comes next."""
        self._before: Usage | None = None
        """What the earlier launches of its attempt used together."""
        self._over = False

    def started(self) -> None:
        if self._before is None:
            self._next = max(self._used, default=0) + 1
        self._over = False

    def forgotten(self) -> None:
        self._before = None

    def take(self, event: Any) -> None:
        self._TAKE[type(event)](self, event)

    def _launch_opened(self, event: ev.AgentSessionStarted | ev.BudgetReserved) -> None:
        self._next = event.launch
        self._used.setdefault(event.launch, None)
        self._over = False

    def _budget_settled(self, event: ev.BudgetSettled) -> None:
        self._used[event.launch] = event.usage or self._used.get(event.launch)

    def _ladder_step(self, event: ev.LadderStep) -> None:
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
        # A failed attempt has reported its usage before; see ``AttemptFailed``.
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
        """The sum of all launches."""
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
        ev.AgentSessionStarted: _launch_opened,
        ev.BudgetReserved: _launch_opened,
        ev.BudgetSettled: _budget_settled,
        ev.LadderStep: _ladder_step,
        ev.AgentGuided: _guided,
        ev.AttemptFailed: _failed,
        ev.StepCompleted: _completed,
    }


def _without(total: Usage | None, before: Usage | None) -> Usage | None:
    """What one launch used, from the totals with and without it; None if that is not known."""
    if total is None or before is None:
        return total
    own = own_usage(total, before)
    return None if own == Usage(cost_source=own.cost_source) else own
