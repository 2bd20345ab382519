"""The protocol of ``opencode run --format json``: one event a line, and no event for the end.

Source: recordings of opencode 1.18.33, with which the tests compare it, and its list of options.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from handrail.testing.fake_programs.launch import Entry, Launch, Options
from handrail.testing.fake_programs.output import Ended, new_id, totals
from handrail.testing.fake_programs.turn import TurnWriter, call_of, perform

VALUED = (
    "--log-level", "--command", "--session", "--model", "--agent", "--format", "--title",
    "--attach", "--password", "--username", "--dir", "--port", "--variant",
)  # fmt: skip
PLAIN = ("--print-logs", "--pure", "--continue", "--fork", "--share", "--thinking",
         "--interactive", "--auto")  # fmt: skip
MANY = ("--file",)
SHORT = {"-c": "--continue", "-s": "--session", "-m": "--model", "-f": "--file",
         "-p": "--password", "-u": "--username", "-i": "--interactive"}  # fmt: skip
NO_SESSION = "\x1b[91m\x1b[1mError: \x1b[0mSession not found"
REJECTED = "The user rejected permission to use this specific tool call."
ENDS = {"output_limit": "length", "refusal": "content-filter"}
"""The reasons with which a step ends that the model did not end by itself."""

FAILED: Mapping[str, tuple[str, int | None, str]] = {
    "rate_limit": ("APIError", 429, "This request would exceed your organization's rate limit."),
    "usage_cap": ("APIError", 429, "This request would exceed your account's rate limit."),
    "spending_cap": ("APIError", 400, "Your credit balance is too low to access the API."),
    "context_overflow": (
        "ContextOverflowError",
        None,
        "prompt is too long: 214315 tokens > 200000 maximum",
    ),
    "auth": ("APIError", 401, "invalid x-api-key"),
    "transient": ("APIError", 500, "Internal server error"),
    "bad_request": (
        "UnknownError",
        None,
        "Unexpected server error. Check server logs for details.",
    ),
}


def run(launch: Launch) -> int:
    """Answer one prompt."""
    options = Options(
        launch.argv[1:],
        valued=VALUED,
        plain=PLAIN,
        many=MANY,
        same=SHORT,
        otherwise=lambda word: Ended(1, f"opencode run [message..]\n\nUnknown argument: {word}"),
    )
    prompt = "\n".join([*options.words, launch.read_stdin()])
    if options.get("--format") != "json":
        raise Ended(1, "fake opencode: only --format json is faked")
    if not prompt.strip():
        raise Ended(1, "You must provide a message or a command")
    launch.require_session(options.get("--session"), Ended(1, NO_SESSION))
    return perform(_Opencode(launch, options, launch.next_act({*FAILED, *ENDS})))


class _Opencode(TurnWriter):
    """Prints one turn of opencode, which reports a tool when the tool is done. Mutable."""

    def __init__(self, launch: Launch, options: Options, entry: Entry) -> None:
        resumed = options.get("--session")
        self._copied = resumed if "--fork" in options else None
        known = None if self._copied else resumed
        session = known or entry.get("session") or f"ses_{_unique()}"
        super().__init__(launch, entry, session, options)
        self._message = ""
        self._given: Mapping[str, Any] = {}
        self._has_step = False

    def write_start(self) -> None:
        self.launch.open_session(self.session, copy_of=self._copied)
        self._step_start()

    def write_noise(self, padding: str) -> None:
        self._part("fake_noise", padding=padding)

    def write_thought(self, text: str) -> None:
        if "--thinking" in self.options:
            self._part("reasoning", text=text, time=_now(), metadata={})

    def write_message(self, text: str) -> None:
        self._part("text", text=text, time=_now())

    def write_tool_start(self, tool: Entry) -> bool:
        name, given = call_of(tool, runs="bash", writes="write", path="filePath")
        self.tool = {"tool": name, "callID": f"toolu_{new_id()[:20]}"}
        self._given = given
        return not tool["asks"] or "--auto" in self.options

    def write_tool_result(self, tool: Entry, *, allowed: bool) -> None:
        """Print the tool, the end of the step that called it, and the next step."""
        state: dict[str, Any] = {"status": "completed", "input": self._given}
        if allowed:
            output, code = tool["output"], tool["exit_code"]
            state |= {"output": output, "title": tool["command"], "time": _now()}
            state["metadata"] = {"output": output, "exit": code, "truncated": False}
        else:
            wanted = f"{self.tool['tool']} ({tool['command']})"
            self.launch.out.error(f"! permission requested: {wanted}; auto-rejecting\n")
            state |= {"status": "error", "error": REJECTED, "time": _now()}
        self._part("tool_use", "tool", **self.tool, state=state)
        self._step_finish("tool-calls", {})
        self._step_start()

    def write_end(self) -> int:
        """Print the last step, which reports all of the turn's tokens."""
        self.launch.add_usage(self.session, self.entry["usage"])
        self._step_finish("stop", self.entry["usage"])
        return 0

    def write_failure(self, fail: Entry) -> int:
        """Print an error event, or the end of a step with its reason."""
        kind = fail["kind"]
        if kind in ENDS:
            self._step_finish(ENDS[kind], self.entry["usage"])
            return 0
        name, status, text = FAILED[kind]
        data: dict[str, Any] = {"message": fail["message"] or text}
        if status is not None:
            may_pass = status in {429, 500}
            data |= {"statusCode": status, "isRetryable": may_pass, "responseHeaders": {}}
        self._event("error", error={"name": name, "data": data})
        return 1

    def _step_start(self) -> None:
        """Begin the next step; if its request fails at once, only the error is printed."""
        self._has_step = False
        if not self.entry.get("fail"):
            self._in_step()

    def _in_step(self) -> None:
        if not self._has_step:
            self._has_step = True
            self._message = f"msg_{_unique()}"
            self._part("step_start", "step-start")

    def _step_finish(self, reason: str, usage: Mapping[str, Any]) -> None:
        """Print the end of a step, with cached and reasoning tokens apart from the others."""
        used = totals(usage)
        read, written = used["cached_tokens"], used["cache_write_tokens"]
        thoughts = used["reasoning_tokens"]
        tokens = {
            "total": used["input_tokens"] + used["output_tokens"],
            "input": used["input_tokens"] - read - written,
            "output": used["output_tokens"] - thoughts,
            "reasoning": thoughts,
            "cache": {"write": written, "read": read},
        }
        cost = usage.get("cost_usd") or 0
        self._part("step_finish", "step-finish", reason=reason, tokens=tokens, cost=cost)

    def _part(self, kind: str, inner: str | None = None, /, **more: Any) -> None:
        self._in_step()
        about = {"id": f"prt_{_unique()}", "messageID": self._message, "sessionID": self.session}
        self._event(kind, part={**about, "type": inner or kind, **more})

    def _event(self, kind: str, **more: Any) -> None:
        at = int(time.time() * 1000)
        self.launch.out.line({"type": kind, "timestamp": at, "sessionID": self.session, **more})


def _unique() -> str:
    return new_id().replace("-", "")[:26]


def _now() -> dict[str, int]:
    at = int(time.time() * 1000)
    return {"start": at, "end": at}
