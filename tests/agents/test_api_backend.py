"""A model's API is a backend: what is sent, what comes back, what is told of it, what fails how."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from pydantic_ai import Agent as Assistant
from pydantic_ai import exceptions as failures
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from pydantic_ai.models.function import (
    AgentInfo,
    DeltaToolCall,
    FunctionModel,
    FunctionStreamedResponse,
)
from pydantic_ai.models.test import TestModel
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.usage import RequestUsage

from handrail.agents.agent import Agent
from handrail.agents.api.backend import ApiBackend
from handrail.agents.api.turn import usage_of
from handrail.errors import AgentError, AnswerRejected, DefinitionError, MissingExtra, WrongUse
from handrail.model.agent_options import AgentOptions
from handrail.model.events import (
    AgentFinished,
    AgentMessage,
    AgentReasoning,
    AgentSessionStarted,
    AgentToolCompleted,
    AgentToolStarted,
    AgentUsage,
)
from handrail.model.results import Usage
from handrail.ports.agent import AgentBackend, AgentTurn
from handrail.testing.contracts.backend import BackendContract
from tests.agents.conftest import BOTH_LOOPS, MakeRequest

pytestmark = pytest.mark.extra("pydantic_ai")
Answer = Callable[[list[ModelMessage], AgentInfo], ModelResponse]
TURN = AgentTurn(agent="worker", prompt="Do it.", run_id="run-1", path="step")
SCHEMA = {
    "type": "object",
    "properties": {"files": {"type": "integer"}},
    "required": ["files"],
}


def says(*parts: Any, **more: Any) -> Answer:
    """A model that always gives this response."""
    return lambda messages, info: ModelResponse(parts=list(parts), **more)


def api(answer: Any, model: str = "m-1", **more: Any) -> ApiBackend:
    """A backend whose model is a function."""
    return ApiBackend(FunctionModel(answer, model_name=model), **more)


def failing(error: Exception) -> ApiBackend:
    """A backend whose model raises."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise error

    return api(answer)


async def never(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """A model that does not answer."""
    await anyio.sleep_forever()
    raise AssertionError


def prompts(messages: list[ModelMessage]) -> list[str]:
    """What a user said to the model, in order."""
    return [
        str(part.content)
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if part.part_kind == "user-prompt"
    ]


async def test_a_full_context_window_is_an_overflow() -> None:
    """pydantic-ai calls it a length; the provider's own word is beside it."""
    details = {"finish_reason": "model_context_window_exceeded"}
    cut = says(TextPart("It is do"), finish_reason="length", provider_details=details)
    with pytest.raises(AgentError) as caught:
        await api(cut).complete(TURN)
    assert caught.value.kind == "context_overflow"


async def test_a_stream_of_a_provider_that_ends_early_is_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A provider says why its model stopped; a model of a test need not."""

    async def partial(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield "partial answ"

    backend = ApiBackend(FunctionModel(stream_function=partial))
    assert (await backend.complete(TURN)).text == "partial answ"
    monkeypatch.setattr(FunctionStreamedResponse, "provider_name", "openai")
    with pytest.raises(AgentError, match="ended before the model said") as caught:
        await backend.complete(TURN)
    assert (caught.value.kind, caught.value.text) == ("transient", "partial answ")


class TestApiBackend(BackendContract):
    @pytest.fixture
    def make_backend(self) -> Callable[[str], AgentBackend]:
        """Models that say the text."""
        return lambda answer: ApiBackend(TestModel(custom_output_text=answer))

    @pytest.fixture
    def failing_backend(self) -> AgentBackend:
        """A provider that refuses."""
        return failing(failures.ModelHTTPError(400, "m", {"error": {"message": "no"}}))

    @pytest.fixture
    def endless_backend(self) -> AgentBackend:
        """A model that thinks for ever."""
        return api(never)


# -- the answer ------------------------------------------------------------------------------------


async def test_a_reply_says_what_is_known_of_the_answer() -> None:
    """Text, model, session, usage with cached and reasoning tokens, stop reason."""
    counted = RequestUsage(
        input_tokens=100,
        cache_read_tokens=60,
        cache_write_tokens=10,
        output_tokens=7,
        output_reasoning_tokens=3,
    )
    answer = says(TextPart("Done."), usage=counted, finish_reason="stop")

    reply = await api(answer, "claude-opus-5").complete(TURN)

    assert (reply.text, reply.model, reply.stop_reason) == ("Done.", "claude-opus-5", "stop")
    assert reply.session
    assert reply.usage == reply.session_usage
    assert reply.usage == Usage(
        100,
        7,
        (30 * 5 + 60 * 0.5 + 10 * 6.25 + 7 * 25) / 1e6,
        turns=1,
        cached_tokens=60,
        cache_write_tokens=10,
        reasoning_tokens=3,
        cost_source="table",
    )


def test_counts_that_a_provider_does_not_give_are_unknown() -> None:
    """A response without usage has neither tokens nor cost, rather than none of them used."""
    counted = SimpleNamespace(requests=1, input_tokens=0, output_tokens=0, unmeasured_requests=1)
    assert usage_of(counted, "claude-opus-5") == Usage(turns=1)

    assert usage_of(SimpleNamespace(requests=0), "claude-opus-5") is None


async def test_a_schema_is_the_models_own_to_fit() -> None:
    """The model is given the schema, and what it hands over is the reply's value."""
    seen: list[AgentInfo] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append(info)
        return ModelResponse([ToolCallPart(info.output_tools[0].name, {"files": 3})])

    reply = await api(answer).complete(replace(TURN, schema=SCHEMA))

    assert (reply.has_value, reply.value, reply.text) == (True, {"files": 3}, '{"files": 3}')
    given = seen[0].output_tools[0].parameters_json_schema
    assert given["properties"]["files"] == {"type": "integer"}


@pytest.mark.parametrize(
    ("output", "handed", "expected"),
    [(int, 3, 3), (list[int], [1, 2], [1, 2]), (dict[str, int], {"a": 1}, {"a": 1})],
)
async def test_an_answer_of_any_type_can_be_handed_over(
    make_request: MakeRequest, output: Any, handed: Any, expected: Any
) -> None:
    """What is not an object is the value of one, and taken out of it again."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        tool = info.output_tools[0]
        wrapped = "value" in tool.parameters_json_schema.get("properties", {})
        return ModelResponse([ToolCallPart(tool.name, {"value": handed} if wrapped else handed)])

    agent = Agent("count", "Count.", output=output, backend=api(answer))

    assert (await agent.run(make_request())).output == expected


async def test_a_value_written_as_text_is_read_from_the_text(make_request: MakeRequest) -> None:
    """A model that writes JSON instead of handing it over has answered, in one turn."""
    backend = api(says(TextPart('It is `{"files": 4}`.')))
    agent = Agent("count", "Count.", output=dict[str, int], backend=backend)

    result = await agent.run(make_request())

    assert (result.output, result.attempts) == ({"files": 4}, 1)


async def test_an_example_in_a_text_is_not_taken_for_the_answer(
    make_request: MakeRequest,
) -> None:
    """Of several values in a text the last one that fits counts."""
    text = 'Not `{"files": 1}`, and not `{"sum": "x"}`, but `{"files": 4}`.'
    agent = Agent("count", "Count.", output=dict[str, int], backend=api(says(TextPart(text))))

    assert (await agent.run(make_request())).output == {"files": 4}


async def test_a_recursive_schema_is_left_to_the_prompt() -> None:
    """What cannot be given to the model natively is answered as text."""
    node: dict[str, Any] = {
        "type": "object",
        "properties": {"next": {"$ref": "#/$defs/Node"}},
    }
    schema = {"$ref": "#/$defs/Node", "$defs": {"Node": node}}

    reply = await api(says(TextPart("{}"))).complete(replace(TURN, schema=schema))

    assert (reply.text, reply.has_value) == ("{}", False)


@pytest.mark.parametrize(
    ("finish", "kind"),
    [("length", "output_limit"), ("content_filter", "refusal"), ("error", "transient")],
)
async def test_an_answer_that_was_cut_off_is_none(finish: Any, kind: str) -> None:
    """Text whose end the provider flags is an error that keeps the text."""
    with pytest.raises(AgentError) as caught:
        await api(says(TextPart("It is do"), finish_reason=finish)).complete(TURN)

    assert (caught.value.kind, caught.value.text) == (kind, "It is do")


# -- options ---------------------------------------------------------------------------------------


async def test_options_reach_the_model() -> None:
    """Effort and instructions; the turn's win over the backend's; no retries by the client."""
    seen: list[AgentInfo] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append(info)
        return ModelResponse([TextPart("Done.")])

    backend = ApiBackend(
        FunctionModel(answer, profile=ModelProfile(supports_thinking=True)),
        options=AgentOptions(effort="low", append_system_prompt="Be brief."),
    )
    await backend.complete(
        replace(TURN, options=AgentOptions(effort="high", system_prompt="You review."))
    )

    assert seen[0].instructions == "You review.\n\nBe brief."
    assert seen[0].model_settings == {"max_retries": 0}
    assert seen[0].model_request_parameters.thinking == "high"


async def test_an_unknown_effort_is_refused() -> None:
    """The error names those that there are."""
    with pytest.raises(AgentError, match=r"'huge' is unknown\. Known: minimal") as caught:
        await api(says(), options=AgentOptions(effort="huge")).complete(TURN)
    assert caught.value.kind == "config"


async def test_the_model_can_be_chosen_by_the_options() -> None:
    """A backend without a model asks the one that the turn names; one must be named."""
    reply = await ApiBackend().complete(replace(TURN, options=AgentOptions(model="test")))
    assert reply.model == "test"

    with pytest.raises(AgentError, match="no model is named") as caught:
        await ApiBackend().complete(TURN)
    assert caught.value.kind == "config"


def test_what_is_no_model_is_refused() -> None:
    """The error says how a model is named."""
    with pytest.raises(WrongUse, match="provider:model"):
        ApiBackend("claude-opus-5")
    with pytest.raises((WrongUse, DefinitionError), match="a Model or an Agent of pydantic-ai"):
        ApiBackend(3)


async def test_turns_of_the_model_are_bounded() -> None:
    """max_turns ends an agent that goes on calling tools, and what it did so far is kept."""
    assistant = Assistant(FunctionModel(says(ToolCallPart("look", {}))))

    @assistant.tool_plain
    def look() -> str:
        return "nothing"

    with pytest.raises(AgentError) as caught:
        await ApiBackend(assistant, options=AgentOptions(max_turns=2)).complete(TURN)

    assert caught.value.kind == "max_turns"
    assert caught.value.usage is not None
    assert caught.value.usage.turns == 2


@BOTH_LOOPS
@pytest.mark.parametrize("option", ["idle_timeout_s", "start_timeout_s", "timeout_s"])
async def test_a_model_that_does_not_answer_is_given_up(option: str) -> None:
    """Each watchdog ends the turn with an error that says how long it waited."""
    options = AgentOptions(**{option: 0.02})
    with pytest.raises(AgentError, match=r"0\.02 s") as caught:
        await api(never, options=options).complete(TURN)
    assert caught.value.kind == "timeout"


@BOTH_LOOPS
async def test_pieces_of_an_answer_are_signs_of_life() -> None:
    """A streamed answer may take longer in all than the silence that is allowed."""

    async def slowly(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        for piece in ("It ", "is ", "done", "."):
            await anyio.sleep(0.3)
            yield piece

    backend = ApiBackend(
        FunctionModel(stream_function=slowly), options=AgentOptions(idle_timeout_s=1.0)
    )

    emitted: list[Any] = []
    reply = await backend.complete(replace(TURN, emit=emitted.append))

    assert reply.text == "It is done."
    assert [one for one in emitted if isinstance(one, AgentMessage)] == [
        AgentMessage("step", "It is done.")
    ]


@BOTH_LOOPS
async def test_a_stream_that_stops_is_given_up() -> None:
    """Silence in the middle of an answer is a timeout, though the model had begun."""

    async def stuck(
        messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        yield "It is"
        await anyio.sleep_forever()

    backend = ApiBackend(
        FunctionModel(stream_function=stuck), options=AgentOptions(idle_timeout_s=0.05)
    )
    with pytest.raises(AgentError) as caught:
        await backend.complete(TURN)
    assert caught.value.kind == "timeout"


# -- sessions --------------------------------------------------------------------------------------


def recall(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """A model that says what it was asked so far."""
    return ModelResponse(
        [TextPart(" | ".join(prompts(messages)))],
        usage=RequestUsage(input_tokens=10, output_tokens=1),
    )


async def test_a_session_remembers_what_was_said() -> None:
    """The next prompt of a session has the earlier ones before it, and usage is its own."""
    backend = api(recall)
    first = await backend.complete(replace(TURN, prompt="One."))
    second = await backend.complete(replace(TURN, prompt="Two.", session=first.session))

    assert (second.text, second.session) == ("One. | Two.", first.session)
    assert second.usage is not None
    assert second.session_usage is not None
    assert (second.usage.input_tokens, second.session_usage.input_tokens) == (10, 20)


async def test_a_fork_leaves_its_session_as_it_was() -> None:
    """Forked sessions begin with what was said, and go separate ways."""
    backend = api(recall)
    first = await backend.complete(replace(TURN, prompt="One."))
    fork = replace(TURN, session=first.session, fork=True)

    left = await backend.complete(replace(fork, prompt="Left."))
    right = await backend.complete(replace(fork, prompt="Right."))

    assert (left.text, right.text) == ("One. | Left.", "One. | Right.")
    assert len({first.session, left.session, right.session}) == 3


async def test_a_session_of_another_process_is_not_gone_on_in() -> None:
    """The error is one after which the prompt is tried in a new session."""
    with pytest.raises(AgentError, match="held in the memory of a process") as caught:
        await api(recall).complete(replace(TURN, session="gone"))
    assert (caught.value.kind, caught.value.session) == ("bad_request", None)


async def test_a_failed_request_is_not_remembered() -> None:
    """Trying again in the session does not repeat the prompt to the model."""
    errors = [failures.ModelHTTPError(503, "m")]

    def second_time(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if errors:
            raise errors.pop()
        return recall(messages, info)

    backend = api(second_time)
    with pytest.raises(AgentError) as caught:
        await backend.complete(TURN)
    reply = await backend.complete(replace(TURN, session=caught.value.session))

    assert reply.text == "Do it."


async def test_an_answer_that_does_not_fit_can_be_asked_for_again(
    make_request: MakeRequest,
) -> None:
    """The rejected answer is part of its session."""
    backend = api(recall)
    agent = Agent("count", "Count it.", output=int, backend=backend)
    with pytest.raises(AnswerRejected) as caught:
        await agent.run(make_request())

    reply = await backend.complete(replace(TURN, prompt="No.", session=caught.value.session))

    assert reply.text.startswith("Count it.")
    assert reply.text.endswith(" | No.")


# -- what is told ----------------------------------------------------------------------------------


@BOTH_LOOPS
async def test_what_happens_is_told_in_order() -> None:
    """Session first, thoughts, text and tools as they come, usage after each response, the end."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        counted = RequestUsage(input_tokens=5, output_tokens=1)
        if len(messages) == 1:
            parts = [
                ThinkingPart("Hm."),
                TextPart("I look."),
                ToolCallPart("look", {"at": "a.py"}, "c1"),
            ]
            return ModelResponse(parts, usage=counted)
        return ModelResponse([TextPart("Done.")], usage=counted)

    assistant = Assistant(FunctionModel(answer, model_name="m-1"))

    @assistant.tool_plain
    def look(at: str) -> str:
        return f"{at} is empty"

    emitted: list[Any] = []
    reply = await ApiBackend(assistant).complete(replace(TURN, emit=emitted.append))

    session = str(reply.session)
    one, two = Usage(5, 1, turns=1, cached_tokens=0, cache_write_tokens=0), reply.usage
    assert two == Usage(10, 2, turns=2, cached_tokens=0, cache_write_tokens=0)
    assert emitted == [
        AgentSessionStarted("step", session, "api", "m-1"),
        AgentReasoning("step", "Hm."),
        AgentMessage("step", "I look."),
        AgentToolStarted("step", "c1", "look", {"at": "a.py"}),
        AgentUsage("step", one, "m-1", 1),
        AgentToolCompleted("step", "c1", "look", True, "a.py is empty"),
        AgentMessage("step", "Done."),
        AgentUsage("step", two, "m-1", 2),
        AgentFinished("step", "completed", "", "", two, reply.model, session),
    ]


async def test_the_tool_that_hands_over_an_answer_is_not_told_of() -> None:
    """It is the protocol's, not the agent's."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([ToolCallPart(info.output_tools[0].name, {"files": 3})])

    emitted: list[Any] = []
    await api(answer).complete(replace(TURN, schema=SCHEMA, emit=emitted.append))

    kinds = {type(one) for one in emitted}
    assert AgentFinished in kinds
    assert kinds.isdisjoint({AgentToolStarted, AgentToolCompleted})


@BOTH_LOOPS
async def test_a_cancelled_turn_ends_with_its_last_word() -> None:
    """AgentFinished says that it was interrupted."""
    emitted: list[Any] = []
    with anyio.move_on_after(0.05):
        await api(never).complete(replace(TURN, emit=emitted.append))

    assert isinstance(emitted[-1], AgentFinished)
    assert emitted[-1].status == "interrupted"


# -- failures --------------------------------------------------------------------------------------


def refused(status: int, message: str = "no", **headers: str) -> Exception:
    """What pydantic-ai raises for an HTTP error that it knows no more of."""
    body = {"error": {"message": message}}
    return failures.ModelHTTPError(status, "m", body, headers=headers or None)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (refused(429), "rate_limit"),
        (refused(402), "spending_cap"),
        (refused(401), "auth"),
        (refused(403), "auth"),
        (refused(404), "bad_request"),
        (refused(422), "bad_request"),
        (refused(408), "transient"),
        (refused(500), "transient"),
        (refused(529), "transient"),
        (failures.ModelRateLimitError("m", "slow down"), "rate_limit"),
        (failures.ModelQuotaExceededError("m", "no credit"), "spending_cap"),
        (failures.ModelQuotaExceededError("m", "quota PerDay is used up"), "usage_cap"),
        (failures.ModelOverloadedError("m", "busy"), "transient"),
        (failures.ModelServerError("m", "oops"), "transient"),
        (failures.ModelConnectionError("m", "refused"), "transient"),
        (failures.ModelTimeoutError("m", "too slow"), "transient"),
        (failures.ModelRequestTimeout("m", 5.0), "timeout"),
        (failures.ModelContextWindowExceededError("m", "too long"), "context_overflow"),
        (failures.ModelAuthenticationError("m", "who?"), "auth"),
        (failures.ModelNotFoundError("m", "which?"), "bad_request"),
        (failures.ModelAPIError("m", "odd"), "transient"),
        (failures.ContentFilterError("no"), "refusal"),
        (failures.OutputTokenLimitExceeded("long"), "output_limit"),
        (failures.UnexpectedModelBehavior("odd"), "invalid_output"),
        (failures.UserError("Set the `X_API_KEY` environment variable"), "auth"),
        (failures.UserError("wrong"), "config"),
        (failures.FallbackExceptionGroup("all", [refused(500), refused(429)]), "rate_limit"),
        (ConnectionResetError("gone"), "transient"),
        (KeyError("a bug"), None),
    ],
)
async def test_every_failure_has_its_kind(error: Exception, kind: str | None) -> None:
    """What pydantic-ai raises is told in the words that all backends share, and as the end."""
    emitted: list[Any] = []
    with pytest.raises(AgentError) as caught:
        await failing(error).complete(replace(TURN, emit=emitted.append))

    assert caught.value.kind == kind
    assert emitted[-1] == AgentFinished(
        "step", "failed", kind or "", caught.value.reason, session=caught.value.session
    )


async def test_a_provider_that_names_a_wait_is_believed() -> None:
    """retry_at is that much after now; the reason is the provider's own sentence."""
    error = failures.ModelHTTPError(
        429, "m", {"error": {"message": "Slow down."}}, headers={"Retry-After": "30"}
    )
    with pytest.raises(AgentError) as caught:
        await failing(error).complete(replace(TURN, now=lambda: 1_000.0))

    found = caught.value
    assert (found.retry_at, found.http_status, found.reason) == (1_030.0, 429, "Slow down.")


async def test_a_missing_key_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the provider's key or library nothing is sent, and a person must act."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(AgentError) as caught:
        await ApiBackend("openai:gpt-5").complete(TURN)
    assert (caught.value.kind, "pip install" in str(caught.value)) in {
        ("auth", False),
        ("not_installed", True),
    }


async def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    with pytest.raises(MissingExtra, match=r"handrail\[api\]"):
        await ApiBackend("test").complete(TURN)


# -- probe -----------------------------------------------------------------------------------------


async def test_a_probe_asks_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says which library is there, and whether the named model could be asked."""
    backend = failing(AssertionError("a model was asked"))
    probe = await backend.probe()
    assert (probe.found, probe.logged_in) == (True, None)
    assert probe.version

    assert (await ApiBackend("test").probe()).logged_in is True

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    without_key = await ApiBackend("openai:gpt-5").probe()
    assert without_key.logged_in is not True
    assert without_key.advice


def assistant_with_tools() -> Assistant[None, str]:
    """An assistant of two tools, whose model says what it is given."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        settings = info.model_settings or {}
        told = {name: settings[name] for name in ("max_tokens", "temperature") if name in settings}
        return ModelResponse([TextPart(f"{[tool.name for tool in info.function_tools]} {told}")])

    assistant = Assistant(FunctionModel(answer))
    assistant.tool_plain(name="read")(lambda: "x")
    assistant.tool_plain(name="write")(lambda: "x")
    return assistant


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (AgentOptions(), "['read', 'write'] {}"),
        (AgentOptions(tools=["read"]), "['read'] {}"),
        (AgentOptions(tools=()), "[] {}"),
        (AgentOptions(max_tokens=9, temperature=0), "{'max_tokens': 9, 'temperature': 0}"),
    ],
)
async def test_tools_and_settings_are_those_of_the_options(
    options: AgentOptions, said: str
) -> None:
    """Of the assistant's own tools only those that are listed are there."""
    backend = ApiBackend(assistant_with_tools())
    reply = await backend.complete(replace(TURN, options=options))
    assert said in reply.text


async def test_servers_of_mcp_need_a_client_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the turn says how to install it; with it their tools are there."""
    monkeypatch.setitem(sys.modules, "fastmcp.client", None)
    options = AgentOptions(mcp_servers={"files": {"command": "mcp-files"}})
    with pytest.raises(AgentError) as caught:
        await ApiBackend(assistant_with_tools()).complete(replace(TURN, options=options))
    assert (caught.value.kind, "pydantic-ai-slim[mcp]" in caught.value.hint) == (
        "not_installed",
        True,
    )
