"""Timeouts on leaves, composites and waiting verbs, and sleep, in made-up time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from handrail import Executor, Step, StepFailed, Steps, StepTimeout, step, workflow
from handrail.engine import calls
from handrail.model import events as ev
from handrail.testing import TextJournal
from tests.engine.support import (
    Jumping,
    boom,
    caught,
    forever,
    give,
    just,
    run_seen,
    same,
    statuses,
)


async def test_a_timeout_fails_a_leaf_that_takes_longer() -> None:
    """An async action is cancelled at its timeout, and the step fails with StepTimeout."""
    flow = caught(
        step("a").call(forever).timeout(60),
        lambda failed: (failed.is_a(StepTimeout), failed.is_a(TimeoutError), str(failed)),
    )
    result, _ = await run_seen(flow, clock=Jumping())
    assert result.value is not None
    assert result.value[:2] == (True, True)
    assert "60" in result.value[2]


async def test_a_timeout_holds_for_each_attempt_anew() -> None:
    """Three attempts under .timeout(60) may take 180 s in all."""
    clock = Jumping()
    flow = just(step("a").call(forever).timeout(60).retry(3, backoff=0))
    result, sink = await run_seen(flow, clock=clock)
    assert result.step("a").attempts == 3
    assert len(sink.of(ev.AttemptFailed)) == 3
    assert clock.time - 1_000_000.0 == 180


async def test_a_timeout_of_a_group_stops_its_members() -> None:
    """At the group's deadline its members are cancelled and the group fails."""
    flow = caught(
        step("g").parallel(step("a").call(forever), step("b").sleep(999)).timeout(10),
        lambda failed: failed.is_a(StepTimeout),
    )
    result, _ = await run_seen(flow, clock=Jumping())
    assert result.value is True
    assert statuses(result) == {"g": "failed", "g/a": "cancelled", "g/b": "cancelled"}


async def test_a_timeout_inside_a_group_inside_a_timeout() -> None:
    """The inner timeout fails its member first; with a longer inner one the outer counts."""

    @workflow
    def flow(inner: float, outer: float) -> Steps[Any]:
        try:
            yield from (
                step("g")
                .parallel(
                    step("in").parallel(step("a").call(forever)).timeout(inner),
                    step("b").call(give).timeout(5),
                    on_error="continue",
                )
                .timeout(outer)
            )
        except StepFailed as failed:
            return f"outer {failed.is_a(StepTimeout)}"
        return "inner"

    with anyio.fail_after(10):
        first, _ = await run_seen(flow, 10, 100, clock=Jumping())
        second, _ = await run_seen(flow, 100, 10, clock=Jumping())
    assert first.value == "inner"
    assert statuses(first)["g/in"] == "failed"
    assert second.value == "outer True"
    assert statuses(second)["g/in"] == "cancelled"


async def test_a_timeout_of_a_subworkflow_unwinds_the_child() -> None:
    """A child over its deadline gets its finally run, and its step fails with StepTimeout."""
    done: list[str] = []

    @workflow
    def child() -> Steps[None]:
        try:
            yield from step("long").call(forever)
        finally:
            yield from step("clean").call(done.append, "clean")

    flow = caught(
        step("sub").subworkflow(child).timeout(10), lambda failed: failed.is_a(StepTimeout)
    )
    result, _ = await run_seen(flow, clock=Jumping())
    assert (result.value, done) == (True, ["clean"])
    assert statuses(result) == {"sub": "failed", "sub/long": "cancelled", "sub/clean": "succeeded"}


@pytest.mark.parametrize(
    "made", [step("w").wait_for("never"), step("w").sleep(999), step("w").ask("?")]
)
async def test_a_timeout_of_a_waiting_verb_is_a_deadline(made: Any) -> None:
    """wait_for, sleep and ask fail at their .timeout; the run does not suspend before."""

    @workflow
    def flow() -> Steps[Any]:
        yield from step("p").parallel(made.timeout(10), step("s").sleep(20), on_error="continue")
        return "after"

    result, _ = await run_seen(flow, clock=Jumping())
    assert result.value == "after"
    assert result.step("p/w").status == "failed"
    assert result.step("p/w").is_a(StepTimeout)


async def test_the_predicate_is_outside_of_the_timeout() -> None:
    """A predicate that takes longer than the step's timeout does not time it out."""
    clock = Jumping()

    async def slow(_: Any) -> bool:
        await clock.sleep(100)
        return True

    result, _ = await run_seen(just(step("a").call(give, 1).when(slow).timeout(10)), clock=clock)
    assert result.value == 1


@pytest.mark.parametrize("length", [5, 5.5, timedelta(seconds=5), timedelta(days=2)])
async def test_sleep_takes_seconds_and_timedeltas(length: Any) -> None:
    """`.sleep` passes that much time of the executor's clock, and gives None."""
    clock = Jumping()
    result, sink = await run_seen(just(step("s").sleep(length)), clock=clock)
    assert result.value is None
    seconds = length.total_seconds() if isinstance(length, timedelta) else length
    assert clock.time - 1_000_000.0 == pytest.approx(seconds)
    assert [e.reason for e in sink.of(ev.TimerSet)] == ["sleep"]


async def test_sleep_until_an_aware_datetime() -> None:
    """`.sleep(datetime)` waits until then, and not at all if that is past."""
    clock = Jumping(datetime(2024, 1, 1, tzinfo=UTC).timestamp())
    flow = just(
        step("past").sleep(datetime(2020, 1, 1, tzinfo=UTC)),
        step("then").sleep(datetime(2024, 1, 2, tzinfo=UTC)),
    )
    result, _ = await run_seen(flow, clock=clock)
    assert result.status == "succeeded"
    assert clock.time == datetime(2024, 1, 2, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    "length",
    [-1, float("nan"), float("inf"), "5", True, datetime(2024, 1, 1)],  # noqa: DTZ001  # what is refused
)
def test_sleep_refuses_what_is_no_time(length: Any) -> None:
    """A negative, endless or naive time is a ValueError that names the step."""
    with pytest.raises(ValueError, match=r"sleep"):
        step("s").sleep(length)


async def test_a_sync_action_over_its_timeout_fails_although_its_thread_goes_on() -> None:
    """A thread that ends soon after its timeout still fails with the timeout, and can see it."""
    from handrail import current

    told = threading.Event()

    def act() -> str:
        here = current()
        for _ in range(2000):
            if here.cancelled:
                told.set()
                return "late"
            threading.Event().wait(0.001)
        return "never told"

    with anyio.fail_after(10):
        result = await Executor().run(just(step("a").call(act).timeout(0.2)))
    assert result.step("a").is_a(StepTimeout)
    assert told.is_set()


async def test_a_sleep_of_nothing_ends_at_once() -> None:
    """`.sleep(0)` takes no time."""
    assert (await Executor().run(just(step("s").sleep(0), step("a").call(same, 1)))).value == 1


@pytest.mark.parametrize(
    "rest",
    [
        lambda timed: timed,
        lambda timed: timed.default("spare"),
        lambda timed: timed.on_error(lambda ctx, failed: step("b").call(same, failed.abandoned)),
    ],
)
async def test_a_thread_that_outlives_the_timeout_is_left_behind(
    rest: Callable[[Step[Any]], Step[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step's result says so, at once and on resume, however the step ends."""
    monkeypatch.setattr(calls, "ABANDON_AFTER_S", 0.05)
    release, fails = threading.Event(), [True]

    @workflow
    def flow() -> Steps[Any]:
        with contextlib.suppress(StepFailed):
            value = yield from rest(step("a").call(release.wait, 20).timeout(0.1))
            assert value in {"spare", True}
        yield from step("end").call(boom if fails.pop() else same)

    executor = Executor(journal=TextJournal())
    first = await executor.options(run_id="r").run(flow)
    release.set()
    fails.append(False)
    again = await executor.resume("r", flow)
    assert (first.status, again.status) == ("failed", "succeeded")
    assert [one.step("a").abandoned for one in (first, again)] == [True, True]
    assert again.step("a").replayed
    assert not again.step("end").abandoned


async def test_a_resume_knows_of_a_thread_that_an_attempt_left_behind() -> None:
    """Also if the process died between the failure of the attempt and the end of the step."""
    history = [
        ev.WorkflowStarted("flow"),
        ev.StepStarted("a", "python"),
        ev.AttemptFailed("a", 1, "late", "handrail.errors.StepTimeout", abandoned=True),
    ]
    journal = TextJournal()
    journal.append_run([ev.stamp(one, "r", seq, 1.0) for seq, one in enumerate(history, 1)])

    @workflow
    def flow() -> Steps[Any]:
        yield from step("a").call(same).default("spare")

    result = await Executor(journal=journal).resume("r", flow)
    assert (result.step("a").status, result.step("a").abandoned) == ("defaulted", True)
