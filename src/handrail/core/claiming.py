"""What composites hold while what is below them runs: asked for before they begin, in each attempt.

A leaf needs nothing of this: what it holds is in its ``Perform``, and the engine has it held by
then. In a resume what is on record below a step is gone through without the claim, which went with
the process; what lies beyond it waits.
"""

from __future__ import annotations

from handrail.core import commands as cmd
from handrail.core.failing import fail_with
from handrail.core.failures import failure_of
from handrail.core.nodes import Phase
from handrail.core.run_state import CompositeNode, RunState, Stop
from handrail.core.steering import go_on_with_held, waits_for_claim_above
from handrail.steps.verbs import wanted_by


def begin_claimed(run: RunState, node: CompositeNode) -> None:
    """Begin an attempt, once the step has what it holds meanwhile."""
    if wanted_by(node.step) is None:
        node.begin(run)
        return
    run.unclaimed[node.path] = node
    run.look_at_each()
    if run.rehearses and _was_entered(run, node):
        node.begin(run)
    else:
        node.asking = True
    if run.nodes.get(node.path) is node and node.phase is not Phase.ENDING:
        _ask(run)


def claim_answered(run: RunState, node: CompositeNode, report: cmd.Evaluated) -> None:
    """Go on with what the step holds now; or fail it, if it cannot have that."""
    waits_to_begin, node.asking = node.asking, False
    del run.unclaimed[node.path]
    if report.error is None:
        run.look_at_each()
        _ask(run)
        go_on_with_held(run)
        if waits_to_begin:
            node.begin(run)
    elif waits_to_begin:
        fail_with(run, node, report.error)
    else:  # what is below it has begun in an earlier drive
        node.failure, node.overdue = failure_of(report.error), True
        run.push(Stop(node, str(report.error)))


def _was_entered(run: RunState, node: CompositeNode) -> bool:
    """True if an earlier drive was in this attempt of the step."""
    recorded = run.recorded
    return any(recorded.at(one).attempt == node.attempt for one in recorded.children(node.path))


def _ask(run: RunState) -> None:
    """Ask for what is wanted: of steps in one another the outer one is first."""
    for path, node in run.unclaimed.items():
        if path not in run.claimed and not waits_for_claim_above(run, node):
            wanted = wanted_by(node.step)
            assert wanted is not None
            run.claimed.add(path)
            run.emit(cmd.Claim(path, wanted))
