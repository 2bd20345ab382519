"""What the fields of handrail's own records hold, by their names."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import pytest

from handrail.codec.codec import Codec
from handrail.model import events, launch, results, work
from handrail.record.rows import to_record
from handrail.testing.contracts.sample_events import sample_events
from handrail.typed.field_words import NAMES, TERMS, TEXTS

_RECORDS = re.compile(r"\b(StepResult|TaskDone)\[\w+\]")
_TEXT = re.compile(r"\b(str|Any|T_co|R_co|Literal|Rung|StepStatus|RunStatus|SteeringAction)\b")


def recorded_fields() -> Iterator[tuple[str, dataclasses.Field[Any]]]:
    """Every field of handrail's own records, with the name of its class."""
    for module in (events, launch, results, work):
        for cls in vars(module).values():
            if getattr(cls, "__module__", "") == module.__name__ and isinstance(cls, type):
                for field in getattr(cls, "__dataclass_fields__", {}).values():
                    yield cls.__name__, field


def fields_with_text() -> Iterator[str]:
    """The name of every field that can hold text."""
    for _, field in recorded_fields():
        if _TEXT.search(_RECORDS.sub("", str(field.type))):
            yield field.name


@pytest.mark.parametrize("name", sorted(set(fields_with_text())))
def test_each_field_with_text_is_a_term_a_name_or_a_text(name: str) -> None:
    """A field is in one of the lists, so masks and records know how to treat it."""
    assert [name in words for words in (TERMS, NAMES, TEXTS)].count(True) == 1


LEFT_OUT = {
    "RunSuspended.reason": "waiting",
    "CancelRequested.reason": "cancelled",
    "AttemptFailed.retryable": True,
    "GroupStarted.on_error": "fail_fast",
    "TimerSet.attempt": 1,
    "AgentSessionStarted.launch": 1,
    "BudgetReserved.launches": 1,
    "AgentToolCompleted.ok": True,
    "AgentTranscript.direction": "received",
    "Launch.number": 1,
    "Launch.turn": 1,
    "Launch.rung": "start",
    "StepResult.attempts": 1,
    "AgentResult.attempts": 1,
    "OpenGate.type": str,
    "OpenGate.opening": 1,
}
"""What a field that a record leaves out is read as, where that is not nothing."""


def test_a_field_that_a_record_leaves_out_is_nothing() -> None:
    """The defaults are part of the format: none but these says anything."""
    said: dict[str, Any] = {}
    for name, field in recorded_fields():
        is_recorded = name != "Fault"
        if is_recorded and field.default is not dataclasses.MISSING and field.default:
            said[f"{name}.{field.name}"] = field.default
    assert said == LEFT_OUT


@pytest.mark.parametrize("event", sample_events(), ids=lambda event: type(event).__name__)
def test_no_text_of_an_event_is_recorded_with_a_secret(event: events.Event) -> None:
    """Whatever the kind of event: a secret in a text of it is not in its record."""
    texts = [
        field.name
        for field in dataclasses.fields(event)
        if field.name in TEXTS and str(field.type).startswith("str")
    ]
    told = dataclasses.replace(event, **dict.fromkeys(texts, "so hunter2-hunter3 it is"))
    record = to_record(told, Codec(), {"KEY": "hunter2-hunter3"})
    assert "hunter2" not in f"{record.body}{record.value}"
