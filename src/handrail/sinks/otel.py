"""Runs as traces and metrics of OpenTelemetry."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from handrail.errors import MissingExtra
from handrail.model import events as ev
from handrail.model.events import Event, Progress
from handrail.model.results import StepResult, Usage
from handrail.record.run_record import Recorded
from handrail.sinks import gen_ai

if TYPE_CHECKING:
    from opentelemetry import metrics, trace


class OtelSink:
    """Exports a span for each run, step, member, attempt and launch of an agent, and metrics.

    An attempt has a span if it failed, or succeeded after others failed. The ids of spans are
    derived from the run's id and the path, so a resumed run continues its trace; steps replayed
    from the record are not exported again. A span is exported at its end, that of the run at the
    run's end. Launches have the ``gen_ai.*`` attributes; if ``OTEL_SEMCONV_STABILITY_OPT_IN`` has
    ``gen_ai_latest_experimental``, runs too, all by the conventions v0.1.0. No span has inputs,
    outputs or prompts. The providers are the global ones by default.

    Raises:
        MissingExtra: opentelemetry-api is not installed.
    """

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        try:
            from opentelemetry import metrics, trace
        except ImportError as error:
            raise MissingExtra("OtelSink", "opentelemetry-api", "otel") from error
        self._latest = gen_ai.is_wanted(os.environ)
        self._trace = trace
        self._tracer: Any = trace.get_tracer("handrail", tracer_provider=tracer_provider)
        self._ids = _Ids()
        if hasattr(self._tracer, "id_generator"):  # only a tracer that exports has one
            self._tracer.id_generator = self._ids
        meter = metrics.get_meter("handrail", meter_provider=meter_provider)
        self._steps = meter.create_counter("handrail.steps", "{step}", "Steps that ended")
        self._launches = meter.create_counter("handrail.launches", "{launch}", "Launches of agents")
        self._tokens = meter.create_counter("handrail.tokens", "{token}", "Tokens of agents")
        self._cost = meter.create_counter("handrail.cost", "{USD}", "Dollars that agents cost")
        self._waits = meter.create_histogram("handrail.wait", "s", "Waits for people and for caps")
        self._took = meter.create_histogram("handrail.step.duration", "s", "Time of steps")
        self._runs: dict[str, _Run] = {}

    def emit(self, event: Event | Progress, /) -> None:
        """Export the span that the event ends, and its metrics."""
        run = self._runs.setdefault(event.run_id, _Run(event.run_id))
        asked = run.recorded.open_gates.get(getattr(event, "path", ""))
        run.note(event)
        match event:
            case (
                ev.StepCompleted(path=path, result=result)
                | ev.MemberCompleted(path=path, result=result)
            ):
                if result.attempts > 1 and result.status == "succeeded" and not result.handled:
                    self._attempt(run, path, result.attempts, event.at)
                self._ended(run, path, result, event.at)
            case ev.AttemptFailed(path=path, attempt=attempt):
                self._attempt(run, path, attempt, event.at, event.error_type, event.error)
            case ev.AgentFinished():
                self._launch(run, event)
            case ev.LadderStep(due=due) if due > event.at:
                facts = {"handrail.wait.kind": "time", "handrail.wait.reason": event.kind}
                self._waits.record(due - event.at, facts)
            case ev.GateAnswered() if asked is not None:
                self._waits.record(event.at - asked.since, {"handrail.wait.kind": "answer"})
            case ev.WorkflowCompleted():
                self._run_ended(run, event)
            case _:
                pass
        if isinstance(event, ev.DriveEnded):
            self._runs.pop(event.run_id, None)

    def _ended(self, run: _Run, path: str, result: StepResult[Any], at: float) -> None:
        took = result.duration_ms / 1000
        facts = {"handrail.step.type": result.step_type, "handrail.step.status": result.status}
        more: dict[str, Any] = {"handrail.step.attempts": result.attempts}
        self._span(run, path, path, at - took, at, {**facts, **more}, result.error)
        if result.step_type != "member":
            self._steps.add(1, facts)
            self._took.record(took, facts)
        run.recorded.forget_ended(path)
        run.began.pop(path, None)

    def _attempt(  # noqa: PLR0917  # what a span of it is made of
        self,
        run: _Run,
        path: str,
        number: int,
        at: float,
        error_type: str | None = None,
        error: str | None = None,
    ) -> None:
        began = run.began.get(path, at)
        facts: dict[str, Any] = {"handrail.attempt": number}
        if error_type is not None:
            facts["error.type"] = error_type
        name, key = f"{path} attempt {number}", f"{path}~attempt {number}"
        self._span(run, key, name, began, at, facts, error, above=path)
        run.began[path] = at

    def _launch(self, run: _Run, event: ev.AgentFinished) -> None:
        began, turn, backend = run.turns.pop(event.path, (event.at, 0, ""))
        facts: dict[str, Any] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": event.path.rpartition("/")[2],
            "gen_ai.provider.name": backend,
            "gen_ai.request.model": event.model or "",
            "gen_ai.conversation.id": event.session or "",
            "handrail.launch.status": event.status,
            "error.type": event.kind,
            **_usage(event.usage),
            **(gen_ai.of_launch(event, backend) if self._latest else {}),
        }
        facts = {name: value for name, value in facts.items() if value not in {"", None}}
        name = f"invoke_agent {facts['gen_ai.agent.name']}"
        key = f"{event.path}~launch {began!r} {turn}"
        self._span(run, key, name, began, event.at, facts, event.error, above=event.path)
        shared = ("gen_ai.provider.name", "handrail.launch.status")
        labels = {name: facts[name] for name in shared if name in facts}
        self._launches.add(1, labels)
        usage = event.usage
        if usage is not None:
            self._tokens.add(usage.input_tokens or 0, {**labels, "gen_ai.token.type": "input"})
            self._tokens.add(usage.output_tokens or 0, {**labels, "gen_ai.token.type": "output"})
            self._cost.add(usage.cost_usd or 0.0, labels)

    def _run_ended(self, run: _Run, event: ev.WorkflowCompleted) -> None:
        facts = {"handrail.run.id": event.run_id, "handrail.run.status": event.status}
        began = min(run.started, event.at - event.duration_ms / 1000)
        workflow = run.workflow or event.run_id
        name = f"run {workflow}"
        if self._latest:
            facts |= gen_ai.of_run(event, workflow)
            name = f"invoke_workflow {workflow}"
        self._span(run, "", name, began, event.at, facts, event.error)

    def _span(  # noqa: PLR0917  # what a span is made of
        self,
        run: _Run,
        key: str,
        name: str,
        began: float,
        ended: float,
        facts: Mapping[str, Any],
        error: str | None,
        above: str | None = None,
    ) -> None:
        trace, trace_id = self._trace, _number(16, run.run_id)
        context = trace.set_span_in_context(trace.INVALID_SPAN)
        if key:
            if above is None:
                above = run.recorded.parent_of(key)
            sampled = trace.TraceFlags(trace.TraceFlags.SAMPLED)
            parent = trace.SpanContext(
                trace_id, _number(8, run.run_id, above), is_remote=True, trace_flags=sampled
            )
            context = trace.set_span_in_context(trace.NonRecordingSpan(parent))
        self._ids.trace_id, self._ids.span_id = trace_id, _number(8, run.run_id, key)
        span = self._tracer.start_span(
            name, context, trace.SpanKind.INTERNAL, facts, start_time=_nanoseconds(began)
        )
        if error:
            said = error.partition("\n")[0][:200]
            span.set_status(trace.Status(trace.StatusCode.ERROR, said))
        span.end(_nanoseconds(ended))


class _Run:
    """What later spans of a run under way need. Mutable."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.workflow = ""
        self.started = float("inf")
        self.recorded = Recorded()
        self.began: dict[str, float] = {}
        """By path, when the step's current attempt began."""
        self.turns: dict[str, tuple[float, int, str]] = {}
        """By path, when its agent was asked last, how often by then, and the backend."""

    def note(self, event: Event | Progress) -> None:
        """Remember what the spans of later events need."""
        self.started = min(self.started, event.at)
        self.recorded.apply(event)
        match event:
            case ev.WorkflowStarted() | ev.RunResumed():
                self.workflow = event.workflow_name or self.workflow
            case ev.StepStarted(path=path) | ev.MemberStarted(path=path):
                self.began[path] = event.at
            case ev.StepReplayed(result=StepResult() as result):
                self.started = min(self.started, result.at - result.duration_ms / 1000)
            case ev.AgentTurnStarted(path=path):
                self.turns[path] = (event.at, event.turn, event.backend)
            case _:
                pass


class _Ids:
    """An id generator that returns the ids set for the next span, one at a time. Mutable."""

    def __init__(self) -> None:
        self.trace_id = self.span_id = 0

    def generate_trace_id(self) -> int:
        """The trace id of the next span."""
        return self.trace_id

    def generate_span_id(self) -> int:
        """The span id of the next span."""
        return self.span_id

    def is_trace_id_random(self) -> bool:
        """False: the trace id is derived from the run's id."""
        return False


def _number(size: int, *parts: str) -> int:
    said = "\n".join(parts).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(said).digest()[:size]) or 1


def _nanoseconds(at: float) -> int:
    return int(at * 1_000_000_000)


def _usage(usage: Usage | None) -> dict[str, Any]:
    if usage is None:
        return {}
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "handrail.cost_usd": usage.cost_usd,
    }
