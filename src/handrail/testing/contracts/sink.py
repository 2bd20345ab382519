"""What every sink must do; subclass the suite in your tests."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TypeAlias

import pytest

from handrail.model.events import StepCompleted, WorkflowStarted, stamp
from handrail.model.results import StepResult
from handrail.ports.sink import Sink
from handrail.testing.contracts.sample_events import sample_events, sample_progress

MakeSink: TypeAlias = Callable[[], Sink]


class Unprintable:
    """A user's value at its worst: its ``repr`` raises."""

    def __repr__(self) -> str:
        raise RuntimeError("this value cannot be printed")


class SinkContract:
    """The laws of the port ``Sink``.

    ::

        class TestMySink(SinkContract):
            @pytest.fixture
            def make_sink(self):
                return lambda: MySink(...)
    """

    @pytest.fixture
    def make_sink(self) -> MakeSink:
        """A function that makes a new sink; override it."""
        raise NotImplementedError("override the fixture make_sink")

    def test_it_satisfies_the_port(self, make_sink: MakeSink) -> None:
        """The sink has the methods of the Protocol."""
        assert isinstance(make_sink(), Sink)

    def test_emit_is_sync_and_returns_nothing(self, make_sink: MakeSink) -> None:
        """The engine calls ``emit`` and looks at no result, so a coroutine would be lost."""
        sink = make_sink()
        returned = [sink.emit(event) for event in sample_events()]  # type: ignore[func-returns-value]
        assert set(returned) == {None}

    def test_it_takes_every_kind_of_event_in_any_company(self, make_sink: MakeSink) -> None:
        """Progress between the events, of two runs at once, is no reason to raise."""
        sink = make_sink()
        other = iter(sample_events("sample-2"))
        for event in sample_events():
            sink.emit(event)
            for notice in sample_progress():
                sink.emit(notice)
            sink.emit(next(other))

    def test_it_takes_events_of_no_run_it_has_seen_begin(self, make_sink: MakeSink) -> None:
        """A sink that gets one event alone does not raise."""
        for event in [*sample_events(), *sample_progress()]:
            make_sink().emit(event)

    @pytest.mark.parametrize(
        "output",
        [Unprintable(), float("nan"), "\ud800", b"\xff", "x" * 1_000_000, {1: {2, 3}}, object()],
        ids=["unprintable", "nan", "surrogate", "bytes", "long", "nested", "object"],
    )
    def test_it_takes_any_output(self, make_sink: MakeSink, output: object) -> None:
        """What a step returns is the user's affair: no value makes the sink raise."""
        sink = make_sink()
        sink.emit(stamp(WorkflowStarted("odd", {"value": output}), "odd-1", 1, 1.0))
        result = StepResult("a", "a", "python", "succeeded", output)
        sink.emit(stamp(StepCompleted("a", result), "odd-1", 2, 2.0))
        error = output if isinstance(output, str) else "bad"
        failed = StepResult("b", "b", "python", "failed", output, error)
        sink.emit(stamp(StepCompleted("b", failed), "odd-1", 3, 3.0))

    def test_it_leaves_nothing_open_after_a_run(self, make_sink: MakeSink) -> None:
        """The engine closes no sink, so after a drive a dropped sink must not warn."""
        sink = make_sink()
        for event in sample_events():
            sink.emit(event)
        del sink
        gc.collect()
