"""Opens steps and makes their attempts: a leaf is given to the engine, another verb begins.

What another verb holds while the steps below it run is asked for before it begins, in each attempt.
A leaf needs nothing of this: what it holds is in its ``Perform``, and the engine has it held by
then. In a resume what is on record below a step is gone through without the claim, which went with
the process; what lies beyond it waits.
"""

from __future__ import annotations

from typing import Any

from handrail.core import commands as cmd
from handrail.core.failing import fail_for_good, fail_with, must_not_run_again
from handrail.core.failures import AttemptFailure, failure_of
from handrail.core.launches import first_launch, validation_above
from handrail.core.limits import has_room
from handrail.core.nodes import Node, Phase, cleans_up, is_late
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
    end_as_asked,
    postpone_blocked,
    waits_for_claim_above,
)
from handrail.model import events as ev
from handrail.record.assemble import assembler
from handrail.steps.verbs import PythonCall, StageCheck, Step, wanted_by

_step_started = assembler(ev.StepStarted)
_TYPE_ERROR_BASES = ("builtins.Exception", "builtins.BaseException")
_NO = False
"""A simple step has no rollback, and a body that unwinds does not begin it as one."""


def open_step(run: RunState, node: StepNode) -> None:
    """Take a new step from the record, or evaluate its predicate, or start it."""
    step, parent = node.step, node.parent
    assert parent is not None
    if node.phase is not Phase.STARTING:
        return  # it was stopped before its turn came
    if parent.stop is not None and not parent.unwinding:
        run.end_step(node, "cancelled", error=parent.stop)
        return
    may_block = run.paused is not None or run.unclaimed
    if may_block and not run.recorded.knows(node.path) and postpone_blocked(run, Open(node)):
        return
    if run.asked and end_as_asked(run, node):
        return
    if run.bounds_steps and not has_room(run, node):
        return
    if run.recorded.knows(node.path) and replay(run, node):
        return
    over = run.rehearses and (run.ending is not None or is_late(parent))
    if over and not cleans_up(parent):
        return  # it is stopped before it begins
    predicate = step.modifiers.when
    if predicate is not None:
        run.ask(node, cmd.AskPredicate(node.path, predicate, run.view(node)))
    else:
        _start(run, node)


def predicate_answered(run: RunState, node: StepNode, report: cmd.Evaluated) -> None:
    """Start the step, or skip it; a predicate that failed fails it."""
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
        node.interrupted = True  # it began in a drive whose record of it counts no more
    run.emit(cmd.Record(run.started(node, verdict), once))
    attempt(run, node)


def _start_to_fail(run: RunState, node: StepNode, failure: AttemptFailure) -> None:
    """A failing predicate goes past retry, fallback and default."""
    node.started_at = run.now
    node.phase = Phase.RUNNING
    run.record(run.started(node))
    fail_for_good(run, node, failure)


def attempt(run: RunState, node: StepNode) -> None:
    """Make the next attempt of a step."""
    node.attempt += 1
    node.yields = 0
    node.phase = Phase.RUNNING
    node.failure = None
    if isinstance(node, LeafNode):
        interrupted = node.interrupted
        node.interrupted = False
        if not (interrupted and must_not_run_again(run, node)):
            _perform(run, node, interrupted=interrupted)
    elif isinstance(node, CompositeNode):
        _begin(run, node)


def _begin(run: RunState, node: CompositeNode) -> None:
    timeout_s = node.step.modifiers.timeout_s
    if timeout_s is not None:
        due = run.recorded.due(node.path, "timeout", node.attempt) or run.now + timeout_s
        node.late = due <= run.now
        run.record(ev.TimerSet(node.path, due, "timeout", node.attempt))
        node.deadline = run.wait(node, due)
    begin_claimed(run, node)


def begin_plain(run: RunState, parent: Node, step: Step[Any], path: str) -> None:
    """Open, start and attempt in one go, for a leaf without modifiers: most steps are that."""
    verb = step.verb
    node = run.new_node(parent, step, path)
    node.phase = Phase.RUNNING
    node.attempt = 1
    at = parent.yields
    parent.yields = at + 1
    node.started_at = now = run.now
    parent.child = run.nodes[path] = node
    fingerprint = "" if run.codec is None else run.fingerprint(step)
    once = step.modifiers.once
    begun = _step_started(
        "", 0, 0.0, path, verb.kind, fingerprint, None, "", at, _NO, once, None, _NO
    )
    run.out.append(cmd.Record(begun, once))
    if type(verb) is PythonCall:
        run.out.append(cmd.Perform(path, step, 1, now, None))
    else:
        _perform(run, node, interrupted=False)


def _perform(run: RunState, node: StepNode, *, interrupted: bool) -> None:
    if isinstance(node, AgentNode):
        first_launch(run, node, interrupted=interrupted)
        return
    step = node.step
    view = None
    if isinstance(step.verb, StageCheck):
        view = run.view(node, validation_above(node))
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
    """Begin an attempt, once the step has what it holds meanwhile."""
    if wanted_by(node.step) is None:
        node.begin(run)
        return
    run.unclaimed[node.path] = node
    run.look_at_each()
    if run.rehearses and _was_entered(run, node):
        node.begin(run)
    else:
        node.asking = True
    if run.nodes.get(node.path) is node and node.phase is not Phase.ENDING:
        _request_claims(run)


def claim_answered(run: RunState, node: CompositeNode, report: cmd.Evaluated) -> None:
    """Go on with what the step holds now; or fail it, if it cannot have that."""
    waits_to_begin, node.asking = node.asking, False
    del run.unclaimed[node.path]
    if report.error is None:
        run.look_at_each()
        _request_claims(run)
        begin_postponed(run)
        if waits_to_begin:
            node.begin(run)
    elif waits_to_begin:
        fail_with(run, node, report.error)
    else:  # what is below it has begun in an earlier drive
        node.failure, node.overdue = failure_of(report.error), True
        run.push(Stop(node, str(report.error)))


def _was_entered(run: RunState, node: CompositeNode) -> bool:
    """True if an earlier drive was in this attempt of the step."""
    recorded = run.recorded
    return any(recorded.at(one).attempt == node.attempt for one in recorded.children(node.path))


def _request_claims(run: RunState) -> None:
    """Ask for what is wanted: of steps in one another the outer one is first."""
    for path, node in run.unclaimed.items():
        if path not in run.claimed and not waits_for_claim_above(run, node):
            wanted = wanted_by(node.step)
            assert wanted is not None
            run.claimed.add(path)
            run.emit(cmd.Claim(path, wanted))
