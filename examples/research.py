"""Look many topics up at once, each with two backends in a race, and join what was found.

    python examples/research.py [TOPIC ...]
    handrail run examples/research.py --input 'topics=["light", "air"]'

No model is needed: the backends have notes on a few topics, and take their time to find them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio

from handrail import (
    Agent,
    AgentError,
    AgentReply,
    AgentTurn,
    ConsoleSink,
    Executor,
    Steps,
    step,
    workflow,
)


@dataclass(frozen=True)
class Finding:
    """What is known of one topic, and who said so first."""

    topic: str
    text: str
    source: str


class Notes:
    """A backend that looks its answer up; one that is slow may know more."""

    def __init__(self, name: str, notes: Mapping[str, str], *, seconds: float) -> None:
        self.name = name
        self.notes = notes
        self.seconds = seconds

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """The note on the topic.

        Raises:
            AgentError: there is none.
        """
        await anyio.sleep(self.seconds)
        topic = turn.context["topic"]
        if topic not in self.notes:
            raise AgentError(turn.agent, f"{self.name} has nothing on {topic}")
        return AgentReply(self.notes[topic], model=self.name)


FEW = {
    "light": "Sunlight is a mixture of all colours.",
    "air": "Air scatters short waves more than long ones.",
}
MANY = FEW | {
    "eye": "Our eyes see blue far better than violet.",
    "dusk": "In the evening light comes a long way, and little blue is left of it.",
}

PROMPT = "What matters about {{ topic }} if you wonder why the sky is blue? One sentence."
memory = Agent("memory", PROMPT, backend=Notes("memory", FEW, seconds=0.2))
library = Agent("library", PROMPT, backend=Notes("library", MANY, seconds=0.8))


@workflow(description="Look topics up side by side, race two backends for each, join the findings")
def research(topics: Sequence[str] = ("light", "air", "eye", "dusk")) -> Steps[str]:
    """One paragraph on what was found."""
    results = yield from step("topics").for_each(
        topics, look_up, key=str, max_concurrency=3, on_error="continue", min_success=1
    )
    findings = [result.unwrap() for result in results if result.success]
    return (yield from step("join").generate(joined, {"findings": findings}))


def look_up(topic: str) -> Steps[Finding]:
    """Ask both; the first good answer wins, and the other is cancelled."""
    context = {"topic": topic}
    answer = yield from step("ask").race(
        step("memory").agent(memory, context),
        step("library").agent(library, context),
    )
    return Finding(topic, answer.output, answer.model or "?")


def joined(context: Mapping[str, Any]) -> str:
    """The findings as one text; an agent could stand here in the place of a function."""
    findings: list[Finding] = context["findings"]
    return " ".join(finding.text for finding in findings)


if __name__ == "__main__":
    given = [sys.argv[1:]] if len(sys.argv) > 1 else []
    print(Executor(sinks=[ConsoleSink()]).run_sync(research, *given).unwrap())
