"""A recorded launch as a file that people read and compare: JSON, long texts as lists of lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, cast, get_args

import msgspec

from handrail.errors import AgentError
from handrail.model.events import AgentSessionStarted, Notice, Progress
from handrail.ports.agent import AgentReply
from handrail.typed.jsonsafe import Json, json_safe

FORM = 1
_NOTICES: Mapping[str, Any] = {
    cls.__name__: cls for cls in (*get_args(Progress), AgentSessionStarted)
}
_OF_A_RUN = frozenset({"run_id", "seq", "at", "path"})
_OF_AN_ERROR = (
    *("kind", "reason", "retry_at", "http_status", "session", "text", "usage", "model", "hint"),
)


@dataclass(frozen=True, slots=True)
class Recording:
    """One launch: what was asked, what was told meanwhile, and how it ended.

    ``asked`` is what else the backend was told. ``change`` says what became of the working tree:
    ``{"patch": name, "files": [...]}``, or ``{"none": why}``.
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
            "agent": self.agent,
            "path": self.path,
            "launch": self.launch,
            "recorded_at": self.recorded_at,
            "backend": self.backend,
            "asked": self.asked,
            "prompt": self.prompt,
            "notices": [_notice_data(notice) for notice in self.notices],
            "error" if failed else "reply": _end_data(self.ended),
            "change": self.change,
        }


def written(data: Mapping[str, Any]) -> str:
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
        ValueError: it is no such file.
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
        ValueError, KeyError: the data are of another shape.
    """
    return Recording(
        agent=data["agent"],
        path=data["path"],
        launch=data["launch"],
        backend=data["backend"],
        prompt=data["prompt"],
        asked=data["asked"],
        notices=tuple(_notice(one, path) for one in data["notices"] if one["type"] in _NOTICES),
        ended=_end(data),
        change=data["change"],
        recorded_at=data["recorded_at"],
    )


def _notice_data(notice: Notice) -> dict[str, Any]:
    return {"type": type(notice).__name__, **_told(notice, leave=_OF_A_RUN)}


def _notice(data: Mapping[str, Any], path: str) -> Notice:
    told = {name: value for name, value in data.items() if name != "type"}
    made: Notice = msgspec.convert({**told, "path": path}, _NOTICES[data["type"]])
    return made


def _end_data(ended: AgentReply | AgentError) -> dict[str, Any]:
    if isinstance(ended, AgentReply):
        return _told(ended)
    known = {name: json_safe(getattr(ended, name)) for name in _OF_AN_ERROR}
    return {name: _without_none(value) for name, value in known.items() if value not in (None, "")}


def _end(data: Mapping[str, Any]) -> AgentReply | AgentError:
    if "error" not in data:
        return msgspec.convert(data["reply"], AgentReply)
    told = {**data["error"]}
    usage = told.pop("usage", None)
    known = msgspec.convert({"text": "", "usage": usage}, AgentReply).usage
    return AgentError(data["agent"], told.pop("reason", ""), usage=known, **told)


def _told(record: Any, leave: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Of a record's fields those that are not at their defaults, and its text."""
    told: dict[str, Any] = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if field.name not in leave and (field.name == "text" or value != field.default):
            told[field.name] = _without_none(json_safe(value))
    return told


def _without_none(value: Json) -> Json:
    if not isinstance(value, dict):
        return value
    return {name: item for name, item in value.items() if item is not None}
