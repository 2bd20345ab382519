"""The acts as a model's API: what pydantic-ai answers, raises, or waits for."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import anyio
from pydantic_ai import Agent as Assistant
from pydantic_ai import exceptions as failures
from pydantic_ai.messages import (
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from handrail.agents.api.backend import ApiBackend
from handrail.model.results import Usage
from handrail.testing.fake_programs import Dies, Fails, Garbage, Hangs, Says
from tests.agents.parity.reel import Act

NAME = "m-1"
Move: TypeAlias = ModelResponse | Exception | Says | None
"""What one request comes to: an answer, an error, the last answer of an act, or silence."""

_FAILURES: Mapping[str, tuple[Any, int, str]] = {
    "rate_limit": (failures.ModelRateLimitError, 429, "Too many requests."),
    "usage_cap": (failures.ModelQuotaExceededError, 429, "Quota exceeded: RequestsPerDay."),
    "spending_cap": (failures.ModelQuotaExceededError, 402, "Your credit balance is too low."),
    "context_overflow": (failures.ModelContextWindowExceededError, 400, "The prompt is too long."),
    "auth": (failures.ModelAuthenticationError, 401, "The API key is not valid."),
    "transient": (failures.ModelOverloadedError, 529, "Overloaded."),
    "bad_request": (failures.ModelNotFoundError, 404, "There is no such model."),
}


def api(acts: Sequence[Act]) -> ApiBackend:
    """A backend whose model does one act a prompt."""
    moves: deque[Move] = deque(move for act in acts for move in _moves(act))
    tools = {tool.command: tool for act in acts for tool in _says(act).tools}

    async def answer(_messages: Any, info: AgentInfo) -> ModelResponse:
        match moves.popleft():
            case Exception() as error:
                raise error
            case ModelResponse() as response:
                return response
            case Says() as says:
                return _last(says, info)
            case None:
                await anyio.sleep_forever()
                raise AssertionError

    stalled = [act.says.text for act in acts if isinstance(act, Hangs) and act.after == "result"]
    model = _stalling(stalled[0]) if stalled else FunctionModel(answer, model_name=NAME)
    assistant = Assistant(model, retries=0)

    @assistant.tool_plain
    def shell(command: str) -> str:
        tool = tools[command]
        if tool.exit_code:
            raise failures.ToolFailed(tool.output)
        return tool.output

    return ApiBackend(assistant)


def _stalling(text: str) -> FunctionModel:
    """A model that streams its whole text, and then neither goes on nor says that this was all."""

    async def stream(_messages: Any, _info: Any) -> AsyncIterator[str]:
        yield text
        await anyio.sleep_forever()

    return FunctionModel(stream_function=stream, model_name=NAME)


def _moves(act: Act) -> Iterator[Move]:
    match act:
        case Says():
            yield from _calls(act)
            yield act
        case Fails():
            yield from _calls(act.says, act.says.text)
            yield _refused(act.kind)
        case Hangs():
            yield None
        case Dies(exit_code=0):  # a stream that closes as if all had been said
            yield ModelResponse([], usage=_counted(act.says.usage))
        case Dies():
            yield from _calls(act.says)
            yield failures.ModelConnectionError(NAME, "the connection was closed", phase="read")
        case Garbage():
            body = act.data.decode("latin-1")
            yield failures.UnexpectedModelBehavior("Invalid response of the provider", body)


def _says(act: Act) -> Says:
    match act:
        case Says():
            return act
        case Dies() | Hangs() | Fails():
            return act.says
        case Garbage():
            return Says()


def _calls(says: Says, text: str = "") -> Iterator[ModelResponse]:
    """A response for each tool, the first with the model's thoughts and what it says with them."""
    spoken: list[ModelResponsePart] = []
    if says.reasoning:
        spoken.append(ThinkingPart(says.reasoning))
    if text:
        spoken.append(TextPart(text))
    for number, tool in enumerate(says.tools):
        call = ToolCallPart("shell", {"command": tool.command}, f"call-{number}")
        parts = [call] if number else [*spoken, call]
        yield ModelResponse(parts, usage=_counted(says.usage))


def _last(says: Says, info: AgentInfo) -> ModelResponse:
    """The answer; a value is handed over by the tool that there is for it."""
    usage = _counted(says.usage)
    if says.structured is None:
        return ModelResponse([TextPart(says.text)], usage=usage)
    call = ToolCallPart(info.output_tools[0].name, says.structured)
    return ModelResponse([call], usage=usage)


def _counted(usage: Usage) -> RequestUsage:
    return RequestUsage(
        input_tokens=usage.input_tokens or 0,
        output_tokens=usage.output_tokens or 0,
        cache_read_tokens=usage.cached_tokens or 0,
        cache_write_tokens=usage.cache_write_tokens or 0,
    )


def _refused(kind: str) -> Exception:
    category, status, message = _FAILURES[kind]
    body = {"error": {"type": "error", "message": message}}
    return failures.ModelHTTPError.for_category(
        category, status_code=status, model_name=NAME, body=body
    )
