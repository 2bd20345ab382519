"""What a history says of its steps, as far as it still counts: when each ended, and how.

What a later drive dropped does not count; of what comes more than once the last does.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from handrail.model import events as ev

ENDS = (ev.StepCompleted, ev.MemberCompleted)
_OUTCOMES = (*ENDS, ev.AttemptFailed)


def counting(history: Sequence[ev.Event]) -> Sequence[ev.Event]:
    """All but the ends of steps and members, and their failed attempts, that earlier resumes
    dropped: what failed or was cancelled then, and runs again since, ended nothing.
    """
    dropped_at: dict[str, int] = {}
    for index, event in enumerate(history):
        if isinstance(event, ev.RunResumed):
            dropped_at.update(dict.fromkeys(event.superseded, index))
    if not dropped_at:
        return history
    return [
        event
        for index, event in enumerate(history)
        if not (isinstance(event, _OUTCOMES) and dropped_at.get(event.path, -1) > index)
    ]


def begun(history: Iterable[ev.Event]) -> set[str]:
    """The paths of all steps and members that ever began."""
    kinds = (ev.StepStarted, ev.MemberStarted)
    return {event.path for event in history if isinstance(event, kinds)}


def begun_at(history: Iterable[ev.Event]) -> dict[str, int]:
    """When each step began that counts, for the first time: later drives may enter it again, and
    one that goes on cancelling the run drops no more than ends.
    """
    found: dict[str, int] = {}
    unwinding = False
    for index, event in enumerate(history):
        if isinstance(event, ev.StepStarted):
            found.setdefault(event.path, index)
        elif isinstance(event, ev.RunResumed) and not unwinding:
            _drop(found, event.superseded)
        elif isinstance(event, (ev.CancelRequested, ev.WorkflowCompleted)):
            unwinding = isinstance(event, ev.CancelRequested)
    return found


def cleaning_up(history: Iterable[ev.Event]) -> dict[str, int]:
    """The steps that bodies yielded while they were cancelled, and when they began."""
    found: dict[str, int] = {}
    for index, event in enumerate(history):
        if isinstance(event, ev.StepStarted) and event.cleanup:
            found[event.path] = index
        elif isinstance(event, ev.RunResumed):
            _drop(found, event.superseded)
    return found


def ended_at(history: Iterable[ev.Event]) -> dict[str, int]:
    """When each step and member ended, for the last time."""
    return {event.path: index for index, event in enumerate(history) if isinstance(event, ENDS)}


def cancelled(history: Iterable[ev.Event]) -> dict[str, int]:
    """What ended as cancelled, and when."""
    return {
        event.path: index
        for index, event in enumerate(history)
        if isinstance(event, ENDS) and event.status == "cancelled"
    }


def failed(history: Iterable[ev.Event]) -> dict[str, int]:
    """What ended as failed, and when."""
    return {
        event.path: index
        for index, event in enumerate(history)
        if isinstance(event, ENDS) and event.status == "failed"
    }


def undone(history: Iterable[ev.Event]) -> dict[str, int]:
    """The steps whose rollback ran, in any drive, and that did not run again since; and when."""
    found: dict[str, int] = {}
    for index, event in enumerate(history):
        if isinstance(event, ev.RollbackCompleted):
            found[event.path] = index
        elif isinstance(event, ev.RunResumed):
            _drop(found, event.superseded)
    return found


def settled(history: Iterable[ev.Event], causes: Container[str] = ()) -> dict[str, int]:
    """What has an end that the run went on from, and when it came to it: a success, or a failure
    that was handled. ``causes`` are those that were not.
    """
    found: dict[str, int] = {}
    for index, event in enumerate(history):
        if isinstance(event, ENDS):
            if event.status == "cancelled":
                found.pop(event.path, None)
            elif event.path not in causes:
                found[event.path] = index
        elif isinstance(event, ev.RunResumed):
            _drop(found, event.superseded)
    return found


def _drop(found: dict[str, int], paths: Iterable[str]) -> None:
    for path in paths:
        found.pop(path, None)
