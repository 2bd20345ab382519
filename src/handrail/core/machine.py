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
    REGISTERING   what an earlier drive did below it, and can be -> RUNNING | PAUSED
                  undone, is looked for in the code                 | FALLING_BACK | gone
    ENDING        ``Record`` of its end is on its way            -> gone
    HALTED        its record is of another step, which showed
                  late: the drive ends, and the node does not

Every end goes through ``Record(StepCompleted)``: the engine journals it, shows it to the sinks and
gives it back, and only then does the parent hear of it. So a generator never sees a result that a
crash could take away.

*Stopping.* ``stop(node)`` marks a subtree: attempts in flight are cancelled, waits end at once, and
as children end, ``RunCancelled`` is thrown into the generators above them, innermost first. Steps
yielded while a generator unwinds run; a *hard* stop closes generators instead. A node with
``failure`` set when its children are gone (a deadline) fails with it; the others end as cancelled.
While the record is gone through, stops wait until that is done: what they would cut off may have
left something to undo. That a node was being stopped by an earlier drive is read from its children:
nothing else ends as cancelled.

*The agenda* is a stack of things to do within one ``receive``. There is no recursion anywhere: a
group of any number of members, or of members that are all recorded, takes one loop. Pushing in
reverse keeps commands in tree order.

*Verbs* that have children or wait live in modules of their own (``flow``, ``groups``,
``validation``, ``waiting``), one ``Behaviour`` each; the machine looks them up by verb type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from handrail.core import commands as cmd
from handrail.core.driving import Driving
from handrail.core.failing import Failing
from handrail.core.failures import Failure, failure_from, failure_of, failure_of_body
from handrail.core.launches import LAUNCHED, Launches
from handrail.core.node import Node, Phase, declared_for
from handrail.core.replaying import Replaying
from handrail.core.run_end import RunEnd
from handrail.core.secret_names import names_a_secret, secret_names
from handrail.core.spending import Spending
from handrail.core.stopping import Stopping
from handrail.core.visible import VisibleResults
from handrail.core.waits import Waits
from handrail.errors import (
    DuplicateStepName,
    OutputNotSerializable,
    StepChange,
    StepIsPoisonous,
    StepWasInterrupted,
)
from handrail.model import events as ev
from handrail.model.definition import WorkflowDefinition
from handrail.model.described import line_of
from handrail.model.policy import Limits
from handrail.model.results import OpenGate, Skipped, StepResult, StepStatus, Usage
from handrail.record.assemble import assembler
from handrail.record.outputs import CHILD, recordable
from handrail.record.results import children_of
from handrail.record.run_record import Recorded, attempt_in
from handrail.steps.fingerprint import fingerprint
from handrail.steps.verbs import (
    PLAIN,
    PythonCall,
    SignalWait,
    StageCheck,
    Step,
    is_simple,
)

if TYPE_CHECKING:
    from handrail.codec.codec import Codec  # noqa: TC004  # attrs keeps the annotation as text

_step_started = assembler(ev.StepStarted)


class Behaviour(Protocol):
    """What a verb does when it is no leaf: begin an attempt, and hear of children and answers."""

    def undoes_itself(self, node: Node, /) -> bool:
        """True if what its children registered is undone at its own end when it is stopped."""
        ...

    def begin(self, machine: Machine, node: Node, /) -> None:
        """Begin an attempt; ``node.attempt`` is its number already."""
        ...

    def child_ended(
        self, machine: Machine, node: Node, child: Node, result: StepResult[Any], /
    ) -> None:
        """A child has ended and is recorded."""
        ...

    def evaluated(self, machine: Machine, node: Node, report: cmd.Evaluated, /) -> None:
        """What the node asked for with ``Machine.ask`` is known."""
        ...

    def stopped(self, machine: Machine, node: Node, /) -> None:
        """The node was stopped and has no child left; say so before it ends."""


@attrs.frozen
class Setting:
    """What a machine is told once, before the first event.

    ``codec`` is None where nothing needs to be recorded so that another process could read it.
    ``secrets`` are values, by name, that no description of a step may hold. ``unwinds``: a request
    to cancel will follow the rehearsal, and what waits then is still waiting.
    """

    run_id: str
    limits: Limits = Limits()
    cleanup_timeout_s: float = 30.0
    recorded: Recorded | None = None
    codec: Codec | None = None
    max_crashes: int = 5
    secrets: Mapping[str, str] | None = None
    unwinds: bool = False

    def opened_before(self) -> int:
        """How many steps earlier drives let in, if that is bounded."""
        if self.recorded is None or self.limits.max_steps is None:
            return 0
        return self.recorded.steps_begun()


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
        self.definition, self.behaviours = definition, behaviours
        self.setting, self.limits = setting, setting.limits
        self.still = setting.unwinds
        """No wait is over: it is to be cancelled as it was left, however much later."""
        self.rehearses = setting.recorded is not None
        """The record is being gone through, and nothing else has happened."""
        self.now = 0.0
        self.nodes: dict[str, Node] = {}
        self.results: dict[str, StepResult[Any]] = {}
        self.tree: dict[str, dict[str, None] | str] = {}
        self.concurrent: set[str] = set()
        self.timers: dict[int, Node] = {}
        self.gates: dict[str, OpenGate] = {}
        self.answered: dict[str, ev.GateAnswered] = {}
        self.openings: dict[str, int] = {}
        """How often each question was asked so far, by path."""
        self.listeners: dict[str, dict[str, Node]] = {}
        self.mailboxes: dict[str, list[tuple[int, Any]]] = {}
        self.changes: list[StepChange] = []
        """Recorded steps that the code describes otherwise now."""
        self.codec = setting.codec
        self.secrets = secret_names(setting.secrets)
        self.finished = False
        self.escaped: BaseException | None = None
        self.root = Node(None, "", None, inputs)
        self.failing = Failing(self)
        self.stopping = Stopping(self)
        self.waiting = Waits(self)
        self.launches = Launches(self)
        known = setting.recorded.spending if setting.recorded is not None else ()
        self.spending = Spending(self, known)
        self.replaying = Replaying(self)
        self.driving = Driving(self)
        self.end = RunEnd(self)
        self.enter, self.unwind = self.driving.enter, self.driving.unwind
        self.fail, self.fail_with = self.failing.fail, self.failing.fail_with
        self.stop = self.stopping.stop
        self.wait, self.drop_timer = self.waiting.wait, self.waiting.drop_timer
        self.undo, self.mistake = self.end.undo, self.end.mistake
        self.hit_limit, self.child_result = self.end.hit_limit, self.end.child_result
        self.replay_member, self.digest = self.replaying.replay_member, self.replaying.digest
        self.goes_on_by_itself = self.waiting.goes_on_by_itself
        self._out: list[cmd.Command] = []
        self._agenda: list[Action] = []
        self._opened = setting.opened_before()
        self.started_at = 0.0
        self.run_deadline = 0
        self._reactions: dict[type, Callable[[Any], None]] = {
            ev.StepCompleted: self._step_completed,
            ev.AttemptFailed: self.failing.attempt_failed,
            ev.LadderStep: self.launches.stepped,
            ev.MemberCompleted: self._member_completed,
            ev.WorkflowStarted: self._workflow_started,
            ev.RunResumed: self._run_resumed,
            ev.WorkflowCompleted: self.end.workflow_completed,
            ev.RunSuspended: self.end.run_suspended,
            ev.CancelRequested: self.end.cancel_requested,
            ev.GateAnswered: self.waiting.gate_answered,
            ev.SignalReceived: self.waiting.signal_received,
            ev.RollbackCompleted: self.end.rollback_completed,
            cmd.Evaluated: self._evaluated,
            cmd.TimerFired: self.waiting.timer_fired,
            cmd.GateRefused: self.waiting.gate_refused,
            cmd.Stopped: self.stopping.attempt_stopped,
            cmd.Granted: self.launches.granted,
            cmd.LaunchFailed: self.launches.failed,
            cmd.Pulled: self._pulled,
            cmd.Rehearsed: self.replaying.rehearsed,
            cmd.CloseRun: self.end.close_run,
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

    def ask(self, node: Node, command: cmd.Command) -> None:
        """Add a command that ``Evaluated`` will answer."""
        node.asking = True
        self._out.append(command)

    def later(self, action: Callable[..., None], *arguments: Any) -> None:
        """Do this within the same ``receive``; what is pushed last is done first."""
        self._agenda.append((action, arguments))

    def view(self, node: Node, validation: Any = None) -> cmd.View:
        """What the functions of a step may see."""
        return self.view_of(node.path, node.inputs, validation)

    def view_of(self, path: str, inputs: Mapping[str, Any], validation: Any = None) -> cmd.View:
        """The same, of a step that need not be live."""
        results = VisibleResults(self.results, self.concurrent, path)
        return cmd.View(path, inputs, results, validation)

    def take_path(self, parent: Node, path: str, where: str, hint: str) -> bool:
        """Make ``path`` a child of ``parent``; one that is taken is a mistake and ends the run."""
        seen = parent.seen
        if seen is None:
            seen = parent.seen = self.tree[parent.path] = {}
        if path in seen:
            self.mistake(DuplicateStepName(path, where, hint))
            return False
        if self.secrets and self.names_a_secret(path, where):
            return False
        seen[path] = None
        return True

    def names_a_secret(self, path: str, where: str) -> bool:
        """End the run if a name or key has the value of a secret."""
        mistake = names_a_secret(self.secrets, path, where)
        if mistake is not None:
            self.mistake(mistake)
        return mistake is not None

    def where(self, node: Node) -> str:
        """``file:line`` of the body that yielded the step this node belongs to."""
        above: Node | None = node
        while above is not None:
            if above.generator is not None:
                return line_of(above.generator)
            above = above.parent
        return self.definition.name

    def open_child(
        self, parent: Node, step: Step[Any], path: str, index: int | None = None
    ) -> Node:
        """A node for a step below ``parent``, opened within this ``receive``; ``index``, its place,
        is said where they are not opened in order, in a group.
        """
        if index is None:
            index = parent.yields
            parent.yields += 1
        inner = parent.body_inputs
        node = Node(step, path, parent, parent.inputs if inner is None else inner)
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
        if node.phase is not Phase.OPENING:
            return  # it was stopped before its turn came
        if parent.stop is not None and not parent.unwinding:
            self.end_step(node, "cancelled", error=parent.stop)
            return
        recorded, most = self.setting.recorded, self.limits.max_steps
        if most is not None and not self.was_let_in(node.path):
            self._opened += 1
            if self._opened > most:
                self.hit_limit("max_steps", most, node.path)
                return
        if (
            recorded is not None
            and recorded.knows(node.path)
            and self.replaying.replay(node, recorded)
        ):
            return
        over = self.rehearses and (self.end.decided or self.is_late(parent))
        if over and not self.cleans_up(parent):
            return  # it is stopped before it begins
        predicate = step.modifiers.when
        if predicate is not None:
            self.ask(node, cmd.AskPredicate(node.path, predicate, self.view(node)))
            return
        self._start(node)

    def _start(self, node: Node, *, verdict: bool | None = None) -> None:
        step = node.step
        assert step is not None
        node.started_at = self.now
        node.phase = Phase.RUNNING
        recorded, once = self.setting.recorded, step.modifiers.once
        if once and recorded is not None and node.path in recorded.begun_once:
            node.interrupted = True  # it began in a drive whose record of it counts no more
        self._out.append(cmd.Record(self.started(node, verdict), once))
        self.attempt(node)

    def started(
        self,
        node: Node,
        verdict: bool | None = None,  # noqa: FBT001  # as the event has it
        *,
        began: bool = True,
    ) -> ev.StepStarted:
        """The event of a step's start in this drive, with what a replay needs to know of it; not
        ``began``: it is ended at once, and may begin another time.
        """
        step = node.step
        assert step is not None
        verb = step.verb
        return ev.StepStarted(
            node.path,
            verb.kind,
            self.fingerprint(step),
            verdict,
            verb.signal if type(verb) is SignalWait else "",
            node.index,
            step.modifiers.rollback is not None,
            step.modifiers.once and began,
            self._accepted_by(verb) if type(verb) is SignalWait else None,
            node.parent is not None and node.parent.unwinding,
        )

    def _accepted_by(self, verb: SignalWait) -> Any:
        """The type of the payload, for those who send one; None if it tells them nothing."""
        if verb.type is Any or self.unrecordable(verb.type, "the type of a signal") is not None:
            return None
        return verb.type

    def begin_plain(self, parent: Node, step: Step[Any], path: str) -> None:
        """Open, start and attempt in one go, for a leaf without modifiers: most steps are that."""
        inner = parent.body_inputs
        node = Node(step, path, parent, parent.inputs if inner is None else inner)
        node.phase = Phase.RUNNING
        node.attempt = 1
        at = parent.yields
        parent.yields = at + 1
        node.started_at = now = self.now
        parent.child = self.nodes[path] = node
        verb = step.verb
        out = self._out
        known_as = "" if self.codec is None else self.fingerprint(step)
        once = step.modifiers.once
        begun = _step_started(
            "", 0, 0.0, path, verb.kind, known_as, None, "", at, _NO, once, None, _NO
        )
        out.append(cmd.Record(begun, once))
        if type(verb) is PythonCall:
            out.append(cmd.Perform(path, step, 1, now, None))
        elif type(verb) in LAUNCHED:
            self.launches.begin(node, interrupted=False)
        else:
            view = self.view(node, self.validation_above(node)) if _sees(step) else None
            out.append(cmd.Perform(path, step, 1, now, view))

    def attempt(self, node: Node) -> None:
        """Make the next attempt: a leaf is given to the engine, another verb begins."""
        step = node.step
        assert step is not None
        node.attempt += 1
        node.yields = 0
        node.phase = Phase.RUNNING
        node.failure = None
        verb = step.verb
        if verb.leaf:
            interrupted = node.interrupted
            if interrupted:
                node.interrupted = False
                if self.must_not_run_again(node):
                    return
            if type(verb) in LAUNCHED:
                self.launches.begin(node, interrupted=interrupted)
                return
            view = self.view(node, self.validation_above(node)) if _sees(step) else None
            self._out.append(
                cmd.Perform(node.path, step, node.attempt, node.started_at, view, interrupted)
            )
            return
        timeout_s = step.modifiers.timeout_s
        if timeout_s is not None:
            due = self._recorded_due(node, "timeout") or self.now + timeout_s
            node.late = due <= self.now
            self.record(ev.TimerSet(node.path, due, "timeout", node.attempt))
            node.deadline = self.wait(node, due)
        self.behaviours[type(verb)].begin(self, node)

    def must_not_run_again(self, node: Node) -> bool:
        """Fail a leaf that its process did not survive, if once or often enough was too often."""
        step = node.step
        assert step is not None
        assert self.setting.recorded is not None
        crashes = self.setting.recorded.at(node.path).crashes
        if step.modifiers.once:
            self.fail_with(node, StepWasInterrupted(node.path), retryable=False)
        elif crashes >= self.setting.max_crashes:
            self.fail_with(node, StepIsPoisonous(node.path, crashes), retryable=False)
        else:
            return False
        return True

    def fingerprint(self, step: Step[Any]) -> str:
        """What the step is, for the record; empty where nothing is to be durable."""
        return "" if self.codec is None else fingerprint(step, self.codec, self.setting.secrets)

    def unrecordable(
        self, value: Any, where: str, declared: Callable[[], tuple[Any, ...]] | None = None
    ) -> OutputNotSerializable | None:
        """Why a value cannot be recorded, or None if it can or need not; ``declared`` gives the
        types by which it will be read, if it will be.
        """
        if self.codec is None:
            return None
        try:
            if declared is None:
                self.codec.dump(value, where=where)
            else:
                recordable(value, self.codec, declared, where)
        except OutputNotSerializable as error:
            return error
        return None

    def _recorded_due(self, node: Node, reason: str) -> float | None:
        recorded = self.setting.recorded
        return None if recorded is None else recorded.due(node.path, reason, node.attempt)

    def validation_above(self, node: Node) -> Any:
        """The validation so far that a fix step belongs to, if any."""
        above = node.parent
        while above is not None:
            found = getattr(above.state, "validation_so_far", None)
            if found is not None:
                return found()
            above = above.parent
        return None

    # -- steps: ending --------------------------------------------------------------------------

    def succeed(
        self, node: Node, output: Any, usage: Usage | None = None, *, composed: str = ""
    ) -> None:
        """End a node that is no leaf with its output; ``composed``: see ``core.composed``."""
        self.end_step(node, "succeeded", output=output, usage=usage, composed=composed)

    def end_step(
        self,
        node: Node,
        status: StepStatus,
        *,
        output: Any = None,
        error: str | None = None,
        failure: Failure | None = None,
        usage: Usage | None = None,
        abandoned: bool = False,
        composed: str = "",
    ) -> None:
        """Send the step's end on its way to the journal; the parent hears of it after that."""
        step = node.step
        assert step is not None
        self.drop_timer(node.deadline)
        self.drop_timer(node.timer)
        node.deadline = node.timer = 0
        if node.phase is Phase.OPENING:
            self.record(self.started(node, began=False))
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
        modifiers = step.modifiers
        on_disk = modifiers.checkpoint or modifiers.once
        left_out = self.left_out(node)
        ended = ev.StepCompleted(node.path, result, composed, node.took, left_out)
        self._out.append(cmd.Record(ended, on_disk))

    def left_out(self, node: Node) -> tuple[str, ...]:
        """What is recorded just below a node, in its attempts, and this drive did not come to."""
        recorded, path = self.setting.recorded, node.path
        known = [] if recorded is None else recorded.children(path)
        if recorded is None or not known:
            return ()
        come_to = set(children_of(self.tree, path))
        left = [one for one in known if one not in come_to]
        made = max(node.attempt, 1)
        return tuple(
            one
            for one in left
            if attempt_in(path, one) <= made
            and (recorded.at(one).ended() or recorded.children(one))
        )

    def _step_completed(self, event: ev.StepCompleted) -> None:
        node = self.nodes.pop(event.path, None)
        if node is None:
            return
        result = event.result
        if node.reserved:
            self.spending.settle_total(node, result.usage)
        step, parent = node.step, node.parent
        if (  # the road of most steps: a leaf without modifiers, below a body that just goes on
            result.status == "succeeded"
            and step is not None
            and (step.modifiers is PLAIN or is_simple(step.modifiers))
            and step.verb.leaf
            and parent is not None
            and parent.generator is not None
            and parent.stop is None
        ):
            self.results[event.path] = result
            parent.child = None
            self.driving.advance(parent, result.output, None)
        else:
            self.ended(node, result)

    def ended(self, node: Node, result: StepResult[Any]) -> None:
        """Keep the result of a step whose end is recorded, and its rollback if it succeeded."""
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
        self.tell_parent(node, result)

    def tell_parent(self, node: Node, result: StepResult[Any]) -> None:
        """Let whatever the parent is at go on: its fallback, body, unwinding or verb."""
        parent = node.parent
        if parent is None:
            return
        if parent.live is None:
            parent.child = None
            if node.rollbacks is not None:
                _adopt(parent, node.rollbacks)
            if result.status == "cancelled" and parent.stop is None:
                self.stopping.was_stopped(parent, result.error)  # in an earlier drive
        else:
            del parent.live[node.path]
        if parent.phase is Phase.FALLING_BACK:
            self.failing.fallback_ended(parent, result)
        elif parent.generator is not None:
            self.driving.go_on(parent, result)
        elif parent.stop is not None:
            self.stopping.child_ended(parent, node, result)
        elif parent.step is None:
            self._member_step_ended(parent, result)
        else:
            behaviour = self.behaviours[type(parent.step.verb)]
            behaviour.child_ended(self, parent, node, result)

    # -- evaluations ----------------------------------------------------------------------------

    def _evaluated(self, report: cmd.Evaluated) -> None:
        if self.replaying.registering.answered(report):
            return
        node = self.nodes.get(report.path)
        if node is None or node.step is None or not node.asking:
            return
        node.asking = False
        if node.stop is not None:
            self.stopping.all_stopped(node)
        elif node.phase is Phase.OPENING:
            self._predicate_answered(node, report)
        elif node.phase is Phase.FALLING_BACK:
            self.failing.fallback_chosen(node, report)
        elif node.failure is not None:
            self.failing.retry_judged(node, node.failure, report)
        else:
            self.behaviours[type(node.step.verb)].evaluated(self, node, report)

    def _predicate_answered(self, node: Node, report: cmd.Evaluated) -> None:
        if report.error is not None:
            self._start_to_fail(node, failure_of(report.error))
        elif not isinstance(report.value, bool):
            said = f"the predicate of .when() must return a bool, got {report.value!r}"
            self._start_to_fail(node, Failure(said, "builtins.TypeError", _TYPE_ERROR_BASES))
        elif report.value:
            self._start(node, verdict=True)
        else:
            self.skip(node)

    def skip(self, node: Node) -> None:
        """End a step whose predicate was false."""
        node.started_at = self.now
        node.phase = Phase.RUNNING
        self.record(self.started(node, verdict=False))
        self.end_step(node, "skipped", output=Skipped("its predicate was false"))

    def _start_to_fail(self, node: Node, failure: Failure) -> None:
        """A failing predicate goes past retry, fallback and default."""
        assert node.step is not None
        node.started_at = self.now
        node.phase = Phase.RUNNING
        self.record(self.started(node))
        self.failing.fail_for_good(node, failure)

    def was_let_in(self, path: str) -> bool:
        """True for what began in an earlier drive, whose limits were others: it counts, but none is
        hit by it, or a success on record would end a second time.
        """
        recorded = self.setting.recorded
        if recorded is None or not recorded.knows(path):
            return False
        if recorded.limit is None or recorded.limit.path != path:
            return True
        end = recorded.at(path).end
        return end is not None and end.success

    # -- bodies ---------------------------------------------------------------------------------

    def body_ended(self, node: Node, value: Any, error: BaseException | None) -> None:
        """Have the end of a body heard of by who waits for it: the run, a stop, its step."""
        node.generator = None
        self.drop_timer(node.timer)
        node.timer = 0
        if node.stop is not None and error is not None:
            self.end.note_unwinding(node, error)
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            self.escaped = error
        if node is self.root:
            self.end.root_ended(value, error)
        elif node.stop is not None:
            self.stopping.all_stopped(node)
        elif node.step is None:
            self._member_body_ended(node, value, error)
        else:
            behaviour: Any = self.behaviours[type(node.step.verb)]  # one that enters a generator
            behaviour.body_ended(self, node, value, error)

    # -- members of for_each --------------------------------------------------------------------

    def _member_body_ended(self, node: Node, value: Any, error: BaseException | None) -> None:
        if error is None:
            error = self.unrecordable(value, f"member {node.path!r}", lambda: declared_for(node))
        if error is None:
            self.end_member(node, "succeeded", output=value)
        else:
            self.end_member(node, "failed", failure=failure_of_body(error))

    def _member_step_ended(self, node: Node, result: StepResult[Any]) -> None:
        if result.success:
            self.end_member(node, result.status, output=result.output, composed=CHILD)
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
        composed: str = "",
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
        left_out = self.left_out(node)
        ended = ev.MemberCompleted(node.path, node.index, result, composed, left_out)
        self._out.append(cmd.Record(ended))

    def _member_completed(self, event: ev.MemberCompleted) -> None:
        node = self.nodes.pop(event.path, None)
        if node is not None:
            self.tell_parent(node, event.result)

    # -- timers ---------------------------------------------------------------------------------

    def cleans_up(self, node: Node | None) -> bool:
        """True if this is, or stands in, what a body does while it is cancelled."""
        while node is not None and not node.unwinding:
            node = node.parent
        return node is not None

    def is_late(self, node: Node | None) -> bool:
        """True if the time of a node, or of one above it, was over when this drive began; not of
        what a body does to clean up.
        """
        while node is not None and not node.unwinding:
            if node.late:
                return True
            node = node.parent
        return False

    def run_overdue(self) -> None:
        """End the run because its ``timeout_s`` has passed; its bodies may still clean up."""
        self.hit_limit("timeout_s", self.limits.timeout_s or 0.0, "", hard=False)

    # -- gates and signals ----------------------------------------------------------------------

    def _pulled(self, report: cmd.Pulled) -> None:
        node = self.nodes.get(report.path)
        if node is not None and node.step is not None and node.stop is None:
            behaviour: Any = self.behaviours[type(node.step.verb)]
            behaviour.pulled(self, node)

    # -- the run --------------------------------------------------------------------------------

    def _workflow_started(self, event: ev.WorkflowStarted) -> None:
        self.started_at = event.at
        self.begin()

    def _run_resumed(self, event: ev.RunResumed) -> None:
        recorded = self.setting.recorded
        self.started_at = event.at if recorded is None else recorded.started_at
        if recorded is not None:
            for name, payloads in recorded.signals_left().items():
                self.mailboxes[name] = list(payloads)
            self.answered.update(recorded.answers)
            self.openings.update(recorded.openings)
        self.replaying.seq = event.seq
        self.begin()

    def begin(self) -> None:
        """Call the workflow's function and enter its generator; the run's time is known by now."""
        root = self.root
        root.started_at = self.started_at
        root.phase = Phase.RUNNING
        if self.limits.timeout_s is not None:
            due = self.started_at + self.limits.timeout_s
            self.run_deadline = self.wait(root, due)
        try:
            generator = self.call(self.definition, root.inputs)
        except Exception as error:  # noqa: BLE001  # the function's own code
            self.end.root_ended(None, error)
            return
        self.enter(root, generator)

    @staticmethod
    def call(definition: WorkflowDefinition, inputs: Mapping[str, Any]) -> Any:
        """The generator of a workflow with these bound inputs."""
        bound = definition.signature.bind_partial()
        bound.arguments.update(inputs)
        return definition.function(*bound.args, **bound.kwargs)

    # -- replay ---------------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """True if a timer, a gate, a signal or what a person must do is waited for."""
        return bool(self.timers or self.gates or self.listeners or self.launches.parked)


_TYPE_ERROR_BASES = ("builtins.Exception", "builtins.BaseException")


_NO = False
"""A simple step has no rollback, and a body that unwinds does not begin it as one."""


def _sees(step: Step[Any]) -> bool:
    return isinstance(step.verb, StageCheck)


def _adopt(parent: Node, entries: list[Any]) -> None:
    if parent.rollbacks is None:
        parent.rollbacks = entries
    else:
        parent.rollbacks.extend(entries)
