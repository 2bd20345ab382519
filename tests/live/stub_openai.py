"""``/v1/responses`` as codex calls it: server-sent events."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from tests.live.stub_server import (
    Refused,
    Reply,
    Request,
    Silent,
    StubServer,
    Text,
    ToolCall,
    pieces,
)

USAGE = {
    "input_tokens": 1200,
    "input_tokens_details": {"cached_tokens": 400},
    "output_tokens": 25,
    "output_tokens_details": {"reasoning_tokens": 10},
    "total_tokens": 1225,
}
Event = tuple[str, Mapping[str, Any]]


class OpenAIStub(StubServer):
    """Answers every call of the model as it was told."""

    path = "/responses"

    def events(self, answer: Text | ToolCall) -> Iterator[tuple[str | None, Mapping[str, Any]]]:
        """The answer, in pieces."""
        return _events(answer)

    def respond(self, request: Request, reply: Reply) -> None:
        """Answer one request."""
        path = request.path.partition("?")[0]
        if request.method != "POST" or not path.endswith(self.path):
            self.others.append(f"{request.method} {request.path}")
            reply.json({"object": "list", "data": [], "models": []})
            return
        match self.next_answer(request):
            case Refused(status, body, headers):
                reply.json(body, status, headers)
            case Silent():
                self.wait()
            case Text() | ToolCall() as answer:
                reply.events(self.events(answer))


def _items(answer: Text | ToolCall) -> Iterator[dict[str, Any]]:
    if isinstance(answer, Text) and answer.thought:
        summary = [{"type": "summary_text", "text": answer.thought}]
        yield {"type": "reasoning", "id": f"rs_{uuid.uuid4().hex[:8]}", "summary": summary}
    if answer.text:
        content = [{"type": "output_text", "text": answer.text, "annotations": []}]
        about = {"type": "message", "id": f"msg_{uuid.uuid4().hex[:8]}", "role": "assistant"}
        yield {**about, "status": "completed", "content": content}
    if isinstance(answer, ToolCall):
        unique = uuid.uuid4().hex[:10]
        about = {"type": "function_call", "id": f"fc_{unique}", "call_id": f"call_{unique}"}
        yield {**about, "name": answer.name, "arguments": json.dumps(dict(answer.arguments))}


def _events(answer: Text | ToolCall) -> Iterator[Event]:
    response = {"id": f"resp_{uuid.uuid4().hex[:12]}", "object": "response"}
    yield _event("response.created", response={**response, "status": "in_progress", "output": []})
    items = list(_items(answer))
    for index, item in enumerate(items):
        where = {"output_index": index}
        empty = {**item, "content": []} if item["type"] == "message" else item
        yield _event("response.output_item.added", **where, item=empty)
        if item["type"] == "message":
            for part in pieces(answer.text):
                about = {**where, "item_id": item["id"], "content_index": 0}
                yield _event("response.output_text.delta", **about, delta=part)
        yield _event("response.output_item.done", **where, item=item)
    done = {**response, "status": "completed", "output": items, "usage": USAGE}
    yield _event("response.completed", response=done)


def _event(name: str, **data: Any) -> Event:
    return name, {"type": name, **data}


def error(status: int, code: str, message: str, **more: Any) -> Refused:
    """A refusal as this API words it."""
    return Refused(status, {"error": {"type": code, "code": code, "message": message, **more}})


RATE_LIMITED = error(429, "rate_limit_exceeded", "Rate limit reached for requests.")
TOO_LONG = error(
    400,
    "context_length_exceeded",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
)
BAD_KEY = error(401, "invalid_api_key", "Incorrect API key provided: sk-dummy.")
NO_CREDIT = error(
    429, "insufficient_quota", "You exceeded your current quota, please check your plan."
)
BROKEN = error(500, "server_error", "The server had an error.")


def capped(window_s: float = 3600.0) -> Refused:
    """The plan's five hours are used up; they end after so long."""
    resets = int(time.time() + window_s)
    headers = {
        "x-codex-primary-used-percent": "100",
        "x-codex-primary-window-minutes": "300",
        "x-codex-primary-reset-at": str(resets),
        "x-codex-secondary-used-percent": "40",
        "x-codex-secondary-window-minutes": "10080",
        "x-codex-secondary-reset-at": str(resets + 82800),
    }
    told = {"plan_type": "plus", "resets_at": resets, "resets_in_seconds": int(window_s)}
    body = {"error": {"type": "usage_limit_reached", "message": "The usage limit has been reached"}}
    body["error"] |= told
    return Refused(429, body, headers)
