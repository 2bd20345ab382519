"""Rebuilds recorded values whose class is known only from the step that declares it."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from handrail.codec.unresolved import Unresolvable, Unresolved
from handrail.errors import OutputNotSerializable
from handrail.model.dataclass import copier
from handrail.model.events import WorkflowCompleted
from handrail.model.paths import attempt_base
from handrail.model.results import (
    BranchResult,
    StepResult,
)
from handrail.model.work import Work
from handrail.record.path_tree import PathState, attempt_in
from handrail.record.results import children_of, workflow_result
from handrail.record.run_record import Recorded
from handrail.record.work import RecordedTasks
from handrail.steps.groups import Bodied, WorkGroup
from handrail.steps.table import verb_of
from handrail.steps.verbs import Step

if TYPE_CHECKING:
    from handrail.codec.codec import Codec


def resolve(recorded: Recorded, path: str, step: Step[Any], codec: Codec | None) -> None:
    """Rebuild the unresolved outputs of a step and of steps below it, by the types it declares.

    Raises:
        Unresolvable: a class is not known here: the step does not declare it, no import has it.
    """
    if codec is None or not recorded.unresolved:
        return
    for known, declared in _described(recorded, path, step):
        if known not in recorded.unresolved:
            continue
        recorded.unresolved.discard(known)
        try:
            _resolve_record(recorded.at(known), declared, codec)
        except Unresolvable as error:
            raise Unresolvable(
                error.tag, error.why, known, misfit=error.misfit
            ) from error.__cause__


def _resolve_record(record: PathState, declared: Any, codec: Codec) -> None:
    if record.end is not None:
        record.end = _rebuilt(record.end, declared, codec)
    if record.child is not None and isinstance(record.child.value, Unresolved):
        record.child = replace(record.child, value=codec.load(record.child.value.text, declared))


def _rebuilt(end: StepResult[Any], declared: Any, codec: Codec) -> StepResult[Any]:
    if not isinstance(end.output, Unresolved):
        return end
    return replace(end, output=codec.load(end.output.text, declared))


def _described(recorded: Recorded, path: str, step: Step[Any]) -> Iterator[tuple[str, Any]]:
    """The paths at and below ``path`` with the types the step declares; first attempts only."""
    for here, inner in steps_within(path, step):
        yield here, declared_output(inner)
        if isinstance(inner.verb, Bodied):
            declared = inner.verb.member_type()
            for member in recorded.children(here):
                yield member, declared
                if recorded.at(member).derived:  # from the output of its only step
                    yield from ((child, declared) for child in recorded.children(member))


def steps_within(path: str, step: Step[Any]) -> Iterator[tuple[str, Step[Any]]]:
    """A step and the steps that it contains as data, with their paths; first attempts only."""
    stack = [(path, step)]
    while stack:
        here, one = stack.pop()
        yield here, one
        stack.extend((f"{here}/{inner.name}", inner) for inner in reversed(one.verb.held()))


def declared_output(step: Step[Any]) -> Any:
    """The declared type of a step's output; ``Any`` where the step declares none."""
    default = step.modifiers.default
    declared = step.verb.output_type()
    return declared if default is None else Union[declared, type(default.value)]  # noqa: UP007  # made at run time


def recordable(
    value: Any,
    codec: Codec,
    declared: Callable[[], tuple[Any, ...]],
    where: str,
    root: str = "output",
) -> str:
    """The text of a value that can be read back by the names of its classes, or else by each of the
    ``declared`` types, a function that is called only then.

    Raises:
        OutputNotSerializable: it cannot be read back.
    """
    try:
        return codec.dump(value, where=where, root=root, declared=Any)
    except OutputNotSerializable:
        text, types = "", declared()
        if not types:
            raise
    for type_ in types:
        text = codec.dump(value, where=where, root=root, declared=type_)
    return text


# Outputs that follow from the records below a step, so that they need not be stored twice.
#
# The ``composed`` field of an end event (``PathState.derived``) says how:
#
# outputs            the members' outputs, in the order of the group
# results            the members' results, in the order of the group; of one that failed, too
# child              the output of the only step below
# winner PATH        the output of the member that won
# arm INDEX PATH     a ``BranchResult`` with the output of the arm's step
# work               the ``Work`` of the tasks, in the order of their tree
# workflow           the ``WorkflowResult`` of a child, which returned what ``SubworkflowEnded``
# holds
#
# Children that an earlier drive recorded, and that the drive of this end did not reach, are no part
# of the output: the end's ``left_out`` names them.

_with_output: Callable[..., StepResult[Any]] = copier(StepResult, "output")
Tree: TypeAlias = Mapping[str, dict[str, None] | str]

CHILD = "child"
WORK = "work"
WORKFLOW = "workflow"


def arm(index: int, path: str) -> str:
    """The ``composed`` text of a branch that took this arm."""
    return f"arm {index} {path}"


def derive(recorded: Recorded, path: str, run_id: str) -> None:
    """Fill in the derived outputs of a path and of all below it, the innermost first.

    Outputs that are filled in already stay: a journal that keeps objects has them.
    """
    for known in reversed([path, *recorded.paths_below(path)] if path else ()):
        record = recorded.at(known)
        if record.end is not None and record.derived and record.end.output is None:
            record.end = _with_output(record.end, _output(recorded, known, record, run_id))


def steps_of(recorded: Recorded) -> tuple[Tree, dict[str, StepResult[Any]]]:
    """The tree of all recorded steps that count, and their results, with derived outputs."""
    for path in recorded.children(""):
        derive(recorded, path, recorded.run_id)
    return recorded.tree_below("", whole=True), dict(recorded.ends())


def _output(recorded: Recorded, path: str, record: PathState, run_id: str) -> Any:
    how, _, rest = record.derived.partition(" ")
    match how:
        case "outputs" | "results":
            members = [_result(recorded, member) for member in _members(recorded, path, record)]
            values = members if how == "results" else [member.output for member in members]
            return values if record.end is None else _sequence(record.end.step_type)(values)
        case "work":
            return recorded_work(recorded, path, 1 if record.end is None else record.end.attempts)
        case "child":
            return _result(recorded, _ended(recorded, path)[0]).output
        case "winner":
            return _result(recorded, rest).output
        case "arm":
            index, _, chosen = rest.partition(" ")
            result = _result(recorded, chosen)
            return BranchResult(int(index), result.name, result.output)
        case _:
            return _child_result(recorded, path, record, run_id)


def _sequence(kind: str) -> type[list[Any] | tuple[Any, ...]]:
    return getattr(verb_of(kind), "sequence", tuple)


def _members(recorded: Recorded, path: str, record: PathState) -> list[str]:
    """The members of the attempt that counts, in order."""
    base = attempt_base(path, record.end.attempts if record.end is not None else 1)
    return [child for child in _ended(recorded, path) if child.startswith(f"{base}/")]


def recorded_work(recorded: Recorded, path: str, attempt: int) -> Work[Any]:
    """The ``Work`` of an attempt, from the record of its tasks."""
    return RecordedTasks(recorded, path, attempt, recorded.tasks.get(path, ())).work()


def members_results(
    recorded: Recorded, path: str, attempt: int, step: Step[Any]
) -> list[StepResult[Any]] | tuple[StepResult[Any], ...] | Work[Any]:
    """The recorded results of the members in a group's failed attempt."""
    if isinstance(step.verb, WorkGroup):
        return recorded_work(recorded, path, attempt)
    base = attempt_base(path, attempt)
    members = [
        _result(recorded, child)
        for child in recorded.children(path)
        if child.startswith(f"{base}/") and recorded.at(child).ended()
    ]
    return _sequence(step.verb.kind)(members)


def _ended(recorded: Recorded, path: str) -> list[str]:
    return [child for child in recorded.reached_children(path) if recorded.at(child).ended()]


def _result(recorded: Recorded, path: str) -> StepResult[Any]:
    result = recorded.at(path).end
    assert result is not None, path
    return result


def _child_result(recorded: Recorded, path: str, record: PathState, run_id: str) -> Any:
    assert record.end is not None
    assert record.child is not None
    tree: dict[str, dict[str, None] | str] = {**recorded.tree_below(path)}
    results = dict(recorded.below(path))
    end = WorkflowCompleted("succeeded", record.child.value, at=record.child.at)
    name, duration_ms = record.child.workflow_name, record.end.duration_ms
    return workflow_result(name, run_id, end, tree, results, duration_ms=duration_ms, root=path)


# What the result of a resumed run lists, and in which order.
#
# A drive that fails or is cancelled may stop before it reaches steps that an earlier drive ended.
# Those steps were done, so the result lists them, as it does when it is read from the record.

Results: TypeAlias = Mapping[str, StepResult[Any]]


def whole(recorded: Recorded, tree: Tree, results: Results) -> Tree:
    """The tree of a drive with all recorded steps added; those that it did not reach come last."""
    reached = dict(tree)
    stack = [""]
    while stack:
        path = stack.pop()
        known = recorded.children(path)
        if known:
            made = results[path].attempts if path in results else None
            counting = [child for child in known if made is None or attempt_in(path, child) <= made]
            reached[path] = dict.fromkeys([*children_of(tree, path), *counting])
        stack.extend(children_of(reached, path))
    return reached


def as_listed(tree: Tree, results: Results, orphaned: Container[str]) -> Tree:
    """The same tree from the record alone: steps that the last drive did not reach, ``orphaned``
    ones, come behind those that it reached.
    """
    above = {child: path for path in tree for child in children_of(tree, path)}
    reached_children = set[str]()
    for known in results:
        path = "" if known in orphaned else known
        while path and path not in reached_children:
            reached_children.add(path)
            path = above.get(path, "")
    return {
        path: dict.fromkeys(
            sorted(children_of(tree, path), key=lambda child: child not in reached_children)
        )
        for path in tree
    }


def with_recorded(recorded: Recorded, tree: Tree, results: Results, run_id: str) -> Results:
    """The results of a drive, with the recorded results of steps that it did not reach; ``tree`` is
    what ``whole`` returned.
    """
    stack = list(children_of(tree, ""))
    while stack:
        path = stack.pop()
        if path not in results and recorded.at(path).ended():
            derive(recorded, path, run_id)
        else:
            stack.extend(children_of(tree, path))
    return {**dict(recorded.ends()), **results}
