"""Files of workflows for tests, and agents that answer by the names of their nodes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import attrs

from handrail import AgentReply, AgentTurn, Executor, FakeBackend
from handrail.model.events import AgentFinished


def conductor(nodes: str, *, head: str = "", output: str = "", start: str = "a") -> str:
    """The text of a file of Conductor with these nodes, more of its `workflow:`, and an output."""
    more = indent(dedent(head), "  ")
    made = f"workflow:\n  name: flow\n  entry_point: {start}\n{more}{dedent(nodes)}"
    return f"{made}output:\n{indent(dedent(output), '  ')}" if output else made


def workhorse(nodes: str, *, head: str = "") -> str:
    """The text of a file of workhorse with these nodes."""
    return f"name: flow\nstart: a\n{dedent(head)}nodes:\n{dedent(nodes)}"


@attrs.define
class Answering:
    """A backend that answers with the next answer of the node that asks, or with its only one."""

    answers: Mapping[str, Any]
    asked: list[str] = attrs.field(factory=list)
    turns: list[AgentTurn] = attrs.field(factory=list)
    name: str = "answering"
    capabilities: Any = FakeBackend([]).capabilities

    async def complete(self, turn: AgentTurn) -> AgentReply:
        """The answer of the node that the step's path names."""
        parts = [re.sub(r"-+\d+$", "", part) for part in turn.path.split("/")]
        parts += [turn.agent] * turn.agent.endswith("-check")
        node = next(part for part in reversed(parts) if part in self.answers)
        self.asked.append(node)
        self.turns.append(turn)
        said = self.answers[node]
        if isinstance(said, list):
            said = said[min(self.asked.count(node), len(said)) - 1]
        said = said(turn) if callable(said) else said
        if isinstance(said, Exception):
            raise said
        turn.emit(AgentFinished(turn.path, "completed"))
        return AgentReply(said if isinstance(said, str) else json.dumps(said))

    @property
    def prompts(self) -> list[str]:
        """The prompts, without the form that an answer must have."""
        return [turn.prompt.partition("\n\nEnd your answer")[0].strip() for turn in self.turns]


def run(workflow: Any, answers: Mapping[str, Any], gates: Any = None, **inputs: Any) -> Any:
    """The result of a run, and the backend that was asked."""
    backend = Answering(answers)
    return Executor(backend=backend, gates=gates).run_sync(workflow, **inputs), backend


def write(folder: Path, text: str, files: Mapping[str, str] | None = None) -> Path:
    """A workflow's file in a folder, with the files beside it."""
    for name, said in {"flow.yaml": text, **(files or {})}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(said, "utf-8")
    return folder / "flow.yaml"
