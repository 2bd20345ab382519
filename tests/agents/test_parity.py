"""One contract for all backends: the same notices at the same moments, kinds and reply fields.

Each test is of all of them. What one cannot do by its nature is named in ``parity/lacks.py``, and
is asserted to be lacking.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail import Agent, Executor, Steps, step, workflow
from handrail.agents.routes import backend_names
from handrail.agents.transport.turn import run_turn
from handrail.errors import AgentError
from handrail.model import events as ev
from handrail.model.agent_options import OPTION_NAMES, AgentOptions
from handrail.ports.agent import AgentBackend, AgentReply, AgentTurn, capabilities_of
from handrail.system.marker import carries, environ_of, live_pids
from handrail.testing import plugin
from handrail.testing.fake_programs import Dies, Fails, Garbage, Hangs, Says, Tool
from tests.agents.conftest import BOTH_LOOPS
from tests.agents.parity.lacks import USAGE_AFTER, has, kind_for
from tests.agents.parity.stages import PROGRAMS, Stage, bare

Ask = Callable[..., Any]
fake_cli = plugin.fake_cli  # where handrail is not installed pytest does not find it
NAMES = [*PROGRAMS, "command", "api", "fake"]
ENDS = {
    "exit 1": Dies(after="start"),
    "exit 0": Dies(after="start", exit_code=0),
    "killed in a tool": Dies(after="tool", signal=9, says=Says(tools=["ls"])),
    "garbage": Garbage(),
}
UNKNOWN = "11111111-2222-3333-4444-555555555555"
every_backend = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.extra("pydantic_ai") if name == "api" else ())
     for name in NAMES],
)  # fmt: skip
every_program = pytest.mark.parametrize("name", [*PROGRAMS, "command"])
SIGNS: dict[str, type[Any]] = {
    "command": ev.StepOutput,
    "api": ev.AgentSessionStarted,
    "fake": ev.AgentTurnStarted,
}
"""That an agent is at work, where that is not told by a tool that begins."""


@pytest.fixture
def stage(tmp_path: Path, fake_cli: Callable[..., Any]) -> Callable[..., AgentBackend]:
    """A function of a backend's name and acts: that backend, for which they come true in order."""
    return Stage(tmp_path, fake_cli).set


@pytest.fixture
def ask(tmp_path: Path, run_id: str) -> Ask:
    """A function of a backend: its reply or error to one prompt, and what it told."""

    async def asked(
        backend: AgentBackend, **given: Any
    ) -> tuple[AgentReply | AgentError, list[Any]]:
        told: list[Any] = []
        turn = turn_of(backend, tmp_path, run_id, emit=told.append, **given)
        try:
            return await backend.complete(turn), told
        except AgentError as error:
            return error, told

    return asked


def turn_of(
    backend: AgentBackend,
    folder: Path,
    run_id: str,
    *,
    idle_s: float | None = None,
    permission: str = "full",
    **given: Any,
) -> AgentTurn:
    """A turn in this folder, in which the backend may do this, as far as it can be told."""
    can = capabilities_of(backend)
    told: dict[str, Any] = {"cwd": folder}
    if permission in can.permissions:
        told["permission"] = permission
    options = AgentOptions(
        idle_timeout_s=idle_s, **{name: one for name, one in told.items() if name in can.options}
    )
    return AgentTurn("worker", "Do it.", run_id, "a/b", options=options, **given)


def shape(told: list[Any]) -> list[str]:
    """The kinds of what was told, without raw lines, repeated ones of a kind once."""
    kinds: list[str] = []
    for one in told:
        kind = type(one).__name__
        if kind not in ("AgentTranscript", "StepOutput") and kinds[-1:] != [kind]:
            kinds.append(kind)
    return kinds


def of_type(told: list[Any], kind: type[Any]) -> list[Any]:
    """The notices of one kind."""
    return [one for one in told if isinstance(one, kind)]


def left_running(run_id: str) -> list[int]:
    """The processes that were started for this run and live on (Linux: by their marker)."""
    if sys.platform != "linux":
        return []
    return [pid for pid in live_pids() if carries(environ_of(pid), run_id, below=True)]


def test_every_backend_is_held_to_this_contract() -> None:
    """Those that have a name, and those that are made by hand."""
    assert {*backend_names(), "command", "fake"} == set(NAMES)


@every_backend
async def test_an_answer_is_told_in_the_same_order(name: str, ask: Ask, stage: Ask) -> None:
    """Session, thoughts, tool begun and ended, the message, usage, and last that it is done."""
    says = Says("It is done.", tools=[Tool("ls", "a.py\n")], reasoning="Hm.")
    reply, told = await ask(stage(name, says))
    assert isinstance(reply, AgentReply), reply
    assert shape(told) == list(in_order(name))
    assert {one.path for one in told} == {"a/b"}
    started, ended = of_type(told, ev.AgentToolStarted), of_type(told, ev.AgentToolCompleted)
    assert [one.id for one in started] == [one.id for one in ended]
    assert len(ended) == has(name, "tools")
    for one in ended:
        assert (one.ok, one.exit_code in (0, None)) == (True, True)  # not every protocol has it
        assert "a.py" in one.output


def in_order(name: str) -> list[str]:
    """What is told of an answer after a thought and a tool."""
    usage = ["AgentUsage"] if has(name, "usage of all calls") else []
    kinds = [
        *(["AgentSessionStarted"] if has(name, "sessions") else []),
        *(["AgentReasoning"] if has(name, "thoughts") else []),
        *(["AgentToolStarted", "AgentToolCompleted"] if has(name, "tools") else []),
        "AgentMessage",
        *(usage if has(name, "usage") else []),
        "AgentFinished",
    ]
    for kind in USAGE_AFTER.get(name, ()):
        kinds.insert(kinds.index(kind) + 1, "AgentUsage")
    return kinds


@every_backend
async def test_a_reply_has_the_same_fields(name: str, ask: Ask, stage: Ask) -> None:
    """The last message, the session that was told, tokens with the cached ones among them."""
    backend = stage(name, Says("It is done."))
    reply, told = await ask(backend)
    assert isinstance(reply, AgentReply), reply
    finished = told[-1]
    assert reply.text == "It is done."
    assert (finished.status, finished.kind, finished.error) == ("completed", "", "")
    sessions = [(one.session, one.backend) for one in of_type(told, ev.AgentSessionStarted)]
    assert sessions == ([(reply.session, backend.name)] if has(name, "sessions") else [])
    assert (reply.session is not None) == has(name, "sessions")
    assert reply.session == finished.session
    assert finished.usage == reply.usage
    if has(name, "usage"):
        assert reply.usage is not None
        assert (reply.usage.input_tokens, reply.usage.output_tokens) == (1900, 25)
        assert of_type(told, ev.AgentUsage)[-1].usage == reply.usage
    else:
        assert (reply.usage, reply.session_usage) == (None, None)
        assert of_type(told, ev.AgentUsage) == []


@every_backend
@pytest.mark.parametrize(
    "kind",
    ["rate_limit", "usage_cap", "spending_cap", "context_overflow", "auth", "bad_request"],
)
async def test_a_failure_has_the_same_kind(name: str, kind: Any, ask: Ask, stage: Ask) -> None:
    """Whatever the program's own words are; and the last notice says so. A plan that is used up is
    told as a limit before, with when it opens again as far as that is known.
    """
    error, told = await ask(stage(name, Fails(kind)))
    assert isinstance(error, AgentError), error
    assert error.kind == kind_for(name, kind, kind)
    assert error.agent == "worker"
    assert error.reason.strip()
    assert not error.reason.startswith("{")  # people read it
    assert isinstance(told[-1], ev.AgentFinished)
    assert (told[-1].status, told[-1].kind) == ("failed", error.kind or "")
    assert told[-1].error == error.reason
    assert told[-1].session == error.session
    reached = [one for one in of_type(told, ev.AgentLimit) if one.status == "reached"]
    if kind == "usage_cap":
        limits = [error.retry_at] * (error.kind == kind and has(name, "limits"))
        assert [one.reset_at for one in reached] == limits


@every_backend
async def test_what_was_before_a_failure_is_told(name: str, ask: Ask, stage: Ask) -> None:
    """A tool that failed, the last message, and what the program tried again by itself."""
    says = Says("Half done.", tools=[Tool("ls", "no such file\n", exit_code=2)])
    error, told = await ask(stage(name, Fails("transient", retries=2, says=says)))
    assert isinstance(error, AgentError), error
    assert (error.kind, error.text) == (kind_for(name, "transient", "transient"), "Half done.")
    assert (told[-1].status, told[-1].kind, told[-1].error) == (
        "failed",
        error.kind or "",
        error.reason,
    )
    tools = of_type(told, ev.AgentToolCompleted)
    assert [(one.ok, "no such file" in one.output) for one in tools] == (
        [(False, True)] if has(name, "tools") else []
    )
    retries = of_type(told, ev.AgentRetry)
    assert [one.attempt for one in retries] == ([1, 2] if has(name, "retries") else [])


@every_backend
@pytest.mark.parametrize("end", ENDS)
async def test_an_end_without_the_programs_own_word_is_a_crash(
    name: str, end: str, ask: Ask, stage: Ask
) -> None:
    """The exit code decides nothing, but for a program that has no other word."""
    outcome, told = await ask(stage(name, ENDS[end]))
    if name == "command" and end in ("exit 0", "garbage"):
        assert isinstance(outcome, AgentReply), outcome
        assert outcome.text == (Garbage().data.decode(errors="replace") if end == "garbage" else "")
        return
    assert isinstance(outcome, AgentError), outcome
    assert outcome.kind == kind_for(name, end, "crashed")
    assert (told[-1].status, told[-1].kind) == ("failed", outcome.kind or "")


@every_program
async def test_nothing_beside_a_good_turn_counts_or_is_left(
    name: str, ask: Ask, stage: Ask, run_id: str
) -> None:
    """Only what the program says of the turn counts, not what it logs beside it; what it has left
    in a session of its own is ended, though it exited by itself.
    """
    says = Says("fine", stderr="quota exceeded\nnetwork error\n429\n", leaves_child=True)
    reply, told = await ask(stage(name, says))
    assert isinstance(reply, AgentReply), reply
    assert (reply.text, told[-1].status) == ("fine", "completed")
    logged = [one.text for one in of_type(told, ev.StepOutput) if one.stream == "stderr"]
    assert "network error" in "".join(logged)
    assert left_running(run_id) == []


@BOTH_LOOPS
@every_backend
async def test_a_hang_is_a_timeout(name: str, ask: Ask, stage: Ask, run_id: str) -> None:
    """A program that falls silent is ended, and its session can be gone on in."""
    backend = stage(name, Hangs(after="start", leaves_child=True))
    if not has(name, "watchdogs"):
        with anyio.move_on_after(0.3) as patience:
            await ask(backend, idle_s=0.05)
        assert patience.cancelled_caught
        return
    error, told = await ask(backend, idle_s=0.5)
    assert isinstance(error, AgentError), error
    assert error.kind == "timeout"
    assert (error.session is not None) == has(name, "sessions")
    assert (told[-1].status, told[-1].kind) == ("failed", "timeout")
    assert left_running(run_id) == []


@every_backend
async def test_a_result_before_a_hang_counts(
    name: str, ask: Ask, stage: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that has said that it is done is not waited for."""
    monkeypatch.setitem(run_turn.__kwdefaults__, "grace_s", 0.5)
    backend = stage(name, Hangs(after="result", says=Says("It is done.")))
    if not has(name, "watchdogs"):
        with anyio.move_on_after(0.1) as patience:
            await ask(backend)
        assert patience.cancelled_caught
        return
    outcome, told = await ask(backend, idle_s=0.5)
    if has(name, "its own last word"):
        assert isinstance(outcome, AgentReply), outcome
        assert (outcome.text, told[-1].status) == ("It is done.", "completed")
    else:
        assert isinstance(outcome, AgentError), outcome
        assert (outcome.kind, told[-1].kind) == ("timeout", "timeout")


@every_backend
async def test_a_session_is_gone_on_in(name: str, ask: Ask, stage: Ask) -> None:
    """The same id again, and what is used is that of the turn and not of the session."""
    backend = stage(name, Says("one"), Says("two"))
    assert capabilities_of(backend).sessions == has(name, "sessions")
    first, _ = await ask(backend)
    second, told = await ask(backend, session=first.session, session_usage=first.session_usage)
    assert isinstance(second, AgentReply), second
    assert (second.text, second.session) == ("two", first.session)
    assert (told[-1].session, told[-1].usage) == (first.session, second.usage)
    if has(name, "usage"):
        assert second.usage is not None
        assert second.usage.input_tokens == 1900


@every_backend
async def test_a_fork_is_a_session_of_its_own(name: str, ask: Ask, stage: Ask) -> None:
    """Its id is a new one, told as such; what is used is that of the turn; the old one goes on."""
    backend = stage(name, Says("one"), Says("two"), Says("three"))
    assert capabilities_of(backend).fork == has(name, "forks")
    if not has(name, "forks") or name == "fake":  # whose sessions are what its script says
        return
    first, _ = await ask(backend)
    known = {"session": first.session, "session_usage": first.session_usage}
    fork, told = await ask(backend, **known, fork=True)
    assert isinstance(fork, AgentReply), fork
    assert fork.text == "two"
    assert fork.session not in (None, first.session)
    assert [one.session for one in of_type(told, ev.AgentSessionStarted)] == [fork.session]
    assert (told[-1].session, told[-1].usage) == (fork.session, fork.usage)
    third, _ = await ask(backend, **known)
    assert (third.text, third.session) == ("three", first.session)
    for reply in (fork, third):
        assert reply.usage is not None
        assert (reply.usage.input_tokens, reply.usage.output_tokens) == (1900, 25)


@every_backend
async def test_a_tool_that_is_not_allowed_is_told(name: str, ask: Ask, stage: Ask) -> None:
    """It is named in a notice and in the reply, and has not succeeded."""
    tool = Tool("rm -r build", "removed\n", asks=True)
    outcome, told = await ask(stage(name, Says("I may not.", tools=[tool])), permission="read_only")
    assert isinstance(outcome, AgentReply), outcome
    assert outcome.text == "I may not."
    decided = of_type(told, ev.AgentPermission)
    assert [one.decision for one in decided] == (["denied"] if has(name, "denials") else [])
    assert outcome.denials == tuple(one.tool for one in decided)
    assert all(one.tool for one in decided)
    is_denied = has(name, "tools") and name != "api"  # which may use whatever it has
    assert [one.ok for one in of_type(told, ev.AgentToolCompleted)] == (
        [not is_denied] if has(name, "tools") else []
    )


@every_backend
async def test_a_session_is_made_smaller_on_request(name: str, ask: Ask, stage: Ask) -> None:
    """That is told after the session, which is the same one, and before the answer."""
    backend = stage(name, Says("one"), Says("two"))
    can = capabilities_of(backend)
    if not has(name, "compaction"):
        assert not can.compact or name == "fake"
        return
    first, _ = await ask(backend)
    second, told = await ask(backend, session=first.session, compact=True)
    assert isinstance(second, AgentReply), second
    assert (second.text, second.session) == ("two", first.session)
    phases = [one.phase for one in of_type(told, ev.AgentCompaction)]
    assert phases == ["started", "completed"]
    kinds = shape(told)
    assert kinds[:2] == ["AgentSessionStarted", "AgentCompaction"]
    assert kinds.index("AgentCompaction") < kinds.index("AgentMessage")


@every_backend
async def test_a_value_fits_the_schema_that_was_asked_for(name: str, ask: Ask, stage: Ask) -> None:
    """It is the reply's where the model is held to a schema, and in the text in any case."""
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    backend = stage(name, Says(structured={"n": 1}))
    reply, _ = await ask(backend, schema=schema)
    assert isinstance(reply, AgentReply), reply
    assert capabilities_of(backend).schema == has(name, "values")
    assert (reply.has_value, reply.value) == (
        (True, {"n": 1}) if has(name, "values") else (False, None)
    )
    assert json.loads(reply.text) == {"n": 1}


@every_backend
async def test_an_unknown_session_is_a_bad_request(name: str, ask: Ask, stage: Ask) -> None:
    """Whatever the program's own words are; and no session is named that could be gone on in."""
    outcome, told = await ask(stage(name, Says("It is done.")), session=UNKNOWN)
    if not has(name, "known sessions"):
        assert isinstance(outcome, AgentReply), outcome
        assert outcome.session == (UNKNOWN if has(name, "sessions") else None)
        return
    assert isinstance(outcome, AgentError), outcome
    assert (outcome.kind, outcome.session) == ("bad_request", None)
    assert UNKNOWN in outcome.reason
    assert (told[-1].status, told[-1].kind, told[-1].session) == ("failed", "bad_request", None)


@every_backend
async def test_what_is_not_there_is_not_installed(
    name: str, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No program, or no library of a provider: one kind; and that is all that is told."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "groq", None)
    error, told = await ask(bare(name))
    if not has(name, "installation"):
        assert error.kind is None  # its script is empty
        return
    assert isinstance(error, AgentError), error
    assert error.kind == "not_installed"
    assert ("npm install -g" in error.hint) == (name in PROGRAMS)
    assert [(type(one), one.kind) for one in told] == [(ev.AgentFinished, "not_installed")]


@BOTH_LOOPS
@every_backend
async def test_a_turn_that_is_cancelled_says_so_last(
    name: str, stage: Ask, tmp_path: Path, run_id: str
) -> None:
    """The end is told as an interruption, once, and nothing of the program is left."""
    told: list[Any] = []
    backend = stage(name, Hangs(after="start", leaves_child=True))
    begun = (ev.AgentSessionStarted, ev.AgentMessage, ev.StepOutput)
    with anyio.CancelScope() as scope:

        def emit(notice: Any) -> None:
            told.append(notice)
            if isinstance(notice, begun):
                scope.cancel()

        await backend.complete(turn_of(backend, tmp_path, run_id, emit=emit))
    assert scope.cancelled_caught
    ends = of_type(told, ev.AgentFinished)
    assert [(end.status, end.kind) for end in ends] == [("interrupted", "interrupted")]
    assert told[-1] is ends[0]
    assert left_running(run_id) == []


@every_backend
async def test_what_a_person_says_goes_into_the_session(
    name: str, stage: Ask, tmp_path: Path
) -> None:
    """Of one at work, in place of the task; where it has none, or has not named it yet, with it."""
    sign = SIGNS.get(name, ev.AgentToolStarted)
    hangs = Hangs(after="tool", says=Says(tools=["ls"]))
    if sign is not ev.AgentToolStarted:
        hangs = Hangs(after="start", says=Says(stderr="ready"))
    backend = stage(name, hangs, Says("With tabs."))
    can = capabilities_of(backend)
    options = AgentOptions(**({"cwd": tmp_path} if "cwd" in can.options else {}))
    agent = Agent("worker", "Do it.", backend=backend, options=options)
    prompts: list[str] = []
    sessions: set[str] = set()

    @workflow
    def flow() -> Steps[str]:
        return (yield from step("code").agent(agent, {}).answer())

    with anyio.fail_after(60):
        async with Executor().stream(flow) as run:
            async for event in run:
                if isinstance(event, ev.AgentTurnStarted):
                    prompts.append(event.prompt)
                elif isinstance(event, ev.AgentSessionStarted):
                    sessions.add(event.session)
                if isinstance(event, sign) and len(prompts) == 1:
                    await anyio.sleep(0.05)  # those of this process begin to hang
                    run.guide("Use tabs.")
    assert run.result.value == "With tabs."
    first, second = prompts
    assert first == "Do it."
    assert "Use tabs." in second
    goes_on = has(name, "sessions") and name != "fake"  # which says its session with its answer
    assert ("Do it." in second) == (not goes_on)
    assert len(sessions) == has(name, "sessions")


@every_backend
async def test_it_declares_what_it_can(name: str, stage: Ask) -> None:
    """Its capabilities name options that exist, and its probe finds the program."""
    backend = stage(name)
    can = capabilities_of(backend)
    assert can.options <= set(OPTION_NAMES)
    assert (can.sessions, can.usage) == (has(name, "sessions"), has(name, "usage"))
    assert {"cwd", "env"} <= can.options or name == "api"
    assert ("model" in can.options) == (name != "command")
    assert hasattr(backend, "probe") == has(name, "probe")
    if has(name, "probe"):
        probe = await backend.probe()
        assert (probe.found, bool(probe.version)) == (True, True)
