"""How a step fails, is tried again, and is replaced."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import pytest

from handrail import (
    Backoff,
    DefinitionError,
    Executor,
    MemoryJournal,
    Skipped,
    StepFailed,
    StepResult,
    Steps,
    WorkflowContext,
    WrongUse,
    step,
    workflow,
)
from handrail.model import events as ev
from tests.engine.support import (
    Boom,
    Flaky,
    Jumping,
    aboom,
    boom,
    give,
    just,
    run_seen,
    same,
    statuses,
)


async def test_retry_counts_attempts() -> None:
    """`.retry(3)` calls the action at most three times, and the result counts them."""
    flaky = Flaky(2)
    result, sink = await run_seen(just(step("a").call(flaky).retry(3, backoff=0)))
    assert result.value == "ok"
    assert flaky.calls == 3
    assert result.step("a").attempts == 3
    assert [(e.attempt, e.retryable) for e in sink.of(ev.AttemptFailed)] == [(1, True), (2, True)]


async def test_the_last_failed_attempt_is_recorded_too() -> None:
    """AttemptFailed stands for every failed attempt, and the text of StepFailed counts them."""
    result, sink = await run_seen(just(step("a").call(aboom).retry(2, backoff=0)))
    assert [e.attempt for e in sink.of(ev.AttemptFailed)] == [1, 2]
    assert "after 2 attempts" in (result.error or "")


async def test_retry_one_is_no_retry() -> None:
    """`.retry(1)` is one attempt."""
    flaky = Flaky(1)
    assert (await Executor().run(just(step("a").call(flaky).retry(1)))).status == "failed"
    assert flaky.calls == 1


@pytest.mark.parametrize("attempts", [0, -1, True, 2.5, "3"])
def test_retry_needs_a_count_of_at_least_one(attempts: Any) -> None:
    """`.retry(n)` with n below 1, or no whole number, is a definition error."""
    with pytest.raises((DefinitionError, TypeError), match=r"retry"):
        step("a").call(same).retry(attempts)


async def test_retry_pauses_as_its_backoff_says() -> None:
    """Pauses grow by the factor up to the cap, on the executor's clock."""
    clock = Jumping()
    at: list[float] = []

    async def note() -> None:
        at.append(clock.now())
        raise Boom("again")

    @workflow
    def flow() -> Steps[Any]:
        backoff = Backoff(initial_s=10, factor=3, max_s=50, jitter=0)
        yield from step("a").call(note).retry(4, backoff=backoff)

    await run_seen(flow, clock=clock)
    assert [b - a for a, b in itertools.pairwise(at)] == [10, 30, 50]


async def test_backoff_as_seconds_is_a_fixed_pause() -> None:
    """`backoff=7` pauses seven seconds each time."""
    clock = Jumping()
    _, sink = await run_seen(just(step("a").call(aboom).retry(3, backoff=7)), clock=clock)
    due = [e.due - e.at for e in sink.of(ev.TimerSet) if e.reason == "retry"]
    assert due == [7, 7]


async def test_jitter_is_a_hash_of_run_path_and_attempt() -> None:
    """The same run id, path and attempt pause alike; another run pauses otherwise."""
    flow = just(step("a").call(aboom).retry(3, backoff=Backoff(100, max_s=1000)))

    async def pauses(run_id: str) -> list[float]:
        from handrail import MemorySink

        sink = MemorySink()
        executor = Executor(sinks=[sink], clock=Jumping())
        await executor.options(run_id=run_id).run(flow)
        return [round(e.due - e.at, 6) for e in sink.of(ev.TimerSet)]

    assert await pauses("one") == await pauses("one")
    assert await pauses("one") != await pauses("two")
    assert all(50 <= pause <= 200 for pause in await pauses("one"))


@pytest.mark.parametrize(
    ("on", "calls"),
    [
        (Boom, 3),
        ((KeyError, Boom), 3),
        (RuntimeError, 3),
        (KeyError, 1),
        (lambda error: "try 1" in str(error), 2),
        (lambda _: False, 1),
    ],
)
async def test_on_says_after_which_errors_to_try_again(on: Any, calls: int) -> None:
    """`on=` takes exception types or a predicate, judged on the live exception."""
    flaky = Flaky(9)
    result, sink = await run_seen(just(step("a").call(flaky).retry(3, backoff=0, on=on)))
    assert flaky.calls == calls
    assert result.step("a").attempts == calls
    assert sink.of(ev.AttemptFailed)[-1].retryable is (calls == 3)


async def test_an_on_predicate_that_raises_fails_the_step() -> None:
    """A predicate of `on=` that raises ends the attempts, and the step fails."""
    flaky = Flaky(9)

    @workflow
    def flow() -> Steps[Any]:
        yield from step("a").call(flaky).retry(3, backoff=0, on=lambda _: 1 / 0)  # type: ignore[arg-type, return-value]

    result = await Executor().run(flow)
    assert (result.status, flaky.calls) == ("failed", 1)
    assert "division" in (result.error or "")


async def test_on_judges_the_failure_of_a_composite() -> None:
    """`on=` of a group is asked about the failure that its member passed on."""
    flaky = Flaky(9)
    flow = just(step("g").parallel(step("a").call(flaky)).retry(3, backoff=0, on=Boom))
    result = await Executor().run(flow)
    assert flaky.calls == 3
    assert result.step("g").attempts == 3


async def test_default_stands_in_for_a_failure() -> None:
    """`.default(value)` gives the value with the status defaulted, after all attempts."""
    flaky = Flaky(9)
    result, _ = await run_seen(just(step("a").call(flaky).retry(2, backoff=0).default("spare")))
    assert (result.value, flaky.calls) == ("spare", 2)
    one = result.step("a")
    assert (one.status, one.success, one.output, one.error) == ("defaulted", True, "spare", "try 2")


async def test_a_default_of_none_counts() -> None:
    """`.default(None)` is a default."""
    result = await Executor().run(just(step("a").call(aboom).default(None)))
    assert (result.status, result.value) == ("succeeded", None)


async def test_skip_on_error_gives_a_falsy_skipped_with_the_reason() -> None:
    """`.skip_on_error()` goes on with Skipped, the status is skipped, the error is kept."""
    result, _ = await run_seen(just(step("a").call(boom, "bad luck").skip_on_error()))
    assert isinstance(result.value, Skipped)
    assert "bad luck" in result.value.reason
    assert (result.step("a").status, result.step("a").error) == ("skipped", "bad luck")


async def test_on_error_runs_the_step_that_the_handler_returns() -> None:
    """The handler sees context and failed result; its step runs at `name/<fallback>`."""
    seen: list[tuple[WorkflowContext, StepResult[Any]]] = []

    def handler(ctx: WorkflowContext, failed: StepResult[Any]) -> Any:
        seen.append((ctx, failed))
        return step("plan-b").call(same, "b")

    @workflow
    def flow(task: str) -> Steps[Any]:
        return (yield from step("a").call(boom, "bad").on_error(handler))

    result, _ = await run_seen(flow, "x")
    assert result.value == "b"
    assert statuses(result) == {"a": "succeeded", "a/plan-b": "succeeded"}
    ((ctx, failed),) = seen
    assert ctx.inputs == {"task": "x"}
    assert (failed.status, failed.error, failed.path) == ("failed", "bad", "a")


async def test_the_fallback_comes_before_the_default() -> None:
    """Retry, then on_error, then default: the default counts only if the fallback fails too."""
    order: list[str] = []

    async def act() -> None:
        order.append("act")
        raise Boom("x")

    async def fallback() -> None:
        order.append("fallback")
        raise Boom("y")

    flow = just(
        step("a")
        .call(act)
        .default("spare")
        .on_error(lambda _c, _f: step("f").call(fallback))
        .retry(2, backoff=0)
    )
    result, _ = await run_seen(flow)
    assert order == ["act", "act", "fallback"]
    assert result.value == "spare"
    assert statuses(result) == {"a": "defaulted", "a/f": "failed"}


@pytest.mark.parametrize(
    ("handler", "said"),
    [
        (lambda _c, _f: "not a step", "'not a step'"),
        (lambda _c, _f: None, "None"),
        (lambda _c, _f: boom("in handler"), "in handler"),
    ],
)
async def test_a_handler_that_gives_no_step_fails_the_step(handler: Any, said: str) -> None:
    """What it returns instead is in the text; its own exception is the failure."""
    result = await Executor().run(just(step("a").call(aboom).on_error(handler)))
    assert result.status == "failed"
    assert said in (result.error or "")


@pytest.mark.parametrize(
    ("handler", "second"),
    [
        (lambda _c, _f: step("b").call(boom, "bad again"), "'b' failed too: bad again"),
        (lambda _c, _f: step("b").call(boom, "bad"), "'b' failed too: bad"),
        (lambda _c, _f: boom("in handler"), "in handler"),
        (lambda _c, _f: None, "must return a step"),
    ],
)
async def test_the_error_of_a_fallback_that_failed_too_names_both(
    handler: Any, second: str
) -> None:
    """The run, its step and its cause tell the failure of the step and that of the fallback."""
    journal = MemoryJournal()
    executor = Executor(journal=journal)
    result = await executor.options(run_id="r").run(
        just(step("a").call(boom, "bad").on_error(handler))
    )
    for text in (result.error or "", result.step("a").error or ""):
        assert second in text
        assert text.endswith("; the step itself had failed: bad")
    cause = (await executor.get("r")).step("a").cause
    assert cause is not None
    assert cause.origin.path == ("a/b" if "'b'" in second else "a")


async def test_when_false_skips_and_never_calls() -> None:
    """A false predicate gives Skipped, and the action is not called."""
    called: list[int] = []
    result, _ = await run_seen(just(step("a").call(called.append, 1).when(lambda _: False)))
    assert isinstance(result.value, Skipped)
    assert called == []
    assert result.step("a").status == "skipped"


async def test_when_is_given_the_context_and_may_be_async() -> None:
    """The predicate sees inputs and earlier outputs; an async one is awaited."""

    async def big(ctx: WorkflowContext) -> bool:
        return bool(ctx.output("a") > ctx.inputs["least"])

    @workflow
    def flow(least: int) -> Steps[Any]:
        yield from step("a").call(same, 5)
        return (yield from step("b").call(same, "ran").when(big))

    assert (await Executor().run(flow, 4)).value == "ran"
    assert isinstance((await Executor().run(flow, 5)).value, Skipped)


@pytest.mark.parametrize(
    "predicate", [lambda _: 1, lambda _: None, lambda _: "yes", lambda _: 1 / 0]
)
async def test_a_bad_predicate_fails_its_step_past_every_fallback(predicate: Any) -> None:
    """A predicate that raises or gives no bool fails the step, past on_error and default."""
    called: list[int] = []
    flow = just(
        step("a")
        .call(called.append, 1)
        .when(predicate)
        .retry(3, backoff=0)
        .on_error(lambda _c, _f: step("f").call(same))
        .default(1)
    )
    result, _ = await run_seen(flow)
    assert (result.status, result.failed_step, called) == ("failed", "a", [])
    assert statuses(result) == {"a": "failed"}


class Own(BaseException):
    """A BaseException of the user's own."""


@pytest.mark.parametrize("error", [StopIteration, Own])
async def test_an_odd_exception_of_an_action_fails_its_step(error: type[BaseException]) -> None:
    """And not the workflow, on every way an action can run."""

    def act() -> None:
        raise error

    async def aact() -> None:
        if error is StopIteration:
            next(iter(()))
        raise error

    @workflow
    def flow() -> Steps[list[str]]:
        failed: list[StepFailed] = []
        for made in (
            step("a").call(act),
            step("b").call(act).inline(),
            step("c").call(aact),
            step("g").parallel(step("d").call(aact), step("e").call(give)),
        ):
            try:
                yield from made
            except StepFailed as failure:
                failed.append(failure)
        return [one.result.path for one in failed if error is StopIteration or one.is_a(error)]

    result, _ = await run_seen(flow)
    assert result.error is None
    assert result.value == ["a", "b", "c", "g"]


async def test_the_next_of_nothing_in_a_body_is_reported_at_its_line() -> None:
    """Python turns the StopIteration into an exception whose traceback has no line of the body."""

    @workflow
    def flow() -> Steps[int]:
        yield from step("a").call(give)
        return next(number for number in (1, 2) if number > 2)

    result, _ = await run_seen(flow)
    line = flow.definition.function.__code__.co_firstlineno + 3
    assert result.error == f"{__file__}:{line}: RuntimeError: generator raised StopIteration"


async def test_an_exception_that_cannot_be_pickled_fails_its_step() -> None:
    """An exception with an unpicklable part is recorded like any other."""
    import threading

    class Locked(Exception):
        def __init__(self) -> None:
            super().__init__(threading.Lock())

    def locked() -> None:
        raise Locked

    result = await Executor().run(just(step("a").call(locked)))
    assert (result.status, result.failed_step) == ("failed", "a")


async def test_a_coroutine_that_a_sync_action_returns_is_awaited() -> None:
    """A lambda that returns a coroutine is an async action; nothing stays un-awaited."""

    @workflow
    def flow() -> Steps[Any]:
        a = yield from step("a").call(lambda: give(1))
        b = yield from step("b").call(lambda: give(2)).inline()
        return a, b

    result, _ = await run_seen(flow)
    assert result.value == (1, 2)


async def test_each_modifier_returns_a_new_step() -> None:
    """A modifier leaves the step it was called on as it was."""
    plain = step("a").call(boom)
    spared = plain.default(1)

    @workflow
    def flow() -> Steps[Any]:
        try:
            yield from plain
        except StepFailed:
            return "failed"
        return "?"

    assert (await Executor().run(flow)).value == "failed"
    assert (await Executor().run(just(spared))).value == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: step("a").call(same).once().retry(2),
        lambda: step("a").call(same).retry(2).once(),
        lambda: step("a").command(["true"]).inline(),
        lambda: step("a").sleep(1).inline(),
    ],
)
def test_modifiers_that_contradict_are_definition_errors(make: Any) -> None:
    """`.once()` with retries, and `.inline()` on anything but a call, are refused at once."""
    with pytest.raises(DefinitionError, match=r"'a'"):
        make()


class _Holder:
    def undo(self, ctx: object) -> None: ...


def _given(*given: Any, more: int = 1) -> Any: ...


def test_a_function_that_cannot_be_called_is_refused_before_it_is_needed() -> None:
    """A rollback of other arguments would fail when something else has; what fits is taken."""
    made: Any = step("a").call(same)
    for one in (_Holder().undo, _given, lambda ctx, more=1: more, functools.partial(_given, 1)):
        made.when(one).on_error(_given).with_rollback(one)
    for modify in (made.when, made.on_error, made.with_rollback):
        for wrong in (lambda: None, lambda a, b, c: (a, b, c), 3):
            with pytest.raises(WrongUse, match=r"step 'a': .* takes a function"):
                modify(wrong)
    with pytest.raises(WrongUse, match=r"takes a function of \(ctx\), and undo takes 2 arguments"):
        made.with_rollback(_Holder.undo)
