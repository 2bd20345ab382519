"""``/v1/chat/completions`` as qwen calls it: server-sent events."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

from tests.live.stub_openai import OpenAIStub
from tests.live.stub_server import Answer, Request, Text, ToolCall, pieces

USAGE = {
    "prompt_tokens": 1200,
    "prompt_tokens_details": {"cached_tokens": 400},
    "completion_tokens": 25,
    "total_tokens": 1225,
}


class ChatStub(OpenAIStub):
    """Answers every call of the model as it was told; a call without tools is for a title."""

    path = "/chat/completions"

    def next_answer(self, request: Request) -> Answer:
        """What to say to this call of the model."""
        return super().next_answer(request) if request.body.get("tools") else Text("A title")

    def events(self, answer: Text | ToolCall) -> Iterator[tuple[None, dict[str, Any]]]:
        """The answer, in pieces."""
        unique, end = uuid.uuid4().hex[:12], "stop"
        about = {"id": f"chatcmpl-{unique}", "object": "chat.completion.chunk", "model": "m"}
        deltas: list[dict[str, Any]] = [{"content": part} for part in pieces(answer.text)]
        if isinstance(answer, ToolCall):
            call = {"name": answer.name, "arguments": json.dumps(dict(answer.arguments))}
            which = {"index": 0, "id": f"call_{unique}", "type": "function"}
            deltas.append({"tool_calls": [{**which, "function": call}]})
            end = "tool_calls"
        for delta in deltas:
            choice = {"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None}
            yield None, {**about, "choices": [choice]}
        last = {"index": 0, "delta": {}, "finish_reason": end}
        yield None, {**about, "choices": [last], "usage": USAGE}
