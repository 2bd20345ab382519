"""Whether something is an answer to a gate."""

from __future__ import annotations

from typing import Any

from handrail.errors import GateRefusal, InvalidAnswer, InvalidInput
from handrail.model.results import OpenGate


def accepted(gate: OpenGate, answer: Any) -> Any:
    """The answer as the step will give it: one of the choices, or converted to the type.

    Raises:
        InvalidAnswer: it is neither.
    """
    if gate.choices:
        return _choice(gate, answer)
    from handrail.typed.convert import convert, from_text
    from handrail.typed.schema import describe_type

    try:
        if isinstance(answer, str) and gate.type is not str:
            return from_text(answer, gate.type, name=gate.path)
        return convert(answer, gate.type, name=gate.path)
    except InvalidInput as error:
        raise InvalidAnswer(gate.path, answer, error.expected) from None
    except Exception as error:  # noqa: BLE001  # a user's type may raise anything
        raise InvalidAnswer(gate.path, answer, f"{describe_type(gate.type)} ({error})") from None


def _choice(gate: OpenGate, answer: Any) -> Any:
    for choice in gate.choices:
        if type(choice) is type(answer) and choice == answer:
            return choice
    for choice in gate.choices:
        if str(choice) == str(answer):
            return choice
    offered = ", ".join(str(choice) for choice in gate.choices)
    raise InvalidAnswer(gate.path, answer, f"one of: {offered}")


def by_policy(policy: str, gate: OpenGate) -> Any:
    """What a fixed policy answers.

    ``approve``: the first choice; without choices True, or for a text its default, else "yes".
    ``default``: the default. ``fail``: nothing.

    Raises:
        GateRefusal: the policy has no answer; the step fails.
    """
    if policy == "approve":
        if gate.choices:
            return gate.choices[0]
        if gate.type is str:
            return gate.default if gate.has_default else "yes"
        return True
    if policy == "default" and gate.has_default:
        return gate.default
    why = "it has no default" if policy == "default" else "the policy is to fail"
    raise GateRefusal(gate.path, f"gates={policy!r}, and {why}")
