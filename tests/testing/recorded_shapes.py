"""How a fake program's output is held to a recording of the real one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

SAMPLES = Path(__file__).parents[1] / "agents" / "samples"
OPEN = frozenset(
    {"input", "arguments", "rawInput", "modelUsage", "modelMetrics", "structured_output"}
)
"""Mappings whose keys are names of the case, not of the protocol."""

LEFT_OUT = frozenset({"agents", "capabilities", "slash_commands", "tools"})
"""Long lists that the kept recordings of claude are without."""

PASSING = frozenset(
    {
        "assistant.tool_call_delta",
        "configWarning",
        "model.call_failure",
        "remoteControl/status/changed",
        "session.background_tasks_changed",
        "session.mcp_servers_loaded",
        "session.skills_loaded",
        "system/thinking_tokens",
        "thread/readState/changed",
        "tool.execution_partial_result",
        "tool.shell_output",
        "user/text",
        "update/available_commands_update",
        "update/config_option_update",
        "update/session_info_update",
        "update/usage_update",
        "account/rateLimits/updated",
        "thread/tokenUsage/updated",
    }
)
"""What real programs say besides, or as often as they like: no one may depend on it."""


class Event(NamedTuple):
    """One event with the name that tells what it is."""

    kind: str
    data: Mapping[str, Any]


def printed(lines: Iterable[str]) -> list[Event]:
    """The events of a program's stdout."""
    return [_event(json.loads(line)) for line in lines if line.strip()]


def recording(name: str) -> list[Event]:
    """The events of a recorded stdout, or what the agent said in a recorded conversation."""
    lines = (SAMPLES / name).read_text().splitlines()
    if not name.endswith(".rpc.jsonl"):
        return printed(lines)
    records = map(json.loads, lines)
    return [_event(record["msg"]) for record in records if record["dir"] == "agent->client"]


def _event(message: dict[str, Any]) -> Event:
    if "method" in message:
        params = message.get("params") or {}
        if "update" in params:
            return Event(f"update/{params['update']['sessionUpdate']}", message)
        if "item" in params:
            return Event(f"{message['method']}:{params['item']['type']}", message)
        notice = message["method"]
        return Event("notice/error" if notice == "error" else notice, message)
    if "result" in message and "id" in message and "type" not in message:
        return Event("reply", message)
    if "error" in message and "id" in message and "type" not in message:
        return Event("refusal", message)
    kind = message["type"]
    if kind == "system":
        return Event(f"system/{message['subtype']}", message)
    if kind in {"assistant", "user"} and isinstance(message["message"]["content"], list):
        return Event(f"{kind}/{message['message']['content'][0]['type']}", message)
    if kind == "user":
        return Event("user/text", message)
    if kind == "message":
        return Event(f"message/{message['role']}", message)
    if kind.startswith("item."):
        return Event(f"{kind}:{message['item']['type']}", message)
    return Event(kind, message)


def order(events: Sequence[Event]) -> list[str]:
    """What comes in which order; deltas in a row count once."""
    kinds = [event.kind for event in events if event.kind not in PASSING]
    return [kind for at, kind in enumerate(kinds) if not at or kinds[at - 1] != kind]


def invented(fake: Sequence[Event], real: Sequence[Event]) -> list[str]:
    """What of the fake's fields no recorded event of the kind has, or has in another form."""
    found: list[str] = []
    for event in fake:
        models = [one.data for one in real if one.kind == event.kind]
        if models:
            found += min((_differences(event.data, one, event.kind) for one in models), key=len)
    return found


def _differences(fake: Any, real: Any, where: str) -> list[str]:
    if fake is None or real is None:
        return []
    if isinstance(fake, dict) and isinstance(real, dict):
        new = fake.keys() - real.keys() - (LEFT_OUT if where == "system/init" else set())
        found = [f"{where}.{key} is not in the recording" for key in new]
        for key in fake.keys() & real.keys() - OPEN:
            found += _differences(fake[key], real[key], f"{where}.{key}")
        return found
    if isinstance(fake, list) and isinstance(real, list):
        return _differences(fake[0], real[0], f"{where}[0]") if fake and real else []
    number = (int, float)
    same = type(fake) is type(real) or (isinstance(fake, number) and isinstance(real, number))
    return [] if same else [f"{where} is {fake!r}, recorded {real!r}"]


def lacking(fake: Sequence[Event], needed: Mapping[str, str]) -> list[str]:
    """Which of the documented fields (``a.b c``, by kind) an event of the fake has not."""
    return [
        f"{event.kind}.{path}"
        for event in fake
        for path in needed.get(event.kind, "").split()
        if not _has(event.data, path.split("."))
    ]


def _has(data: Any, path: Sequence[str]) -> bool:
    if not path:
        return True
    if isinstance(data, list):
        return bool(data) and _has(data[0], path)
    return isinstance(data, dict) and path[0] in data and _has(data[path[0]], path[1:])
