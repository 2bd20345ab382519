"""How a run ends: its verdict, its rollbacks in reverse, its result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from handrail.core import commands as cmd
from handrail.core.failures import body_error_text, failure_of_body
from handrail.core.generators import close
from handrail.core.nodes import Node, Phase, nearest_deadline
from handrail.core.run_state import (
    AgentNode,
    RunState,
    StepNode,
    Stop,
)
from handrail.core.setting import Ending
from handrail.errors import HandrailError, LimitExceeded, RunCancelled, WorkflowError
from handrail.later import later
from handrail.model import events as ev
from handrail.model.described import text_of
from handrail.model.results import (
    A_PERSON,
    A_SENDER,
    RollbackError,
    WaitsFor,
    WorkflowResult,
    qualified,
)
from handrail.record.results import workflow_result
from handrail.steps.verbs import Step

if TYPE_CHECKING:
    from handrail.core import steering
    from handrail.record import outputs
    from handrail.steps import declared
else:
    later(globals(), "core.steering record.outputs steps.declared")


_SOFT = frozenset({"timeout_s"})
"""The limits after which bodies may still clean up."""

_COMMITTED = (
    "{what} had failed before, and its rollbacks had begun when its process ended: now all of "
    "them have run. Resume {it} again to try what is left"
)
MOST_TIMES = 20
"""How many steps that wait for a time are recorded at most, the earliest due first."""
_LOST = "it was not undone: the code has no rollback for it any more, or does not come to it"


# -- rollbacks -------------------------------------------------------------------------------------


def undo(run: RunState, node: Node, then: Callable[[], None]) -> None:
    """Run the rollbacks registered below the node, last first, then call ``then``.

    Those that an earlier drive completed are not run again; and none while code is retraced.
    """
    recorded = run.recorded
    if run.retraces:
        then()
        return
    while node.rollbacks:
        done = recorded.at(node.rollbacks[-1][0]).undone
        if done is None:
            break
        node.rollbacks.pop()
        _note_rollback(run, done)
        if recorded.cancel is not None and node is not run.root:
            node.stop = node.stop or recorded.cancel  # the cancellation came between them
    if not node.rollbacks:
        then()
        return
    node.phase = Phase.UNDOING
    path, rollback, view = node.rollbacks.pop()
    run.undoing[path] = (node, then)
    run.undone.add(path)
    run.record(ev.RollbackStarted(path))
    run.emit(cmd.Undo(path, rollback, view))


def rollback_completed(run: RunState, event: ev.RollbackCompleted) -> None:
    """Keep the rollback's error, if any, and run the next: a failed rollback stops no other."""
    node, then = run.undoing.pop(event.path)
    _note_rollback(run, event)
    undo(run, node, then)


def _note_rollback(run: RunState, event: ev.RollbackCompleted) -> None:
    if event.error is not None:
        error = RollbackError(event.path, event.error, event.error_type or "builtins.Exception")
        run.rollback_errors.append(error)


def note_recorded_rollbacks(run: RunState, path: str, but_below: str | None = None) -> None:
    """Keep the errors of rollbacks that earlier drives ran below a path, in the order they ended.

    ``but_below``: a path below which they are left out.
    """
    if not run.recorded.has_rollbacks:
        return
    done = [
        run.recorded.at(known).undone
        for known in run.recorded.paths_below(path)
        if but_below is None or not known.startswith(f"{but_below}/")
    ]
    for event in sorted((one for one in done if one is not None), key=lambda one: one.seq):
        _note_rollback(run, event)


def compensation_error(run: RunState, node: Node) -> WorkflowError | None:
    """The error of a node that an earlier drive had begun to roll back; None if none had.

    Such a run, or attempt of a sub-workflow or group, fails even if today's code would succeed.
    """
    if node.path not in run.recorded.undoing:
        return None
    if node is run.root:
        return WorkflowError(_COMMITTED.format(what="the run", it="it"))
    if node.attempt > run.recorded.at(node.path).attempts + 1:
        return None  # the attempt that was being undone is over
    return WorkflowError(_COMMITTED.format(what=f"step {node.path!r}", it="the run"))


# -- the verdict -----------------------------------------------------------------------------------


def cancel_requested(run: RunState, event: ev.CancelRequested) -> None:
    """Unwind the run as cancelled, unless its end is decided already; a pause ends."""
    steering.unpause(run)
    run.timers_frozen = False
    if run.ending is None and run.root.phase is not Phase.UNDOING:
        run.ending = Ending("cancelled", event.reason)
        run.push(Stop(run.root, event.reason))


def hit_limit(run: RunState, name: str, value: float, path: str, why: str = "") -> None:
    """End the run as failed, naming the limit."""
    error = LimitExceeded(name, value, why or (f"at step {path!r}" if path else ""))
    run.ending = run.ending or _cancelled_before(run)
    if run.ending is None:  # else it cleans up: the verdict stays, the clean-up ends
        run.record(ev.LimitReached(name, value, path))
        kind = qualified(LimitExceeded)
        run.ending = Ending("failed", str(error), kind, None, path or None)
    run.stop_root(str(error), hard=name not in _SOFT)


def was_hard(run: RunState, node: Node) -> bool:
    """True if the earlier drive that stopped this node was closing bodies, not unwinding them."""
    recorded = run.recorded
    if recorded.limit is not None:
        return recorded.limit.name not in _SOFT
    # stopped by neither a limit nor a cancellation: by a mistake
    return node is run.root and recorded.cancel is None and not recorded.is_empty


def note_unwinding(run: RunState, node: Node, error: BaseException) -> None:
    """Add what a body raised while it unwound to its stop reason; a cancellation adds nothing."""
    if isinstance(error, (RunCancelled, GeneratorExit)):
        return
    reason = (node.stop or "cancelled").rstrip(".")
    node.stop = f"{reason}; while it unwound: {body_error_text(error)}"
    if node is run.root and run.ending is not None:
        run.ending = replace(run.ending, error=node.stop)


def root_ended(run: RunState, value: Any, error: BaseException | None) -> None:
    """Decide the run's ending if it is open; run the rollbacks unless the run succeeded."""
    root = run.root
    if isinstance(value, Step):
        error = WorkflowError(
            f"the workflow returned {value!r}, a step that never ran. "
            f"Write `return (yield from step(...)...)`."
        )
    if error is None:
        error = compensation_error(run, root)
    if run.ending is None and not run.recorded.is_empty:
        stop = root.stop
        run.ending = _cancelled_before(run) if stop is None else _recorded_ending(run, stop)
    if run.ending is None:
        definition = run.definition
        if error is None:
            where = f"workflow {definition.name!r}"
            error = run.unrecordable(value, where, lambda: (declared.returned_by(definition),))
        run.ending = _ending_of(error)
        run.value = value if error is None else None
    run.drop_timer(run.run_deadline)
    if run.ending.status == "succeeded":
        _complete(run)
    else:
        undo(run, root, lambda: _all_undone(run))


def _cancelled_before(run: RunState) -> Ending | None:
    """The ending of a run that an earlier drive was rolling back as cancelled; else None."""
    reason = run.recorded.undoing.get("")
    return None if reason is None else Ending("cancelled", reason)


def _recorded_ending(run: RunState, stop: str) -> Ending:
    """The ending of a run that an earlier drive stopped: by a limit, cancelled, or by a mistake.

    Of a mistake only the text is known.
    """
    limit = run.recorded.limit
    if limit is not None:
        return Ending("failed", stop, qualified(LimitExceeded), None, limit.path or None)
    if run.recorded.cancel is not None:
        return Ending("cancelled", stop)
    return Ending("failed", stop, qualified(HandrailError))


def _ending_of(error: BaseException | None) -> Ending:
    if error is None:
        return Ending("succeeded")
    if isinstance(error, RunCancelled):
        return Ending("cancelled", str(error))
    failure = failure_of_body(error)
    return Ending("failed", failure.error, failure.kind, failure.traceback, failure.cause or None)


def _all_undone(run: RunState) -> None:
    """Add an error for each recorded step whose rollback is no longer in the code; end the run."""
    error_type = qualified(WorkflowError)
    run.rollback_errors += [
        RollbackError(path, _LOST, error_type)
        for path in sorted(run.recorded.to_undo(""))
        if path not in run.undone
    ]
    _complete(run)


def _complete(run: RunState) -> None:
    ending = run.ending
    assert ending is not None
    run.root.phase = Phase.ENDING
    run.record(
        ev.WorkflowCompleted(
            ending.status,
            run.value,
            ending.error,
            ending.error_type,
            ending.traceback,
            ending.failed_step,
            tuple(run.rollback_errors),
            max(0.0, (run.now - run.started_at) * 1000),
            tuple(path for path in run.recorded.ended_paths() if path not in run.results),
        )
    )


def close_run(run: RunState, report: cmd.CloseRun) -> None:
    """Suspend: close generators without rollbacks, and drop the steps that they yield then."""
    notes = close_bodies(run)
    for node in run.nodes.values():
        if isinstance(node, StepNode):
            node.put_in_order(run)
    run.record(suspension(run, report.reason, notes))


def suspension(run: RunState, reason: str, notes: Sequence[str] = ()) -> ev.RunSuspended:
    """The event that suspends the run as it is, with what it waits for."""
    gates, signals = tuple(run.gates.values()), tuple(sorted(run.listeners))
    waits = tuple(open_waits(run))
    reason = "; ".join(dict.fromkeys(run.parked.values())) or reason
    if run.paused is not None and reason == "waiting":
        reason = "paused"
    return ev.RunSuspended(gates, signals, reason, tuple(notes), waits)


def open_waits(run: RunState) -> Iterator[WaitsFor]:
    """What the run waits for: people and senders first, then the timers that are due first."""
    if run.paused is not None:
        yield WaitsFor("unpause", "", run.paused.by or A_PERSON, A_PERSON)
    for path, advice in run.parked.items():
        yield WaitsFor("person", path, advice, A_PERSON)
    for path, gate in run.gates.items():
        yield WaitsFor("answer", path, gate.question, A_PERSON, gate.deadline)
    for name, listeners in sorted(run.listeners.items()):
        for path, node in listeners.items():
            yield WaitsFor("signal", path, name, A_SENDER, nearest_deadline(node, run.timers))
    timers = sorted(run.timers.items(), key=lambda item: item[1][1])
    of_steps = (
        WaitsFor("time", node.path, _why(node), "", due)
        for token, (node, due) in timers
        if isinstance(node, StepNode) and token == node.timer and node.path not in run.gates
    )
    yield from islice(of_steps, MOST_TIMES)


def _why(node: StepNode) -> str:
    if isinstance(node, AgentNode) and node.pending is not None and node.rungs:
        return node.rungs[-1].kind
    return "retry" if node.phase is Phase.PAUSED else node.step.verb.kind


def close_bodies(run: RunState) -> list[str]:
    """Close all generators, innermost first; returns what they raised or yielded, as text."""
    notes: list[str] = []
    for node in (*reversed(list(run.nodes.values())), run.root):
        error = close(node.generator) if node.generator is not None else None
        if error is not None:
            notes.append(f"{node.path or run.definition.name}: {text_of(error)}")
    for search in run.searches.values():
        search.close()
    run.searches.clear()
    return notes


# -- the result ------------------------------------------------------------------------------------


def drive_ended(run: RunState, end: ev.WorkflowCompleted | ev.RunSuspended) -> None:
    """Build the run's result, now that the end of its drive is in the journal."""
    run.finished = True
    tree: outputs.Tree = run.tree
    results: outputs.Results = run.results
    run_id = run.setting.run_id
    if isinstance(end, ev.WorkflowCompleted) and end.orphaned and end.status != "succeeded":
        tree = outputs.whole(run.recorded, tree, results)
        results = outputs.with_recorded(run.recorded, tree, results, run_id)
    duration_ms, name = max(0.0, (end.at - run.started_at) * 1000), run.definition.name
    result: WorkflowResult[Any] = workflow_result(
        name, run_id, end, tree, results, duration_ms=duration_ms, incidents=run.incidents
    )
    run.emit(cmd.Finish(result))


def child_result(run: RunState, node: Node, name: str, value: Any) -> WorkflowResult[Any]:
    """The result of a child workflow that succeeded; it shares the run's id."""
    end = ev.WorkflowCompleted("succeeded", value, at=run.now)
    duration_ms = max(0.0, (run.now - node.started_at) * 1000)
    return workflow_result(
        name,
        run.setting.run_id,
        end,
        run.tree,
        run.results,
        duration_ms=duration_ms,
        root=node.path,
    )
