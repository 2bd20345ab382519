"""Drives the generators of bodies: what they are given, and what becomes of what they yield."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from handrail.core.bodies import close
from handrail.core.mistakes import not_a_step
from handrail.core.node import Node
from handrail.errors import DuplicateStepName, RunCancelled, StepFailed
from handrail.model.described import line_of
from handrail.model.outcome import RETURNED, YIELDED, resume
from handrail.model.results import StepResult
from handrail.steps.verbs import PLAIN, Step, is_simple

if TYPE_CHECKING:
    from handrail.core.machine import Machine


class Driving:
    """Goes on with the body of a node, as far as that needs nothing from outside. Mutable."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._begins_at_once = machine.setting.recorded is None and machine.limits.max_steps is None
        """A plain leaf needs no look at the record, nor at how many steps there were."""
        self._visits: dict[tuple[str, str], int] = {}

    def enter(self, node: Node, generator: Generator[Any, Any, Any]) -> None:
        """Drive this generator as the node's body, from its beginning."""
        node.generator = generator
        node.yields = 0
        self.machine.later(self.advance, node, None, None)

    def go_on(self, node: Node, result: StepResult[Any]) -> None:
        """Give the body the result of the step that it yielded, as its stop allows."""
        if node.stop is not None and not node.unwinding:
            self.unwind(node)
        elif node.hard:
            self._close(node)
        elif result.success:
            self.advance(node, result.output, None)
        elif result.status == "cancelled":
            self.advance(node, None, RunCancelled(result.error or "cancelled"))
        else:
            self.advance(node, None, StepFailed(result))

    def unwind(self, node: Node) -> None:
        """Throw RunCancelled, once; what the generator yields from now on is clean-up."""
        if node.hard:
            self._close(node)
            return
        node.unwinding = True
        self.advance(node, None, RunCancelled(node.stop or "cancelled"))

    def _close(self, node: Node) -> None:
        generator = node.generator
        assert generator is not None
        error = close(generator)
        self.machine.body_ended(node, None, error)

    def advance(self, node: Node, value: Any, error: BaseException | None) -> None:
        """Send the body a value, or throw this into it; then take what it yields, or its end."""
        generator = node.generator
        assert generator is not None
        what, given = resume(generator, value, error)
        while what == YIELDED:
            taken = self._yielded(node, generator, given)
            if taken is None:
                return
            what, given = resume(generator, taken.output)
        if what == RETURNED:
            self.machine.body_ended(node, given, None)
        else:
            self.machine.body_ended(node, None, given)

    def _yielded(
        self, node: Node, generator: Generator[Any, Any, Any], step: Step[Any]
    ) -> StepResult[Any] | None:
        """Open the step; or give its result, if that was recorded and the body just goes on."""
        machine = self.machine
        if type(step) is not Step:
            machine.mistake(not_a_step(step, line_of(generator)))
            return None
        base = node.path if node.attempt < 2 else node.base
        path = f"{base}/{step.name}" if base else step.name
        seen = node.seen
        if seen is None:
            seen = node.seen = machine.tree[node.path] = {}
        if path in seen:
            machine.mistake(DuplicateStepName(path, line_of(generator), _UNIQUE))
            return None
        if machine.secrets and machine.names_a_secret(path, line_of(generator)):
            return None
        if machine.limits.max_visits is not None and not self._may_visit(node, generator, path):
            return None
        seen[path] = None
        modifiers = step.modifiers
        if (modifiers is PLAIN or is_simple(modifiers)) and step.verb.leaf and not node.unwinding:
            if self._begins_at_once:
                machine.begin_plain(node, step, path)
                return None
            taken = machine.replaying.replay_plain(node, step, path)
            if taken is not None:
                node.yields += 1
                return taken
        if node.unwinding and not node.timer:
            due = machine.now + machine.setting.cleanup_timeout_s
            node.timer = machine.wait(node, due)
        machine.open_child(node, step, path)
        return None

    def _may_visit(self, node: Node, generator: Generator[Any, Any, Any], path: str) -> bool:
        """Count visits by the line that yields: the loop guard, whatever names the loop makes."""
        limit = self.machine.limits.max_visits
        assert limit is not None
        place = (node.path, line_of(generator))
        visits = self._visits[place] = self._visits.get(place, 0) + 1
        if visits <= limit or self.machine.was_let_in(path):
            return True
        self.machine.hit_limit("max_visits", limit, path, f"{place[1]} yielded {visits} steps")
        return False


_UNIQUE = (
    "Names are unique within a workflow: rename one of the two, or in a loop number them, "
    'step(f"fix-{n}").'
)
