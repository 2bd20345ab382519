"""What the end of a program says when the program itself said nothing of use."""

from __future__ import annotations

from typing import Any

import pytest

from handrail import AgentError
from handrail.agents.transport.failures import classify_by_words, kind_by_words
from handrail.agents.transport.parser import Ending, describe_end, kind_of_end, stderr_reason


@pytest.mark.parametrize(
    ("ending", "kind"),
    [
        (Ending(2, stderr="error: unknown option --x"), "config"),
        (Ending(1, stderr="Error: Not logged in"), "auth"),
        (Ending(101, stderr="thread 'main' panicked at src/main.rs:1"), "crashed"),
        (Ending(1, stderr=""), "crashed"),
        (Ending(1, stderr="WARNING: proceeding\n"), "crashed"),
        (Ending(0, stderr="error: unknown option"), "crashed"),
        (Ending(-9, stderr="error: unknown option"), "crashed"),
        (Ending(None, stderr="error: unknown option"), "crashed"),
        (Ending(1, "interrupted", stderr="Not logged in"), "interrupted"),
        (Ending(1, "start_timeout", stderr="Not logged in"), "timeout"),
    ],
)
def test_an_end_has_a_kind(ending: Ending, kind: str) -> None:
    """A refusal before the first event is a wrong setting or login; what we stopped is ours."""
    assert kind_of_end(ending, saw_protocol=False) == kind


WORDS: list[tuple[Any, str, Any]] = [
    ("config", "claude exited with 1: Error: read ECONNRESET", "transient"),
    ("config", "API Error: 529 Overloaded", "transient"),
    ("config", "API Error (429)", "rate_limit"),
    ("config", "HTTP 404 at /v1/messages", "bad_request"),
    ("config", "You\u2019ve hit your weekly limit", "usage_cap"),
    ("config", "Credit balance is too low", "spending_cap"),
    ("config", "ENOSPC: no space left on device, write", "transient"),
    ("config", "EMFILE: too many open files", "transient"),
    ("config", "Unexpected error\ndatabase is locked", "transient"),
    ("config", "Failed query:\nCREATE TABLE `workspace` (\n`id` text", "transient"),
    ("config", "unknown option --x", "config"),
    ("auth", "Failed to authenticate. API Error: fetch failed", "transient"),
    ("auth", "Not logged in", "auth"),
    ("crashed", "getaddrinfo EAI_AGAIN api.example.com", "transient"),
    ("config", "API Error: Request timed out.", "transient"),
    ("config", "TypeError: UND_ERR_CONNECT_TIMEOUT", "transient"),
    ("config", "The socket connection was closed unexpectedly", "transient"),
    ("config", "stream disconnected before completion", "transient"),
    ("crashed", "curl: Could not resolve host: api.example.com", "transient"),
    ("crashed", "connect ENETUNREACH 10.0.0.1:443", "transient"),
    ("crashed", "connect EHOSTUNREACH 10.0.0.1:443", "transient"),
    ("crashed", "panicked at src/main.rs", "crashed"),
    ("bad_request", "Input is too long for requested model", "context_overflow"),
    ("bad_request", "prompt exceeds the maximum of 200000 input tokens", "context_overflow"),
    ("bad_request", "image dimensions exceed max allowed size: 2000 pixels", "context_overflow"),
    ("bad_request", "session 7 not found", "bad_request"),
    ("transient", "500 the model gpt-99 does not exist", "bad_request"),
    ("transient", "Too many tokens, please wait before trying again", "transient"),
    ("crashed", "the response was blocked by the content filter", "refusal"),
    ("rate_limit", "fetch failed", "rate_limit"),
    (None, "fetch failed", None),
]


@pytest.mark.parametrize(("kind", "words", "better"), WORDS)
def test_words_know_better_than_a_vague_kind(kind: Any, words: str, better: Any) -> None:
    """The network before a login; what a program says of itself stays if words add nothing."""
    assert kind_by_words(kind, words) == better


def test_a_failure_that_may_pass_keeps_the_time_that_its_words_name() -> None:
    """The advice for what it was taken for is dropped."""
    error = AgentError("a", "usage limit reached, resets in 2 hours", kind="config", hint="--help")
    classify_by_words(error, 1_000.0)
    assert (error.kind, error.retry_at, error.hint) == ("usage_cap", 1_000.0 + 7_200, "")


def test_a_program_that_had_begun_crashed() -> None:
    """What stands on stderr after the first event does not make it a wrong setting."""
    assert kind_of_end(Ending(1, stderr="Not logged in"), saw_protocol=True) == "crashed"


NO_BUBBLEWRAP = "2026 ERROR codex_app_server: Codex could not find bubblewrap on PATH. Install it."


@pytest.mark.parametrize(
    ("ending", "saw_protocol", "words"),
    [
        (Ending(2, stderr="\x1b[91mError\x1b[0m: no"), False, "p exited with 2: Error: no"),
        (Ending(1, stderr="x"), True, "p exited with 1 without saying that it is done: x"),
        (Ending(-9), True, "p was ended by signal 9 without saying that it is done"),
        (
            Ending(-9, stderr=NO_BUBBLEWRAP),
            True,
            "p was ended by signal 9 without saying that it is done",
        ),
        (Ending(None), False, "p never exited without saying that it is done"),
        (Ending(0, "interrupted"), True, "p was interrupted"),
        (Ending(0, "timeout", after_s=5), True, "p did not finish within 5 s"),
        (Ending(0, "start_timeout", after_s=60), False, "p gave no sign of life within 60 s"),
        (
            Ending(0, "idle_timeout", after_s=99),
            True,
            "p gave no sign of life for 99 s and was stopped",
        ),
    ],
)
def test_an_end_has_words(ending: Ending, saw_protocol: Any, words: str) -> None:
    """The words say what was done, and what stood on stderr."""
    assert describe_end("p", ending, saw_protocol=saw_protocol) == words


def test_much_on_stderr_is_shortened() -> None:
    """Beginning and end of a long complaint are kept."""
    said = stderr_reason(Ending(1, stderr=f"first {'x' * 5000} last"))
    assert len(said) < 700
    assert said.startswith("first")
    assert said.endswith("last")
