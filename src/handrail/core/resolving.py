"""Rebuilds recorded values whose class is known only from the step that declares it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

from handrail.codec.unresolved import Unresolvable, Unresolved
from handrail.core.replay import PathRecord, Recorded
from handrail.errors import OutputNotSerializable
from handrail.model.results import (
    AgentResult,
    CommandResult,
    StageResult,
    StepResult,
    WorkflowResult,
)
from handrail.steps.verbs import (
    AgentCall,
    Branching,
    ChildWorkflow,
    ForEachGroup,
    Generation,
    ParallelGroup,
    PythonCall,
    Question,
    RaceGroup,
    ShellCommand,
    SignalWait,
    StageCheck,
    Step,
)
from handrail.typed.schema import hints_of

if TYPE_CHECKING:
    from handrail.codec.codec import Codec
    from handrail.core.node import Node
    from handrail.model.definition import WorkflowDefinition


def resolve(recorded: Recorded, path: str, step: Step[Any], codec: Codec | None) -> None:
    """Rebuild what is unresolved in the end of a step, and in those below it that it describes.

    Raises:
        Unresolvable: a class is not known here, neither by the step nor by what is imported.
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


def _resolve_record(record: PathRecord, declared: Any, codec: Codec) -> None:
    if record.end is not None:
        record.end = _rebuilt(record.end, declared, codec)
    if record.member_end is not None:
        record.member_end = _rebuilt(record.member_end, declared, codec)
    if isinstance(record.value, Unresolved):
        record.value = codec.load(record.value.text, declared)


def _rebuilt(end: StepResult[Any], declared: Any, codec: Codec) -> StepResult[Any]:
    if not isinstance(end.output, Unresolved):
        return end
    return replace(end, output=codec.load(end.output.text, declared))


def _described(recorded: Recorded, path: str, step: Step[Any]) -> Iterator[tuple[str, Any]]:
    """The path and those below it whose type the step says, with that type; first attempts only."""
    for here, one in held_steps(path, step):
        yield here, declared_output(one)
        if isinstance(one.verb, ForEachGroup):
            declared = member_output(one.verb)
            for member in recorded.children(here):
                yield member, declared
                if recorded.at(member).member_composed:  # of the output of its only step
                    yield from ((child, declared) for child in recorded.children(member))


def held_steps(path: str, step: Step[Any]) -> Iterator[tuple[str, Step[Any]]]:
    """A step and those that it holds as data, with their paths; first attempts only."""
    stack = [(path, step)]
    while stack:
        here, one = stack.pop()
        yield here, one
        verb = one.verb
        held: list[Step[Any]] = []
        if isinstance(verb, (ParallelGroup, RaceGroup)):
            held = list(verb.steps)
        elif isinstance(verb, Branching):
            held = [member for _, member in verb.arms]
        stack.extend((f"{here}/{member.name}", member) for member in reversed(held))


def declared_output(step: Step[Any]) -> Any:
    """The type that a step's output has, as far as it says; ``Any`` where it does not."""
    verb = step.verb
    default = step.modifiers.default
    declared = _of_verb(verb)
    return declared if default is None else Union[declared, _class_of(default.value)]  # noqa: UP007  # made at run time


def _of_verb(verb: Any) -> Any:
    match verb:
        case PythonCall():
            action = verb.action
            while isinstance(action, functools.partial):
                action = action.func
            return hints_of(action).get("return", Any)
        case ShellCommand():
            return _of(CommandResult, verb.parse)
        case AgentCall():
            return _of(AgentResult, getattr(verb.agent, "output", None))
        case Generation():
            return str
        case StageCheck():
            return StageResult
        case Question():
            return _class_of(verb.choices[0]) if verb.choices else verb.type
        case SignalWait():
            return verb.type
        case ChildWorkflow():
            return _of(WorkflowResult, returned_by(verb.workflow.definition))
        case _:
            return Any


def _class_of(value: object) -> Any:
    return type(value)


def _of(generic: Any, argument: Any) -> Any:
    return generic if argument is None else generic[argument]


def member_output(group: ForEachGroup) -> Any:
    """What a member gives, from the annotation of its body: ``Step[T]`` or ``Steps[T]``."""
    definition = getattr(group.body, "definition", None)
    function = group.body if definition is None else definition.function
    returned = hints_of(function).get("return", Any)
    arguments = get_args(returned)
    if get_origin(returned) is Step and arguments:
        return arguments[0]
    return arguments[-1] if arguments else Any


def returned_by(definition: WorkflowDefinition) -> Any:
    """What a workflow gives, from its annotation ``Steps[T]``."""
    arguments = get_args(hints_of(definition.function).get("return", Any))
    return arguments[-1] if arguments else Any


def declared_for(node: Node) -> tuple[Any, ...]:
    """The types by which the end of a node, or the value of its child workflow, may be read.

    Each must do: what a member's step gave is read with the member's type once the group has ended.
    """
    declared: list[Any] = [] if node.step is None else [declared_output(node.step)]
    member = node if node.step is None else node.parent
    by_member = member is node or (member is not None and member.generator is None)
    if by_member and member is not None and member.step is None and member.parent is not None:
        group = member.parent.step
        if group is not None and isinstance(group.verb, ForEachGroup):
            declared.append(member_output(group.verb))
    return tuple(declared)


def recordable(
    value: Any,
    codec: Codec,
    declared: Callable[[], tuple[Any, ...]],
    where: str,
    root: str = "output",
) -> str:
    """The text of a value that comes back by the names of its classes, or else by each of the
    ``declared`` types, which are looked for only then.

    Raises:
        OutputNotSerializable: it does not.
    """
    try:
        return codec.dump(value, where=where, root=root, declared=Any)
    except OutputNotSerializable:
        text, types = "", declared()
        if not types:
            raise
    for one in types:
        text = codec.dump(value, where=where, root=root, declared=one)
    return text
