"""A recorded launch as a file that people read and compare: JSON, long texts as lists of lines."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, cast, get_args

import msgspec

from handrail.model.dataclass import dataclass
from handrail.model.events import (
    AgentMessage,
    AgentReasoning,
    AgentSessionStarted,
    Notice,
    Progress,
    StepOutput,
)
from handrail.model.launch import AgentError
from handrail.ports.agent import AgentReply
from handrail.secrets.masking import NAME_LEAST, Mask
from handrail.typed.jsonsafe import Json, json_safe

FORM = 1
_NOTICES: Mapping[str, Any] = {
    cls.__name__: cls for cls in (*get_args(Progress), AgentSessionStarted)
}
_OF_A_RUN = frozenset({"run_id", "seq", "at", "path"})
_OF_AN_ERROR = (
    *("kind", "reason", "retry_at", "http_status", "session", "text", "usage", "model", "hint"),
)
_PLAIN = ("agent", "path", "launch", "recorded_at", "backend", "asked", "prompt")
"""The fields of a recording that its JSON data have as they are."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One launch: its prompt, its notices, and how it ended.

    ``asked`` is what the turn asked besides the prompt. ``change`` is the change to the working
    tree: ``{"patch": name, "files": [...]}``, or ``{"none": why}``.
    """

    agent: str
    path: str
    launch: int
    backend: str
    prompt: str
    asked: dict[str, Json]
    notices: tuple[Notice, ...]
    ended: AgentReply | AgentError
    change: dict[str, Json]
    recorded_at: str = ""

    def data(self) -> dict[str, Any]:
        """As JSON data."""
        failed = isinstance(self.ended, AgentError)
        return {
            "handrail_cassette": FORM,
            **{name: getattr(self, name) for name in _PLAIN},
            "notices": [
                {"type": type(one).__name__, **_fields_of(one, leave=_OF_A_RUN)}
                for one in self.notices
            ],
            "error" if failed else "reply": _end_data(self.ended),
            "change": self.change,
        }


def to_text(data: Mapping[str, Any]) -> str:
    """JSON data of a recording as the text of its file."""
    shown = dict(data)
    shown["prompt"] = shown["prompt"].split("\n")
    end = "error" if "error" in shown else "reply"
    shown[end] = {**shown[end], "text": shown[end].get("text", "").split("\n")}
    parts = [f"  {json.dumps(key)}: {_value(value)}" for key, value in shown.items()]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _value(value: Any) -> str:
    """A list with one item a line, anything else in the usual form."""
    if isinstance(value, list) and value:
        items = [json.dumps(item, ensure_ascii=False) for item in cast("Iterable[Any]", value)]
        return "[\n    " + ",\n    ".join(items) + "\n  ]"
    return json.dumps(value, ensure_ascii=False, indent=2).replace("\n", "\n  ")


def data_of(text: str) -> dict[str, Any]:
    """The JSON data of a recording's file.

    Raises:
        ValueError: the text is not from such a file.
    """
    data: Any = json.loads(text)
    if not isinstance(data, dict) or cast("Any", data).get("handrail_cassette") != FORM:
        raise ValueError(f"no recording of form {FORM}")
    known = cast("dict[str, Any]", data)
    known["prompt"] = "\n".join(known["prompt"])
    end = known.get("error") or known["reply"]
    end["text"] = "\n".join(end["text"])
    return known


def recording_of(data: Mapping[str, Any], path: str) -> Recording:
    """A recording from its JSON data, with its notices for a step at ``path``.

    Raises:
        ValueError, KeyError: the data have another shape.
    """
    return Recording(
        **{name: data[name] for name in _PLAIN},
        notices=tuple(_notice(one, path) for one in data["notices"] if one["type"] in _NOTICES),
        ended=_end(data),
        change=data["change"],
    )


def _notice(data: Mapping[str, Any], path: str) -> Notice:
    known = {name: value for name, value in data.items() if name != "type"}
    notice: Notice = msgspec.convert({**known, "path": path}, _NOTICES[data["type"]])
    return notice


def _end_data(ended: AgentReply | AgentError) -> dict[str, Any]:
    if isinstance(ended, AgentReply):
        return _fields_of(ended)
    known = {name: json_safe(getattr(ended, name)) for name in _OF_AN_ERROR}
    return {name: _without_none(value) for name, value in known.items() if value not in (None, "")}


def _end(data: Mapping[str, Any]) -> AgentReply | AgentError:
    if "error" not in data:
        return msgspec.convert(data["reply"], AgentReply)
    error = {**data["error"]}
    usage = error.pop("usage", None)
    known = msgspec.convert({"text": "", "usage": usage}, AgentReply).usage
    return AgentError(data["agent"], error.pop("reason", ""), usage=known, **error)


def _fields_of(record: Any, leave: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The fields of a record that are not at their defaults, and its text."""
    data: dict[str, Any] = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if field.name not in leave and (field.name == "text" or value != field.default):
            data[field.name] = _without_none(json_safe(value))
    return data


def _without_none(value: Json) -> Json:
    if not isinstance(value, dict):
        return value
    return {name: item for name, item in value.items() if item is not None}


_TREE = "${WORKING_TREE}"


class PortableTexts:
    """Keeps this machine's paths and secrets out of the texts of a recording's file."""

    def __init__(self, root: Path, mask: Mask) -> None:
        self.mask = mask
        self._root = str(root)
        known = len(self._root) > 1
        self._here = re.compile(rf"{re.escape(self._root)}(?![\w-])") if known else None

    def to_file(self, value: Any) -> Any:
        """JSON data, or a text, as it is written to the file."""
        return _map_texts(value, self._text_to_file)

    def from_file(self, value: Any) -> Any:
        """JSON data, or a text, with this machine's paths."""
        return _map_texts(value, lambda text: text.replace(_TREE, self._root))

    def _text_to_file(self, text: str) -> str:
        shown = text if self._here is None else self._here.sub(lambda _: _TREE, text)
        return self.mask.text(shown)

    def pieces(self, notices: Sequence[Notice]) -> tuple[Notice, ...]:
        """The notices; a secret that spans several pieces of a text is cut out of them."""
        shown = list(notices)
        for places in _texts(notices):
            texts = [cast("Any", notices[place]).text for place in places]
            if self.mask.text("".join(texts)) == "".join(map(self.mask.text, texts)):
                continue
            for place, text in zip(places, self._cut(texts), strict=True):
                shown[place] = replace(cast("Any", notices[place]), text=text)
        return tuple(shown)

    def _cut(self, texts: Iterable[str]) -> list[str]:
        """Pieces of a text that together are the masked text."""
        cut: list[str] = []
        rest = before = ""
        for text in texts:
            piece, rest, before = self.mask.split(rest + text, before)
            cut.append(piece)
        cut[-1] += self.mask.after(before, rest)
        return cut


def _texts(notices: Sequence[Notice]) -> list[list[int]]:
    """For each text that comes in pieces, the positions of its pieces."""
    places: dict[tuple[type, str], list[int]] = {}
    for place, notice in enumerate(notices):
        if isinstance(notice, (AgentMessage, AgentReasoning, StepOutput)):
            key = (type(notice), getattr(notice, "stream", ""))
            places.setdefault(key, []).append(place)
    return list(places.values())


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """JSON data with every text changed; short keys of objects stay, as handrail chose them."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_map_texts(item, change) for item in cast("Iterable[Any]", value)]
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {k if len(k) < NAME_LEAST else change(k): _map_texts(v, change) for k, v in items}
    return value
