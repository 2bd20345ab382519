"""A hand on a run: whatever it is, wherever it is driven, it counts once and lasts."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail import (
    CannotSteer,
    Executor,
    InvalidInput,
    MemoryJournal,
    RunNotFound,
    Steps,
    Workflow,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.ports.journal import Letter
from handrail.testing import JumpClock, TextJournal
from handrail.testing.shapes import Body, workflow_of
from handrail.testing.strategies import bodies
from tests.durability.support import (
    LAW,
    RUN,
    Lives,
    essence,
    hold,
    nothing_recorded_is_performed_again,
    nothing_was_lost,
)
from tests.engine.support import boom

pytestmark = pytest.mark.usefixtures("outside_git")

GIVEN = "given by hand"
BEGINS = (ev.StepStarted, ev.MemberStarted)


def post(lives: Lives, action: Any) -> None:
    """Steer the run of these lives while nobody drives it."""
    lives.journal = lives.journal.reopened()
    at = lives.clock.now()
    lives.journal.post(Letter(ev.stamp(ev.RunSteered(action, by="ann"), RUN, 0, at)))


@LAW
@given(body=bodies(timeless=True), number=st.integers(2, 25), gates=st.sampled_from(["approve"]))
def test_while_a_run_is_paused_nothing_of_it_is_performed(
    body: Body, number: int, gates: Any
) -> None:
    """Killed anywhere, paused, resumed in vain, and let go on: it ends as if nothing had been."""
    flow = workflow_of(body)
    whole = Lives(flow, gates=gates).through()
    lives = Lives(flow, gates=gates)
    if lives.live(stop_at=number, abrupt=True) is not None or lives.at_its_end():
        return
    post(lives, "pause")
    before = len(lives.did)
    for _ in range(2):  # the second time from its record
        result = lives.once()
        assert [did for did in lives.did[before:] if did.kind == "attempt"] == []
        if result.status != "suspended":  # nothing was left to begin
            return
        assert result.waits_for[0].kind == "unpause"
    history = lives.journal.events(RUN)
    paused = [one for one in history if isinstance(one, ev.RunSteered)]
    assert [(one.action, one.by, one.letter > 0) for one in paused] == [("pause", "ann", True)]
    post(lives, "unpause")
    story = lives.through()
    hold(story)
    assert essence(story.result) == essence(whole.result)


@LAW
@given(body=bodies(timeless=True), number=st.integers(2, 25), pick=st.integers(0, 9))
def test_a_step_that_is_completed_is_not_performed_again(
    body: Body, number: int, pick: int
) -> None:
    """Killed anywhere, and what was at work, waited or had failed is given an output: it ends with
    that, also after another crash, and the run goes on to an end.
    """
    flow = workflow_of(body)
    lives = Lives(flow, gates="approve")
    if lives.live(stop_at=number, abrupt=True) is not None or lives.at_its_end():
        return
    history = lives.journal.reopened().events(RUN)
    begun = [one.path for one in history if isinstance(one, ev.StepStarted)]
    ended = {one.path for one in history if isinstance(one, ev.StepCompleted)}
    open_ones = [path for path in dict.fromkeys(begun) if path not in ended]
    if not open_ones:
        return
    path = open_ones[pick % len(open_ones)]
    lives.journal = lives.journal.reopened()
    executor = Executor(workflows=[flow], journal=lives.journal, clock=lives.clock)
    try:
        anyio.run(functools.partial(executor.complete, RUN, path, GIVEN, by="ann"))
    except (CannotSteer, InvalidInput):  # a member, what is not come to, a question with choices
        return
    before = len(lives.did)
    story = lives.through([(3, False), (8, True)])
    again = [did for did in lives.did[before:] if did.path == path and did.kind == "attempt"]
    assert again == []
    given = [one for one in story.history if isinstance(one, ev.StepCompleted) and one.path == path]
    if given:  # else what it stood in was stopped before its turn came
        assert (given[-1].result.output, given[-1].result.given_by) == (GIVEN, "ann")
    nothing_recorded_is_performed_again(story)
    nothing_was_lost(story)


def three(log: list[str]) -> Workflow[[], str]:
    """Steps one after the other, and two at once."""

    async def work(name: str) -> str:
        await anyio.sleep(0.15)
        log.append(name)
        return name

    @workflow(name="three")
    def body() -> Steps[str]:
        yield from step("a").call(work, "a")
        yield from step("b").call(work, "b")
        yield from step("both").parallel(step("c").call(work, "c"), step("d").call(work, "d"))
        return "done"

    return body


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.anyio
async def test_a_run_at_work_is_paused_and_goes_on(*, durable: bool) -> None:
    """What is at work ends, nothing follows; then the same drive goes on."""
    log: list[str] = []
    executor = Executor(journal=TextJournal() if durable else MemoryJournal())
    async with executor.stream(three(log)) as run, anyio.create_task_group() as hands:

        async def hand() -> None:
            await anyio.sleep(0.2)
            await executor.pause(run.run_id, by="ann")
            await anyio.sleep(0.5)
            assert log == ["a", "b"]
            await executor.unpause(run.run_id)

        hands.start_soon(hand)
        seen = [event async for event in run]
    assert run.result.value == "done"
    assert sorted(log) == ["a", "b", "c", "d"]
    at = [n for n, event in enumerate(seen) if isinstance(event, ev.RunSteered)]
    between = seen[at[0] : at[1]]
    assert [one for one in between if isinstance(one, BEGINS)] == []


@pytest.mark.anyio
async def test_a_run_that_is_stopped_goes_on_where_it_was() -> None:
    """It is suspended with who did it, and no later drive hears of it."""
    log: list[str] = []
    executor = Executor(journal=TextJournal())
    async with executor.stream(three(log)) as run:
        async for event in run:
            if isinstance(event, ev.StepStarted) and event.path == "b":
                run.stop(by="ann")
    assert (run.result.status, log) == ("suspended", ["a"])
    suspended = executor.journal.events(run.run_id)[-1]
    assert isinstance(suspended, ev.RunSuspended)
    assert suspended.reason == "stopped by ann"
    await executor.stop(run.run_id)  # nobody drives it: it stays as it is
    result = await executor.resume(run.run_id, three(log))
    assert (result.status, sorted(log)) == ("succeeded", ["a", "b", "c", "d"])


@pytest.mark.anyio
async def test_a_paused_run_that_is_cancelled_unwinds() -> None:
    """To cancel it is to let it clean up, whoever paused it."""
    log: list[str] = []
    executor = Executor(journal=TextJournal(), clock=JumpClock())
    async with executor.stream(three(log)) as run:
        async for event in run:
            if isinstance(event, ev.StepStarted) and event.path == "a":
                await executor.pause(run.run_id)
            if isinstance(event, ev.RunSteered):
                run.cancel("enough")
    assert run.result.status == "cancelled"


@pytest.mark.anyio
async def test_what_has_ended_takes_no_hand() -> None:
    """And says what can be done instead."""

    @workflow
    def flow() -> Steps[None]:
        yield from step("a").call(boom)

    executor = Executor(journal=TextJournal())
    result = await executor.run(flow)
    for verb in (executor.pause, executor.unpause, executor.stop):
        with pytest.raises(CannotSteer, match=r"it has failed.*resume\(\) goes on"):
            await verb(result.run_id)
    with pytest.raises(RunNotFound):
        await executor.pause("nobody")


@dataclass
class Out:
    """What a step gives."""

    n: int


@pytest.mark.anyio
async def test_a_step_is_completed_skipped_and_begun_again() -> None:
    """At work, before its turn, while it waits, and after it failed: the record says who it was."""
    tries: list[str] = []

    async def slow(name: str) -> Out:
        tries.append(name)
        await anyio.sleep(0 if tries.count(name) > 1 else 30)
        return Out(0)

    def fails() -> int:
        raise ValueError("no")

    @workflow
    def flow() -> Steps[Any]:
        a = yield from step("a").call(slow, "a")
        b = yield from step("b").call(slow, "b").default(Out(2))
        c = yield from step("c").call(slow, "c")
        d = yield from step("d").call(slow, "d")
        e = yield from step("e").ask("which?", choices=["x", "y"])
        f = yield from step("f").call(fails)
        return [a, b, c, d, e, f]

    executor = Executor(journal=TextJournal(), workflows=[flow])
    refused: list[str] = []

    async def refuse(verb: Any, *args: Any) -> None:
        with pytest.raises((CannotSteer, InvalidInput)) as caught:
            await verb(*args)
        refused.append(str(caught.value))

    async with executor.stream(flow) as run:
        name = run.run_id
        async for event in run:
            match event:
                case ev.StepStarted(path="a"):
                    await refuse(executor.complete, name, "a", {"n": "one"})
                    await refuse(executor.complete, name, "aa", 1)
                    await refuse(executor.skip, name, "a")
                    await refuse(executor.retry, name, "c")
                    await executor.complete(name, "d", {"n": 4}, by="dan")
                    await executor.complete(name, "a", {"n": 1}, by="ann")
                case ev.StepStarted(path="b"):
                    await refuse(executor.complete, name, "a", Out(1))
                    run.skip("b", by="bob")
                case ev.StepStarted(path="c"):
                    run.retry("c", by="cid")
                case _:
                    pass
    assert run.result.status == "suspended"
    await refuse(executor.complete, name, "e", "z")
    await executor.complete(name, "e", "y", by="eve")
    assert (await executor.resume(name)).status == "failed"
    await refuse(executor.retry, name, "f")
    await executor.complete(name, "f", "6", by="fay")
    result = await executor.resume(name)
    assert result.value == [Out(1), Out(2), Out(0), Out(4), "y", 6]
    assert tries == ["a", "b", "c", "c"]
    who = {one.path: (one.given_by, one.attempts) for one in result.step_results}
    assert who == {
        "a": ("ann", 1),
        "b": ("bob", 1),
        "c": (None, 1),
        "d": ("dan", 0),
        "e": ("eve", 0),
        "f": ("fay", 0),
    }
    told = [
        r"input 'a': got .* expected Out",
        r"no step 'aa'. Did you mean 'a'|no step 'aa'",
        r"neither .default\(\) nor .skip_on_error\(\). complete\(\) ends it",
        r"step 'c' has not begun. At work: 'a'.",
        r"step 'a' has ended. fork\(outputs=...\)",
        r"expected one of: x, y",
        r"it has failed.* resume\(\) goes on",
    ]
    for text, pattern in zip(refused, told, strict=True):
        assert re.search(pattern, text), text
