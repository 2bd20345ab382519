"""Exceptions as data, so that an error crosses to another process and is the same in a replay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from handrail.errors import HandrailError
from handrail.model.described import bases_of, text_of, traceback_of
from handrail.secrets.sealing import seal_text, unseal_text
from handrail.typed.reference import resolve_name


def error_as_data(error: BaseException, secrets: Mapping[str, str]) -> dict[str, Any]:
    """An exception's type, arguments, text, bases and traceback, as JSON data without secrets."""
    kind = type(error)
    arguments = [one for one in error.args if isinstance(one, (str, int, float, bool, type(None)))]
    data = {
        "type": f"{kind.__module__}:{kind.__qualname__}",
        "args": arguments if len(arguments) == len(error.args) else None,
        "text": text_of(error),
        "bases": list(bases_of(error)),
        "traceback": traceback_of(error),
    }
    sealed: dict[str, Any] = msgspec.json.decode(
        seal_text(msgspec.json.encode(data).decode(), secrets)[0]
    )
    return sealed


def error_of_data(data: dict[str, Any], secrets: Mapping[str, str]) -> BaseException:
    """The exception; if its class cannot be rebuilt here, a stand-in with its name and text."""
    data = msgspec.json.decode(unseal_text(msgspec.json.encode(data).decode(), secrets))
    text: str = data["text"]
    arguments = data.get("args")
    try:
        kind = resolve_name(data["type"])
        if isinstance(kind, type) and issubclass(kind, BaseException) and arguments is not None:
            made = kind(*arguments)
            if text_of(made) == text:
                return made
    except Exception:  # noqa: BLE001  # its class is not here, or takes other arguments
        kind = None
    module, _, name = str(data["type"]).partition(":")
    base = HandrailError if module.startswith("handrail.") else Exception

    def say(_: BaseException) -> str:
        return text

    stand_in: Any = type(name, (base,), {"__module__": module, "__str__": say})
    stand_in.__qualname__ = name
    error: BaseException = stand_in(text)
    return error
