"""What a run's events say, by path: the only place that knows what a recorded event means.

``Recorded`` is a fold of the events: a resume, a fork, a view and a query all ask it. A replay goes
by path, never by position: the machine asks for each path when it reaches it, so steps that were
added elsewhere, or that end in another order, change nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from handrail.codec.unresolved import Unresolved
from handrail.later import later
from handrail.model import events as ev
from handrail.model.paths import (
    ancestors_of,
    attempt_base,
    is_limit_gate,
)
from handrail.model.results import (
    AgentResult,
    Incident,
    OpenGate,
    Usage,
    WaitsFor,
    add_usage,
)
from handrail.model.work import Task
from handrail.record.guidance import GivenGuidance, Guidance, given_guidance
from handrail.record.path_tree import PathState, PathTree
from handrail.record.results import incident_of

if TYPE_CHECKING:
    from handrail.record import spending, status
    from handrail.steps import table
else:
    later(globals(), "record.spending record.status steps.table")


FORKED = "forked"
"""Why a fork is suspended before it is driven for the first time."""


class Recorded(PathTree):
    """A run's events so far, of which those that still count. Mutable: ``take`` reads more."""

    def __init__(self, history: Iterable[ev.Event] = ()) -> None:  # noqa: PLR0915  # one attribute a line
        super().__init__()
        self.count = 0
        """How many events it has read."""
        self.run_id = ""
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
        self.has_rollbacks = False
        """Any step has a rollback, whether its record still counts or not."""
        self.unresolved: set[str] = set()
        """Paths whose output is of a class that is not known here yet."""
        self.failed_launches: list[ev.LadderStep] = []
        self.followed: dict[int, float] = {}
        """When another launch, or an end, followed a failed launch, by its place in the list."""
        self._last_failed: dict[str, int] = {}
        self.accounts: dict[str, spending.Account] = {}
        """What each agent step's launches used, whether its record still counts or not."""
        self.spending: list[ev.Event] = []
        """The events of budgets. They count whether the record of their step still does or not."""
        self._reserved = set[str]()
        """Agent steps for whose last attempt a budget reserved a launch."""
        self._counted: dict[str, int] = {}
        """How many launches of each agent step are in ``spending``."""
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
        self._unwinding = False
        """The run is being cancelled, and has not ended since: superseded steps are reopened."""
        self._rehearses = False
        """The drive only unwinds: it records again the steps that it reaches, but performs none."""
        self.completed: ev.WorkflowCompleted | None = None
        self.suspended_for = ""
        """Why its last drive was suspended; empty if it was not."""
        self.is_stopped = False
        """A person stopped the last drive."""
        self.denied: list[ev.SandboxDenied] = []
        """What the sandboxes of its steps refused."""
        self.labels: dict[str, str] = {}  # with those that a later drive changed
        self.resumed_seq = 0
        """The event with which the last drive began; 0 in the first."""
        self.cancel: str | None = None
        """Why the run is being cancelled; None if it is not, or has ended since."""
        self.cancel_seq = 0
        """The last request to cancel the run, if it has not ended since."""
        self._ending_since: dict[type, int] = {}
        self.ended_since: dict[type, int] = {}
        """Of a run that has ended: the first request to cancel it, and the first limit, in the last
        drive, or in those that a process broke off before it.
        """
        self.paused: ev.RunSteered | None = None
        """The event that paused the run; None if it is not paused any more."""
        self.steering_requests: dict[str, list[ev.RunSteered]] = {}
        """People's requests to steer steps that have not ended since, by path, in order."""
        self.guidance = Guidance()
        self.told: dict[str, tuple[GivenGuidance, ...]] = {}
        """The guidance that each agent got, whether its record still counts or not."""
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
        self.open_gates: dict[str, OpenGate] = {}
        """The questions that wait for a person, by path."""
        self.awaited: dict[str, ev.StepStarted] = {}
        """The starts of steps that wait for a signal. After a resume, a wait counts once the drive
        has reached it again.
        """
        self.waits: dict[str, WaitsFor] = {}
        """Of steps that wait for a time, for a claim, or for what a person must do first."""
        self.sizes: dict[str, int | None] = {}
        """How many members each group has, if that is known."""
        self.tasks: dict[str, tuple[Task, ...]] = {}
        """The tasks that each ``work`` step begins with, by path."""
        self.edits: dict[str, list[ev.WorkEdited]] = {}
        """The edits of the queue of each ``work`` step, in order."""
        self.stops: dict[str, ev.WorkStopped] = {}
        """Why each ``work`` step was to begin no more tasks, as its ``stop`` said last."""
        self.overdue: dict[str, str] = {}
        """The step around a cancelled path whose timeout stopped it, by the cancelled path."""
        self.why_stopped: dict[tuple[str, int], str | None] = {}
        """Why ended attempts began no more tasks, by path and attempt: ``stop``, or the bound."""
        self._again: set[str] = set()
        """Forgotten paths that a person lets run again."""
        self.drives: list[tuple[float, float | None]] = []
        """When each drive began and ended; an end is None while the drive goes on."""
        self._last: ev.Event | ev.Progress | None = None
        self.take(history)

    @property
    def awaits_its_first_drive(self) -> bool:
        """It is a fork that was not resumed yet: its time stands still."""
        return self.suspended_for == FORKED

    @property
    def is_empty(self) -> bool:
        """The run has not begun: nothing is recorded."""
        return not self.count

    def apply(self, event: ev.Event | ev.Progress) -> None:
        """Read the next event; a notice means little to a record."""
        self.count += 1
        take = self._TAKES.get(type(event))
        if take is not None:
            take(self, event)
        self._last = event

    def take(self, history: Iterable[ev.Event]) -> None:
        """Read the next events."""
        takes = self._TAKES
        for event in history:
            take = takes.get(type(event))
            if take is not None:
                take(self, event)
            self.count += 1
            self._last = event

    def close(self, superseded: Iterable[str] = ()) -> None:
        """End the record, of a run that no process drives: steps still at work were interrupted.
        These paths no longer count.
        """
        self._drive_broke_off()
        self._forget_all(superseded, sys.maxsize)

    def run_again(self, paths: Iterable[str]) -> None:
        """Let steps run again that otherwise must not: a person named their paths."""
        again = set(paths)
        self.reused.difference_update(path.removesuffix("/") for path in again)
        if not again or not (self.begun_once or self._gaps):
            return
        known = self._paths.keys() | self._gaps.keys()
        for path in [*self.begun_once, *self._gaps]:
            if path in again or not again.isdisjoint(ancestors_of(path, known)):
                self.begun_once.discard(path)
                self._again.add(path)

    # -- the run --------------------------------------------------------------------------------

    def _run_started(self, event: ev.WorkflowStarted) -> None:
        self.run_id, self.started_at = event.run_id, event.at
        self.inputs = dict(event.inputs)
        self.labels.update(event.labels)
        self.is_fork = self._is_lent = event.forked_from is not None
        self.drives.append((event.at, None))

    def _run_resumed(self, event: ev.RunResumed) -> None:
        self.resumed_seq = event.seq
        self.labels.update(event.labels)
        self.begin_time(event.at)
        self._drive_broke_off()
        if self._last is not None and self.drives and self.drives[-1][1] is None:  # it was killed
            last = self._last.at
            self._drive_ended(last)
            for state in (*self._gaps.values(), *self._paths.values()):
                if state.ended_at is None and table.verb_of(state.kind).leaf:
                    state.stop(max(state.timed().since or last, last), "interrupted")
        self.drives.append((event.at, None))
        self._rehearses = self._unwinding
        self.completed, self.suspended_for, self.is_stopped = None, "", False
        self._forget_waits("claim", "person")
        self.awaited.clear()
        for place, step in enumerate(self.failed_launches):
            if step.parked:
                self.followed.setdefault(place, event.at)
        self.reused.update(event.reused)
        for path in event.superseded:
            self._close_gates(path)
            if path in self.accounts:
                self.accounts[path].forgotten()
        self._forget_all(event.superseded, event.seq)
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
        for state in self._paths.values():
            if not state.ended():
                state.begin_later(later_s)

    def read_messages(self, number: int) -> None:
        """Count the messages up to this number as read."""
        self.last_message = max(self.last_message, number)

    def _drive_ended(self, at: float) -> None:
        self.drives[-1:] = [(began, at) for began, _ in self.drives[-1:]]

    def _drive_broke_off(self) -> None:
        """Note that the process died: the steps still at work were interrupted."""
        self._settle_what_is_over()
        for path in self._at_work:
            if path in self._paths:
                self._paths[path].crashes += 1
                self._paths[path].interrupted = True
        self._at_work.clear()

    def _run_completed(self, event: ev.WorkflowCompleted) -> None:
        self._drive_ended(event.at)
        self.completed, self.limit, self.cancel = event, None, None
        self.suspended_for = ""
        self.ends_since = self.cancel_seq = 0
        self.ended_since, self._ending_since = self._ending_since, {}
        self.undoing.clear()
        self._at_work.clear()
        self._forget_waits("person")
        self.awaited.clear()
        self._unwinding = False

    def _run_suspended(self, event: ev.RunSuspended) -> None:
        self._drive_ended(event.at)
        self.suspended_for = event.reason
        self._is_lent = self._is_lent and event.reason != FORKED
        if event.reason == FORKED:
            self._forked_at = event.at
        self._ending_since.clear()
        self._forget_waits("claim")
        self._at_work.clear()

    def _cancel_requested(self, event: ev.CancelRequested) -> None:
        self.read_messages(event.letter)
        self._unwinding, self._rehearses, self.cancel = True, False, event.reason
        self._begins_to_end(event)
        self.cancel_seq = event.seq
        self.paused = None

    def _limit_reached(self, event: ev.LimitReached) -> None:
        self.limit = event
        self._begins_to_end(event)

    def _begins_to_end(self, event: ev.CancelRequested | ev.LimitReached) -> None:
        seq = event.seq
        self.ends_since = self.ends_since or seq
        self._ending_since.setdefault(type(event), seq)

    def _run_steered(self, event: ev.RunSteered) -> None:
        self.read_messages(event.letter)
        if event.action == "guide":
            agents = (path for path in self._at_work if table.verb_of(self.at(path).kind).launches)
            self.guidance.on_steered(event, agents)
        elif event.path:  # which of them the step accepts is not known before it begins
            self.steering_requests.setdefault(event.path, []).append(event)
        elif event.action == "stop":
            self.is_stopped = True
        else:
            self.paused = event if event.action == "pause" else None

    def _signal_received(self, event: ev.SignalReceived) -> None:
        self._signals.append(event)
        self.read_messages(event.letter)

    # -- steps ----------------------------------------------------------------------------------

    def _step_started(self, event: ev.StepStarted) -> None:
        path = event.path
        state = self._paths.get(path)
        if state is None:
            state = self._state(path)
            if "/" in path:
                state.attempt = self._attempt_of(path)
        state.start(event.at)
        state.kind = kind = event.step_type
        state.begun_seq = event.seq
        state.first_seq = state.first_seq or event.seq
        state.verdict = event.verdict
        state.index = event.index
        state.signal = event.signal
        state.fingerprint = event.fingerprint
        state.rollback = event.rollback
        if event.rollback:
            self.has_rollbacks = True
        state.cleanup = event.cleanup
        runs = event.verdict is not False
        if event.once and runs:
            self.begun_once.add(path)
        if event.signal and runs:
            self.awaited[path] = event
        verb = table.verb_of(kind)
        if verb.leaf:
            if verb.launches and runs:
                self.accounts.setdefault(path, spending.Account()).started()
            if not self._rehearses and not state.waits_at(event.at):
                self._at_work[path] = None

    def _step_moved(self, event: ev.StepMoved) -> None:
        self.at(event.path).index = event.index

    def _step_interrupted(self, event: ev.StepInterrupted) -> None:
        self._at_work.pop(event.path, None)
        state = self._state(event.path)
        state.interrupted = True
        state.stop(event.at, "interrupted")
        if event.usage is not None:
            state.interrupted_usage = add_usage(state.interrupted_usage, event.usage)
            self._account(event.path).interrupted(event.usage)
            if event.path in self._unsettled:
                launch = self._unsettled[event.path]
                self._settle(ev.BudgetSettled(event.path, launch, event.usage))

    def _attempt_failed(self, event: ev.AttemptFailed) -> None:
        path = event.path
        self.steering_requests.pop(path, None)
        state = self._state(path)
        self.undoing.pop(path, None)
        state.attempts = max(state.attempts, event.attempt)
        state.unreached_children = event.left_out
        if event.cause is not None:
            self._note_cause(state, attempt_base(path, event.attempt), event.cause)
        if event.took:
            self._misfits.add(event.took)
        state.failure = event
        state.stop(event.at, "failed")
        state.retry_due = state.session = state.interrupted_usage = None
        state.failed_usage = add_usage(state.failed_usage, event.usage)
        self.waits.pop(path, None)
        self._launch_over(path, event.at)
        self._attempt_over(path, event.usage)
        self._account(path).failed(event)
        self._count_without_budget(path, event.usage)

    @staticmethod
    def _note_cause(state: PathState, base: str, cause: str) -> None:
        state.causes = {**(state.causes or {}), base: cause}

    def _timer_set(self, event: ev.TimerSet) -> None:
        state = self._state(event.path)
        if state.due is None:
            state.due = {}
        state.due.setdefault((event.reason, event.attempt), event.due)
        if event.reason == "retry":
            state.retry_due = event.due
        if event.reason in {"retry", "cap", "backoff"}:  # work goes on then
            state.timed().since = event.due
        self._wait(event)

    def _step_completed(self, event: ev.StepCompleted) -> None:
        path, result = event.path, event.result
        state = self._paths.get(path) or self._state(path)
        state.end, state.ended_seq = result, event.seq
        state.ended_at = event.at
        state.derived, state.unreached_children = event.composed, event.left_out
        state.consumed_signal = event.took
        if event.overdue:
            self.overdue[path] = event.overdue
        self._at_work.pop(path, None)
        if type(result.output) is Unresolved:
            self.unresolved.add(path)
        # The rest is empty in most runs, and a run has many of these.
        if self.steering_requests:
            self.steering_requests.pop(path, None)
        if self.guidance.waiting:
            self.guidance.ended(path)
        if self.undoing:
            self.undoing.pop(path, None)
        if self.waits:
            self.waits.pop(path, None)
        if self.awaited:
            self.awaited.pop(path, None)
        if self.open_gates:
            self._close_gates(path)
        if self._last_failed:
            self._launch_over(path, event.at)
        if path in self.accounts or result.usage is not None:
            self._agent_ended(event, state)

    def _agent_ended(self, event: ev.StepCompleted, state: PathState) -> None:
        path, result = event.path, event.result
        self._account(path).completed(event)
        if self._is_lent and isinstance(result.output, AgentResult):
            self.lent_sessions.add(result.output.session or "")
        if result.attempts > state.attempts:
            self._count_without_budget(path, event.used)
        self._attempt_over(path, event.used)

    def _step_replayed(self, event: ev.StepReplayed) -> None:
        """Take the end that a drive read from a record which is not read here."""
        if event.result is not None:
            state = self._state(event.path)
            state.kind, state.end = event.result.step_type, event.result

    def _rollback_started(self, event: ev.RollbackStarted) -> None:
        above = ancestors_of(event.path, self._paths)
        what = next((path for path in above if not self.at(path).ended()), "")
        self.undoing.setdefault(what, self.cancel)
        if not what:
            self.ends_since = self.ends_since or event.seq

    def _rollback_completed(self, event: ev.RollbackCompleted) -> None:
        state = self._state(event.path)
        state.undone = event

    # -- members, groups and child workflows ----------------------------------------------------

    def _member_started(self, event: ev.MemberStarted) -> None:
        new = event.path not in self._paths
        state = self._state(event.path)
        if new:
            state.attempt = self._attempt_of(event.path)
        state.kind = "member"
        state.first_seq = state.first_seq or event.seq
        state.index = event.index
        state.digest = event.digest
        state.start(event.at)

    def _member_completed(self, event: ev.MemberCompleted) -> None:
        state = self._state(event.path)
        state.end, state.ended_seq = event.result, event.seq
        state.ended_at = event.at
        state.found = event.found
        if event.cause is not None:
            self._note_cause(state, event.path, event.cause)
        if event.overdue:
            self.overdue[event.path] = event.overdue
        self.undoing.pop(event.path, None)
        state.derived, state.unreached_children = event.composed, event.left_out
        if type(event.result.output) is Unresolved:
            self.unresolved.add(event.path)

    def _group_started(self, event: ev.GroupStarted) -> None:
        state = self._state(event.path)
        state.group = event
        self.sizes[event.path] = event.size

    def _group_completed(self, event: ev.GroupCompleted) -> None:
        """Index the tasks of ``work`` in the order of their tree: they began in another order."""
        state = self.at(event.path)
        self.sizes[event.path] = max(self.sizes.get(event.path) or 0, event.total)
        if event.kind != "work":
            return
        attempt = state.attempts + 1
        self.why_stopped[event.path, attempt] = event.why_stopped
        base = attempt_base(event.path, attempt)
        for index, key in enumerate(event.order):
            task = self._paths.get(f"{base}/{key}")
            if task is not None:
                task.index = index

    def _tasks_queued(self, event: ev.TasksQueued) -> None:
        self.tasks[event.path] = event.tasks

    def _work_edited(self, event: ev.WorkEdited) -> None:
        self.read_messages(event.letter)
        self.edits.setdefault(event.path, []).append(event)

    def _work_stopped(self, event: ev.WorkStopped) -> None:
        self.stops[event.path] = event

    def _subworkflow_ended(self, event: ev.SubworkflowEnded) -> None:
        self._state(event.path).child = event
        if type(event.value) is Unresolved:
            self.unresolved.add(event.path)

    # -- agents and their budgets ---------------------------------------------------------------

    def _session_started(self, event: ev.AgentSessionStarted) -> None:
        path = event.path
        state = self._state(path)
        state.session = event
        state.begin(event.at)
        self._at_work[path] = None
        self._note_launch(path, event.launch)
        self._account(path).launch_opened(event)
        self._wait(event)

    def _sandbox_denied(self, event: ev.SandboxDenied) -> None:
        self.denied.append(event)

    def _agent_guided(self, event: ev.AgentGuided) -> None:
        path, launch = event.path, event.next
        state = self._state(path)
        state.ladder = (*state.ladder, event)
        state.session = state.interrupted_usage = None
        self.guidance.on_guided(event)
        self.told[path] = (*self.told.get(path, ()), *given_guidance(event))
        self._at_work[path] = None
        self._note_launch(path, launch.number - 1)
        self._account(path).guided(event)
        self._wait(event)

    def _ladder_step(self, event: ev.LadderStep) -> None:
        path = event.path
        state = self._state(path)
        state.ladder = (*state.ladder, event)
        state.session = state.interrupted_usage = None
        state.stop(event.at, "failed")
        state.timed().since = None if event.parked else max(event.due, event.at)
        self._note_launch(path, event.next.number - 1)
        self._account(path).ladder_step(event)
        self._launch_over(path, event.at)
        self._last_failed[path] = len(self.failed_launches)
        self.failed_launches.append(event)
        self._wait(event)
        if event.due or event.parked:  # it waits: nothing is at work
            state.interrupted = False
            self._at_work.pop(path, None)

    def _account(self, path: str) -> spending.Account:
        """The account of an agent step; one that nobody reads, if the step never began."""
        return self.accounts.get(path) or spending.Account()

    def _launch_over(self, path: str, at: float) -> None:
        place = self._last_failed.pop(path, None)
        if place is not None and not self.failed_launches[place].parked:
            self.followed[place] = at

    def _budget_reserved(self, event: ev.BudgetReserved) -> None:
        self.spending.append(event)
        self._unsettled[event.path] = event.launch
        self._reserved.add(event.path)
        self._note_launch(event.path, event.launch)
        self._account(event.path).launch_opened(event)
        if event.path in self._paths:
            self._at_work[event.path] = None

    def _budget_settled(self, event: ev.BudgetSettled) -> None:
        self._account(event.path).budget_settled(event)
        self._settle(event)

    def _settle(self, event: ev.BudgetSettled) -> None:
        self.spending.append(event)
        path = event.path
        self._unsettled.pop(path, None)
        if path in self._over:  # it was the attempt's last launch
            del self._over[path]
            self._paid.pop(path, None)
        elif event.usage is not None:
            self._paid[path] = add_usage(self._paid.get(path), event.usage) or event.usage

    def _budget_changed(self, event: ev.BudgetRaised | ev.BudgetWarning) -> None:
        self.spending.append(event)

    def _attempt_over(self, path: str, usage: Usage | None) -> None:
        if path in self._unsettled:
            self._over.setdefault(path, usage)

    def _count_without_budget(self, path: str, usage: Usage | None) -> None:
        """Count the launches of an ended attempt for which no budget reserved anything: a later
        drive may have one. Their numbers are below zero, as other launches follow.
        """
        account = self.accounts.get(path)
        if account is None and usage is None:  # a stage that an agent judged has usage
            return
        before = self._counted.get(path, 0)
        made = 1 if account is None else account.launches - before
        self._counted[path] = before + made
        if path in self._reserved:
            self._reserved.discard(path)
            return
        if made <= 0:
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

    # -- waits ----------------------------------------------------------------------------------

    def _wait(
        self,
        event: ev.TimerSet | ev.OfClaims | ev.AgentSessionStarted | ev.AgentGuided | ev.LadderStep,
    ) -> None:
        path, begun, is_timer = event.path, status.wait_begun_by(event), type(event) is ev.TimerSet
        if begun is None:
            if not is_timer:
                self.waits.pop(path, None)
            return
        known = self.waits.get(path)
        if not is_timer or known is None or (known.kind, known.until) != ("time", begun.until):
            self.waits[path] = begun  # else the known one says why

    def _forget_waits(self, *kinds: str) -> None:
        for path in [path for path, wait in self.waits.items() if wait.kind in kinds]:
            del self.waits[path]

    def _gate_opened(self, event: ev.GateOpened) -> None:
        path, gate = event.path, event.gate
        if is_limit_gate(path):
            self.questions.setdefault(path, gate)
        else:
            self._step_asks(path, gate)
            self._paths[path].begin(event.at)
        if path not in self.answers:
            self.open_gates[path] = gate

    def _step_asks(self, path: str, gate: OpenGate) -> None:
        state = self._state(path)
        state.fingerprint_at_gate = state.fingerprint
        if state.gates is None:
            state.gates = {}
        known = state.gates.get(state.attempts + 1)
        if known is None or known.opening < gate.opening:  # a new question
            state.gates[state.attempts + 1] = gate
            self.answers.pop(path, None)
        home = path.rpartition("/")[0]
        if home in self._paths and self._is_budget_gate(home, path):  # it is not launched yet
            self._at_work.pop(home, None)
            self._paths[home].interrupted = False
        self.revisions[path] = max(self.revisions.get(path, 0), gate.opening)

    def _close_gates(self, step: str) -> None:
        """Close a step's own question, and the one whether its agent may be launched."""
        self.open_gates.pop(step, None)
        for path in self._children.get(step, ()):
            if path in self.open_gates and self._is_budget_gate(step, path):
                del self.open_gates[path]

    def _gate_answered(self, event: ev.GateAnswered) -> None:
        self.answers.setdefault(event.path, event)
        self.open_gates.pop(event.path, None)
        state = self._paths.get(event.path)
        if state is not None and not state.kind and state.ended_at is None:
            state.ended_at = event.at
        self.read_messages(event.letter)

    # -- paths ----------------------------------------------------------------------------------

    def _forget_all(self, paths: Iterable[str], seq: int) -> None:
        if self._unwinding:  # it enters these steps again as far as they had come, to cancel them
            for path in paths:
                if path in self._paths:
                    self._paths[path].drop_end(seq)
            return
        for path in paths:
            self._forget(path)

    def _forget(self, path: str) -> None:
        """Drop the record of one path; its children keep theirs."""
        for asked in [
            known for known in self._children.get(path, ()) if self._is_budget_gate(path, known)
        ]:
            self._paths.pop(asked, None)
            self.answers.pop(asked, None)
            del self._children[path][asked]
        state = self._paths.pop(path, None)
        if state is not None:
            self._gaps[path] = state
            self._again.discard(path)
        self.answers.pop(path, None)
        self._at_work.pop(path, None)

    @cached_property
    def _by_path(self) -> tuple[dict[str, Any], ...]:
        return (
            self._paths, self._children, self._at_work, self._counted, self._last_failed,
            self.accounts, self.answers, self.awaited, self.edits, self.launched, self.open_gates,
            self.overdue, self.questions, self.revisions, self.sizes, self.steering_requests,
            self.stops, self.tasks, self.told, self.undoing, self.waits,
        )  # fmt: skip

    def forget_ended(self, path: str) -> Usage | None:
        """Drop what is recorded of a path that has ended, for a display that must stay small.

        Returns what its launches used.
        """
        account = self.accounts.get(path)
        self._children.get(self._home(path), {}).pop(path, None)
        for attempt in range(1, self.at(path).attempts + 2) if self.why_stopped else ():
            self.why_stopped.pop((path, attempt), None)
        for kept in self._by_path:
            if kept:  # most are empty in most runs
                kept.pop(path, None)
        for paths in (self._reserved, self.begun_once, self.unresolved):
            paths.discard(path)
        for events in (self.denied, self.spending, self._signals):
            events.clear()
        if not self._last_failed:
            self.failed_launches.clear()
            self.followed.clear()
        return None if account is None else account.spent(alive=False).usage

    _TAKES: ClassVar[Mapping[type, Callable[[Any, Any], None]]] = {
        ev.WorkflowStarted: _run_started,
        ev.RunResumed: _run_resumed,
        ev.WorkflowCompleted: _run_completed,
        ev.RunSuspended: _run_suspended,
        ev.CancelRequested: _cancel_requested,
        ev.LimitReached: _limit_reached,
        ev.RunSteered: _run_steered,
        ev.SignalReceived: _signal_received,
        ev.StepStarted: _step_started,
        ev.StepMoved: _step_moved,
        ev.StepInterrupted: _step_interrupted,
        ev.AttemptFailed: _attempt_failed,
        ev.TimerSet: _timer_set,
        ev.StepCompleted: _step_completed,
        ev.StepReplayed: _step_replayed,
        ev.RollbackStarted: _rollback_started,
        ev.RollbackCompleted: _rollback_completed,
        ev.MemberStarted: _member_started,
        ev.MemberCompleted: _member_completed,
        ev.GroupStarted: _group_started,
        ev.GroupCompleted: _group_completed,
        ev.TasksQueued: _tasks_queued,
        ev.WorkEdited: _work_edited,
        ev.WorkStopped: _work_stopped,
        ev.SubworkflowEnded: _subworkflow_ended,
        ev.AgentSessionStarted: _session_started,
        ev.AgentGuided: _agent_guided,
        ev.SandboxDenied: _sandbox_denied,
        ev.LadderStep: _ladder_step,
        ev.BudgetReserved: _budget_reserved,
        ev.BudgetSettled: _budget_settled,
        ev.BudgetRaised: _budget_changed,
        ev.BudgetWarning: _budget_changed,
        ev.ClaimWaiting: _wait,
        ev.ClaimGranted: _wait,
        ev.ClaimLost: _wait,
        ev.GateOpened: _gate_opened,
        ev.GateAnswered: _gate_answered,
    }

    # -- asking ---------------------------------------------------------------------------------

    def wait_of(self, path: str, now: float) -> WaitsFor | None:
        """What the step waits for at this time; None if it waits for nothing."""
        if path in self.open_gates:
            return status.wait_for_answer(self.open_gates[path])
        if path in self.awaited:
            return status.wait_begun_by(self.awaited[path])
        wait = self.waits.get(path)
        is_over = wait is None or (wait.until is not None and wait.until <= now)
        return None if is_over else wait

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
        gap = self._gaps.get(path)
        if gap is None or not self.is_fork or path in self._again:
            return ""
        return gap.fingerprint if gap.end is not None and gap.end.success else ""

    def item_of(self, path: str) -> str:
        """The digest of a member's item, if its record, or one below it, counts; else empty."""
        record = self._paths.get(path)
        if record is not None:
            return record.digest
        kept = path in self._gaps and any(True for _ in self.paths_below(path))
        return self._gaps[path].digest if kept else ""

    def undoing_above(self, paths: Iterable[str]) -> str | None:
        """A step (or "", the run) above one of these paths that is being rolled back, if any."""
        if not self.undoing:
            return None
        known = self._paths.keys() | self._gaps.keys()
        above = {"", *(above_path for path in paths for above_path in ancestors_of(path, known))}
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

    def awaited_types(self) -> dict[str, list[Any]]:
        """By signal, the payload types of the open ``wait_for`` steps; None for one not known."""
        types: dict[str, list[Any]] = {}
        for event in self.awaited.values():
            types.setdefault(event.signal, []).append(event.accepts)
        return types

    @property
    def incidents(self) -> list[Incident]:
        """The failed launches of agents, as a result lists them."""
        return [incident_of(event) for event in self.failed_launches]

    def gate(self, path: str, attempt: int) -> OpenGate | None:
        """The gate that this attempt opened."""
        return (self.at(path).gates or {}).get(attempt)

    def due(self, path: str, reason: str, attempt: int) -> float | None:
        """The recorded due time of a wait."""
        return (self.at(path).due or {}).get((reason, attempt))

    def to_undo(self, path: str) -> list[str]:
        """The steps below the path that succeeded, have a rollback, and were not undone; for the
        run itself, "", also those below forgotten paths.
        """
        if not self.has_rollbacks:
            return []
        return [
            known
            for known in (self.paths_below(path) if path else self._paths)
            if (record := self._paths[known]).rollback
            and record.undone is None
            and record.end is not None
            and record.end.status == "succeeded"
        ]

    def is_reused(self, path: str) -> bool:
        """True if a person said that the record of this path, or of one above it, still counts."""
        if not self.reused:
            return False
        return path in self.reused or any(path.startswith(f"{above}/") for above in self.reused)
