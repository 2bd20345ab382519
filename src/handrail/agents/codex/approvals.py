"""Answers the requests that codex's app-server sends while it works.

No person is there to decide. At the level ``full`` all is allowed that can be allowed without a
person's input; below that level, all is denied.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any, TypeAlias

from handrail.agents.transport.loose_json import Object, list_in, object_in, objects_in, text_in
from handrail.agents.transport.rpc import Message, Request, answer, refusal
from handrail.model.events import AgentPermission

_NOBODY = "nobody is there to answer"

Answered: TypeAlias = "tuple[Message, AgentPermission | None]"
"""The answer to send, and the notice of what was allowed or denied, if anything was."""


def permission_answer(request: Request, *, path: str, is_full: bool, tool: str = "") -> Answered:
    """The answer to a request; ``tool`` is the running tool that it concerns, if any."""
    method = request.method
    if method not in _ANSWERS:
        return refusal(request, f"handrail does not do {method}"), None
    name, allowing, denying = _ANSWERS[method]
    given = allowing(request.params) if is_full else None
    result = denying(request.params) if given is None else given
    permission = AgentPermission(
        path, tool or name, "denied" if given is None else "allowed", _reason(request.params)
    )
    return answer(request, result), permission


def _reason(params: Object) -> str:
    """The reason and the command or questions of a request, on one line."""
    words = [str(word) for word in list_in(params, "command")]
    asked = text_in(params, "command") or shlex.join(words)
    questions = [text_in(question, "question") for question in objects_in(params, "questions")]
    why = text_in(params, "reason", "message") or " ".join(filter(None, questions))
    return ": ".join(filter(None, (why, asked)))


def _always(result: Any) -> Callable[[Object], Any]:
    return lambda _: result


def _grant_permissions(params: Object) -> Any:
    return {"permissions": dict(object_in(params, "permissions")), "scope": "turn"}


def _accept_question(params: Object) -> Any:
    """Yes to a question; None for a URL, or for a form with required fields."""
    schema = object_in(params, "requestedSchema")
    if text_in(params, "mode") == "url" or list_in(schema, "required"):
        return None
    return {"action": "accept", "content": {}, "_meta": None}


_Given: TypeAlias = Callable[[Object], Any]

_ACCEPT = _always({"decision": "accept"})
_DECLINE = _always({"decision": "decline"})
_DENIED = _always({"decision": {"denied": {"rejection": _NOBODY}}})
_NEVER = _always(None)

# By method: what it asks about, its allowing answer (None: it cannot be allowed), its denying one.
_ANSWERS: dict[str, tuple[str, _Given, _Given]] = {
    "item/commandExecution/requestApproval": ("shell", _ACCEPT, _DECLINE),
    "item/fileChange/requestApproval": ("apply_patch", _ACCEPT, _DECLINE),
    "item/permissions/requestApproval": (
        "permissions",
        _grant_permissions,
        _always({"permissions": {}, "scope": "turn"}),
    ),
    "mcpServer/elicitation/request": (
        "elicitation",
        _accept_question,
        _always({"action": "decline", "content": None, "_meta": None}),
    ),
    "item/tool/requestUserInput": ("request_user_input", _NEVER, _always({"answers": {}})),
    "item/tool/call": (
        "tool",
        _NEVER,
        _always(
            {
                "contentItems": [{"type": "inputText", "text": f"not available: {_NOBODY}"}],
                "success": False,
            }
        ),
    ),
    "execCommandApproval": ("shell", _always({"decision": "approved"}), _DENIED),
    "applyPatchApproval": ("apply_patch", _always({"decision": "approved"}), _DENIED),
}
