"""Payloads of signals: what fits is taken, what does not is refused or used up."""

from __future__ import annotations

import contextlib
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail import Executor, InvalidSignal, MemoryJournal, Steps, step, workflow
from handrail.model import events as ev
from handrail.testing import TextJournal
from handrail.typed.convert import conforms
from tests.engine.support import just


@workflow
def takes_one() -> Steps[Any]:
    """Ask, so that a signal may come early, then wait for it."""
    yield from step("ask").ask("?", default="yes")
    return (yield from step("a").wait_for("go", dict[str, int]))


@pytest.mark.parametrize("journal", [MemoryJournal, TextJournal])
async def test_an_early_payload_of_another_type_fails_the_step_and_is_used_up(
    journal: type[Any],
) -> None:
    """Nobody waited when it was sent; a resume waits for the next signal, or takes it."""
    executor = Executor(journal=journal(), workflows=[takes_one])
    await executor.options(run_id="r").run(takes_one)
    await executor.signal("r", "go", {"n": "many"})
    await executor.answer("r", "ask", "yes")
    result = await executor.resume("r")
    assert (result.status, result.failed_step) == ("failed", "a")
    assert (await executor.resume("r")).waiting_signals == ("go",)
    await executor.signal("r", "go", {"n": 2})
    assert (await executor.resume("r")).value == {"n": 2}
    assert (await executor.resume("r", rerun=["a"])).value == {"n": 2}


async def test_a_signal_that_was_sent_after_one_that_did_not_fit_is_taken_by_the_resume() -> None:
    """The first one was used up by the failure."""
    executor = Executor(workflows=[takes_one])
    await executor.options(run_id="r").run(takes_one)
    await executor.signal("r", "go", "many")
    await executor.signal("r", "go", {"n": 1})
    await executor.answer("r", "ask", "yes")
    assert (await executor.resume("r")).status == "failed"
    assert (await executor.resume("r")).value == {"n": 1}


@pytest.mark.parametrize("journal", [MemoryJournal, TextJournal])
async def test_a_payload_of_another_type_is_refused_where_a_step_waits(journal: type[Any]) -> None:
    """The record says what a suspended run waits for: nothing is stored, and it waits on."""
    executor = Executor(journal=journal(), gates="default", workflows=[takes_one])
    await executor.options(run_id="r").run(takes_one)
    with pytest.raises(InvalidSignal, match=r"signal 'go': \{'n': 'many'\} .* dict\[str, int\] \("):
        await executor.signal("r", "go", {"n": "many"})
    assert (await executor.resume("r")).waiting_signals == ("go",)
    await executor.signal("r", "go", {"n": 1})
    await executor.signal("r", "go", "for a later step, which may take a text")
    assert (await executor.resume("r")).value == {"n": 1}


async def test_a_live_run_refuses_a_payload_of_another_type() -> None:
    """A payload for who waits must fit; one behind it is for somebody who does not wait yet."""
    executor = Executor(linger_s=30)

    @workflow
    def flow() -> Steps[Any]:
        one, _ = yield from step("both").parallel(
            step("one").wait_for("go", int), step("s").sleep(0.01)
        )
        return one, (yield from step("two").wait_for("go", str))

    with anyio.fail_after(5):
        async with executor.options(run_id="r").stream(flow) as run:
            async for event in run:
                if isinstance(event, ev.TimerSet):  # both members have begun
                    with pytest.raises(InvalidSignal, match=r"'x' is not what .* expected int"):
                        run.signal("go", "x")
                    run.signal("go", 1)
                    run.signal("go", "x")
    assert run.result.value == (1, "x")


async def test_a_type_that_is_not_known_refuses_nothing() -> None:
    """Of a class that cannot be recorded, or of any value, all is accepted."""

    class Local(int):
        pass

    flow = just(
        step("g").parallel(step("a").wait_for("a", Local).default(0), step("b").wait_for("b"))
    )
    executor = Executor(journal=TextJournal(), workflows=[flow])
    await executor.options(run_id="r").run(flow)
    await executor.signal("r", "a", "no number")
    await executor.signal("r", "b", {"any": "thing"})
    assert (await executor.resume("r")).value == (0, {"any": "thing"})


async def test_one_that_fits_any_of_those_who_wait_is_accepted() -> None:
    """Which of them takes it is not known before; what fits none of them is refused."""
    executor = Executor()
    flow = just(step("g").parallel(step("a").wait_for("go", str), step("b").wait_for("go", bool)))
    await executor.options(run_id="r").run(flow)
    with pytest.raises(InvalidSignal, match="expected str, or bool"):
        await executor.signal("r", "go", 1.5)
    await executor.signal("r", "go", "x")
    await executor.signal("r", "go", True)
    assert (await executor.resume("r", flow)).value == ("x", True)


@settings(max_examples=settings().max_examples // 4, deadline=None)
@given(
    st.lists(st.sampled_from([int, str, dict[str, int]]), min_size=1, max_size=4),
    st.lists(st.sampled_from([1, "x", {"n": 1}, {"n": "x"}, None, 2.5]), max_size=8),
)
def test_whatever_is_sent_a_run_can_go_on(types: list[Any], payloads: list[Any]) -> None:
    """After any signals, accepted or refused, as many resumes and fitting signals end the run, and
    no signal is taken twice.
    """
    fitting = {int: 7, str: "s", dict[str, int]: {"k": 7}}

    @workflow
    def flow() -> Steps[Any]:
        yield from step("ask").ask("?", type=str)
        taken: list[Any] = []
        for number, kind in enumerate(types):
            taken.append((yield from step(f"w{number}").wait_for("go", kind)))
        return taken

    async def story() -> None:
        executor = Executor(workflows=[flow])
        result = await executor.options(run_id="r").run(flow)
        await executor.answer("r", "ask", "yes")
        for index, payload in enumerate(payloads):
            if index == len(payloads) // 2:
                result = await executor.resume("r")
            if result.status != "succeeded":
                with contextlib.suppress(InvalidSignal):
                    await executor.signal("r", "go", payload)
        for _ in range(len(payloads) + 2 * len(types) + 2):
            result = await executor.resume("r")
            if result.status == "suspended":
                done = len([one for one in result.step_results if one.path != "ask"])
                await executor.signal("r", "go", fitting[types[done]])
        assert result.status == "succeeded"
        for kind, value in zip(types, result.unwrap(), strict=True):
            assert conforms(value, kind)

    anyio.run(story)
