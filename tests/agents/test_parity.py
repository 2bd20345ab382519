"""One contract for all backends: the same notices at the same moments, kinds and reply fields."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail.agents.command import CommandBackend
from handrail.agents.registry import make_backend
from handrail.errors import AgentError, WrongUse
from handrail.model import events as ev
from handrail.model.agent_options import AgentOptions
from handrail.ports.agent import AgentBackend, AgentReply, AgentTurn, capabilities_of
from handrail.system.marker import carries
from handrail.system.procfs import environ_of, live_pids
from handrail.testing import plugin
from handrail.testing.fake_programs import Dies, Fails, FakeCli, Garbage, Hangs, Says, Tool
from tests.agents.fake_program import install, path_with
from tests.agents.recorded import ending_of

PROGRAMS = {
    "claude": "claude",
    "codex": "codex",
    "codex-exec": "codex",
    "copilot": "copilot",
    "gemini": "gemini",
    "opencode": "opencode",
}
NO_WORDS_FOR = {("opencode", "usage_cap"), ("gemini", "spending_cap")}
"""Failures that a protocol has no form for."""
ONLY_ITS_LAST_CALL = {"opencode"}
"""What tells the tokens of its last call alone: those of an answer with tools are unknown."""
Ask = Callable[..., Any]
fake_cli = plugin.fake_cli  # where handrail is not installed pytest does not find it
Install = Callable[..., FakeCli]
RECORDED = {"gemini-cli": ("gemini", "bad_resume"), "opencode-run": ("opencode", "resume_3_bad")}
"""Backends of the same programs by other protocols, and how these refuse an unknown session."""
with_a_protocol = pytest.mark.parametrize("name", PROGRAMS)
all_programs = pytest.mark.parametrize("name", [*PROGRAMS, *RECORDED, "command"])


@pytest.fixture
def ask(tmp_path: Path, run_id: str) -> Ask:
    """A function of a backend's name: its reply or error to one prompt, and what it told."""

    async def asked(name: str, **given: Any) -> tuple[AgentReply | AgentError, list[Any]]:
        told: list[Any] = []
        options = AgentOptions(permission="full", cwd=tmp_path, **given.pop("options", {}))
        turn = AgentTurn(
            agent="worker",
            prompt="Do it.",
            run_id=run_id,
            path="a/b",
            emit=told.append,
            options=options,
            **given,
        )
        try:
            return await backend_of(name).complete(turn), told
        except AgentError as error:
            return error, told

    return asked


def backend_of(name: str) -> AgentBackend:
    """The backend of a name; ``command`` is any program."""
    return CommandBackend(["any-program"]) if name == "command" else make_backend(name)


def shape(told: list[Any]) -> list[str]:
    """The kinds of what was told, without raw lines, repeated ones of a kind once."""
    kinds: list[str] = []
    for one in told:
        kind = type(one).__name__
        if kind not in ("AgentTranscript", "StepOutput") and kinds[-1:] != [kind]:
            kinds.append(kind)
    return kinds


@with_a_protocol
async def test_an_answer_is_told_in_the_same_order(name: str, ask: Ask, fake_cli: Install) -> None:
    """Session, thoughts, tool begun and ended, the message, usage, and last that it is done."""
    fake_cli(PROGRAMS[name], [Says("It is done.", tools=[Tool("ls", "a.py\n")], reasoning="Hm.")])
    reply, told = await ask(name)
    assert isinstance(reply, AgentReply), reply
    usage = [] if name in ONLY_ITS_LAST_CALL else ["AgentUsage"]
    assert shape(told) == [
        "AgentSessionStarted",
        "AgentReasoning",
        "AgentToolStarted",
        "AgentToolCompleted",
        "AgentMessage",
        *usage,
        "AgentFinished",
    ]
    assert {one.path for one in told} == {"a/b"}
    (started,) = [one for one in told if isinstance(one, ev.AgentToolStarted)]
    (ended,) = [one for one in told if isinstance(one, ev.AgentToolCompleted)]
    assert (started.id, ended.ok) == (ended.id, True)
    assert ended.exit_code in (0, None)  # not every protocol has it
    assert "a.py" in ended.output


@with_a_protocol
async def test_a_reply_has_the_same_fields(name: str, ask: Ask, fake_cli: Install) -> None:
    """The last message, the session that was told, tokens with the cached ones among them."""
    fake_cli(PROGRAMS[name], [Says("It is done.")])
    reply, told = await ask(name)
    assert isinstance(reply, AgentReply), reply
    (session,) = [one for one in told if isinstance(one, ev.AgentSessionStarted)]
    finished = told[-1]
    assert reply.text == "It is done."
    assert reply.session == session.session == finished.session
    assert (finished.status, finished.kind, finished.error) == ("completed", "", "")
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (1900, 25)
    assert finished.usage == reply.usage


@with_a_protocol
@pytest.mark.parametrize(
    "kind",
    ["rate_limit", "usage_cap", "spending_cap", "context_overflow", "auth", "transient",
     "bad_request"],
)  # fmt: skip
async def test_a_failure_has_the_same_kind(
    name: str, kind: Any, ask: Ask, fake_cli: Install
) -> None:
    """Whatever the program's own words are; and the last notice says so."""
    if (name, kind) in NO_WORDS_FOR:
        with pytest.raises(WrongUse, match="no words for"):
            fake_cli(PROGRAMS[name], [Fails(kind)])
        return
    fake_cli(PROGRAMS[name], [Fails(kind)])
    error, told = await ask(name)
    assert isinstance(error, AgentError), error
    assert error.kind == kind
    assert error.agent == "worker"
    assert error.reason.strip()
    assert not error.reason.startswith("{")  # people read it
    assert isinstance(told[-1], ev.AgentFinished)
    assert (told[-1].status, told[-1].kind) == ("failed", kind)


@with_a_protocol
@pytest.mark.parametrize(
    ("act", "kind"),
    [
        (Dies(after="start"), "crashed"),
        (Dies(after="start", exit_code=0), "crashed"),
        (Dies(after="tool", signal=9, says=Says(tools=["ls"])), "crashed"),
        (Garbage(), "crashed"),
    ],
    ids=["exit 1", "exit 0", "killed in a tool", "garbage"],
)
async def test_an_end_without_the_programs_own_word_is_a_crash(
    name: str, act: Any, kind: str, ask: Ask, fake_cli: Install
) -> None:
    """The exit code decides nothing."""
    fake_cli(PROGRAMS[name], [act])
    error, told = await ask(name)
    assert isinstance(error, AgentError), error
    assert error.kind == kind
    assert told[-1].kind == kind


@with_a_protocol
async def test_a_hang_is_a_timeout(name: str, ask: Ask, fake_cli: Install, run_id: str) -> None:
    """A program that falls silent is ended, and its session can be gone on in."""
    fake_cli(PROGRAMS[name], [Hangs(after="start", leaves_child=True)])
    error, told = await ask(name, options={"idle_timeout_s": 0.5})
    assert isinstance(error, AgentError), error
    assert error.kind == "timeout"
    assert error.session is not None
    assert told[-1].kind == "timeout"
    assert [pid for pid in live_pids() if carries(environ_of(pid), run_id, below=True)] == []


@with_a_protocol
async def test_a_result_before_a_hang_counts(name: str, ask: Ask, fake_cli: Install) -> None:
    """A program that has said that it is done is not waited for."""
    fake_cli(PROGRAMS[name], [Hangs(after="result", says=Says("It is done."))])
    reply, _ = await ask(name, options={"idle_timeout_s": 1})
    assert isinstance(reply, AgentReply), reply
    assert reply.text == "It is done."


@with_a_protocol
async def test_a_session_is_gone_on_in(name: str, ask: Ask, fake_cli: Install) -> None:
    """The same id again, and what is used is that of the turn and not of the session."""
    fake_cli(PROGRAMS[name], [Says("one"), Says("two")])
    first, _ = await ask(name)
    second, _ = await ask(name, session=first.session, session_usage=first.session_usage)
    assert isinstance(second, AgentReply), second
    assert (second.text, second.session) == ("two", first.session)
    assert second.usage is not None
    assert second.usage.input_tokens == 1900


@with_a_protocol
async def test_an_unknown_session_is_a_bad_request(name: str, ask: Ask, fake_cli: Install) -> None:
    """Whatever the program's own words are; and no session is named that could be gone on in."""
    fake_cli(PROGRAMS[name], [Says("never")]).knows("another")
    error, told = await ask(name, session="11111111-2222-3333-4444-555555555555")
    assert isinstance(error, AgentError), error
    assert (error.kind, error.session) == ("bad_request", None)
    assert "11111111-2222-3333-4444-555555555555" in error.reason
    assert (told[-1].status, told[-1].kind, told[-1].session) == ("failed", "bad_request", None)


@pytest.mark.parametrize("name", RECORDED)
async def test_an_unknown_session_is_a_bad_request_on_stderr_too(
    name: str, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only of a turn that was to go on in one; the same words are a wrong setting otherwise."""
    program, case = RECORDED[name]
    ending = ending_of(program, case)
    install(tmp_path, program, stderr=ending.stderr, code=ending.exit_code or 0)
    monkeypatch.setenv("PATH", path_with(tmp_path))
    error, told = await ask(name, session="11111111-2222")
    assert (error.kind, error.session) == ("bad_request", None)
    assert (told[-1].status, told[-1].kind, told[-1].session) == ("failed", "bad_request", None)
    error, _ = await ask(name)
    assert error.kind == "config"


@all_programs
async def test_a_program_that_is_not_there_is_not_installed(
    name: str, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No program, one kind; and that is all that is told."""
    monkeypatch.setenv("PATH", "")
    error, told = await ask(name)
    assert isinstance(error, AgentError), error
    assert error.kind == "not_installed"
    assert [(type(one), one.kind) for one in told] == [(ev.AgentFinished, "not_installed")]


@pytest.mark.parametrize("name", [*PROGRAMS, "command"])
async def test_a_turn_that_is_cancelled_says_so_last(
    name: str, fake_cli: Install, tmp_path: Path, run_id: str
) -> None:
    """The end is told as an interruption, once, and nothing of the program is left."""
    told: list[Any] = []
    backend: AgentBackend = CommandBackend("sleep 1000 & echo begun; exec sleep 1000")
    if name != "command":
        fake_cli(PROGRAMS[name], [Hangs(after="start", leaves_child=True)])
        backend = make_backend(name)
    with anyio.CancelScope() as scope:

        def emit(notice: Any) -> None:
            told.append(notice)
            if isinstance(notice, (ev.AgentSessionStarted, ev.AgentMessage)):
                scope.cancel()

        options = AgentOptions(cwd=tmp_path)
        await backend.complete(
            AgentTurn("worker", "Do it.", run_id, "a/b", emit=emit, options=options)
        )
    ends = [one for one in told if isinstance(one, ev.AgentFinished)]
    assert [(end.status, end.kind) for end in ends] == [("interrupted", "interrupted")]
    assert told[-1] is ends[0]
    assert [pid for pid in live_pids() if carries(environ_of(pid), run_id, below=True)] == []


@with_a_protocol
async def test_it_declares_what_it_can(name: str, ask: Ask, fake_cli: Install) -> None:
    """Its capabilities name options that exist, and its probe finds the program."""
    del ask
    fake_cli(PROGRAMS[name], [])
    backend: Any = make_backend(name)
    capabilities = capabilities_of(backend)
    assert capabilities.sessions
    assert {"model", "permission", "cwd", "env"} <= capabilities.options
    probe = await backend.probe()
    assert (probe.found, bool(probe.version)) == (True, True)
