"""What launches used of which nobody said what they cost: they are counted, and in no sum."""

from __future__ import annotations

import anyio

from handrail import (
    Agent,
    AgentError,
    AgentReply,
    Executor,
    FakeBackend,
    Limits,
    Steps,
    step,
    workflow,
)
from handrail.model.results import Usage
from handrail.testing import JumpClock, crash_everywhere


def test_launches_of_unknown_price_are_counted() -> None:
    """They cost something, and are not in the sum."""
    known, unknown = Usage(10, 5, 0.5), Usage(10, 5)
    assert (known + unknown).unpriced == 1
    assert (unknown + unknown + known + unknown).unpriced == 3
    assert (known + known).unpriced == 0
    assert (known + Usage()).unpriced == 0
    silent = Usage(cost_usd=0.5)
    assert ((known + silent).unknown, (known + silent).unpriced, (known + unknown).unknown) == (
        1,
        0,
        0,
    )


async def test_a_launch_that_says_nothing_is_of_unknown_price() -> None:
    """Whether it crashed or answered: what the others cost is not taken for what all cost."""
    priced = AgentReply("fine", usage=Usage(10, 5, 0.5))
    crashed = AgentError("coder", "gone", kind="crashed")
    down = AgentError("coder", "no network", kind="transient")  # of no price: it did not get there
    coder = Agent("coder", "Do it.", backend=FakeBackend([crashed, down, priced, "quiet", priced]))

    @workflow
    def flow() -> Steps[None]:
        for name in ("a", "b", "c"):
            yield from step(name).agent(coder, {})

    result = await Executor(clock=JumpClock()).run(flow)
    assert result.usage is not None
    used = result.usage
    assert (used.cost_usd, used.unpriced, used.unknown) == (1.0, 2, 2)
    quiet = Agent("quiet", "Do it.", backend=FakeBackend(["one", "two", "three"]))
    assert (await Executor(agents={"coder": quiet}).run(flow)).usage is None


async def test_a_launch_that_was_stopped_is_of_unknown_price() -> None:
    """One that was at work, without a word; not one that had not begun."""
    begun = anyio.Event()

    async def fails() -> None:
        await begun.wait()
        raise OSError

    async def never(_: object) -> str:
        begun.set()
        await anyio.sleep_forever()
        return ""

    slow = Agent("slow", "Do it.", backend=FakeBackend([never] * 2))
    priced = AgentReply("ok", usage=Usage(1, 1, 0.5))

    @workflow
    def flow() -> Steps[None]:
        yield from step("first").agent(Agent("a", "Do it.", backend=FakeBackend([priced])))
        members = [step("slow").agent(slow), step("queued").agent(slow).uses("one")]
        holds = step("holds").call(fails).uses("one")
        yield from step("all").parallel(holds, *members).default(())

    result = await Executor(limits=Limits(tags={"one": 1})).run(flow)
    assert result.usage is not None
    assert (result.usage.cost_usd, result.usage.unpriced, result.usage.unknown) == (0.5, 1, 1)


def test_a_launch_that_was_killed_leaves_the_output_as_it_would_have_been() -> None:
    """What it used is unknown, and a run that was killed gives what any run gives."""
    agent = Agent("a", "Do it.", backend=FakeBackend([AgentReply("done", session="s")] * 9))

    @workflow
    def flow() -> Steps[object]:
        yield from step("a").agent(agent)
        return (yield from step("b").agent(agent))

    crash_everywhere(flow)
