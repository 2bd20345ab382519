"""Messages on the wire, one JSON object each: validated reading, and writing.

Source: the wire of synapse-channel 0.32.0, as seen between its programs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from handrail.model.dataclass import dataclass

HUB = "SynapseHub"
"""The sender of the hub's own messages."""

LONGEST = 256 * 1024
"""The most bytes of a message that is no chat. The hub's reply, together with data that it kept
from earlier messages, then stays below 1 MiB, the longest message that clients take.
"""
SHORT = 400
"""The most characters of a name."""
LARGEST = 1 << 53
"""Every program represents whole numbers below this exactly."""
MANY = 500
"""The most entries of a list."""


class Refusal(Exception):
    """The hub refuses a message: the text of its reply, and further fields of the reply."""

    def __init__(self, text: str, **extras: Any) -> None:
        super().__init__(text)
        self.text = text
        self.extras = extras


class Unreadable(Exception):
    """A frame is no message at all."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The fields of a message; a ``flaw`` is why the hub must refuse it."""

    fields: Mapping[str, Any]
    flaw: str = ""

    def has(self, name: str) -> bool:
        """True if the field is present and not null."""
        return self.fields.get(name) is not None

    def name(self, *names: str, most: int = SHORT) -> str:
        """``text`` without blanks around it.

        Raises:
            Refusal: the field is no text, or longer than ``most`` characters.
        """
        found = self.text(*names).strip()
        if len(found) > most:
            raise Refusal(f"{names[0]} is longer than {most} characters.")
        return found

    def text(self, *names: str) -> str:
        """The first of these fields that is not empty, or "".

        Raises:
            Refusal: that field is no text.
        """
        for name in names:
            value = self.fields.get(name)
            if value is None or value == "":
                continue
            return _as_text(name, value)
        return ""

    def texts(self, name: str) -> tuple[str, ...]:
        """The entries of a list, each once, without blanks around them; empty if it is no list.

        Raises:
            Refusal: an entry is no text or too long, or there are too many.
        """
        value = self.fields.get(name)
        if not isinstance(value, list):
            return ()
        entries = cast("list[Any]", value)  # type: ignore[redundant-cast]  # pyright's isinstance
        if len(entries) > MANY:
            raise Refusal(f"{name} has {len(entries)} entries; {MANY} is the most.")
        found = tuple(dict.fromkeys(_as_text(name, entry).strip() for entry in entries))
        if any(len(one) > 4 * SHORT for one in found):
            raise Refusal(f"{name} has an entry longer than {4 * SHORT} characters.")
        return tuple(one for one in found if one)

    def number(self, name: str) -> float | None:
        """A finite number, or None if the field is missing.

        Raises:
            Refusal: the field is something else.
        """
        value = self.fields.get(name)
        if value is None:
            return None
        found = _as_number(value)
        if found is None:
            raise Refusal(f"{name} must be a finite number, not {_short_repr(value)}.")
        return found

    def integer(self, name: str) -> int | None:
        """``number`` without its fraction."""
        found = self.number(name)
        return None if found is None else int(found)

    def table(self, name: str) -> dict[str, Any]:
        """A JSON object; an empty one if the field is anything else."""
        value = self.fields.get(name)
        return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def read(data: str | bytes) -> Frame:
    """The message in a frame.

    Raises:
        Unreadable: the frame is no JSON, or no object.
    """
    try:
        return Frame(_object(msgspec.json.decode(data)))
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return Frame(_object(_decode_lenient(data)), "NaN and Infinity are no numbers of JSON.")


def encode(fields: Mapping[str, Any]) -> str:
    """The text of a message."""
    return msgspec.json.encode(fields).decode()


def envelope(kind: str, payload: str, target: str, extras: Mapping[str, Any]) -> str:
    """The text of a message from the hub itself."""
    return encode({"sender": HUB, "target": target, "type": kind, "payload": payload, **extras})


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Unreadable("A message must be a JSON object.")
    return cast("dict[str, Any]", value)


def _decode_lenient(data: str | bytes) -> Any:
    """Decode with Python's laxer parser, so that the refusal of NaN can name it."""
    try:
        found = json.loads(data)
        encode({"": found})  # raises for text that is no valid Unicode
    except (ValueError, RecursionError, OverflowError):
        raise Unreadable("Malformed JSON.") from None
    return found


def _as_text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise Refusal(f"{name} must be text, not {_short_repr(value)}.")


def _as_number(value: Any) -> float | int | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = value if isinstance(value, int) else float(value)
    except ValueError:
        return None
    return found if abs(found) < LARGEST else None  # the comparison is false for NaN


def _short_repr(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
