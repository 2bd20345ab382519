"""Whether events from elsewhere, each of which could be read, are the events of a run.

A journal trusts what it wrote, by its checksums. Those of a file anybody can compute.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin

from handrail.model import events as ev
from handrail.model.results import StepResult
from handrail.record.outputs import derive
from handrail.record.results import tree_order
from handrail.record.run_record import Recorded
from handrail.typed.schema import hints_of

_OF_THE_RUN = (ev.LimitReached, ev.RunSteered)
"""What may have no path, for it is of the run itself."""


def unsound(history: Sequence[ev.Event]) -> tuple[int, str] | None:
    """The place, from 0, of an event that cannot be one of a run, and why; None if all may be."""
    for place, event in enumerate(history):
        wrong = _misfit(event) or _uncounted(event, len(history))
        if wrong is None and place and isinstance(event, ev.WorkflowStarted):
            wrong = "the run begins a second time"
        if not getattr(event, "path", "run") and not isinstance(event, _OF_THE_RUN):
            wrong = "it is of no step"
        if wrong is not None:
            return place, wrong
    try:
        recorded = Recorded(history)
        for path in recorded.children(""):
            derive(recorded, path, history[0].run_id)
        tree_order(recorded.tree_below("", whole=True), dict(recorded.ends()))
    except Exception as error:  # noqa: BLE001  # what is missing may be missed anywhere
        return len(history) - 1, f"what it says of its steps does not go together ({error!r})"
    return None


def _misfit(event: Any) -> str | None:
    for name, wanted in _plain_fields(event.__class__):
        value = getattr(event, name)
        if not isinstance(value, wanted):
            return f"its {name} is {type(value).__name__}"
    result = getattr(event, "result", None)
    return _misfit(result) if isinstance(result, StepResult) else None


def _uncounted(event: Any, count: int) -> str | None:
    """Each attempt but the last is an event of its own."""
    of = getattr(event, "result", event)
    attempts = max(getattr(of, "attempts", 0), getattr(of, "attempt", 0))
    return f"{attempts} attempts are more than the run has events" if attempts > count else None


@cache
def _plain_fields(kind: Any, /) -> tuple[tuple[str, tuple[type, ...]], ...]:
    """The fields of an event, or a result, that hold plain data, and of what classes."""
    hints = hints_of(kind)
    found = ((one.name, tuple(_classes(hints.get(one.name)))) for one in fields(kind))
    return tuple((name, classes) for name, classes in found if classes)


def _classes(hint: Any) -> Iterator[type]:
    """The classes of values of this type, if it is of plain data; else none."""
    if hint in {str, int, bool, type(None)}:
        yield hint
    elif hint is float:
        yield from (float, int)
    elif get_origin(hint) is Literal:
        yield from {type(one) for one in get_args(hint)}
    elif get_origin(hint) is tuple:
        yield tuple
    elif get_origin(hint) in {Union, types.UnionType}:
        each = [list(_classes(one)) for one in get_args(hint)]
        yield from (one for classes in each for one in classes if all(each))
