"""The interpreter of workflows: ``receive(event) -> commands``.

Theory of operation
===================

The machine knows nothing of time, tasks or files. It receives what happened and returns commands.
Its inputs are events, which are in the journal by then, and reports, which need no record because
what follows from them is recorded. Its answers depend on the sequence of its inputs alone.

A run is a tree of nodes. The root and every child workflow and generator member have a generator;
the others are steps. A node lives from when its path is reserved until its recorded end comes back:

    STARTING      its predicate is being evaluated               -> RUNNING | ENDING
    RUNNING       an attempt is in flight, or its children are   -> PAUSED | FALLING_BACK
                                                                    | UNDOING | ENDING
    PAUSED        it waits before its next attempt               -> RUNNING | ENDING
    FALLING_BACK  its handler or the fallback step is at work    -> ENDING
    UNDOING       rollbacks below it run                         -> RUNNING | PAUSED
                                                                    | FALLING_BACK | ENDING
    SEARCHING     rollbacks of what an earlier drive did below   -> RUNNING | PAUSED
                  it are looked up in the code                      | FALLING_BACK | gone
    ENDING        ``Record`` of its end is on its way            -> gone
    HALTED        its record is of another step, which was
                  found late: the drive ends, and the node does not

Every end goes through ``Record(StepCompleted)``: the engine journals it, shows it to the sinks and
gives it back, and only then does the parent hear of it. So a generator never sees a result that a
crash could take away, unless that had no effect outside of the run (see ``engine.driver``).

*Stopping.* ``stop(node)`` marks a subtree: attempts in flight are cancelled, waits end at once, and
as children end, ``RunCancelled`` is thrown into the generators above them, innermost first. Steps
yielded while a generator unwinds run; a *hard* stop closes generators instead. A node with
``failure`` set when its children are gone (a deadline) fails with it; the others end as cancelled.
A stop waits for the end of a rehearsal, because what it would cut off may have left rollbacks. A
recorded child that ended as cancelled shows that an earlier drive was stopping its parent: nothing
else ends as cancelled.

*The parts.* All state is one ``RunState``; the parts are functions over it, in modules that call
only those below them. Each verb that has children or waits has a node class of its own, in
``children``, ``groups``, ``work``, ``validation`` and ``waits``. To have a part above it act, a
part pushes an action on *the agenda*, a stack that one ``receive`` works off: ``act`` says which
part carries out which action. Nothing recurses: a group of any number of members, or of members
that are all recorded, takes one loop. Pushing in reverse keeps commands in tree order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, assert_never

from handrail.core import commands as cmd
from handrail.core.bodies import advance, begin_plain, go_on
from handrail.core.ending import (
    cancel_requested,
    close_run,
    drive_ended,
    note_unwinding,
    rollback_completed,
    root_ended,
)
from handrail.core.failures import failure_from, failure_of_body
from handrail.core.generators import call
from handrail.core.nodes import MemberNode, Node, Phase, RunNode
from handrail.core.run_state import (
    Action,
    Advance,
    AgentNode,
    Attempt,
    BodyStepNode,
    CompositeNode,
    EndBody,
    EndStopped,
    LeafNode,
    MakeLaunch,
    Open,
    Pull,
    Retrace,
    RunState,
    StepNode,
    Stop,
    StopMember,
    StopMembers,
    TellParent,
)
from handrail.core.setting import Setting
from handrail.core.user_code import call_user, interrupt
from handrail.later import later
from handrail.model import events as ev
from handrail.model.definition import WorkflowDefinition
from handrail.model.launch import asked_nobody
from handrail.model.outcome import INTERRUPTIONS, RAISED, RETURNED
from handrail.model.results import Skipped, StepResult, StepStatus, add_usage
from handrail.steps.leaves import Launching, PythonCall, StageCheck
from handrail.steps.verbs import Leaf

if TYPE_CHECKING:
    from handrail.core import (
        attempts,
        budget,
        children,
        compensation,
        failing,
        groups,
        launches,
        replaying,
        retry,
        steering,
        stopping,
        validation,
        waits,
        work,
        work_edits,
        worktrees,
    )
    from handrail.model import work as model_work
    from handrail.record import outputs
    from handrail.steps import bodies as body_verbs
    from handrail.steps import groups as group_verbs
    from handrail.steps import waits as wait_verbs
else:
    later(
        globals(),
        "core.attempts core.budget core.children core.compensation core.failing core.groups "
        "core.launches core.replaying core.retry core.steering core.stopping core.validation "
        "core.waits core.work core.work_edits core.worktrees model.work:model_work record.outputs "
        "steps.bodies:body_verbs steps.groups:group_verbs steps.waits:wait_verbs",
    )


class _NodeTypes(dict[type, type[StepNode]]):
    """The node class of each verb class. It begins with that of most steps, and is filled when
    another is met: to name all of these classes loads most of the core.
    """

    def __missing__(self, verb: type) -> type[StepNode]:
        if Leaf not in self:
            self.update(
                {
                    Leaf: LeafNode,
                    Launching: AgentNode,
                    StageCheck: AgentNode,  # an agent may judge
                    group_verbs.Group: groups.GroupNode,
                    group_verbs.WorkGroup: work.WorkNode,
                    body_verbs.Branching: children.BranchNode,
                    body_verbs.ChildWorkflow: children.WorkflowNode,
                    body_verbs.ScopedBody: children.ScopeNode,
                    body_verbs.HeldBody: children.HeldBodyNode,
                    body_verbs.TreeBody: worktrees.WorktreeNode,
                    body_verbs.Validation: validation.ValidationNode,
                    wait_verbs.Pause: waits.TimerNode,
                    wait_verbs.Question: waits.GateNode,
                    wait_verbs.SignalWait: waits.SignalNode,
                }
            )
        node_class = next(self[cls] for cls in verb.__mro__ if cls in self)
        self[verb] = node_class
        return node_class


NODE_TYPES = _NodeTypes({PythonCall: LeafNode})


class Machine:
    """Interprets one drive of one run. Its decisions depend on its inputs alone."""

    def __init__(
        self, definition: WorkflowDefinition, inputs: Mapping[str, Any], setting: Setting
    ) -> None:
        self.run = run = RunState(definition, inputs, setting, NODE_TYPES)
        self.reacts_to = frozenset(REACTIONS)
        self._agenda = run.agenda

    def receive(self, event: ev.Event | cmd.Report) -> Sequence[cmd.Command]:
        """Act on an event or report; returns the first commands that follow, in order, often none.

        ``go_on`` returns the others, and is called to its end before the next input.
        """
        react = REACTIONS.get(type(event))
        if react is None:
            return ()
        run = self.run
        run.now = event.at
        out: list[cmd.Command] = []
        run.out = out
        react(run, event)
        return out

    def go_on(self, most: float = math.inf) -> Sequence[cmd.Command]:
        """Work off about ``most`` actions, as ``has_actions`` says there are; returns the commands.

        Each result that is taken from the record counts as an action.
        """
        run, agenda = self.run, self._agenda
        out: list[cmd.Command] = []
        run.out = out
        most += len(run.results)
        while agenda and len(run.results) < most:
            most -= 1
            act(run, agenda.pop())
        return out

    @property
    def has_actions(self) -> bool:
        """Whether ``go_on`` has anything left to do: the agenda is not empty."""
        return bool(self._agenda)

    @property
    def waits(self) -> bool:
        """Whether the run waits for a timer, a gate, a signal, or a person to act."""
        run = self.run
        return bool(run.timers or run.gates or run.listeners or run.parked or run.paused)


def act(run: RunState, action: Action) -> None:  # noqa: C901, PLR0912  # one arm an action
    """Carry out an internal action: the table of who does what."""
    match action:
        case EndBody(node, value, error):
            _body_ended(run, node, value, error)
        case Open(node):
            attempts.open_step(run, node)
        case Pull(node):
            node.pull(run)
        case Advance(node):
            advance(run, node)
        case TellParent(node, result):
            _tell_parent(run, node, result)
        case Attempt(node):
            if not (run.paused or run.unclaimed) or not steering.postpone_blocked(run, action):
                attempts.attempt(run, node)
        case MakeLaunch(node, which, interrupted):
            launches.launch_unless_paused(run, node, which, interrupted=interrupted)
        case Stop(node, reason, hard):
            stopping.stop(run, node, reason, hard=hard)
        case EndStopped(node):
            stopping.end_stopped(run, node)
        case StopMember(node, path):
            node.stop_late(run, path)
        case StopMembers(node, reason, number):
            node.stop_members(run, reason, number)
        case Retrace():
            compensation.retrace(run, action, act)
        case _:
            assert_never(action)


# -- the run begins --------------------------------------------------------------------------------


def _workflow_started(run: RunState, event: ev.WorkflowStarted) -> None:
    run.started_at = event.at
    _begin(run)


def _run_resumed(run: RunState, event: ev.RunResumed) -> None:
    recorded = run.recorded
    recorded.begin_time(event.at)
    run.started_at = event.at if recorded.is_empty else recorded.started_at
    run.mailboxes.update(recorded.signals_left())
    run.answered.update(recorded.answers)
    run.revisions.update(recorded.revisions)
    run.drive_seq = event.seq
    if run.paused is not None:
        run.emit(cmd.PauseAdmission(on=True))
    _begin(run)


def _begin(run: RunState) -> None:
    """Call the workflow's function and enter its generator; ``started_at`` is known by now."""
    root = run.root
    root.started_at = run.started_at
    root.phase = Phase.RUNNING
    if run.limits.timeout_s is not None and run.limits.on_breach == "fail":
        run.run_deadline = run.wait(root, run.started_at + run.limits.timeout_s)
    outcome, body_or_error = call_user(run, call, run.definition, root.inputs)
    if outcome == RETURNED:
        run.enter(root, body_or_error)
    elif outcome == RAISED:
        root_ended(run, None, body_or_error)


def _rehearsed(run: RunState, report: cmd.Rehearsed) -> None:
    del report
    waits.recall_signals(run)
    stopping.end_rehearsal(run)


# -- what ended ------------------------------------------------------------------------------------


def _step_completed(run: RunState, event: ev.StepCompleted) -> None:
    # fast road of replaying.keep_result
    node = run.nodes.pop(event.path, None)
    if not isinstance(node, StepNode):
        return
    result = event.result
    if isinstance(node, AgentNode):
        _agent_ended(run, node, event)
    step, parent = node.step, node.parent
    if (  # the path of most steps: a simple leaf below a body that is not being stopped
        result.status == "succeeded"
        and step.modifiers.simple
        and node.is_leaf
        and parent is not None
        and parent.generator is not None
        and parent.stop is None
    ):
        run.results[event.path] = result
        parent.child = None
        advance(run, parent, result.output)
    else:
        replaying.keep_result(run, node, result)
        _tell_parent(run, node, result)


def _agent_ended(run: RunState, node: AgentNode, event: ev.StepCompleted) -> None:
    if node.reserved:
        budget.settle_total(run, node, event.used)
    if run.guidance.waiting:
        run.guidance.ended(event.path)


def _attempt_failed(run: RunState, event: ev.AttemptFailed) -> None:
    node = run.step_at(event.path)
    if isinstance(node, AgentNode):
        launches.launch_over(run, node)
        if node.reserved:
            budget.settle_total(
                run, node, event.usage, asked=not asked_nobody(event.error_type, event.error_bases)
            )
    if node is not None:
        node.used = add_usage(node.used, event.usage)
    retry.attempt_failed(run, event)


def _member_completed(run: RunState, event: ev.MemberCompleted) -> None:
    node = run.nodes.pop(event.path, None)
    if node is not None:
        _tell_parent(run, node, event.result)


def _tell_parent(run: RunState, node: Node, result: StepResult[Any]) -> None:
    """Report a node's end to what its parent is at: its fallback, body, stop or verb."""
    parent = node.parent
    if parent is None:
        return
    if parent.live is None:
        parent.child = None
        if node.rollbacks is not None:
            _adopt(parent, node)
        if result.status == "cancelled" and parent.stop is None:
            stopping.note_stopped_before(run, parent, node.path, result.error)
    else:
        del parent.live[node.path]
    if parent.phase is Phase.FALLING_BACK and isinstance(parent, StepNode):
        failing.fallback_ended(run, parent, result)
    elif parent.generator is not None:
        go_on(run, parent, result)
    elif parent.stop is not None:
        stopping.stopped_child_ended(run, parent, node, result)
    elif isinstance(parent, StepNode):
        parent.child_ended(run, node, result)
    else:
        _member_step_ended(run, parent, result)


def _adopt(parent: Node, node: Node) -> None:
    if parent.rollbacks is None:
        parent.rollbacks = node.rollbacks
    else:
        parent.rollbacks.extend(node.rollbacks or ())


def _member_step_ended(run: RunState, node: Node, result: StepResult[Any]) -> None:
    if result.success:
        _end_member(run, node, result.status, result.output, outputs.CHILD)
    else:
        failure = failure_from(result, f"step {result.name!r} failed: {result.error}")
        groups.member_failed(run, node, failure)


def _end_member(
    run: RunState, node: Node, status: StepStatus, output: Any, derived: str = ""
) -> None:
    """End a member with its output; the run, if a task gave neither ``Found`` nor ``Skipped``."""
    tasks: tuple[tuple[str, float], ...] = ()
    if isinstance(node.parent, work.WorkNode):
        if model_work.is_found(output):
            if output.children:
                tasks = tuple([(task.id, task.priority) for task in output.children])
        elif not isinstance(output, Skipped):
            run.mistake(node.parent.unfit(node, output))
            return
    run.end_member(node, status, output=output, derived=derived, found=tasks)


def _body_ended(run: RunState, node: Node, value: Any, error: BaseException | None) -> None:
    """Report the end of a body to what waits for it: the run, a stop, its member or step."""
    assert isinstance(node, (RunNode, MemberNode, BodyStepNode))
    node.generator = None
    run.drop_timer(node.timer)
    node.timer = 0
    if node.stop is not None and error is not None:
        note_unwinding(run, node, error)
    if isinstance(error, INTERRUPTIONS):
        run.escaped = error
    if isinstance(error, KeyboardInterrupt) and node.stop is None:
        interrupt(run, error)  # Ctrl-C hit the body, which is not at fault
        return
    if isinstance(node, RunNode):
        root_ended(run, value, error)
    elif node.stop is not None:
        stopping.end_stopped(run, node)
    elif isinstance(node, MemberNode):
        _member_body_ended(run, node, value, error)
    else:
        node.body_ended(run, value, error)


def _member_body_ended(
    run: RunState, node: MemberNode, value: Any, error: BaseException | None
) -> None:
    if error is None:
        error = run.unrecordable(
            value, f"member {node.path!r}", lambda: children.declared_for(node)
        )
    if error is None:
        _end_member(run, node, "succeeded", value)
    else:
        groups.member_failed(run, node, failure_of_body(error))


# -- what was asked --------------------------------------------------------------------------------


def _evaluated(run: RunState, report: cmd.Evaluated) -> None:
    # fast road of attempts.predicate_answered
    search = run.searches.pop(report.path, None)
    if search is not None:
        search.answer(report)
        return
    node = run.nodes.get(report.path)
    if not isinstance(node, StepNode) or not (node.asking or report.path in run.unclaimed):
        return
    if report.path in run.unclaimed and isinstance(node, CompositeNode):
        _claimed(run, node, report)
        return
    node.asking = False
    if node.stop is not None:
        stopping.end_stopped(run, node)
    elif node.phase is Phase.STARTING:
        above = node.parent
        is_plain = node.is_leaf and node.step.modifiers.simple and run.begins_at_once
        if is_plain and report.value is True and above is not None and not above.unwinding:
            begin_plain(run, node, verdict=True)
        else:
            attempts.predicate_answered(run, node, report)
    elif node.phase is Phase.FALLING_BACK:
        failing.fallback_chosen(run, node, report)
    elif node.failure is not None:
        retry.retry_judged(run, node, node.failure, report)
    else:
        node.evaluated(run, report)


def _claimed(run: RunState, node: CompositeNode, report: cmd.Evaluated) -> None:
    if node.stop is None:
        attempts.claim_answered(run, node, report)
    elif node.asking:
        node.asking = False
        stopping.end_childless(run, node)


def _pulled(run: RunState, report: cmd.Pulled) -> None:
    node = run.nodes.get(report.path)
    if isinstance(node, groups.GroupNode) and node.stop is None:
        node.turn(run)


REACTIONS: Mapping[type, Callable[[RunState, Any], None]] = {
    ev.StepCompleted: _step_completed,
    ev.AttemptFailed: _attempt_failed,
    ev.LadderStep: lambda run, event: launches.ladder_stepped(run, event),
    ev.MemberCompleted: _member_completed,
    ev.WorkflowStarted: _workflow_started,
    ev.RunResumed: _run_resumed,
    ev.WorkflowCompleted: drive_ended,
    ev.RunSuspended: drive_ended,
    ev.CancelRequested: cancel_requested,
    ev.RunSteered: lambda run, event: steering.run_steered(run, event),
    ev.WorkEdited: lambda run, event: work_edits.work_edited(run, event),
    ev.GateAnswered: lambda run, event: waits.gate_answered(run, event),
    ev.SignalReceived: lambda run, event: waits.signal_received(run, event),
    ev.RollbackCompleted: rollback_completed,
    cmd.Evaluated: _evaluated,
    cmd.TimerFired: lambda run, event: waits.timer_fired(run, event),
    cmd.GateRefused: lambda run, event: waits.gate_refused(run, event),
    cmd.Stopped: lambda run, event: stopping.attempt_stopped(run, event),
    cmd.Granted: lambda run, event: launches.granted(run, event),
    cmd.LaunchFailed: lambda run, event: launches.launch_failed(run, event),
    cmd.Pulled: _pulled,
    cmd.Rehearsed: _rehearsed,
    cmd.CloseRun: close_run,
}
"""Who acts on each event and report; nothing follows from the others. A row that calls a
function of a module by its name does not load that module before.
"""
