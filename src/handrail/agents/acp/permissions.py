"""What an agent may do when it asks. Nobody is there to decide: the permission level does."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from typing import Any

from handrail.agents.programs.loose_json import Object, object_in, objects_in, text_in
from handrail.model.agent_options import Permission

_READING = frozenset({"read", "search", "think"})
_CHANGING = frozenset({"edit", "delete", "move"})

CANCELLED = {"outcome": {"outcome": "cancelled"}}


def may_do(call: Object, level: Permission | None, folders: Iterable[str]) -> bool:
    """Whether a level allows a tool call: ``full`` everything, ``read_only`` to read within the
    working folders, ``workspace`` to change files there too. Without a level nothing is allowed.
    """
    if level == "full":
        return True
    kinds = {"read_only": _READING, "workspace": _READING | _CHANGING}.get(level or "")
    if kinds is None or text_in(call, "kind") not in kinds:
        return False
    places = list(_places(call))
    return bool(places) and all(_is_within(place, folders) for place in places)


def outcome(params: Object, *, is_allowed: bool) -> tuple[dict[str, Any], bool]:
    """The answer to a permission request, and whether it allows: only if it offers a way to."""
    offered = {text_in(one, "kind"): text_in(one, "optionId") for one in _options(params)}
    kinds = ("allow_once", "allow_always") if is_allowed else ("reject_once", "reject_always")
    chosen = next((offered[kind] for kind in kinds if offered.get(kind)), None)
    if chosen is None:
        return CANCELLED, False
    return {"outcome": {"outcome": "selected", "optionId": chosen}}, is_allowed


def what_is_asked(call: Object) -> str:
    """What an agent wants to do, in a line."""
    given = object_in(call, "rawInput")
    return text_in(given, "command") or text_in(call, "title") or ", ".join(_places(call))


def _options(params: Object) -> list[Object]:
    """The offered answers, the first of each kind last, so that it counts."""
    return objects_in(params, "options")[::-1]


def _places(call: Object) -> Iterable[str]:
    for place in (*objects_in(call, "locations"), *objects_in(call, "content")):
        if path := text_in(place, "path"):
            yield path


def _is_within(path: str, folders: Iterable[str]) -> bool:
    plain = posixpath.normpath(path)
    return any(
        plain == folder or plain.startswith(f"{folder}/")
        for folder in map(posixpath.normpath, folders)
    )
