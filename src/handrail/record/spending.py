"""What the launches of agents used, as far as they reported it."""

from __future__ import annotations

from typing import Any, cast

from handrail.model import events as ev
from handrail.model.dataclass import dataclass
from handrail.model.launch import NOT_READY, asked_nobody
from handrail.model.results import Usage, add_usage, own_usage
from handrail.typed.jsonsafe import json_safe


@dataclass(frozen=True, slots=True)
class Spent:
    """How many launches agents had, and what these used, as far as they reported it.

    ``unknown_tokens`` and ``unknown_cost`` count launches that ended without reporting it.
    """

    launches: int = 0
    usage: Usage | None = None
    unknown_tokens: int = 0
    unknown_cost: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.launches + other.launches,
            add_usage(self.usage, other.usage),
            self.unknown_tokens + other.unknown_tokens,
            self.unknown_cost + other.unknown_cost,
        )

    def to_dict(self) -> dict[str, Any]:
        """All fields; None in ``usage`` is unknown."""
        return cast("dict[str, Any]", json_safe(self))


_REFUSED = frozenset({
    "handrail.errors.BudgetExceeded", "handrail.errors.StepIsPoisonous",
    "handrail.errors.StepWasInterrupted",
})  # fmt: skip
"""Errors of attempts that made no launch, or none beside the known ones."""


class Account:
    """The launches of one step: what each used itself, by its number. Mutable."""

    __slots__ = ("_before", "_next", "_over", "_session", "_used")

    def __init__(self) -> None:
        self._used: dict[int, Usage | None] = {}
        self._next = 1
        """The number of the launch that is at work, or comes next."""
        self._before: Usage | None = None
        """What the earlier launches of its attempt used together."""
        self._over = False
        self._session = 0
        """The number of the last launch that began a session."""

    @property
    def launches(self) -> int:
        """How many launches it knows of."""
        return len(self._used)

    def started(self) -> None:
        """Note that the step began, or was entered again."""
        if self._before is None:
            self._next = max(self._used, default=0) + 1
        self._over = False

    def forgotten(self) -> None:
        """Note that the record of its attempts was dropped."""
        self._before = None

    def launch_opened(self, event: ev.AgentSessionStarted | ev.BudgetReserved) -> None:
        """Note that a launch began, or is about to."""
        self._next = event.launch
        self._used.setdefault(event.launch, None)
        self._over = False
        if isinstance(event, ev.AgentSessionStarted):
            self._session = event.launch

    def budget_settled(self, event: ev.BudgetSettled) -> None:
        """Note what a launch used."""
        if event.usage is not None or event.launch in self._used:
            self._used[event.launch] = event.usage or self._used.get(event.launch)

    def ladder_step(self, event: ev.LadderStep) -> None:
        """Note a launch that failed, and that another one follows."""
        if event.kind != "budget":  # then no launch was made
            asked = event.kind not in NOT_READY
            self._ended(event.next.number - 1, event.next.spent, asked=asked)
        self._next = event.next.number
        self._before = event.next.spent

    def guided(self, event: ev.AgentGuided) -> None:
        """Note a launch with guidance, for which the one before it may have been broken off."""
        if event.next.turn > 1:  # the launch before it was broken off, if it did not fail
            self._ended(event.next.number - 1, event.next.spent)
        self._next = event.next.number
        self._before = event.next.spent
        self._over = False

    def interrupted(self, usage: Usage) -> None:
        """Note what the launch at work used when it was interrupted."""
        if self._next in self._used:
            self._used[self._next] = usage
            self._before = add_usage(self._before, usage)

    def failed(self, event: ev.AttemptFailed) -> None:
        """Note the end of an attempt that failed."""
        if event.error_type not in _REFUSED or self._next in self._used:
            self._ended(
                self._next, event.usage, asked=not asked_nobody(event.error_type, event.error_bases)
            )
        self._attempt_over()

    def completed(self, event: ev.StepCompleted) -> None:
        """Note the end of the step."""
        # A failed attempt has reported its usage before; see ``AttemptFailed``.
        result = event.result
        if (
            event.used is not None
            if result.status == "cancelled" or result.given_by
            else (result.status == "succeeded" and not result.handled)
        ):
            self._ended(self._next, event.used)
        self._attempt_over()
        self._over = True

    def _attempt_over(self) -> None:
        self._before = None
        self._next = max(self._used, default=0) + 1

    def _ended(self, number: int, total: Usage | None, *, asked: bool = True) -> None:
        own = _without(total, self._before)
        if not asked and own is None and self._session != number:
            self._used.pop(number, None)
            return
        self._used[number] = own or self._used.get(number)

    def spent(self, *, alive: bool) -> Spent:
        """The sum of all launches."""
        total = Spent()
        for number, used in self._used.items():
            at_work = alive and not self._over and number == self._next
            silent = Usage() if used is None else used
            total += Spent(
                1,
                used,
                int(silent.tokens is None and not at_work),
                int(silent.cost_usd is None and not at_work),
            )
        return total


def _without(total: Usage | None, before: Usage | None) -> Usage | None:
    """What one launch used, from the totals with and without it; None if that is not known."""
    if total is None or total == Usage():
        return None
    if before is None:
        return total
    own = own_usage(total, before)
    return None if own == Usage(cost_source=own.cost_source) else own
