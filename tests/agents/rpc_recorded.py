"""Recorded conversations in JSON-RPC, and dialogues that are fed with them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from handrail.agents.transport.parser import Ending
from handrail.agents.transport.rpc import Dialogue
from handrail.errors import AgentError
from handrail.model.events import Notice
from handrail.ports.agent import AgentReply
from tests.agents.recorded import NOW, SAMPLES, Played

FOLDERS = {"codex_rpc": ("codex", "codex_rpc"), "acp": ("acp", "acp_rpc")}
EXITED = Ending(0, now=NOW, after_s=1.0)


def recording(protocol: str, case: str) -> Path:
    """The file of a recorded conversation."""
    names = [SAMPLES / folder / f"{case}.rpc.jsonl" for folder in FOLDERS[protocol]]
    return next(name for name in names if name.exists())


def received(protocol: str, case: str) -> list[Any]:
    """What the program said in it."""
    return _said(protocol, case, "agent->client")


def sent(protocol: str, case: str) -> list[Any]:
    """What the program was told in it."""
    return _said(protocol, case, "client->agent")


def _said(protocol: str, case: str, direction: str) -> list[Any]:
    lines = recording(protocol, case).read_text("utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    return [record["msg"] for record in records if record["dir"] == direction]


@dataclass(frozen=True, slots=True)
class Held(Played):
    """What a dialogue made of a conversation, and what it sent."""

    sent: tuple[Any, ...]

    @property
    def methods(self) -> list[str]:
        """What it asked for, and for answers their results."""
        return [message.get("method") or json.dumps(message["result"]) for message in self.sent]


def tell(dialogue: Dialogue, message: object) -> tuple[list[Notice], list[Any]]:
    """What a message means, and what is sent because of it."""
    said = list(dialogue.on_message(message))
    answers = [one for one in said if isinstance(one, dict)]
    return [one for one in said if not isinstance(one, dict)], answers


def hold(dialogue: Dialogue, messages: Iterable[object], ending: Ending = EXITED) -> Held:
    """What a dialogue makes of these messages."""
    notices: list[Notice] = []
    told: list[Any] = list(dialogue.start())
    for message in messages:
        more, answers = tell(dialogue, message)
        notices += more
        told += answers
    finished, open_tools = dialogue.finished, dialogue.open_tools
    try:
        outcome: AgentReply | AgentError = dialogue.conclude(ending)
    except AgentError as error:
        outcome = error
    return Held(tuple(notices), outcome, finished, open_tools, tuple(told))


def with_unknown(value: Any, name: str = "zzUnknown") -> Any:
    """The same message with a field more in each object that the protocol gives names."""
    if isinstance(value, list):
        return [with_unknown(one, name) for one in value]
    if isinstance(value, dict):
        inner = {
            key: one if key in ("rawInput", "arguments", "changes") else with_unknown(one, name)
            for key, one in value.items()
        }
        is_tagged = len(value) == 1 and isinstance(next(iter(value.values())), (dict, str))
        return inner if is_tagged else {**inner, name: {"deep": [1, None]}}
    return value
