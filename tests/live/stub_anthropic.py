"""``/v1/messages`` as claude calls it: streaming and not, and ``count_tokens``."""

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

USAGE = {"input_tokens": 1200, "cache_creation_input_tokens": 300, "cache_read_input_tokens": 400}
OUTPUT_TOKENS = 25
Event = tuple[str, Mapping[str, Any]]


class AnthropicStub(StubServer):
    """Answers every call of the model as it was told."""

    def respond(self, request: Request, reply: Reply) -> None:
        """Answer one request."""
        path = request.path.partition("?")[0]
        if path.endswith("/count_tokens"):
            reply.json({"input_tokens": USAGE["input_tokens"]})
        elif not path.endswith("/v1/messages"):
            self.others.append(f"{request.method} {request.path}")
            reply.json({}, 404)
        else:
            self._message(request, reply)

    def _message(self, request: Request, reply: Reply) -> None:
        match self.next_answer(request):
            case Refused(status, body, headers):
                reply.json(body, status, {"request-id": "req_stub", **headers})
            case Silent():
                self.wait()
            case Text() | ToolCall() as answer:
                message = _message(answer, request.body.get("model", "m"))
                if request.body.get("stream"):
                    reply.events(_events(message))
                else:
                    reply.json(message)


class OpencodeStub(AnthropicStub):
    """The same for opencode, which also asks, without tools, for a title of the conversation."""

    def _message(self, request: Request, reply: Reply) -> None:
        if request.body.get("tools"):
            super()._message(request, reply)
        else:
            reply.events(_events(_message(Text("A title"), "m")))


def _message(answer: Text | ToolCall, model: str) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = []
    if isinstance(answer, Text) and answer.thought:
        blocks.append({"type": "thinking", "thinking": answer.thought, "signature": "c2ln"})
    if answer.text:
        blocks.append({"type": "text", "text": answer.text})
    if isinstance(answer, ToolCall):
        call = {"id": f"toolu_{uuid.uuid4().hex[:20]}", "name": answer.name}
        blocks.append({"type": "tool_use", **call, "input": dict(answer.arguments)})
    return {
        "id": f"msg_{uuid.uuid4().hex[:20]}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": blocks,
        "stop_reason": "tool_use" if isinstance(answer, ToolCall) else "end_turn",
        "stop_sequence": None,
        "usage": {**USAGE, "output_tokens": OUTPUT_TOKENS},
    }


def _events(message: dict[str, Any]) -> Iterator[Event]:
    begun = {**message, "content": [], "stop_reason": None}
    begun["usage"] = {**USAGE, "output_tokens": 1}
    yield "message_start", {"type": "message_start", "message": begun}
    for index, block in enumerate(message["content"]):
        yield from _block(index, block)
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    usage = {"output_tokens": OUTPUT_TOKENS}
    yield "message_delta", {"type": "message_delta", "delta": delta, "usage": usage}
    yield "message_stop", {"type": "message_stop"}


def _block(index: int, block: dict[str, Any]) -> Iterator[Event]:
    where = {"index": index}
    match block["type"]:
        case "text":
            empty = {**block, "text": ""}
            deltas = [{"type": "text_delta", "text": part} for part in pieces(block["text"])]
        case "thinking":
            empty = {**block, "thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        case _:
            empty = {**block, "input": {}}
            text = json.dumps(block["input"])
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in pieces(text)]
    start = "content_block_start"
    yield start, {"type": start, **where, "content_block": empty}
    for delta in deltas:
        yield "content_block_delta", {"type": "content_block_delta", **where, "delta": delta}
    yield "content_block_stop", {"type": "content_block_stop", **where}


def error(status: int, kind: str, message: str, **headers: str) -> Refused:
    """A refusal as this API words it; ``_`` in a header's name stands for ``-``."""
    body = {"type": "error", "error": {"type": kind, "message": message}}
    return Refused(status, body, {name.replace("_", "-"): text for name, text in headers.items()})


RATE_LIMITED = error(
    429,
    "rate_limit_error",
    "This request would exceed your organization's rate limit of 40,000 input tokens per minute.",
    retry_after="1",
)
TOO_LONG = error(400, "invalid_request_error", "prompt is too long: 214315 tokens > 200000 maximum")
BAD_KEY = error(401, "authentication_error", "invalid x-api-key")
NO_CREDIT = error(
    400,
    "invalid_request_error",
    "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to "
    "upgrade or purchase credits.",
)
BROKEN = error(500, "api_error", "Internal server error")


def capped(window_s: float = 3600.0) -> Refused:
    """The plan's five hours are used up; they end after so long."""
    resets = str(int(time.time() + window_s))
    unified = "anthropic-ratelimit-unified-"
    refused = error(429, "rate_limit_error", "This request would exceed your account's rate limit.")
    headers = {
        f"{unified}status": "rejected",
        f"{unified}reset": resets,
        f"{unified}representative-claim": "five_hour",
        f"{unified}5h-status": "rejected",
        f"{unified}5h-reset": resets,
        f"{unified}5h-utilization": "1.0",
        f"{unified}overage-status": "rejected",
        f"{unified}overage-disabled-reason": "org_level_disabled",
    }
    return Refused(refused.status, refused.body, headers)
