"""A person's hand on a run that is at work: nothing begins while it is paused."""

from __future__ import annotations

from handrail.core import commands as cmd
from handrail.core.nodes import Phase, cleans_up
from handrail.core.run_state import Attempt, CompositeNode, Open, RunState
from handrail.model import events as ev
from handrail.model.results import A_PERSON


def run_steered(run: RunState, event: ev.RunSteered) -> None:
    """Pause the run, let it go on, or end its drive."""
    match event.action:
        case "pause":
            pause(run, event)
        case "unpause":
            unpause(run)
        case "stop":
            run.emit(cmd.EndDrive(f"stopped by {event.by or A_PERSON}"))


def pause(run: RunState, by: ev.RunSteered) -> None:
    """Begin nothing any more; what is at work goes on to its end, and so do timers."""
    run.paused = by
    run.begins_at_once = False
    run.emit(cmd.Hold(on=True))


def unpause(run: RunState) -> None:
    """Begin what was held back meanwhile, in the order in which it came."""
    if run.paused is None:
        return
    run.paused = None
    run.begins_at_once = run.recorded.is_empty and not run.bounds_steps
    for action in reversed(run.held_back.values()):
        due = Phase.STARTING if isinstance(action, Open) else Phase.PAUSED
        if run.nodes.get(action.node.path) is action.node and action.node.phase is due:
            run.push(action)
    run.held_back.clear()
    run.emit(cmd.Hold(on=False))


def hold_back(run: RunState, action: Open | Attempt) -> bool:
    """True if the run is paused, and this is to begin when it is not; not what cleans up, nor what
    is entered again because an earlier drive was in it.
    """
    node = action.node
    if run.paused is None or cleans_up(node.parent):
        return False
    if isinstance(action, Attempt):
        if run.rehearses and isinstance(node, CompositeNode):
            return False
        node.phase = Phase.PAUSED
    run.held_back[node.path] = action
    return True
