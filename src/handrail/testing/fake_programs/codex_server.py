"""The protocol of ``codex app-server``: JSON-RPC lines, whose replies lack ``jsonrpc``."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import Any

from handrail.testing.fake_programs.launch import VERSIONS, Entry, Launch
from handrail.testing.fake_programs.output import new_id, totals
from handrail.testing.fake_programs.rpc import Message, Peer, Stopped
from handrail.testing.fake_programs.turn import TurnWriter, deltas, perform

MODEL = "gpt-5"
VERSION = VERSIONS["codex"].split()[-1]
WINDOW = 258400
NO_LIMITS = {"limitId": "codex", "limitName": None, "primary": None, "secondary": None,
             "credits": None, "planType": None, "rateLimitReachedType": None}  # fmt: skip


def run(launch: Launch) -> int:
    """Serve until the client closes."""
    return _Server(launch).peer.serve()


class _Server:
    """The server's end of a connection: answers one client's requests. Mutable."""

    def __init__(self, launch: Launch) -> None:
        self.peer = Peer(launch, self._on_message, version=False)
        self._launch = launch
        self._threads: dict[str, Message] = {}

    def _on_message(self, message: Message) -> None:
        params: Message = message.get("params") or {}
        match message.get("method"):
            case "initialize":
                self._initialized(message)
            case "thread/start":
                self._open(message, None)
            case "thread/resume":
                self._open_known(message, params, fork=False)
            case "thread/fork":
                self._open_known(message, params, fork=True)
            case "turn/start":
                self._turn(message, params)
            case "thread/compact/start":
                self.peer.answer(message, {})
                _Turn(self._launch, self.peer, self._threads[params["threadId"]], {}).compacted()
            case "turn/interrupt":
                self.peer.answer(message, {})
            case str() as method if "id" in message:
                self.peer.refuse(message, -32600, f"Invalid request: unknown variant `{method}`")
            case _:
                pass

    def _initialized(self, message: Message) -> None:
        client = message["params"]["clientInfo"]
        self.peer.answer(
            message,
            {
                "userAgent": f"{client['name']}/{VERSION} (fake)",
                "codexHome": os.environ.get("CODEX_HOME", os.path.expanduser("~/.codex")),
                "platformFamily": "unix",
                "platformOs": "linux",
            },
        )

    def _open_known(self, message: Message, params: Message, *, fork: bool) -> None:
        thread = params["threadId"]
        if self._launch.session(thread) is None:
            verb = "fork" if fork else "resume"
            reason = f"thread/{verb} failed: no rollout found for thread id {thread}"
            self.peer.refuse(message, -32600, reason)
            return
        self._open(message, thread, fork=fork)

    def _open(self, message: Message, known: str | None, *, fork: bool = False) -> None:
        """Answer with the thread, and notify the client of a new one."""
        params: Message = message["params"]
        thread = new_thread_id() if known is None or fork else known
        now = int(time.time())
        about: Message = {
            "id": thread,
            "sessionId": thread,
            "forkedFromId": known if fork else None,
            "preview": "",
            "ephemeral": bool(params.get("ephemeral")),
            "modelProvider": "openai",
            "model": params.get("model") or MODEL,
            "createdAt": now,
            "updatedAt": now,
            "status": {"type": "idle"},
            "cwd": params.get("cwd") or os.getcwd(),
            "cliVersion": VERSION,
            "source": "vscode",
            "turns": [],
        }
        self._launch.open_session(thread, copy_of=known if fork else None)
        self._threads[thread] = {
            **about,
            "approval": params.get("approvalPolicy") or "on-request",
            "sandbox": params.get("sandbox") or "workspace-write",
        }
        about_model = {"model": about["model"], "modelProvider": "openai", "cwd": about["cwd"]}
        policy = {"approvalPolicy": self._threads[thread]["approval"], "sandbox": {"type": "x"}}
        self.peer.answer(message, {"thread": about, **about_model, **policy})
        if known is None or fork:
            self.peer.tell("thread/started", {"thread": about}, emittedAtMs=_now_ms())

    def _turn(self, message: Message, params: Message) -> None:
        thread = self._threads.get(params.get("threadId", ""))
        if thread is None:
            self.peer.refuse(message, -32600, f"thread not found: {params.get('threadId')}")
            return
        entry = self.peer.next_act(message, -32600)
        if entry is None:
            return
        turn = _Turn(self._launch, self.peer, thread, entry, asked=message)
        try:
            perform(turn)
        except Stopped:
            turn.stopped()


class _Turn(TurnWriter):
    """Prints one turn of the server. Mutable."""

    def __init__(
        self,
        launch: Launch,
        peer: Peer,
        thread: Message,
        entry: Entry,
        asked: Message | None = None,
    ) -> None:
        super().__init__(launch, entry, str(thread["id"]))
        self._peer = peer
        self._thread = thread
        self._asked = asked
        self._turn = new_thread_id()
        self._began = _now_ms()
        self._items: list[Message] = []

    def write_start(self) -> None:
        assert self._asked is not None
        model = self._thread["model"]
        warning = f"Model metadata for `{model}` not found. Defaulting to fallback metadata."
        self._tell("warning", {"threadId": self.session, "message": warning}, turn=False)
        self._peer.answer(self._asked, {"turn": self._about("inProgress", started=False)})
        self._status("active", activeFlags=[])
        self._tell("turn/started", {"turn": self._about("inProgress")}, turn=False)
        params: Message = self._asked.get("params") or {}
        content = params.get("input", [])
        self._whole({"type": "userMessage", "id": new_thread_id(), "content": content})

    def write_noise(self, padding: str) -> None:
        self._tell("fake/noise", {"padding": padding})

    def write_retry(self, attempt: int, fail: Entry) -> None:
        reason, _ = failure(fail)
        lost = {"responseStreamDisconnected": {"httpStatusCode": None}}
        again = f"Reconnecting... {attempt}/{fail['retries']}"
        error = {"message": again, "codexErrorInfo": lost, "additionalDetails": reason}
        self._tell("error", {"error": error, "willRetry": True})

    def write_thought(self, text: str) -> None:
        item: Message = {
            "type": "reasoning",
            "id": f"rs_{new_id()[:8]}",
            "summary": [],
            "content": [],
        }
        self._item("item/started", item)
        delta: Message = {"itemId": item["id"], "delta": text, "summaryIndex": 0}
        self._tell("item/reasoning/summaryTextDelta", delta)
        self._item("item/completed", {**item, "summary": [text]})

    def write_message(self, text: str) -> None:
        item: Message = {
            "type": "agentMessage",
            "id": f"msg_{new_id()[:8]}",
            "text": "",
            "phase": None,
        }
        self._item("item/started", item)
        for part in deltas(text):
            self._tell("item/agentMessage/delta", {"itemId": item["id"], "delta": part})
        done = {**item, "text": text}
        self._item("item/completed", done)
        self._items = [done]

    def write_tool_start(self, tool: Entry) -> bool:
        self.tool = {"type": "commandExecution", "id": f"call_{new_id()[:10]}"}
        if "content" in tool:
            kind = file_kind(tool["content"], existed=os.path.exists(tool["path"]))
            path = os.path.abspath(tool["path"])
            change = {"path": path, "kind": {"type": kind}, "diff": tool["content"] or ""}
            self.tool |= {"type": "fileChange", "changes": [change], "status": "inProgress"}
        else:
            self.tool |= {
                "command": shell(tool),
                "cwd": self._thread["cwd"],
                "processId": None,
                "source": "agent",
                "status": "inProgress",
                "commandActions": [{"type": "unknown", "command": tool["command"]}],
                "aggregatedOutput": None,
                "exitCode": None,
                "durationMs": None,
            }
        if tool["asks"] and self._thread["approval"] != "never":
            self._status("active", activeFlags=["waitingOnApproval"])
        self._item("item/started", self.tool)
        return not tool["asks"] or self._allowed()

    def _allowed(self) -> bool:
        """True if the client allows the tool.

        With the policy ``never`` it is not asked: the tool is declined, unless the sandbox allows
        everything.
        """
        if self._thread["approval"] == "never":
            return bool(self._thread["sandbox"] == "danger-full-access")
        kind = "commandExecution" if "command" in self.tool else "fileChange"
        about = {"threadId": self.session, "turnId": self._turn, "itemId": self.tool["id"]}
        if "command" in self.tool:
            about |= {"command": self.tool["command"], "cwd": self.tool["cwd"]}
        number, reply = self._peer.ask(f"item/{kind}/requestApproval", about)
        self._tell("serverRequest/resolved", {"requestId": number}, turn=False)
        self._status("active", activeFlags=[])
        result: Message = reply.get("result") or {}
        return result.get("decision") in {"accept", "acceptForSession"}

    def write_tool_result(self, tool: Entry, *, allowed: bool) -> None:
        done = {**self.tool, "status": "completed" if allowed else "declined"}
        if "content" not in tool and allowed:
            done |= {"aggregatedOutput": tool["output"], "exitCode": tool["exit_code"]}
            done |= {"durationMs": 0, "status": "failed" if tool["exit_code"] else "completed"}
        self._item("item/completed", done)

    def wait(self, seconds: float) -> None:
        def stops(message: Message) -> bool:
            if message.get("method") != "turn/interrupt":
                return False
            self._peer.answer(message, {})
            return True

        if self._peer.wait(seconds, stops):
            raise Stopped

    def write_end(self) -> int:
        self._used()
        self._limits(NO_LIMITS)
        self._status("idle")
        self._ended("completed", None)
        return 0

    def write_failure(self, fail: Entry) -> int:
        message, info = failure(fail)
        if fail["kind"] == "usage_cap":
            at = None if fail["resets_at"] is None else int(fail["resets_at"])
            window = {"usedPercent": 100, "windowDurationMins": 300, "resetsAt": at}
            self._limits({**NO_LIMITS, "primary": window})
        error = {"message": message, "codexErrorInfo": info, "additionalDetails": None}
        self._status("systemError")
        self._tell("error", {"error": error, "willRetry": False})
        self._ended("failed", error)
        return 1

    def stopped(self) -> None:
        """Report that the client interrupted the turn."""
        self._status("idle")
        self._ended("interrupted", None)

    def compacted(self) -> None:
        """Report that the thread was made smaller, which is a turn of its own."""
        self._status("active", activeFlags=[])
        self._tell("turn/started", {"turn": self._about("inProgress")}, turn=False)
        self._whole({"type": "contextCompaction", "id": new_thread_id()})
        self._status("idle")
        self._ended("completed", None)

    def _tell(self, method: str, params: Message, *, turn: bool = True) -> None:
        where = {"threadId": self.session, **({"turnId": self._turn} if turn else {})}
        self._peer.tell(method, {**params, **where}, emittedAtMs=_now_ms())

    def _status(self, status: str, **more: Any) -> None:
        self._tell("thread/status/changed", {"status": {"type": status, **more}}, turn=False)

    def _limits(self, limits: Message) -> None:
        self._peer.tell("account/rateLimits/updated", {"rateLimits": limits})

    def _item(self, method: str, item: Message) -> None:
        ended = method == "item/completed"
        now = _now_ms()
        times = {"startedAtMs": now, "completedAtMs": now if ended else None}
        at = {"completedAtMs": now} if ended else {"startedAtMs": now}
        self._tell(method, {"item": {**item, **times}, **at})

    def _whole(self, item: Message) -> None:
        self._item("item/started", item)
        self._item("item/completed", item)

    def _used(self) -> None:
        last = totals(self.entry["usage"])
        total = self.launch.add_usage(self.session, self.entry["usage"])
        usage = {"total": _tokens(total), "last": _tokens(last), "modelContextWindow": WINDOW}
        self._tell("thread/tokenUsage/updated", {"tokenUsage": usage})

    def _about(self, status: str, *, error: Message | None = None, started: bool = True) -> Message:
        ended = status != "inProgress"
        return {
            "id": self._turn,
            "items": self._items if ended else [],
            "status": status,
            "error": error,
            "startedAt": self._began // 1000 if started else None,
            "completedAt": _now_ms() // 1000 if ended else None,
            "durationMs": _now_ms() - self._began if ended else None,
        }

    def _ended(self, status: str, error: Message | None) -> None:
        self._tell("turn/completed", {"turn": self._about(status, error=error)}, turn=False)


def _tokens(usage: Message) -> Message:
    return {
        "totalTokens": usage["input_tokens"] + usage["output_tokens"],
        "inputTokens": usage["input_tokens"],
        "cachedInputTokens": usage["cached_tokens"],
        "cacheWriteInputTokens": usage["cache_write_tokens"],
        "outputTokens": usage["output_tokens"],
        "reasoningOutputTokens": usage["reasoning_tokens"],
    }


def _now_ms() -> int:
    return int(time.time() * 1000)


CAPPED = (
    "You’ve hit your usage limit. Visit https://chatgpt.com/settings/usage to purchase more "  # noqa: RUF001  (the program writes it so)
    "credits or try again {when}."
)
FAILED: Mapping[str, tuple[str, Any]] = {
    "rate_limit": (
        "exceeded retry limit, last status: 429 Too Many Requests",
        {"responseTooManyFailedAttempts": {"httpStatusCode": 429}},
    ),
    "usage_cap": (CAPPED, "usageLimitExceeded"),
    "spending_cap": ("Quota exceeded. Check your plan and billing details.", "usageLimitExceeded"),
    "context_overflow": (
        (
            "Codex ran out of room in the model's context window. Start a new thread or clear "
            "earlier history before retrying."
        ),
        "contextWindowExceeded",
    ),
    "auth": (
        (
            "unexpected status 401 Unauthorized: Incorrect API key provided: sk-dummy., "
            "url: http://127.0.0.1/v1/responses"
        ),
        {"httpConnectionFailed": {"httpStatusCode": 401}},
    ),
    "transient": (
        "We’re currently experiencing high demand, which may cause temporary errors.",  # noqa: RUF001  (as above)
        "internalServerError",
    ),
    "bad_request": (
        json.dumps({"error": {"message": "The requested model does not exist.", "code": 404}}),
        "other",
    ),
    "output_limit": ("Incomplete response returned, reason: max_output_tokens", "other"),
    "refusal": ("This request was refused by the provider's policy.", "cyberPolicy"),
}


def failure(fail: Entry) -> tuple[str, Any]:
    """The message of a failure, and codex's own type of it."""
    kind = fail["kind"]
    text, info = FAILED[kind]
    if kind == "usage_cap":
        text = CAPPED.format(when=_when(fail))
    return fail["message"] or text, info


def _when(fail: Entry) -> str:
    """When the cap ends, as codex writes it: a time of its local clock, without date or zone."""
    if fail["resets"]:
        return f"at {fail['resets']}"
    if fail["resets_at"] is None:
        return "later"
    at = time.localtime(fail["resets_at"])
    return f"at {at.tm_hour % 12 or 12}:{at.tm_min:02} {'AM' if at.tm_hour < 12 else 'PM'}"


def new_thread_id() -> str:
    """A thread's id in codex's form, which begins with the time."""
    at = f"{int(time.time() * 1000):012x}"
    return f"{at[:8]}-{at[8:]}-7{new_id()[15:]}"


def shell(tool: Entry) -> str:
    """The command line that codex runs."""
    command = tool["command"] or f"{tool['name']} {json.dumps(tool['input'])}"
    return "/bin/bash -lc " + (f"'{command}'" if "'" not in command else json.dumps(command))


def file_kind(content: str | None, *, existed: bool) -> str:
    """The word that codex has for what happens to a file."""
    if content is None:
        return "delete"
    return "update" if existed else "add"
