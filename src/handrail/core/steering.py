"""Steering of a live run: pause, complete, skip, retry, guide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from handrail.core import commands as cmd
from handrail.core.nodes import MemberNode, Node, Phase, cleans_up
from handrail.core.run_state import (
    AgentNode,
    Attempt,
    CompositeNode,
    MakeLaunch,
    Open,
    Pull,
    RunState,
    StepNode,
    Stop,
)
from handrail.errors import CannotSteer, InvalidInput, WrongUse
from handrail.model import events as ev
from handrail.model.paths import ancestors_of, is_within
from handrail.model.results import A_PERSON
from handrail.record.answers import given_output

_DONE: Mapping[str, str] = {"complete": "completed", "skip": "skipped", "retry": "begun again"}
_TRY_OTHERWISE = "fork(outputs=...) tries another output from there."
_DUE: Mapping[type, Phase] = {
    Open: Phase.STARTING,
    Attempt: Phase.PAUSED,
    MakeLaunch: Phase.PAUSED,
    Pull: Phase.RUNNING,
}  # fmt: skip
"""The phase that a node must still be in when its postponed action is pushed."""
_MOST = 5


def run_steered(run: RunState, event: ev.RunSteered) -> None:
    """Pause or unpause the run, end its drive, or steer a step or its agents."""
    match event.action:
        case "pause":
            pause(run, event)
        case "unpause":
            unpause(run)
        case "stop":
            run.emit(cmd.EndDrive(f"stopped by {event.by or A_PERSON}"))
        case "complete" | "skip" | "retry":
            _steer_step(run, event)
        case "guide":
            _guide(run, event)


def pause(run: RunState, by: ev.RunSteered) -> None:
    """Begin nothing more, except clean-up; attempts in flight and timers run to their ends."""
    run.paused = by
    run.update_begins_at_once()
    run.emit(cmd.PauseAdmission(on=True))


def unpause(run: RunState) -> None:
    """End a pause, and begin the actions that it postponed, in the order in which they came."""
    if run.paused is None:
        return
    run.paused = None
    run.update_begins_at_once()
    begin_postponed(run)
    run.emit(cmd.PauseAdmission(on=False))


def begin_postponed(run: RunState) -> None:
    """Push the postponed actions that are no longer blocked, in the order in which they came."""
    free = {path: it for path, it in run.postponed.items() if not _is_blocked(run, it.node)}
    for path, action in reversed(free.items()):
        del run.postponed[path]
        if run.nodes.get(path) is action.node and action.node.phase is _DUE[type(action)]:
            run.push(action)


def postpone_blocked(run: RunState, action: Open | Attempt | MakeLaunch | Pull) -> bool:
    """Postpone the action, and return True, if the run is paused or an enclosing step lacks claims.

    A rehearsal does not postpone an attempt of a composite: an earlier drive may have been in it.
    """
    node = action.node
    if not _is_blocked(run, node):
        return False
    if isinstance(action, (Attempt, MakeLaunch)):
        if run.rehearses and isinstance(node, CompositeNode):
            return False
        node.phase = Phase.PAUSED
    run.postponed[node.path] = action
    return True


def _is_blocked(run: RunState, node: StepNode) -> bool:
    """True if the run is paused (clean-up excepted), or an enclosing step waits for its claims."""
    if run.unclaimed and waits_for_claim_above(run, node):
        return True
    return run.paused is not None and not cleans_up(node.parent)


def waits_for_claim_above(run: RunState, node: Node) -> bool:
    """True if an enclosing step does not have its claims yet."""
    above = node.parent
    while above is not None:
        if above.path in run.unclaimed:
            return True
        above = above.parent
    return False


# -- a step ----------------------------------------------------------------------------------------


def check_steering(run: RunState, event: ev.RunSteered) -> ev.RunSteered:
    """Check that the step accepts the event; returns it, its output converted to the step's type.

    ``run`` is live, or rehearsed from its record. A step that has not begun is checked when it
    begins; only ``retry`` is refused for it.

    Raises:
        CannotSteer: the step does not accept it; the message says what it does accept.
        InvalidInput: the output is not of the step's type.
    """
    path, run_id = event.path, run.setting.run_id
    if event.action == "guide":
        _check_guide(run, event)
        return event
    node = run.nodes.get(path)
    for ended in (path, *ancestors_of(path, run.results)):
        if ended in run.results:
            raise CannotSteer(run_id, f"step {ended!r} has ended", _TRY_OTHERWISE)
    if isinstance(node, MemberNode) or (node is None and run.recorded.at(path).kind == "member"):
        below = f"Name a step in it. {_at_work(run)}"
        raise CannotSteer(run_id, f"{path!r} is a member of a group, and no step", below)
    if not isinstance(node, StepNode):
        if event.action == "retry":
            raise CannotSteer(run_id, f"step {path!r} has not begun", _at_work(run))
        return event
    if node.phase is Phase.ENDING or node.stop is not None:
        raise CannotSteer(run_id, f"step {path!r} is ending just now", _TRY_OTHERWISE)
    if event.action == "complete":
        return replace(event, value=given_output(path, node.step, event.value))
    if event.action == "skip" and not _may_be_skipped(node):
        why = f"step {path!r} has neither .default() nor .skip_on_error()"
        raise CannotSteer(run_id, why, "complete() ends it with an output that you give.")
    if event.action == "retry":
        _check_retry(run, node)
    return event


def _check_retry(run: RunState, node: StepNode) -> None:
    run_id, path = run.setting.run_id, node.path
    if node.children() or node.generator is not None:
        raise CannotSteer(run_id, f"step {path!r} holds other steps", _at_work(run))
    if node.step.modifiers.once:
        why = f"step {path!r} is one of .once(): it must not begin again"
        raise CannotSteer(run_id, why, "complete() ends it with an output that you give.")


def _at_work(run: RunState) -> str:
    at_work = [
        repr(path)
        for path, node in run.nodes.items()
        if isinstance(node, StepNode) and not node.children() and node.phase is not Phase.ENDING
    ]
    return f"At work: {', '.join(at_work[:_MOST])}." if at_work else "No step is at work."


# -- an agent --------------------------------------------------------------------------------------


def _guide(run: RunState, event: ev.RunSteered) -> None:
    """Break off the launches that the guidance is for; their replacements pass it to the agents."""
    at_work = {node.path: node for node in _agents_at_work(run)}
    run.guidance.on_steered(event, at_work)
    for path, node in at_work.items():
        if is_within(path, event.path) and not node.guided:
            node.guided = True
            run.emit(cmd.BreakOff(path))


def _agents_at_work(run: RunState) -> list[AgentNode]:
    return [
        node
        for node in run.nodes.values()
        if isinstance(node, AgentNode)
        and node.at_work is not None
        and node.stop is None
        and node.phase is Phase.RUNNING
        and node.step.verb.launches_agent()
    ]


def guidance_event(run_id: str, text: str, path: str | None, by: str | None) -> ev.RunSteered:
    """The event of a person's guidance for the agents at and below a path; None: for any agent.

    Raises:
        WrongUse: the text or path is no string, or the path is empty.
        CannotSteer: the text is empty.
    """
    if not isinstance(text, str):
        raise WrongUse(f"guide() takes the text that is said to the agent, got {text!r}")
    if not text.strip():
        why = "the text of the guidance is empty"
        raise CannotSteer(run_id, why, "Say what the agent is to do otherwise.")
    return ev.RunSteered("guide", "" if path is None else check_path(path), text, by)


def check_path(path: object) -> str:
    """The path, unchanged.

    Raises:
        WrongUse: it is no string, or empty.
    """
    if not isinstance(path, str) or not path:
        raise WrongUse(f"path= takes the path of a step, such as 'review/lint', got {path!r}")
    return path


def _check_guide(run: RunState, event: ev.RunSteered) -> None:
    path, run_id = event.path, run.setting.run_id
    if not path:
        return
    node = run.nodes.get(path)
    if node is None:
        if path in run.results or any(is_within(ended, path) for ended in run.results):
            raise CannotSteer(run_id, f"step {path!r} has ended", _guide_otherwise(run))
    elif isinstance(node, StepNode) and _holds_no_agent(node):
        raise CannotSteer(run_id, f"step {path!r} launches no agent", _guide_otherwise(run))
    elif node.phase is Phase.ENDING or node.stop is not None:
        raise CannotSteer(run_id, f"step {path!r} is ending just now", _guide_otherwise(run))


def _holds_no_agent(node: StepNode) -> bool:
    """True for a call, a program or a wait, unless its fallback is at work."""
    may_hold = node.children() or not (node.is_leaf or node.step.verb.waits)
    return not may_hold and not node.step.verb.launches_agent()


def _guide_otherwise(run: RunState) -> str:
    agents = [repr(node.path) for node in _agents_at_work(run)]
    if agents:
        return f"Agents at work: {', '.join(agents[:_MOST])}."
    return "No agent is at work: without a path it is given to the next one that is launched."


# -- a step, ended or begun again ------------------------------------------------------------------


def _steer_step(run: RunState, event: ev.RunSteered) -> None:
    """Stop the step to complete, skip or retry it; if it has not begun, keep the request."""
    node, path = run.nodes.get(event.path), event.path
    if path in run.results or (node is not None and node.phase is Phase.ENDING):
        return  # it has ended meanwhile
    if node is None:
        if event.action != "retry":
            run.steering_requests.setdefault(path, []).append(event)
            run.update_begins_at_once()
        return
    if not isinstance(node, StepNode) or node.stop is not None:
        return
    if not _is_possible(node, event):
        return
    if event.action == "complete":
        event = replace(event, value=given_output(path, node.step, event.value))
    run.steering_requests[path] = [event]
    run.push(Stop(node, f"{_DONE[event.action]} by {event.by or A_PERSON}"))


def end_as_requested(run: RunState, node: StepNode) -> bool:
    """End a step that a person completed or skipped before it began in this drive; True if so.

    If an earlier drive recorded steps below it, they are replayed first, and then the step is
    stopped: they may have rollbacks that run later.
    """
    requests, recorded = run.steering_requests.pop(node.path, None), run.recorded
    if requests is None or recorded.at(node.path).ended():
        return False
    request = _accepted(node, requests)
    if request is None:
        return False
    if request.action == "complete":
        request = replace(request, value=given_output(node.path, node.step, request.value))
    if request.action == "retry":  # the attempt on record is begun again
        run.steering_requests[node.path] = [request]
        return False
    if not recorded.children(node.path):
        run.end_as_steered(node, request)
        return True
    run.steering_requests[node.path] = [request]
    stop = Stop(node, f"{_DONE[request.action]} by {request.by or A_PERSON}")
    if run.rehearses:
        run.after_rehearsal.append(stop)
    else:
        run.push(stop)
    return False


def _accepted(node: StepNode, requests: list[ev.RunSteered]) -> ev.RunSteered | None:
    """The last output of the step's type, else the first skip, else a retry, if possible."""
    outputs = [request for request in reversed(requests) if request.action == "complete"]
    others = [request for request in requests if request.action != "complete"]
    others.sort(key=lambda request: request.action == "retry")
    return next((request for request in (*outputs, *others) if _is_possible(node, request)), None)


def _is_possible(node: StepNode, request: ev.RunSteered) -> bool:
    """True if the step accepts this; the output of ``complete`` must be of its type."""
    if request.action == "skip":
        return _may_be_skipped(node)
    if request.action == "retry":
        return not (node.children() or node.generator is not None or node.step.modifiers.once)
    try:
        given_output(node.path, node.step, request.value)
    except InvalidInput:
        return False
    return True


def _may_be_skipped(node: StepNode) -> bool:
    modifiers = node.step.modifiers
    return modifiers.default is not None or modifiers.skip_on_error
