"""A program's turn: what it says is passed on, and it is ended, whatever it does."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail.agents.transport.cli import Lines
from handrail.agents.transport.parser import Ending
from handrail.agents.transport.programs import Program
from handrail.agents.transport.turn import finished_notice, run_turn
from handrail.errors import AgentError, CommandNotFound
from handrail.model.agent_options import AgentOptions
from handrail.model.events import (
    AgentFinished,
    AgentMessage,
    AgentRetry,
    AgentTranscript,
    Notice,
    StepOutput,
)
from handrail.model.results import Usage
from handrail.ports.agent import AgentReply, AgentTurn
from tests.agents.conftest import BOTH_LOOPS
from tests.leftovers import nothing_left

pytestmark = pytest.mark.anyio

FOREVER = "trap 'exit 130' INT; while :; do sleep 0.05; done"


class Words:
    """Reads a protocol of plain words: ``tool``, ``tool done``, ``retry``, ``done``. Mutable.

    Any other line is a message; ``working`` means that it was not done after all.
    """

    def __init__(self) -> None:
        self.finished = False
        self.open_tools = 0
        self.extra_silence_s = 0.0
        self.said: list[str] = []
        self.ending: Ending | None = None

    def feed(self, line: bytes, /) -> Iterable[Notice]:
        """Lazily, as parsers may."""
        self.extra_silence_s = 0.0
        match line.decode("utf-8", "replace"):
            case "tool":
                self.open_tools += 1
            case "tool done":
                self.open_tools -= 1
            case "retry":
                self.extra_silence_s = 60.0
                yield AgentRetry("step", delay_s=60.0)
            case "done":
                self.finished = True
            case "working":
                self.finished = False
            case text:
                self.said.append(text)
                yield AgentMessage("step", text)

    def feed_stderr(self, line: bytes, /) -> Iterable[Notice]:
        """Some programs tell of retries there."""
        return [AgentRetry("step", reason="stderr")] if line == b"retry" else []

    def conclude(self, ending: Ending, /) -> AgentReply:
        """All messages, if it was done."""
        self.ending = ending
        if self.finished:
            return AgentReply("\n".join(self.said), session="s1", usage=Usage(output_tokens=3))
        kind = "timeout" if ending.stopped else "crashed"
        reason = ending.stopped or f"exited with {ending.exit_code}"
        raise AgentError(
            "worker",
            reason,
            kind="interrupted" if ending.stopped == "interrupted" else kind,
            session="s1",
        )


@pytest.fixture
def turn(emitted: list[Any]) -> Iterator[AgentTurn]:
    """A prompt of a run of its own; afterwards none of its processes lives, and no file is open."""
    run_id = f"run-{uuid.uuid4().hex}"
    with nothing_left(run_id):
        yield AgentTurn("worker", "Do it.", run_id, "step", emit=emitted.append, now=lambda: 1e9)


@pytest.fixture
def parser() -> Words:
    """A parser for one turn."""
    return Words()


@pytest.fixture
def ask(turn: AgentTurn, parser: Words) -> Callable[..., Any]:
    """A function that has a shell script answer the turn, within bounds."""

    async def ask(
        script: str | list[str], *, cwd: Path | None = None, **options: Any
    ) -> AgentReply:
        grace_s = options.pop("grace_s", 20)
        emit = options.pop("emit", turn.emit)
        at = options.pop("at", 1e9)
        with anyio.fail_after(30):
            return await run_turn(
                replace(turn, emit=emit, now=lambda: at, options=AgentOptions(cwd=cwd, **options)),
                ["/bin/sh", "-c", script] if isinstance(script, str) else script,
                Lines(parser, b"the prompt\n"),
                Program("agent", "npm install -g agent"),
                env=None,
                grace_s=grace_s,
            )

    return ask


def stopped_for(parser: Words) -> str | None:
    """Why the program was ended."""
    assert parser.ending is not None
    return parser.ending.stopped


# What is passed on


async def test_the_parsers_answer_is_the_reply(ask: Callable[..., Any], parser: Words) -> None:
    """A program reads the prompt and the end, answers, exits, and is concluded from."""
    reply = await ask("cat; echo oops >&2; echo done; exit 3")
    assert (reply.text, reply.session) == ("the prompt", "s1")
    assert parser.ending == Ending(3, None, "oops\n", 1e9, parser.ending.after_s)


async def test_all_that_is_heard_is_told_in_order(
    ask: Callable[..., Any], emitted: list[Any]
) -> None:
    """Each line comes as it was, then what it means; the turn's end is the last word."""
    await ask(r"printf 'a\377b\n'; echo retry; echo done")
    assert emitted == [
        AgentTranscript("step", "a\ufffdb"),
        AgentMessage("step", "a\ufffdb"),
        AgentTranscript("step", "retry"),
        AgentRetry("step", delay_s=60.0),
        AgentTranscript("step", "done"),
        AgentFinished("step", "completed", usage=Usage(output_tokens=3), session="s1"),
    ]


async def test_error_output_is_the_steps_and_the_parser_hears_it(
    ask: Callable[..., Any], emitted: list[Any]
) -> None:
    """A line of stderr is the step's output, and may mean something too."""
    await ask("echo retry >&2; echo done")
    assert StepOutput("step", "stderr", "retry\n") in emitted
    assert AgentRetry("step", reason="stderr") in emitted


async def test_no_answer_is_an_error_of_the_agent(
    ask: Callable[..., Any], emitted: list[Any]
) -> None:
    """The parser's error is raised, and is the last word too."""
    with pytest.raises(AgentError, match=r"agent 'worker' \(crashed\): exited with 0"):
        await ask("echo half")
    assert emitted[-1] == AgentFinished(
        "step", "failed", kind="crashed", error="exited with 0", session="s1"
    )


async def test_a_program_killed_from_outside_has_no_answer(
    ask: Callable[..., Any], parser: Words
) -> None:
    """A signal that was not ours shows as the exit code, and as no reason of ours."""
    with pytest.raises(AgentError, match="exited with -9"):
        await ask("echo half; kill -9 $$")
    assert stopped_for(parser) is None


# Programs that do not end


@BOTH_LOOPS
async def test_a_result_counts_though_the_program_hangs(
    ask: Callable[..., Any], parser: Words, emitted: list[Any]
) -> None:
    """One that has said that it is done, and does not go, is ended, and its answer is the reply."""
    reply = await ask(f"echo yes; echo done; setsid sleep 60 & {FOREVER}", grace_s=0.2)
    assert (reply.text, stopped_for(parser)) == ("yes", None)
    assert emitted[-1].status == "completed"


async def test_a_program_may_take_up_its_work_again(ask: Callable[..., Any], parser: Words) -> None:
    """One that goes on after it was done is waited for until it is done again."""
    reply = await ask("echo done; echo working; sleep 0.4; echo late; echo done", grace_s=0.2)
    assert (reply.text, stopped_for(parser)) == ("late", None)


@BOTH_LOOPS
@pytest.mark.parametrize(
    ("said", "options", "stopped"),
    [
        (":", {"start_timeout_s": 0.2}, "start_timeout"),
        ("echo tool", {"tool_timeout_s": 0.2}, "idle_timeout"),
        ("echo tool; echo tool done", {"idle_timeout_s": 0.2}, "idle_timeout"),
        ("echo a", {"timeout_s": 0.2}, "timeout"),
    ],
)
async def test_silence_ends_a_program(
    ask: Callable[..., Any], parser: Words, said: str, options: dict[str, float], stopped: str
) -> None:
    """A program that hangs is ended when its time is over, and the parser is told which time."""
    with pytest.raises(AgentError, match=stopped):
        await ask(f"{said}; setsid sleep 60 & {FOREVER}", **options)
    assert stopped_for(parser) == stopped
    assert parser.ending is not None
    assert parser.ending.after_s == 0.2  # what it had, not how long it took to end it


@BOTH_LOOPS
async def test_the_total_time_ends_a_program_that_is_never_silent(
    ask: Callable[..., Any], parser: Words
) -> None:
    """Endless output is life, but not beyond the time for the answer."""
    with pytest.raises(AgentError, match="timeout"):
        await ask("exec yes", timeout_s=0.2)
    assert stopped_for(parser) == "timeout"


@BOTH_LOOPS
@pytest.mark.parametrize(
    ("said", "options"),
    [
        ("echo tool", {"idle_timeout_s": 0.3}),
        ("echo retry", {"idle_timeout_s": 0.3}),
        ("printf . >&2", {"start_timeout_s": 0.3}),
    ],
    ids=["tool at work", "asked for time", "a byte"],
)
async def test_a_program_that_showed_life_is_given_time(
    ask: Callable[..., Any], said: str, options: dict[str, float]
) -> None:
    """Silence after a sign of life is measured by what the sign means."""
    assert (await ask(f"{said}; sleep 0.4; echo; echo late; echo done", **options)).text == "\nlate"


@BOTH_LOOPS
async def test_what_it_says_while_it_is_ended_is_heard(ask: Callable[..., Any]) -> None:
    """A result that comes on the interruption reaches the parser, which judges it."""
    script = "trap 'echo late; echo done; exit' INT; echo a; while :; do sleep 0.05; done"
    assert (await ask(script, idle_timeout_s=0.2)).text == "a\nlate"


# Cancellation


@BOTH_LOOPS
async def test_a_cancelled_turn_ends_the_program_and_says_so(
    ask: Callable[..., Any], parser: Words, emitted: list[Any]
) -> None:
    """The last word is that it was interrupted, with the session that can be gone on in."""

    def hear(notice: Notice) -> None:
        emitted.append(notice)
        scope.cancel()

    with anyio.fail_after(20), anyio.CancelScope() as scope:
        await ask(f"setsid sleep 60 & echo a; {FOREVER}", emit=hear)
    assert scope.cancelled_caught
    assert emitted[-1] == AgentFinished("step", "interrupted", kind="interrupted", session="s1")
    assert stopped_for(parser) == "interrupted"


# Programs that cannot be started


async def test_a_program_that_is_not_installed_says_how_to_get_it(
    ask: Callable[..., Any], emitted: list[Any]
) -> None:
    """The kind, the program and the command that brings it are in the error."""
    with pytest.raises(AgentError, match="cannot start 'no-such-agent'") as caught:
        await ask(["no-such-agent"])
    assert (caught.value.kind, caught.value.agent) == ("not_installed", "worker")
    assert "Install agent: npm install -g agent" in caught.value.hint
    assert isinstance(caught.value.__cause__, CommandNotFound)
    assert [(type(one), one.kind) for one in emitted] == [(AgentFinished, "not_installed")]


async def test_a_program_that_is_gone_may_be_updating_itself_for_minutes(
    ask: Callable[..., Any], tmp_path: Path
) -> None:
    """Only if it ran before, and each time anew; then it was removed."""
    program = tmp_path / "agent"
    kinds: list[str] = []
    for at, is_there in enumerate([False, True, False, False, True, False, False]):
        if is_there:
            program.write_text("#!/bin/sh\necho done\n")
            program.chmod(0o755)
            await ask([str(program)])
            continue
        program.unlink(missing_ok=True)
        with pytest.raises(AgentError) as caught:
            await ask([str(program)], at=1e9 + at * 299)
        kinds.append(caught.value.kind)
    with pytest.raises(AgentError, match="Install agent") as caught:
        await ask([str(program)], at=1e9 + 6 * 299 + 2)
    kinds.append(caught.value.kind)
    assert kinds == ["not_installed", *["transient"] * 4, "not_installed"]


async def test_a_folder_that_is_not_there_is_no_missing_program(
    ask: Callable[..., Any], tmp_path: Path
) -> None:
    """A wrong working folder is a matter of configuration."""
    with pytest.raises(AgentError, match=r"working directory .* does not exist") as caught:
        await ask("true", cwd=tmp_path / "gone")
    assert caught.value.kind == "config"


@BOTH_LOOPS
async def test_an_error_of_a_listener_comes_out(ask: Callable[..., Any]) -> None:
    """What ``emit`` raises reaches the caller, after the program has ended."""

    def refuse(notice: Notice) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await ask(f"echo a; {FOREVER}", emit=refuse)


# The last word


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (
            AgentReply("a", model="m", session="s", usage=Usage(1)),
            AgentFinished("p", "completed", usage=Usage(1), model="m", session="s"),
        ),
        (
            AgentError("a", "why", kind="auth", model="m", session="s", usage=Usage(1)),
            AgentFinished("p", "failed", "auth", "why", Usage(1), "m", "s"),
        ),
        (
            AgentError("a", "why", kind="interrupted"),
            AgentFinished("p", "interrupted", "interrupted", "why"),
        ),
        (LookupError("why"), AgentFinished("p", "failed", error="LookupError: why")),
        (KeyboardInterrupt(), AgentFinished("p", "interrupted", kind="interrupted")),
    ],
)
def test_the_last_word_says_how_it_ended(
    outcome: AgentReply | BaseException, expected: AgentFinished
) -> None:
    """A reply is a completion, a cancellation an interruption, and the rest a failure."""
    assert finished_notice("p", outcome) == expected
