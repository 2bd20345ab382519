"""What came first counts first, also in a run that nobody drove when it came."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st

from handrail import (
    Executor,
    GateClosed,
    GateNotFound,
    OpenGate,
    Step,
    Steps,
    WorkflowResult,
    step,
    workflow,
)
from handrail.testing import JumpClock, TextJournal
from handrail.testing.clock import START
from handrail.testing.text_journal import ProcessGone
from tests.engine.support import RUN, just

Made: TypeAlias = Callable[[str], Step[Any]]
"""Makes a step of this name."""
Messages: TypeAlias = Mapping[str, int]
"""When each gate is answered, by its path, and when each signal is sent, by its name."""
LATE = "late"
SIGNALS = ("s", "t")
LATEST = 99
TIMES = st.integers(1, LATEST // 2).map(lambda n: 2 * n)
"""When timers are due. Messages come at other times, so that something is always first."""


def asks(name: str) -> Step[Any]:
    """A question without a deadline of its own."""
    return step(name).ask("?")


def asks_until(seconds: int) -> Made:
    """A question that has a default after this time."""
    return lambda name: step(name).ask("?", default=LATE, timeout=seconds)


def sleeps(seconds: int) -> Made:
    """A sleep."""
    return lambda name: step(name).sleep(seconds)


def waits(signal: str) -> Made:
    """A wait for a signal."""
    return lambda name: step(name).wait_for(signal, str)


def group(verb: str, members: Sequence[Made]) -> Made:
    """A group of these, which all begin at once."""
    return lambda name: getattr(step(name), verb)(*(m(str(i)) for i, m in enumerate(members)))


def within(made: Made, seconds: int, *, fails: bool) -> Made:
    """The step with a deadline, at which it fails, or has a default."""

    def bounded(name: str) -> Step[Any]:
        one = made(name).timeout(seconds)
        return one if fails else one.default(LATE)

    return bounded


LEAVES = st.one_of(
    st.just(asks),
    TIMES.map(asks_until),
    TIMES.map(sleeps),
    st.sampled_from(SIGNALS).map(waits),
)
SHAPES: st.SearchStrategy[Made] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(
            group,
            st.sampled_from(("race", "parallel")),
            st.lists(inner, min_size=1, max_size=3),
        ),
        st.builds(within, inner, TIMES, fails=st.booleans()),
    ),
    max_leaves=6,
)
PATHS = [f"x{end}" for end in ("", "/0", "/1", "/2", "/0/0", "/0/1", "/1/0", "/1/1", "/0/0/0")]
MESSAGES = st.dictionaries(st.sampled_from([*PATHS, *SIGNALS]), TIMES.map(lambda at: at - 1))


async def send(executor: Executor, what: str) -> None:
    """Answer the gate at this path, if it is open, or send the signal of this name."""
    if what in SIGNALS:
        await executor.signal(RUN, what, "yes")
        return
    with contextlib.suppress(GateClosed, GateNotFound):
        await executor.answer(RUN, what, "yes")


async def driven(made: Made, messages: Messages) -> WorkflowResult[Any]:
    """The end of a run that is driven all the time."""
    clock = JumpClock()
    executor = Executor(clock=clock, linger_s=2 * LATEST)

    async def people() -> None:
        for what, at in sorted(messages.items(), key=lambda one: one[1]):
            if at + START > clock.now():
                await clock.elapse(at + START - clock.now())
            await send(executor, what)

    async with anyio.create_task_group() as group:
        group.start_soon(people)
        return await executor.options(run_id=RUN).run(just(made("x")))


async def left(
    made: Made, messages: Messages, resumed_at: Sequence[int], dies: int | None = None
) -> WorkflowResult[Any]:
    """The end of a run that is driven at these times only, and at the end; the process of that
    drive dies at a write.
    """
    clock, journal = JumpClock(), TextJournal()

    def executor() -> Executor:
        return Executor(journal=journal, clock=clock, suspend_timers_after_s=0)

    def resumes(journal: TextJournal) -> Any:
        again = Executor(journal=journal, clock=clock, suspend_timers_after_s=0)
        return again.resume(RUN, just(made("x")))

    result = await executor().options(run_id=RUN).run(just(made("x")))
    moments: list[tuple[int, str | None]] = [*((at, what) for what, at in messages.items())]
    moments += ((at, None) for at in resumed_at)
    for at, what in sorted(moments, key=lambda one: one[0]):
        clock.set(START + at)
        if what is not None:
            await send(executor(), what)
        elif result.status == "suspended":
            result = await resumes(journal)
    clock.set(START + LATEST + 1)
    if result.status != "suspended":
        return result
    if dies is not None:
        journal = journal.reopened(stop_at=dies, abrupt=True)
        with contextlib.suppress(ProcessGone):
            return await resumes(journal)
        journal = journal.reopened()
    return await resumes(journal)


def outcome(result: WorkflowResult[Any]) -> Any:
    """How the run and each step ended."""
    ends = {one.path: one.status for one in result.step_results}
    return result.status, result.value, result.error, ends


@given(
    made=SHAPES,
    messages=MESSAGES,
    resumed_at=st.lists(TIMES, max_size=2),
    dies=st.none() | st.integers(1, 12),
)
async def test_a_run_that_was_left_ends_as_one_that_was_driven(
    made: Made,
    messages: Messages,
    resumed_at: Sequence[int],
    dies: int | None,
) -> None:
    """Whatever of its sleeps, deadlines, answers and signals came meanwhile counts in the order in
    which it came, wherever the process dies.
    """
    whole = await driven(made, messages)
    assert outcome(await left(made, messages, resumed_at, dies)) == outcome(whole)


async def test_a_question_that_closed_meanwhile_is_not_asked() -> None:
    """Its next attempt asks anew, at the same path; a handler is called for that one alone."""
    clock, journal = JumpClock(), TextJournal()
    flow = just(step("x").ask("?", timeout=10).retry(3, backoff=0))
    executor = Executor(journal=journal, clock=clock, suspend_timers_after_s=0)
    assert (await executor.options(run_id=RUN).run(flow)).status == "suspended"
    clock.set(START + 20)
    asked: list[OpenGate] = []

    async def slow(gate: OpenGate) -> str:
        asked.append(gate)
        await checkpoint()
        return "yes"

    result = await Executor(journal=journal, clock=clock, gates=slow).resume(RUN, flow)
    assert (result.value, len(asked)) == ("yes", 1)


async def test_signals_of_one_name_keep_their_order_whatever_the_senders_clocks_say() -> None:
    """The later of two is the second, also if it says that it came before the first."""
    clock, journal = JumpClock(), TextJournal()
    executor = Executor(journal=journal, clock=clock, suspend_timers_after_s=0)

    @workflow
    def flow() -> Steps[str]:
        first = yield from step("first").wait_for("go", str)
        return first + (yield from step("second").wait_for("go", str))

    assert (await executor.options(run_id=RUN).run(flow)).status == "suspended"
    for at, payload in ((20, "1"), (18, "2")):
        clock.set(START + at)
        await executor.signal(RUN, "go", payload)
    clock.set(START + 30)
    assert (await executor.resume(RUN, flow)).value == "12"


@pytest.mark.parametrize(
    ("how", "message", "status"),
    [("stop", "RunSteered", "suspended"), ("cancel", "CancelRequested", "cancelled")],
)
async def test_what_stops_a_run_is_not_overtaken(how: str, message: str, status: str) -> None:
    """By what was sent behind it, is read in the same look, and would have the run go on."""
    journal = TextJournal()
    others = Executor(journal=journal.reopened())

    @workflow
    def flow() -> Steps[str]:
        yield from step("told").wait_for("go", str)
        return (yield from step("next").call(str))

    async with Executor(journal=journal, linger_s=100) as executor:
        await executor.start(flow, run_id=RUN)
        with anyio.fail_after(20):
            while len(list(journal.events(RUN))) < 2:  # noqa: ASYNC110  # its drive writes
                await anyio.sleep(0.01)
            await getattr(others, how)(RUN)
            await others.signal(RUN, "go", "yes")
            while (  # noqa: ASYNC110
                run := await executor.get(RUN)
            ).status in {"running", "waiting"}:
                await anyio.sleep(0.01)
    assert run.status == status
    assert type(list(journal.events(RUN))[2]).__name__ == message
