"""The protocol of ``gemini --output-format stream-json``: one event a line.

Source: recordings of gemini 0.61.0, with which the tests compare it, and its list of options.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from handrail.testing.fake_programs.acp import GEMINI_FAILED
from handrail.testing.fake_programs.launch import Entry, Launch, Options
from handrail.testing.fake_programs.output import Ended, new_id, pause, stamp, totals
from handrail.testing.fake_programs.turn import TurnWriter, call_of, perform

SHELL = "run_shell_command"
VALUED = (
    "--model", "--prompt", "--prompt-interactive", "--approval-mode", "--policy", "--admin-policy",
    "--resume", "--session-file", "--session-id", "--delete-session", "--output-format",
)  # fmt: skip
PLAIN = (
    "--debug", "--skip-trust", "--worktree", "--sandbox", "--yolo", "--list-extensions",
    "--list-sessions", "--screen-reader", "--raw-output", "--accept-raw-output-risk",
)  # fmt: skip
MANY = ("--allowed-mcp-server-names", "--allowed-tools", "--extensions", "--include-directories")
SHORT = {"-d": "--debug", "-m": "--model", "-p": "--prompt", "-i": "--prompt-interactive",
         "-w": "--worktree", "-s": "--sandbox", "-y": "--yolo", "-e": "--extensions",
         "-l": "--list-extensions", "-r": "--resume", "-o": "--output-format"}  # fmt: skip
NO_SESSION = "Error resuming session: No previous sessions found for this project."
NO_PROMPT = (
    "No input provided via stdin. Input can be provided by piping data into gemini or using the "
    "--prompt option."
)
WRONG_INPUT = 42
TOO_MANY_TURNS = 53


def run(launch: Launch) -> int:
    """Answer one prompt."""
    options = Options(
        launch.argv,
        valued=VALUED,
        plain=PLAIN,
        many=MANY,
        same=SHORT,
        otherwise=lambda word: Ended(1, f"Unknown arguments: {word.lstrip('-')}"),
    )
    given = options.get("--prompt") or " ".join(options.words)
    prompt = "\n\n".join(filter(None, (launch.read_stdin(), given)))
    if options.get("--output-format") != "stream-json":
        raise Ended(1, "fake gemini: only --output-format stream-json is faked")
    if not prompt.strip():
        raise Ended(WRONG_INPUT, NO_PROMPT)
    launch.require_session(options.get("--resume"), Ended(WRONG_INPUT, NO_SESSION))
    entry = launch.next_act({*GEMINI_FAILED, "max_turns"})
    return perform(_Gemini(launch, options, entry, prompt))


class _Gemini(TurnWriter):
    """Prints one turn of gemini, which does not show what the model thinks. Mutable."""

    usual_model = "gemini-2.5-flash"

    def __init__(self, launch: Launch, options: Options, entry: Entry, prompt: str) -> None:
        chosen = options.get("--resume") or options.get("--session-id")
        super().__init__(launch, entry, chosen or entry.get("session") or new_id(), options)
        self._prompt = prompt
        self._calls = 0

    def write_start(self) -> None:
        self.launch.open_session(self.session)
        self._event("init", session_id=self.session, model=self.model)
        self._event("message", role="user", content=self._prompt)

    def write_noise(self, padding: str) -> None:
        self._event("fake_noise", padding=padding)

    def write_retry(self, attempt: int, fail: Entry) -> None:
        """Print a line on stderr only."""
        _, _, text = _form(fail)
        again = f"Attempt {attempt} failed: {text} Retrying after 20ms...\n"
        self.launch.out.error(again)
        pause(0.02)

    def write_message(self, text: str) -> None:
        half = len(text) // 2
        for piece in filter(None, (text[:half], text[half:])):
            self._event("message", role="assistant", content=piece, delta=True)

    def write_tool_start(self, tool: Entry) -> bool:
        name, given = call_of(tool, runs=SHELL, writes="write_file", path="file_path")
        ref = f"{name}__{name}_{int(time.time() * 1000)}_{self._calls}"
        self._calls += 1
        self.tool = {"tool_name": name, "tool_id": ref}
        self._event("tool_use", **self.tool, parameters=given)
        return not tool["asks"] or self._may_do_anything

    def write_tool_result(self, tool: Entry, *, allowed: bool) -> None:
        """Print the result; a tool that would need permission is unknown to gemini's model."""
        about: dict[str, Any] = {"tool_id": self.tool["tool_id"]}
        if not allowed:
            reason = f'Tool "{self.tool["tool_name"]}" not found.'
            error = {"type": "tool_not_registered", "message": reason}
            self._event("tool_result", **about, status="error", output=reason, error=error)
            return
        status = "error" if tool["exit_code"] else "success"
        self._event("tool_result", **about, status=status, output=tool["output"])

    def write_end(self) -> int:
        self.launch.add_usage(self.session, self.entry["usage"])
        self._event("result", status="success", stats=self._stats(self.entry["usage"]))
        return 0

    def write_failure(self, fail: Entry) -> int:
        """Print the result, with the API's error in its message; the exit code is the status."""
        if fail["kind"] == "max_turns":
            message = fail["message"] or "Reached max session turns for this session."
            self._failed("FatalTurnLimitedError", message)
            return TOO_MANY_TURNS
        code, status, text = _form(fail)
        api: dict[str, Any] = {"code": code, "message": text, "status": status, "details": []}
        said = json.dumps({"error": api}) if status else text
        self._failed("unknown", f"[API Error: {said}]")
        return code % 256

    def write_interruption(self, number: int, *, in_tool: bool) -> int:
        return -number if number == 2 and not in_tool else 0

    @property
    def _may_do_anything(self) -> bool:
        return "--yolo" in self.options or self.options.get("--approval-mode") == "yolo"

    def _failed(self, kind: str, message: str) -> None:
        error = {"type": kind, "message": message}
        self._event("result", status="error", error=error, stats=self._stats({}))

    def _stats(self, usage: Mapping[str, Any]) -> dict[str, Any]:
        """What this launch used; earlier launches of its session are not counted again."""
        used = totals(usage)
        sent, cached, received = used["input_tokens"], used["cached_tokens"], used["output_tokens"]
        tokens = {
            "total_tokens": sent + received,
            "input_tokens": sent,
            "output_tokens": received,
            "cached": cached,
            "input": sent - cached,
        }
        about = {"duration_ms": 61, "tool_calls": self._calls, "models": {self.model: tokens}}
        return {**tokens, **about}

    def _event(self, kind: str, **more: Any) -> None:
        self.launch.out.line({"type": kind, "timestamp": stamp(), **more})


def _form(fail: Entry) -> tuple[int, str, str]:
    """The API's status, its name, and its text; without a name gemini prints only the text."""
    code, status, text = GEMINI_FAILED[fail["kind"]]
    return code, status, fail["message"] or text
