"""An index of the events that earlier drives recorded, by path.

A replay goes by path, never by position: the machine asks for each path when it reaches it, so
steps that were added elsewhere, or that end in another order, change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import msgspec

from handrail.codec.unresolved import Unresolved
from handrail.model import events as ev
from handrail.model.paths import (
    ancestors_of,
    attempt_base,
    is_budget_gate,
    is_limit_gate,
    parent_of,
)
from handrail.model.results import AgentResult, Incident, OpenGate, StepResult, Usage, add_usage
from handrail.model.work import Task
from handrail.record.assemble import copier
from handrail.record.guidance import Guidance
from handrail.record.results import incident_of
from handrail.steps.verbs import LAUNCHED, LEAF_KINDS

FORKED = "forked"
"""Why a fork is suspended before it is driven for the first time."""


class PathRecord(msgspec.Struct, eq=False, gc=False):  # it is in no cycle
    """What is recorded of one path; filled while the history is read.

    A struct of msgspec's, since a replay makes one for every path.
    """

    started_at: float | None = None
    verdict: bool | None = None
    end: StepResult[Any] | None = None
    member_end: StepResult[Any] | None = None
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
    leaf: bool = False
    fingerprint: str = ""
    fingerprint_at_gate: str = ""
    """The step's fingerprint when its gate opened: a process may die between start and gate."""
    digest: str = ""
    member: bool = False
    ended_seq: int = 0
    """Of a member: the number of its end event, by which ends are ordered."""
    found: tuple[tuple[str, float], ...] = ()
    """Of a task: the tasks that it brought, by id, with their priorities."""
    derived: str = ""
    member_derived: str = ""
    unreached_children: tuple[str, ...] = ()
    """Recorded children that its end, or its last failed attempt, did not reach."""
    value: Any = None
    """What a child workflow returned, when, and its name."""
    value_at: float = 0.0
    workflow_name: str = ""
    ladder: tuple[ev.LadderStep | ev.AgentGuided, ...] = ()
    session: ev.AgentSessionStarted | None = None
    """Of the launch that was at work last; None once the end of that launch is known."""
    interrupted_usage: Usage | None = None
    """The usage that interrupted launches of this attempt reported."""
    failed_usage: Usage | None = None
    """The usage of its failed attempts."""
    guidance: tuple[str, ...] = ()
    """The guidance that people gave its agent."""
    reasks: int = 0
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

    def ended(self) -> bool:
        """True if the step's end, or the member's, is recorded."""
        return self.end is not None or self.member_end is not None


class Recorded:
    """An index of a run's events that still count. Mutable only while it is being built."""

    def __init__(  # noqa: PLR0915  # one attribute a line
        self, history: Iterable[ev.Event] = (), superseded: Iterable[str] = ()
    ) -> None:
        self.is_empty = True
        """The run has not begun: nothing is recorded."""
        self.started_at = 0.0
        self.inputs: dict[str, Any] = {}
        self.answers: dict[str, ev.GateAnswered] = {}
        self.revisions: dict[str, int] = {}
        self.reused: set[str] = set()
        self.unwinds = False
        """The run is resumed only to be cancelled."""
        self.last_message = 0
        self.begun_once: set[str] = set()
        """Steps that began and must not begin again, whether their record still counts or not."""
        self.unresolved: set[str] = set()
        """Paths whose output is of a class that is not known here yet."""
        self.incidents: list[Incident] = []
        self.spending: list[ev.Event] = []
        """The events of budgets. They count whether the record of their step still does or not."""
        self._reserved = set[str]()
        """Agent steps for whose last attempt a budget reserved a launch."""
        self._counted: dict[str, int] = {}
        """The number of the last launch of each agent step that is in ``spending``."""
        self._unsettled: dict[str, int] = {}
        self._paid: dict[str, Usage] = {}
        self._over: dict[str, Usage | None] = {}
        """The usage of ended attempts whose last launch is not settled yet, by path."""
        self.launched: dict[str, int] = {}
        """The number of each agent step's last launch, whether its record still counts or not."""
        self._signals: list[ev.SignalReceived] = []
        self._misfits: set[int] = set()
        """The numbers of signals that failed the step that took them. They are used up, whether
        that record still counts or not: else each resume would fail by them again.
        """
        self._at_work: dict[str, None] = {}
        self._agents = set[str]()
        """Steps that an agent is launched for."""
        self._unwinding = False
        """The run is being cancelled, and has not ended since: superseded steps are reopened."""
        self._rehearses = False
        """The drive only unwinds: it records again the steps that it reaches, but performs none."""
        self.completed: ev.WorkflowCompleted | None = None
        self.cancel: str | None = None
        """Why the run is being cancelled; None if it is not, or has ended since."""
        self.paused: ev.RunSteered | None = None
        """The event that paused the run; None if it is not paused any more."""
        self.steering_requests: dict[str, list[ev.RunSteered]] = {}
        """People's requests to steer steps that have not ended since, by path, in order."""
        self.guidance = Guidance()
        self.limit: ev.LimitReached | None = None
        """The limit by which the run will fail; None once it has ended."""
        self.undoing: dict[str, str | None] = {}
        """The steps without an end whose rollbacks had begun, "" for the run. They must fail,
        whatever the code says now. The value is the reason, if the run was being cancelled then.
        """
        self.lent_sessions: set[str] = set()
        """Sessions of agents that were opened in the run that this one was forked from."""
        self.is_fork = False
        self._is_lent = False
        self._forked_at: float | None = None
        """When the fork was made; None once it is driven, or for a run that is no fork."""
        self.ends_since = 0
        """The number of the event by which the run began to fail or to be cancelled; 0 for none."""
        self.questions: dict[str, OpenGate] = {}
        """The gates of the run itself, which ask whether a limit may be raised, by path."""
        self.tasks: dict[str, tuple[Task, ...]] = {}
        """The tasks that each ``work`` step begins with, by path."""
        self.edits: dict[str, list[ev.WorkEdited]] = {}
        """The edits of the queue of each ``work`` step, in order."""
        self.stops: dict[str, ev.WorkStopped] = {}
        """Why each ``work`` step was to begin no more tasks, as its ``stop`` said last."""
        self.why_stopped: dict[tuple[str, int], str | None] = {}
        """Why ended attempts began no more tasks, by path and attempt: ``stop``, or the bound."""
        self._undone: dict[str, str] = {}
        self._items: dict[str, str] = {}
        """The digests of items of members whose own record is dropped."""
        self._paths: dict[str, PathRecord] = {}
        self._children: dict[str, dict[str, None]] = {}
        self._gaps = set[str]()
        """Forgotten paths. They stay among the children of the step above, and so do the paths
        below them, for they may begin again.
        """
        self._takes: dict[type, Callable[[Any], None]] = {
            ev.WorkflowStarted: self._run_started,
            ev.RunResumed: self._run_resumed,
            ev.WorkflowCompleted: self._run_completed,
            ev.StepStarted: self._step_started,
            ev.StepMoved: self._step_moved,
            ev.AttemptFailed: self._attempt_failed,
            ev.TimerSet: self._timer_set,
            ev.AgentSessionStarted: self._session_started,
            ev.BudgetReserved: self._budget_reserved,
            ev.BudgetSettled: self._budget_settled,
            ev.BudgetRaised: self.spending.append,
            ev.BudgetWarning: self.spending.append,
            ev.LadderStep: self._ladder_step,
            ev.AgentGuided: self._agent_guided,
            ev.StepCompleted: self._step_completed,
            ev.MemberStarted: self._member_started,
            ev.MemberCompleted: self._member_completed,
            ev.GroupCompleted: self._group_completed,
            ev.TasksQueued: self._tasks_queued,
            ev.WorkEdited: self._work_edited,
            ev.WorkStopped: self._work_stopped,
            ev.GateOpened: self._gate_opened,
            ev.GateAnswered: self._gate_answered,
            ev.SignalReceived: self._signal_received,
            ev.CancelRequested: self._cancel_requested,
            ev.RunSteered: self._run_steered,
            ev.LimitReached: self._limit_reached,
            ev.RunSuspended: self._run_suspended,
            ev.StepInterrupted: self._step_interrupted,
            ev.SubworkflowEnded: self._subworkflow_ended,
            ev.RollbackStarted: self._rollback_started,
            ev.RollbackCompleted: self._rollback_completed,
        }
        self.take(history)
        self.close(superseded)

    def take(self, history: Iterable[ev.Event]) -> None:
        """Read the next events; call ``close`` behind the last."""
        takes = self._takes
        for event in history:
            self.is_empty = False
            take = takes.get(type(event))
            if take is not None:
                take(event)

    def close(self, superseded: Iterable[str] = ()) -> None:
        """End the record: steps still at work were interrupted; these paths no longer count."""
        self._drive_broke_off()
        self._forget_all(superseded)

    def run_again(self, paths: Iterable[str]) -> None:
        """Let steps run again that otherwise must not: a person named their paths."""
        again = set(paths)
        self.reused.difference_update(path.removesuffix("/") for path in again)
        if not again or not (self.begun_once or self._undone):
            return
        known = self._paths.keys() | self._gaps
        for path in [*self.begun_once, *self._undone]:
            if path in again or not again.isdisjoint(ancestors_of(path, known)):
                self.begun_once.discard(path)
                self._undone.pop(path, None)

    # -- building -------------------------------------------------------------------------------

    def _run_started(self, event: ev.WorkflowStarted) -> None:
        self.started_at = event.at
        self.inputs = dict(event.inputs)
        self.is_fork = self._is_lent = event.forked_from is not None

    def _run_resumed(self, event: ev.RunResumed) -> None:
        self.begin_time(event.at)
        self._drive_broke_off()
        self._rehearses = self._unwinding
        self.completed = None
        self.reused.update(event.reused)
        self._forget_all(event.superseded)
        self.run_again(event.rerun)
        self.read_messages(event.letter)

    def begin_time(self, at: float) -> None:
        """Begin a fork's first drive: the run, and all that has no end yet, are as old as they were
        when the fork was made.
        """
        if self._forked_at is None:
            return
        later_s, self._forked_at = at - self._forked_at, None
        self.started_at += later_s
        for record in self._paths.values():
            if not record.ended():
                record.begin_later(later_s)

    def read_messages(self, number: int) -> None:
        """Count the messages up to this number as read."""
        self.last_message = max(self.last_message, number)

    def _drive_broke_off(self) -> None:
        """Note that the process died: the steps still at work were interrupted."""
        self._settle_what_is_over()
        for path in self._at_work:
            if path in self._paths:
                self._paths[path].crashes += 1
                self._paths[path].interrupted = True
        self._at_work.clear()

    def _run_completed(self, event: ev.WorkflowCompleted) -> None:
        self.completed, self.limit, self.cancel = event, None, None
        self.ends_since = 0
        self.undoing.clear()
        self._at_work.clear()
        self._unwinding = False

    def _run_suspended(self, event: ev.RunSuspended) -> None:
        self._is_lent = self._is_lent and event.reason != FORKED
        if event.reason == FORKED:
            self._forked_at = event.at
        self._at_work.clear()

    def _cancel_requested(self, event: ev.CancelRequested) -> None:
        self.read_messages(event.letter)
        self._unwinding, self._rehearses, self.cancel = True, False, event.reason
        self.ends_since = self.ends_since or event.seq
        self.paused = None

    def _run_steered(self, event: ev.RunSteered) -> None:
        self.read_messages(event.letter)
        if event.action == "guide":
            self.guidance.on_steered(event, self._agents & self._at_work.keys())
        elif event.path:  # which of them the step accepts is not known before it begins
            self.steering_requests.setdefault(event.path, []).append(event)
        elif event.action != "stop":
            self.paused = event if event.action == "pause" else None

    def _limit_reached(self, event: ev.LimitReached) -> None:
        self.limit = event
        self.ends_since = self.ends_since or event.seq

    def _step_started(self, event: ev.StepStarted) -> None:
        path = event.path
        record = self._paths.get(path)
        if record is None:
            record = self._record(path)
            self._undone.pop(path, None)
            if "/" in path:
                record.attempt = self._attempt_of(path)
        if record.started_at is None:
            record.started_at = event.at
        record.verdict = event.verdict
        record.index = event.index
        record.signal = event.signal
        record.fingerprint = event.fingerprint
        record.rollback = event.rollback
        record.cleanup = event.cleanup
        if event.once and event.verdict is not False:
            self.begun_once.add(path)
        if event.step_type in LEAF_KINDS:
            record.leaf = True
            if event.step_type in LAUNCHED:
                self._agents.add(path)
            if not self._rehearses and not record.waits_at(event.at):
                self._at_work[path] = None

    def _step_moved(self, event: ev.StepMoved) -> None:
        self.at(event.path).index = event.index

    def _step_interrupted(self, event: ev.StepInterrupted) -> None:
        self._at_work.pop(event.path, None)
        record = self._record(event.path)
        record.interrupted = True
        if event.usage is not None:
            record.interrupted_usage = add_usage(record.interrupted_usage, event.usage)
            if event.path in self._unsettled:
                launch = self._unsettled[event.path]
                self._budget_settled(ev.BudgetSettled(event.path, launch, event.usage))

    def _attempt_failed(self, event: ev.AttemptFailed) -> None:
        self.steering_requests.pop(event.path, None)
        record = self._record(event.path)
        self.undoing.pop(event.path, None)
        record.attempts = max(record.attempts, event.attempt)
        record.unreached_children = event.left_out
        if event.took:
            self._misfits.add(event.took)
        record.failure = event
        record.retry_due = record.session = record.interrupted_usage = None
        record.failed_usage = add_usage(record.failed_usage, event.usage)
        self._attempt_over(event.path, event.usage)
        self._count_without_budget(event.path, event.usage, at_least=event.usage is not None)

    def _session_started(self, event: ev.AgentSessionStarted) -> None:
        path = event.path
        record = self._record(path)
        record.session = event
        self._at_work[path] = None
        self._note_launch(path, event.launch)

    def _agent_guided(self, event: ev.AgentGuided) -> None:
        path, launch = event.path, event.next
        record = self._record(path)
        record.ladder = (*record.ladder, event)
        record.guidance = (*launch.said, *launch.guidance)
        record.session = record.interrupted_usage = None
        self.guidance.on_guided(event)
        self._at_work[path] = None
        self._note_launch(path, launch.number - 1)

    def _ladder_step(self, event: ev.LadderStep) -> None:
        path = event.path
        record = self._record(path)
        record.ladder = (*record.ladder, event)
        self.incidents.append(incident_of(event))
        record.session = record.interrupted_usage = None
        record.reasks = event.next.reasks
        self._note_launch(path, event.next.number - 1)
        if event.due or event.parked:  # it waits: nothing is at work
            record.interrupted = False
            self._at_work.pop(path, None)

    def _budget_reserved(self, event: ev.BudgetReserved) -> None:
        self.spending.append(event)
        self._unsettled[event.path] = event.launch
        self._reserved.add(event.path)
        self._note_launch(event.path, event.launch)
        if event.path in self._paths:
            self._at_work[event.path] = None

    def _budget_settled(self, event: ev.BudgetSettled) -> None:
        self.spending.append(event)
        path = event.path
        self._unsettled.pop(path, None)
        if path in self._over:  # it was the attempt's last launch
            del self._over[path]
            self._paid.pop(path, None)
        elif event.usage is not None:
            self._paid[path] = add_usage(self._paid.get(path), event.usage) or event.usage

    def _attempt_over(self, path: str, usage: Usage | None) -> None:
        if path in self._unsettled:
            self._over.setdefault(path, usage)

    def _count_without_budget(self, path: str, usage: Usage | None, *, at_least: int) -> None:
        """Count the launches of an ended attempt for which no budget reserved anything: a later
        drive may have one. Their numbers are below zero, as other launches follow.
        """
        if path not in self._agents and usage is None:  # a stage that an agent judged has usage
            return
        last = self.launched.get(path, 0)
        made = max(at_least, last - self._counted.get(path, 0))
        self._counted[path] = last
        if path in self._reserved:
            self._reserved.discard(path)
            return
        if not made:
            return
        first = -len(self.spending) - made
        self.spending += (ev.BudgetReserved(path, first + number) for number in range(made))
        self.spending.append(ev.BudgetSettled(path, first, usage))

    def _settle_what_is_over(self) -> None:
        """Settle attempts whose process died between their end and the settlement."""
        for path, usage in self._over.items():
            paid = self._paid.pop(path, None)
            own = usage if usage is None or paid is None else usage.since(paid)
            self.spending.append(ev.BudgetSettled(path, self._unsettled.pop(path), own))
        self._over.clear()

    def _note_launch(self, path: str, number: int) -> None:
        self.launched[path] = max(number, self.launched.get(path, 0))

    def _timer_set(self, event: ev.TimerSet) -> None:
        record = self._record(event.path)
        if record.due is None:
            record.due = {}
        record.due.setdefault((event.reason, event.attempt), event.due)
        if event.reason == "retry":
            record.retry_due = event.due

    def _step_completed(self, event: ev.StepCompleted) -> None:
        path = event.path
        self.steering_requests.pop(path, None)
        if self.guidance.waiting:
            self.guidance.ended(path)
        record = self._paths.get(path) or self._record(path)
        record.end = event.result
        if self._is_lent:
            output = event.result.output
            if isinstance(output, AgentResult):
                self.lent_sessions.add(output.session or "")
        if event.result.attempts > record.attempts and event.result.given_by is None:
            self._count_without_budget(path, event.used, at_least=event.result.success)
        self.undoing.pop(path, None)
        record.derived, record.unreached_children = event.composed, event.left_out
        self._attempt_over(path, event.used)
        record.consumed_signal = event.took
        if type(event.result.output) is Unresolved:
            self.unresolved.add(path)
        self._at_work.pop(path, None)

    def _member_started(self, event: ev.MemberStarted) -> None:
        new = event.path not in self._paths
        record = self._record(event.path)
        if new:
            record.attempt = self._attempt_of(event.path)
        record.index = event.index
        record.digest = event.digest
        record.member = True
        if record.started_at is None:
            record.started_at = event.at

    def _member_completed(self, event: ev.MemberCompleted) -> None:
        record = self._record(event.path)
        record.member_end = event.result
        record.ended_seq, record.found = event.seq, event.found
        self.undoing.pop(event.path, None)
        record.member_derived, record.unreached_children = event.composed, event.left_out
        if type(event.result.output) is Unresolved:
            self.unresolved.add(event.path)

    def _group_completed(self, event: ev.GroupCompleted) -> None:
        """Index the tasks of ``work`` in the order of their tree: they began in another order."""
        if event.kind != "work":
            return
        attempt = self.at(event.path).attempts + 1
        self.why_stopped[event.path, attempt] = event.why_stopped
        base = attempt_base(event.path, attempt)
        for index, key in enumerate(event.order):
            record = self._paths.get(f"{base}/{key}")
            if record is not None:
                record.index = index

    def _tasks_queued(self, event: ev.TasksQueued) -> None:
        self.tasks[event.path] = event.tasks

    def _work_edited(self, event: ev.WorkEdited) -> None:
        self.read_messages(event.letter)
        self.edits.setdefault(event.path, []).append(event)

    def _work_stopped(self, event: ev.WorkStopped) -> None:
        self.stops[event.path] = event

    def _subworkflow_ended(self, event: ev.SubworkflowEnded) -> None:
        record = self._record(event.path)
        record.value, record.value_at = event.value, event.at
        record.workflow_name = event.workflow_name
        if type(event.value) is Unresolved:
            self.unresolved.add(event.path)

    def _rollback_started(self, event: ev.RollbackStarted) -> None:
        above = ancestors_of(event.path, self._paths)
        what = next((path for path in above if not self.at(path).ended()), "")
        self.undoing.setdefault(what, self.cancel)
        if not what:
            self.ends_since = self.ends_since or event.seq

    def _rollback_completed(self, event: ev.RollbackCompleted) -> None:
        self._record(event.path).undone = event

    def _gate_opened(self, event: ev.GateOpened) -> None:
        if is_limit_gate(event.path):
            self.questions.setdefault(event.path, event.gate)
            return
        record = self._record(event.path)
        record.fingerprint_at_gate = record.fingerprint
        if record.gates is None:
            record.gates = {}
        known = record.gates.get(record.attempts + 1)
        if known is None or known.opening < event.gate.opening:  # a new question
            record.gates[record.attempts + 1] = event.gate
            self.answers.pop(event.path, None)
        home = event.path.rpartition("/")[0]
        if home in self._paths and self._is_budget_gate(home, event.path):  # it is not launched yet
            self._at_work.pop(home, None)
            self._paths[home].interrupted = False
        asked = self.revisions.get(event.path, 0)
        self.revisions[event.path] = max(asked, event.gate.opening)

    def _is_budget_gate(self, step: str, path: str) -> bool:
        """True for the gate that asks whether a step's agent may be launched; not for a step."""
        return is_budget_gate(step, path) and self.at(path).started_at is None

    def _gate_answered(self, event: ev.GateAnswered) -> None:
        self.answers.setdefault(event.path, event)
        self.read_messages(event.letter)

    def _signal_received(self, event: ev.SignalReceived) -> None:
        self._signals.append(event)
        self.read_messages(event.letter)

    def _record(self, path: str) -> PathRecord:
        record = self._paths.get(path)
        if record is None:
            record = self._paths[path] = PathRecord()
            self._gaps.discard(path)
            home = self._home(path) if "/" in path else ""
            children = self._children.get(home)
            if children is None:
                children = self._children[home] = {}
            children[path] = None
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

    def _forget_all(self, paths: Iterable[str]) -> None:
        drop = self._reopen if self._unwinding else self._forget
        for path in paths:
            drop(path)

    def _reopen(self, path: str) -> None:
        """Drop the end of one path, and nothing else. A run that is being cancelled enters the step
        again as far as it had come, with its attempts and its waits, and cancels it again.
        """
        record = self._paths.get(path)
        if record is not None:
            record.end = record.member_end = None
            record.derived = record.member_derived = ""

    def _forget(self, path: str) -> None:
        """Drop the record of one path; its children keep theirs."""
        for asked in [
            known for known in self._children.get(path, ()) if self._is_budget_gate(path, known)
        ]:
            self._paths.pop(asked, None)
            self.answers.pop(asked, None)
            del self._children[path][asked]
        record = self._paths.pop(path, None)
        if record is not None:
            self._gaps.add(path)
            if record.digest:
                self._items[path] = record.digest
            if self.is_fork and record.end is not None and record.end.success:
                self._undone[path] = record.fingerprint
        self.answers.pop(path, None)
        self._at_work.pop(path, None)

    # -- asking ---------------------------------------------------------------------------------

    def knows(self, path: str) -> bool:
        """True if anything is recorded of this path."""
        return path in self._paths

    def get(self, path: str) -> PathRecord | None:
        """The record of this path; None if nothing is recorded of it."""
        return self._paths.get(path)

    def at(self, path: str) -> PathRecord:
        """What is recorded of this path; an empty record if nothing is."""
        return self._paths.get(path) or PathRecord()

    def broke_off(self, path: str) -> bool:
        """True if the step was at work when its process ended; for a run that no process drives."""
        return path in self._at_work or self.at(path).interrupted

    def fingerprint_of(self, path: str) -> str:
        """The fingerprint of the step whose end, or else whose gate, is recorded."""
        record = self.at(path)
        if record.end is not None:
            return record.fingerprint
        return record.fingerprint_at_gate or record.fingerprint

    def undone_fingerprint(self, path: str) -> str:
        """In a fork, the fingerprint of a success that was dropped, as a rollback undid it."""
        return self._undone.get(path, "")

    def item_of(self, path: str) -> str:
        """The digest of a member's item, if its record, or one below it, counts; else empty."""
        record = self._paths.get(path)
        if record is not None:
            return record.digest
        kept = path in self._items and any(True for _ in self.paths_below(path))
        return self._items[path] if kept else ""

    def undoing_above(self, paths: Iterable[str]) -> str | None:
        """A step (or "", the run) above one of these paths that is being rolled back, if any."""
        if not self.undoing:
            return None
        known = self._paths.keys() | self._gaps
        above = {"", *(one for path in paths for one in ancestors_of(path, known))}
        return min(self.undoing.keys() & above, default=None)

    def signals_left(self) -> dict[str, list[ev.SignalReceived]]:
        """The signals that no recorded ``wait_for`` took, by name, in order of arrival. A signal
        that failed the step that took it is used up.
        """
        taken = {
            record.consumed_signal for record in self._paths.values() if record.consumed_signal
        } | self._misfits
        left: dict[str, list[ev.SignalReceived]] = {}
        for event in self._signals:
            if event.seq not in taken:
                left.setdefault(event.name, []).append(event)
        return left

    def gate(self, path: str, attempt: int) -> OpenGate | None:
        """The gate that this attempt opened."""
        return (self.at(path).gates or {}).get(attempt)

    def due(self, path: str, reason: str, attempt: int) -> float | None:
        """The recorded due time of a wait."""
        return (self.at(path).due or {}).get((reason, attempt))

    def below(self, path: str) -> Iterator[tuple[str, StepResult[Any]]]:
        """Every finished step below a path, with its result, marked as replayed; without steps that
        the end of a step above them did not reach.
        """
        stack = [path]
        while stack:
            for known in self._reached_children(stack.pop()):
                stack.append(known)
                end = self._paths[known].end
                if end is not None:
                    yield known, replayed(end)

    def left_by_attempts(self, path: str) -> list[str]:
        """The children that a step without an end reached in its finished attempts."""
        record = self.at(path)
        children = self.children(path)
        left, over = set(record.unreached_children), record.attempts
        return [one for one in children if one not in left and self._paths[one].attempt <= over]

    def paths_below(self, path: str) -> Iterator[str]:
        """Every recorded path below this one, those above before those below them."""
        stack = list(self._counting(path))
        while stack:
            known = stack.pop()
            yield known
            stack.extend(self._counting(known))

    def _counting(self, path: str) -> Collection[str]:
        """The recorded children of a path, without those of later attempts than its end has: an
        earlier drive made these, and its end of the step is superseded.
        """
        children: Collection[str] = self._children.get(path, ())
        if not children:
            return children
        if self._gaps:
            children = [child for child in children if child not in self._gaps]
        record = self._paths.get(path)
        if not children or record is None or record.end is None:
            return children
        made = record.end.attempts
        return [child for child in children if attempt_in(path, child) <= made]

    def _reached_children(self, path: str) -> Collection[str]:
        """The children as ``_counting`` has them, without those that the end of this path did not
        reach, and without its fallback if its last attempt did not fail.
        """
        children, record = self._counting(path), self._paths.get(path)
        if not children or record is None or not record.ended():
            return children
        end, left = record.end, set(record.unreached_children)
        if end is None or record.attempts >= end.attempts:
            return [one for one in children if one not in left] if left else children
        return [
            one for one in children if one not in left and self._paths[one].attempt <= end.attempts
        ]

    def reached_children(self, path: str) -> list[str]:
        """The recorded children of a path in order; if it has ended, only those that it reached."""
        return sorted(self._reached_children(path), key=self._place)

    def children(self, path: str) -> list[str]:
        """The recorded children of a path, in the order of the group, or as they were yielded."""
        return sorted(self._counting(path), key=self._place)

    def leads_on(self, path: str) -> bool:
        """True if a failed step has a fallback of its own on record."""
        return any(
            self._paths[child].attempt > attempt_in(path, child)
            and not self._is_budget_gate(path, child)
            for child in self._counting(path)
        )

    def ends(self) -> Iterator[tuple[str, StepResult[Any]]]:
        """Every finished step of the run, by path."""
        for path, record in self._paths.items():
            if record.end is not None:
                yield path, replayed(record.end)

    def steps_begun(self) -> int:
        """How many steps began, in all drives, and still count."""
        records = self._paths.values()
        return sum(one.started_at is not None and not one.member for one in records)

    @cached_property
    def session_totals(self) -> dict[str, Usage]:
        """The latest total usage of each agent session; totals only grow."""
        found: dict[str, Usage] = {}
        for record in self._paths.values():
            result = record.end.output if record.end is not None else None
            if isinstance(result, AgentResult) and result.session and result.session_usage:
                total, known = result.session_usage, found.get(result.session)
                if known is None or (total.tokens or 0) >= (known.tokens or 0):
                    found[result.session] = total
        return found

    def ended_paths(self) -> list[str]:
        """The paths of all finished steps."""
        return [path for path, record in self._paths.items() if record.end is not None]

    def to_undo(self, path: str) -> list[str]:
        """The steps below the path that succeeded, have a rollback, and were not undone; for the
        run itself, "", also those below forgotten paths.
        """
        return [
            known
            for known in (self.paths_below(path) if path else self._paths)
            if (record := self._paths[known]).rollback
            and record.undone is None
            and record.end is not None
            and record.end.status == "succeeded"
        ]

    def parent_of(self, path: str) -> str:
        """The path of the step or member that encloses this one; see ``model.paths``."""
        return parent_of(path, self._paths)

    def is_reused(self, path: str) -> bool:
        """True if a person said that the record of this path, or of one above it, still counts."""
        if not self.reused:
            return False
        return path in self.reused or any(path.startswith(f"{above}/") for above in self.reused)

    def _attempt_of(self, path: str) -> int:
        """The attempt of its parent that a new child belongs to; for a fallback, past the last."""
        above = self._home(path)
        if path.startswith(f"{above}~"):
            return attempt_in(above, path)
        known = self._paths.get(above)
        return 1 if known is None or not known.attempts else known.attempts + 1

    def _place(self, child: str) -> tuple[int, int]:
        """The attempt that a child belongs to, and its place in the group or body. If drives of
        different code recorded two in one place, the older one comes first.
        """
        record = self._paths[child]
        return record.attempt, record.index

    def tree_below(self, path: str, *, whole: bool = False) -> dict[str, dict[str, None]]:
        """The children of a path and of all paths below it, in order; ``whole``: also children that
        the end of their step did not reach.
        """
        found: dict[str, dict[str, None]] = {}
        stack = [path]
        while stack:
            here = stack.pop()
            counting = self._counting(here) if whole else self._reached_children(here)
            children = sorted(counting, key=self._place)
            if children:
                found[here] = dict.fromkeys(children)
                stack.extend(children)
        return found


def attempt_in(above: str, path: str) -> int:
    """The attempt of ``above`` that a path below it names (``above~2/...``); 1 if it names none."""
    if not path.startswith(f"{above}~"):
        return 1
    digits = path[len(above) + 1 :].partition("/")[0]
    return int(digits) if digits.isdigit() else 1


replayed: Callable[[StepResult[Any]], StepResult[Any]] = copier(StepResult, replayed=True)
"""A recorded result, marked as replayed; a fast copy, as each recorded step needs one."""


def moved_gate(gate: OpenGate, later_s: float) -> OpenGate:
    """The gate, opened later by some seconds."""
    deadline = None if gate.deadline is None else gate.deadline + later_s
    return replace(gate, since=gate.since + later_s, deadline=deadline)
