"""Records that are read many at a time say what they say one at a time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from handrail.model import events as ev
from handrail.model.results import StepResult
from handrail.record.rows import Record, UnreadableRecord, from_record, reader, to_record
from tests.model.test_records import CODEC, ENVIRON, any_event


def _read(record: Record, secrets: dict[str, str] | None = None) -> ev.Event:
    """The event of a record as a journal in a file has it."""
    kind, path, body, value = (None if part is None else part.encode() for part in record)
    assert kind is not None
    assert path is not None
    assert body is not None
    return reader("r", CODEC, secrets)(3, 1.5, kind, path, body, value)


def _succeeded(output: Any, **fields: Any) -> ev.StepCompleted:
    return ev.StepCompleted("a/b", StepResult("b", "a/b", "python", "succeeded", output, **fields))


@given(any_event)
def test_every_event_is_read_as_from_record_reads_it(event: ev.Event) -> None:
    """Whatever is in a record, it is read the same way, and of the same types."""
    record = to_record(event, CODEC)
    alone, together = from_record("r", 3, 1.5, record, CODEC), _read(record)
    assert (type(alone), alone) == (type(together), together)
    assert to_record(alone, CODEC) == to_record(together, CODEC)


@pytest.mark.parametrize(
    "event",
    [
        _succeeded(1, duration_ms=2.5),
        _succeeded(None),
        _succeeded({"a": [1.5, "x"]}, duration_ms=3),
        _succeeded((1, 2)),
        _succeeded("key=hunter2!"),
        _succeeded('it says "$" here'),
        _succeeded(1, attempts=2),
        _succeeded(1, masked=True),
        ev.StepCompleted("a", StepResult("a", "a", "python", "failed", error="no")),
        ev.StepStarted("a", "python", "python app:f []"),
        ev.StepStarted("a/b", "call", "f", verdict=True, index=3, rollback=True, once=True),
        ev.StepStarted("a", "wait_for", signal="\ud800"),
    ],
    ids=repr,
)
def test_starts_and_ends_are_read_as_from_record_reads_them(event: ev.Event) -> None:
    """The kinds that have a quick way of their own, at its edges."""
    record = to_record(event, CODEC, ENVIRON)
    alone = from_record("r", 3, 1.5, record, CODEC, ENVIRON)
    assert alone == _read(record, ENVIRON)
    assert to_record(alone, CODEC) == to_record(_read(record, ENVIRON), CODEC)


@pytest.mark.parametrize("kind", ["StepStarted", "StepCompleted", "Unheard"])
@pytest.mark.parametrize("body", ["", "[]", "null", '{"step_type":', '{"$":"oh"}', "{}"])
def test_what_cannot_be_read_is_the_same_error(kind: str, body: str) -> None:
    """A record that is damaged, or of a newer version, is named with what is wrong with it."""
    record = Record(kind, "a", body, None)
    with pytest.raises(UnreadableRecord) as alone:
        from_record("r", 3, 1.5, record, CODEC)
    with pytest.raises(UnreadableRecord) as together:
        _read(record)
    assert str(alone.value) == str(together.value)


def test_a_field_of_a_newer_version_is_ignored() -> None:
    """What an older reader does not know does not keep it from reading the rest."""
    start = Record("StepStarted", "a", '{"step_type":"python","newer":1}', None)
    end = Record("StepCompleted", "a", '{"step_type":"x","status":"succeeded","newer":1}', "1")
    assert _read(start) == from_record("r", 3, 1.5, start, CODEC)
    assert _read(end) == from_record("r", 3, 1.5, end, CODEC)
