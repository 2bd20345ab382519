"""Opens steps and begins attempts: has the engine perform a leaf, begins other verbs itself.

A composite that needs claims requests them before each of its attempts begins, and keeps them while
the steps below it run. A leaf needs nothing here: its ``Perform`` names its claims, and the engine
acquires them before it performs the step. A resume replays what is recorded below a composite
without the claims, which ended with the process; what lies beyond the record waits for them.
"""

from __future__ import annotations

from handrail.core import commands as cmd
from handrail.core.changes import note_undone_step_change
from handrail.core.failing import fail_for_good, fail_rather_than_repeat, fail_with
from handrail.core.failures import AttemptFailure, failure_of
from handrail.core.launches import first_launch
from handrail.core.limits import let_in
from handrail.core.nodes import Phase, cleans_up, is_late
from handrail.core.replaying import replay
from handrail.core.run_state import (
    AgentNode,
    CompositeNode,
    LeafNode,
    Open,
    RunState,
    StepNode,
    Stop,
)
from handrail.core.steering import (
    begin_postponed,
    end_as_requested,
    postpone_blocked,
    waits_for_claim_above,
)
from handrail.model import events as ev
from handrail.steps.verbs import wanted_by

_TYPE_ERROR_BASES = ("builtins.Exception", "builtins.BaseException")


def open_step(run: RunState, node: StepNode) -> None:
    """Replay a new step from the record, or else evaluate its predicate or start it."""
    # long road of bodies.begin_plain
    step, parent = node.step, node.parent
    assert parent is not None
    if node.phase is not Phase.STARTING:
        return  # it was stopped before its turn came
    if parent.stop is not None and not parent.unwinding:
        run.end_step(node, "cancelled", error=parent.stop)
        return
    may_wait = run.paused is not None or run.unclaimed
    if may_wait and not run.recorded.knows(node.path) and postpone_blocked(run, Open(node)):
        return
    if run.steering_requests and end_as_requested(run, node):
        return
    if run.bounds_steps and not let_in(run, node):
        return
    if run.recorded.knows(node.path) and replay(run, node):
        return
    if run.recorded.is_fork and note_undone_step_change(run, node.path, step):
        node.phase = Phase.HALTED
        return
    if run.rehearses and run.ending is not None and not cleans_up(parent):
        return  # the stop after the rehearsal ends it before it begins
    if run.timers and is_late(parent, run.timers, run.now):
        return  # so does the deadline, which is due
    predicate = step.modifiers.when
    if predicate is not None:
        run.ask(node, cmd.AskPredicate(node.path, predicate, run.view(node)))
    else:
        _start(run, node)


def predicate_answered(run: RunState, node: StepNode, report: cmd.Evaluated) -> None:
    """Start or skip the step as its predicate says; an error of the predicate fails it."""
    # long road of machine._evaluated
    if report.error is not None:
        _start_to_fail(run, node, failure_of(report.error))
    elif not isinstance(report.value, bool):
        text = f"the predicate of .when() must return a bool, got {report.value!r}"
        _start_to_fail(run, node, AttemptFailure(text, "builtins.TypeError", _TYPE_ERROR_BASES))
    elif report.value:
        _start(run, node, verdict=True)
    else:
        run.skip(node)


def _start(run: RunState, node: StepNode, *, verdict: bool | None = None) -> None:
    node.started_at = run.now
    node.phase = Phase.RUNNING
    once = node.step.modifiers.once
    if once and isinstance(node, LeafNode) and node.path in run.recorded.begun_once:
        node.interrupted = True  # an earlier drive began it; that record is superseded
    run.emit(cmd.Record(run.started(node, verdict), once))
    attempt(run, node)


def _start_to_fail(run: RunState, node: StepNode, failure: AttemptFailure) -> None:
    """Start a step only to fail it: no retry, fallback or default follows a failed predicate."""
    node.started_at = run.now
    node.phase = Phase.RUNNING
    run.record(run.started(node))
    fail_for_good(run, node, failure)


def attempt(run: RunState, node: StepNode) -> None:
    """Begin the next attempt of a step."""
    node.attempt += 1
    node.yields = 0
    node.phase = Phase.RUNNING
    node.failure = None
    if isinstance(node, LeafNode):
        interrupted = node.interrupted
        node.interrupted = False
        if not (interrupted and fail_rather_than_repeat(run, node)):
            perform(run, node, interrupted=interrupted)
    elif isinstance(node, CompositeNode):
        _begin(run, node)


def _begin(run: RunState, node: CompositeNode) -> None:
    timeout_s = node.step.modifiers.timeout_s
    if timeout_s is not None:
        due = run.recorded.due(node.path, "timeout", node.attempt) or run.now + timeout_s
        run.record(ev.TimerSet(node.path, due, "timeout", node.attempt))
        node.deadline = run.wait(node, due)
    begin_claimed(run, node)


def perform(run: RunState, node: StepNode, *, interrupted: bool) -> None:
    """Have the engine perform an attempt of a leaf."""
    if isinstance(node, AgentNode):
        first_launch(run, node, interrupted=interrupted)
        return
    step = node.step
    view = run.view(node) if step.verb.viewed else None
    run.emit(
        cmd.Perform(
            node.path,
            step,
            node.attempt,
            node.started_at,
            view,
            interrupted,
            used=node.used,
            wanted=wanted_by(step),
            tree=run.tree_of(node),
        )
    )


def begin_claimed(run: RunState, node: CompositeNode) -> None:
    """Begin an attempt once its claims are granted; a replayed attempt begins without them."""
    if wanted_by(node.step) is None:
        node.begin(run)
        return
    run.unclaimed[node.path] = node
    run.update_begins_at_once()
    if run.rehearses and _was_entered(run, node):
        node.begin(run)
    else:
        node.asking = True
    if run.nodes.get(node.path) is node and node.phase is not Phase.ENDING:
        _request_claims(run)


def claim_answered(run: RunState, node: CompositeNode, report: cmd.Evaluated) -> None:
    """Begin what waited for the claims of a step; if they cannot be granted, fail the step."""
    waits_to_begin, node.asking = node.asking, False
    del run.unclaimed[node.path]
    if report.error is None:
        run.update_begins_at_once()
        _request_claims(run)
        begin_postponed(run)
        if waits_to_begin:
            node.begin(run)
    elif waits_to_begin:
        fail_with(run, node, report.error)
    else:  # an earlier drive began steps below it: stop them first
        node.failure, node.overdue = failure_of(report.error), True
        run.push(Stop(node, str(report.error)))


def _was_entered(run: RunState, node: CompositeNode) -> bool:
    """Whether an earlier drive recorded anything below this attempt of the step."""
    recorded = run.recorded
    children = recorded.children(node.path)
    return any(recorded.at(child).attempt == node.attempt for child in children)


def _request_claims(run: RunState) -> None:
    """Request the claims of waiting composites; of nested ones, the outer one requests first."""
    for path, node in run.unclaimed.items():
        if path not in run.claimed and not waits_for_claim_above(run, node):
            wanted = wanted_by(node.step)
            assert wanted is not None
            run.claimed.add(path)
            run.emit(cmd.Claim(path, wanted))
