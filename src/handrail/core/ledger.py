"""What agents' launches have used and reserved, and the state of their budgets, as data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import field

from handrail.errors import BudgetExceeded
from handrail.model.dataclass import dataclass
from handrail.model.events import (
    BudgetRaised,
    BudgetReserved,
    BudgetSettled,
    BudgetWarning,
    Event,
)
from handrail.model.launch import Launch
from handrail.model.policy import Budget

_ATTEMPT = re.compile(r"~\d+$")


@dataclass(slots=True)
class ScopeSums:
    """Sums of one scope; reservations count as used. ``most_*`` are the maximum of one launch."""

    launches: int = 0
    tokens: int = 0
    usd: float = 0.0
    most_tokens: int = 0
    most_usd: float = 0.0
    ended_launches: int = 0
    """Launches that ended, whether they reported their usage or not."""
    unknown_tokens: int = 0
    unknown_usd: int = 0
    """``unknown_*``: launches that ended without reporting their tokens, or their cost."""


@dataclass(slots=True)
class _Entry:
    tokens: int = 0
    usd: float = 0.0
    launches: int = 1


@dataclass(slots=True)
class Ledger:
    """Sums of usage, by scope. Mutable; the same events in the same order give the same sums."""

    _scopes: dict[str, ScopeSums] = field(default_factory=dict[str, ScopeSums])
    _entries: dict[tuple[str, int], _Entry] = field(default_factory=dict[tuple[str, int], _Entry])

    def of(self, scope: str) -> ScopeSums:
        """The sums of everything at and below a path; ``""`` is the run."""
        return self._scopes.get(scope) or ScopeSums()

    def reserve(self, event: BudgetReserved) -> None:
        """Count the reservation for a launch that is about to be made."""
        key = (event.path, event.launch)
        if key in self._entries:
            return
        entry = self._entries[key] = _Entry(
            event.tokens or 0, event.cost_usd or 0.0, event.launches
        )
        for scope in scopes_of(event.path):
            sums = self._scopes.setdefault(scope, ScopeSums())
            sums.launches += entry.launches
            sums.tokens += entry.tokens
            sums.usd += entry.usd

    def settle(self, event: BudgetSettled) -> None:
        """Replace a launch's reservation by its usage, if that is known."""
        entry = self._entries.get((event.path, event.launch))
        if entry is None:
            return
        usage = event.usage
        tokens = usage.tokens if usage is not None else None
        usd = usage.cost_usd if usage is not None else None
        made = max(0, entry.launches - event.unmade)
        for scope in scopes_of(event.path):
            sums = self._scopes[scope]
            sums.launches -= entry.launches - made
            if not made:
                sums.tokens -= entry.tokens
                sums.usd -= entry.usd
                continue
            sums.ended_launches += 1
            if tokens is None:
                sums.unknown_tokens += 1
            else:
                sums.tokens += tokens - entry.tokens
                sums.most_tokens = max(sums.most_tokens, -(-tokens // made))
            if usd is None:
                sums.unknown_usd += 1
            else:
                sums.usd += usd - entry.usd
                sums.most_usd = max(sums.most_usd, usd / made)
        if tokens is not None:
            entry.tokens = tokens
        if usd is not None:
            entry.usd = usd


@dataclass(frozen=True, slots=True)
class Scope:
    """A budget in force: the path that it belongs to (``""``: the run), and since when."""

    path: str
    budget: Budget
    since: float


@dataclass(frozen=True, slots=True)
class Breach:
    """A bound that the next launch would pass."""

    scope: Scope
    name: str
    used: float
    limit: float
    more: float
    refused: bool = False
    """True if a person was asked, and refused."""

    @property
    def error(self) -> BudgetExceeded:
        """The breach as the error of a step."""
        return BudgetExceeded(self.scope.path, self.name, self.used, self.limit, self.more)


class BudgetState:
    """The sums, raises, warnings and questions of a run's budgets, in all its drives. Mutable."""

    __slots__ = ("allowed", "asking", "at_work", "deferred", "ledger", "raised", "warned")

    def __init__(self, recorded: Iterable[Event] = ()) -> None:
        self.ledger = Ledger()
        self.raised: dict[tuple[str, str], int] = {}
        """How often each budget was raised, by scope and bound (``""``: all bounds at once)."""
        self.allowed: dict[str, int] = {}
        """How often each step was allowed more, by its path: this numbers its next question."""
        self.warned: set[tuple[str, str, int]] = set()
        self.asking: dict[str, tuple[str, Launch, Breach]] = {}
        """Launches that a person is asked about, by the path of the gate: step, launch, breach."""
        self.at_work: dict[str, set[str]] = {}
        """The steps whose launches in this drive are not settled, by scope."""
        self.deferred: list[tuple[str, Launch, bool]] = []
        """Launches that wait for the first one of their scope: step, launch, interrupted."""
        for event in recorded:
            self.count(event)

    def count(self, event: Event) -> None:
        """Count a recorded event, of this drive or an earlier one."""
        match event:
            case BudgetReserved():
                self.ledger.reserve(event)
            case BudgetSettled():
                self.ledger.settle(event)
            case BudgetRaised():
                raised = (event.scope, event.name)
                self.raised[raised] = self.raised.get(raised, 0) + 1
                self.allowed[event.path] = self.allowed.get(event.path, 0) + 1
            case BudgetWarning():
                self.warned.add((event.scope, event.name, self.times(event.scope, event.name)))
            case _:
                pass

    def times(self, scope: str, name: str) -> int:
        """How often a bound was raised."""
        return self.raised.get((scope, name if name == UNKNOWN else ""), 0)


UNKNOWN = "unknown"
"""The bound on launches that do not report their usage; it is raised apart from the others."""


def scopes_of(path: str) -> Iterator[str]:
    """The run, the path, and every path above it; ``a~2/b`` is below ``a`` too."""
    seen = {""}
    parts = path.split("/")
    for count in range(1, len(parts) + 1):
        above = "/".join(parts[:count])
        seen.update((above, _ATTEMPT.sub("", above)))
    return iter(seen)
