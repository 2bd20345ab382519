"""The bounds that a person typed for a run, which each drive records and the next takes over.

A bound holds for the whole life of the run, whatever command continues it, until a person types
another value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeAlias

from handrail.model.policy import NO_LIMITS, Budget, Limits

Bounds: TypeAlias = Mapping[str, float]
"""Values by the name of their option, such as ``max_steps``."""

_REACHED = {
    "max_steps": "limit max_steps=",
    "timeout": "limit timeout_s=",
    "budget_usd": "the budget of the run does not allow another launch of an agent: usd ",
    "max_launches": "the budget of the run does not allow another launch of an agent: launches ",
}
"""What the error of a run says that has reached a bound."""


def option_of(name: str) -> str:
    """The option that sets a bound, which is also the label that records it."""
    return f"--{name.replace('_', '-')}"


def bounds_in(labels: Mapping[str, str]) -> dict[str, float]:
    """The bounds that these labels record."""
    found = {name: labels.get(option_of(name)) for name in _REACHED}
    return {name: json.loads(text) for name, text in found.items() if text is not None}


def labels_for(bounds: Bounds) -> dict[str, str]:
    """The labels that record the bounds."""
    return {option_of(name): json.dumps(value) for name, value in bounds.items()}


def limits_of(
    *,
    max_steps: float | None = None,
    timeout: float | None = None,
    budget_usd: float | None = None,
    max_launches: float | None = None,
) -> Limits:
    """The limits of a run, from typed options or the project's table.

    Raises:
        DefinitionError: a bound is not of its type, or not above 0.
    """
    limits = NO_LIMITS if max_steps is None else Limits(max_steps=max_steps)  # type: ignore[arg-type]  # checked there
    if timeout is not None:
        limits = Limits(timeout_s=timeout).over(limits)
    if budget_usd is not None or max_launches is not None:
        budget = Budget(usd=budget_usd, launches=max_launches)  # type: ignore[arg-type]  # checked there
        limits = Limits(budget=budget).over(limits)
    return limits


def words_for_more(bounds: Bounds, error: str | None) -> list[str]:
    """The words to type to double the bound by which a run failed; none if it was no bound."""
    for name, value in bounds.items():
        if error is not None and _REACHED[name] in error:
            return [option_of(name), str(2 * value).removesuffix(".0")]
    return []
