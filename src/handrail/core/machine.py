"""The interpreter of workflows: ``receive(event) -> commands``.

Theory of operation
===================

The machine knows nothing of time, tasks or files. It is given what happened (events, which are in
the journal by then, and reports, which need no record because what follows from them is recorded)
and answers with what to do. What it answers depends on that sequence alone.

A run is a tree of nodes. The root and every child workflow and generator member hold a generator;
the others are steps. A node lives from its path being taken to its end being received back:

    OPENING       its predicate is being evaluated               -> RUNNING | ENDING
    RUNNING       an attempt is in flight, or its children are   -> PAUSED | FALLING_BACK
                                                                    | UNDOING | ENDING
    PAUSED        it waits before its next attempt               -> RUNNING | ENDING
    FALLING_BACK  its handler or the fallback step is at work    -> ENDING
    UNDOING       rollbacks below it run                         -> RUNNING | PAUSED
                                                                    | FALLING_BACK | ENDING
    ENDING        ``Record`` of its end is on its way            -> gone

Every end goes through ``Record(StepCompleted)``: the engine journals it, shows it to the sinks and
gives it back, and only then does the parent hear of it. So a generator never sees a result that a
crash could take away.

*Stopping.* ``stop(node)`` marks a subtree: attempts in flight are cancelled, waits end at once, and
as children end, ``RunCancelled`` is thrown into the generators above them, innermost first. Steps
yielded while a generator unwinds run; a *hard* stop closes generators instead. A node with
``failure`` set when its children are gone (a deadline) fails with it; the others end as cancelled.

*The agenda* is a stack of things to do within one ``receive``. There is no recursion anywhere: a
group of any number of members, or of members that are all recorded, takes one loop. Pushing in
reverse keeps commands in tree order.

*Verbs* that have children or wait live in modules of their own (``flow``, ``groups``,
``validation``, ``waiting``), one ``Behaviour`` each; the machine looks them up by verb type.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Protocol

import attrs

from handrail.core.node import Failure, Node, Phase, failure_from
from handrail.core.replay import Recorded
from handrail.core.report import tree_order, workflow_result
from handrail.core.retry import RetryAfter, next_attempt
from handrail.core.visible import VisibleResults
from handrail.errors import (
    DefinitionError,
    DuplicateStepName,
    HandrailError,
    LimitExceeded,
    NotAStep,
    RunCancelled,
    StepFailed,
    StepTimeout,
    WorkflowError,
)
from handrail.model import commands as cmd
from handrail.model import events as ev
from handrail.model.definition import WorkflowDefinition
from handrail.model.described import bases_of, line_of, raised_at, text_of, traceback_of
from handrail.model.outcome import RETURNED, YIELDED, resume
from handrail.model.paths import attempt_base, join
from handrail.model.policy import Limits
from handrail.model.results import (
    OpenGate,
    RollbackError,
    RunStatus,
    Skipped,
    StepResult,
    StepStatus,
    Usage,
    WorkflowResult,
    qualified,
)
from handrail.model.steps import PLAIN, AgentCall, Generation, PythonCall, StageCheck, Step

_NEEDS_VIEW = (AgentCall, Generation, StageCheck)


class Behaviour(Protocol):
    """What a verb does when it is no leaf: begin an attempt, and hear of children and answers.

    ``undoes_itself``: what its children registered is undone at its own end if it did not succeed.
    """

    undoes_itself: bool

    def begin(self, machine: Machine, node: Node, /) -> None: ...

    def child_ended(
        self, machine: Machine, node: Node, child: Node, result: StepResult[Any], /
    ) -> None: ...

    def evaluated(self, machine: Machine, node: Node, report: cmd.Evaluated, /) -> None: ...

    def stopped(self, machine: Machine, node: Node, /) -> None:
        """The node was stopped and has no child left; say so before it ends."""


@attrs.frozen
class Setting:
    """What a machine is told once, before the first event."""

    run_id: str
    limits: Limits = Limits()
    cleanup_timeout_s: float = 30.0
    recorded: Recorded | None = None


@attrs.frozen
class Ending:
    """How the run is to end, once its tree has unwound."""

    status: RunStatus
    error: str | None = None
    error_type: str | None = None
    traceback: str | None = None
    failed_step: str | None = None


Action = tuple[Callable[..., None], tuple[Any, ...]]


class Machine:
    """Interprets one drive of one run. Mutable; everything it decides depends on its inputs."""

    def __init__(
        self,
        definition: WorkflowDefinition,
        inputs: Mapping[str, Any],
        setting: Setting,
        behaviours: Mapping[type, Behaviour],
    ) -> None:
        self.definition = definition
        self.setting = setting
        self.limits = setting.limits
        self.behaviours = behaviours
        self.now = 0.0
        self.nodes: dict[str, Node] = {}
        self.results: dict[str, StepResult[Any]] = {}
        self.tree: dict[str, dict[str, None]] = {}
        self.concurrent: set[str] = set()
        self.timers: dict[int, tuple[str, Node]] = {}
        self.gates: dict[str, OpenGate] = {}
        self.answered: dict[str, ev.GateAnswered] = {}
        self.listeners: dict[str, list[Node]] = {}
        self.mailboxes: dict[str, list[Any]] = {}
        self._plain = setting.recorded is None and setting.limits.max_steps is None
        self.finished = False
        self.escaped: BaseException | None = None
        self.root = Node(None, "", None, inputs)
        self._out: list[cmd.Command] = []
        self._agenda: list[Action] = []
        self._tokens = 0
        self._opened = 0
        self._visits: dict[tuple[int, str], int] = {}
        self._ending: Ending | None = None
        self._value: Any = None
        self._started_at = 0.0
        self._undoing: dict[str, tuple[Node, Callable[[], None]]] = {}
        self._rollback_errors: list[RollbackError] = []
        self._run_deadline = 0
        self._reactions: dict[type, Callable[[Any], None]] = {
            ev.StepCompleted: self._step_completed,
            ev.AttemptFailed: self._attempt_failed,
            ev.MemberCompleted: self._member_completed,
            ev.WorkflowStarted: self._workflow_started,
            ev.RunResumed: self._run_resumed,
            ev.WorkflowCompleted: self._workflow_completed,
            ev.RunSuspended: self._run_suspended,
            ev.CancelRequested: self._cancel_requested,
            ev.GateAnswered: self._gate_answered,
            ev.SignalReceived: self._signal_received,
            ev.RollbackCompleted: self._rollback_completed,
            cmd.Evaluated: self._evaluated,
            cmd.TimerFired: self._timer_fired,
            cmd.GateRefused: self._gate_refused,
            cmd.Stopped: self._stopped,
            cmd.Pulled: self._pulled,
            cmd.CloseRun: self._close_run,
        }
        self.reacts_to = frozenset(self._reactions)

    # -- the one entrance -----------------------------------------------------------------------

    def receive(self, event: ev.Event | cmd.Report) -> Sequence[cmd.Command]:
        """What to do now that this has happened, in order; often nothing."""
        react = self._reactions.get(type(event))
        if react is None:
            return ()
        self.now = event.at
        out: list[cmd.Command] = []
        self._out = out
        react(event)
        agenda = self._agenda
        while agenda:
            action, arguments = agenda.pop()
            action(*arguments)
        return out

    # -- what behaviours use --------------------------------------------------------------------

    def emit(self, command: cmd.Command) -> None:
        """Add a command to the batch."""
        self._out.append(command)

    def record(self, event: ev.Event) -> None:
        """Add ``Record(event)`` to the batch."""
        self._out.append(cmd.Record(event))

    def later(self, action: Callable[..., None], *arguments: Any) -> None:
        """Do this within the same ``receive``; what is pushed last is done first."""
        self._agenda.append((action, arguments))

    def view(self, node: Node, validation: Any = None) -> cmd.View:
        """What the functions of a step may see."""
        results = VisibleResults(self.results, self.concurrent, node.path)
        return cmd.View(node.path, node.inputs, results, validation)

    def wait(self, node: Node, due: float, purpose: str) -> int:
        """Ask for ``TimerFired`` at ``due``; the token's purpose says what it is for."""
        self._tokens += 1
        self.timers[self._tokens] = (purpose, node)
        self.emit(cmd.Wait(node.path, due, self._tokens))
        return self._tokens

    def drop_timer(self, token: int) -> None:
        """Forget a timer; 0 is none."""
        if token:
            self.timers.pop(token, None)

    def take_path(self, parent: Node, path: str, where: str, hint: str) -> bool:
        """Make ``path`` a child of ``parent``; if it is taken, that is a mistake and ends the run."""
        seen = parent.seen
        if seen is None:
            seen = parent.seen = self.tree[parent.path] = {}
        if path in seen:
            self.mistake(DuplicateStepName(path, where, hint))
            return False
        seen[path] = None
        return True

    def open_child(self, parent: Node, step: Step[Any], path: str, index: int = 0) -> Node:
        """A node for a step below ``parent``, opened within this ``receive``."""
        node = Node(step, path, parent, parent.inputs)
        node.index = index
        if parent.live is not None:
            parent.live[path] = node
        else:
            parent.child = node
        self.nodes[path] = node
        self._agenda.append((self._open, (node,)))
        return node

    # -- steps: opening -------------------------------------------------------------------------

    def _open(self, node: Node) -> None:
        step = node.step
        assert step is not None
        parent = node.parent
        assert parent is not None
        if parent.stop is not None and not parent.unwinding:
            self._end(node, "cancelled", error=parent.stop)
            return
        self._opened += 1
        if self.limits.max_steps is not None and self._opened > self.limits.max_steps:
            self.hit_limit("max_steps", self.limits.max_steps, node.path)
            return
        recorded = self.setting.recorded
        if recorded is not None and recorded.knows(node.path) and self._replay(node, recorded):
            return
        predicate = step.modifiers.when
        if predicate is not None:
            self.emit(cmd.AskPredicate(node.path, predicate, self.view(node)))
            return
        self._start(node, None)

    def _start(self, node: Node, verdict: bool | None) -> None:
        step = node.step
        assert step is not None
        node.started_at = self.now
        node.phase = Phase.RUNNING
        self._out.append(
            cmd.Record(ev.StepStarted(node.path, step.verb.kind, verdict=verdict))
        )
        self._attempt(node)

    def _attempt(self, node: Node) -> None:
        step = node.step
        assert step is not None
        node.attempt += 1
        node.phase = Phase.RUNNING
        node.failure = None
        verb = step.verb
        if verb.leaf:
            view = self.view(node, self._validation_above(node)) if _sees(step) else None
            self._out.append(cmd.Perform(node.path, step, node.attempt, node.started_at, view))
            return
        if node.attempt > 1:
            node.base = attempt_base(node.path, node.attempt)
        timeout_s = step.modifiers.timeout_s
        if timeout_s is not None:
            due = self._attempt_began(node) + timeout_s
            self.record(ev.TimerSet(node.path, due, "timeout", node.attempt))
            node.deadline = self.wait(node, due, "deadline")
        self.behaviours[type(verb)].begin(self, node)

    def _attempt_began(self, node: Node) -> float:
        recorded = self.setting.recorded
        began = recorded.attempt_began(node.path, node.attempt) if recorded is not None else None
        return self.now if began is None else began

    def _validation_above(self, node: Node) -> Any:
        above = node.parent
        while above is not None:
            found = getattr(above.state, "validation_so_far", None)
            if found is not None:
                return found()
            above = above.parent
        return None

    # -- steps: ending --------------------------------------------------------------------------

    def succeed(self, node: Node, output: Any, usage: Usage | None = None) -> None:
        """End a node that is no leaf with its output."""
        self._end(node, "succeeded", output=output, usage=usage)

    def fail(self, node: Node, failure: Failure) -> None:
        """Let the attempt of a node that is no leaf fail; retry, fallback and default follow."""
        step = node.step
        assert step is not None
        self.drop_timer(node.deadline)
        self.drop_timer(node.timer)
        node.deadline = node.timer = 0
        retry = step.modifiers.retry
        retryable = failure.retryable
        if retry is not None and retry.on is not None and retryable:
            if not isinstance(retry.on, (type, tuple)):
                node.failure = failure
                self.emit(cmd.AskPredicate(node.path, _live(retry.on, failure), self.view(node), -1))
                return
            retryable = _covered(retry.on, failure)
        self._record_failure(node, failure, retryable=retryable)

    def _record_failure(self, node: Node, failure: Failure, *, retryable: bool) -> None:
        self.record(
            ev.AttemptFailed(
                node.path,
                node.attempt,
                failure.error,
                failure.kind,
                failure.bases,
                failure.traceback,
                retryable,
                failure.output,
                failure.usage,
            )
        )

    def fail_with(self, node: Node, error: BaseException, *, retryable: bool = True) -> None:
        """``fail`` with an exception that the core made or caught."""
        self.fail(node, failure_of(error, retryable=retryable))

    def _end(
        self,
        node: Node,
        status: StepStatus,
        *,
        output: Any = None,
        error: str | None = None,
        failure: Failure | None = None,
        usage: Usage | None = None,
        abandoned: bool = False,
    ) -> None:
        step = node.step
        assert step is not None
        self.drop_timer(node.deadline)
        self.drop_timer(node.timer)
        node.deadline = node.timer = 0
        if node.phase is Phase.OPENING:
            self.record(ev.StepStarted(node.path, step.verb.kind))
            node.started_at = self.now
        node.phase = Phase.ENDING
        result = StepResult(
            step.name,
            node.path,
            step.verb.kind,
            status,
            output,
            failure.error if failure is not None else error,
            failure.kind if failure is not None else None,
            failure.bases if failure is not None else (),
            failure.traceback if failure is not None else None,
            max(0.0, (self.now - node.started_at) * 1000),
            node.attempt,
            abandoned=abandoned,
            usage=usage,
        )
        self._out.append(
            cmd.Record(ev.StepCompleted(node.path, result), step.modifiers.checkpoint)
        )

    def _step_completed(self, event: ev.StepCompleted) -> None:
        node = self.nodes.pop(event.path, None)
        if node is None:
            return
        result = event.result
        step, parent = node.step, node.parent
        if (  # the road of most steps: a leaf without modifiers, below a body that just goes on
            result.status == "succeeded"
            and step is not None
            and step.modifiers is PLAIN
            and step.verb.leaf
            and parent is not None
            and parent.generator is not None
            and parent.stop is None
        ):
            self.results[event.path] = result
            parent.child = None
            self._advance(parent, result.output, None)
        else:
            self._ended(node, result)

    def _ended(self, node: Node, result: StepResult[Any]) -> None:
        step = node.step
        assert step is not None
        self.results[node.path] = result
        if node.deadline or node.timer:
            self.drop_timer(node.deadline)
            self.drop_timer(node.timer)
        rollback = step.modifiers.rollback
        if rollback is not None and result.status == "succeeded":
            entry = (node.path, rollback, self.view(node))
            if node.rollbacks is None:
                node.rollbacks = [entry]
            else:
                node.rollbacks.append(entry)
        self._tell_parent(node, result)

    def _tell_parent(self, node: Node, result: StepResult[Any]) -> None:
        parent = node.parent
        if parent is None:
            return
        if parent.live is None:
            parent.child = None
            if node.rollbacks is not None:
                _adopt(parent, node.rollbacks)
        else:
            del parent.live[node.path]
        if parent.phase is Phase.FALLING_BACK:
            self._fallback_ended(parent, result)
        elif parent.generator is not None:
            self._go_on(parent, result)
        elif parent.stop is not None:
            self._child_of_stopped_ended(parent, node, result)
        elif parent.step is None:
            self._member_step_ended(parent, result)
        else:
            behaviour = self.behaviours[type(parent.step.verb)]
            behaviour.child_ended(self, parent, node, result)

    def _child_of_stopped_ended(self, parent: Node, node: Node, result: StepResult[Any]) -> None:
        note = getattr(parent.state, "note", None)
        if note is not None:
            note(node, result)
        if not parent.live and parent.child is None:
            self._all_stopped(parent)

    # -- steps: failing -------------------------------------------------------------------------

    def _attempt_failed(self, event: ev.AttemptFailed) -> None:
        node = self.nodes.get(event.path)
        if node is None or node.step is None:
            return
        failure = Failure(
            event.error,
            event.error_type,
            event.error_bases,
            traceback=event.traceback,
            output=event.output,
            retryable=event.retryable,
        )
        failure.usage = event.usage
        node.failure = failure
        if node.stop is not None:
            self._end(node, "cancelled", error=node.stop)
            return
        self._after_failure(node, failure, event.attempt)

    def _after_failure(self, node: Node, failure: Failure, attempt: int) -> None:
        step = node.step
        assert step is not None
        modifiers = step.modifiers
        choice = next_attempt(
            attempt,
            retryable=failure.retryable,
            retry=modifiers.retry,
            seed=f"{self.setting.run_id}/{node.path}",
        )
        if not isinstance(choice, RetryAfter):
            self._fall_back(node, failure)
        elif choice.delay_s == 0:
            self._attempt(node)
        else:
            node.phase = Phase.PAUSED
            due = self.now + choice.delay_s
            self.record(ev.TimerSet(node.path, due, "retry", attempt))
            node.timer = self.wait(node, due, "retry")

    def _fall_back(self, node: Node, failure: Failure) -> None:
        step = node.step
        assert step is not None
        handler = step.modifiers.on_error
        if handler is None:
            self._settle(node, failure)
            return
        node.phase = Phase.FALLING_BACK
        failed = self._failed_result(node, failure)
        self.emit(cmd.AskFallback(node.path, handler, failed, self.view(node)))

    def _fallback_chosen(self, node: Node, report: cmd.Evaluated) -> None:
        chosen = report.value
        if report.error is not None:
            self._settle(node, failure_of(report.error))
        elif not isinstance(chosen, Step):
            said = f"the handler of .on_error() must return a step, got {chosen!r}"
            self._settle(node, failure_of(NotAStep(repr(chosen), node.path, said)))
        else:
            path = join(node.base, chosen.name)
            node.live = None
            if self.take_path(node, path, node.path, "Give the fallback step a name of its own."):
                self.open_child(node, chosen, path)

    def _fallback_ended(self, node: Node, result: StepResult[Any]) -> None:
        if node.stop is not None:
            self._all_stopped(node)
        elif result.success:
            self._end(node, "succeeded", output=result.output, usage=result.usage)
        else:
            text = f"fallback {result.name!r} failed too: {result.error}"
            self._settle(node, failure_from(result, text))

    def _settle(self, node: Node, failure: Failure) -> None:
        """The step has failed for good; ``default`` or ``skip_on_error`` may still have a say."""
        step = node.step
        assert step is not None
        if step.modifiers.default is not None:
            self._end(node, "defaulted", output=step.modifiers.default.value, failure=failure)
        elif step.modifiers.skip_on_error:
            self._end(node, "skipped", output=Skipped(failure.error), failure=failure)
        else:
            self._fail_for_good(node, failure)

    def _fail_for_good(self, node: Node, failure: Failure) -> None:
        self._end(node, "failed", output=failure.output, failure=failure, usage=failure.usage)

    def _failed_result(self, node: Node, failure: Failure) -> StepResult[Any]:
        step = node.step
        assert step is not None
        return StepResult(
            step.name,
            node.path,
            step.verb.kind,
            "failed",
            failure.output,
            failure.error,
            failure.kind,
            failure.bases,
            failure.traceback,
            max(0.0, (self.now - node.started_at) * 1000),
            node.attempt,
        )

    # -- evaluations ----------------------------------------------------------------------------

    def _evaluated(self, report: cmd.Evaluated) -> None:
        node = self.nodes.get(report.path)
        if node is None or node.step is None:
            return
        if node.stop is not None:
            self._all_stopped(node)
        elif node.phase is Phase.OPENING:
            self._predicate_answered(node, report)
        elif node.phase is Phase.FALLING_BACK:
            self._fallback_chosen(node, report)
        elif node.failure is not None:
            self._retry_judged(node, node.failure, report)
        else:
            self.behaviours[type(node.step.verb)].evaluated(self, node, report)

    def _predicate_answered(self, node: Node, report: cmd.Evaluated) -> None:
        if report.error is not None:
            self._start_to_fail(node, failure_of(report.error))
        elif not isinstance(report.value, bool):
            said = f"the predicate of .when() must return a bool, got {report.value!r}"
            self._start_to_fail(node, Failure(said, "builtins.TypeError", _TYPE_ERROR_BASES))
        elif report.value:
            self._start(node, True)
        else:
            assert node.step is not None
            node.started_at = self.now
            node.phase = Phase.RUNNING
            self.record(ev.StepStarted(node.path, node.step.verb.kind, verdict=False))
            self._end(node, "skipped", output=Skipped("its predicate was false"))

    def _start_to_fail(self, node: Node, failure: Failure) -> None:
        """A failing predicate goes past retry, fallback and default."""
        assert node.step is not None
        node.started_at = self.now
        node.phase = Phase.RUNNING
        self.record(ev.StepStarted(node.path, node.step.verb.kind))
        self._fail_for_good(node, failure)

    def _retry_judged(self, node: Node, failure: Failure, report: cmd.Evaluated) -> None:
        if report.error is not None:
            self._record_failure(node, failure_of(report.error), retryable=False)
        else:
            self._record_failure(node, failure, retryable=bool(report.value))

    # -- generators -----------------------------------------------------------------------------

    def enter(self, node: Node, generator: Generator[Any, Any, Any]) -> None:
        """Drive this generator as the node's body, from its beginning."""
        node.generator = generator
        self.later(self._advance, node, None, None)

    def _go_on(self, node: Node, result: StepResult[Any]) -> None:
        if node.stop is not None and not node.unwinding:
            self._unwind(node)
        elif node.hard:
            self._close_generator(node)
        elif result.success:
            self._advance(node, result.output, None)
        elif result.status == "cancelled":
            self._advance(node, None, RunCancelled(result.error or "cancelled"))
        else:
            self._advance(node, None, StepFailed(result))

    def _unwind(self, node: Node) -> None:
        """Throw RunCancelled, once; what the generator yields from now on is clean-up."""
        if node.hard:
            self._close_generator(node)
            return
        node.unwinding = True
        self._advance(node, None, RunCancelled(node.stop or "cancelled"))

    def _close_generator(self, node: Node) -> None:
        generator = node.generator
        assert generator is not None
        error = close(generator)
        self._body_ended(node, None, error)

    def _advance(self, node: Node, value: Any, error: BaseException | None) -> None:
        generator = node.generator
        assert generator is not None
        what, given = resume(generator, value, error)
        if what == YIELDED:
            self._yielded(node, generator, given)
        elif what == RETURNED:
            self._body_ended(node, given, None)
        else:
            self._body_ended(node, None, given)

    def _yielded(self, node: Node, generator: Generator[Any, Any, Any], step: Any) -> None:
        if type(step) is not Step:
            self.mistake(not_a_step(step, line_of(generator)))
            return
        path = f"{node.base}/{step.name}" if node.base else step.name
        seen = node.seen
        if seen is None:
            seen = node.seen = self.tree[node.path] = {}
        if path in seen:
            self.mistake(DuplicateStepName(path, line_of(generator), _UNIQUE))
            return
        seen[path] = None
        if self.limits.max_visits is not None and not self._may_visit(node, generator, path):
            return
        if self._plain and step.verb.leaf and step.modifiers is PLAIN and not node.unwinding:
            self._begin_plain(node, step, path)
            return
        if node.unwinding and not node.timer:
            due = self.now + self.setting.cleanup_timeout_s
            node.timer = self.wait(node, due, "cleanup")
        self.open_child(node, step, path)

    def _begin_plain(self, parent: Node, step: Step[Any], path: str) -> None:
        """Open, start and attempt in one go, for a leaf without modifiers: most steps are that."""
        node = Node(step, path, parent, parent.inputs)
        node.phase = Phase.RUNNING
        node.attempt = 1
        node.started_at = now = self.now
        parent.child = self.nodes[path] = node
        verb = step.verb
        out = self._out
        out.append(cmd.Record(ev.StepStarted(path, verb.kind)))
        view = None
        if type(verb) is not PythonCall and _sees(step):
            view = self.view(node, self._validation_above(node))
        out.append(cmd.Perform(path, step, 1, now, view))

    def _may_visit(self, node: Node, generator: Generator[Any, Any, Any], path: str) -> bool:
        """Count visits by the line that yields: the loop guard, whatever names the loop makes."""
        limit = self.limits.max_visits
        assert limit is not None
        place = (id(node), line_of(generator))
        visits = self._visits[place] = self._visits.get(place, 0) + 1
        if visits <= limit:
            return True
        self.hit_limit("max_visits", limit, path, f"{place[1]} yielded {visits} steps")
        return False

    def _body_ended(self, node: Node, value: Any, error: BaseException | None) -> None:
        node.generator = None
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            self.escaped = error
        if node is self.root:
            self._root_ended(value, error)
        elif node.stop is not None:
            self._all_stopped(node)
        elif node.step is None:
            self._member_body_ended(node, value, error)
        else:
            behaviour = self.behaviours[type(node.step.verb)]
            body_ended: Callable[..., None] = behaviour.body_ended  # type: ignore[attr-defined]
            body_ended(self, node, value, error)

    # -- members of for_each --------------------------------------------------------------------

    def _member_body_ended(self, node: Node, value: Any, error: BaseException | None) -> None:
        if error is None:
            self.end_member(node, "succeeded", output=value)
        else:
            self.end_member(node, "failed", failure=failure_of_body(error))

    def _member_step_ended(self, node: Node, result: StepResult[Any]) -> None:
        if result.success:
            self.end_member(node, result.status, output=result.output)
        else:
            failure = failure_from(result, f"step {result.name!r} failed: {result.error}")
            self.end_member(node, "failed", failure=failure)

    def end_member(
        self,
        node: Node,
        status: StepStatus,
        *,
        output: Any = None,
        failure: Failure | None = None,
        error: str | None = None,
    ) -> None:
        """Record the end of a member that is no step itself."""
        self.drop_timer(node.timer)
        node.timer = 0
        node.phase = Phase.ENDING
        result = StepResult(
            node.path.rpartition("/")[2],
            node.path,
            "member",
            status,
            output,
            failure.error if failure is not None else error,
            failure.kind if failure is not None else None,
            failure.bases if failure is not None else (),
            failure.traceback if failure is not None else None,
            max(0.0, (self.now - node.started_at) * 1000),
        )
        self._out.append(cmd.Record(ev.MemberCompleted(node.path, node.index, result)))

    def _member_completed(self, event: ev.MemberCompleted) -> None:
        node = self.nodes.pop(event.path, None)
        if node is not None:
            self._tell_parent(node, event.result)

    # -- stopping -------------------------------------------------------------------------------

    def stop(self, node: Node, reason: str, *, hard: bool = False) -> None:
        """Stop a subtree; its ends follow, innermost first. Again, hard: close what still unwinds."""
        if node.phase in {Phase.ENDING, Phase.UNDOING}:
            return
        if node.stop is not None and not (hard and not node.hard):
            return
        first = node.stop is None
        node.stop = node.stop or reason
        node.hard = node.hard or hard
        children = list(node.live.values()) if node.live else []
        if node.child is not None:
            children.append(node.child)
        if children:
            for child in reversed(children):
                self.later(self._stop_child, child, reason, hard)
        elif first:
            self._stop_childless(node, reason)

    def _stop_child(self, child: Node, reason: str, hard: bool) -> None:
        self.stop(child, reason, hard=hard)

    def _stop_childless(self, node: Node, reason: str) -> None:
        step = node.step
        if node.generator is not None:
            self._unwind(node)
        elif step is None:
            self._all_stopped(node)
        elif node.phase is Phase.RUNNING and step.verb.leaf:
            self.emit(cmd.Cancel(node.path, reason))
        elif node.phase is Phase.OPENING or self._is_evaluating(node):
            self.emit(cmd.Cancel(node.path, reason))  # the answer then ends the node
        else:
            self._all_stopped(node)

    def _is_evaluating(self, node: Node) -> bool:
        if node.phase is Phase.FALLING_BACK:
            return node.child is None
        return node.phase is Phase.RUNNING and bool(getattr(node.state, "evaluating", False))

    def _stopped(self, report: cmd.Stopped) -> None:
        node = self.nodes.get(report.path)
        if node is None or node.phase is Phase.ENDING:
            return
        self._end(
            node, "cancelled", error=node.stop or "cancelled", abandoned=report.abandoned
        )

    def _all_stopped(self, node: Node) -> None:
        """A stopped node has nothing running below it any more."""
        if node is self.root:
            self._root_ended(None, None)
            return
        if node.step is None:
            self.end_member(node, "cancelled", error=node.stop)
            return
        behaviour = self.behaviours.get(type(node.step.verb))
        if behaviour is not None and node.phase is not Phase.FALLING_BACK:
            behaviour.stopped(self, node)
            if behaviour.undoes_itself:
                self.undo(node, lambda: self._end_stopped(node))
                return
        self._end_stopped(node)

    def _end_stopped(self, node: Node) -> None:
        failure = node.failure
        if failure is None or failure.kind != _TIMEOUT:
            self._end(node, "cancelled", error=node.stop)
            return
        node.stop, node.hard, node.unwinding = None, False, False
        node.live, node.child, node.failure = None, None, None
        self.fail(node, failure)

    # -- timers ---------------------------------------------------------------------------------

    def _timer_fired(self, report: cmd.TimerFired) -> None:
        purpose, node = self.timers.pop(report.token, ("", None))
        if node is None:
            return
        match purpose:
            case "retry":
                node.timer = 0
                self._attempt(node)
            case "deadline":
                node.deadline = 0
                self._deadline_passed(node)
            case "cleanup":
                node.timer = 0
                self._cleanup_overdue(node)
            case "run":
                self._run_overdue()
            case _:
                assert node.step is not None
                behaviour: Any = self.behaviours[type(node.step.verb)]
                node.timer = 0
                behaviour.timer_fired(self, node, purpose)

    def _deadline_passed(self, node: Node) -> None:
        if node.stop is not None or node.phase is Phase.ENDING:
            return
        assert node.step is not None
        error = StepTimeout(node.path, node.step.modifiers.timeout_s or 0.0)
        node.failure = failure_of(error)
        self.stop(node, str(error))

    def _cleanup_overdue(self, node: Node) -> None:
        self.stop(node, node.stop or "cancelled", hard=True)

    def _run_overdue(self) -> None:
        self.hit_limit("timeout_s", self.limits.timeout_s or 0.0, "", hard=False)

    # -- gates and signals ----------------------------------------------------------------------

    def _gate_answered(self, event: ev.GateAnswered) -> None:
        self.answered[event.path] = event
        gate = self.gates.pop(event.path, None)
        node = self.nodes.get(event.path)
        if gate is not None and node is not None and node.phase is Phase.RUNNING:
            self.succeed(node, event.answer)

    def _gate_refused(self, report: cmd.GateRefused) -> None:
        node = self.nodes.get(report.path)
        if node is None or self.gates.pop(report.path, None) is None:
            return
        self.fail_with(node, report.error)

    def _signal_received(self, event: ev.SignalReceived) -> None:
        waiting = self.listeners.get(event.name)
        if waiting:
            node = waiting.pop(0)
            if not waiting:
                del self.listeners[event.name]
            behaviour: Any = self.behaviours[type(node.step.verb)] if node.step else None
            behaviour.signalled(self, node, event.payload)
        else:
            self.mailboxes.setdefault(event.name, []).append(event.payload)

    def _pulled(self, report: cmd.Pulled) -> None:
        node = self.nodes.get(report.path)
        if node is not None and node.step is not None and node.stop is None:
            behaviour: Any = self.behaviours[type(node.step.verb)]
            behaviour.pulled(self, node)

    # -- rollbacks ------------------------------------------------------------------------------

    def undo(self, node: Node, then: Callable[[], None]) -> None:
        """Run the rollbacks registered below the node, last first, then go on."""
        if not node.rollbacks:
            then()
            return
        node.phase = Phase.UNDOING
        path, rollback, view = node.rollbacks.pop()
        self._undoing[path] = (node, then)
        self.record(ev.RollbackStarted(path))
        self.emit(cmd.Undo(path, rollback, view))

    def _rollback_completed(self, event: ev.RollbackCompleted) -> None:
        node, then = self._undoing.pop(event.path)
        if event.error is not None:
            error = RollbackError(event.path, event.error, event.error_type or "builtins.Exception")
            self._rollback_errors.append(error)
        self.undo(node, then)

    # -- the run --------------------------------------------------------------------------------

    def _workflow_started(self, event: ev.WorkflowStarted) -> None:
        self._started_at = event.at
        self._begin()

    def _run_resumed(self, event: ev.RunResumed) -> None:
        recorded = self.setting.recorded
        self._started_at = event.at if recorded is None else recorded.started_at
        if recorded is not None:
            for name, payloads in recorded.signals.items():
                self.mailboxes[name] = list(payloads)
            self.answered.update(recorded.answers)
        self._begin()

    def _begin(self) -> None:
        root = self.root
        root.started_at = self._started_at
        root.phase = Phase.RUNNING
        if self.limits.timeout_s is not None:
            due = self._started_at + self.limits.timeout_s
            self._run_deadline = self.wait(root, due, "run")
        try:
            generator = self.call(self.definition, root.inputs)
        except Exception as error:  # noqa: BLE001  # the function's own code
            self._root_ended(None, error)
            return
        self.enter(root, generator)

    @staticmethod
    def call(definition: WorkflowDefinition, inputs: Mapping[str, Any]) -> Any:
        """The generator of a workflow with these bound inputs."""
        bound = definition.signature.bind_partial()
        bound.arguments.update(inputs)
        return definition.function(*bound.args, **bound.kwargs)

    def _cancel_requested(self, event: ev.CancelRequested) -> None:
        if self._ending is None and self.root.phase is not Phase.UNDOING:
            self._ending = Ending("cancelled", event.reason)
            self.stop(self.root, event.reason)

    def mistake(self, error: HandrailError) -> None:
        """End the run as failed: generators are closed, not asked."""
        if self._ending is None or self._ending.status == "cancelled":
            self._ending = Ending(
                "failed", str(error), qualified(type(error)), None, None
            )
        self.stop(self.root, str(error), hard=True)

    def hit_limit(
        self, name: str, value: float, path: str, why: str = "", *, hard: bool = True
    ) -> None:
        """End the run as failed, naming the limit."""
        if self._ending is not None:
            return
        error = LimitExceeded(name, value, why or (f"at step {path!r}" if path else ""))
        self.record(ev.LimitReached(name, value, path))
        self._ending = Ending("failed", str(error), qualified(LimitExceeded), None, path or None)
        self.stop(self.root, str(error), hard=hard)

    def _root_ended(self, value: Any, error: BaseException | None) -> None:
        if self._ending is None:
            self._ending = _ending_of(error)
            self._value = value if error is None else None
        self.drop_timer(self._run_deadline)
        root = self.root
        if self._ending.status == "succeeded":
            self._complete()
        else:
            self.undo(root, self._complete)

    def _complete(self) -> None:
        ending = self._ending
        assert ending is not None
        self.root.phase = Phase.ENDING
        self.record(
            ev.WorkflowCompleted(
                ending.status,
                self._value,
                ending.error,
                ending.error_type,
                ending.traceback,
                ending.failed_step,
                tuple(self._rollback_errors),
                max(0.0, (self.now - self._started_at) * 1000),
            )
        )

    def _workflow_completed(self, event: ev.WorkflowCompleted) -> None:
        self._finish(
            event.status,
            max(0.0, (event.at - self._started_at) * 1000),
            event=event,
        )

    def _close_run(self, report: cmd.CloseRun) -> None:
        """Suspend: generators are closed without rollbacks; what they yield then is dropped."""
        for node in reversed(list(self.nodes.values())):
            if node.generator is not None:
                close(node.generator)
        if self.root.generator is not None:
            close(self.root.generator)
        signals = tuple(sorted(self.listeners))
        self.record(ev.RunSuspended(tuple(self.gates.values()), signals, report.reason))

    def _run_suspended(self, event: ev.RunSuspended) -> None:
        self._finish(
            "suspended", max(0.0, (event.at - self._started_at) * 1000), waiting=event.waiting
        )

    def _finish(
        self,
        status: RunStatus,
        duration_ms: float,
        *,
        event: ev.WorkflowCompleted | None = None,
        waiting: tuple[OpenGate, ...] = (),
    ) -> None:
        self.finished = True
        result: WorkflowResult[Any] = workflow_result(
            self.definition.name,
            self.setting.run_id,
            status,
            tree_order(self.tree, self.results),
            tuple(self.tree.get("", ())),
            duration_ms,
            event,
            waiting,
        )
        self.emit(cmd.Finish(result))

    def child_result(self, node: Node, name: str, value: Any) -> WorkflowResult[Any]:
        """The result of a child workflow that succeeded; it shares the run's id."""
        top = tuple(self.tree.get(node.path, ()))
        below = tree_order(self.tree, self.results, node.path)
        completed = ev.WorkflowCompleted("succeeded", value)
        duration_ms = max(0.0, (self.now - node.started_at) * 1000)
        return workflow_result(
            name, self.setting.run_id, "succeeded", below, top, duration_ms, completed, ()
        )

    # -- replay ---------------------------------------------------------------------------------

    def _replay(self, node: Node, recorded: Recorded) -> bool:
        """Take from the record what it holds of this node; True if that was its end."""
        step = node.step
        assert step is not None
        record = recorded.at(node.path)
        result = record.result()
        if result is not None:
            self.nodes.pop(node.path, None)
            for path, below in recorded.below(node.path):
                self.results[path] = below
            self.tree.update(recorded.tree_below(node.path))
            self.emit(cmd.Tell(ev.StepReplayed(node.path, result)))
            self._ended(node, result)
            return True
        if record.started_at is not None:
            node.attempt = record.attempts
            node.phase = Phase.RUNNING
            node.started_at = record.started_at
            self.record(ev.StepStarted(node.path, step.verb.kind, verdict=record.verdict))
            self._pick_up(node, record.retry_due)
            return True
        return False

    def replay_member(self, member: Node) -> bool:
        """Take a member's recorded end from the record, if it has one."""
        recorded = self.setting.recorded
        if recorded is None or not recorded.knows(member.path):
            return False
        record = recorded.at(member.path)
        if record.member_end is None:
            return False
        for path, below in recorded.below(member.path):
            self.results[path] = below
        self.tree.update(recorded.tree_below(member.path))
        del self.nodes[member.path]
        self.later(self._tell_parent, member, record.member_end)
        return True

    def _pick_up(self, node: Node, retry_due: float | None) -> None:
        if retry_due is None:
            self._attempt(node)
            return
        node.phase = Phase.PAUSED
        node.timer = self.wait(node, retry_due, "retry")

    def goes_on_by_itself(self, token: int) -> bool:
        """True if this timer is one the process waits for: a pause, a retry, clean-up; not the
        deadline of something that waits for a person."""
        return self.timers.get(token, ("", None))[0] in _GOES_ON

    @property
    def waits(self) -> bool:
        """True if a timer, a gate or a signal is waited for."""
        return bool(self.timers or self.gates or self.listeners)


_GOES_ON = frozenset({"sleep", "retry", "cleanup"})
_TIMEOUT = qualified(StepTimeout)
_TYPE_ERROR_BASES = ("builtins.Exception", "builtins.BaseException")
_UNIQUE = (
    "Names are unique within a workflow: rename one of the two, or in a loop number them, "
    'step(f"fix-{n}").'
)


def _sees(step: Step[Any]) -> bool:
    return isinstance(step.verb, _NEEDS_VIEW)


def _adopt(parent: Node, entries: list[Any]) -> None:
    if parent.rollbacks is None:
        parent.rollbacks = entries
    else:
        parent.rollbacks.extend(entries)


def _covered(kinds: Any, failure: Failure) -> bool:
    wanted = kinds if isinstance(kinds, tuple) else (kinds,)
    names = {failure.kind, *failure.bases}
    return any(qualified(kind) in names for kind in wanted)


def _live(on: Callable[[BaseException], bool], failure: Failure) -> Callable[[Any], bool]:
    """A predicate of retry for a composite, whose failure is known by its record alone."""
    result: StepResult[Any] = StepResult(
        "", "", "", "failed", failure.output, failure.error, failure.kind, failure.bases
    )
    return lambda _context: on(StepFailed(result))


def failure_of(error: BaseException, *, retryable: bool = True) -> Failure:
    """The recorded facts of an exception."""
    return Failure(
        text_of(error),
        qualified(type(error)),
        bases_of(error),
        traceback=traceback_of(error),
        retryable=retryable,
    )


def failure_of_body(error: BaseException) -> Failure:
    """The facts of an exception that ended a body; a step's failure counts as its own."""
    if isinstance(error, StepFailed):
        return failure_from(error.result, str(error))
    failure = failure_of(error)
    failure.error = body_error_text(error)
    return failure


def body_error_text(error: BaseException) -> str:
    """How the result of a run names an exception of its body: with the author's line."""
    if isinstance(error, (StepFailed, WorkflowError, RunCancelled)):
        return str(error)
    place = raised_at(error)
    kind = "" if isinstance(error, (DefinitionError, HandrailError)) else f"{type(error).__name__}: "
    said = text_of(error)
    if kind and said == type(error).__name__:
        kind = ""
    return f"{place}: {kind}{said}" if place else f"{kind}{said}"


def _ending_of(error: BaseException | None) -> Ending:
    if error is None:
        return Ending("succeeded")
    if isinstance(error, RunCancelled):
        return Ending("cancelled", str(error))
    if isinstance(error, StepFailed):
        result = error.result
        return Ending(
            "failed", str(error), result.error_type, result.traceback, result.path
        )
    return Ending(
        "failed", body_error_text(error), qualified(type(error)), traceback_of(error), None
    )


def close(generator: Generator[Any, Any, Any]) -> BaseException | None:
    """Close a generator; what it raises meanwhile, a refusal to close included."""
    try:
        generator.close()
    except BaseException as error:  # noqa: BLE001  # a body's finally may raise anything
        return error
    return None


def not_a_step(got: Any, where: str) -> NotAStep:
    """The mistake of yielding something else, with a hint that fits what it was."""
    if getattr(type(got), "__name__", "") == "StepName":
        hint = f"Did you forget a verb after step({got.name!r}): .call(), .agent(), .validate()?"
        return NotAStep(f"step({got.name!r}) without a verb", where, hint)
    if got is None:
        hint = 'Did you forget a verb, or a value after yield? Write: yield from step("name").call(f).'
        return NotAStep("None", where, hint)
    if isinstance(got, Generator):
        hint = "Write `yield from helper()`, not `yield helper()`."
        return NotAStep(f"the generator {getattr(got, '__name__', got)!r}", where, hint)
    if hasattr(got, "definition"):
        hint = f'Write step("name").subworkflow({got.definition.name}, {{...}}).'
        return NotAStep(f"the workflow {got.definition.name!r}", where, hint)
    hint = 'Wrap it: step("name").call(...), .command(...), .agent(...).'
    said = repr(got)
    return NotAStep(said if len(said) <= 80 else f"{said[:77]}...", where, hint)
