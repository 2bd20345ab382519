"""agy: its lines of JSON, its arguments, and what its ends mean. No real one was tried."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from handrail.agents.agy import AgyBackend
from handrail.errors import AgentError
from handrail.model.agent_options import NO_OPTIONS, AgentOptions
from handrail.model.events import (
    AgentMessage,
    AgentPermission,
    AgentSessionStarted,
    AgentToolCompleted,
    AgentToolStarted,
)
from handrail.model.results import Usage
from handrail.ports.agent import AgentBackend, AgentReply, AgentTurn
from handrail.testing.contracts.backend import BackendContract
from tests.agents.fake_program import Recording, install

TALK, OTHER = "9dcbb5a5-9a5f-4f9c-989b-ede03e790bbf", "4ce4cca7-2b7f-4728-b171-1a84d3ff70f6"
USED = {"input_tokens": 500, "output_tokens": 30, "thinking_tokens": 10, "cache_read_tokens": 400}
NONE_USED = dict.fromkeys(USED, 0)
CALL = {"name": "run_command", "parameters": {"CommandLine": "pytest"}}
DENIED = "permission check failed for command: user denied permission"
QUOTA = "Individual quota reached. Please upgrade your subscription. Resets in 2h13m19s."
UNFINISHED = "[agy] print timeout after 12h0m0s with turn in progress; returning partial output\n"


def init(talk: str = TALK) -> dict[str, Any]:
    """The first line."""
    about = {"cwd": "/repo", "tools": ["run_command"], "permission_mode": "request-review"}
    return {"event": "init", "conversation_id": talk, "init": {"model": "gemini-x", **about}}


def step(index: int, kind: str, state: str, talk: str = TALK, **more: Any) -> dict[str, Any]:
    """A line of one step."""
    about = {"conversation_id": talk, "step_index": index, "state": state, "step_type": kind}
    return {"event": "step_update", "step_update": {**about, **more}}


def tool(index: int, state: str, **more: Any) -> dict[str, Any]:
    """A line of a command."""
    return step(index, "tool", state, tool_name="run_command", tool_info={**CALL, **more})


def result(status: str = "SUCCESS", response: str = "", **more: Any) -> dict[str, Any]:
    """The last line."""
    about = {"conversation_id": TALK, "status": status, "response": response, "num_turns": 1}
    return {"event": "result", "result": {**about, "usage": USED, **more}}


def answer(text: str) -> list[dict[str, Any]]:
    """The lines of a turn that only says this."""
    said = [
        step(1, "agent_response", "ACTIVE", text_delta=text[:5]),
        step(1, "agent_response", "DONE", text_delta=text[5:] + "\n"),
    ]
    return [init(), step(0, "user_input", "DONE"), *said, result(response=text + "\n")]


def put(folder: Path, lines: Iterable[dict[str, Any]], **more: Any) -> Recording:
    """A program that prints these lines."""
    return install(
        folder, "agy", b"".join(json.dumps(one).encode() + b"\n" for one in lines), **more
    )


class TestAgy(BackendContract):
    @pytest.fixture
    def make_backend(self, tmp_path: Path) -> Callable[[str], AgentBackend]:
        """A program that says the same each time."""
        return lambda text: AgyBackend(str(put(tmp_path, answer(text)).path))

    @pytest.fixture
    def failing_backend(self, tmp_path: Path) -> AgentBackend:
        """A program that is not logged in."""
        lines = [result("ERROR", error="authentication failed or timed out", usage=NONE_USED)]
        return AgyBackend(str(put(tmp_path, lines, code=1).path))

    @pytest.fixture
    def endless_backend(self, tmp_path: Path) -> AgentBackend:
        """A program that begins, has another one in the background, and never ends."""
        program = tmp_path / "agy"
        program.write_text(f"#!/bin/sh\necho '{json.dumps(init())}'\nsleep 1000 & sleep 1000\n")
        program.chmod(0o755)
        return AgyBackend(str(program))


Ask = Callable[..., Any]


@pytest.fixture
def ask(tmp_path: Path, run_id: str) -> Ask:
    """A function of what agy prints: the reply or error, what was told, and the program."""

    async def asked(
        lines: Iterable[dict[str, Any]],
        options: AgentOptions = NO_OPTIONS,
        session: str | None = None,
        **more: Any,
    ) -> tuple[AgentReply | AgentError, list[Any], Recording]:
        told: list[Any] = []
        program = put(tmp_path, lines, **more)
        turn = AgentTurn(
            "worker", "Do it: ü.", run_id, "a/b", session=session, options=options, emit=told.append
        )
        try:
            return await AgyBackend(str(program.path)).complete(turn), told, program
        except AgentError as error:
            return error, told, program

    return asked


async def test_a_turn_is_told_and_answered(ask: Ask) -> None:
    """Tools begin and end, a sub-agent's words are not the agent's, and tokens are all counted."""
    lines = [
        *answer("I look.")[:-1],
        tool(2, "ACTIVE"),
        step(0, "agent_response", "DONE", OTHER, text_delta="I am another."),
        tool(2, "DONE", output="3 passed"),
        tool(3, "ERROR", error={"type": "TOOL_ERROR", "message": DENIED}),
        step(4, "agent_response", "DONE", text_delta="All is well.\n"),
        result(response="All is well.\n", denied_actions=[{"display_name": "not told twice"}]),
    ]
    reply, told, _ = await ask(lines)
    assert (reply.text, reply.session, reply.model) == ("All is well.", TALK, "gemini-x")
    assert reply.usage == Usage(900, 30, cached_tokens=400, reasoning_tokens=10)
    assert reply.denials == ("run_command",)
    kinds = (AgentSessionStarted, AgentMessage, AgentToolStarted, AgentToolCompleted,
             AgentPermission)  # fmt: skip
    path, ids = "a/b", [f"{TALK}/2", f"{TALK}/3"]
    assert [one for one in told if isinstance(one, kinds)] == [
        AgentSessionStarted(path, TALK, "agy", "gemini-x"),
        AgentMessage(path, "I look.\n"),
        AgentToolStarted(path, ids[0], "run_command", CALL["parameters"]),
        AgentToolCompleted(path, ids[0], "run_command", True, "3 passed", None),
        AgentToolStarted(path, ids[1], "run_command", CALL["parameters"]),
        AgentPermission(path, "run_command", "denied", DENIED),
        AgentToolCompleted(path, ids[1], "run_command", False, DENIED, None),
        AgentMessage(path, "All is well.\n"),
    ]


@pytest.mark.parametrize(
    ("options", "session", "words"),
    [
        ({"permission": "workspace"}, None, "--mode accept-edits --add-dir ."),
        ({"permission": "full"}, None, "--dangerously-skip-permissions --add-dir ."),
        ({"model": "m", "add_dirs": ["more"]}, None, "--model m --add-dir . --add-dir ./more"),
        ({"extra_args": ["-x"]}, TALK, f"--add-dir . -x --conversation {TALK}"),
    ],
)
async def test_options_are_arguments(
    ask: Ask, tmp_path: Path, options: dict[str, Any], session: str | None, words: str
) -> None:
    """What it is to do is in its arguments, and the prompt in none of them."""
    _, _, program = await ask(answer("ok"), AgentOptions(cwd=tmp_path, **options), session)
    always = "--input-format stream-json --output-format stream-json --print-timeout 12h "
    given = always + words.replace(" .", f" {tmp_path}")
    assert program.argv == given.split()
    asked = {"event": "user", "message": {"content": "Do it: ü."}}
    assert json.loads(program.call["stdin"]) == asked


def test_what_it_cannot_do_is_refused_by_name() -> None:
    """It has no flag for these, and no level at which it only reads."""
    given: dict[str, Any] = {"effort": "low", "max_turns": 3, "mcp_servers": {"a": {"url": "u"}}}
    lacking = AgyBackend.capabilities.lacking(AgentOptions(**given, permission="read_only"))
    assert set(lacking) == {*given, "permission='read_only'"}


def failed(error: str, **more: Any) -> list[dict[str, Any]]:
    """The lines of a turn that fails."""
    return [init(), result("ERROR", error=error, **more)]


@pytest.mark.parametrize(
    ("lines", "more", "kind"),
    [
        ([result("ERROR", error="authentication required")], {"code": 1}, "auth"),
        ([result("ERROR", error="invalid model selection: m")], {"code": 1}, "bad_request"),
        (failed(QUOTA), {"code": 3}, "usage_cap"),
        (failed("AI credits balance is too low"), {"code": 3}, "spending_cap"),
        (failed("RESOURCE_EXHAUSTED (code 429)"), {"code": 3}, "rate_limit"),
        (failed("model request failed"), {"code": 1}, "transient"),
        (failed("exceeds the maximum number of tokens"), {}, "context_overflow"),
        ([init(), result("CANCELED")], {}, "config"),
        ([init(), result(response="So far", usage=NONE_USED)], {"stderr": UNFINISHED}, "timeout"),
        ([], {"code": 2, "stderr": "flags provided but not defined: -input-format"}, "config"),
    ],
)
async def test_a_failure_has_its_kind(
    ask: Ask, lines: list[dict[str, Any]], more: dict[str, Any], kind: str
) -> None:
    """By its status and its words, never by its exit code; with the time at which it passes."""
    error, _, _ = await ask(lines, **more)
    assert error.kind == kind
    at = time.time() + 2 * 3600 + 13 * 60 + 19 if kind == "usage_cap" else None
    assert error.retry_at == (at and pytest.approx(at, abs=60))


async def test_another_conversation_is_no_answer(ask: Ask) -> None:
    """It begins one where it lacks the one that it is to go on in; nothing of that counts."""
    error, told, _ = await ask(answer("Who are you?"), session=OTHER)
    assert (error.kind, error.session, OTHER in error.reason) == ("bad_request", None, True)
    assert not [one for one in told if isinstance(one, (AgentMessage, AgentSessionStarted))]


async def test_what_no_step_told_was_denied_is_told_at_the_end(ask: Ask) -> None:
    """A success may be no more than that."""
    reply, _, _ = await ask([init(), result(denied_actions=[{"display_name": "run_command"}])])
    assert (reply.text, reply.denials) == ("", ("run_command",))
