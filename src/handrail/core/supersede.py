"""Which records no longer count when a run that did not succeed is resumed.

A run that was killed or suspended has no end, so nothing of it is superseded: what has an end is
kept, what has none is entered again. A run that failed or was cancelled has ended, and resuming it
is to try again what ended it:

recorded                                    failed       cancelled    its own rollback ran
a step that succeeded, skipped, defaulted   kept         kept         again
a failure that the workflow went on from    kept (it is raised again)
the failure that ended the run              again, and the failures below it that it passed on
a validation that ended the run             again, all its rounds
a step that was cancelled                   again        again
a step yielded after that failure           again        kept         again
whatever encloses a step that runs again    entered again
an answer                                   kept, unless its step is superseded
a signal                                    kept; taken again if its step is superseded

The whole table, for users and with all other records, begins docs/explanation/replay.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from handrail.model import events as ev


def superseded(history: Sequence[ev.Event]) -> tuple[str, ...]:
    """The paths whose own records a resume drops; children that go too are listed themselves."""
    last = history[-1] if history else None
    if not isinstance(last, ev.WorkflowCompleted) or last.status == "succeeded":
        return ()
    drive = _last_drive(history)
    own, whole = _cancelled(history), _undone(drive)
    if last.failed_step is not None:
        causes = _causes(history, last.failed_step)
        validations = causes & _validations(history)
        own |= causes
        whole |= validations | _begun_after(drive, _end_of(drive, last.failed_step))
    return expanded(own, whole, history)


def expanded(
    own: Iterable[str], whole: Iterable[str], history: Sequence[ev.Event]
) -> tuple[str, ...]:
    """``own`` paths, ``whole`` ones with all that is below them, and whatever encloses any of them:
    a composite whose child runs again has not ended either.
    """
    known = {
        event.path for event in history if isinstance(event, (ev.StepStarted, ev.MemberStarted))
    }
    roots = tuple(whole)
    prefixes = tuple(prefix for root in roots for prefix in (f"{root}/", f"{root}~"))
    dropped = {*own, *roots}
    dropped.update(path for path in known if path.startswith(prefixes))
    for path in tuple(dropped):
        above = _parent(path)
        while above:
            if above in known:
                dropped.add(above)
            above = _parent(above)
    return tuple(sorted(dropped))


def _validations(history: Iterable[ev.Event]) -> set[str]:
    """Validations begin anew as a whole: their rounds count from one again."""
    return {
        event.path
        for event in history
        if isinstance(event, ev.StepStarted) and event.step_type == "validate"
    }


def _last_drive(history: Sequence[ev.Event]) -> Sequence[ev.Event]:
    for index in range(len(history) - 1, -1, -1):
        if isinstance(history[index], (ev.RunResumed, ev.WorkflowStarted)):
            return history[index:]
    return history


def _undone(drive: Iterable[ev.Event]) -> set[str]:
    return {event.path for event in drive if isinstance(event, ev.RollbackCompleted)}


def _cancelled(history: Iterable[ev.Event]) -> set[str]:
    return {
        event.path
        for event in history
        if isinstance(event, (ev.StepCompleted, ev.MemberCompleted)) and event.status == "cancelled"
    }


def _end_of(drive: Sequence[ev.Event], path: str) -> int:
    for index, event in enumerate(drive):
        if isinstance(event, ev.StepCompleted) and event.path == path:
            return index
    return len(drive)


def _begun_after(drive: Sequence[ev.Event], index: int) -> set[str]:
    return {event.path for event in drive[index + 1 :] if isinstance(event, ev.StepStarted)}


def _causes(history: Sequence[ev.Event], path: str) -> set[str]:
    """The failed step and, below it, the failures that it passed on.

    In a body that handled one failure and ended by another, the last one is the cause.
    """
    failed = {
        event.path: index
        for index, event in enumerate(history)
        if isinstance(event, (ev.StepCompleted, ev.MemberCompleted)) and event.status == "failed"
    }
    bodies = {event.path for event in history if isinstance(event, ev.SubworkflowStarted)}
    bodies |= {event.path for event in history if isinstance(event, ev.MemberStarted)}
    causes, stack = set[str](), [path]
    while stack:
        here = stack.pop()
        causes.add(here)
        below = [known for known in failed if _parent(known) == here and known not in causes]
        if here in bodies and below:
            below = [max(below, key=failed.__getitem__)]
        stack.extend(below)
    return causes


def _parent(path: str) -> str:
    parent = path.rpartition("/")[0]
    head, tilde, digits = parent.rpartition("~")
    return head if tilde and digits.isdigit() else parent
