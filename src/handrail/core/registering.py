"""Finds in the code what can be undone of steps whose ends are taken from the record.

A recorded end needs no code. A rollback is a function, and only what yielded its step knows it; so
what holds such steps is gone through once more: groups by their members, bodies against the record.
Nothing begins by that, nothing is waited for or recorded, and no end is decided again: what the
record does not lead to is left alone.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Generator, Iterable, Mapping, Sized
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from handrail.core import commands as cmd
from handrail.core.bodies import close
from handrail.core.failing import failed_result, failure_on_record
from handrail.core.members import Items, function_of, is_body, keyed
from handrail.core.node import Node, Phase, RollbackEntry
from handrail.core.visible import VisibleResults
from handrail.errors import RunCancelled, StepFailed
from handrail.model.outcome import RAISED, YIELDED, resume
from handrail.model.paths import attempt_base, join
from handrail.model.results import StepResult
from handrail.record.outputs import compose, resolve
from handrail.record.run_record import PathRecord, Recorded
from handrail.steps.verbs import (
    Branching,
    ChildWorkflow,
    ForEachGroup,
    ParallelGroup,
    RaceGroup,
    Step,
    Validation,
)

if TYPE_CHECKING:
    from handrail.core.machine import Machine

Inputs: TypeAlias = Mapping[str, Any]
Walk: TypeAlias = Generator[Any, Any, None]
"""Yields a walk to be taken first, or ``AskFallback`` to be answered by ``Evaluated``."""


class Registering:
    """Has the rollbacks below nodes found; some have to be asked for. Mutable."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._asked: dict[str, tuple[Node, Finding, Callable[[], None]]] = {}

    def register(
        self, node: Node, walk: Callable[[Finding], Walk], then: Callable[[], None]
    ) -> None:
        """Give the node what the walk finds below it, then go on."""
        recorded = self.machine.setting.recorded
        assert recorded is not None
        due = recorded.to_undo(node.path)
        if not due:
            then()
            return
        finding = Finding(self.machine, recorded, due)
        node.phase = Phase.REGISTERING
        self._go_on(node, finding, then, finding.begin(walk(finding)))

    def close(self) -> None:
        """Close the bodies in which a question is open."""
        for _, finding, _ in self._asked.values():
            finding.close()
        self._asked.clear()

    def answered(self, report: cmd.Evaluated) -> bool:
        """True if this answers what was asked here; whoever waited for it goes on."""
        waiting = self._asked.pop(report.path, None)
        if waiting is None:
            return False
        node, finding, then = waiting
        self._go_on(node, finding, then, finding.go_on(report))
        return True

    def _go_on(
        self,
        node: Node,
        finding: Finding,
        then: Callable[[], None],
        asks: cmd.AskFallback | None,
    ) -> None:
        if self.machine.changes and not self.machine.rehearses:
            finding.close()  # the drive ends here: see ``Replaying.note_change``
            return
        if asks is not None:
            self._asked[asks.path] = (node, finding, then)
            self.machine.emit(asks)
            return
        node.phase = Phase.RUNNING
        if finding.found:
            node.rollbacks = [*(node.rollbacks or ()), *finding.found]
        then()


class Finding:
    """Looks for the rollbacks of these paths, in the order in which they were registered. Mutable.

    ``found``: those that are still in the code. Where it has changed so that it does not lead to a
    step any more, that step's is not among them.
    """

    def __init__(self, machine: Machine, recorded: Recorded, due: Iterable[str]) -> None:
        self.machine = machine
        self.recorded = recorded
        self.found: list[RollbackEntry] = []
        self._due = set(due)
        self._leading_to = set(self._due)
        """The paths that are due, and all that they stand in."""
        self._below: dict[str, int] = {}
        """How many of these stand just below this one, or below an attempt of one."""
        self._walks: list[Walk] = []
        self._results: dict[str, StepResult[Any]] = {}
        """Of the steps that have been come to: what a handler may have seen."""
        self._concurrent = set[str]()
        """The groups that are being gone through."""
        for path in self._due:
            self._lead_to(path)

    def _lead_to(self, path: str) -> None:
        base = path.rpartition("/")[0]
        while base:
            self._below[base] = self._below.get(base, 0) + 1
            path = self.recorded.home_of(path)
            if path in self._leading_to:
                return
            self._leading_to.add(path)
            base = path.rpartition("/")[0]

    def begin(self, walk: Walk) -> cmd.AskFallback | None:
        """Take the walk, as far as nobody needs to be asked; what is to be asked, if anything."""
        self._walks.append(walk)
        return self.go_on(None)

    def go_on(self, report: cmd.Evaluated | None) -> cmd.AskFallback | None:
        """The same, with the answer."""
        given = report
        while self._walks:
            try:
                wanted = self._walks[-1].send(given)
            except StopIteration:
                self._walks.pop()
                given = None
                continue
            given = None
            if isinstance(wanted, cmd.AskFallback):
                return wanted
            self._walks.append(wanted)
        return None

    def close(self) -> None:
        """Leave it at that."""
        while self._walks:
            self._walks.pop().close()

    # -- walks ----------------------------------------------------------------------------------

    def below(self, path: str, step: Step[Any], inputs: Inputs, kept: Items | None = None) -> Walk:
        """What the attempts of a step left that have ended; if it has, with that of its fallback.

        ``kept``: the items of a group that is not over.
        """
        record = self.recorded.at(path)
        made = max(record.attempts, 0 if record.end is None else record.end.attempts)
        if kept is None and isinstance(step.verb, ForEachGroup):
            kept = Items(step.verb.items, again=made > 1)
        for attempt in range(1, made + 1):
            base = attempt_base(path, attempt)
            if base in self._below:
                yield self._attempt(base, path, made, step, inputs, kept)
        if step.modifiers.on_error is not None and record.end is not None:
            yield self._fallback(path, made, step, inputs, record)

    def member(self, path: str, verb: ForEachGroup, value: Any, inputs: Inputs) -> Walk:
        """What a member of a group left."""
        try:
            made = function_of(verb)(value)
        except Exception:  # noqa: BLE001  # its record stands, whatever its body does now
            return
        if _is_step(made):
            yield self._step(f"{path}/{made.name}", made, inputs)
        elif is_body(made):
            yield self._body(path, made, inputs)

    def _step(self, path: str, step: Step[Any], inputs: Inputs) -> Walk:
        """What stands below a step, then its own."""
        yield self.below(path, step, inputs)
        rollback = step.modifiers.rollback
        if path in self._due and rollback is not None:
            self.found.append((path, rollback, self.machine.view_of(path, inputs)))

    def _attempt(  # noqa: PLR0917  # one thing: an attempt
        self,
        base: str,
        path: str,
        made: int,
        step: Step[Any],
        inputs: Inputs,
        items: Items | None,
    ) -> Walk:
        verb = step.verb
        held: Iterable[Step[Any]] = ()
        if isinstance(verb, (ParallelGroup, RaceGroup)):
            held = verb.steps
        elif isinstance(verb, Branching):
            held = [arm for _, arm in verb.arms]
        elif isinstance(verb, Validation) and verb.on_failure is not None:
            yield self._fixes(base, path, verb.on_failure, inputs)
        elif isinstance(verb, ForEachGroup):
            assert items is not None
            yield self._members(base, path, verb, inputs, items)
        elif isinstance(verb, ChildWorkflow):
            yield self._child(base, verb)
        self._concurrent.add(base)
        for one in held:
            below = f"{base}/{one.name}"
            if below in self._leading_to and self.recorded.at(below).attempt <= made:
                yield self._step(below, one, inputs)
        self._concurrent.discard(base)

    def _fixes(self, base: str, path: str, fix: Step[Any], inputs: Inputs) -> Walk:
        for known in self.recorded.children(path):
            number, _, name = known.removeprefix(f"{base}/").partition("/")
            if name == fix.name and number.isdigit() and known in self._leading_to:
                yield self._step(known, fix, inputs)

    def _members(  # one thing: the members of an attempt
        self, base: str, path: str, verb: ForEachGroup, inputs: Inputs, items: Items
    ) -> Walk:
        left = self._below[base]
        begun = [one for one in self.recorded.children(path) if one.startswith(f"{base}/")]
        last = max((self.recorded.at(one).index for one in begun), default=-1)
        ends = isinstance(verb.items, Sized)
        self._concurrent.add(base)
        try:
            for index, item in enumerate(items.from_first()):
                value, key = keyed(verb, item, index)
                member = f"{base}/{key}"
                if member in self._leading_to:
                    self.machine.replaying.item_changed(member, self.machine.digest(item))
                    yield self.member(member, verb, value, inputs)
                    left -= 1
                if not left or (index >= last and not ends):  # there may be no end of items
                    return
        except Exception:  # noqa: BLE001  # the user's iterator, or key function
            return
        finally:
            self._concurrent.discard(base)

    def _child(self, base: str, verb: ChildWorkflow) -> Walk:
        definition = verb.workflow.definition
        try:
            inputs = definition.bind(verb.args, verb.kwargs)
            generator = self.machine.call(definition, inputs)
        except Exception:  # noqa: BLE001  # its record stands, whatever the code does now
            return
        yield self._body(base, generator, inputs)

    def _body(self, base: str, generator: Generator[Any, Any, Any], inputs: Inputs) -> Walk:
        """Run a body against the record, as far as that leads."""
        seen = set[str]()
        given: Any
        what, given = resume(generator)
        try:
            while what == YIELDED and _is_step(given):
                step = given
                path = f"{base}/{step.name}"
                end = self._end_of(path, step)
                if end is None or path in seen:
                    break
                seen.add(path)
                if path in self._leading_to:
                    yield self._step(path, step, inputs)
                self._results.update(self.recorded.below(path))
                self._results[path] = end
                what, given = _sent(generator, end)
        finally:
            close(generator)
        if what == RAISED and isinstance(given, (KeyboardInterrupt, SystemExit)):
            self.machine.escaped = given

    def _end_of(self, path: str, step: Step[Any]) -> StepResult[Any] | None:
        """The recorded end of a step that a body yields, made good; None if there is none."""
        machine, recorded = self.machine, self.recorded
        if recorded.at(path).end is None:
            return None
        resolve(recorded, path, step, machine.codec)
        compose(recorded, path, machine.setting.run_id)
        end = recorded.at(path).end
        if end is not None and end.success:
            machine.replaying.changed(path, step)
        return end

    def _fallback(
        self, path: str, made: int, step: Step[Any], inputs: Inputs, record: PathRecord
    ) -> Walk:
        """The step that its handler gave, if what that left is due."""
        handler, failure = step.modifiers.on_error, record.failure
        recorded = self.recorded
        taken = [one for one in recorded.children(path) if recorded.at(one).attempt > made]
        if handler is None or failure is None or self._leading_to.isdisjoint(taken):
            return
        ms = max(0.0, (failure.at - (record.started_at or failure.at)) * 1000)
        failed = failed_result(step, path, failure_on_record(failure), failure.attempt, ms)
        self._results.update(recorded.below(path))
        view = self._view(path, inputs)
        report: cmd.Evaluated = yield cmd.AskFallback(path, handler, failed, view)
        chosen: Any = report.value
        if _is_step(chosen):
            below = join(path, chosen.name)
            if below in self._leading_to:
                yield self._step(below, chosen, inputs)

    def _view(self, path: str, inputs: Inputs) -> cmd.View:
        """What a handler could see when it was asked: nothing of what came later."""
        machine = self.machine
        results = ChainMap(self._results, machine.results)
        concurrent = machine.concurrent | self._concurrent
        return cmd.View(path, inputs, VisibleResults(results, concurrent, path), None)


def _is_step(given: object) -> TypeGuard[Step[Any]]:
    return type(given) is Step


def _sent(generator: Generator[Any, Any, Any], end: StepResult[Any]) -> tuple[int, Any]:
    """What the body does after a step of this end."""
    if end.success:
        return resume(generator, end.output)
    if end.status == "cancelled":
        return resume(generator, None, RunCancelled(end.error or "cancelled"))
    return resume(generator, None, StepFailed(end))
