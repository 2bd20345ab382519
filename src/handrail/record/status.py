"""A run's status and what it waits for, by its events or its entry in a journal's list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from handrail.model import events as ev
from handrail.model.events import Event
from handrail.model.results import A_PERSON, A_SENDER, OpenGate, RunStatus, WaitsFor
from handrail.ports.journal import Holder, RunInfo

ShownStatus: TypeAlias = Literal[RunStatus, "running", "paused", "dead", "damaged"]
"""``dead``: it has no end, and no process drives it. ``damaged``: its record is not as written.
``paused``: a person lets none of its steps begin, whether a process drives it or not.
"""


def run_info(run_id: str, events: Sequence[Event], holder: Holder | None, now: float) -> RunInfo:
    """A run as a journal lists it, from all of its events."""
    first, last = events[0], events[-1]
    started = first if isinstance(first, ev.WorkflowStarted) else ev.WorkflowStarted("")
    return RunInfo(
        run_id,
        started.workflow_name,
        run_status(events),
        first.at,
        len(events),
        last.at,
        dict(started.labels),
        holder,
        waits_for=run_waits(events, now),
        forked_from=started.forked_from,
    )


def drive_end(events: Sequence[Event]) -> ev.DriveEnded | None:
    """The event that ended the last drive; None while that has no end."""
    for event in reversed(events):
        if isinstance(event, ev.DriveEnded):
            return event
        if isinstance(event, ev.DriveBegan):
            return None  # others are answers and signals that arrived after the drive's last event
    return None


def run_status(events: Sequence[Event]) -> RunStatus | None:
    """A run's status as its record says; None while a drive has no end."""
    match drive_end(events):
        case ev.RunSuspended():
            return "suspended"
        case ev.WorkflowCompleted() as end:
            return end.status
        case None:
            return None


def shown_status(info: RunInfo) -> ShownStatus:
    """A run's status as it is shown, by its entry in the journal's list of runs."""
    if info.damaged:
        return "damaged"
    if any(wait.kind == "unpause" for wait in info.waits_for):
        return "paused"
    if info.holder is not None:
        return "running"
    return info.status or "dead"


def run_waits(events: Sequence[Event], now: float) -> tuple[WaitsFor, ...]:
    """What a run waits for: as its suspension says, or by its last event while it has no end."""
    match drive_end(events):
        case ev.RunSuspended() as end:
            return end.waits_for
        case ev.WorkflowCompleted():
            return ()
        case None:
            return waits_by_last_event(events[-1], now) if events else ()


def waits_by_last_event(last: Event, now: float) -> tuple[WaitsFor, ...]:
    """What a run without an end waits for, by its last event; empty if that wait is over. Had the
    run not waited, another event would have followed.
    """
    wait = wait_begun_by(last)
    is_over = wait is None or (wait.until is not None and wait.until <= now)
    return () if wait is None or is_over else (wait,)


_WHAT_OF_REASON = {"sleep": "sleep", "retry": "retry", "backoff": "retry", "cap": "usage_cap"}
"""Reasons of timers that hold up a step, and what ``WaitsFor.what`` calls them."""


def wait_begun_by(event: Event) -> WaitsFor | None:
    """The wait that this event begins, or None."""
    match event:
        case ev.GateOpened():
            return wait_for_answer(event.gate)
        case ev.StepStarted() if event.signal and event.verdict is not False:
            return WaitsFor("signal", event.path, event.signal, A_SENDER)
        case ev.LadderStep(path) if event.parked:
            return WaitsFor("person", path, event.error, A_PERSON)
        case ev.LadderStep(path) if event.due > event.at:
            return WaitsFor("time", path, event.kind, "", event.due)
        case ev.TimerSet(path) if event.reason in _WHAT_OF_REASON:
            return WaitsFor("time", path, _WHAT_OF_REASON[event.reason], "", event.due)
        case ev.ClaimWaiting(path):
            return WaitsFor("claim", path, event.what, event.holder)
        case _:
            return None


def wait_for_answer(gate: OpenGate) -> WaitsFor:
    """The wait that a question is."""
    return WaitsFor("answer", gate.path, gate.question, A_PERSON, gate.deadline)
