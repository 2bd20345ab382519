"""Spans of agents and runs by the conventions for generative AI, checked against their registry."""

from __future__ import annotations

import importlib.util
from pathlib import Path
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
from handrail.agents.routes import backend_names
from handrail.sinks import gen_ai
from handrail.testing import JumpClock

_SPEC = importlib.util.spec_from_file_location(
    "gen_ai_registry", Path(__file__).with_name("gen_ai_registry.py")
)
assert _SPEC is not None
assert _SPEC.loader is not None
registry: Any = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(registry)

USAGE = Usage(1000, 50, 0.5, 1, cached_tokens=800, cache_write_tokens=100, reasoning_tokens=20)
REPLY = AgentReply("done", usage=USAGE, session="s-1", model="claude-opus-5")
FAILURES = [AgentError("a", "overloaded", kind="transient", session="s-1"), REPLY]


def spans_of(replies: list[Any], *, fails: bool = False, name: str = "claude") -> list[Any]:
    """The finished spans of a run of one agent, and of a call that may fail."""
    exporter = InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    agent = Agent("a", "Do it.", backend=FakeBackend(list(replies), name=name))

    @workflow
    def flow() -> Steps[None]:
        yield from step("code").agent(agent)
        yield from step("check").call(lambda: 1 // (0 if fails else 1))

    sink = OtelSink(tracer_provider=provider)
    Executor(clock=JumpClock(), sinks=[sink]).options(run_id="r").run_sync(flow)
    return list(exporter.get_finished_spans())


@pytest.fixture
def latest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The latest names are asked for, beside those of another convention."""
    monkeypatch.setenv(gen_ai.OPT_IN, "http, gen_ai_latest_experimental")


@pytest.mark.usefixtures("latest")
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("replies", [[REPLY], FAILURES, [AgentReply("done")], [ValueError("x")]])
def test_each_attribute_is_one_of_the_registry(replies: list[Any], fails: bool) -> None:
    """A span of a run or launch has names and types of the registry, and what is required."""
    spans = spans_of(replies, fails=fails)
    seen = set()
    for span in spans:
        facts = dict(span.attributes or {})
        told = {key: value for key, value in facts.items() if not key.startswith("handrail.")}
        for key, value in told.items():
            assert type(value) is registry.TYPES[key], (span.name, key, value)
        operation = facts.get("gen_ai.operation.name")
        if operation is None:
            assert set(told) <= {"error.type"}, span.name
            continue
        seen.add(operation)
        assert span.name == f"{operation} {facts['gen_ai.agent.name']}"
        assert registry.REQUIRED[operation] <= facts.keys()
        assert facts.get("gen_ai.provider.name", "openai") in registry.PROVIDERS
        assert ("error.type" in facts) == (not span.status.is_unset)
    assert seen == registry.OPERATIONS


@pytest.mark.usefixtures("latest")
def test_a_launch_says_what_came_from_the_cache() -> None:
    """Tokens read from a cache, written to one, and thought are parts of the sums beside them."""
    (launch,) = [span for span in spans_of([REPLY]) if span.name == "invoke_agent code"]
    usage = {key: value for key, value in launch.attributes.items() if ".usage." in key}
    assert usage == {
        "gen_ai.usage.input_tokens": 1000,
        "gen_ai.usage.cache_read.input_tokens": 800,
        "gen_ai.usage.cache_write.input_tokens": 100,
        "gen_ai.usage.output_tokens": 50,
        "gen_ai.usage.reasoning.output_tokens": 20,
    }


def test_without_the_variable_names_stay_as_they_were() -> None:
    """The names that dashboards have are left alone until someone asks for others."""
    spans = {span.name: dict(span.attributes) for span in spans_of([REPLY])}
    assert set(spans) == {"invoke_agent code", "code", "check", "run flow"}
    assert spans["invoke_agent code"]["gen_ai.provider.name"] == "claude"
    assert not any(".cache_" in key for key in spans["invoke_agent code"])
    assert not any(key.startswith("gen_ai.") for key in spans["run flow"])


@pytest.mark.parametrize(
    ("backend", "model", "provider"),
    [
        *(("claude", None, "anthropic"), ("codex", "gpt-6", "openai")),
        *(("gemini", "gemini-3-pro", "gcp.gen_ai"), ("copilot", "claude-opus-5", "anthropic")),
        *(("copilot", None, "copilot"), ("opencode", "moonshotai/kimi-k3", "moonshot_ai")),
        *(("opencode", "amazon-bedrock/anthropic.claude", "aws.bedrock"),),
        *(("api", "google-vertex:gemini-3", "gcp.vertex_ai"), ("api", "gpt-6", "openai")),
        *(("ours", "ours-7b", "ours"), ("claude", "bedrock:claude-opus-5", "aws.bedrock")),
    ],
)
def test_a_provider_has_its_prescribed_name(backend: str, model: str | None, provider: str) -> None:
    """A model's prefix says who serves it, else its backend, else its family."""
    assert gen_ai.provider_of(backend, model) == provider


def test_only_prescribed_names_are_in_the_table() -> None:
    """No provider has a spelling of ours, and each agent program of one maker has its maker."""
    assert set(gen_ai._PROVIDERS.values()) <= registry.PROVIDERS
    of_several_makers = {"api", "copilot", "opencode"}
    assert set(backend_names()) - gen_ai._PROVIDERS.keys() == of_several_makers


@pytest.mark.parametrize(
    ("value", "wanted"),
    [("", False), ("http", False), ("gen_ai_latest_experimental", True), ("http,gen_ai", False)],
)
def test_the_variable_is_a_list(value: str, wanted: bool) -> None:
    """The word is looked for among others, whole."""
    assert gen_ai.is_wanted({gen_ai.OPT_IN: value}) is wanted
    assert gen_ai.is_wanted({}) is False


@pytest.mark.parametrize("asked", [True, False])
def test_each_metric_has_a_unit_and_names_of_the_registry_or_of_handrail(
    asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No attribute of a metric is without a namespace; what a span has too has the same name."""
    monkeypatch.setenv(gen_ai.OPT_IN, gen_ai.LATEST if asked else "")
    reader = InMemoryMetricReader()
    sink = OtelSink(meter_provider=MeterProvider([reader]))
    agent = Agent("a", "Do it.", backend=FakeBackend(list(FAILURES), name="claude"))

    @workflow
    def flow() -> Steps[None]:
        yield from step("code").agent(agent)

    Executor(clock=JumpClock(), sinks=[sink]).run_sync(flow)
    data = reader.get_metrics_data()
    assert data is not None
    metrics = data.resource_metrics[0].scope_metrics[0].metrics
    units = {metric.name.removeprefix("handrail."): metric.unit for metric in metrics}
    assert units == {
        "steps": "{step}",
        "launches": "{launch}",
        "tokens": "{token}",
        "cost": "{USD}",
        "wait": "s",
        "step.duration": "s",
    }
    points = [dict(point.attributes) for metric in metrics for point in metric.data.data_points]
    for key, value in (item for point in points for item in point.items()):
        assert key.startswith("handrail.") or type(value) is registry.TYPES[key], key
    of_tokens = [point for point in points if "gen_ai.token.type" in point]
    assert {point["gen_ai.token.type"] for point in of_tokens} == registry.TOKEN_TYPES
    named = {point["gen_ai.provider.name"] for point in of_tokens}
    assert named == ({"anthropic"} if asked else {"claude"})
