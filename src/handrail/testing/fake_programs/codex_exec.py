"""The protocol of ``codex exec --json``, one event a line.

Also the texts of failures, and more, that both protocols of codex share.

Source: recordings of codex 0.169.0, with which the tests compare it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from handrail.testing.fake_programs.launch import Entry, Launch, Options
from handrail.testing.fake_programs.output import Ended, new_id
from handrail.testing.fake_programs.turn import TurnWriter, final_text, perform

MODEL = "gpt-5"
VALUED = (
    "--config", "--enable", "--disable", "--image", "--model", "--local-provider", "--profile",
    "--sandbox", "--cd", "--add-dir", "--thread-source", "--output-schema", "--color",
    "--output-last-message",
)  # fmt: skip
PLAIN = (
    "--strict-config", "--oss", "--approve-for-me", "--dangerously-bypass-approvals-and-sandbox",
    "--dangerously-bypass-hook-trust", "--worktree", "--skip-git-repo-check", "--trust",
    "--ephemeral", "--ignore-user-config", "--ignore-rules", "--json", "--last", "--all",
)  # fmt: skip
NOT_RESUMED = ("--sandbox", "--cd", "--add-dir", "--profile", "--color")
"""Options that must come before the word ``resume``."""
SHORT = {"-c": "--config", "-i": "--image", "-m": "--model", "-p": "--profile", "-s": "--sandbox",
         "-C": "--cd", "-o": "--output-last-message"}  # fmt: skip


def run(launch: Launch) -> int:
    """Answer one prompt."""
    before, word, after = _split(launch.argv)
    if word:
        _options(after, [name for name in VALUED if name not in NOT_RESUMED])
    options = _options(before + after, VALUED)
    thread = options.words.pop(0) if word and options.words else None
    prompt = " ".join(word for word in options.words if word != "-")
    if not (launch.read_stdin() + prompt).strip():
        raise Ended(1, "No prompt provided via stdin.")
    schema = options.get("--output-schema")
    if schema is not None and not os.path.isfile(schema):
        raise Ended(1, f"Failed to read output schema file {schema}")
    reason = (
        "Error: thread/resume: thread/resume failed: no rollout found for thread id "
        f"{thread} (code -32600)"
    )
    launch.require_session(thread, Ended(1, reason))
    return perform(_Exec(launch, options, launch.next_act(), thread, fork=word == "fork"))


def _options(argv: list[str], valued: Sequence[str]) -> Options:
    def otherwise(word: str) -> Ended:
        return Ended(2, f"error: unexpected argument '{word}' found")

    return Options(argv, valued=valued, plain=PLAIN, same=SHORT, otherwise=otherwise)


def _split(argv: list[str]) -> tuple[list[str], str, list[str]]:
    """The arguments before ``exec``'s own ``resume`` or ``fork``, that word, and those after it."""
    at = argv.index("exec")
    words = [*argv[:at], *argv[at + 1 :]]
    found = next((index for index, word in enumerate(words) if word in {"resume", "fork"}), None)
    if found is None:
        return words, "", []
    return words[:found], words[found], words[found + 1 :]


class _Exec(TurnWriter):
    """Prints one turn of codex exec. Mutable."""

    usual_model = MODEL

    def __init__(
        self, launch: Launch, options: Options, entry: Entry, known: str | None, *, fork: bool
    ) -> None:
        thread = (None if fork else known) or entry.get("session") or new_thread_id()
        super().__init__(launch, entry, thread, options)
        self._out = launch.out
        self._copied = known if fork else None
        self._items = 0

    def write_start(self) -> None:
        self.launch.open_session(self.session, copy_of=self._copied)
        self._out.line({"type": "thread.started", "thread_id": self.session})
        self._item(
            "error",
            message=f"Model metadata for `{self.model}` not found. Defaulting to fallback metadata;"
            " this can degrade performance and cause issues.",
        )
        self._out.line({"type": "turn.started"})

    def write_noise(self, padding: str) -> None:
        self._item("fake_noise", text=padding)

    def write_retry(self, attempt: int, fail: Entry) -> None:
        reason, _ = failure(fail)
        again = f"Reconnecting... {attempt}/{fail['retries']} ({reason})"
        self._out.line({"type": "error", "message": again})

    def write_thought(self, text: str) -> None:
        self._item("reasoning", text=text)

    def write_message(self, text: str) -> None:
        self._item("agent_message", text=text)

    def write_tool_start(self, tool: Entry) -> bool:
        if "content" in tool:
            kind = file_kind(tool["content"], existed=os.path.exists(tool["path"]))
            change = {"path": os.path.abspath(tool["path"]), "kind": kind}
            self.tool = {"type": "file_change", "changes": [change], "status": "in_progress"}
        else:
            self.tool = {
                "type": "command_execution",
                "command": shell(tool),
                "aggregated_output": "",
                "exit_code": None,
                "status": "in_progress",
            }
        self.tool = {"id": f"item_{self._items}", **self.tool}
        self._items += 1
        self._out.line({"type": "item.started", "item": self.tool})
        bypass = "--dangerously-bypass-approvals-and-sandbox"
        return not tool["asks"] or bypass in self.options

    def write_tool_result(self, tool: Entry, *, allowed: bool) -> None:
        done = {**self.tool, "status": "completed" if allowed else "declined"}
        if "content" not in tool and allowed:
            done |= {"aggregated_output": tool["output"], "exit_code": tool["exit_code"]}
            done["status"] = "failed" if tool["exit_code"] else "completed"
        self._out.line({"type": "item.completed", "item": done})

    def write_end(self) -> int:
        """Print the end; its usage is that of the whole thread."""
        total = self.launch.add_usage(self.session, self.entry["usage"])
        usage = {
            "input_tokens": total["input_tokens"],
            "cached_input_tokens": total["cached_tokens"],
            "cache_write_input_tokens": total["cache_write_tokens"],
            "output_tokens": total["output_tokens"],
            "reasoning_output_tokens": total["reasoning_tokens"],
        }
        self._out.line({"type": "turn.completed", "usage": usage})
        if path := self.options.get("--output-last-message"):
            with open(path, "w", encoding="utf-8") as file:
                file.write(final_text(self.entry))
        return 0

    def write_failure(self, fail: Entry) -> int:
        reason, _ = failure(fail)
        self._out.line({"type": "error", "message": reason})
        self._out.line({"type": "turn.failed", "error": {"message": reason}})
        return 1

    def write_interruption(self, number: int, *, in_tool: bool) -> int:  # noqa: ARG002
        return 1 if number == 2 else -number

    def _item(self, kind: str, **more: Any) -> None:
        item = {"id": f"item_{self._items}", "type": kind, **more}
        self._items += 1
        self._out.line({"type": "item.completed", "item": item})


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
