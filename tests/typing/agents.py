"""`agent` and `generate`: the output is of the agent's type; a fake stands for any agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, assert_type

from handrail import (
    Agent,
    AgentBackend,
    AgentLike,
    AgentRequest,
    AgentResult,
    CommandBackend,
    FakeBackend,
    Step,
    Steps,
    WorkflowContext,
    step,
)
from handrail.testing import FakeAgent


@dataclass(frozen=True)
class Report:
    title: str


async def later(context: Mapping[str, Any]) -> str:
    return str(context)


def build(ctx: WorkflowContext) -> dict[str, Any]:
    return dict(ctx.inputs)


async def build_later(ctx: WorkflowContext) -> dict[str, Any]:
    return dict(ctx.inputs)


class OwnAgent:
    """An agent that owes nothing to handrail."""

    @property
    def name(self) -> str:
        """As results call it."""
        return "own"

    async def run(self, request: AgentRequest, /) -> AgentResult[Report]:
        """The answer."""
        return AgentResult(Report(request.path))


# -- Agent

text = Agent("a", "x")
report = Agent("a", "x", output=Report)

assert_type(text, Agent[str])
assert_type(report, Agent[Report])
assert_type(Agent("a", Path("x"), backend=FakeBackend(["a"])), Agent[str])
assert_type(Agent("a", later, output=Report), Agent[Report])
assert_type(Agent("a", lambda context: "x", output=list[int], max_reasks=1), Agent[list[int]])
# A checker takes a union or a Literal for no type: the output is Any.
vague = Agent("a", "x", output=Literal["a", "b"])

like: AgentLike[Report] = report
wide: Agent[object] = report
fake: AgentLike[Report] = FakeAgent("a", ["x"])
own: AgentLike[Report] = OwnAgent()
backends: list[AgentBackend] = [
    FakeBackend([1]),
    FakeBackend({"a": ["x"]}),
    CommandBackend("x"),
    CommandBackend(["x"], timeout=3),
]

wrong: AgentLike[int] = report  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
Agent("a", 3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
Agent("a", "x", backend=3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
Agent("a")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]

# -- agent

ask = step("ask")

assert_type(ask.agent(text), Step[AgentResult[str]])
assert_type(ask.agent(report, {"task": "x"}), Step[AgentResult[Report]])
assert_type(ask.agent(report, build), Step[AgentResult[Report]])
assert_type(ask.agent(report, build_later), Step[AgentResult[Report]])
assert_type(ask.agent(report, lambda ctx: {"plan": ctx.output("plan")}), Step[AgentResult[Report]])
assert_type(ask.agent(like), Step[AgentResult[Report]])
assert_type(ask.agent(OwnAgent()), Step[AgentResult[Report]])
assert_type(ask.agent(FakeAgent("a", ["x"])), Step[AgentResult[Any]])


def used() -> Steps[Report]:
    done = yield from ask.agent(report)
    assert_type(done.output, Report)
    assert_type(done.model, str | None)
    return done.output


ask.agent("planner")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
ask.agent(report, "task")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
ask.agent(report, lambda: {"task": "x"})  # type: ignore[arg-type, misc]  # pyright: ignore[reportArgumentType]

# -- generate


def write(context: Mapping[str, Any]) -> str:
    return str(context)


assert_type(ask.generate(text), Step[str])
assert_type(ask.generate(write, {"topic": "x"}), Step[str])
assert_type(ask.generate(later, build), Step[str])

ask.generate(len)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
ask.generate(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

# -- answer, and a default for it

assert_type(ask.agent(text).answer(), Step[str])
assert_type(ask.agent(report).retry(2).answer(), Step[Report])
assert_type(ask.agent(report).answer().retry(2), Step[Report])
assert_type(ask.agent(report, default=None), Step[AgentResult[Report | None]])
assert_type(ask.agent(report, {"task": "x"}, default="none").answer(), Step[Report | str])
