"""Traces and metrics of runs, with the in-memory exporters of OpenTelemetry."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk import trace as sdk
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from handrail import (
    Agent,
    AgentError,
    AgentReply,
    Executor,
    FakeBackend,
    OtelSink,
    Steps,
    Usage,
    step,
    workflow,
)
from handrail.testing import JumpClock, ProcessGone, TextJournal
from handrail.testing.contracts import SinkContract


class Told:
    """A sink, and what it exported."""

    def __init__(self) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        provider = sdk.TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        meters = MeterProvider([self.reader])
        self.sink = OtelSink(tracer_provider=provider, meter_provider=meters)

    def spans(self) -> dict[str, Any]:
        """The spans by name; each came once."""
        found = self.exporter.get_finished_spans()
        names = [span.name for span in found if not span.name.startswith("invoke_agent")]
        assert len(set(names)) == len(names), names
        assert len({span.context.span_id for span in found}) == len(found)
        return {span.name: span for span in found}

    def parents(self) -> dict[str, str]:
        """The name of each span's parent, "" of one that has none or whose parent has not ended."""
        spans = self.spans()
        by_id = {span.context.span_id: name for name, span in spans.items()}
        return {
            name: by_id.get(span.parent.span_id, "?") if span.parent else ""
            for name, span in spans.items()
        }

    def metrics(self) -> dict[str, float]:
        """The sums of the counters, and the counts of the histograms."""
        data = self.reader.get_metrics_data()
        found: dict[str, float] = {}
        for metric in data.resource_metrics[0].scope_metrics[0].metrics:
            points = metric.data.data_points
            found[metric.name] = sum(
                getattr(one, "value", getattr(one, "count", 0)) for one in points
            )
        return found


class TestTheContract(SinkContract):
    """It keeps what every sink keeps."""

    @pytest.fixture
    def make_sink(self) -> Any:
        """A new one each."""
        return OtelSink


BACKEND_REPLIES = [
    AgentError("a", "overloaded", kind="transient", session="s-1"),
    AgentReply("done", usage=Usage(100, 10, 0.5, 1), session="s-1", model="m-1"),
]


@workflow
def child() -> Steps[int]:
    """A step below a step."""
    return (yield from step("inner").call(abs, -1))


def flow_with(agent: Agent[Any, str], fails: list[int]) -> Any:
    """Something of each kind."""

    def may_fail() -> None:
        if fails:
            fails.pop()
            raise ValueError("no")

    @workflow
    def flow() -> Steps[None]:
        yield from step("first").call(abs, -1)
        yield from step("code").agent(agent)
        yield from step("each").for_each([1, 2], lambda item: step("s").call(abs, item))
        yield from step("sub").run_workflow(child)
        yield from step("retried").call(may_fail).retry(2, backoff=0)

    return flow


def test_a_run_is_a_trace() -> None:
    """Each span has its parent; launches say what they used, failures what went wrong."""
    told = Told()
    flow = flow_with(Agent("a", "Do it.", backend=FakeBackend(list(BACKEND_REPLIES))), [1])
    executor = Executor(clock=JumpClock(), sinks=[told.sink])
    assert executor.options(run_id="r").run_sync(flow).success
    parents, spans = told.parents(), told.spans()
    assert parents["run flow"] == ""
    assert {name: parents[name] for name in ("first", "each/0", "each/0/s", "sub/inner")} == {
        "first": "run flow",
        "each/0": "each",
        "each/0/s": "each/0",
        "sub/inner": "sub",
    }
    assert parents["retried attempt 1"] == parents["retried attempt 2"] == "retried"
    assert not spans["retried attempt 1"].status.is_ok
    assert spans["retried"].status.is_unset
    assert spans["retried attempt 2"].status.is_unset
    trace_ids = {span.context.trace_id for span in spans.values()}
    assert len(trace_ids) == 1


def test_launches_have_the_attributes_of_generative_ai() -> None:
    """Also those that failed; and the metrics are theirs."""
    told = Told()
    flow = flow_with(Agent("a", "Do it.", backend=FakeBackend(list(BACKEND_REPLIES))), [])
    Executor(clock=JumpClock(), sinks=[told.sink]).options(run_id="r").run_sync(flow)
    launches = [
        span for span in told.exporter.get_finished_spans() if span.name == "invoke_agent code"
    ]
    failed, done = (dict(one.attributes or {}) for one in launches)
    assert (failed["error.type"], failed["handrail.launch.status"]) == ("transient", "failed")
    assert done["gen_ai.usage.input_tokens"] == 100
    assert (done["gen_ai.request.model"], done["gen_ai.conversation.id"]) == ("m-1", "s-1")
    assert done["gen_ai.provider.name"] == "fake"
    metrics = told.metrics()
    assert (metrics["handrail.launches"], metrics["handrail.tokens"]) == (2, 110)
    assert metrics["handrail.cost"] == 0.5
    assert metrics["handrail.steps"] == metrics["handrail.step.duration"] == 8
    assert metrics["handrail.wait"] == 1


@pytest.mark.parametrize("writes", range(2, 40, 3))
def test_a_run_that_was_killed_is_one_trace(writes: int) -> None:
    """With its resume, wherever it was: nothing is told twice, and all steps have a parent."""
    journal, told = TextJournal(), Told()
    flow = flow_with(Agent("a", "Do it.", backend=FakeBackend([AgentReply("done")] * 9)), [])
    clock = JumpClock()
    try:
        dies = journal.reopened(stop_at=writes)
        Executor(journal=dies, clock=clock, sinks=[told.sink]).options(run_id="r").run_sync(flow)
    except ProcessGone:
        again = Executor(journal=journal.reopened(), clock=clock, sinks=[told.sink])
        assert again.resume_sync("r", flow).success
    spans = told.exporter.get_finished_spans()
    steps = [one for one in spans if not one.name.startswith("invoke_agent")]
    assert len({one.context.span_id for one in steps}) == len(steps)
    assert {one.name for one in steps} == {
        *("run flow", "first", "code", "each", "each/0", "each/0/s", "each/1", "each/1/s"),
        *("sub", "sub/inner", "retried"),
    }
    known = {one.context.span_id for one in spans}
    assert all(one.parent is None or one.parent.span_id in known for one in spans)
    root = next(one for one in spans if one.name == "run flow")
    assert all(root.start_time <= one.start_time <= root.end_time for one in spans)
    assert told.metrics()["handrail.steps"] == 8
