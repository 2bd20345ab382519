"""Replays what earlier drives recorded, by path."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from handrail.codec.unresolved import Unresolved
from handrail.core import commands as cmd
from handrail.core.changes import note_item_change, note_step_change
from handrail.core.ending import note_recorded_rollbacks
from handrail.core.launches import resume_launches
from handrail.core.nodes import MemberNode, Node, Phase, cleans_up
from handrail.core.retry import attempt_failed
from handrail.core.run_state import (
    AgentNode,
    Attempt,
    EndStopped,
    LeafNode,
    Retrace,
    RunState,
    StepNode,
    TellParent,
)
from handrail.model import events as ev
from handrail.model.dataclass import assembler
from handrail.model.paths import attempt_base
from handrail.model.results import StepResult, Usage, add_usage
from handrail.record.outputs import derive, resolve
from handrail.record.path_tree import PathState, replayed
from handrail.steps.fingerprint import matches
from handrail.steps.groups import Bodied
from handrail.steps.table import verb_of
from handrail.steps.verbs import Step
from handrail.steps.waits import Question

if TYPE_CHECKING:
    from handrail.core.items import Items

_step_replayed = assembler(ev.StepReplayed)


# -- steps -----------------------------------------------------------------------------------------


def replay_plain(run: RunState, parent: Node, step: Step[Any], path: str) -> StepResult[Any] | None:
    """Replay and return the recorded success of a simple leaf below a body: most of a replay.

    None if there is none, or if something needs a closer look; then ``replay`` decides.
    """
    # fast road of replaying.replay
    setting = run.setting
    record = run.recorded.get(path)
    end = None if record is None else record.end
    if record is None or end is None or end.status != "succeeded":
        return None
    if type(end.output) is Unresolved or parent.stop is not None or run.limits.max_steps:
        return None
    if run.stops_at and run.stops_at.get(parent.path) == record.index:
        return None
    codec = setting.codec
    if codec is not None and not matches(record.fingerprint, step, codec, setting.secrets):
        return None
    result = run.results[path] = replayed(end)
    if run.retraces:
        return result
    if record.index != parent.yields:
        run.record(ev.StepMoved(path, parent.yields))
    event = _step_replayed(setting.run_id, run.drive_seq, run.now, path, result, 0, None)
    run.emit(cmd.Tell(event))
    return result


def replay(run: RunState, node: StepNode) -> bool:
    """Replay what is recorded of this step; True if nothing is left to do for it."""
    # long road of replaying.replay_plain
    step, record = node.step, run.recorded.at(node.path)
    end = record.end
    is_kept = _is_answered(run, node) if end is None else end.success
    if is_kept and note_step_change(run, node.path, step):
        node.phase = Phase.HALTED
        return True
    if end is not None:
        _take_end(run, node, record, end)
        return True
    if record.verdict is False:
        run.skip(node)
        return True
    if record.started_at is None or (step.modifiers.when is not None and not record.verdict):
        return False  # it never began, or the verdict of its predicate is not known: ask again
    node.attempt = record.attempts
    node.phase = Phase.RUNNING
    node.started_at = record.started_at
    run.emit(cmd.Record(run.started(node, record.verdict), step.modifiers.once))
    if record.attempts:
        _restore_children(run, node)
        _retrace(run, node, lambda: _restore_results(run, node, record), items=node.kept_items())
    else:
        _continue_step(run, node, record)
    return True


def _is_answered(run: RunState, node: StepNode) -> bool:
    """Whether the step, which has no recorded end, is a question with a recorded answer."""
    return type(node.step.verb) is Question and node.path in run.answered


def _retrace(
    run: RunState,
    node: Node,
    then: Callable[[], None],
    body: tuple[Bodied, Any] | None = None,
    items: Items | None = None,
) -> None:
    """Have the code below a node retraced: of its end, or its finished attempts; then go on."""
    node.phase = Phase.SEARCHING
    run.push(Retrace(node, then, body, items))


def _take_end(run: RunState, node: StepNode, record: PathState, end: StepResult[Any]) -> None:
    step, path, recorded = node.step, node.path, run.recorded
    has_children = may_have_children(step, record)
    resolve(recorded, path, step, run.codec)
    if has_children:
        derive(recorded, path, run.setting.run_id)
    result = replayed(record.end or end)  # resolved and derived by now
    if record.index != node.index:
        run.record(ev.StepMoved(path, node.index))
    if has_children:
        run.tree.update(recorded.tree_below(path))
        note_recorded_rollbacks(run, path)
    run.emit(cmd.Tell(_event_of_replay(run, path, result)))
    if has_children:
        _retrace(run, node, lambda: _end_returns(run, node, result, has_children=True))
    else:
        _end_returns(run, node, result)


def _event_of_replay(run: RunState, path: str, end: StepResult[Any]) -> ev.Progress:
    """The event of a replayed end, with what the ended steps below it come to."""
    below = [result for _, result in run.recorded.below(path)]
    usage: Usage | None = None
    for result in below:
        if verb_of(result.step_type).launches:
            usage = add_usage(usage, result.usage)
    return _step_replayed("", 0, 0.0, path, end, len(below), usage)


def _end_returns(
    run: RunState, node: StepNode, result: StepResult[Any], *, has_children: bool = False
) -> None:
    """Give the parent a recorded end, as if it had just come."""
    if has_children:
        run.results.update(run.recorded.below(node.path))
    run.nodes.pop(node.path, None)
    keep_result(run, node, result)
    run.push(TellParent(node, result))


def keep_result(run: RunState, node: StepNode, result: StepResult[Any]) -> None:
    """Keep the result of a step whose end is recorded, and its rollback if it succeeded."""
    # long road of machine._step_completed
    run.results[node.path] = result
    run.drop_timers(node)
    rollback = node.step.modifiers.rollback
    if rollback is not None and result.status == "succeeded":
        entry = (node.path, rollback, run.view(node))
        if node.rollbacks is None:
            node.rollbacks = [entry]
        else:
            node.rollbacks.append(entry)


def may_have_children(step: Step[Any], record: PathState) -> bool:
    """Whether anything may be recorded below an ended step; its verb may have been another."""
    return not step.verb.leaf or step.modifiers.on_error is not None or bool(record.derived)


def _restore_children(run: RunState, node: StepNode) -> None:
    """Restore what the step's finished attempts left; the next one reaches its own children."""
    recorded, path = run.recorded, node.path
    resolve(recorded, path, node.step, run.codec)
    derive(recorded, path, run.setting.run_id)
    note_recorded_rollbacks(run, path, attempt_base(path, node.attempt + 1))
    children = recorded.left_by_attempts(path)
    if children:
        node.seen = run.tree[path] = dict.fromkeys(children)
    for child in children:
        run.tree.update(recorded.tree_below(child))


def _restore_results(run: RunState, node: StepNode, record: PathState) -> None:
    """Restore the results of the step's finished attempts; then continue, or end, the step."""
    recorded = run.recorded
    node.used = record.failed_usage
    for path in recorded.left_by_attempts(node.path):
        result = recorded.at(path).result
        if result is not None:
            run.results[path] = replayed(result)
        run.results.update(recorded.below(path))
    if node.stop is None:
        _continue_step(run, node, record)
    else:
        run.push(EndStopped(node))


def _continue_step(run: RunState, node: StepNode, record: PathState) -> None:
    """Continue a step that has no end from the last event recorded of it."""
    if isinstance(node, LeafNode):
        node.interrupted = record.interrupted
    if isinstance(node, AgentNode):
        node.guidance = record.guidance
    launched = run.recorded.launched.get(node.path, 0)
    if (
        isinstance(node, AgentNode)
        and launched > 0
        and record.end is None
        and resume_launches(run, node, record, launched)
    ):
        return
    request = run.requested(node)
    if request is not None and request.action == "retry":
        del run.steering_requests[node.path]
        run.push(Attempt(node))
        return
    due = record.retry_due
    if due is not None and not _next_attempt_began(run, node, record):
        if isinstance(node, LeafNode) and due > run.now:
            node.interrupted = False
        node.phase = Phase.PAUSED
        node.timer = run.wait(node, due)
    elif record.failure is not None and due is None:
        if _failed_while_stopped(run, node, record.failure):
            node.stop = run.recorded.cancel
        attempt_failed(run, record.failure)
    else:
        run.push(Attempt(node))


def _failed_while_stopped(run: RunState, node: StepNode, failure: ev.AttemptFailed) -> bool:
    """Whether the attempt was at work when the run was cancelled: the step ends as cancelled."""
    requested = run.recorded.ends_since if run.setting.unwinds else 0
    return 0 < requested < failure.seq and not cleans_up(node)


def _next_attempt_began(run: RunState, node: StepNode, record: PathState) -> bool:
    """Whether anything is recorded of the attempt after the finished ones.

    That attempt is entered, even if only to be stopped: it may have left rollbacks.
    """
    below = run.recorded.children(node.path)
    return any(run.recorded.at(child).attempt > record.attempts for child in below)


# -- members ---------------------------------------------------------------------------------------


def replay_member(run: RunState, member: MemberNode, verb: Bodied, item: Any, value: Any) -> bool:
    """Replay a member's recorded end; False if it has none."""
    recorded, path = run.recorded, member.path
    if note_item_change(run, path, item):
        member.phase = Phase.HALTED
        return True
    record = recorded.get(path)
    if record is None:
        return False
    if record.end is None:
        member.started_at = run.now if record.started_at is None else record.started_at
        return False
    derive(recorded, path, run.setting.run_id)
    if record.index != member.index:
        run.record(ev.StepMoved(path, member.index))
    run.tree.update(recorded.tree_below(path))
    note_recorded_rollbacks(run, path)
    end = record.end
    run.emit(cmd.Tell(_event_of_replay(run, path, end)))
    _retrace(run, member, lambda: _member_end_returns(run, member, end), (verb, value))
    return True


def _member_end_returns(run: RunState, member: MemberNode, end: StepResult[Any]) -> None:
    run.results.update(run.recorded.below(member.path))
    del run.nodes[member.path]
    run.push(TellParent(member, end))
