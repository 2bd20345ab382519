"""A run as its caller asks for it; and its inputs, held against the types and the record."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from inspect import Parameter
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, cast, get_args

from handrail.engine.parts import definition_of
from handrail.errors import InputsDiffer, WrongUse, did_you_mean
from handrail.later import later
from handrail.model import events as ev
from handrail.model.dataclass import dataclass
from handrail.model.definition import WorkflowDefinition, bind_inputs, input_of
from handrail.model.paths import is_run_id
from handrail.model.results import A_PERSON, StepResult
from handrail.model.shapes import WorkflowLike
from handrail.record.run_record import Recorded
from handrail.steps.verbs import Step
from handrail.typed.jsonsafe import short_repr

if TYPE_CHECKING:
    from handrail.codec.codec import Codec
    from handrail.record import answers as answering
    from handrail.record import reading
else:
    later(globals(), "record.answers:answering record.reading")


Existing: TypeAlias = Literal["refuse", "go_on"]
"""What ``run`` does if the journal has a run of this id: raise, or continue that run."""


@dataclass(frozen=True, slots=True)
class Options:
    """What ``executor.options`` sets for the next run."""

    run_id: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    existing: Existing = "refuse"


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A run as its caller asked for it; ``given``: the inputs that the caller passed.

    ``run_id`` is empty as long as nobody has chosen one.
    """

    definition: WorkflowDefinition
    run_id: str
    inputs: dict[str, Any]
    given: Mapping[str, Any]
    options: Options

    @classmethod
    def of(
        cls,
        workflow: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        options: Options,
        known: Iterable[WorkflowLike[..., Any]],
    ) -> Self:
        """The request to begin a run of a workflow with these arguments.

        Raises:
            TypeError: the arguments do not fit the workflow's signature.
            InvalidInput: an argument is not of the type that its parameter declares.
            WrongUse: it is no workflow, or another of the ``known`` ones has its name.
        """
        definition = definition_of(workflow, known, begins=True)
        inputs = bind_inputs(definition, args, kwargs)
        named = definition.signature.bind(*args, **kwargs).arguments
        given = {name: inputs[name] for name in named}
        return cls(definition, options.run_id or "", inputs, given, options)

    def refuse_other(self, history: Sequence[ev.Event], codec: Codec) -> None:
        """Refuse to continue a run that is not the requested one.

        Raises:
            WrongUse: it is a run of another workflow. InputsDiffer: it has other inputs.
        """
        reading.refuse_other_workflow(history, self.definition)
        recorded = reading.inputs_of(Recorded(history), self.definition, codec)
        refuse_other_inputs(history[0].run_id, self.definition, self.given, recorded, codec)


class TakesOptions:
    """An executor's options for its next run."""

    _options = Options()

    def options(
        self,
        *,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        existing: Existing = "refuse",
    ) -> Self:
        """The same executor, whose next run has this id and these labels.

        ``existing`` says what ``run`` and ``stream`` do where the journal has a run of this id:
        ``"refuse"`` raises ``RunIdTaken``. ``"go_on"`` resumes a run that has not ended, and
        returns the recorded result of one that has; inputs other than the recorded ones raise
        ``InputsDiffer``.

        Raises:
            WrongUse: ``existing`` is neither, or it is ``"go_on"`` without a run id; the id is no
                text of 1 to 120 printable characters.
        """
        _check_options(existing, run_id, labels)
        changed = copy.copy(self)
        changed._options = Options(run_id, dict(labels or {}), existing)  # noqa: SLF001  # a copy of our own
        return changed

    def _options_for(self, run_id: str | None, existing: Existing) -> Options:
        """The options of a run that ``start`` begins, which may name it itself."""
        if run_id is None and existing == "refuse":
            return self._options
        _check_options(existing, run_id, None)
        return replace(self._options, run_id=run_id, existing=existing)


def check_new_id(run_id: object, argument: str) -> None:
    """Raise if a new run cannot have this id, which was given as ``argument``; None is no id."""
    if run_id is not None and not is_run_id(run_id):
        wanted = "printable text of 1 to 120 characters, no blank at its ends, such as 'ship-7'"
        raise WrongUse(f"{argument}= takes {wanted}, got {short_repr(run_id)}")


def _check_options(existing: str, run_id: object, labels: object) -> None:
    """Raise if the arguments of ``options`` are wrong."""
    check_new_id(run_id, "run_id")
    if labels is not None and not _maps_texts(labels):
        wanted = "a mapping of names to texts, such as {'team': 'a'}"
        raise WrongUse(f"labels= takes {wanted}, got {short_repr(labels)}")
    if existing not in get_args(Existing):
        raise WrongUse(f'existing= takes "refuse" or "go_on", got {existing!r}')
    if existing == "go_on" and run_id is None:
        raise WrongUse('existing="go_on" needs a run: options(run_id="...", existing="go_on")')


def _maps_texts(value: object) -> bool:
    """True for a mapping whose names and values are all texts."""
    if not isinstance(value, Mapping):
        return False
    known = cast("Mapping[object, object]", value)
    return all(isinstance(text, str) for text in (*known, *known.values()))


# -- inputs and outputs ----------------------------------------------------------------------------


def with_inputs(
    definition: WorkflowDefinition, recorded: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """The recorded inputs, some of them replaced by the given ones.

    Raises:
        WrongUse: the workflow has no such input. InvalidInput: a value is not of its type.
    """
    annotations = {parameter.name: parameter.annotation for parameter in definition.parameters}
    for name in given:
        if name not in annotations:
            meant = did_you_mean([name], sorted(annotations))
            raise WrongUse(f"workflow {definition.name!r} has no input {name!r}.{meant}")
    return {
        **recorded,
        **{name: input_of(name, value, annotations[name]) for name, value in given.items()},
    }


def result_given(path: str, step: Step[Any] | None, value: Any) -> StepResult[Any]:
    """The result of a step whose output a person gave: ``value``, of its type or a text of that.

    Raises:
        WrongUse: the code does not reach the step. InvalidInput: the value is not of the type.
    """
    if step is None:
        raise WrongUse(
            f"no output of step {path!r} can be given: by what the fork keeps, today's code "
            f"does not come to it. Make the fork with the code that ran it, or of another step."
        )
    output = answering.given_output(path, step, value)
    return StepResult(step.name, path, step.verb.kind, "succeeded", output, given_by=A_PERSON)


def refuse_other_inputs(
    run_id: str,
    definition: WorkflowDefinition,
    given: Mapping[str, Any],
    recorded: Mapping[str, Any],
    codec: Codec,
) -> None:
    """Raise if a given input differs from the recorded one; inputs not given are not compared.

    Raises:
        InputsDiffer: one differs.
    """
    kinds = {parameter.name: parameter.kind for parameter in definition.parameters}
    rest = next((name for name, kind in kinds.items() if kind is Parameter.VAR_KEYWORD), None)
    for name, value in given.items():
        of = recorded if name in kinds else recorded.get(rest or "", {})
        then, now = of.get(name), value
        if kinds.get(name) is Parameter.VAR_POSITIONAL:
            then, now = tuple(then or ()), tuple(value)
        if name not in of or codec.identity(now) != codec.identity(then):
            raise InputsDiffer(run_id, name, short_repr(then), short_repr(now))
