"""A scripted agent answers, remembers its calls, and complains."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import msgspec
import pytest

from handrail import Agent, Executor, Steps, step, workflow
from handrail.agents.fake_agent import FakeAgent
from handrail.errors import AgentError, PromptError, WrongUse
from handrail.model.results import AgentResult, Usage
from handrail.typed.schema import describe_type
from tests.agents.conftest import MakeRequest


@dataclass
class Report:
    title: str


async def test_a_value_is_the_output_itself(make_request: MakeRequest) -> None:
    """The output is the very object of the script, not a copy, whatever it is."""
    report, nothing = Report("fine"), None
    agent = FakeAgent("judge", [report, nothing, "text"])
    results = [await agent.run(make_request()) for _ in range(3)]
    assert results[0].output is report
    assert results == [AgentResult(report), AgentResult(None), AgentResult("text")]


@pytest.mark.parametrize(
    ("output", "reply", "said"),
    [
        (Report, {"title": "fine"}, "{'title': 'fine'}, which is of type dict"),
        (Report, lambda: None, "None, which is of type NoneType"),
        (list[Report], [Report("fine"), "bad"], "which is of type list"),
        (int, AgentResult("3"), "'3', which is of type str"),
    ],
)
async def test_an_output_of_another_type_is_told_with_the_line_of_the_fake(
    make_request: MakeRequest, output: Any, reply: Any, said: str
) -> None:
    """The attempt fails with where the fake was made, what it gave and what was to be given; the
    end of the block says so again.
    """
    request = replace(make_request(), output=output)
    agent = FakeAgent("judge", [reply])
    line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
    with pytest.raises(WrongUse) as caught:
        await agent.run(request)
    text = str(caught.value)
    assert text.startswith(f"{__file__}:{line}: FakeAgent 'judge' answered with ")
    assert said in text
    assert f"at 'work/plan' has output={describe_type(output, fields=False)}." in text
    with pytest.raises(AssertionError, match="answered with"):
        agent.assert_exhausted()


@pytest.mark.parametrize(
    ("output", "reply"),
    [
        (Report, Report("fine")),
        (Report | None, None),
        (float, 3),
        (list[Report], [Report("fine")]),
        (Annotated[int, msgspec.Meta(gt=0)], 3),
        (Any, object()),
        (str, "text"),
        (str, 3),  # nothing was said of its output
    ],
)
async def test_an_output_of_the_type_is_the_output(
    make_request: MakeRequest, output: Any, reply: Any
) -> None:
    """What a workflow can use as a value of the type is given as it is."""
    with FakeAgent("judge", [reply]) as agent:
        result = await agent.run(replace(make_request(), output=output))
    assert result.output is reply


class Judge(FakeAgent):
    """A fake with a name of its own."""

    def __init__(self, *replies: Any) -> None:
        super().__init__("judge", replies)


def test_a_fake_in_a_run_is_held_to_the_output_of_the_agent_in_the_workflow() -> None:
    """The step fails with the line that made the fake; that of a subclass is where it is made."""

    @workflow
    def judged() -> Steps[str]:
        return (
            yield from step("judge").agent(Agent("judge", "Judge.", output=Report))
        ).output.title

    fake = Judge({"title": "fine"})
    line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
    result = Executor(agents={"judge": fake}).run_sync(judged)
    assert f"{__file__}:{line}: FakeAgent 'judge' answered with" in str(result.error)
    assert Executor(agents={"judge": Judge(Report("fine"))}).run_sync(judged).value == "fine"


async def test_a_whole_result_is_used_as_it_is(make_request: MakeRequest) -> None:
    """An AgentResult in the script sets usage and session too."""
    result = AgentResult("x", usage=Usage(output_tokens=3), session="s", attempts=2)
    assert await FakeAgent("judge", [result]).run(make_request()) is result


async def test_callables_are_given_the_context(make_request: MakeRequest) -> None:
    """A sync or async function of the context, or of nothing, makes the output."""

    async def later(context: Mapping[str, Any]) -> str:
        return f"later {context['a']}"

    agent = FakeAgent("judge", [lambda context: context["a"], later, dict, lambda: "nothing"])
    outputs = [(await agent.run(make_request({"a": 1}))).output for _ in range(4)]
    assert outputs == [1, "later 1", {"a": 1}, "nothing"]


async def test_exceptions_are_raised(make_request: MakeRequest) -> None:
    """An exception is raised: an instance, a class, or one that a callable returns or raises."""

    def broken(context: Mapping[str, Any]) -> None:
        raise LookupError("four")

    agent = FakeAgent("judge", [ValueError("one"), KeyboardInterrupt, lambda: OSError("3"), broken])
    for error, said in (
        (ValueError, "one"), (KeyboardInterrupt, None), (OSError, "3"), (LookupError, "four"),
    ):  # fmt: skip
        with pytest.raises(error, match=said):
            await agent.run(make_request())


async def test_calls_are_the_contexts_in_order(make_request: MakeRequest) -> None:
    """Each call is remembered as a copy of its context, also one that fails."""
    context = {"a": 1}
    agent = FakeAgent("judge", ["x"])
    await agent.run(make_request(context))
    context["a"] = 2
    with pytest.raises(AgentError):
        await agent.run(make_request(context))
    assert agent.calls == [{"a": 1}, {"a": 2}]
    assert repr(agent) == "<FakeAgent 'judge', 2 calls so far>"
    assert [request.path for request in agent.requests] == ["work/plan", "work/plan"]


async def test_a_delay_passes_on_the_clock_of_the_request(
    make_request: MakeRequest, slept: list[float]
) -> None:
    """A scripted delay is waited for through the request, before the reply or the failure."""
    agent = FakeAgent("judge", ["x", ValueError("late")], delay=60)
    await agent.run(make_request())
    with pytest.raises(ValueError, match="late"):
        await agent.run(make_request())
    assert slept == [60.0, 60.0]


async def test_without_a_delay_nothing_is_waited_for(
    make_request: MakeRequest, slept: list[float]
) -> None:
    """A fake without a delay does not touch the clock."""
    await FakeAgent("judge", ["x"]).run(make_request())
    assert slept == []


async def test_a_function_chooses_by_context(make_request: MakeRequest) -> None:
    """The reply that by= returns is played like any other, as often as it is asked for."""
    chosen = {"a": "fine", "b": ValueError("bad"), "c": lambda context: context["file"] * 2}
    agent = FakeAgent("judge", by=lambda context: chosen[context["file"]])
    assert (await agent.run(make_request({"file": "c"}))).output == "cc"
    assert (await agent.run(make_request({"file": "a"}))).output == "fine"
    with pytest.raises(ValueError, match="bad"):
        await agent.run(make_request({"file": "b"}))
    agent.assert_exhausted()


async def test_a_table_chooses_by_the_value_of_a_key(make_request: MakeRequest) -> None:
    """by={key: {value: reply}} answers in any order and repeatedly, and replies= answers others."""
    agent = FakeAgent("judge", ["other"], by={"file": {"a.py": "A", "b.py": "B"}})
    contexts = [
        {"file": "b.py"},
        {"file": ["unhashable"]},
        {"x": 1, "file": "a.py"},
        {"file": "b.py"},
    ]
    outputs = [(await agent.run(make_request(context))).output for context in contexts]
    assert outputs == ["B", "other", "A", "B"]
    agent.assert_exhausted()


async def test_an_unexpected_call_fails_with_its_context(make_request: MakeRequest) -> None:
    """The error names the agent, the number of the call, the context and the script."""
    agent = FakeAgent("judge", ["x"])
    await agent.run(make_request())
    with pytest.raises(AgentError) as caught:
        await agent.run(make_request({"plan": "ppp " * 30, "task": 7}))
    shown = "plan='ppp"
    assert str(caught.value).startswith(f"agent 'judge': unexpected call 2 with context ({shown}")
    assert str(caught.value).endswith("task=7): it was given 1 reply, all used")


async def test_a_call_that_the_table_does_not_know_says_so(make_request: MakeRequest) -> None:
    """The error of a call that by= has no reply for names by=."""
    agent = FakeAgent("judge", by={"file": {"a.py": "A"}})
    with pytest.raises(AgentError, match=r"file='c\.py'\): its by= has no reply for it, and "):
        await agent.run(make_request({"file": "c.py"}))


async def test_a_list_in_the_table_is_told_to_be_one_reply(make_request: MakeRequest) -> None:
    """Who means one reply after another is told how to write that, once for all attempts."""
    agent = FakeAgent("judge", by={"file": {"a.py": [OSError("gone"), "A"]}})
    request = replace(make_request({"file": "a.py"}), output=int)
    for _ in range(2):
        with pytest.raises(WrongUse, match=r"list in by= is one reply: .* give it a function"):
            await agent.run(request)
    with pytest.raises(AssertionError) as caught:
        agent.assert_exhausted()
    assert str(caught.value).count("answered with") == 1


async def test_unused_replies_are_complained_of(make_request: MakeRequest) -> None:
    """What is left of the script, in order or by context, fails assert_exhausted and is listed."""
    agent = FakeAgent("judge", ["one", "two"], by={"file": {"a.py": "A", "b.py": "B"}})
    await agent.run(make_request())
    await agent.run(make_request({"file": "a.py"}))
    assert agent.unused == ("two", "B")
    with pytest.raises(AssertionError) as caught:
        agent.assert_exhausted()
    assert str(caught.value) == "agent 'judge': 2 replies not used: 'two', 'B'"


async def test_an_unexpected_call_is_complained_of_again(make_request: MakeRequest) -> None:
    """A call without a reply fails assert_exhausted, also if the workflow handled its failure."""
    agent = FakeAgent("judge")
    with pytest.raises(AgentError):
        await agent.run(make_request({"a": 1}))
    with pytest.raises(
        AssertionError, match=r"agent 'judge': unexpected call 1 with context \(a=1\)"
    ):
        agent.assert_exhausted()


async def test_the_end_of_a_with_block_checks_the_script(make_request: MakeRequest) -> None:
    """A with block complains at its end; a script that was used up passes."""
    with FakeAgent("judge", ["x"]) as agent:
        await agent.run(make_request())
    with pytest.raises(AssertionError, match="1 reply not used: 'x'"), FakeAgent("judge", ["x"]):
        pass


def test_an_error_in_a_with_block_is_not_hidden() -> None:
    """What goes wrong inside the block is what is raised, not the replies it left unused."""
    with pytest.raises(ZeroDivisionError), FakeAgent("judge", ["x"]):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("replies", "by", "said"),
    [
        ("text", None, r"FakeAgent 'judge' takes a list of replies, got 'text'"),
        ((), 3, "by= takes a function of the context or a mapping, got 3"),
        ((), {"file": "A"}, "by= maps a context key .* under 'file' is 'A'"),
        (["x"], lambda: "y", "those of replies= would never be given"),
    ],
)
def test_a_wrong_script_is_refused_at_once(replies: Any, by: Any, said: str) -> None:
    """What cannot be a script is refused when the fake is made, with what to write."""
    with pytest.raises(WrongUse, match=said):
        FakeAgent("judge", replies, by=by)


def test_a_fake_sees_the_prompt_that_a_launch_would() -> None:
    """And fails where that cannot be made, as a launch would; nothing is asked then."""
    writer = Agent("writer", "Write of {{ topic }} for {{ reader }}.")

    @workflow
    def flow(context: dict[str, str]) -> Steps[str]:
        return (yield from step("write").agent(writer, context).answer())

    fake = FakeAgent("writer", ["done"])
    executor = Executor(agents={"writer": fake})
    assert executor.run_sync(flow, {"topic": "tea", "reader": "Ana"}).value == "done"
    assert fake.prompts == ["Write of tea for Ana."]
    failed = executor.run_sync(flow, {"topic": "tea"})
    assert failed.step("write").is_a(PromptError)
    assert "'reader'" in (failed.error or "")
    assert len(fake.calls) == 1


@pytest.mark.parametrize("context", [{"topic": "tea"}, lambda _: {}["gone"]])
def test_unused_replies_say_why_the_fake_was_never_called(context: Any) -> None:
    """The step of its agent is named with its error; without one, the run's error is pointed to."""
    writer = Agent("writer", "Write of {{ topic }} for {{ reader }}.")

    @workflow
    def flow() -> Steps[str]:
        return (yield from step("write").agent(writer, context).answer())

    fake = FakeAgent("writer", ["done"])
    with pytest.raises(AssertionError, match="never called: look at the run's error"):
        fake.assert_exhausted()
    with pytest.raises(AssertionError, match=r"not used: 'done'; step 'write' failed .*(er|gone)'"):  # noqa: SIM117
        with fake:
            Executor(agents={"writer": fake}).run_sync(flow)
