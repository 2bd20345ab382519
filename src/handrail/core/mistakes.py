"""The mistake of yielding something that is no step, told with a hint that fits."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from handrail.errors import NotAStep
from handrail.shortening import shortened

_SHOWN_CHARS = 80


def not_a_step(got: Any, where: str) -> NotAStep:
    """The mistake of yielding something else, with a hint that fits what it was."""
    if type(got).__name__ == "StepName":
        hint = f"Did you forget a verb after step({got.name!r}): .call(), .agent(), .validate()?"
        return NotAStep(f"step({got.name!r}) without a verb", where, hint)
    if got is None:
        hint = (
            'Did you forget a verb, or a value after yield? Write: yield from step("name").call(f).'
        )
        return NotAStep("None", where, hint)
    name = getattr(got, "__name__", got)
    if isinstance(got, Generator):
        hint = "Write `yield from helper()`, not `yield helper()`."
        return NotAStep(f"the generator {name!r}", where, hint)
    if hasattr(got, "definition"):
        hint = f'Write step("name").subworkflow({got.definition.name}, {{...}}).'
        return NotAStep(f"the workflow {got.definition.name!r}", where, hint)
    hint = 'Wrap it: step("name").call(...), .command(...), .agent(...).'
    return NotAStep(shortened(repr(got), _SHOWN_CHARS), where, hint)
