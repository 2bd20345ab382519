"""A run that is under way, for people: a fold of its events, both journaled ones and progress.

Theory of operation. The fold is pure: it reads no clock and knows no terminal. Its state depends on
the events alone (and on the time that ``advance`` gets). It keeps data, not texts: for a step that
waits, the event that says for what; for a step at work, the last line that it printed or the last
notice of its agent. The console and the log draw it.

An event costs O(depth of its path), however many members a group has, and so does drawing: the
children of a step are kept by state; ended ones are counted, and only some of them kept. What an
event means is asked of ``Recorded``, as everywhere; it forgets each path that ends, so that the
record of a long run stays small. ``record.view`` reads the same from a history, and keeps all.

A step is found by its path while it is live. The first event below an unknown path makes the steps
above it: ``verify/2`` (a round) and ``name~2`` (another attempt, which is the step ``name`` again)
have no event of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import islice
from typing import Any, ClassVar, TypeAlias

from handrail.model import events as ev
from handrail.model.dataclass import copier
from handrail.model.paths import is_budget_gate, is_limit_gate
from handrail.model.results import (
    CommandResult,
    RunStatus,
    Skipped,
    StepResult,
    Usage,
    WaitsFor,
    add_usage,
)
from handrail.record.members import member_counts
from handrail.record.run_record import Recorded
from handrail.record.view import FailureCause, StepState, exit_code_of
from handrail.shortening import last_line
from handrail.steps.table import verb_of

AnyEvent: TypeAlias = ev.Event | ev.Progress

# How many children that ended well, and how many that failed, are remembered at each depth. So a
# loop of a million steps, or a group of as many members, takes no more memory than these.
_KEPT = (60, 40, 20, 12, 6)


@dataclass(slots=True, eq=False)
class LiveStep:
    """A step, member, round or rollback, with its children by state. Mutable."""

    path: str
    name: str
    kind: str
    parent: LiveStep | None
    depth: int
    order: int
    started_at: float
    ended_at: float = 0.0
    state: StepState = "running"
    attempts: int = 1
    failures: int = 0
    """How many attempts and launches failed."""
    problem: FailureCause | None = None
    """Its last failure, or why it was interrupted."""
    end: StepResult[Any] | None = None
    """How it ended, without its output; None for what ends without a result."""
    answer: ev.GateAnswered | None = None
    """The answer to its question, once it has ended."""
    wait: WaitsFor | None = None
    note: AnyEvent | None = None
    """The event that says what the step waits for; of the run, the latest for people to see."""
    latest: str | AnyEvent | None = None
    """The last line that it printed, or the last notice."""
    verdict: StepState | None = None
    """Of a round: whether it passed. It is known before the round's fix ends."""
    replayed: bool = False
    recorded: int = 0
    """How many of its ended children were taken from the record."""
    aliases: list[str] | None = None
    size: int | None = None
    refused: int = 0
    """Of work: how many tasks were refused."""
    why_stopped: str = ""
    """Of work: why no further task begins."""
    reasons: dict[str | None, int] | None = None
    """Of a group: how many of its members failed with each error class."""
    tally: dict[str, int] | None = None
    """How many of its children ended in each state."""
    running: dict[int, LiveStep] | None = None
    waiting: dict[int, LiveStep] | None = None
    failed: dict[int, LiveStep] | None = None
    """The first failed ones of its children."""
    done: dict[int, LiveStep] | None = None
    """The last ones that ended otherwise."""

    @property
    def live(self) -> bool:
        """True if it has not ended."""
        return self.state in _LIVE

    @property
    def due(self) -> float | None:
        """When its wait ends by itself, if it waits for a time."""
        return None if self.wait is None or self.wait.kind != "time" else self.wait.until

    @property
    def ended(self) -> int:
        """How many of its children ended."""
        return sum(self.tally.values()) if self.tally else 0

    @property
    def children(self) -> int:
        """How many children it has had."""
        return self.ended + self.count("running") + self.count("waiting")

    def count(self, state: str) -> int:
        """How many of its children are in this state."""
        if state in _LIVE:
            return len(self.kept_in(state))
        return self.tally.get(state, 0) if self.tally else 0

    def kept_in(self, state: str) -> Collection[LiveStep]:
        """Its children in this state, as far as they are kept; ``done`` has all but the failed."""
        kept: dict[int, LiveStep] | None = getattr(self, state)
        return kept.values() if kept else ()

    def counts(self, *, live: bool = True) -> Iterator[tuple[str, str]]:
        """Of a group: how its members did, as ``member_counts``; ``live``: also those at work.

        The reasons of failures are there if its own error does not tell them.
        """
        states = {**(self.tally or {}), **{state: self.count(state) for state in _LIVE if live}}
        shows_error = self.live or self.problem is not None or self.reasons is None
        reasons = None if shows_error else self.reasons
        if reasons is not None and sum(reasons.values()) != self.count("failed"):
            reasons = None  # some failed before a resume, which shows no events of them
        return member_counts(
            states,
            self.size,
            over=not self.live,
            refused=self.refused,
            reasons=reasons,
            why_stopped=self.why_stopped,
        )

    # -- children, by state ------------------------------------------------------------------

    def join(self, child: LiveStep) -> None:
        """File a child by its state."""
        state, name = child.state, _KEPT_AS.get(child.state, "done")
        kept = getattr(self, name)
        if kept is None:
            kept = {}
            setattr(self, name, kept)
        if state not in _LIVE:
            tally = self.tally = self.tally if self.tally is not None else {}
            tally[state] = tally.get(state, 0) + 1
            if len(kept) >= _KEPT[min(self.depth, len(_KEPT) - 1)]:
                if state == "failed":  # the first failures say most
                    return
                del kept[next(iter(kept))]
        kept[child.order] = child

    def count_reason(self, error_type: str | None) -> None:
        """Count the error class of a member that failed, if this is a group."""
        if verb_of(self.kind).grouped:
            self.reasons = self.reasons if self.reasons is not None else {}
            self.reasons[error_type] = self.reasons.get(error_type, 0) + 1

    def leave(self, child: LiveStep, state: StepState) -> None:
        """Remove a child that was filed under ``state``."""
        if state not in _LIVE and self.tally and self.tally.get(state):
            self.tally[state] -= 1
        kept = getattr(self, _KEPT_AS.get(state, "done"))
        if kept:
            kept.pop(child.order, None)

    def forget_children(self) -> None:
        """Drop all children and their counts, for another attempt or to save memory."""
        self.running = self.waiting = self.failed = self.done = self.tally = self.reasons = None

    def live_children(self) -> list[LiveStep]:
        """The children that have not ended."""
        return [*self.kept_in("running"), *self.kept_in("waiting")]

    @property
    def only_live_child(self) -> LiveStep | None:
        """The one child that has not ended, if there is just one."""
        running, waiting = self.kept_in("running"), self.kept_in("waiting")
        return next(iter(running or waiting)) if len(running) + len(waiting) == 1 else None

    def most_telling(self, most: int) -> list[LiveStep]:
        """At most ``most`` children: the first failed ones, then waiting, running, the latest done.

        The work is bounded by ``most``, however many children there are.
        """
        running, failed, waiting = map(self.kept_in, ("running", "failed", "waiting"))
        done = self.done or {}
        room = _shares([len(running), len(failed), len(waiting), len(done)], most)
        return [
            *islice(failed, room[1]),
            *islice(waiting, room[2]),
            *islice(running, room[0]),
            *islice(reversed(done.values()), room[3]),
        ]


_LIVE = frozenset({"running", "waiting"})
_KEPT_AS: Mapping[str, str] = {state: state for state in (*_LIVE, "failed")}


def _shares(sizes: list[int], most: int) -> list[int]:
    """How many rows each kind gets: up to a half, then a quarter each; then the rest in order."""
    if sum(sizes) <= most:
        return sizes
    wanted = (max(1, most // 2), *[max(1, most // 4)] * 3)
    room: list[int] = []
    left = most
    for size, share in zip(sizes, wanted, strict=True):
        room.append(min(size, share, left))
        left -= room[-1]
    for index, size in enumerate(sizes):
        more = min(left, size - room[index])
        room[index] += more
        left -= more
    return room


MAX_DEPTH = 60
_COUNTED = ("succeeded", "failed", "cancelled", "skipped")
_ATTEMPT = re.compile(r"(.+)~(\d{1,9})\Z", re.DOTALL)


class LiveRun:
    """The state of one drive of a run, by its events so far. Mutable; not thread-safe."""

    def __init__(self, run_id: str, name: str = "") -> None:
        self.run_id = run_id
        self.workflow_name = name or run_id
        self.at = 0.0
        self.status: RunStatus | None = None
        self.cause: FailureCause | None = None
        """The failure that ended the run, if a step's did."""
        self.ended: dict[str, int] = {}
        self.replayed = 0
        self._recorded = Recorded()
        """What the events mean, without paths that have ended."""
        self._used: Usage | None = None
        """What agents used, of these."""
        self.root = LiveStep("", self.workflow_name, "workflow", None, 0, 0, 0.0)
        self._steps: dict[str, LiveStep] = {}
        self._timers: list[tuple[float, int, LiveStep]] = []
        self._count = 0

    @property
    def usage(self) -> Usage | None:
        """What agents used, as far as they reported it."""
        used = self._used
        for account in self._recorded.accounts.values():
            used = add_usage(used, account.spent(alive=False).usage)
        return used

    def apply(self, event: AnyEvent) -> LiveStep | None:
        """Apply an event; the step that it concerns, if that is live or has just ended."""
        self.at = max(self.at, event.at)
        self.advance(self.at)
        self._recorded.apply(event)
        of_run = self._OF_RUN.get(type(event))
        if of_run is not None:
            return of_run(self, event)
        step = self._steps.get(getattr(event, "path", ""))
        if step is not None:
            of_step = self._OF_STEP.get(type(event))
            if of_step is not None:
                of_step(self, step, event)
            self._note_wait(step, event)
        return step

    def advance(self, now: float) -> None:
        """End the waits whose time has come."""
        while self._timers and self._timers[0][0] <= now:
            due, _, step = heappop(self._timers)
            if step.due == due:
                step.wait = step.note = None
                self._reconsider(step)

    def at_work(self) -> Iterator[LiveStep]:
        """The innermost running steps, in order of their starts."""
        stack = [self.root]
        while stack:
            step = stack.pop()
            below = step.kept_in("running")
            stack.extend(reversed(list(below)))
            if not below and step is not self.root and step.state == "running":
                yield step

    # -- steps -------------------------------------------------------------------------------

    def _open(self, path: str, kind: str, at: float, name: str = "") -> LiveStep:
        """The step at a path that starts now; makes it if it is not live."""
        step = self._steps.get(path)
        if step is not None:
            step.kind = kind
            return step
        above, _, last = path.rpartition("/")
        if path.count("/") >= MAX_DEPTH:
            parts = path.split("/", MAX_DEPTH)
            above, last = "/".join(parts[:-1]), parts[-1]
        parent = self._container(above, at)
        self._count += 1
        depth = parent.depth + 1
        step = LiveStep(path, name or last, kind, parent, depth, self._count, at)
        self._steps[path] = step
        parent.join(step)
        self._reconsider(parent)
        return step

    def _container(self, path: str, at: float) -> LiveStep:
        """The step to put a child in; makes rounds and attempts, which have no start event."""
        if not path:
            return self.root
        step = self._steps.get(path)
        if step is None:
            again = _ATTEMPT.match(path)
            known = self._steps.get(again.group(1)) if again else None
            if again and known is not None:
                self._attempt_again(known, path, int(again.group(2)))
                return known
            step = self._open(path, "", at)
            self._name_round(step)
        if not step.live:  # a round that waits for its fix, or the step of a late event
            self._move(step, "running")
        return step

    @staticmethod
    def _name_round(step: LiveStep) -> None:
        parent = step.parent
        if parent is not None and parent.kind == "validate" and step.name.isdigit():
            step.kind = "round"

    def _attempt_again(self, step: LiveStep, alias: str, number: int) -> None:
        """The attempt ``number`` of a composite: it starts with no children."""
        self._forget_paths(step)
        step.forget_children()
        step.attempts = max(step.attempts, number)
        step.aliases = [*(step.aliases or ()), alias]
        self._steps[alias] = step

    def _end(self, step: LiveStep, state: StepState, at: float) -> None:
        if not step.live:
            return
        self._forget_paths(step)
        for child in step.live_children():
            self._end(child, "cancelled" if state == "cancelled" else "interrupted", at)
        if step.kind != "round":
            self._steps.pop(step.path, None)
            for alias in step.aliases or ():
                self._steps.pop(alias, None)
        self._used = add_usage(self._used, self._recorded.forget_ended(step.path))
        step.ended_at = max(at, step.started_at)
        step.note = step.latest = step.wait = None
        self._move(step, state)
        self._perhaps_end_round(step.parent, at)

    def _perhaps_end_round(self, step: LiveStep | None, at: float) -> None:
        """A round whose verdict is known ends with its fix, which has no event of its own."""
        if step is not None and step.verdict is not None and not step.live_children():
            self._end(step, step.verdict, at)

    def _forget_paths(self, step: LiveStep) -> None:
        """Forget the paths of its rounds: they stay known until the validation is over."""
        for child in (*step.kept_in("failed"), *step.kept_in("done")):
            if child.kind == "round":
                self._steps.pop(child.path, None)

    def _move(self, step: LiveStep, state: StepState) -> None:
        """Set the state of a step, and update the steps above it accordingly."""
        here = step
        while here.state != state:
            old, here.state = here.state, state
            parent = here.parent
            if parent is None:
                return
            parent.leave(here, old)
            parent.join(here)
            if not parent.live:
                return
            here, state = parent, _state_from_below(parent)

    def _reconsider(self, step: LiveStep) -> None:
        if step.live:
            self._move(step, _state_from_below(step))

    # -- events of the run -------------------------------------------------------------------

    def _run_started(self, event: ev.WorkflowStarted) -> None:
        self.workflow_name = self.root.name = event.workflow_name
        self.root.started_at = event.at

    def _run_resumed(self, event: ev.RunResumed) -> None:
        if event.workflow_name:
            self.workflow_name = self.root.name = event.workflow_name
        self.root.started_at = event.at
        self.root.note = event

    def _run_ended(self, event: ev.WorkflowCompleted) -> None:
        self.status = event.status
        if event.status == "failed":
            self.cause = _failure(self.root, "", event).inner
        self._end(
            self.root, "interrupted" if event.status == "suspended" else event.status, event.at
        )

    def _run_suspended(self, event: ev.RunSuspended) -> None:
        self.status = "suspended"
        self.root.ended_at = event.at
        self.root.verdict = "interrupted"

    def _note_of_run(
        self, event: ev.CancelRequested | ev.RunSteered | ev.LimitReached | ev.BudgetWarning
    ) -> None:
        if not isinstance(event, ev.RunSteered) or (not event.path and event.action != "guide"):
            self.root.note = event

    # -- events that may start a step ---------------------------------------------------------

    def _begun(self, event: ev.Began | ev.GroupStarted | ev.GateOpened) -> LiveStep:
        record = self._recorded.at(event.path)
        asks = "ask" if record.group is None else record.group.kind
        step = self._open(event.path, record.kind or asks, event.at)
        step.size = self._recorded.sizes.get(event.path)
        group = step.parent
        if group is not None and group.size is not None and group.size < group.children:
            group.size = None  # of work that grew: only its own process hears by how much
        self._note_wait(step, event)
        return step

    def _step_completed(self, event: ev.StepCompleted) -> LiveStep:
        status = event.result.status
        self.ended[status] = self.ended.get(status, 0) + 1
        return self._ended(event)

    def _step_replayed(self, event: ev.StepReplayed) -> LiveStep:
        result = event.result
        step = self._open(event.path, "" if result is None else result.step_type, event.at)
        self.replayed += event.steps_below + (step.kind != "member")
        own = result.usage if result is not None and verb_of(step.kind).launches else None
        self._used = add_usage(add_usage(self._used, event.usage_below), own)
        step.replayed = True
        if step.parent is not None:
            step.parent.recorded += 1
        if result is not None:
            return self._take(step, result, event.at)
        self._end(step, "succeeded", event.at)
        return step

    def _ended(self, event: ev.Ended) -> LiveStep:
        path, result = event.path, event.result
        step = self._steps.get(path) or self._open(path, result.step_type, event.at)
        return self._take(step, result, event.at)

    def _take(self, step: LiveStep, result: StepResult[Any], at: float) -> LiveStep:
        step.attempts = result.attempts
        step.problem = None
        if result.error is not None or result.error_type is not None:
            step.problem = _failure(step, result.name, result)
            if result.status == "failed" and step.parent is not None:
                step.parent.count_reason(result.error_type)
        step.answer = self._recorded.answers.get(step.path)
        step.end = result
        if result.output is not None or result.traceback is not None:
            step.end = _shown(result)
        self._end(step, result.status, at)
        step.started_at = step.ended_at - result.duration_ms / 1000
        return step

    def _rollback_started(self, event: ev.RollbackStarted) -> LiveStep:
        return self._open(_undo(event.path), "rollback", event.at, event.path)

    def _rollback_completed(self, event: ev.RollbackCompleted) -> LiveStep | None:
        step = self._steps.get(_undo(event.path))
        if step is not None:
            if event.error or event.error_type:
                step.problem = FailureCause(
                    step.path, step.name, event.error or "", event.error_type
                )
            self._end(step, "succeeded" if event.error is None else "failed", event.at)
        self._recorded.forget_ended(event.path)
        return step

    # -- events of a step that is live ---------------------------------------------------------

    def _step_interrupted(self, step: LiveStep, event: ev.StepInterrupted) -> None:
        step.problem = FailureCause(step.path, step.name, event.reason) if event.reason else None
        self._end(step, "interrupted", event.at)

    def _attempt_failed(self, step: LiveStep, event: ev.AttemptFailed) -> None:
        step.problem = _failure(step, step.name, event)
        step.failures += 1
        step.latest = None

    def _launch_failed(self, step: LiveStep, event: ev.LadderStep) -> None:
        step.problem = FailureCause(step.path, step.name, event.error)
        step.failures += 1
        step.latest = event if event.parked or event.due <= event.at else None

    def _output(self, step: LiveStep, event: ev.StepOutput | ev.AgentMessage) -> None:
        step.latest = last_line(event.text) or step.latest

    def _turn_started(self, step: LiveStep, event: ev.AgentTurnStarted) -> None:
        if event.turn == 1:
            step.latest = None

    def _turn_completed(self, step: LiveStep, event: ev.AgentTurnCompleted) -> None:
        if event.problem:
            step.latest = event

    def _notice(self, step: LiveStep, event: AnyEvent) -> None:
        match event:
            case (
                ev.AgentToolCompleted(ok=True)
                | ev.AgentPermission(decision="allowed")
                | ev.AgentCompaction(phase="completed" | "failed")
                | ev.AgentLimit(status="allowed")
            ):
                pass  # the agent continues what it was doing
            case _:
                step.latest = event

    def _group_completed(self, step: LiveStep, event: ev.GroupCompleted) -> None:
        """Take the event's counts: members taken from the record had no events of their own."""
        step.size = max(step.size or 0, event.total)
        step.why_stopped = event.why_stopped or ""
        ended = {state: getattr(event, state) for state in _COUNTED}
        step.tally = {state: count for state, count in ended.items() if count}

    def _work_grew(self, step: LiveStep, event: ev.WorkGrew) -> None:
        step.size, step.refused = event.total, event.refused

    def _work_stopped(self, step: LiveStep, event: ev.WorkStopped) -> None:
        step.why_stopped = event.reason

    def _child_started(self, step: LiveStep, event: ev.SubworkflowStarted) -> None:
        if event.workflow_name != step.name:
            step.note = event

    def _round_ended(self, step: LiveStep, event: ev.ValidationRound) -> None:
        base = step.aliases[-1] if step.aliases else event.path
        passed = self._steps.get(f"{base}/{event.number}")
        if passed is None:
            return
        passed.verdict = "succeeded" if event.passed else "failed"
        stage = next((stage for stage in event.round.stages if not stage.passed), None)
        if stage is not None:
            error = f"{stage.name}: {stage.error or stage.output}"
            passed.problem = FailureCause(passed.path, passed.name, error)
        self._perhaps_end_round(passed, event.at)

    def _gate_answered(self, step: LiveStep, event: ev.GateAnswered) -> None:
        if is_limit_gate(step.path) or _asks_for_budget(step):  # it has no end event
            step.answer = event
            self._end(step, "succeeded", event.at)

    def _note_wait(self, step: LiveStep, event: AnyEvent) -> None:
        """Note what the step waits for now, and the event that began the wait."""
        wait = self._recorded.wait_of(step.path, self.at)
        if wait is not None and wait.kind == "person":  # the run is about to be suspended
            wait = None
        if wait == step.wait:
            return
        step.wait, step.note = wait, None if wait is None else event
        if step.due is not None:
            self._count += 1
            heappush(self._timers, (step.due, self._count, step))
        self._reconsider(step)

    _OF_RUN: ClassVar[Mapping[type, Callable[[Any, Any], LiveStep | None]]] = {
        ev.WorkflowStarted: _run_started,
        ev.WorkflowCompleted: _run_ended,
        ev.RunSuspended: _run_suspended,
        ev.RunResumed: _run_resumed,
        ev.CancelRequested: _note_of_run,
        ev.RunSteered: _note_of_run,
        ev.LimitReached: _note_of_run,
        ev.BudgetWarning: _note_of_run,
        ev.StepStarted: _begun,
        ev.StepCompleted: _step_completed,
        ev.StepReplayed: _step_replayed,
        ev.GroupStarted: _begun,
        ev.MemberStarted: _begun,
        ev.MemberCompleted: _ended,
        ev.GateOpened: _begun,
        ev.RollbackStarted: _rollback_started,
        ev.RollbackCompleted: _rollback_completed,
    }
    _OF_STEP: ClassVar[Mapping[type, Callable[[Any, LiveStep, Any], None]]] = {
        ev.AttemptFailed: _attempt_failed,
        ev.StepInterrupted: _step_interrupted,
        ev.ValidationRound: _round_ended,
        ev.GroupCompleted: _group_completed,
        ev.WorkGrew: _work_grew,
        ev.WorkStopped: _work_stopped,
        ev.SubworkflowStarted: _child_started,
        ev.GateAnswered: _gate_answered,
        ev.StepOutput: _output,
        ev.AgentMessage: _output,
        ev.AgentTurnStarted: _turn_started,
        ev.AgentTurnCompleted: _turn_completed,
        ev.AgentReasoning: _output,
        ev.AgentToolStarted: _notice,
        ev.AgentToolCompleted: _notice,
        ev.AgentRetry: _notice,
        ev.AgentCompaction: _notice,
        ev.AgentLimit: _notice,
        ev.AgentPermission: _notice,
        ev.SandboxDenied: _notice,
        ev.AgentGuided: _notice,
        ev.LadderStep: _launch_failed,
    }


_without_output: Callable[[StepResult[Any]], StepResult[Any]] = copier(
    StepResult, output=None, traceback=None
)


def _shown(result: StepResult[Any]) -> StepResult[Any]:
    """The result, of whose output is left why the step was skipped, or its exit code."""
    output, shown = result.output, _without_output(result)
    if isinstance(output, Skipped):
        return replace(shown, output=output)
    code = exit_code_of(output)
    return replace(shown, output=CommandResult[Any](code, "", "")) if code else shown


def _failure(
    step: LiveStep, name: str, end: StepResult[Any] | ev.AttemptFailed | ev.WorkflowCompleted
) -> FailureCause:
    """A step's failure, with the failure below it that caused it."""
    causes = (child.problem for child in _failed_below(step) if child.problem is not None)
    return FailureCause.of(step.path, name, end).with_inner(causes)


def _failed_below(step: LiveStep) -> Iterator[LiveStep]:
    """The failed children, the last first; of a round, which has no name, its failed children."""
    for child in reversed(list(step.kept_in("failed"))):
        if child.kind == "round":
            yield from _failed_below(child)
        elif child.kind != "rollback":
            yield child


def _asks_for_budget(step: LiveStep) -> bool:
    """True for the question whether an agent may be launched; it is no step."""
    above = step.parent
    if above is None or not verb_of(above.kind).launches:
        return False
    return is_budget_gate(above.path, step.path)


def _undo(path: str) -> str:
    return "\0" + path.replace("/", "\0")  # below the root, and no step's path


def _state_from_below(step: LiveStep) -> StepState:
    """The state of a live step: it waits if nothing below it runs, and something waits."""
    if step.running:
        return "running"
    if step.waiting or step.wait is not None:
        return "waiting"
    return "running"
