"""Launches of agents: each attempt of an agent step may take several, one after the other.

A failed launch is a report, not an event. The core records what follows as a ``LadderStep``, and
acts on that once it is in the journal. The attempt fails only when the ladder has nothing left to
try.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, assert_never

from handrail.core import commands as cmd
from handrail.core.budget import (
    breach_of,
    deadline_of,
    defer_unmeasured,
    queue_launch,
    refuse,
    reserve,
    scopes_above,
    settle,
    settle_total,
)
from handrail.core.failing import fail_rather_than_repeat
from handrail.core.ladder import IN_A_NEW_SESSION, GiveUp, Next, Park, next_launch
from handrail.core.ledger import Scope
from handrail.core.nodes import Node, Phase
from handrail.core.run_state import AgentNode, MakeLaunch, RunState, StepNode
from handrail.core.steering import postpone_blocked
from handrail.model import events as ev
from handrail.model.launch import FIRST, NOT_READY, Launch
from handrail.model.results import A_PERSON, UNREPORTED, add_usage
from handrail.record.path_tree import PathState
from handrail.record.results import incident_of
from handrail.steps.verbs import wanted_by

_PROCESS_ENDED = "the process that was running it ended"


# -- launching -------------------------------------------------------------------------------------


def first_launch(run: RunState, node: AgentNode, *, interrupted: bool) -> None:
    """Make the first launch of an attempt."""
    if not node.launched:  # launches whose record is superseded count, too
        node.launched = run.recorded.launched.get(node.path, 0)
    node.ladder = ()
    node.spent_s = 0.0
    which = Launch(node.launched + 1, reasks=node.reasks, said=node.guidance)
    launch(run, node, which, interrupted=interrupted)


def launch_unless_paused(
    run: RunState, node: AgentNode, which: Launch, *, interrupted: bool = False
) -> None:
    """Make a launch that is not the first of its attempt; postpone it while the run is paused."""
    action = MakeLaunch(node, which, interrupted)
    if run.paused is None or not postpone_blocked(run, action):
        launch(run, node, which, interrupted=interrupted)


def launch(run: RunState, node: AgentNode, which: Launch, *, interrupted: bool = False) -> None:
    """Have the engine make this launch; under a budget, queue it first.

    It is postponed until every enclosing step has its claims.
    """
    if run.unclaimed and postpone_blocked(run, MakeLaunch(node, which, interrupted)):
        return
    if not queue_launch(run, node, which, interrupted=interrupted):
        _perform(run, node, which, (), interrupted=interrupted)


def granted(run: RunState, report: cmd.Granted) -> None:
    """Make a launch whose turn has come if its budgets have room; otherwise give its place back.

    Budgets are checked only now, so that what other launches used meanwhile counts, and a waiting
    launch reserves nothing.
    """
    node = _agent_at(run, report.path)
    if node is None or node.stop is not None:
        run.emit(cmd.Release(report.path))
        if node is not None:
            run.end_cancelled(node)
        return
    scopes = scopes_above(run, node)
    which, interrupted = report.launch, report.interrupted
    breach = breach_of(run, node, scopes)
    if breach is not None:
        run.emit(cmd.Release(report.path))  # first: its next attempt may ask for a place
        refuse(run, node, which, breach)
    elif defer_unmeasured(run, node, which, scopes, interrupted=interrupted):
        run.emit(cmd.Release(report.path))
    else:
        reserve(run, node, which, scopes)
        _perform(run, node, which, scopes, interrupted=interrupted)


def _perform(
    run: RunState, node: AgentNode, which: Launch, scopes: tuple[Scope, ...], *, interrupted: bool
) -> None:
    if run.guidance.waiting and node.step.verb.launches_agent():
        which = _with_guidance(run, node, which)
    node.at_work = which
    run.emit(
        cmd.Perform(
            node.path,
            node.step,
            node.attempt,
            node.started_at,
            run.view(node, validation_above(node)),
            interrupted,
            which,
            node.spent_s,
            deadline_of(run, scopes) if scopes else None,
            node.used,
            wanted_by(node.step),
            run.tree_of(node),
        )
    )


def _with_guidance(run: RunState, node: AgentNode, which: Launch) -> Launch:
    """The launch with the guidance that its agent was not given yet; records ``AgentGuided``."""
    sayings = run.guidance.for_launch(node.path)
    if not sayings:
        return which
    steered = (saying.event for saying in sayings)
    which = replace(which, guidance=(*which.guidance, *(event.value for event in steered)))
    by = tuple([saying.event.by or A_PERSON for saying in sayings])
    numbers = tuple([saying.number for saying in sayings])
    event = ev.AgentGuided(node.path, node.attempt, which, numbers, by)
    run.guidance.on_guided(event)
    node.ladder = (*node.ladder, event)
    node.guidance = (*which.said, *which.guidance)
    run.record(event)
    return which


def validation_above(node: Node) -> Any:
    """The rounds so far of the validation that a fix step belongs to; None for other steps."""
    above = node.parent
    while above is not None:
        validation = above.validation_so_far() if isinstance(above, StepNode) else None
        if validation is not None:
            return validation
        above = above.parent
    return None


def _agent_at(run: RunState, path: str) -> AgentNode | None:
    node = run.step_at(path)
    return node if isinstance(node, AgentNode) else None


# -- the ladder ------------------------------------------------------------------------------------


def launch_failed(run: RunState, report: cmd.LaunchFailed) -> None:
    """Record what follows: another rung of the ladder, or the failure of the attempt."""
    node = _agent_at(run, report.path)
    if node is None:
        return
    launch_over(run, node)
    if node.reserved:
        fault, count = report.fault, node.step.verb.launch_count()
        asked = fault.usage or fault.session not in {None, fault.launch.session}
        unmade = 0 if fault.judged else count - 1 if asked or fault.kind not in NOT_READY else count
        settle(run, node, fault.usage, report.took_s, unmade=unmade)
    if node.stop is not None:
        run.end_cancelled(node)
        return
    node.spent_s += report.took_s
    fault = report.fault
    seed = f"{run.setting.run_id}/{node.path}"
    chosen = (
        GiveUp()
        if node.step.modifiers.once  # it may have taken effect
        else next_launch(fault, node.rungs, run.now, seed)
    )
    match chosen:
        case Next(which, due, margin_s):
            why, is_parked = fault.reason, False
        case Park(why, which):
            due, margin_s, is_parked = 0.0, 0.0, True
        case GiveUp():
            run.record(report.failed)
            return
        case _:
            assert_never(chosen)
    due = due if due > run.now else 0.0
    whose = fault.backend, fault.session
    run.record(
        ev.LadderStep(
            node.path, node.attempt, fault.kind, why, which, due, *whose, is_parked, margin_s
        )
    )


def ladder_stepped(run: RunState, event: ev.LadderStep) -> None:
    """Carry out a journaled ladder step: launch, wait, or wait for a person."""
    run.incidents.append(incident_of(event))
    node = _agent_at(run, event.path)
    if node is None:
        return
    node.ladder = (*node.ladder, event)
    if node.stop is not None:
        run.end_cancelled(node)
    elif event.parked:
        node.phase = Phase.PAUSED
        run.parked[node.path] = event.error
    elif event.due > run.now:
        _wait_for_rung(run, node, event)
    else:
        launch_unless_paused(run, node, event.next)


def _wait_for_rung(run: RunState, node: AgentNode, event: ev.LadderStep) -> None:
    """Wait until the next launch is due; each drive records the timer."""
    reason: ev.TimerReason = "cap" if event.kind == "usage_cap" else "backoff"
    run.record(ev.TimerSet(node.path, event.due, reason, node.attempt))
    node.phase = Phase.PAUSED
    node.pending = event.next
    node.timer = run.wait(node, event.due)


# -- broken off ------------------------------------------------------------------------------------


def launch_over(run: RunState, node: AgentNode) -> None:
    """Note the end of a launch that is not replaced: the place kept for it is given back."""
    node.at_work = None
    if node.guided:
        node.guided = False
        run.emit(cmd.Release(node.path))


def replace_launch(run: RunState, node: AgentNode, report: cmd.Stopped) -> None:
    """Replace a launch that was broken off for guidance, in its session if it had opened one.

    Otherwise the replacement repeats the prompt and adds the guidance.
    """
    last, known = node.at_work or FIRST, report.launch
    node.at_work, node.guided = None, False
    if known is cmd.NOTHING_KNOWN and not report.abandoned:
        launch(run, node, last)  # it waited for its place, and had not begun
        return
    if node.reserved:
        settle_total(run, node, known.total, known.took_s)
    node.spent_s += known.took_s
    unheard = () if known.answered else last.guidance
    following = replace(
        last,
        number=last.number + 1,
        turn=last.turn + 1,
        spent=known.total or last.spent or (UNREPORTED if known.session else None),
        guidance=unheard,
        said=last.said if unheard else (*last.said, *last.guidance),
    )
    session = known.session or last.session
    if session is not None:
        following = replace(
            following,
            rung="guide",
            form=None,
            session=session,
            session_usage=add_usage(last.session_usage, known.own),
            backend=known.backend or last.backend,
            fresh=last.fresh or last.rung in IN_A_NEW_SESSION,
        )
    launch(run, node, following)


# -- resuming --------------------------------------------------------------------------------------


def resume_launches(run: RunState, node: AgentNode, record: PathState, launched: int) -> bool:
    """Continue an attempt whose ladder or session is recorded; False if neither is.

    ``launched`` is the number of the last launch, whether its record still counts or not.
    """
    node.launched = launched
    node.reasks = record.reasks
    attempt = record.attempts + 1
    ladder = tuple(step for step in record.ladder if step.attempt == attempt)
    session = record.session
    if record.failure is not None and record.failure.attempt >= attempt:
        return False
    if session is None and not ladder and record.interrupted_usage is None:
        return False
    node.attempt = attempt
    node.ladder = ladder
    last = ladder[-1] if ladder else None
    if session is None and isinstance(last, ev.LadderStep) and last.due > run.now:
        _wait_for_rung(run, node, last)
        return True
    if record.interrupted and fail_rather_than_repeat(run, node):
        return True
    first = replace(FIRST, reasks=node.reasks, said=node.guidance)
    base = last.next if last is not None else first
    broken_off = record.interrupted_usage
    base = replace(base, spent=add_usage(base.spent, broken_off))
    if session is not None:
        base = replace(
            base,
            rung="resume",
            form=None,
            session=session.session,
            backend=session.backend,
            reason=_PROCESS_ENDED,
            session_usage=add_usage(base.session_usage, broken_off),
            guidance=(),
            said=(*base.said, *base.guidance),
        )
    node.interrupted = False
    number = max(launched + 1, base.number)
    launch_unless_paused(run, node, replace(base, number=number), interrupted=record.interrupted)
    return True
