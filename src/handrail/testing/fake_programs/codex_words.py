"""What codex says of tokens and of failures, in both of its protocols.

Source: recordings of codex 0.169.0, which the tests hold it to.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from handrail.testing.fake_programs.launch import Entry
from handrail.testing.fake_programs.output import new_id

VERSION = "codex-cli 0.169.0"
MODEL = "gpt-5"
CAPPED = (
    "You’ve hit your usage limit. Visit https://chatgpt.com/settings/usage to purchase more "  # noqa: RUF001  (the program writes it so)
    "credits or try again {when}."
)
FAILED: Mapping[str, tuple[str, Any]] = {
    "rate_limit": (
        "exceeded retry limit, last status: 429 Too Many Requests",
        {"responseTooManyFailedAttempts": {"httpStatusCode": 429}},
    ),
    "usage_cap": (CAPPED, "usageLimitExceeded"),
    "spending_cap": ("Quota exceeded. Check your plan and billing details.", "usageLimitExceeded"),
    "context_overflow": (
        (
            "Codex ran out of room in the model's context window. Start a new thread or clear "
            "earlier history before retrying."
        ),
        "contextWindowExceeded",
    ),
    "auth": (
        (
            "unexpected status 401 Unauthorized: Incorrect API key provided: sk-dummy., "
            "url: http://127.0.0.1/v1/responses"
        ),
        {"httpConnectionFailed": {"httpStatusCode": 401}},
    ),
    "transient": (
        "We’re currently experiencing high demand, which may cause temporary errors.",  # noqa: RUF001  (as above)
        "internalServerError",
    ),
    "bad_request": (
        json.dumps({"error": {"message": "The requested model does not exist.", "code": 404}}),
        "other",
    ),
    "output_limit": ("Incomplete response returned, reason: max_output_tokens", "other"),
    "refusal": ("This request was refused by the provider's policy.", "cyberPolicy"),
}


def failure(fail: Entry) -> tuple[str, Any]:
    """The message of a failure, and codex's own type of it."""
    kind = fail["kind"]
    text, info = FAILED[kind]
    if kind == "usage_cap":
        text = CAPPED.format(when=_when(fail))
    return fail["message"] or text, info


def _when(fail: Entry) -> str:
    """As codex says it: a time of its own clock, without a date or a zone."""
    if fail["resets"]:
        return f"at {fail['resets']}"
    if fail["resets_at"] is None:
        return "later"
    at = time.localtime(fail["resets_at"])
    return f"at {at.tm_hour % 12 or 12}:{at.tm_min:02} {'AM' if at.tm_hour < 12 else 'PM'}"


def new_thread_id() -> str:
    """An id as codex makes them, by time."""
    at = f"{int(time.time() * 1000):012x}"
    return f"{at[:8]}-{at[8:]}-7{new_id()[15:]}"


def shell(tool: Entry) -> str:
    """The command line that codex runs."""
    command = tool["command"] or f"{tool['name']} {json.dumps(tool['input'])}"
    return "/bin/bash -lc " + (f"'{command}'" if "'" not in command else json.dumps(command))


def file_kind(content: str | None, *, existed: bool) -> str:
    """What happens to a file."""
    if content is None:
        return "delete"
    return "update" if existed else "add"
