"""What is made of each recorded run and conversation, as data.

It stands in `samples/<program>/readings.json`; `python -m tests.agents.readings` writes it again,
and what then differs is to be read before it is committed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from handrail.agents.acp.dialogue import AcpDialogue
from handrail.agents.claude.protocol import ClaudeTurn
from handrail.agents.codex.dialogue import CodexDialogue
from handrail.agents.copilot.stream import CopilotParser
from handrail.agents.transport.parser import Ending, Stop, TurnParser
from handrail.agents.transport.rpc import Dialogue
from handrail.errors import AgentError
from handrail.model.agent_options import AgentOptions
from handrail.typed.jsonsafe import json_safe
from tests.agents.recorded import NOW, SAMPLES, Played, ending_of, endings, play, recorded, turn_of
from tests.agents.rpc_recorded import FOLDERS, Held, hold, received

PARSERS: Mapping[str, Callable[..., TurnParser]] = {
    "claude": ClaudeTurn,
    "copilot": CopilotParser,
}
DIALOGUES: Mapping[str, Callable[..., Dialogue]] = {
    "acp": lambda turn: AcpDialogue(turn, AgentOptions(), cwd="/srv/demo"),
    "codex_rpc": lambda turn: CodexDialogue(
        turn, AgentOptions(), cwd="/srv/demo", client_version="1"
    ),
}
GONE_ON_IN = ("resume_2", "resume_6", "context_overflow_auto_compact", "bad_resume")
"""Cases that went on in a session, of which nothing else is known."""
STOPS: tuple[Stop, ...] = ("interrupted", "idle_timeout", "timeout", "start_timeout")
UNTOLD = ("path", "run_id", "seq", "at", "fault")
STOPPED = ("hang", "conn_refused", "interrupt", "cancel", "text")
"""Cases of which it also counts why the program was stopped, if it was."""


def parser_for(program: str, case: str) -> TurnParser:
    """The parser of the turn in which a case was recorded."""
    session = "the-session" if case.startswith(GONE_ON_IN) else None
    schema = {"type": "object"} if case.startswith("schema") else None
    return PARSERS[program](turn_of(session=session, schema=schema))


def read(program: str, case: str, stopped: Stop | None = None) -> Played:
    """What is made of a recorded run."""
    ending = ending_of(program, case, stopped)
    return play(parser_for(program, case), [recorded(program, case)], ending)


def listen(protocol: str, case: str, stopped: Stop | None = None) -> Held:
    """What is made of a recorded conversation."""
    ending = Ending(0, stopped, now=NOW, after_s=1.0)
    return hold(DIALOGUES[protocol](turn_of()), received(protocol, case), ending)


def conversations(protocol: str) -> list[str]:
    """The recorded conversations in a protocol that have a turn."""
    names = {
        path.name.removesuffix(".rpc.jsonl")
        for folder in FOLDERS[protocol]
        for path in (SAMPLES / folder).glob("*.rpc.jsonl")
    }
    return sorted(names - {"appserver_compact"})


def cases(name: str) -> list[str]:
    """The recorded cases of a program or a protocol."""
    return conversations(name) if name in DIALOGUES else list(endings(name))


def readings(name: str) -> dict[str, dict[str, Any]]:
    """What is made of all cases of a program or a protocol, by the case and why it was stopped."""
    make = listen if name in DIALOGUES else read
    return {
        case if stop is None else f"{case}, {stop}": as_data(make(name, case, stop))
        for case in cases(name)
        for stop in (None, *STOPS)
        if stop is None or any(word in case for word in STOPPED)
    }


def as_data(made: Played | Held) -> dict[str, Any]:
    """All that is known of a turn, as JSON."""
    outcome = made.outcome
    return {
        "notices": [{"type": type(one).__name__, **_known(one)} for one in made.notices],
        "error" if isinstance(outcome, AgentError) else "reply": _known(outcome),
        "finished": made.finished,
        "open_tools": made.open_tools,
    }


def _known(value: Any) -> dict[str, Any]:
    names = getattr(value, "__dataclass_fields__", None) or vars(value)
    told: Any = json_safe({name: getattr(value, name) for name in names if name not in UNTOLD})
    return _without_none(told)  # type: ignore[no-any-return]


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_none(one) for name, one in value.items() if one is not None}
    return value


def kept(name: str) -> dict[str, dict[str, Any]]:
    """What was made of all cases when it was last written."""
    found: dict[str, dict[str, Any]] = json.loads(_path(name).read_text("utf-8"))
    return found


def _path(name: str) -> Path:
    return SAMPLES / name / "readings.json"


def _write() -> None:
    for name in (*PARSERS, *DIALOGUES):
        told = [f"{_json(case)}: {_lines(made)}" for case, made in readings(name).items()]
        _path(name).write_text("{\n" + ",\n".join(told) + "\n}\n", "utf-8")


def _lines(made: dict[str, Any]) -> str:
    notices = ",\n".join(f"  {_json(one)}" for one in made["notices"])
    rest = ",\n".join(f" {_json(name)}: {_json(made[name])}" for name in list(made)[1:])
    return f'{{\n "notices": [\n{notices}\n ],\n{rest}\n}}'


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    _write()
