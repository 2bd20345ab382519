"""Keeps out steps that would exceed a limit of the run: the run fails, or asks for more.

The question belongs to the run, not to a step: all steps without room wait for one answer. How
often a limit was raised follows from the recorded answers.
"""

from __future__ import annotations

from handrail.core import commands as cmd
from handrail.core.budget import ALLOW, STOP
from handrail.core.ending import hit_limit
from handrail.core.nodes import cleans_up
from handrail.core.run_state import Open, RunState, StepNode
from handrail.errors import LimitExceeded
from handrail.model import events as ev
from handrail.model.described import line_of
from handrail.model.paths import limit_gate
from handrail.model.results import OpenGate


def let_in(run: RunState, node: StepNode) -> bool:
    """Let a step begin, and return True; else end the run, or ask whether to raise the limit."""
    if run.was_let_in(node.path):
        return True
    if run.limits.max_steps is not None:
        run.admitted_count += 1
    exceeded = _exceeded_limit(run, node)
    if exceeded is None:
        return True
    name, limit, why = exceeded
    if run.limits.on_breach == "ask" and not cleans_up(node.parent):
        _wait_for_room(run, node, name, limit, why)
    else:
        _hit(run, node, name, limit, why)
    return False


def _exceeded_limit(run: RunState, node: StepNode) -> tuple[str, float, str] | None:
    """The limit that the step exceeds: its name, its raised value, and a detail for the message."""
    limits, parent = run.limits, node.parent
    most = limits.max_steps
    if most is not None and run.admitted_count > most * _times(run, "max_steps"):
        return "max_steps", most * _times(run, "max_steps"), ""
    visits = limits.max_visits
    if visits is not None and parent is not None and parent.generator is not None:
        line = line_of(parent.generator)
        seen, visits = run.visits.get((parent.path, line), 0), visits * _times(run, "max_visits")
        if seen > visits:
            return "max_visits", visits, f"{line} yielded {seen} steps"
    if limits.timeout_s is not None and limits.on_breach == "ask" and not cleans_up(parent):
        timeout_s = limits.timeout_s * _times(run, "timeout_s")
        if run.now >= run.started_at + timeout_s:
            return "timeout_s", timeout_s, ""
    return None


def _times(run: RunState, name: str) -> int:
    """The factor on a limit: 1, and 1 more for each recorded answer that allowed it again."""
    times = 1
    while (answered := run.answered.get(limit_gate(name, times))) and answered.answer == ALLOW:
        times += 1
    return times


def _hit(run: RunState, node: StepNode, name: str, limit: float, why: str = "") -> None:
    hit_limit(run, name, limit, "" if name == "timeout_s" else node.path, why)


# -- the question ----------------------------------------------------------------------------------


def _wait_for_room(run: RunState, node: StepNode, name: str, limit: float, why: str) -> None:
    path = limit_gate(name, _times(run, name))
    if path in run.answered:  # the answer was no
        _hit(run, node, name, limit, why)
        return
    if run.limits.max_steps is not None:
        run.admitted_count -= 1  # the step is checked again after the answer
    run.over_limit.setdefault(path, {})[node.path] = node, name, limit, why
    if path in run.gates or run.timers_frozen:
        return
    known = run.recorded.questions.get(path)
    why = why or f"at step {node.path!r}"
    gate = known or OpenGate(
        path,
        f"{LimitExceeded(name, limit, why).what} Allow as much again?",
        (STOP, ALLOW),
        str,
        run.now,
        opening=1,
    )
    run.gates[path] = gate
    run.record(ev.GateOpened(path, gate))
    run.emit(cmd.Ask(path, gate))


def limit_answered(run: RunState, event: ev.GateAnswered) -> bool:
    """Open the steps that waited for room, or end the run; False if no limit asks at this path."""
    steps = run.over_limit.pop(event.path, None)
    if steps is None:
        return False
    run.gates.pop(event.path, None)
    if event.answer == ALLOW:
        for node, *_ in reversed(steps.values()):
            run.push(Open(node))
    else:
        _hit(run, *next(iter(steps.values())))
    return True


def limit_refused(run: RunState, report: cmd.GateRefused) -> bool:
    """End the run, since the question cannot be answered; False if no limit asks at this path."""
    steps = run.over_limit.pop(report.path, None)
    if steps is None:
        return False
    run.gates.pop(report.path, None)
    node, name, limit, _ = next(iter(steps.values()))
    _hit(run, node, name, limit, str(report.error))
    return True


def stop_asking(run: RunState, path: str) -> None:
    """Forget a stopped step that waited for room; close the question if no other step waits."""
    for gate, steps in list(run.over_limit.items()):
        if steps.pop(path, None) is not None and not steps:
            del run.over_limit[gate]
            run.gates.pop(gate, None)
