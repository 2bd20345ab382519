"""Whether the payload of a signal is one that somebody waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from handrail.codec.unresolved import Unresolved
from handrail.errors import InvalidInput, InvalidSignal


def payload_for(signal: str, payload: Any, type_: Any) -> Any:
    """The payload as a ``wait_for`` of this type gives it.

    Raises:
        InvalidInput: it does not fit. A type of the user's may raise anything.
    """
    from handrail.typed.convert import convert

    return convert(payload, type_, name=f"signal {signal}")


def check_payload(signal: str, payload: Any, types: Sequence[Any], ahead: int) -> None:
    """Do nothing, or raise if whoever is to take the signal would fail by it.

    ``types`` are those of the steps that wait for it now (None: one that is not known), ``ahead``
    how many signals of its name these are given before. One that nobody waits for yet is kept, for
    steps that nobody knows yet. Which of several takes it is not known before: one that it fits
    will do.

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
