"""Retraces the code of a run along its record: begins no step, and decides no end again.

Bodies receive the recorded ends of the steps that they yield, and groups are retraced by their
members. Code that the record does not lead to is left alone. A subclass says what to look at on the
way: ``compensation`` looks for rollbacks, ``comparison`` for what has changed.
"""

from __future__ import annotations

import inspect
import itertools
from collections import ChainMap
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sized
from typing import Any, Literal, TypeAlias, TypeGuard

from handrail.core import commands as cmd
from handrail.core.commands import VisibleResults
from handrail.core.failing import failed_result, failure_on_record
from handrail.core.generators import call, close
from handrail.core.items import Items, is_body
from handrail.core.run_state import RunState
from handrail.errors import RunCancelled, StepTimeout
from handrail.model import outcome
from handrail.model.definition import bind_inputs
from handrail.model.described import line_of
from handrail.model.outcome import INTERRUPTED, INTERRUPTIONS, RAISED, RETURNED, YIELDED, resume
from handrail.model.paths import attempt_base, join
from handrail.model.results import StepFailed, StepResult, qualified
from handrail.record.outputs import derive, resolve
from handrail.record.path_tree import PathState
from handrail.record.work import RecordedTasks
from handrail.steps.bodies import (
    MAKE,
    MERGE,
    TREE_STEPS,
    ChildWorkflow,
    HeldBody,
    ScopedBody,
    TreeBody,
    Validation,
)
from handrail.steps.groups import Bodied, ForEachGroup, WorkGroup
from handrail.steps.verbs import Step, Verb, alone, take

Inputs: TypeAlias = Mapping[str, Any]
_NO_MORE = object()
Traversal: TypeAlias = Generator[Any, Any, None]
"""Yields a traversal to run first, or a question to answer with ``Evaluated``.

Questions are ``AskFallback`` and ``FindStages``.
"""
Outcome: TypeAlias = Literal["succeeded", "failed", "stopped", "open"]
"""How a body, or an attempt, ended. A stopped one may have stopped anywhere."""
_STOPPED_BY_TIME = qualified(StepTimeout)


class Place:
    """A body, or an attempt of a step, that is retraced: where its children stand. Mutable."""

    __slots__ = ("attempt", "base", "line", "outcome", "path", "seen", "value")

    def __init__(
        self, path: str, base: str, attempt: int, outcome: Outcome, value: Any = None
    ) -> None:
        self.path = path
        self.base = base
        self.attempt = attempt
        self.outcome: Outcome = outcome
        self.value = value
        """The recorded return value of the body, if it succeeded."""
        self.seen: set[str] = set()
        self.line = ""
        """``file:line`` where the function of the body begins."""


class Retracing:
    """Retraces the code of a run along its record. Mutable; its methods are hooks or traversals."""

    def __init__(self, run: RunState) -> None:
        self.run = run
        self.recorded = run.recorded
        self.line = ""
        """``file:line`` of the code that is retraced now."""
        self._traversals: list[Traversal] = []
        self._results: dict[str, StepResult[Any]] = {}
        """The results of the steps reached so far, which a handler may have seen."""
        self._concurrent = set[str]()
        """The groups that are being retraced."""

    # -- hooks ----------------------------------------------------------------------------------

    def enters(self, path: str) -> bool:
        """True if this step or member is retraced, with what is below it."""
        raise NotImplementedError

    def enters_attempt(self, place: Place) -> bool:
        """True if what an attempt of a step left is retraced."""
        raise NotImplementedError

    def goes_on(self, place: Place, *, left: bool, beyond: bool) -> bool:
        """True if another item of a group is looked at.

        ``left``: recorded members are still to be found. ``beyond``: this item is past the last
        recorded one, and the items may be endless.
        """
        del place
        return left and not beyond

    def on_recorded(self, path: str, step: Step[Any], *, yielded: bool) -> None:
        """Called for each step of the code that is recorded.

        A body ``yielded`` it, or another step contains it as data.
        """

    def on_recorded_item(self, place: Place, path: str, item: Any, index: int) -> None:
        """Called for each item of the code whose member is recorded, with its index in the code."""

    def on_retraced(self, path: str, step: Step[Any], inputs: Inputs) -> None:
        """Called after a step has been retraced."""

    def on_unrecorded(
        self, place: Place, path: str, step: Step[Any] | None, *, stopped: bool
    ) -> None:
        """Called for a step, or a member, of the code that is not recorded.

        ``stopped``: its body was being stopped by then.
        """

    def body_ended(self, place: Place, what: int, given: Any, *, stopped: bool) -> None:
        """Called at the end of a body, with what ``model.outcome.resume`` returned."""

    def on_tasks(self, place: Place, verb: WorkGroup) -> None:
        """Called before the tasks of an attempt of ``work`` are retraced."""

    def group_ended(self, place: Place) -> None:
        """Called when all members that the code has for an attempt are retraced."""

    def stages(self, place: Place, verb: Validation) -> Traversal:
        """Looks at the stages of a validation."""
        del place, verb
        yield from ()

    # -- running --------------------------------------------------------------------------------

    def begin(self, traversal: Traversal) -> None:
        """Start a traversal, which ``next_question`` runs."""
        self._traversals.append(traversal)

    def next_question(
        self, report: cmd.Evaluated | None
    ) -> cmd.AskFallback | cmd.FindStages | None:
        """Continue with the answer to the last question, up to the next; None if all is done."""
        given = report
        while self._traversals:
            try:
                wanted = self._traversals[-1].send(given)
            except StopIteration:
                self._traversals.pop()
                given = None
                continue
            given = None
            if isinstance(wanted, (cmd.AskFallback, cmd.FindStages)):
                return wanted
            self._traversals.append(wanted)
        return None

    def close(self) -> None:
        """Close the bodies that have been entered."""
        while self._traversals:
            self._traversals.pop().close()

    # -- traversals -----------------------------------------------------------------------------

    def below(
        self, path: str, step: Step[Any], inputs: Inputs, kept: Items | None = None
    ) -> Traversal:
        """Retraces the attempts of a step, and its fallback if the step has ended.

        ``kept``: the items of a group that has not ended.
        """
        record, made = self.recorded.at(path), self._attempts_made(path)
        if kept is None and isinstance(step.verb, ForEachGroup):
            kept = Items(step.verb.items, again=made > 1)
        for attempt in range(1, made + 1):
            base = attempt_base(path, attempt)
            place = Place(path, base, attempt, _outcome(record, attempt))
            if self.enters_attempt(place):
                yield self._attempt(place, made, step, inputs, kept)
        if step.modifiers.on_error is not None and (record.end is not None or self.counts_open):
            yield self._fallback(path, made, step, inputs, record)

    def _attempts_made(self, path: str) -> int:
        """How many attempts a step has made; one without an end counts if ``counts_open``."""
        record = self.recorded.at(path)
        if record.end is not None:
            return max(record.attempts, record.end.attempts)
        return record.attempts + self.counts_open

    counts_open = 0
    """1 if an attempt without an end is retraced, too."""

    def call(self, function: Callable[..., Any], *args: Any) -> tuple[int, Any]:
        """``outcome.call``; an interruption is raised by the engine, when the drive has ended."""
        what, given = called = outcome.call(function, *args)
        if what == INTERRUPTED:
            self.run.escaped = given
        return called

    def member(self, path: str, verb: Bodied, value: Any, inputs: Inputs) -> Traversal:
        """Retraces a member of a group."""
        end = self.recorded.at(path).end
        how: Outcome = "open" if end is None else _outcome_of_end(end)
        place = Place(path, path, 1, how, None if end is None else end.output)
        what, made = self.call(verb.function, value)
        if what != RETURNED:
            self.body_ended(place, RAISED, made, stopped=False)
            return
        if _is_step(made):
            take(made)
            yield self._only_step(place, made, inputs)
        elif is_body(made):
            yield self.body(place, made, inputs)

    def _only_step(self, place: Place, step: Step[Any], inputs: Inputs) -> Traversal:
        """Retraces the only step of a member."""
        path = f"{place.path}/{step.name}"
        if self.recorded.knows(path):
            place.seen.add(path)
            self.on_recorded(path, step, yielded=False)
            if self.enters(path):
                yield self.step(path, step, inputs)
        else:
            self.on_unrecorded(place, path, step, stopped=False)
        self.group_ended(place)

    def step(self, path: str, step: Step[Any], inputs: Inputs) -> Traversal:
        """Retraces what is below a step, then calls ``on_retraced`` for the step itself."""
        yield self.below(path, step, inputs)
        self.on_retraced(path, step, inputs)

    def _attempt(
        self, place: Place, made: int, step: Step[Any], inputs: Inputs, items: Items | None
    ) -> Traversal:
        verb, base = step.verb, place.base
        walk = WALKS.get(type(verb))
        if walk is not None:
            yield walk(self, place, verb, inputs, items)
            return
        self._concurrent.add(base)
        for one in verb.held():
            below = f"{base}/{one.name}"
            if self.enters(below) and self.recorded.at(below).attempt <= made:
                self.on_recorded(below, one, yielded=False)
                yield self.step(below, one, inputs)
        self._concurrent.discard(base)

    def rounds(self, place: Place, verb: Validation, inputs: Inputs, _: Items | None) -> Traversal:
        """Retraces the stages and fixes of a validation."""
        yield self.stages(place, verb)
        fix = verb.on_failure
        if fix is None:
            return
        for known in self.recorded.children(place.path):
            number, __, name = known.removeprefix(f"{place.base}/").partition("/")
            if name == fix.name and number.isdigit() and self.enters(known):
                self.on_recorded(known, fix, yielded=False)
                yield self.step(known, fix, inputs)

    def members(
        self, place: Place, verb: ForEachGroup, inputs: Inputs, items: Items | None
    ) -> Traversal:
        """Retraces the members of ``for_each``."""
        assert items is not None
        begun = self.in_place(place)
        left = {one for one in begun if self.enters(one)}
        last = max((self.recorded.at(one).index for one in begun), default=-1)
        self._concurrent.add(place.base)
        for index, (item, value, key) in enumerate(self._keyed(verb, items)):
            member = f"{place.base}/{key}"
            if member in left:
                left.discard(member)
                place.seen.add(member)
                self.on_recorded_item(place, member, item, index)
                if self.enters(member):
                    yield self.member(member, verb, value, inputs)
            elif not self.recorded.knows(member):
                self.on_unrecorded(place, member, None, stopped=False)
            beyond = index >= last and not isinstance(verb.items, Sized)
            if not self.goes_on(place, left=bool(left), beyond=beyond):
                break
        self._concurrent.discard(place.base)
        self.group_ended(place)

    def tasks(self, place: Place, verb: WorkGroup, inputs: Inputs, _: Items | None) -> Traversal:
        """Retraces the tasks that began, in the tree order that the record has."""
        self.on_tasks(place, verb)
        recorded = self.recorded
        derive(recorded, place.path, self.run.setting.run_id)
        tasks = RecordedTasks(recorded, place.path, place.attempt, verb.tasks)
        left = {one for one in self.in_place(place) if self.enters(one)}
        known = {task.id for task in recorded.tasks.get(place.path, ())}
        new = {task.id for task in verb.tasks} - known
        self._concurrent.add(place.base)
        for task in tasks.in_order():
            member = tasks.path_of(task.id)
            if member in left:
                left.discard(member)
                place.seen.add(member)
                self.on_recorded_item(place, member, task.payload, recorded.at(member).index)
                if self.enters(member):
                    yield self.member(member, verb, task, inputs)
            elif task.id in new and not recorded.knows(member):
                self.on_unrecorded(place, member, None, stopped=False)
        self._concurrent.discard(place.base)
        self.group_ended(place)

    def _keyed(self, verb: ForEachGroup, items: Items) -> Iterator[tuple[Any, Any, str]]:
        """Each item, with its value for the body and its key, until the user's code raises."""
        what, given = self.call(items.from_first)
        for index in itertools.count():
            if what == RETURNED:
                what, item = self.call(next, given, _NO_MORE)
            if what != RETURNED or item is _NO_MORE:
                return
            what, made = self.call(verb.keyed, item, index)
            if what == RETURNED:
                yield item, *made

    def scope(self, place: Place, verb: ScopedBody, inputs: Inputs, _: Items | None) -> Traversal:
        """Retraces the generator of a scope, unless it has begun already."""
        if _is_new(verb.body):
            end = self.recorded.at(place.path).end
            place.value = None if end is None else end.output
            yield self.body(place, verb.body, inputs)

    def child(self, place: Place, verb: ChildWorkflow, _: Inputs, __: Items | None) -> Traversal:
        """Retraces the body of a child workflow."""
        definition = verb.workflow.definition
        try:
            inputs = bind_inputs(definition, verb.args, verb.kwargs)
            if self.run.unrecordable(inputs, f"step {place.path!r}") is not None:
                return  # it failed before it began
        except Exception:  # noqa: BLE001  # its record stands, whatever the code does now
            return
        what, generator = self.call(call, definition, inputs)
        if what != RETURNED:
            return
        child = self.recorded.at(place.path).child
        place.value = None if child is None else child.value
        yield self.body(place, generator, inputs)

    def called_body(
        self, place: Place, verb: HeldBody | TreeBody, inputs: Inputs, _: Items | None
    ) -> Traversal:
        """Retraces the steps of a function, which is called with its arguments."""
        what, made = self.call(verb.body, *verb.args)
        if what != RETURNED:
            return  # its record stands, whatever the code does now
        end = self.recorded.at(place.path).end
        place.value = None if end is None else end.output
        if isinstance(verb, TreeBody):
            yield self._steps_around_body(place, verb, inputs)
        if place.outcome == "failed" and not self._body_began(place, verb):
            return
        if _is_step(made):
            take(made)
            yield self.body(place, alone(made), inputs)
        elif is_body(made):
            yield self.body(place, made, inputs)

    def _steps_around_body(self, place: Place, verb: TreeBody, inputs: Inputs) -> Traversal:
        """Retraces the steps around the body of a worktree: git operations, and the set-up."""
        setup = verb.setup
        for path in self.in_place(place):
            name = path.rpartition("/")[2]
            if name in TREE_STEPS:
                place.seen.add(path)
            elif setup is not None and name == setup.name:
                place.seen.add(path)
                self.on_recorded(path, setup, yielded=False)
                if self.enters(path):
                    yield self.step(path, setup, inputs)

    def _body_began(self, place: Place, verb: HeldBody | TreeBody) -> bool:
        """False for a body that never began, because a step before it had failed."""
        if isinstance(verb, HeldBody):
            return True
        ends = {one.rpartition("/")[2]: self.recorded.at(one).end for one in self.in_place(place)}
        if MERGE in ends:
            place.outcome = "open"  # it succeeded, and its value is recorded nowhere
        before = [MAKE] if verb.setup is None else [MAKE, verb.setup.name]
        return all((end := ends.get(name)) is not None and end.success for name in before)

    def in_place(self, place: Place) -> list[str]:
        """The recorded children of a body, or of an attempt, in order."""
        prefix = f"{place.base}/" if place.base else ""
        return [
            one
            for one in self.recorded.children(place.path)
            if one.startswith(prefix)
            and (not place.path or self.recorded.at(one).attempt == place.attempt)
        ]

    def body(self, place: Place, generator: Generator[Any, Any, Any], inputs: Inputs) -> Traversal:
        """Run a body against the record, as far as the record leads."""
        last = self._last_step_before_cleanup(self.in_place(place))
        line, stopped = self.line, False
        place.line = line_of(generator) if place.path else ""
        given: Any
        what, given = resume(generator)
        try:
            while what == YIELDED and _is_step(given):
                step = given
                take(step)
                self.line = line_of(generator)
                path = join(place.base, step.name)
                if path in place.seen:
                    break
                if not self.recorded.knows(path):
                    self.on_unrecorded(place, path, step, stopped=stopped)
                    return
                place.seen.add(path)
                end = self._resolve_end(path, step)
                if self.enters(path) and (end is not None or self.counts_open):
                    yield self.step(path, step, inputs)
                if end is None:
                    return
                self._results.update(self.recorded.below(path))
                self._results[path] = end
                stops = end.status == "cancelled" or self.recorded.at(path).index == last
                what, given = _sent(generator, end, stops=stops and not stopped)
                stopped = stopped or stops
            self.body_ended(place, what, given, stopped=stopped)
        finally:
            close(generator)
            self.line = line
        if what == RAISED and isinstance(given, INTERRUPTIONS):
            self.run.escaped = given

    def _last_step_before_cleanup(self, known: Iterable[str]) -> int:
        """The index of the last step before clean-up, when the body was stopped; else -1."""
        records = [self.recorded.at(one) for one in known]
        first = min((one.index for one in records if one.cleanup), default=-1)
        return max((one.index for one in records if one.index < first), default=-1)

    def _resolve_end(self, path: str, step: Step[Any]) -> StepResult[Any] | None:
        """The recorded end of a step that the code reaches, with its output; None without one."""
        recorded = self.recorded
        resolve(recorded, path, step, self.run.codec)
        if recorded.at(path).end is not None:
            derive(recorded, path, self.run.setting.run_id)
        self.on_recorded(path, step, yielded=True)
        return recorded.at(path).end

    def _fallback(  # one thing: a fallback
        self, path: str, made: int, step: Step[Any], inputs: Inputs, record: PathState
    ) -> Traversal:
        """Ask the handler for the fallback step, and retrace it if its record is to be entered."""
        handler, failure = step.modifiers.on_error, record.failure
        recorded, place = self.recorded, Place(path, path, record.attempts + 1, "open")
        taken = self.in_place(place) if record.attempts == made or record.end is None else []
        if handler is None or failure is None or not any(map(self.enters, taken)):
            return
        ms = max(0.0, (failure.at - (record.started_at or failure.at)) * 1000)
        failed = failed_result(step, path, failure_on_record(failure), failure.attempt, ms)
        self._results.update(recorded.below(path))
        view = self._view(path, inputs)
        report: cmd.Evaluated = yield cmd.AskFallback(path, handler, failed, view)
        chosen: Any = report.value
        if _is_step(chosen):
            take(chosen)
            below = join(path, chosen.name)
            if self.enters(below):
                place.seen.add(below)
                self.on_recorded(below, chosen, yielded=False)
                yield self.step(below, chosen, inputs)
        self.group_ended(place)

    def _view(self, path: str, inputs: Inputs) -> cmd.View:
        """What a handler could see when it was asked: no result that came later."""
        results = ChainMap(self._results, self.run.results)
        concurrent = self.run.concurrent | self._concurrent
        return cmd.View(path, inputs, VisibleResults(results, concurrent, path), None)


def _is_step(given: object) -> TypeGuard[Step[Any]]:
    return type(given) is Step


def _is_new(body: Generator[Any, Any, Any]) -> bool:
    return inspect.getgeneratorstate(body) == inspect.GEN_CREATED


def _outcome(record: PathState, attempt: int) -> Outcome:
    """How an attempt of a step ended, as far as the record shows."""
    failure = record.failure
    if attempt <= record.attempts:
        last = failure is not None and failure.attempt == attempt
        timely = failure is not None and failure.error_type != _STOPPED_BY_TIME
        return "failed" if last and timely else "stopped"
    return "open" if record.end is None else _outcome_of_end(record.end)


def _outcome_of_end(end: StepResult[Any]) -> Outcome:
    if end.status == "cancelled":
        return "stopped"
    return "succeeded" if end.success else "failed"


def _sent(generator: Generator[Any, Any, Any], end: StepResult[Any], *, stops: bool) -> Any:
    """Resume the body with the end of its step; what it does next, as ``resume`` returns it."""
    if stops or end.status == "cancelled":
        return resume(generator, None, RunCancelled(end.error or "cancelled"))
    if end.success:
        return resume(generator, end.output)
    return resume(generator, None, StepFailed(end))


WALKS: Mapping[type[Verb], Callable[[Retracing, Place, Any, Inputs, Items | None], Traversal]] = {
    Validation: Retracing.rounds,
    ForEachGroup: Retracing.members,
    WorkGroup: Retracing.tasks,
    ChildWorkflow: Retracing.child,
    ScopedBody: Retracing.scope,
    HeldBody: Retracing.called_body,
    TreeBody: Retracing.called_body,
}
"""How an attempt is retraced whose steps the verb does not hold as data."""
