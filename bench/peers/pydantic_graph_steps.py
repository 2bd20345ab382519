"""pydantic-graph: one step that leads to itself by a decision; it records nothing on disk."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from common import report
from pydantic_graph import GraphBuilder, StepContext


@dataclass
class Counted:
    """The state of the graph."""

    count: int = 0
    most: int = 0


builder = GraphBuilder(state_type=Counted, output_type=int)


@builder.step
async def one(ctx: StepContext[Counted, None, None]) -> bool:
    """What each step does."""
    ctx.state.count += 1
    return ctx.state.count < ctx.state.most


@builder.step
async def total(ctx: StepContext[Counted, None, bool]) -> int:
    """Where it ends."""
    return ctx.state.count


def build() -> object:
    """The graph."""
    more = builder.match(bool, matches=lambda again: again is True).to(one)
    enough = builder.match(bool, matches=lambda again: again is False).to(total)
    builder.add(
        builder.edge_from(builder.start_node).to(one),
        builder.edge_from(one).to(builder.decision().branch(more).branch(enough)),
        builder.edge_from(total).to(builder.end_node),
    )
    return builder.build()


graph = build()


def run(count: int) -> None:
    """So many steps, one after the other."""
    out = asyncio.run(graph.run(state=Counted(most=count)))  # type: ignore[attr-defined]
    assert out == count


report("pydantic-graph", run, None)
