"""Finds in the code what can be undone of steps whose ends are taken from the record.

A recorded end needs no code. A rollback is a function, and only what yielded its step knows it; so
what holds such steps is gone through once more: groups by their members, bodies against the record.
Nothing begins by that, nothing is waited for or recorded, and no end is decided again: what the
record does not lead to is left alone.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Generator, Iterable, Mapping, Sized
from typing import Any, TypeAlias, TypeGuard

from handrail.core import commands as cmd
from handrail.core.changes import item_changed, step_changed
from handrail.core.failing import failed_result, failure_on_record
from handrail.core.generators import call, close
from handrail.core.items import Items, function_of, is_body, keyed
from handrail.core.nodes import Node, Phase, RollbackEntry
from handrail.core.run_state import RunState
from handrail.core.visible import VisibleResults
from handrail.errors import RunCancelled
from handrail.model.outcome import RAISED, YIELDED, resume
from handrail.model.paths import attempt_base, join
from handrail.model.results import StepFailed, StepResult
from handrail.record.outputs import derive, resolve
from handrail.record.run_record import PathRecord
from handrail.steps.verbs import (
    Branching,
    ChildWorkflow,
    ForEachGroup,
    ParallelGroup,
    RaceGroup,
    ScopedBody,
    Step,
    Validation,
)

Inputs: TypeAlias = Mapping[str, Any]
Walk: TypeAlias = Generator[Any, Any, None]
"""Yields a walk to be taken first, or ``AskFallback`` to be answered by ``Evaluated``."""


def find_compensations(
    run: RunState,
    node: Node,
    walk: Callable[[CompensationSearch], Walk],
    then: Callable[[], None],
) -> None:
    """Give the node the rollbacks that the walk finds below it, then go on."""
    due = run.recorded.to_undo(node.path)
    if not due:
        then()
        return
    search = CompensationSearch(run, node, due, then)
    node.phase = Phase.SEARCHING
    search.begin(walk(search))


class CompensationSearch:
    """Looks for the rollbacks of these paths, in the order in which they were registered. Mutable.

    ``found``: those that are still in the code. Where it has changed so that it does not lead to a
    step any more, that step's is not among them.
    """

    def __init__(
        self, run: RunState, node: Node, due: Iterable[str], then: Callable[[], None]
    ) -> None:
        self.run = run
        self.recorded = run.recorded
        self.found: list[RollbackEntry] = []
        self._node, self._then = node, then
        self._due = set(due)
        self._leading_to = set(self._due)
        """The paths that are due, and all that they stand in."""
        self._below: dict[str, int] = {}
        """How many of these stand just below this one, or below an attempt of one."""
        self._walks: list[Walk] = []
        self._results: dict[str, StepResult[Any]] = {}
        """Of the steps that have been reached: what a handler may have seen."""
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

    def begin(self, walk: Walk) -> None:
        """Take the walk, as far as nobody needs to be asked."""
        self._walks.append(walk)
        self._advance(None)

    def answer(self, report: cmd.Evaluated) -> None:
        """Take it further, with the answer to what it asked."""
        self._advance(report)

    def _advance(self, report: cmd.Evaluated | None) -> None:
        run, node = self.run, self._node
        asks = self._next_question(report)
        if run.changes and not run.rehearses:
            self.close()  # the drive ends here: see ``changes.note_change``
            return
        if asks is not None:
            run.searches[asks.path] = self
            run.emit(asks)
            return
        node.phase = Phase.RUNNING
        if self.found:
            node.rollbacks = [*(node.rollbacks or ()), *self.found]
        self._then()

    def _next_question(self, report: cmd.Evaluated | None) -> cmd.AskFallback | None:
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
        """Close the bodies that it stands in."""
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
            self.found.append((path, rollback, self.run.view_of(path, inputs)))

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
        elif isinstance(verb, ScopedBody):  # nothing, if it has run
            yield self._body(base, verb.body, inputs)
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
                    item_changed(self.run, member, item)
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
            generator = call(definition, inputs)
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
            self.run.escaped = given

    def _end_of(self, path: str, step: Step[Any]) -> StepResult[Any] | None:
        """The recorded end of a step that a body yields, made good; None if there is none."""
        run, recorded = self.run, self.recorded
        if recorded.at(path).end is None:
            return None
        resolve(recorded, path, step, run.codec)
        derive(recorded, path, run.setting.run_id)
        end = recorded.at(path).end
        if end is not None and end.success:
            step_changed(run, path, step)
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
        results = ChainMap(self._results, self.run.results)
        concurrent = self.run.concurrent | self._concurrent
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
