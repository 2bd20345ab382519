"""What launches of agents have used or set aside, summed for every scope above them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from handrail.model.events import BudgetReserved, BudgetSettled

_ATTEMPT = re.compile(r"~\d+$")


@dataclass(slots=True)
class Spent:
    """Sums of one scope; what is reserved counts as used. ``dearest_*`` are of one launch."""

    launches: int = 0
    tokens: int = 0
    usd: float = 0.0
    dearest_tokens: int = 0
    dearest_usd: float = 0.0
    settled: int = 0
    """Launches that ended, whether they said what they used or not."""
    unknown_tokens: int = 0
    unknown_usd: int = 0
    """Launches that ended without saying what they cost."""


@dataclass(slots=True)
class _Entry:
    tokens: int = 0
    usd: float = 0.0


@dataclass(slots=True)
class Ledger:
    """Mutable; the same events, in the same order, give the same sums."""

    _scopes: dict[str, Spent] = field(default_factory=dict[str, Spent])
    _entries: dict[tuple[str, int], _Entry] = field(default_factory=dict[tuple[str, int], _Entry])

    def of(self, scope: str) -> Spent:
        """The sums of everything at and below a path; ``""`` is the run."""
        return self._scopes.get(scope) or Spent()

    def reserved(self, event: BudgetReserved) -> None:
        """A launch is about to be made."""
        key = (event.path, event.launch)
        if key in self._entries:
            return
        entry = self._entries[key] = _Entry(event.tokens or 0, event.cost_usd or 0.0)
        for scope in scopes_of(event.path):
            spent = self._scopes.setdefault(scope, Spent())
            spent.launches += 1
            spent.tokens += entry.tokens
            spent.usd += entry.usd

    def settled(self, event: BudgetSettled) -> None:
        """A launch ended: what it used takes the place of what was set aside, if it is known."""
        entry = self._entries.get((event.path, event.launch))
        if entry is None:
            return
        usage = event.usage
        tokens = usage.tokens if usage is not None else None
        usd = usage.cost_usd if usage is not None else None
        for scope in scopes_of(event.path):
            spent = self._scopes[scope]
            spent.settled += 1
            if tokens is None:
                spent.unknown_tokens += 1
            else:
                spent.tokens += tokens - entry.tokens
                spent.dearest_tokens = max(spent.dearest_tokens, tokens)
            if usd is None:
                spent.unknown_usd += 1
            else:
                spent.usd += usd - entry.usd
                spent.dearest_usd = max(spent.dearest_usd, usd)
        if tokens is not None:
            entry.tokens = tokens
        if usd is not None:
            entry.usd = usd


def scopes_of(path: str) -> Iterator[str]:
    """The run, the path, and every path above it; ``a~2/b`` is below ``a`` too."""
    seen = {""}
    parts = path.split("/")
    for count in range(1, len(parts) + 1):
        above = "/".join(parts[:count])
        seen.update((above, _ATTEMPT.sub("", above)))
    return iter(seen)
