"""Sinks: what they see, and that none can hurt a run."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from structlog.testing import capture_logs

from handrail import CallbackSink, Executor, MemorySink, Steps, step, workflow
from handrail.model import events as ev
from tests.engine.support import Boom, Jumping, give, just, names, same


@workflow
def two() -> Steps[int]:
    """Two steps."""
    a = yield from step("a").call(give, 1)
    return int(a) + (yield from step("b").call(same, 2))


class Raising:
    """A sink that raises at the nth event."""

    def __init__(self, at: int = 1, error: type[Exception] = Boom) -> None:
        self.at = at
        self.error = error
        self.seen = 0

    def emit(self, event: Any, /) -> None:
        """Count, and raise."""
        self.seen += 1
        if self.seen >= self.at:
            raise self.error("full disk")


@pytest.mark.parametrize("at", [1, 2, 4, 6])
async def test_a_sink_that_raises_is_dropped_and_reported_once(at: int) -> None:
    """It gets no more events, the others get one SinkDropped, and the run goes on."""
    before, raising, after = MemorySink(), Raising(at), MemorySink()
    with capture_logs() as logs:
        result = await Executor(sinks=[before, raising, after]).run(two)
    assert (result.status, result.value) == ("succeeded", 3)
    assert raising.seen == at
    for sink in (before, after):
        (dropped,) = sink.of(ev.SinkDropped)
        assert "Raising" in dropped.sink
        assert "full disk" in dropped.error
        assert [n for n in names(sink) if n != "SinkDropped"] == [
            "WorkflowStarted",
            "StepStarted",
            "StepCompleted",
            "StepStarted",
            "StepCompleted",
            "WorkflowCompleted",
        ]
    assert len([line for line in logs if "sink" in line["event"]]) == 1


async def test_every_sink_may_raise() -> None:
    """With all sinks gone the run still succeeds."""
    sinks = [Raising(1), Raising(1), Raising(2), Raising(3)]
    with capture_logs() as logs:
        result = await Executor(sinks=sinks).run(two)
    assert result.value == 3
    assert len(logs) == 4


async def test_a_sink_that_raises_at_the_notice_is_reported_once_too() -> None:
    """A sink that cannot take SinkDropped is dropped itself, and told of once."""

    def picky(event: Any) -> None:
        if isinstance(event, ev.SinkDropped):
            raise Boom("no notices")

    last = MemorySink()
    with capture_logs() as logs:
        result = await Executor(sinks=[Raising(2), CallbackSink(picky), last]).run(two)
    assert result.value == 3
    assert len(logs) == len(last.of(ev.SinkDropped))


async def test_a_sink_is_dropped_for_its_run_only() -> None:
    """The next run of the executor shows its events to the sink again."""
    raising = Raising(at=2)
    executor = Executor(sinks=[raising])
    with capture_logs():
        await executor.run(two)
        await executor.run(two)
    assert raising.seen == 3


async def test_a_stream_sees_that_a_sink_was_dropped() -> None:
    """`stream` gives SinkDropped among the events."""
    with capture_logs():
        async with Executor(sinks=[Raising(3)]).stream(two) as run:
            kinds = [type(event).__name__ async for event in run]
    assert kinds.count("SinkDropped") == 1
    assert run.result.value == 3


async def test_sinks_run_on_the_loop_in_order_and_after_the_journal() -> None:
    """`emit` is called in the loop's thread, sink by sink, once the event is in the journal."""
    told: list[tuple[str, int]] = []
    executor: Executor

    def first(event: Any) -> None:
        told.append(("first", event.seq))
        assert threading.get_ident() == here
        stored = list(executor._parts.journal.events(event.run_id))  # the port of the executor
        assert stored[-1] is event

    here = threading.get_ident()
    executor = Executor(
        sinks=[CallbackSink(first), CallbackSink(lambda e: told.append(("second", e.seq)))]
    )
    result = await executor.run(two)
    assert result.value == 3
    assert told == [(who, seq) for seq in range(1, 7) for who in ("first", "second")]


async def test_a_slow_sink_costs_no_more_than_its_own_emits() -> None:
    """The time a slow sink takes is all that is added to the run."""
    clock = Jumping()

    def slow(_: Any) -> None:
        clock.time += 5

    seen = MemorySink()
    result = await Executor(sinks=[CallbackSink(slow), seen], clock=clock).run(two)
    assert result.value == 3
    assert clock.time == 1_000_000 + 5 * len(seen.events)


async def test_progress_of_a_command_reaches_sinks_but_has_no_number() -> None:
    """Output lines are Progress: they carry the number of the last event, and are not journaled."""
    sink = MemorySink()
    executor = Executor(sinks=[sink])
    flow = just(step("c").command("echo out; echo err >&2"))
    result = await executor.options(run_id="r").run(flow)
    assert result.status == "succeeded"
    output = sink.of(ev.StepOutput)
    assert {event.stream for event in output} == {"stdout", "stderr"}
    assert {event.path for event in output} == {"c"}
    assert {event.seq for event in output} == {2}


class Awaits:
    """A sink that nobody would await."""

    async def emit(self, event: Any) -> None:
        """Wait."""


@pytest.mark.parametrize("sink", [3, object(), print, Awaits()])
def test_a_sink_needs_emit(sink: Any) -> None:
    """Something without a plain `emit` is refused when the executor is made."""
    with pytest.raises(TypeError, match="emit"):
        Executor(sinks=[sink])
