"""``generateContent`` as gemini calls it: streaming for the agent, plain for its own questions."""

from __future__ import annotations

import json
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
    "promptTokenCount": 1200,
    "candidatesTokenCount": 25,
    "totalTokenCount": 1225,
    "cachedContentTokenCount": 400,
}
ROUTED = {"reasoning": "easy", "model_choice": "flash", "next_speaker": "user"}
"""What it asks itself besides: which model to take, and who speaks next."""


class GeminiStub(StubServer):
    """Answers every call of the model as it was told; gemini's own questions get a fixed answer."""

    def respond(self, request: Request, reply: Reply) -> None:
        """Answer one request."""
        path = request.path.partition("?")[0]
        config: Mapping[str, Any] = request.body.get("generationConfig") or {}
        if path.endswith(":countTokens"):
            reply.json({"totalTokens": 1200})
        elif not path.endswith((":streamGenerateContent", ":generateContent")):
            self.others.append(f"{request.method} {request.path}")
            reply.json({}, 404)
        elif config.get("responseMimeType") == "application/json":
            reply.json(_chunk([{"text": json.dumps(ROUTED)}], "STOP"))
        else:
            self._content(request, reply)

    def _content(self, request: Request, reply: Reply) -> None:
        match self.next_answer(request):
            case Refused(status, body, headers):
                reply.json(body, status, headers)
            case Silent():
                self.wait()
            case Text() | ToolCall() as answer:
                reply.events((None, chunk) for chunk in _chunks(answer))


def _chunks(answer: Text | ToolCall) -> Iterator[dict[str, Any]]:
    if isinstance(answer, Text) and answer.thought:
        yield _chunk([{"text": answer.thought, "thought": True}])
    for part in pieces(answer.text):
        yield _chunk([{"text": part}])
    last: list[dict[str, Any]] = [{"text": ""}]
    if isinstance(answer, ToolCall):
        last = [{"functionCall": {"name": answer.name, "args": dict(answer.arguments)}}]
    yield _chunk(last, "STOP")


def _chunk(parts: list[dict[str, Any]], finish: str | None = None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "usageMetadata": USAGE, "modelVersion": "gemini-2.5-flash"}


BAD_KEY = Refused(
    400,
    {
        "error": {
            "code": 400,
            "message": "API key not valid. Please pass a valid API key.",
            "status": "INVALID_ARGUMENT",
            "details": [
                {
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": "API_KEY_INVALID",
                    "domain": "googleapis.com",
                }
            ],
        }
    },
)
TOO_LONG = Refused(
    400,
    {
        "error": {
            "code": 400,
            "message": "The input token count (1248576) exceeds the maximum number of tokens "
            "allowed (1048576).",
            "status": "INVALID_ARGUMENT",
        }
    },
)
