"""Workflows with agents of real programs' names, for these tests."""

from __future__ import annotations

import anyio

from handrail import Agent, AgentReply, AgentTurn, step, workflow
from handrail.steps.verbs import Steps

claude = Agent("writer", "{{ task }}", backend="claude")
codex = Agent("writer", "{{ task }}", backend="codex")


@workflow
def talks(program: str) -> Steps[list[str]]:
    """Two turns in one session, with a question to a person between them."""
    writer = claude if program == "claude" else codex
    first = yield from step("first").agent(writer, {"task": "Begin."})
    said = yield from step("go?").ask("Go on?", choices=["yes", "no"])
    second = yield from step("second").agent(writer, {"task": f"Go on: {said}."}, session=first)
    return [str(first.output), str(second.output)]


class Patient:
    """A backend that answers once somebody says so."""

    name = "patient"

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """Wait, or answer."""
        if "Hurry" not in turn.prompt:
            await anyio.sleep(60)
        return AgentReply("Hurried.")


dreamer = Agent("dreamer", "Think.", backend=Patient())


@workflow
def dreams() -> Steps[str]:
    """One agent."""
    return str((yield from step("think").agent(dreamer)).output)


FLOWS = (talks, dreams)
