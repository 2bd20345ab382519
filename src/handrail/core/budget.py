"""Keeps the launches of agents within their budgets: reserves, settles, warns, and refuses.

A budget belongs to a step (an agent, a group, a child workflow) or to the run. Before a launch each
budget above it is checked, innermost first. What the launch may use is recorded as reserved; what
it used is recorded as settled; ``core.launches`` asks for both. ``model.policy.Budget`` says what a
breach does.
"""

from __future__ import annotations

from collections.abc import Iterator

from handrail.core import commands as cmd
from handrail.core.failing import fail, fail_with
from handrail.core.failures import failure_of
from handrail.core.ledger import UNKNOWN, Breach, Scope, ScopeSums
from handrail.core.nodes import Node, Phase, nearest_deadline
from handrail.core.run_state import AgentNode, RunState, StepNode
from handrail.errors import BudgetExceeded
from handrail.model import events as ev
from handrail.model.launch import Launch
from handrail.model.paths import budget_gate
from handrail.model.policy import Budget
from handrail.model.results import OpenGate, Usage, own_usage
from handrail.steps.verbs import wanted_by

STOP, ALLOW = "stop", "allow"


# -- before a launch -------------------------------------------------------------------------------


def scopes_above(run: RunState, node: Node) -> tuple[Scope, ...]:
    """The budgets that bound a launch of this node, innermost first."""
    scopes: list[Scope] = []
    above: Node | None = node
    while above is not None:
        if isinstance(above, StepNode) and above.step.modifiers.budget is not None:
            scopes.append(Scope(above.path, above.step.modifiers.budget, above.started_at))
        above = above.parent
    if run.limits.budget is not None:
        scopes.append(Scope("", run.limits.budget, run.started_at))
    return tuple(scopes)


def queue_launch(run: RunState, node: AgentNode, launch: Launch, *, interrupted: bool) -> bool:
    """Note the launch as the node's next; True if a budget bounds it, so that it is queued.

    ``Granted`` will say when its turn has come.
    """
    node.phase = Phase.RUNNING
    node.pending = None
    node.launched = launch.number
    node.reasks = launch.reasks
    if not node.step.verb.launches_agent() or not scopes_above(run, node):
        return False
    wanted = wanted_by(node.step)
    run.emit(cmd.Queue(node.path, node.step, node.attempt, launch, interrupted, wanted))
    return True


def breach_of(run: RunState, node: AgentNode, scopes: tuple[Scope, ...]) -> Breach | None:
    """The bound that the node's next launch would pass; None if there is room for it."""
    refused = run.answered.get(_question_of(run, node))
    if refused is not None and refused.answer == STOP:
        return _refusal(run, scopes[0])
    count = node.step.verb.launch_count()
    return next(filter(None, (_breach(run, scope, count) for scope in scopes)), None)


def defer_unmeasured(
    run: RunState, node: AgentNode, launch: Launch, scopes: tuple[Scope, ...], *, interrupted: bool
) -> bool:
    """Defer the launch, and return True, while a first launch must show what one uses.

    This is for a bound on tokens or dollars that has no share to reserve. Otherwise a group could
    start all its members at once, and the bound would keep none of them.
    """
    for scope in scopes:
        if run.budgets.at_work.get(scope.path) and _is_unmeasured(run, scope):
            _warn_once(run, node, scope, "first_launch", 1, 0)
            node.phase = Phase.PAUSED
            run.budgets.deferred.append((node.path, launch, interrupted))
            return True
    return False


def _is_unmeasured(run: RunState, scope: Scope) -> bool:
    budget, sums = scope.budget, run.budgets.ledger.of(scope.path)
    if sums.ended_launches:
        return False
    return (budget.tokens is not None and budget.reserve_tokens is None) or (
        budget.usd is not None and budget.reserve_usd is None
    )


def reserve(run: RunState, node: AgentNode, launch: Launch, scopes: tuple[Scope, ...]) -> None:
    """Reserve the launch's share in each budget above it."""
    for scope in scopes:
        run.budgets.at_work.setdefault(scope.path, set()).add(node.path)
    count = node.step.verb.launch_count()
    shares = [_share_of(run, scope, count) for scope in scopes]
    tokens = max((tokens or 0 for tokens, _ in shares), default=0)
    usd = max((usd or 0.0 for _, usd in shares), default=0.0)
    node.reserved = launch.number
    node.launch_spent = launch.spent
    event = ev.BudgetReserved(node.path, launch.number, tokens or None, usd or None, count)
    run.budgets.ledger.reserve(event)
    run.record(event)


def deadline_of(run: RunState, scopes: tuple[Scope, ...]) -> cmd.Deadline | None:
    """When a budget of wall time stops a launch, and with which error; None for never."""
    deadline: cmd.Deadline | None = None
    for scope in scopes:
        if scope.budget.wall_s is None or scope.budget.on_breach != "fail":
            continue
        limit = _limit(run, scope, "wall_s", scope.budget.wall_s)
        due = scope.since + limit
        if deadline is None or due < deadline.due:
            error = BudgetExceeded(scope.path, "wall_s", limit, limit)
            deadline = cmd.Deadline(due, error)
    return deadline


def _limit(run: RunState, scope: Scope, name: str, bound: float) -> float:
    return bound * (1 + run.budgets.times(scope.path, name))


def _share_of(run: RunState, scope: Scope, count: int) -> tuple[int | None, float | None]:
    """The tokens and dollars to reserve for launches; None where the budget has no bound."""
    budget, sums = scope.budget, run.budgets.ledger.of(scope.path)
    tokens = usd = None
    if budget.tokens is not None:
        tokens = (budget.reserve_tokens or sums.most_tokens) * count
    if budget.usd is not None:
        usd = (budget.reserve_usd or sums.most_usd) * count
    return tokens, usd


def _breach(run: RunState, scope: Scope, count: int) -> Breach | None:
    tokens, usd = _share_of(run, scope, count)
    more = {"launches": count, "tokens": tokens or 0, "usd": usd or 0}
    for name, bound, used in _bounds(run, scope):
        limit, wanted = _limit(run, scope, name, bound), more.get(name, 0)
        if used >= limit or used + wanted > limit:
            return Breach(
                scope, name, used, limit, 0 if (name, wanted) == ("launches", 1) else wanted
            )
    return None


# -- breaches --------------------------------------------------------------------------------------


def refuse(run: RunState, node: AgentNode, launch: Launch, breach: Breach) -> None:
    """Carry out what the budget says about a launch that it has no room for."""
    policy = "ask" if breach.name == UNKNOWN else breach.scope.budget.on_breach
    match "fail" if breach.refused else policy:
        case "fail":
            _fail(run, node, launch, breach)
        case "suspend":
            advice = f"{breach.error} Raise it, then resume the run."
            node.phase = Phase.RUNNING
            run.record(
                ev.LadderStep(node.path, node.attempt, "budget", advice, launch, parked=True)
            )
        case "ask":
            _ask_for_more(run, node, launch, breach)


def _fail(run: RunState, node: AgentNode, launch: Launch, breach: Breach) -> None:
    failure = failure_of(breach.error, retryable=False)
    failure.usage = launch.spent
    fail(run, node, failure)


def _question_of(run: RunState, node: AgentNode) -> str:
    """The path of the gate that asks whether the node's next launch may be made."""
    return budget_gate(node.path, run.budgets.allowed.get(node.path, 0) + 1)


def _refusal(run: RunState, scope: Scope) -> Breach:
    """The breach that a person refused to allow: the bound of which most is used."""
    name, bound, used = max(_bounds(run, scope), key=lambda bound: bound[2] / bound[1])
    return Breach(scope, name, used, _limit(run, scope, name, bound), 0, refused=True)


def _ask_for_more(run: RunState, node: AgentNode, launch: Launch, breach: Breach) -> None:
    path = _question_of(run, node)
    run.budgets.asking[path] = (node.path, launch, breach)
    node.phase = Phase.PAUSED
    node.budget_gate = path
    answered = run.answered.get(path)
    if answered is not None:
        budget_answered(run, answered)
        return
    question = f"{breach.error} Allow as much again?"
    known = run.recorded.gate(path, 1)
    since = run.now if known is None else known.since
    revision = run.revisions.get(path, 0) + 1 if known is None else known.opening
    run.revisions[path] = revision
    deadline = nearest_deadline(node, run.timers)
    gate = OpenGate(path, question, (STOP, ALLOW), str, since, deadline, opening=revision)
    run.gates[path] = gate
    run.record(ev.GateOpened(path, gate))
    run.emit(cmd.Ask(path, gate))


def budget_answered(run: RunState, event: ev.GateAnswered) -> bool:
    """Queue the launch, or fail the attempt; False if no budget asks at this path."""
    asked = run.budgets.asking.pop(event.path, None)
    if asked is None:
        return False
    path, launch, breach = asked
    node = _close_gate(run, path, event.path)
    if node is None or node.phase is not Phase.PAUSED or node.stop is not None:
        return True
    if event.answer != ALLOW:
        _fail(run, node, launch, breach)
        return True
    name = UNKNOWN if breach.name == UNKNOWN else ""
    raised = ev.BudgetRaised(node.path, breach.scope.path, name)
    run.budgets.count(raised)
    run.record(raised)
    queue_launch(run, node, launch, interrupted=False)
    return True


def budget_refused(run: RunState, report: cmd.GateRefused) -> bool:
    """Fail the attempt with why the gate got no answer; False if no budget asks at this path."""
    asked = run.budgets.asking.pop(report.path, None)
    if asked is None:
        return False
    node = _close_gate(run, asked[0], report.path)
    if node is not None:
        fail_with(run, node, report.error)
    return True


def close_budget_gate(run: RunState, node: AgentNode) -> None:
    """Close the gate of a step that was stopped."""
    run.budgets.asking.pop(node.budget_gate, None)
    run.gates.pop(node.budget_gate, None)


def _close_gate(run: RunState, path: str, gate: str) -> AgentNode | None:
    run.gates.pop(gate, None)
    node = run.nodes.get(path)
    if not isinstance(node, AgentNode):
        return None
    node.budget_gate = ""
    return node


# -- after a launch --------------------------------------------------------------------------------


def settle(
    run: RunState, node: AgentNode, usage: Usage | None, took_s: float = 0.0, *, unmade: int = 0
) -> None:
    """Replace the reservation by the launch's usage, warn if it is much, queue deferred ones.

    ``unmade``: how many of the launches that were reserved were not made.
    """
    event = ev.BudgetSettled(node.path, node.reserved, usage, took_s, unmade)
    node.reserved = 0
    run.budgets.ledger.settle(event)
    run.record(event)
    for scope in scopes_above(run, node):
        run.budgets.at_work.get(scope.path, set()).discard(node.path)
        _warn(run, node, scope)
    _launch_deferred(run)


def settle_total(
    run: RunState,
    node: AgentNode,
    total: Usage | None,
    took_s: float = 0.0,
    *,
    asked: bool = True,
) -> None:
    """``settle``, where only the sum with the usage of the launches before is known.

    ``asked``: its agent's program or API was asked, or may have been.
    """
    before = node.launch_spent
    used = total if total is None or before is None else own_usage(total, before)
    unmade = 0 if asked or used is not None else node.step.verb.launch_count()
    settle(run, node, used, took_s, unmade=unmade)


def _launch_deferred(run: RunState) -> None:
    """Queue the launches that waited for a first one to end."""
    deferred, run.budgets.deferred = run.budgets.deferred, []
    for path, launch, interrupted in deferred:
        node = run.nodes.get(path)
        if isinstance(node, AgentNode) and node.phase is Phase.PAUSED and node.stop is None:
            queue_launch(run, node, launch, interrupted=interrupted)


def _warn(run: RunState, node: AgentNode, scope: Scope) -> None:
    budget, sums = scope.budget, run.budgets.ledger.of(scope.path)
    for name, bound, used in _bounds(run, scope):
        limit = _limit(run, scope, name, bound)
        if used >= budget.soft * limit and name != UNKNOWN:  # that one's warnings are below
            _warn_once(run, node, scope, name, used, limit)
    if budget.tokens is not None and sums.unknown_tokens:
        _warn_once(run, node, scope, "unknown_tokens", sums.unknown_tokens, 0)
    if budget.usd is not None and sums.unknown_usd:
        _warn_once(run, node, scope, "unknown_usd", sums.unknown_usd, 0)


def _warn_once(  # noqa: PLR0917  # the fields of one warning
    run: RunState, node: AgentNode, scope: Scope, name: str, used: float, limit: float
) -> None:
    key = (scope.path, name, run.budgets.times(scope.path, name))
    if key not in run.budgets.warned:
        run.budgets.warned.add(key)
        run.record(ev.BudgetWarning(node.path, scope.path, name, used, limit))


def _bounds(run: RunState, scope: Scope) -> Iterator[tuple[str, float, float]]:
    """The name and value of each bound that is set, with how much of it is used."""
    budget: Budget = scope.budget
    sums: ScopeSums = run.budgets.ledger.of(scope.path)
    for name, bound, used in (
        ("launches", budget.launches, sums.launches),
        ("tokens", budget.tokens, sums.tokens),
        ("usd", budget.usd, sums.usd),
        ("wall_s", budget.wall_s, run.now - scope.since),
        (UNKNOWN, budget.unknown, _unknown(budget, sums)),
    ):
        if bound is not None:
            yield name, bound, used


def _unknown(budget: Budget, sums: ScopeSums) -> int:
    """How many launches did not report the usage that the budget bounds."""
    unknown: list[int] = []
    if budget.tokens is not None:
        unknown.append(sums.unknown_tokens)
    if budget.usd is not None:
        unknown.append(sums.unknown_usd)
    return min(unknown, default=0)
