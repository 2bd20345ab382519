"""What the fields of handrail's own records hold, by their names."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

import pytest

from handrail.codec.codec import Codec
from handrail.model import events, launch, results, work
from handrail.record.rows import to_record
from handrail.testing.contracts.sample_events import sample_events
from handrail.typed.field_words import NAMES, TERMS, TEXTS

_RECORDS = re.compile(r"\b(StepResult|TaskDone)\[\w+\]")
_TEXT = re.compile(r"\b(str|Any|T_co|R_co|Literal|Rung|StepStatus|RunStatus|SteeringAction)\b")


def fields_with_text() -> Iterator[str]:
    """The name of every field that can hold text."""
    for module in (events, launch, results, work):
        for cls in vars(module).values():
            if getattr(cls, "__module__", "") == module.__name__ and isinstance(cls, type):
                for field in getattr(cls, "__dataclass_fields__", {}).values():
                    if _TEXT.search(_RECORDS.sub("", str(field.type))):
                        yield field.name


@pytest.mark.parametrize("name", sorted(set(fields_with_text())))
def test_each_field_with_text_is_a_term_a_name_or_a_text(name: str) -> None:
    """A field is in one of the lists, so masks and records know how to treat it."""
    assert [name in words for words in (TERMS, NAMES, TEXTS)].count(True) == 1


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
