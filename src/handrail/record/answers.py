"""Checks and converts answers to gates, outputs that people give, and payloads of signals."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping, Sequence
from typing import Any, cast

from handrail.codec.unresolved import Unresolved
from handrail.errors import GateRefusal, InvalidAnswer, InvalidInput, InvalidSignal
from handrail.model.results import AgentResult, Choice, OpenGate, answer_words, prompts_of
from handrail.record.outputs import declared_output
from handrail.steps.leaves import AgentCall
from handrail.steps.verbs import Step
from handrail.steps.waits import Question
from handrail.typed.jsonsafe import short_repr


def accept_answer(gate: OpenGate, answer: Any) -> Any:
    """The answer as the step will return it: a choice, a value converted to the gate's type, or the
    default, which may be of another type.

    Raises:
        InvalidAnswer: it is none of these.
    """
    if gate.has_default and type(answer) is type(gate.default) and answer == gate.default:
        return gate.default
    from handrail.typed.convert import convert, from_text
    from handrail.typed.schema import describe_type

    try:
        if gate.choices:
            return choice_of(gate.path, gate.choices, answer, gate.values)
        if isinstance(answer, str) and gate.type is not str:
            return from_text(answer, gate.type, name=gate.path)
        return convert(answer, gate.type, name=gate.path)
    except InvalidInput as error:
        raise InvalidAnswer(gate.path, answer, error.expected) from None
    except Exception as error:  # noqa: BLE001  # a user's type may raise anything
        raise InvalidAnswer(gate.path, answer, f"{describe_type(gate.type)} ({error})") from None


def answer_for(gate: OpenGate, answer: Any) -> Any:
    """A recorded answer as the step that asks now returns it. It was recorded as given if whoever
    took it did not know the classes that the question is asked with.

    Raises:
        InvalidAnswer: it does not fit the question.
    """
    from handrail.typed.convert import convert

    with contextlib.suppress(Exception):  # a user's type may raise anything
        if not gate.choices and convert(answer, gate.type, name=gate.path) is answer:
            return answer
    return accept_answer(gate, answer)


def choice_of(name: str, choices: Sequence[Any], answer: Any, values: Sequence[Any] = ()) -> Any:
    """The choice that an answer means: an equal value, else one with the same text, else the one
    that the answer is the JSON text of, else the one that stands for it.

    One that asks for a text is ``{choice: text}``: as that, as text ``choice: text``, or a
    ``Choice``.

    Raises:
        InvalidInput: there is none, or its text is missing.
    """
    prompts, offered = prompts_of(choices, values), answer_words(choices, values)
    typed: Any = answer  # whose type is not narrowed
    given, text = typed, None
    if isinstance(answer, Choice):
        given, text = typed.value, typed.text or None
        values = [cast("Any", of).value if isinstance(of, Choice) else of for of in values]
    elif prompts and isinstance(answer, Mapping) and len(typed) == 1:
        ((given, text),) = typed.items()
    for label in prompts if isinstance(answer, str) else ():
        if typed.startswith(f"{label}:"):
            given, text = label, typed.removeprefix(f"{label}:").strip() or None
    for choice in _like(given, choices, values):
        if (text is not None) == (isinstance(choice, str) and choice in prompts):
            return choice if text is None else {choice: str(text)}
        break
    raise InvalidInput(name, short_repr(typed), f"one of: {', '.join(offered)}")


def _like(answer: Any, choices: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """The choices that an answer may mean, the likeliest first."""
    from handrail.typed.convert import DoesNotFit, fit_json

    alike = [choice for choice in choices if type(choice) is type(answer) and choice == answer]
    alike += [choice for choice in choices if str(choice) == str(answer)]
    if not alike and isinstance(answer, str):
        with contextlib.suppress(DoesNotFit):
            said = fit_json(answer, Any)
            alike += [choice for choice in choices if type(choice) is type(said) and choice == said]
    pairs = zip(values, choices, strict=False)
    alike += [choice for value, choice in pairs if type(value) is type(answer) and value == answer]
    return alike


def given_output(path: str, step: Step[Any], value: Any) -> Any:
    """The output that a person gives for a step, converted to its declared type from ``value``, or
    from a text of it.

    Raises:
        InvalidInput: the value is not of the type.
    """
    verb = step.verb
    with _given_as("the output of step"):
        if isinstance(verb, Question) and verb.choices:
            return verb.value_of(choice_of(path, verb.choices, value, verb.values))
        if isinstance(verb, AgentCall) and not verb.answers and not isinstance(value, AgentResult):
            return AgentResult(
                _convert_answer(path, value, getattr(verb.agent, "output", None) or str)
            )
        return _convert_answer(path, value, declared_output(step))


@contextlib.contextmanager
def _given_as(what: str) -> Generator[None]:
    """Have the errors of a conversion name ``what`` in place of an input."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(error.parameter, error.got, error.expected, what) from None


def _convert_answer(name: str, value: Any, declared: Any) -> Any:
    from handrail.typed.convert import convert, from_text

    is_text = isinstance(value, str) and declared not in {str, Any}
    return (from_text if is_text else convert)(value, declared, name=name)


def policy_answer(policy: str, gate: OpenGate) -> Any:
    """The answer of a fixed policy.

    ``approve``: the first choice; without choices True, or where that is no answer the default,
    else "yes".
    ``default``: the default. ``fail``: none.

    Raises:
        GateRefusal: the policy has no answer; the step fails.
    """
    if policy == "approve":
        if gate.choices:
            first = gate.choices[0]
            return {first: ""} if prompts_of(gate.choices[:1], gate.values) else first
        for answer in (True, gate.default) if gate.has_default else (True, "yes"):
            with contextlib.suppress(InvalidAnswer):
                return accept_answer(gate, answer)
        return True
    if policy == "default" and gate.has_default:
        return gate.default
    why = "it has no default" if policy == "default" else "the policy is to fail"
    raise GateRefusal(gate.path, f"gates={policy!r}, and {why}")


def payload_for(signal: str, payload: Any, type_: Any) -> Any:
    """The payload as a ``wait_for`` of this type returns it.

    Raises:
        InvalidInput: it does not fit. A type of the user's may raise anything.
    """
    from handrail.typed.convert import convert

    with _given_as("the payload of signal"):
        return convert(payload, type_, name=signal)


def check_payload(signal: str, payload: Any, types: Sequence[Any], ahead: int) -> None:
    """Raise if every step that may take the signal would fail with its payload.

    ``types``: the payload types of the steps that wait for it now (None: not known). ``ahead``: how
    many earlier signals of its name these steps get first. A signal that no step waits for yet is
    kept, for steps that are not known yet. Which of several steps takes it is not known before, so
    it has to fit only one.

    Raises:
        InvalidSignal: it fits none of them.
    """
    if ahead >= len(types):
        return
    expected: list[str] = []
    for type_ in types:
        if type_ is None or type(type_) is Unresolved:
            return
        why = _misfit(signal, payload, type_)
        if why is None:
            return
        expected.append(why)
    raise InvalidSignal(signal, payload, ", or ".join(dict.fromkeys(expected)))


def _misfit(signal: str, payload: Any, type_: Any) -> str | None:
    """What the type expects instead, or None if the payload fits."""
    from handrail.typed.schema import describe_type

    try:
        payload_for(signal, payload, type_)
    except InvalidInput as error:
        return error.expected
    except Exception as error:  # noqa: BLE001  # a user's type may raise anything
        return f"{describe_type(type_)} ({error})"
    return None
