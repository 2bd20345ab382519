"""Drives the generators of bodies: sends them results, and opens the steps that they yield."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from handrail.core import commands as cmd
from handrail.core.generators import close
from handrail.core.mistakes import not_a_step
from handrail.core.nodes import MemberNode, Node, Phase, RunNode
from handrail.core.run_state import BodyStepNode, EndBody, RunState, StepNode
from handrail.errors import DuplicateStepName, RunCancelled
from handrail.later import later
from handrail.model import events as ev
from handrail.model.dataclass import assembler
from handrail.model.described import line_of, warn_at
from handrail.model.outcome import RETURNED, YIELDED, resume
from handrail.model.results import StepFailed, StepResult
from handrail.steps.leaves import PythonCall
from handrail.steps.verbs import Step, take

if TYPE_CHECKING:
    from handrail.core import attempts, replaying
else:
    later(globals(), "core.attempts core.replaying")


_step_started = assembler(ev.StepStarted)
_NO = False
"""``rollback`` and ``cleanup`` of a plain step: it has no rollback, its body does not unwind."""
_UNIQUE = (
    "Names are unique within a workflow: rename one of the two, or in a loop number them, "
    'step(f"fix-{n}"). A helper can be called again in a scope: scope(f"round-{n}", helper()).'
)


MANY_VISITS = 1000
"""So often one place in a body may yield before a warning, if ``max_visits`` is not set."""


def _count_visits(run: RunState, node: Node, generator: Any) -> None:
    """Count how often each place in a long body yielded; warn, once, if one did too often."""
    frame, seen, places = generator.gi_frame, node.seen or {}, run.places.get(node.path)
    if places is None:
        places = run.places[node.path] = Counter(seen.values())
    places[frame.f_lasti] += 1
    if places[frame.f_lasti] < MANY_VISITS:
        return
    run.places[node.path] = None
    text = (
        f"{line_of(generator)}: {MANY_VISITS:,} steps were yielded here, as by a loop "
        f"without an end. Bound it with Limits(max_visits=...); then this warning does not come."
    )
    warn_at(text, frame.f_code, frame.f_lineno, frame.f_globals)


def go_on(run: RunState, node: Node, result: StepResult[Any]) -> None:
    """Resume the body with the result of its step; a stopped body is unwound or closed."""
    if node.stop is not None and not node.unwinding:
        unwind(run, node)
    elif node.hard:
        _close(run, node)
    elif result.success:
        advance(run, node, result.output)
    elif result.status == "cancelled":
        advance(run, node, None, RunCancelled(result.error or "cancelled"))
    else:
        advance(run, node, None, StepFailed(result))


def unwind(run: RunState, node: Node) -> None:
    """Throw RunCancelled, once: steps that the body yields from now on are clean-up."""
    if node.hard:
        _close(run, node)
        return
    assert isinstance(node, (RunNode, MemberNode, BodyStepNode))
    node.unwinding = True
    advance(run, node, None, RunCancelled(node.stop or "cancelled"))


def _close(run: RunState, node: Node) -> None:
    assert isinstance(node, (RunNode, MemberNode, BodyStepNode))
    assert node.generator is not None
    run.push(EndBody(node, None, close(node.generator)))


def advance(
    run: RunState, node: Node, value: Any = None, error: BaseException | None = None
) -> None:
    """Send the body a value, or throw the error into it; open the step it yields, or end it."""
    generator = node.generator
    assert generator is not None
    what, given = resume(generator, value, error)
    while what == YIELDED:
        taken = _yielded(run, node, generator, given)
        if taken is None:
            return
        what, given = resume(generator, taken.output)
    if what == RETURNED:
        run.push(EndBody(node, given, None))
    else:
        run.push(EndBody(node, None, given))


def _yielded(run: RunState, node: Node, generator: Any, step: Step[Any]) -> StepResult[Any] | None:
    """Open a yielded step; or return its recorded result, if the body can continue at once."""
    if type(step) is not Step:
        run.mistake(not_a_step(step, line_of(generator)))
        return None
    take(step)
    base = node.path if node.attempt < 2 else node.base
    path = f"{base}/{step.name}" if base else step.name
    seen = node.seen
    if seen is None:
        seen = node.seen = run.tree[node.path] = {}
    if path in seen:
        run.mistake(DuplicateStepName(path, line_of(generator), _UNIQUE))
        return None
    if run.secrets and run.refuse_secret_name(path, line_of(generator)):
        return None
    if run.limits.max_visits is not None:
        place = node.path, line_of(generator)
        run.visits[place] = run.visits.get(place, 0) + 1
    elif len(seen) >= MANY_VISITS - 1 and run.places.get(node.path, seen) is not None:
        _count_visits(run, node, generator)
    seen[path] = generator.gi_frame.f_lasti
    modifiers = step.modifiers
    if modifiers.simple and step.verb.leaf and not node.unwinding:
        if run.begins_at_once:
            child = run.add_child(node, step, path)
            if modifiers.when is None:
                begin_plain(run, child)
            else:
                child.asking = True
                view = run.view_of(path, child.inputs)
                run.out.append(cmd.AskPredicate(path, modifiers.when, view))
            return None
        taken = replaying.replay_plain(run, node, step, path)
        if taken is not None:
            node.yields += 1
            return taken
    if node.unwinding and not node.timer:
        node.timer = run.wait(node, run.now + run.setting.cleanup_timeout_s)
    run.open_child(node, step, path)
    return None


def begin_plain(run: RunState, node: StepNode, *, verdict: bool | None = None) -> None:
    """Start and attempt a simple leaf in one go; most steps take this path."""
    # fast road of attempts.open_step
    path, step = node.path, node.step
    verb = step.verb
    node.phase = Phase.RUNNING
    node.attempt = 1
    node.started_at = now = run.now
    fingerprint = "" if run.codec is None else run.fingerprint(step)
    once = step.modifiers.once
    begun = _step_started(
        "", 0, 0.0, path, verb.kind, fingerprint, verdict, "", node.index, _NO, once, None, _NO, _NO
    )
    run.out.append(cmd.Record(begun, once))
    if type(verb) is PythonCall:
        run.out.append(cmd.Perform(path, step, 1, now, None))
    else:
        attempts.perform(run, node, interrupted=False)
