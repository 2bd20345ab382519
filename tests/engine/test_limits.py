"""Limits of a run: those that end it, and those that make steps wait."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from handrail import (
    Agent,
    Budget,
    Executor,
    FakeBackend,
    Limits,
    MemorySink,
    Step,
    StepFailed,
    Steps,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.testing import JumpClock, TextJournal
from handrail.testing.clock import START
from tests.engine.support import (
    Boom,
    Flaky,
    Jumping,
    boom,
    forever,
    give,
    just,
    run_seen,
    same,
    statuses,
)


class Gauge:
    """An action that knows how many of it run at once."""

    def __init__(self, clock: Jumping | None = None) -> None:
        self.running = 0
        self.most = 0
        self.starts: list[float] = []
        self.clock = clock

    async def __call__(self, value: Any = None) -> Any:
        """Run for some turns of the loop."""
        if self.clock is not None:
            self.starts.append(self.clock.time)
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        self.running -= 1
        return value


def rows(seen: Any) -> list[tuple[str, float, str]]:
    """The limits that were reached, as the events tell them."""
    return [(event.name, event.value, event.path) for event in seen.of(ev.LimitReached)]


# -- limits that end the run -----------------------------------------------------------------------


@workflow
def polls() -> Steps[None]:
    """A loop without an end, over one f-string."""
    for n in itertools.count():
        yield from step(f"poll-{n}").call(give)


@workflow
def naps() -> Steps[None]:
    """A loop without an end that takes time."""
    for n in itertools.count():
        yield from step(f"nap-{n}").sleep(4)


@workflow
def polls_by_a_helper() -> Steps[None]:
    """The same, where the helper makes the names."""

    def helper(n: int) -> Steps[Any]:
        return (yield from step(f"poll-{n}").call(give))

    for n in itertools.count():
        yield from helper(n)


@workflow
def deeper() -> Steps[Any]:
    """A workflow that calls itself."""
    yield from step("in").run_workflow(deeper)


@pytest.mark.parametrize(
    ("flow", "limits", "reached", "done"),
    [
        pytest.param(polls, Limits(max_steps=3), ("max_steps", 3, "poll-3"), 3, id="steps"),
        pytest.param(polls, Limits(max_visits=5), ("max_visits", 5, "poll-5"), 5, id="visits"),
        pytest.param(
            polls_by_a_helper, Limits(max_visits=4), ("max_visits", 4, "poll-4"), 4,
            id="visits of the line of a helper",
        ),
        pytest.param(deeper, Limits(max_depth=4), ("max_depth", 4, "in/" * 4 + "in"), 0, id="deep"),
        pytest.param(deeper, Limits(), ("max_depth", 32, "in/" * 32 + "in"), 0, id="any depth"),
        pytest.param(
            just(step("a").call(forever)), Limits(timeout_s=60), ("timeout_s", 60, ""), 0,
            id="time, while a step runs",
        ),
        pytest.param(
            just(step("a").sleep(1000)), Limits(timeout_s=60), ("timeout_s", 60, ""), 0,
            id="time, while a step waits",
        ),
    ],
)  # fmt: skip
async def test_a_limit_ends_the_run_and_is_named_with_its_value(
    flow: Any, limits: Limits, reached: tuple[str, float, str], done: int
) -> None:
    """What the limit allows is done, the step beyond it is not, and the run fails."""
    result, seen = await run_seen(flow, limits=limits, clock=Jumping())
    assert (result.status, rows(seen)) == ("failed", [reached])
    assert re.search(rf"{reached[0]}\b.*\b{reached[1]}\b", result.error or "")
    assert list(statuses(result).values()).count("succeeded") == done


async def test_a_limit_cannot_be_caught_and_rollbacks_run() -> None:
    """A limit is not thrown at a yield: the run ends, and what was done is undone."""
    seen_errors: list[BaseException] = []
    undone: list[str] = []

    @workflow
    def flow() -> Steps[Any]:
        yield from step("a").call(give).with_rollback(lambda _: undone.append("a"))
        try:
            yield from step("b").call(give)
        except Exception as error:  # noqa: BLE001  # what must not catch it
            seen_errors.append(error)
            return "went on"

    result, _ = await run_seen(flow, limits=Limits(max_steps=1))
    assert (result.status, seen_errors, undone) == ("failed", [], ["a"])


async def test_max_steps_stops_what_runs_beside() -> None:
    """Siblings in a group are cancelled when another member reaches the limit."""

    def body(n: int) -> Steps[Any]:
        yield from step("a").call(anyio.sleep_forever if n == 0 else give)
        yield from step("b").call(give)
        yield from step("c").call(give)

    flow = just(step("f").for_each([0, 1], body))
    result, seen = await run_seen(flow, limits=Limits(max_steps=4))
    assert result.status == "failed"
    assert [one[:2] for one in rows(seen)] == [("max_steps", 4)]
    assert statuses(result)["f/0/a"] == "cancelled"


async def test_max_visits_counts_each_name_by_itself() -> None:
    """Several names, each within the limit, do not add up."""

    @workflow
    def flow() -> Steps[None]:
        for n in range(3):
            yield from step(f"a-{n}").call(give)
            yield from step(f"b-{n}").call(give)
        for n in range(3):
            yield from step(f"c-{n}").call(give)

    result, _ = await run_seen(flow, limits=Limits(max_visits=3))
    assert (result.status, len(result.step_results)) == ("succeeded", 9)


async def test_max_visits_does_not_count_members() -> None:
    """Each member of a group is a scope of its own, however many there are."""

    def body(n: int) -> Steps[Any]:
        return (yield from step("x").call(give, n))

    flow = just(step("f").for_each(range(10), body))
    result, _ = await run_seen(flow, limits=Limits(max_visits=3))
    assert (result.status, result.value) == ("succeeded", list(range(10)))


# -- limits that outlive a drive -------------------------------------------------------------------


async def resumed(
    flow: Any, limits: Limits, *, after_s: float = 0.0
) -> tuple[Any, JumpClock, MemorySink]:
    """The result of a run with these limits whose first drive, without any, ended at a gate, with
    the clock and what was told; that much later the gate is answered, and the run resumed.
    """
    clock, journal, seen = JumpClock(), TextJournal(), MemorySink()
    executor = Executor(clock=clock, journal=journal)
    first = await executor.options(run_id="r").run(flow)
    assert first.status == "suspended", first.error
    await executor.answer("r", first.waiting[0].path, "yes")
    clock.advance(after_s)
    limited = Executor(clock=clock, journal=journal, limits=limits, sinks=[seen])
    return await limited.resume("r", flow), clock, seen


@pytest.mark.parametrize(("most", "beyond"), [(4, None), (3, "c"), (1, "c")])
async def test_max_steps_counts_the_steps_of_earlier_drives(most: int, beyond: str | None) -> None:
    """Two steps and a gate were before the resume, one comes after it: that makes four. What has
    begun was allowed to: a limit that is lower now is hit by the next step.
    """
    flow = just(
        step("a").call(give),
        step("b").call(give),
        step("go on?").ask("Go on?", choices=["yes", "no"]),
        step("c").call(give),
    )
    result, _, seen = await resumed(flow, Limits(max_steps=most))
    assert result.success == (beyond is None), result.error
    assert rows(seen) == ([] if beyond is None else [("max_steps", most, beyond)])


@pytest.mark.parametrize(("after_s", "ended"), [(60, 100), (200, 200)])
async def test_the_runs_timeout_is_of_all_drives(after_s: float, ended: float) -> None:
    """It begins with the first start: what is left of it is left, and none may be."""
    flow = just(step("go on?").ask("Go on?", choices=["yes", "no"]), step("wait").sleep(1_000))
    result, clock, _ = await resumed(flow, Limits(timeout_s=100), after_s=after_s)
    assert result.status == "failed"
    assert "timeout_s" in result.error
    assert clock.now() == START + ended


@pytest.mark.parametrize("whose", ["run", "step"])
@pytest.mark.parametrize(("after_s", "launches"), [(60, 1), (200, 0)])
async def test_wall_time_of_a_budget_is_of_all_drives(
    whose: str, after_s: float, launches: int
) -> None:
    """It begins when the run, or the step, first did: a launch has what is left, or is not made."""
    budget = Budget(wall_s=100)
    backend = FakeBackend(["never"], delay=1_000)
    agent = Agent("worker", "Work.", backend=backend)

    @workflow
    def work() -> Steps[None]:
        yield from step("go on?").ask("Go on?", choices=["yes", "no"])
        yield from step("code").agent(agent)

    @workflow
    def flow() -> Steps[None]:
        inner = step("work").run_workflow(work)
        yield from (inner.budget(budget) if whose == "step" else inner)

    limits = Limits(budget=budget) if whose == "run" else Limits()
    result, clock, _ = await resumed(flow, limits, after_s=after_s)
    assert result.status == "failed"
    assert "wall_s" in result.error
    assert len(backend.turns) == launches
    assert clock.now() == START + max(100, after_s)


# -- limits that make steps wait -------------------------------------------------------------------


def many(count: int, *uses: Any) -> Callable[[Gauge], Step[Any]]:
    """A group of so many calls that all use the same."""

    def group(gauge: Gauge) -> Step[Any]:
        def member(number: int) -> Step[Any]:
            made = step("x").call(gauge, number)
            return made.uses(*uses) if uses else made

        return step("f").for_each(range(count), member)

    return group


def nested(gauge: Gauge) -> Step[Any]:
    """Groups in a group and in sub-workflows."""
    child = just(many(3)(gauge))
    return step("g").parallel(
        step("a").subworkflow(child), step("b").subworkflow(child), many(2)(gauge)
    )


@pytest.mark.parametrize(
    ("made", "limits", "most"),
    [
        pytest.param(many(12), Limits(max_concurrency=1), 1, id="one slot"),
        pytest.param(many(12), Limits(max_concurrency=2), 2, id="two slots"),
        pytest.param(many(12), Limits(max_concurrency=5), 5, id="five slots"),
        pytest.param(nested, Limits(max_concurrency=2), 2, id="slots for all groups and children"),
        pytest.param(many(4, "gpu", 2), Limits(tags={"gpu": 3}), 1, id="units taken in one go"),
        pytest.param(many(4, "tpu"), Limits(tags={"gpu": 1}), 4, id="a tag without a limit"),
    ],
)
async def test_no_more_run_at_once_than_a_limit_allows(
    made: Callable[[Gauge], Step[Any]], limits: Limits, most: int
) -> None:
    """As many as it allows do, and all get their turn, without a word of the limit."""
    gauge = Gauge()
    result, seen = await run_seen(just(made(gauge)), limits=limits)
    assert (result.status, gauge.most, rows(seen)) == ("succeeded", most, [])


async def test_a_waiting_step_takes_no_slot() -> None:
    """Sleeps, gates and signals do not count for max_concurrency."""
    clock = Jumping()
    flow = just(step("g").parallel(step("s").sleep(5), step("t").sleep(5), step("a").call(give, 1)))
    result, _ = await run_seen(flow, limits=Limits(max_concurrency=1), clock=clock)
    assert result.value == (None, None, 1)
    assert clock.time == pytest.approx(1_000_005, abs=0.5)


async def test_a_failed_step_gives_its_slot_back() -> None:
    """Failures, retries and cancellations free what they held."""
    flaky = Flaky(2)

    @workflow
    def flow() -> Steps[Any]:
        one = yield from step("g").parallel(
            step("a").call(boom),
            step("b").call(flaky).retry(3, backoff=0),
            step("c").call(give, 3),
            on_error="continue",
        )
        with contextlib.suppress(StepFailed):
            yield from step("h").parallel(
                step("a").call(anyio.sleep_forever),
                step("b").call(boom),
                step("c").call(anyio.sleep_forever),
            )
        last = yield from step("z").call(give, "z")
        return [r.status for r in one], last

    result, _ = await run_seen(flow, limits=Limits(max_concurrency=2))
    assert result.value == (["failed", "succeeded", "succeeded"], "z")


async def test_a_tag_bounds_only_who_uses_it() -> None:
    """Users of a tag take turns; the others do not wait for them."""
    gpu, free = Gauge(), Gauge()
    flow = just(
        step("g").parallel(
            *[step(f"gpu-{n}").call(gpu, n).uses("gpu") for n in range(4)],
            *[step(f"free-{n}").call(free, n) for n in range(4)],
        )
    )
    result, _ = await run_seen(flow, limits=Limits(tags={"gpu": 1}))
    assert (result.status, gpu.most, free.most) == ("succeeded", 1, 4)


async def test_a_step_that_needs_more_than_there_is_ends_in_a_result() -> None:
    """Using more of a tag than the run has is told, and does not hang or raise out of run()."""
    flow = just(step("x").call(give).uses("gpu", 3))
    result, _ = await run_seen(flow, limits=Limits(tags={"gpu": 2}))
    assert result.status == "failed"
    assert "gpu" in (result.error or "")


async def test_a_rate_spaces_starts_by_a_minute() -> None:
    """N starts of a tag a minute, evenly spaced; the others wait, on the clock."""
    clock = Jumping()
    gauge = Gauge(clock)

    @workflow
    def flow() -> Steps[Any]:
        for n in range(5):
            yield from step(f"s-{n}").call(gauge, n).uses("claude")

    result, seen = await run_seen(flow, limits=Limits(rates={"claude": 2}), clock=clock)
    assert (result.status, rows(seen)) == ("succeeded", [])
    starts = [at - 1_000_000 for at in gauge.starts]
    assert starts == pytest.approx([0, 30, 60, 90, 120], abs=0.01)


async def test_a_rate_holds_over_the_drives_of_a_run() -> None:
    """Who restarts a run again and again makes it no quicker."""
    clock, journal, starts = Jumping(), TextJournal(), list[float]()

    def begin() -> None:
        starts.append(clock.now())
        raise Boom

    flow = just(step("x").call(begin).uses("claude"))
    limits = Limits(rates={"claude": 2})
    executor = Executor(journal=journal, clock=clock, limits=limits)
    await executor.options(run_id="r").run(flow)
    for _ in range(3):
        clock.time += 1
        await executor.resume("r", flow)
    assert [later - start for start, later in itertools.pairwise(starts)] == pytest.approx(
        [30] * 3, abs=2
    )


async def test_each_attempt_is_a_start_for_the_rate() -> None:
    """A retry counts as another start."""
    clock = Jumping()
    flow = just(step("x").call(Flaky(1)).uses("claude").retry(2, backoff=0))
    result, _ = await run_seen(flow, limits=Limits(rates={"claude": 1}), clock=clock)
    assert result.value == "ok"
    assert clock.time >= 1_000_060


async def test_waiting_for_a_slot_is_not_running_time() -> None:
    """A step's timeout starts when it does, not while it waits for a tag."""
    clock = Jumping()

    @workflow
    def flow() -> Steps[Any]:
        for n in range(3):
            yield from step(f"s-{n}").call(give, n).uses("claude").timeout(10)
        return "done"

    result, _ = await run_seen(flow, limits=Limits(rates={"claude": 1}), clock=clock)
    assert (result.status, result.value) == ("succeeded", "done")


async def test_who_waits_for_a_slot_can_be_cancelled() -> None:
    """fail_fast cancels members that wait for a slot, and they never run."""
    ran: list[str] = []

    async def failing() -> None:
        await anyio.lowlevel.checkpoint()
        raise Boom("no")

    flow = just(
        step("g").parallel(
            step("a").call(failing).uses("gpu"),
            step("b").call(ran.append, "b").uses("gpu"),
            step("c").call(ran.append, "c").uses("gpu"),
        )
    )
    result, _ = await run_seen(flow, limits=Limits(tags={"gpu": 1}))
    assert (result.status, ran) == ("failed", [])
    assert {statuses(result)["g/b"], statuses(result)["g/c"]} == {"cancelled"}


# -- limits that ask -------------------------------------------------------------------------------


def of_six() -> Any:
    """A workflow of six members that may all begin at once."""
    return just(step("f").for_each(range(6), lambda n: step("x").call(give, n)))


@pytest.mark.parametrize(
    ("flow", "limits", "done"),
    [
        pytest.param(polls, Limits(max_steps=3, on_breach="ask"), 9, id="steps"),
        pytest.param(polls, Limits(max_visits=2, on_breach="ask"), 6, id="visits"),
        pytest.param(naps, Limits(timeout_s=10, on_breach="ask"), 8, id="time"),
        pytest.param(of_six(), Limits(max_steps=2, on_breach="ask"), None, id="members"),
    ],
)
async def test_a_limit_may_ask_for_as_much_again(
    flow: Any, limits: Limits, done: int | None
) -> None:
    """Two answers allow it, the third ends the run. One question at a time, however many wait."""
    questions: list[str] = []

    def decide(gate: Any) -> str:
        questions.append(gate.question)
        return "stop" if len(questions) == 3 else "allow"

    clock = Jumping()
    result, seen = await run_seen(flow, limits=limits, clock=clock, gates=decide)
    [(name, value, _)] = rows(seen)
    first = getattr(limits, name)
    assert (result.status, value) == ("failed", 3 * first)
    assert [re.findall(rf"{name}=(\d+)", one) for one in questions] == [
        [str(n * first)] for n in (1, 2, 3)
    ]
    if done is not None:
        assert list(statuses(result).values()).count("succeeded") == done


async def test_nobody_to_ask_ends_the_run_by_its_limit() -> None:
    """What `gates="fail"` says is in the error, with the limit."""
    limits = Limits(max_steps=2, on_breach="ask")
    result, seen = await run_seen(polls, limits=limits, gates="fail")
    assert (result.status, rows(seen)) == ("failed", [("max_steps", 2, "poll-2")])


@pytest.mark.parametrize("answer", ["allow", "stop"])
async def test_a_limit_asks_over_drives(answer: str) -> None:
    """The run is suspended for the answer, says so, and the answer counts in each later drive."""
    journal = TextJournal()
    flow = just(*(step(f"s-{n}").call(give) for n in range(4)))
    executor = Executor(journal=journal, limits=Limits(max_steps=2, on_breach="ask"))
    first = await executor.options(run_id="r").run(flow)
    for result in (first, await executor.resume("r", flow)):
        assert (result.status, len(result.step_results)) == ("suspended", 2)
        [waits] = result.waits_for
        assert (waits.kind, waits.path) == ("answer", "limits.max_steps~1")
    await executor.answer("r", "limits.max_steps~1", answer)
    for ended in (await executor.resume("r", flow), await executor.resume("r", flow)):
        assert ended.success == (answer == "allow"), ended.error
        assert len(ended.step_results) == (4 if ended.success else 3)


@pytest.mark.parametrize("on_breach", ["fail", "ask"])
async def test_bodies_clean_up_after_the_time_of_the_run(on_breach: Any) -> None:
    """Whether the time ends the run by itself, or by an answer to its question."""
    done: list[str] = []

    @workflow
    def flow() -> Steps[None]:
        try:
            yield from step("a").sleep(20)
            yield from step("b").call(done.append, "b")
        finally:
            yield from step("clean").call(done.append, "clean")

    limits = Limits(timeout_s=10, on_breach=on_breach)
    result, seen = await run_seen(flow, limits=limits, clock=Jumping(), gates=lambda _: "stop")
    assert (result.status, rows(seen)) == ("failed", [("timeout_s", 10, "")])
    assert done == ["clean"]


async def test_a_run_that_is_cancelled_asks_no_more() -> None:
    """Its steps that were kept out end as cancelled, and nothing waits for the answer."""
    limits = Limits(max_steps=2, on_breach="ask")
    executor = Executor(journal=TextJournal(), limits=limits, workflows=[flow := of_six()])
    held = await executor.options(run_id="r").run(flow)
    assert held.status == "suspended"
    ended = await executor.cancel("r", "enough")
    assert ended is not None
    assert (ended.status, ended.waiting) == ("cancelled", ())


# -- definitions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"max_steps": 0},
        {"max_steps": 1.5},
        {"max_concurrency": 0},
        {"max_concurrency": True},
        {"tags": {"gpu": 0}},
        {"tags": {"": 1}},
        {"rates": {"claude": -1}},
        {"timeout_s": 0},
        {"timeout_s": float("nan")},
        {"timeout_s": "5"},
        {"max_depth": 0},
        {"max_visits": 0},
        {"on_breach": "suspend"},
    ],
)
def test_limits_that_cannot_be_are_value_errors(options: dict[str, Any]) -> None:
    """A limit below one, or of the wrong kind, is refused and named."""
    with pytest.raises(ValueError, match=next(iter(options))):
        Limits(**options)


@pytest.mark.parametrize("amount", [0, -1, 1.5, "2"])
def test_uses_needs_a_whole_amount(amount: Any) -> None:
    """`.uses(tag, amount)` takes whole amounts of at least one."""
    with pytest.raises((ValueError, TypeError)):
        step("a").call(same).uses("gpu", amount)
