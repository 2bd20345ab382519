"""Verbs, commands and events are closed sets: what deals with each has a place for all."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from handrail.core.conductor import Conductor
from handrail.core.machine import NODE_TYPES
from handrail.model import events as ev
from handrail.record.rows import LAYOUTS
from handrail.sinks.event_words import FORMS
from handrail.steps.verbs import Verb


@pytest.mark.parametrize(
    ("table", "union"),
    [(NODE_TYPES, Verb), (LAYOUTS, ev.Event), (FORMS, ev.Event)],
    ids=["nodes of verbs", "rows of events", "texts of events"],
)
def test_a_table_has_a_row_for_each_member(table: Any, union: Any) -> None:
    """None is forgotten, and none is there that is no member."""
    assert set(table) == set(get_args(union))


@pytest.mark.parametrize("carry_out", [Conductor._carry_out, Conductor._begin])
def test_an_unknown_command_is_not_dropped(carry_out: Any) -> None:
    """It ends the drive with an error that names it, on any host."""

    class Unknown:
        path = "x"

    conductor: Any = type("Conductor", (), {"ends": None})()
    with pytest.raises(AssertionError, match="Unknown"):
        carry_out(conductor, Unknown())
