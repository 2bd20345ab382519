"""Compares recorded steps and items with those of today's code: what "changed" means is told here.

``retracing`` goes through what has ended, and asks for each part of it. A change that nobody
accepted is kept in ``RunState.changes``, and ends the drive.
"""

from __future__ import annotations

from typing import Any

from handrail.core import commands as cmd
from handrail.core.run_state import RunState
from handrail.errors import ReplayMismatch, StepChange
from handrail.record.outputs import steps_within
from handrail.steps.fingerprint import item_digest
from handrail.steps.verbs import Step


def note_step_change(run: RunState, above: str, step: Step[Any]) -> bool:
    """Note where a step, or one it contains as data, has changed; True if the drive must end."""
    if run.codec is None or run.recorded.is_empty:
        return False
    recorded, must_end = run.recorded, False
    end = recorded.at(above).end
    made = 0 if end is None else end.attempts
    for path, inner in steps_within(above, step):
        if recorded.at(path).attempt > made and path.rpartition("/")[0] == above:
            continue  # the fallback's record; it has the name of a step that never began
        change = change_of(run, path, inner, recorded.fingerprint_of(path))
        if change is not None:
            must_end = note_change(run, change) or must_end
    return must_end


def change_of(run: RunState, path: str, step: Step[Any], was: str) -> StepChange | None:
    """How a step differs from its recorded fingerprint; None if it does not, or none is known."""
    if not was or run.matches(was, step):
        return None
    return StepChange(path, was, run.fingerprint(step))


def item_change(run: RunState, path: str, item: Any) -> StepChange | None:
    """How a member's item differs from the recorded one; None if it does not."""
    was, codec, secrets = run.recorded.item_of(path), run.codec, run.setting.secrets
    if not was or codec is None:
        return None
    now = item_digest(item, codec, secrets)
    return None if was == now else StepChange(path, f"item {was}", f"item {now}")


def note_undone_step_change(run: RunState, path: str, step: Step[Any]) -> bool:
    """Note if a step that runs again in a fork, since it was undone, has changed: what followed it
    runs again, too. True if the drive must end.
    """
    change = change_of(run, path, step, run.recorded.undone_fingerprint(path))
    return change is not None and note_change(run, change)


def note_item_change(run: RunState, path: str, item: Any) -> bool:
    """Note a member whose item has changed; True if the drive must end."""
    change = item_change(run, path, item)
    return change is not None and note_change(run, change)


def note_change(run: RunState, change: StepChange) -> bool:
    """Keep a change that nobody accepted; True if the drive must end now, at this change.

    A rehearsal continues, in order to collect all changes. A run that only unwinds accepts a change
    as long as the step is of the same kind.
    """
    same_kind = change.was.partition(" ")[0] == change.now.partition(" ")[0]
    if run.recorded.is_reused(change.path) or (run.recorded.unwinds and same_kind):
        return False
    if change.path not in run.changed:
        if not run.changes:
            run.passed = frozenset((*run.results, *run.nodes, *run.tree))
        run.changes.append(change)
        run.changed.add(change.path)
        if not run.rehearses:  # the first change ends the drive
            run.emit(cmd.Changed(change.path))
    return not run.rehearses


def mismatch_of(run: RunState, *, late: bool = False) -> ReplayMismatch:
    """The error of a run whose changes nobody accepted; ``late`` as in ``ReplayMismatch``."""
    return ReplayMismatch(run.setting.run_id, run.changes, late=late, passed=run.passed)
