"""Agent and generate steps: their contexts, overrides by name, and what they consumed."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import pytest

from handrail import (
    Agent,
    AgentError,
    AgentResult,
    DefinitionError,
    Executor,
    FakeBackend,
    PromptError,
    StepFailed,
    Steps,
    Usage,
    WorkflowContext,
    step,
    workflow,
)
from handrail.model.shapes import AgentRequest
from handrail.ports.agent import AgentReply
from handrail.record.live_view import LiveRun
from handrail.record.run_record import Recorded
from handrail.record.view import view_of
from handrail.testing import TextJournal
from tests.engine.support import Boom, Flaky, Jumping, boom, give, just, run_seen, statuses


class Echo:
    """An agent that answers with its context, or with what it is told to."""

    def __init__(self, name: str = "echo", answer: Any = None, usage: Usage | None = None) -> None:
        self.name = name
        self.answer = answer
        self.usage = usage
        self.requests: list[AgentRequest] = []

    async def run(self, request: AgentRequest, /) -> AgentResult[Any]:
        """Answer."""
        self.requests.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        said = dict(request.context) if self.answer is None else self.answer
        return AgentResult(said, self.usage, "m1", "s1")


async def test_an_agent_step_gives_the_agents_result() -> None:
    """The output is the AgentResult, whole; anything with a name and a run is an agent."""
    result, _ = await run_seen(just(step("a").agent(Echo(), {"task": "x"})))
    assert result.value == AgentResult({"task": "x"}, None, "m1", "s1")
    assert result.step("a").step_type == "agent"


async def test_an_agent_is_told_of_its_step() -> None:
    """The request has run id, path, attempt, context, the workflow's context and the key."""
    agent = Echo()

    @workflow
    def flow(task: str) -> Steps[Any]:
        yield from step("plan").call(give, "p")
        yield from step("a").agent(agent, {"task": task})

    result = await Executor(services={"db": 1}, config={"x": 2}).run(flow, "t")
    (request,) = agent.requests
    assert (request.run_id, request.path, request.attempt) == (result.run_id, "a", 1)
    assert request.workflow.output("plan") == "p"
    assert (request.workflow.inputs["task"], request.context["task"]) == ("t", "t")
    assert (request.workflow.services["db"], request.workflow.config["x"]) == (1, 2)


def sync_builder(ctx: WorkflowContext) -> Mapping[str, Any]:
    """A context from the run."""
    return {"plan": ctx.output("plan"), "task": ctx.inputs["task"], "db": ctx.services["db"]}


async def async_builder(ctx: WorkflowContext) -> Mapping[str, Any]:
    """The same, awaited."""
    return sync_builder(ctx)


@pytest.mark.parametrize("builder", [sync_builder, async_builder])
@pytest.mark.parametrize("verb", ["agent", "generate"])
async def test_a_context_builder_may_be_sync_or_async(builder: Any, verb: str) -> None:
    """A builder is given the full context, and what it returns reaches the agent."""
    agent = Echo(answer="text")

    @workflow
    def flow(task: str) -> Steps[Any]:
        yield from step("plan").call(give, "p")
        yield from getattr(step("a"), verb)(agent, builder)

    result, _ = await run_seen(flow, "t", services={"db": 1})
    assert result.status == "succeeded"
    assert dict(agent.requests[0].context) == {"plan": "p", "task": "t", "db": 1}


async def raising_builder(_: WorkflowContext) -> Any:
    """Fail."""
    raise Boom("builder")


@pytest.mark.parametrize("builder", [lambda _: boom(), raising_builder])
@pytest.mark.parametrize("verb", ["agent", "generate"])
async def test_a_failing_builder_fails_the_step(builder: Any, verb: str) -> None:
    """The builder's exception is the step's, the agent is not asked, and a default stands in."""
    agent = Echo(answer="text")

    @workflow
    def flow() -> Steps[Any]:
        try:
            yield from getattr(step("a"), verb)(agent, builder)
        except StepFailed as failed:
            fallback = yield from getattr(step("b"), verb)(agent, builder).default("d")
            return failed.is_a(Boom), fallback

    result, _ = await run_seen(flow)
    assert (result.value, agent.requests) == ((True, "d"), [])


@pytest.mark.parametrize("made", [None, 3, "text", [("a", 1)], {1: "a"}])
@pytest.mark.parametrize("verb", ["agent", "generate"])
async def test_a_builder_of_something_else_fails_the_step(made: Any, verb: str) -> None:
    """A builder that returns no mapping of names fails the step, saying what came."""
    agent = Echo(answer="text")
    result, _ = await run_seen(just(getattr(step("a"), verb)(agent, lambda _: made)))
    assert (result.status, statuses(result), agent.requests) == ("failed", {"a": "failed"}, [])
    assert repr(made) in (result.error or "")
    assert result.step("a").is_a(TypeError)


@pytest.mark.parametrize("context", [3, "text", [1]])
def test_a_static_context_that_is_no_mapping_is_refused_at_once(context: Any) -> None:
    """`context` is a mapping of names or a callable: else a TypeError at the user's line."""
    with pytest.raises((TypeError, ValueError), match="context"):
        step("a").agent(Echo(), context)


@pytest.mark.parametrize("agent", [3, "name", object(), print])
def test_something_that_is_no_agent_is_refused(agent: Any) -> None:
    """`.agent` takes what has a name and a run."""
    with pytest.raises(TypeError, match="agent"):
        step("a").agent(agent, {})


async def test_agents_are_overridden_by_name() -> None:
    """Executor(agents=...) replaces agents of that name, in children, groups and fixes too."""
    real, other, fake = Echo("coder", "real"), Echo("writer", "kept"), Echo("fake", "fake")

    @workflow
    def child() -> Steps[Any]:
        return (yield from step("c").agent(real, {})).output

    @workflow
    def flow() -> Steps[Any]:
        a = yield from step("a").agent(real, {})
        b = yield from step("b").agent(other, {})
        c = yield from step("s").subworkflow(child)
        d, e = yield from step("g").parallel(
            step("d").agent(real, {}), step("e").generate(real, {})
        )
        return a.output, b.output, c.value, d.output, e

    result, _ = await run_seen(flow, agents={"coder": fake})
    assert result.value == ("fake", "kept", "fake", "fake", "fake")
    assert real.requests == []


@pytest.mark.parametrize("agents", [{"coder": 3}, {"coder": None}, {"coder": "x"}])
def test_an_override_must_be_an_agent(agents: Any) -> None:
    """Something else is refused when the executor is made, naming the agent."""
    with pytest.raises(TypeError, match="coder"):
        Executor(agents=agents)


async def test_an_agent_that_raises_fails_its_step() -> None:
    """Its exception is the step's, and is tried again as any other."""
    agent = Echo(answer=Boom("quota"))
    result, _ = await run_seen(just(step("a").agent(agent, {}).retry(3, backoff=0)))
    assert (result.status, result.step("a").attempts) == ("failed", 3)
    assert [request.attempt for request in agent.requests] == [1, 2, 3]
    assert len({request.idempotency_key for request in agent.requests}) == 1


@pytest.mark.parametrize("wrong", [PromptError("echo", "no 'x'"), DefinitionError("no")])
async def test_what_would_fail_again_in_the_same_way_is_not_tried_again(wrong: Exception) -> None:
    """A prompt that cannot be made, and an agent that is told what cannot work, fail once."""
    agent = Echo(answer=wrong)
    result, _ = await run_seen(just(step("a").agent(agent, {}).retry(3, backoff=0)))
    assert (result.status, result.step("a").attempts) == ("failed", 1)


async def test_of_an_action_every_error_is_tried_again() -> None:
    """What a DefinitionError means there is the action's own affair."""
    flaky = Flaky(2, error=DefinitionError)
    assert (await run_seen(just(step("a").call(flaky).retry(3, backoff=0))))[0].value == "ok"


async def test_an_agent_that_answers_something_else_fails_its_step() -> None:
    """`run` must return an AgentResult."""

    class Wrong:
        name = "wrong"

        async def run(self, request: Any, /) -> Any:
            return "text"

    result, _ = await run_seen(just(step("a").agent(Wrong(), {})))
    assert result.status == "failed"
    assert "AgentResult" in (result.error or "")


# -- generate --------------------------------------------------------------------------------------


async def agenerate(context: Mapping[str, Any]) -> str:
    """Text."""
    return f"async {context['x']}"


async def test_generate_takes_a_callable_or_an_agent_and_gives_text() -> None:
    """Sync and async functions of the context, and agents, give a str."""

    @workflow
    def flow() -> Steps[Any]:
        a = yield from step("a").generate(lambda c: f"sync {c['x']}", {"x": 1})
        b = yield from step("b").generate(agenerate, {"x": 2})
        c = yield from step("c").generate(Echo(answer="agent"), {"x": 3})
        return a, b, c

    result, _ = await run_seen(flow)
    assert result.value == ("sync 1", "async 2", "agent")


@pytest.mark.parametrize("generator", [lambda _: 3, lambda _: None, Echo(answer=["x"])])
async def test_a_generator_of_something_else_fails_the_step(generator: Any) -> None:
    """What is no text fails the step, saying what came."""
    result, _ = await run_seen(just(step("a").generate(generator, {})))
    assert result.status == "failed"
    assert "text" in (result.error or "")


def test_generate_refuses_what_cannot_generate() -> None:
    """Something that is neither callable nor an agent is a TypeError."""
    wrong: Any = 3
    with pytest.raises(TypeError, match="generate"):
        step("a").generate(wrong, {})


# -- usage -----------------------------------------------------------------------------------------


async def test_usage_is_summed_over_the_run_once() -> None:
    """The run's usage is the sum of its steps', children and members included, counted once."""
    one = Echo(answer="t", usage=Usage(10, 2, 0.5, 1))

    @workflow
    def flow() -> Steps[Any]:
        yield from step("a").agent(one, {})
        yield from step("g").generate(one, {})
        sub = yield from step("s").subworkflow(just(step("c").agent(one, {})))
        yield from step("f").for_each([1, 2], lambda _: step("x").agent(one, {}))
        yield from step("plain").call(give)
        return sub.usage

    result, _ = await run_seen(flow)
    assert result.step("a").usage == Usage(10, 2, 0.5, 1)
    assert result.value == Usage(10, 2, 0.5, 1)
    assert result.usage == Usage(50, 10, 2.5, 5)
    assert result.step("s").usage == Usage(10, 2, 0.5, 1)


async def test_a_sub_workflow_that_failed_says_what_it_used() -> None:
    """All its attempts count, in the step and once in the run, live and from the record."""
    one = Echo(answer="t", usage=Usage(10, 2, 0.5, 1))
    child = just(step("c").agent(one, {}), step("no").call(boom))
    saved = step("s").subworkflow(child).retry(2)
    flow = just(saved.on_error(lambda _, __: step("d").call(give)))
    journal = TextJournal()
    executor = Executor(journal=journal, clock=Jumping())
    first = await executor.options(run_id="r").run(flow)
    again = await executor.resume("r", flow)
    for result in (first, again):
        assert result.success
        assert result.step("s").handled
        assert result.step("s").usage == result.usage == Usage(20, 4, 1.0, 2)


async def test_a_run_that_consumed_nothing_has_no_usage() -> None:
    """Unknown is None, not zero."""
    result, _ = await run_seen(just(step("a").agent(Echo(answer="t"), {})))
    assert (result.usage, result.step("a").usage) == (None, None)


async def test_unknown_parts_of_a_usage_stay_unknown() -> None:
    """A cost that nobody told is None in the sum; tokens that one told are kept."""
    flow = just(
        step("a").agent(Echo(answer="t", usage=Usage(input_tokens=5)), {}),
        step("b").agent(Echo(answer="t", usage=Usage(turns=2)), {}),
    )
    result, _ = await run_seen(flow)
    assert result.usage == Usage(5, None, None, 2)


async def test_a_step_used_what_all_its_attempts_did() -> None:
    """Also where a fallback or a default got over them, live and from the record."""
    used = Usage(10, 2, 0.5, 1)

    def agent(failures: int) -> Agent[Any, str]:
        no = AgentError("a", "no", kind="refusal", usage=used)
        return Agent(
            "a", "Go.", backend=FakeBackend([no] * failures + [AgentReply("ok", usage=used)])
        )

    @workflow
    def flow() -> Steps[None]:
        yield from step("retried").agent(agent(2)).retry(3, backoff=0)
        yield from step("saved").agent(agent(1)).on_error(lambda _, __: step("d").call(give))
        yield from step("given").agent(agent(2)).retry(2, backoff=0).default(None)
        with contextlib.suppress(StepFailed):
            yield from step("lost").agent(agent(1))
        yield from step("more").ask("Go on?")

    journal = TextJournal()
    executor = Executor(journal=journal, clock=Jumping())
    for run in (executor.options(run_id="r").stream(flow), executor.stream_resume("r", flow)):
        live = LiveRun("r")
        async with run:
            async for event in run:
                live.apply(event)
        named = {one.path: one.usage.turns for one in run.result.step_results if one.usage}
        assert named == {"retried": 3, "saved": 1, "given": 2, "lost": 1}
        assert run.result.usage == live.usage == Usage(70, 14, 3.5, 7)
    shown = view_of(Recorded(journal.events("r")), alive=False, now=0.0)
    assert (shown.spent.launches, shown.spent.usage) == (7, run.result.usage)
