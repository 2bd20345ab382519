"""What an agent is told besides its prompt: the form of the answer, and why one was refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from handrail.model.launch import Launch
from handrail.shortening import shortened
from handrail.typed.jsonsafe import short_repr

_QUOTED_CHARS = 5_000
KEPT_CHARS = 4_000
"""How much of an answer is kept to be quoted; what is left out is said in a line of its own."""
_SHOWN_CHARS = 300


def with_schema(prompt: str, schema: Mapping[str, Any]) -> str:
    """The prompt, followed by the form that the answer must have."""
    shown = json.dumps(schema, indent=2, ensure_ascii=False)
    return (
        f"{prompt.rstrip()}\n\n"
        f"End your answer with one JSON value that fits this JSON schema:\n\n"
        f"```json\n{shown}\n```"
    )


def asked_again(task: str, answer: str, reason: str, *, remembered: bool) -> str:
    """The prompt after an answer that did not fit.

    Where the backend does not remember the conversation, the task and the answer are repeated.
    """
    refusal = (
        f"Your answer was not accepted: {reason.rstrip('.')}.\n"
        f"Answer again, in the form that was asked for."
    )
    if remembered:
        return refusal
    return f"{task}\n\nYou answered:\n\n{both_ends(answer, _QUOTED_CHARS)}\n\n{refusal}"


def put(task: str, launch: Launch, *, remembered: bool) -> str:
    """The task as one launch puts it; ``remembered``: it goes on in a session that knows of it."""
    match launch.form or launch.rung:
        case "start" | "fallback":
            return task
        case "reask":
            return asked_again(task, launch.answer, launch.reason, remembered=remembered)
        case "reframe":
            return reframed(task, launch.reason)
        case "summarise":
            return continued(task, launch.answer)
        case "resume" | "retry" | "wait" | "compact":
            return resumed(task, launch.reason) if remembered and launch.session else task


def resumed(task: str, reason: str) -> str:
    """The prompt that goes on in a session that broke off."""
    return (
        f"You were interrupted: {reason.rstrip('.')}. Go on with the task below from where you "
        f"stopped: see first what is done already, and do not do it twice.\n\n{task}"
    )


def continued(task: str, answer: str) -> str:
    """The prompt for a new session, after one that had become too long."""
    done = both_ends(answer, _QUOTED_CHARS)
    if not done:
        return task
    return (
        f"{task}\n\nAn earlier session worked on this and became too long to go on. The end of "
        f"what it said and did:\n\n{done}\n\nSee first what is done already, and go on from there."
    )


def reframed(task: str, reason: str) -> str:
    """The prompt for a new session, after answers that did not fit."""
    return (
        f"Read the whole task before you begin, and at the end give the answer in exactly the form "
        f"that it asks for, and nothing after it. Earlier answers were not accepted: "
        f"{reason.rstrip('.')}.\n\n{task}"
    )


def rejected(wanted: str, turns: int, reason: str, answer: str) -> str:
    """Why the agent's last answer was given up on, for the person who wrote the agent."""
    times = f"{turns} turn{'s' * (turns != 1)}"
    said = short_repr(answer, _SHOWN_CHARS) if answer.strip() else "empty"
    return (
        f"no answer fits {wanted} after {times}: {reason.rstrip('.')}. The last answer was {said}. "
        f"Say in the prompt what the answer must hold, or allow more turns with max_reasks=."
    )


def both_ends(text: str, limit: int) -> str:
    """``text``, or its beginning and its end with a line between that says how much is left out."""
    text = text.strip()
    if len(text) <= limit:
        return text
    head = shortened(text, limit // 2, mark="")
    tail = shortened(text, limit // 2, keep="tail", mark="")
    left_out = len(text) - len(head) - len(tail)
    return f"{head}\n[... {left_out} characters left out ...]\n{tail}"
