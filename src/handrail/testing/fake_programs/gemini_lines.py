"""The protocol of ``gemini --output-format stream-json``: one event a line.

Source: recordings of gemini 0.61.0, which the tests hold it to, and its list of options.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from handrail.testing.fake_programs.acp import GEMINI_FAILED
from handrail.testing.fake_programs.launch import Entry, Launch, Options, UnknownOption
from handrail.testing.fake_programs.output import new_id, pause, read_all, stamp, totals
from handrail.testing.fake_programs.turn import call_of, final_text, perform, unsayable

MODEL = "gemini-2.5-flash"
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
    try:
        options = Options(launch.argv, valued=VALUED, plain=PLAIN, many=MANY, same=SHORT)
    except UnknownOption as unknown:
        return _refused(launch, f"Unknown arguments: {str(unknown).lstrip('-')}", 1)
    launch.stdin = read_all(0)
    given = options.get("--prompt") or " ".join(options.words)
    prompt = "\n\n".join(filter(None, (launch.stdin.decode(errors="replace"), given)))
    if options.get("--output-format") != "stream-json":
        return _refused(launch, "fake gemini: only --output-format stream-json is faked", 1)
    if not prompt.strip():
        return _refused(launch, NO_PROMPT, WRONG_INPUT)
    resumed = options.get("--resume")
    if resumed is not None and launch.session(resumed) is None:
        return _refused(launch, NO_SESSION, WRONG_INPUT)
    if used_up := launch.used_up:
        return _refused(launch, used_up, 1)
    entry = launch.take()
    assert entry is not None
    if unknown_words := unsayable(launch, entry, {*GEMINI_FAILED, "max_turns"}):
        return _refused(launch, unknown_words, 1)
    return perform(launch, _Voice(launch, options, entry, prompt), entry)


def _refused(launch: Launch, reason: str, code: int) -> int:
    launch.out.error(reason + "\n")
    return code


class _Voice:
    """What gemini prints in one turn; it does not tell what the model thinks. Mutable."""

    def __init__(self, launch: Launch, options: Options, entry: Entry, prompt: str) -> None:
        self._launch = launch
        self._options = options
        self._entry = entry
        self._prompt = prompt
        chosen = options.get("--resume") or options.get("--session-id")
        self._session = chosen or entry.get("session") or new_id()
        self._tool: dict[str, Any] = {}
        self._calls = 0

    def started(self) -> None:
        self._launch.open_session(self._session)
        self._event("init", session_id=self._session, model=self._model)
        self._event("message", role="user", content=self._prompt)

    def noise(self, size: int) -> None:
        self._event("fake_noise", padding="·" * (size // 2))

    def retried(self, attempt: int, fail: Entry) -> None:
        """A line on stderr alone."""
        _, _, text = _form(fail)
        again = f"Attempt {attempt} failed: {text} Retrying after 20ms...\n"
        self._launch.out.error(again)
        pause(0.02)

    def thought(self, text: str) -> None:
        """Nothing."""

    def said(self, text: str) -> None:
        half = len(text) // 2
        for piece in filter(None, (text[:half], text[half:])):
            self._event("message", role="assistant", content=piece, delta=True)

    def tool_started(self, tool: Entry) -> bool:
        name, given = call_of(tool, runs=SHELL, writes="write_file", path="file_path")
        ref = f"{name}__{name}_{int(time.time() * 1000)}_{self._calls}"
        self._calls += 1
        self._tool = {"tool_name": name, "tool_id": ref}
        self._event("tool_use", **self._tool, parameters=given)
        return not tool["asks"] or self._may_do_anything

    def tool_completed(self, tool: Entry, *, allowed: bool) -> None:
        """A tool that would have to be asked for is not there for the model."""
        about: dict[str, Any] = {"tool_id": self._tool["tool_id"]}
        if not allowed:
            reason = f'Tool "{self._tool["tool_name"]}" not found.'
            error = {"type": "tool_not_registered", "message": reason}
            self._event("tool_result", **about, status="error", output=reason, error=error)
            return
        status = "error" if tool["exit_code"] else "success"
        self._event("tool_result", **about, status=status, output=tool["output"])

    def answered(self) -> None:
        self.said(final_text(self._entry))

    def wait(self, seconds: float) -> None:
        pause(seconds)

    def completed(self) -> int:
        self._launch.add_usage(self._session, self._entry["usage"])
        self._event("result", status="success", stats=self._stats(self._entry["usage"]))
        return 0

    def failed(self, fail: Entry) -> int:
        """The result, with the API's error within the message; the exit code is its status."""
        if fail["kind"] == "max_turns":
            message = fail["message"] or "Reached max session turns for this session."
            self._failed("FatalTurnLimitedError", message)
            return TOO_MANY_TURNS
        code, status, text = _form(fail)
        api: dict[str, Any] = {"code": code, "message": text, "status": status, "details": []}
        said = json.dumps({"error": api}) if status else text
        self._failed("unknown", f"[API Error: {said}]")
        return code % 256

    def interrupted(self, number: int, *, in_tool: bool) -> int:
        return -number if number == 2 and not in_tool else 0

    @property
    def _model(self) -> str:
        return str(self._entry["model"] or self._options.get("--model") or MODEL)

    @property
    def _may_do_anything(self) -> bool:
        return "--yolo" in self._options or self._options.get("--approval-mode") == "yolo"

    def _failed(self, kind: str, message: str) -> None:
        error = {"type": kind, "message": message}
        self._event("result", status="error", error=error, stats=self._stats({}))

    def _stats(self, usage: Mapping[str, Any]) -> dict[str, Any]:
        """What this launch used: a session that is gone on in is not counted again."""
        used = totals(usage)
        sent, cached, received = used["input_tokens"], used["cached_tokens"], used["output_tokens"]
        tokens = {
            "total_tokens": sent + received,
            "input_tokens": sent,
            "output_tokens": received,
            "cached": cached,
            "input": sent - cached,
        }
        about = {"duration_ms": 61, "tool_calls": self._calls, "models": {self._model: tokens}}
        return {**tokens, **about}

    def _event(self, kind: str, **more: Any) -> None:
        self._launch.out.line({"type": kind, "timestamp": stamp(), **more})


def _form(fail: Entry) -> tuple[int, str, str]:
    """The API's status, its name, and its text; without a name the text comes alone."""
    code, status, text = GEMINI_FAILED[fail["kind"]]
    return code, status, fail["message"] or text
