"""The state of a run, whichever process drives it: read from its journal, for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from handrail.errors import RunNotFound
from handrail.model import events as ev
from handrail.model.dataclass import dataclass
from handrail.model.results import WaitsFor
from handrail.ports.journal import Journal, RunInfo
from handrail.record.inbox import stuck_in, unread, with_messages
from handrail.record.run_record import Recorded
from handrail.record.status import ShownStatus, shown_status
from handrail.record.view import RunView, StepView, plain, view_of
from handrail.typed.jsonsafe import json_safe


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run as read from a journal: its entry in the list of runs, its history, and its view."""

    info: RunInfo
    history: Sequence[ev.Event]
    view: RunView


def read_run(journal: Journal, info: RunInfo, now: float) -> RecordedRun:
    """Read a run from its journal, at this time; without secrets, so that it can be shown.

    Raises:
        RunNotFound: the journal does not have it any more.
    """
    info = with_messages(journal, info)
    history = journal.events(info.run_id, secrets={})
    if not history and not info.damaged:
        raise RunNotFound(info.run_id, [info.run_id for info in journal.runs()])
    return recorded_run(journal, info, history, Recorded(history), now)


def recorded_run(
    journal: Journal, info: RunInfo, history: Sequence[ev.Event], recorded: Recorded, now: float
) -> RecordedRun:
    """A run as it stands now, with the messages that it has not read."""
    inbox = unread(journal, recorded) if history else ()
    alive, stuck = info.holder is not None, stuck_in(info)
    view = view_of(recorded, inbox, alive=alive, now=now, stuck=stuck)
    return RecordedRun(info, history, view)


@dataclass(frozen=True, slots=True)
class RunState:
    """The state of a run: its ``status``, its steps so far, what it waits for, how it ended.

    ``status`` is ``running``, ``paused``, ``suspended``, ``dead`` (it has no end, and no process
    drives it), ``damaged``, or how it ended: ``succeeded``, ``failed``, ``cancelled``. In ``steps``
    parents come before children; each has ``path``, ``status`` and ``output``.
    ``value`` is what the workflow returned. Times are unix seconds.
    """

    run_id: str
    workflow_name: str
    status: ShownStatus
    steps: tuple[StepView, ...]
    waits_for: tuple[WaitsFor, ...]
    value: Any
    error: str | None
    started_at: float
    updated_at: float

    def step(self, path: str) -> StepView:
        """The step at a path.

        Raises:
            KeyError: the run has not reached one.
        """
        for step in self.steps:
            if step.path == path:
                return step
        raise KeyError(f"no step {path!r} so far; there are: {[step.path for step in self.steps]}")

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON-safe data."""
        return {
            "run_id": self.run_id,
            "workflow_name": self.workflow_name,
            "status": self.status,
            "steps": [step.to_dict() for step in self.steps],
            "waits_for": json_safe(self.waits_for),
            "value": json_safe(plain(self.value)),
            "error": self.error,
            "started_at": self.started_at,
            "updated_at": self.updated_at,
        }


def info_of(journal: Journal, run_id: str) -> RunInfo:
    """A run's entry in the journal's list of runs.

    Raises:
        RunNotFound: there is no such run.
    """
    infos = journal.runs()
    for info in infos:
        if info.run_id == run_id:
            return info
    raise RunNotFound(run_id, [info.run_id for info in infos])


def run_state_of(journal: Journal, info: RunInfo, now: float) -> RunState:
    """The state of a run, from its entry in the list of runs and its record."""
    recorded = read_run(journal, info, now)
    return state_of(recorded.info, recorded.view)


def state_of(info: RunInfo, view: RunView) -> RunState:
    """The state of a run, from its entry in the list of runs and its view."""
    end = view.end
    return RunState(
        info.run_id,
        info.workflow_name,
        shown_status(info) if end is None or info.damaged else end.status,
        view.steps,
        view.waits_for,
        None if end is None else end.value,
        info.damaged or (None if end is None else end.error),
        info.started_at,
        info.updated_at,
    )
