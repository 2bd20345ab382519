"""Rebuilds recorded values whose class is known only from the step that declares it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

from handrail.core.replay import Recorded
from handrail.model.results import AgentResult, CommandResult, StageResult, StepResult
from handrail.model.schema import hints_of
from handrail.model.steps import (
    AgentCall,
    Branching,
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
from handrail.model.unresolved import Unresolved

if TYPE_CHECKING:
    from handrail.model.codec import Codec


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
        record = recorded.at(known)
        if record.end is not None:
            record.end = _rebuilt(record.end, declared, codec)
        if record.member_end is not None:
            record.member_end = _rebuilt(record.member_end, declared, codec)


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
            return hints_of(verb.action).get("return", Any)
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
