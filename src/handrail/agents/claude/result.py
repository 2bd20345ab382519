"""Whether a result of claude is a success, and what was said if it is none."""

from __future__ import annotations

import re
from dataclasses import dataclass

from handrail.agents.claude.errors import ABORTED, UNDONE, Failure, is_complaint
from handrail.agents.claude.windows import is_used_up, resets_at
from handrail.agents.programs.loose_json import (
    Object,
    list_in,
    object_in,
    objects_in,
    text_in,
    whole_in,
)

_UNKNOWN_COMMAND = re.compile(r"Unknown (?:slash )?command: /?\S")
_DIAGNOSTIC = "[ede_diagnostic]"  # of claude's own makers


@dataclass(frozen=True, slots=True)
class Before:
    """What came before a result and bears on it.

    ``complaint`` is the last assistant line if it was an error, ``window`` the plan's that is used
    up; ``was_interrupted``: a line said that the turn was; ``text``: what the model said last.
    """

    complaint: Object
    window: Object
    was_interrupted: bool
    text: str = ""


def failure_of(result: Object, before: Before) -> Failure | None:
    """Why a result is no success; None if it is one."""
    subtype, terminal = text_in(result, "subtype"), text_in(result, "terminal_reason")
    is_whole = subtype == "success" and not result.get("is_error") and terminal not in UNDONE
    is_refused = text_in(result, "stop_reason") == "refusal"
    is_answer = not before.complaint and not _is_complaint(result, before)
    if is_whole and is_answer and not is_refused and not _is_unknown_command(result):
        return None
    if before.was_interrupted and subtype == "error_during_execution" and not before.complaint:
        terminal = terminal if terminal in ABORTED else "aborted_streaming"
    return told(result, before, subtype=subtype, terminal=terminal)


def told(result: Object, before: Before, *, subtype: str = "", terminal: str = "") -> Failure:
    """All that was said of a failure, by the result and by the assistant line before it."""
    said = before.complaint
    message, params = object_in(said, "message"), object_in(said, "api_error_params")
    window = before.window or object_in(params, "rate_limit_info")
    status = whole_in(result, "api_error_status")
    stops = (text_in(result, "stop_reason"), text_in(message, "stop_reason"))
    return Failure(
        text=_sentence(result) or _sentence_of(message),
        subtype=subtype,
        terminal_reason=terminal,
        stop_reason="refusal" if "refusal" in stops else stops[0] or stops[1],
        error=text_in(said, "error"),
        api_error=text_in(result, "api_error") or text_in(said, "api_error"),
        api_error_type=text_in(result, "api_error_type") or text_in(said, "api_error_type"),
        cut=text_in(params, "cut"),
        status=whole_in(said, "api_error_status") if status is None else status,
        is_capped=is_used_up(window),
        resets_at=resets_at(window) if is_used_up(window) else None,
    )


def _is_complaint(result: Object, before: Before) -> bool:
    """True if the answer is claude's own, and tells of a failure; older ones do not flag it."""
    said = text_in(result, "result")
    return is_complaint(said) and said.strip() != before.text.strip()


def _is_unknown_command(result: Object) -> bool:
    """True if the prompt was taken for a command that there is none of, and no model was asked."""
    said = text_in(result, "result")
    return result.get("num_turns") == 0 and _UNKNOWN_COMMAND.match(said) is not None


def _sentence(result: Object) -> str:
    """What a result says in words."""
    if said := text_in(result, "result").strip():
        return said
    errors = (one for one in list_in(result, "errors") if isinstance(one, str))
    return "; ".join(one for one in errors if not one.startswith(_DIAGNOSTIC))


def _sentence_of(message: Object) -> str:
    blocks = (text_in(block, "text") for block in objects_in(message, "content"))
    return text_in(message, "content") or "\n".join(text for text in blocks if text)
