"""A run's result as texts, which can be compared with those of another process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from handrail.codec.codec import Codec
from handrail.errors import OutputNotSerializable, StepWasInterrupted
from handrail.model.results import StepResult, WorkflowResult, qualified
from handrail.record.diff import without
from handrail.typed.field_words import TIMES

Verdict: TypeAlias = Mapping[str, str]
"""Texts of a result's parts, keyed by the name of the part: ``output of step 'plan'``."""

_LEFT_OUT = TIMES | {"replayed", "traceback"}
_OUR_TAG = "handrail:"
_SHOWN = 200
_BEFORE = 60
"""How much of two long texts is shown before the place where they begin to differ."""


def verdict_of(result: WorkflowResult[Any], codec: Codec) -> Verdict:
    """All that a crash must not change; durations, and what was replayed, are left out.

    Values are written as the journal writes them, so that their types count too.
    """
    told = {
        "status": result.status,
        "value": text_of(result.value, codec),
        "error": text_of(result.error, codec),
        "failed step": text_of(result.failed_step, codec),
        "rollback errors": text_of(list(result.rollback_errors), codec),
        "open gates": text_of([gate.path for gate in result.waiting], codec),
        "signals waited for": text_of(list(result.waiting_signals), codec),
        "order of the steps": text_of([one.path for one in result.step_results], codec),
    }
    for one in result.step_results:
        told.update(_of_step(one, codec))
    return told


def _of_step(one: StepResult[Any], codec: Codec) -> dict[str, str]:
    return {
        f"status of step {one.path!r}": one.status,
        f"output of step {one.path!r}": text_of(one.output, codec),
        f"error of step {one.path!r}": text_of([one.error_type, one.error], codec),
        f"attempts of step {one.path!r}": str(one.attempts),
    }


def text_of(value: Any, codec: Codec) -> str:
    """The value as JSON with its types; its ``repr`` if it cannot be written."""
    try:
        written = codec.dump(value)
    except OutputNotSerializable:
        return repr(value)
    return codec.dump(without(_LEFT_OUT, value)) if _OUR_TAG in written else written


def verdict_differences(whole: Verdict, crashed: Verdict) -> list[str]:
    """Sentences on the parts that differ; empty if none does."""
    found: list[str] = []
    for key in {**whole, **crashed}:
        was, now = whole.get(key), crashed.get(key)
        if was != now:
            start = max(0, _parting(was or "", now or "") - _BEFORE)
            shown = (_excerpt(text, start) for text in (was, now))
            found.append("{}: {} without a crash, {} with it".format(key, *shown))
    return found


def _parting(one: str, other: str) -> int:
    """Where two texts begin to differ."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _excerpt(text: str | None, start: int) -> str:
    """The text; of a long text a part from ``start`` on."""
    if text is None:
        return "nothing"
    if len(text) <= _SHOWN:
        return text
    before, after = "..." * (start > 0), "..." * (start + _SHOWN < len(text))
    return f"{before}{text[start : start + _SHOWN]}{after} ({len(text)} characters)"


def interrupted_steps(result: WorkflowResult[Any]) -> list[str]:
    """The ``.once()`` steps that failed because their process died in the middle of them."""
    kind = qualified(StepWasInterrupted)
    return [one.path for one in result.step_results if one.error_type == kind]
