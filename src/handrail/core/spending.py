"""Keeps the launches of agents within their budgets.

A budget is a step's (of an agent, a group, a child workflow) or the run's. Before a launch each one
above it is looked at, innermost first; what the launch may use is recorded as reserved, and what it
used as settled. See ``model.budget`` for what a breach does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from handrail.core import commands as cmd
from handrail.core.failures import failure_of
from handrail.core.ledger import Ledger, Spent
from handrail.core.node import Node, Phase
from handrail.errors import BudgetExceeded
from handrail.model import events as ev
from handrail.model.launch import Launch
from handrail.model.paths import budget_gate
from handrail.model.policy import Budget
from handrail.model.results import OpenGate, Usage

if TYPE_CHECKING:
    from handrail.core.machine import Machine

STOP, ALLOW = "stop", "allow"


@dataclass(frozen=True, slots=True)
class Scope:
    """A budget in force: the path that it is of (``""``: the run), and since when."""

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
    """Somebody was asked, and said no."""

    @property
    def error(self) -> BudgetExceeded:
        """It, as the error of a step."""
        return BudgetExceeded(self.scope.path, self.name, self.used, self.limit, self.more)


class Spending:
    """Reserves, settles, warns, and says no. Mutable."""

    def __init__(self, machine: Machine, known: Iterable[ev.Event] = ()) -> None:
        self.machine = machine
        self.ledger = Ledger()
        self._raised: dict[str, int] = {}
        self._allowed: dict[str, int] = {}
        """How often each step was allowed more, by its path: its next question has its own name."""
        self._warned: set[tuple[str, str, int]] = set()
        self._asking: dict[str, tuple[Node, Launch, Breach]] = {}
        self._at_work: dict[str, set[str]] = {}
        """The launches of this drive that are not settled, by scope."""
        self._held: list[tuple[Node, Launch, bool]] = []
        """Launches that wait for the first of their scope."""
        for event in known:
            self.take(event)

    def take(self, event: ev.Event) -> None:
        """Count what is recorded, of this drive or of an earlier one."""
        match event:
            case ev.BudgetReserved():
                self.ledger.reserved(event)
            case ev.BudgetSettled():
                self.ledger.settled(event)
            case ev.BudgetRaised():
                self._raised[event.scope] = self._raised.get(event.scope, 0) + 1
                self._allowed[event.path] = self._allowed.get(event.path, 0) + 1
            case ev.BudgetWarning():
                times = self._raised.get(event.scope, 0)
                self._warned.add((event.scope, event.name, times))
            case _:
                pass

    # -- before a launch ------------------------------------------------------------------------

    def scopes(self, node: Node) -> tuple[Scope, ...]:
        """The budgets that a launch of this node is under, innermost first."""
        return tuple(self._scopes(node))

    def _scopes(self, node: Node) -> Iterator[Scope]:
        above: Node | None = node
        while above is not None:
            budget = above.step.modifiers.budget if above.step is not None else None
            if budget is not None:
                yield Scope(above.path, budget, above.started_at)
            above = above.parent
        run = self.machine.limits.budget
        if run is not None:
            yield Scope("", run, self.machine.started_at)

    def breach(self, node: Node, scopes: tuple[Scope, ...]) -> Breach | None:
        """The bound that the node's next launch would pass; None if there is room for it."""
        refused = self.machine.answered.get(self._question_of(node))
        if refused is not None and refused.answer == STOP:
            return self._refusal(scopes[0])
        return next(filter(None, map(self._breach, scopes)), None)

    def hold(
        self, node: Node, launch: Launch, scopes: tuple[Scope, ...], *, interrupted: bool
    ) -> bool:
        """True if the launch must wait for another, since nobody can say yet what one takes.

        Where a bound on tokens or dollars comes without a share to set aside, the first launch goes
        alone. Else a group could begin as many as it has members, and none of them would be bound.
        """
        for scope in scopes:
            if self._at_work.get(scope.path) and self._is_unmeasured(scope):
                self._warn_once(node, scope, "first_launch", 1, 0, due=True)
                node.phase = Phase.PAUSED
                self._held.append((node, launch, interrupted))
                return True
        return False

    def _is_unmeasured(self, scope: Scope) -> bool:
        budget, spent = scope.budget, self.ledger.of(scope.path)
        if spent.settled:
            return False
        return (budget.tokens is not None and budget.reserve_tokens is None) or (
            budget.usd is not None and budget.reserve_usd is None
        )

    def _let_go(self) -> None:
        """Have what waited for a first launch look at its budgets again."""
        held, self._held = self._held, []
        for node, launch, interrupted in held:
            if node.phase is Phase.PAUSED and node.stop is None:
                self.machine.launches.go(node, launch, interrupted=interrupted)

    def reserve(self, node: Node, launch: Launch, scopes: tuple[Scope, ...]) -> None:
        """Set the launch's share aside."""
        for scope in scopes:
            self._at_work.setdefault(scope.path, set()).add(node.path)
        tokens = max((self._share_of(scope)[0] or 0 for scope in scopes), default=0)
        usd = max((self._share_of(scope)[1] or 0.0 for scope in scopes), default=0.0)
        node.reserved = launch.number
        node.launch_spent = launch.spent
        event = ev.BudgetReserved(node.path, launch.number, tokens or None, usd or None)
        self.ledger.reserved(event)
        self.machine.record(event)

    def deadline(self, scopes: tuple[Scope, ...]) -> cmd.Deadline | None:
        """When a launch is stopped by a budget, and why; None for never."""
        found: cmd.Deadline | None = None
        for scope in scopes:
            if scope.budget.wall_s is None or scope.budget.on_breach != "fail":
                continue
            limit = self._limit(scope, scope.budget.wall_s)
            due = scope.since + limit
            if found is None or due < found.due:
                error = BudgetExceeded(scope.path, "wall_s", limit, limit)
                found = cmd.Deadline(due, error)
        return found

    def _limit(self, scope: Scope, bound: float) -> float:
        return bound * (1 + self._raised.get(scope.path, 0))

    def _share_of(self, scope: Scope) -> tuple[int | None, float | None]:
        """What to set aside for one launch; of what is not bounded, nothing."""
        budget, spent = scope.budget, self.ledger.of(scope.path)
        tokens = usd = None
        if budget.tokens is not None:
            tokens = budget.reserve_tokens or spent.dearest_tokens
        if budget.usd is not None:
            usd = budget.reserve_usd or spent.dearest_usd
        return tokens, usd

    def _breach(self, scope: Scope) -> Breach | None:
        budget, spent = scope.budget, self.ledger.of(scope.path)
        tokens, usd = self._share_of(scope)
        wanted: list[tuple[str, float | None, float, float]] = [
            ("launches", budget.launches, spent.launches, 1),
            ("tokens", budget.tokens, spent.tokens, tokens or 0),
            ("usd", budget.usd, spent.usd, usd or 0),
            ("wall_s", budget.wall_s, self.machine.now - scope.since, 0),
        ]
        for name, bound, used, more in wanted:
            if bound is None:
                continue
            limit = self._limit(scope, bound)
            if used >= limit or used + more > limit:
                return Breach(scope, name, used, limit, 0 if name == "launches" else more)
        return None

    # -- breaches -------------------------------------------------------------------------------

    def breached(self, node: Node, launch: Launch, breach: Breach) -> None:
        """Do what the budget says about a launch that it has no room for."""
        machine = self.machine
        match "fail" if breach.refused else breach.scope.budget.on_breach:
            case "fail":
                self._fail(node, launch, breach)
            case "suspend":
                advice = f"{breach.error} Raise it, then resume the run."
                node.phase = Phase.RUNNING
                machine.record(
                    ev.LadderStep(node.path, node.attempt, "budget", advice, launch, parked=True)
                )
            case "ask":
                self._ask(node, launch, breach)

    def _fail(self, node: Node, launch: Launch, breach: Breach) -> None:
        failure = failure_of(breach.error, retryable=False)
        failure.usage = launch.spent
        self.machine.fail(node, failure)

    def _question_of(self, node: Node) -> str:
        """Where it is asked whether the node's next launch may be made."""
        return budget_gate(node.path, self._allowed.get(node.path, 0) + 1)

    def _refusal(self, scope: Scope) -> Breach:
        """What somebody said no to, before it was known that there would be room."""
        bounds = _bounds(scope.budget, self.ledger.of(scope.path), self.machine.now - scope.since)
        name, bound, used = max(bounds, key=lambda bound: bound[2] / bound[1])
        return Breach(scope, name, used, self._limit(scope, bound), 0, refused=True)

    def _ask(self, node: Node, launch: Launch, breach: Breach) -> None:
        machine = self.machine
        path = self._question_of(node)
        self._asking[path] = (node, launch, breach)
        node.phase = Phase.PAUSED
        node.budget_gate = path
        answered = machine.answered.get(path)
        if answered is not None:
            self.answered(answered)
            return
        question = f"{breach.error} Allow as much again?"
        recorded = machine.setting.recorded
        known = None if recorded is None else recorded.gate(path, 1)
        since = machine.now if known is None else known.since
        opening = machine.openings.get(path, 0) + 1 if known is None else known.opening
        machine.openings[path] = opening
        gate = OpenGate(path, question, (STOP, ALLOW), str, since, opening=opening)
        machine.gates[path] = gate
        machine.record(ev.GateOpened(path, gate))
        machine.emit(cmd.Ask(path, gate))

    def asks(self, path: str) -> bool:
        """True if a gate of a budget is open at this path."""
        return path in self._asking

    def answered(self, event: ev.GateAnswered) -> None:
        """Go on with the launch, or let the attempt fail."""
        machine = self.machine
        node, launch, breach = self._asking.pop(event.path)
        machine.gates.pop(event.path, None)
        node.budget_gate = ""
        if node.phase is not Phase.PAUSED or node.stop is not None:
            return
        if event.answer != ALLOW:
            self._fail(node, launch, breach)
            return
        raised = ev.BudgetRaised(node.path, breach.scope.path)
        self.take(raised)
        machine.record(raised)
        machine.launches.go(node, launch)

    def refused(self, report: cmd.GateRefused) -> None:
        """Whoever was to answer could not: the attempt fails with that."""
        node, _, _ = self._asking.pop(report.path)
        self.machine.gates.pop(report.path, None)
        node.budget_gate = ""
        self.machine.fail_with(node, report.error)

    def stopped(self, node: Node) -> None:
        """Close the gate of a step that was stopped."""
        self._asking.pop(node.budget_gate, None)
        self.machine.gates.pop(node.budget_gate, None)

    # -- after a launch -------------------------------------------------------------------------

    def settle(self, node: Node, usage: Usage | None, took_s: float = 0.0) -> None:
        """Put what the launch used in the place of what was reserved, and warn if it is much."""
        event = ev.BudgetSettled(node.path, node.reserved, usage, took_s)
        node.reserved = 0
        self.ledger.settled(event)
        self.machine.record(event)
        for scope in self.scopes(node):
            self._at_work.get(scope.path, set()).discard(node.path)
            self._warn(node, scope)
        self._let_go()

    def settle_total(self, node: Node, total: Usage | None) -> None:
        """The same, where what is known is the sum with the launches before."""
        before = node.launch_spent
        self.settle(node, total if total is None or before is None else _own(total, before))

    def _warn(self, node: Node, scope: Scope) -> None:
        budget, spent = scope.budget, self.ledger.of(scope.path)
        for name, bound, used in _bounds(budget, spent, self.machine.now - scope.since):
            limit = self._limit(scope, bound)
            self._warn_once(node, scope, name, used, limit, due=used >= budget.soft * limit)
        if budget.tokens is not None:
            unknown = spent.unknown_tokens
            self._warn_once(node, scope, "unknown_tokens", unknown, 0, due=unknown > 0)
        if budget.usd is not None:
            unknown = spent.unknown_usd
            self._warn_once(node, scope, "unknown_usd", unknown, 0, due=unknown > 0)

    def _warn_once(
        self, node: Node, scope: Scope, name: str, used: float, limit: float, *, due: bool
    ) -> None:
        key = (scope.path, name, self._raised.get(scope.path, 0))
        if due and key not in self._warned:
            self._warned.add(key)
            self.machine.record(ev.BudgetWarning(node.path, scope.path, name, used, limit))


def _own(total: Usage, before: Usage) -> Usage:
    """What one launch used, of sums; a sum that did not change says nothing of it."""
    own = total.since(before)
    known = {
        name: None if getattr(total, name) == getattr(before, name) else getattr(own, name)
        for name in _COUNTED
    }
    return Usage(**known, cost_source=own.cost_source)


_COUNTED = tuple(field.name for field in fields(Usage) if field.name != "cost_source")


def _bounds(budget: Budget, spent: Spent, wall_s: float) -> Iterator[tuple[str, float, float]]:
    """Each bound that is set, by name, with how much of it is used."""
    for name, bound, used in (
        ("launches", budget.launches, spent.launches),
        ("tokens", budget.tokens, spent.tokens),
        ("usd", budget.usd, spent.usd),
        ("wall_s", budget.wall_s, wall_s),
    ):
        if bound is not None:
            yield name, bound, used
