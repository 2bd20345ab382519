"""What launches used of which nobody said what they cost: they are counted, and in no sum."""

from __future__ import annotations

import anyio
import pytest

from handrail import (
    Agent,
    AgentError,
    AgentReply,
    AgentTurn,
    Budget,
    Executor,
    FakeBackend,
    Limits,
    Steps,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.model.results import Usage
from handrail.record.run_record import Recorded
from handrail.record.view import view_of
from handrail.testing import JumpClock, ProcessGone, TextJournal


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


def opens(turn: AgentTurn) -> AgentReply:
    """A launch whose session is recorded before it says what it used."""
    turn.emit(ev.AgentSessionStarted(turn.path, f"s-{turn.turn}", "fake"))
    return AgentReply("done", session="s", usage=Usage(10, 5, 0.5))


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("limits", [Limits(), Limits(budget=Budget(launches=50))])
def test_a_launch_that_was_killed_counts_the_same_in_the_result_and_in_the_record(
    limits: Limits, once: bool
) -> None:
    """Wherever the process was killed: once its launch is on record, what it used is unknown."""
    agent = Agent("a", "Do it.", backend=FakeBackend([opens] * 99))

    @workflow
    def flow() -> Steps[None]:
        first = step("a").agent(agent)
        yield from first.once().default(None) if once else first
        yield from step("b").agent(agent)

    counts = set[int]()
    for writes in range(2, 14, 1):
        journal = TextJournal(stop_at=writes)
        executor = Executor(journal=journal, clock=JumpClock(), limits=limits)
        try:
            result = executor.options(run_id="r").run_sync(flow)
        except ProcessGone:
            journal = journal.reopened()
            executor = Executor(journal=journal, clock=JumpClock(), limits=limits)
            result = executor.resume_sync("r", flow)
        spent = view_of(Recorded(journal.events("r")), alive=False, now=0.0).spent
        assert result.usage is not None
        assert spent.usage is not None
        used = result.usage
        assert (used.unknown, used.unpriced) == (spent.unknown_tokens, spent.unknown_cost)
        assert used.cost_usd == spent.usage.cost_usd
        counts.add(used.unknown)
    assert counts == {0, 1}
