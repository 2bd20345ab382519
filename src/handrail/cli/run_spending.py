"""What the agents of a recorded run have used, step by step and in all, as far as they said it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from handrail.model import events as ev
from handrail.model.results import Usage

_LAUNCHED = frozenset({"agent", "generate"})
_REFUSED = frozenset({
    "handrail.errors.BudgetExceeded", "handrail.errors.StepIsPoisonous",
    "handrail.errors.StepWasInterrupted",
})  # fmt: skip
"""Errors of attempts that made no launch, or none besides those that are known."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Launches of agents, and what those used that said it.

    ``unknown_tokens`` and ``unknown_cost`` are the launches that ended without saying it.
    """

    launches: int = 0
    usage: Usage | None = None
    unknown_tokens: int = 0
    unknown_cost: int = 0

    def __add__(self, other: Spent) -> Spent:
        usage = self.usage or other.usage
        if self.usage is not None and other.usage is not None:
            usage = self.usage + other.usage
        return Spent(
            self.launches + other.launches,
            usage,
            self.unknown_tokens + other.unknown_tokens,
            self.unknown_cost + other.unknown_cost,
        )


def spent_by(history: Iterable[ev.Event], *, alive: bool) -> Mapping[str, Spent]:
    """What each agent step has used, by path: in all attempts and drives, whether their record
    still counts or not. ``alive``: what is at work may still say what it uses.
    """
    accounts: dict[str, _Account] = {}
    for event in history:
        match event:
            case ev.StepStarted():
                if event.step_type in _LAUNCHED and event.verdict is not False:
                    accounts.setdefault(event.path, _Account()).started()
            case ev.RunResumed():
                for path in event.superseded:
                    if path in accounts:
                        accounts[path].forgotten()
            case (
                ev.AgentSessionStarted()
                | ev.BudgetReserved()
                | ev.BudgetSettled()
                | ev.LadderStep()
                | ev.AttemptFailed()
                | ev.StepCompleted()
            ):
                account = accounts.get(event.path)
                if account is not None:
                    account.take(event)
            case _:
                pass
    return {path: account.spent(alive=alive) for path, account in accounts.items()}


def total_of(spent: Mapping[str, Spent]) -> Spent:
    """All of it together."""
    return sum(spent.values(), Spent())


class _Account:
    """The launches of one step: each by its number, with what it used itself. Mutable."""

    def __init__(self) -> None:
        self._used: dict[int, Usage | None] = {}
        self._next = 1
        """The number of the launch that is at work, or comes next."""
        self._before: Usage | None = None
        """What the launches before it, in its attempt, used together."""
        self._over = False

    def started(self) -> None:
        if self._before is None:
            self._next = max(self._used, default=0) + 1
        self._over = False

    def forgotten(self) -> None:
        self._before = None

    def take(self, event: Any) -> None:
        self._TAKE[type(event)](self, event)

    def _known(self, event: ev.AgentSessionStarted | ev.BudgetReserved) -> None:
        self._next = event.launch
        self._used.setdefault(event.launch, None)
        self._over = False

    def _settled(self, event: ev.BudgetSettled) -> None:
        self._used[event.launch] = event.usage or self._used.get(event.launch)

    def _climbed(self, event: ev.LadderStep) -> None:
        if event.kind != "budget":  # then no launch was made
            self._ended(event.next.number - 1, event.next.spent)
        self._next = event.next.number
        self._before = event.next.spent

    def _failed(self, event: ev.AttemptFailed) -> None:
        if event.error_type not in _REFUSED or self._next in self._used:
            self._ended(self._next, event.usage)
        self._attempt_over()

    def _completed(self, event: ev.StepCompleted) -> None:
        if event.result.status == "succeeded":  # else the attempt that failed has said it
            self._ended(self._next, event.result.usage)
        self._attempt_over()
        self._over = True

    def _attempt_over(self) -> None:
        self._before = None
        self._next = max(self._used, default=0) + 1

    def _ended(self, number: int, total: Usage | None) -> None:
        own = _without(total, self._before)
        self._used[number] = own or self._used.get(number)

    def spent(self, *, alive: bool) -> Spent:
        """The sum."""
        found = Spent()
        for number, used in self._used.items():
            at_work = alive and not self._over and number == self._next
            silent = Usage() if used is None else used
            found += Spent(
                1,
                used,
                int(silent.tokens is None and not at_work),
                int(silent.cost_usd is None and not at_work),
            )
        return found

    _TAKE: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        ev.AgentSessionStarted: _known,
        ev.BudgetReserved: _known,
        ev.BudgetSettled: _settled,
        ev.LadderStep: _climbed,
        ev.AttemptFailed: _failed,
        ev.StepCompleted: _completed,
    }


_COUNTS: Sequence[str] = [field.name for field in fields(Usage) if field.name != "cost_source"]


def _without(total: Usage | None, before: Usage | None) -> Usage | None:
    """What one launch used, of sums; a sum that did not change says nothing of it."""
    if total is None or before is None:
        return total
    own = total.since(before)
    known = {
        name: None if getattr(total, name) == getattr(before, name) else getattr(own, name)
        for name in _COUNTS
    }
    return None if set(known.values()) == {None} else Usage(**known, cost_source=own.cost_source)


# -- for people ------------------------------------------------------------------------------------


def in_short(spent: Spent) -> str:
    """``120k in, 4.5k out, $0.41``; ``?`` where nobody said it, ``at least`` where not all did."""
    usage = spent.usage or Usage()
    tokens = "tokens ?"
    if usage.tokens is not None:
        tokens = f"{_count(usage.input_tokens)} in, {_count(usage.output_tokens)} out"
        if spent.unknown_tokens:
            tokens = f"at least {tokens}"
    cost = "$?" if usage.cost_usd is None else _dollars(usage)
    if usage.cost_usd is not None and spent.unknown_cost and not tokens.startswith("at least"):
        cost = f"at least {cost}"
    return f"{tokens}, {cost}"


def in_full(spent: Spent) -> str:
    """The same after the launches, and how many of these did not say what they used."""
    said = f"{launches(spent)}, {in_short(spent)}"
    tokens, cost = spent.unknown_tokens, spent.unknown_cost
    if tokens and tokens == cost:
        return f"{said} ({tokens} did not say what they used)"
    silent = [f"{tokens} did not say how many tokens"] if tokens else []
    silent += [f"{cost} did not say what they cost"] if cost else []
    return f"{said} ({', '.join(silent)})" if silent else said


def launches(spent: Spent) -> str:
    """``1 launch``, ``5 launches``."""
    return f"{spent.launches} launch{'es' * (spent.launches != 1)}"


def _count(number: int | None) -> str:
    if number is None:
        return "?"
    if number < 1_000:
        return str(number)
    size, unit = (1_000, "k") if number < 999_500 else (1_000_000, "M")
    scaled = number / size
    return f"{scaled:.1f}".removesuffix(".0") + unit if scaled < 10 else f"{scaled:.0f}{unit}"


def _dollars(usage: Usage) -> str:
    cost = usage.cost_usd or 0.0
    about = "about " if usage.cost_source == "table" else ""
    return f"{about}${cost:.2f}" if cost >= 0.01 or not cost else f"{about}${cost:.2g}"
