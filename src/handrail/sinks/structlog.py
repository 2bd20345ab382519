"""Events as log entries of structlog."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any, cast, get_args

from handrail.model import events as ev
from handrail.model.events import Event, Progress
from handrail.model.results import StepResult
from handrail.secrets.masking import Mask
from handrail.sinks.event_words import severity_of
from handrail.sinks.masks import Masks, mask_data
from handrail.typed.field_words import FOR_A_REPLAY, USER_VALUES
from handrail.typed.jsonsafe import Json, json_safe

_LEFT_OUT = USER_VALUES | FOR_A_REPLAY
_OF_RESULTS = ("status", "step_type", "duration_ms", "attempts", "error", "error_type", "usage")
_PROGRESS = frozenset(get_args(Progress))
_WORD_START = re.compile(r"(?<!^)(?=[A-Z])")


class StructlogSink:
    """Logs every event under its name in snake case, with its fields and ``workflow`` bound.

    ``StepCompleted`` is ``step_completed``. Failures are errors; failed attempts, defaults,
    cancellations and whatever else a run got over are warnings; progress notices debug; the rest
    info. Values that users pass around (inputs, outputs, payloads) are not logged. ``logger``: a
    structlog logger, by default ``structlog.get_logger("handrail")``.
    """

    def __init__(self, logger: Any = None) -> None:
        if logger is None:
            import structlog

            logger = structlog.get_logger("handrail")
        self._logger = logger
        self._masks = Masks()
        self._workflows: dict[str, str] = {}

    def mask_with(self, run_id: str, mask: Mask) -> None:
        """Mask the secrets of this run in the log."""
        self._masks.take(run_id, mask)

    def emit(self, event: Event | Progress, /) -> None:
        """Log the event."""
        log = getattr(self._logger, level_of(event))
        mask = self._masks.of(event)
        facts = {**self._workflow(event), **facts_of(event)}
        log(name_of(event), **cast("dict[str, Json]", mask_data(facts, mask)))

    def _workflow(self, event: Event | Progress) -> dict[str, Json]:
        """The name of the run's workflow; empty until an event has named it."""
        if isinstance(event, ev.DriveBegan) and event.workflow_name:
            self._workflows[event.run_id] = event.workflow_name
        name = self._workflows.get(event.run_id)
        if isinstance(event, ev.DriveEnded):
            self._workflows.pop(event.run_id, None)
        return {} if name is None else {"workflow": name}


def name_of(event: Event | Progress) -> str:
    """The event's class in snake case: ``step_completed``."""
    return _WORD_START.sub("_", type(event).__name__).lower()


def level_of(event: Event | Progress) -> str:
    """The name of this event's log level."""
    severity = severity_of(event)
    if severity != "info":
        return severity
    if type(event) in _PROGRESS:
        return "debug"
    return "warning" if getattr(event, "status", "") == "cancelled" else "info"


def facts_of(event: Event | Progress) -> dict[str, Json]:
    """The fields to bind to the entry: those of the event that are set and may be logged."""
    facts: dict[str, Json] = {}
    for field in fields(event):
        value = getattr(event, field.name)
        if field.name in _LEFT_OUT or _is_unset(value):
            continue
        if field.name == "result":
            facts.update(_facts_of_result(value))
        else:
            facts[field.name] = json_safe(value)
    return facts


def _is_unset(value: object) -> bool:
    return value is None or (isinstance(value, (str, tuple)) and not value)


def _facts_of_result(result: StepResult[Any]) -> dict[str, Json]:
    values = ((name, getattr(result, name)) for name in _OF_RESULTS)
    return {name: json_safe(value) for name, value in values if value is not None}
