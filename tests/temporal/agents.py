"""Workflows with agents of real programs' names, for these tests."""

from __future__ import annotations

from handrail import Agent, step, workflow
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


FLOWS = (talks,)
