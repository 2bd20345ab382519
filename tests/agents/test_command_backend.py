"""Any program is a backend: prompt on stdin, answer on stdout."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail.agents.agent import Agent
from handrail.agents.command import KEPT_BYTES, CommandBackend, CommandParser, _patience
from handrail.agents.routes import routes_of
from handrail.agents.transport.cli import Lines
from handrail.agents.transport.parser import Ending
from handrail.agents.transport.programs import Program
from handrail.agents.transport.turn import Patience, Signs, deadline, run_turn
from handrail.errors import AgentError, CommandNotFound, DefinitionError, WrongUse
from handrail.model.agent_options import NO_SETTINGS, AgentOptions
from handrail.model.events import (
    AgentFinished,
    AgentMessage,
    AgentTranscript,
    AgentTurnStarted,
    StepOutput,
)
from handrail.ports.agent import AgentBackend, AgentReply, AgentTurn
from handrail.testing.contracts.backend import BackendContract
from tests.agents.conftest import BOTH_LOOPS, MakeRequest


@pytest.fixture
def turn(run_id: str) -> AgentTurn:
    """A prompt for the program."""
    return AgentTurn(agent="worker", prompt="Do it.", run_id=run_id, path="step")


class TestCommandBackend(BackendContract):
    @pytest.fixture
    def make_backend(self) -> Callable[[str], AgentBackend]:
        """Programs that print the text."""
        return lambda answer: CommandBackend(["printf", "%s", answer])

    @pytest.fixture
    def failing_backend(self) -> AgentBackend:
        """A program that prints something, and fails."""
        return CommandBackend("cat; echo 'no credit' >&2; exit 3")

    @pytest.fixture
    def endless_backend(self) -> AgentBackend:
        """A program that waits, and has another one in the background."""
        return CommandBackend("sleep 1000 & sleep 1000")


async def test_the_program_reads_the_prompt_and_prints_the_answer(
    make_request: MakeRequest,
) -> None:
    """The prompt is the program's whole input, its output the answer."""
    agent = Agent("shout", "Shout {{ word }}", backend=CommandBackend(["tr", "a-z", "A-Z"]))
    assert (await agent.run(make_request({"word": "ünder"}))).output == "SHOUT üNDER"


async def test_a_program_is_asked_again_with_all_it_needs(
    climb: Callable[..., Any], make_request: MakeRequest
) -> None:
    """A program remembers nothing, so its second prompt has the task, its answer and the reason."""
    code = (
        "import sys; prompt = sys.stdin.read(); "
        "asked_again = all(part in prompt for part in ('Count it.', 'many', 'not accepted')); "
        "print(41 + asked_again if 'not accepted' in prompt else 'many')"
    )
    agent = Agent(
        "count", "Count it.", output=int, backend=CommandBackend([sys.executable, "-c", code])
    )
    result = await climb(agent, make_request())
    assert (result.output, result.attempts) == (42, 2)


async def test_what_it_prints_is_progress(make_request: MakeRequest, emitted: list[Any]) -> None:
    """Its stdout is emitted as the agent's message, its stderr as the step's output."""
    backend = CommandBackend("echo thinking >&2; sleep 0; echo done")
    await Agent("worker", "Do it.", backend=backend).run(make_request())
    assert AgentTurnStarted("work/plan", 1, "Do it.", "echo") in emitted
    assert StepOutput("work/plan", "stderr", "thinking\n") in emitted
    assert AgentMessage("work/plan", "done\n") in emitted


async def test_a_turn_is_told_line_by_line(turn: AgentTurn) -> None:
    """The lines with their ends, and last that it is done; the reply is what was printed."""
    told: list[Any] = []
    backend = CommandBackend(r"printf 'one\r\ntwo\n\nthree'")
    reply = await backend.complete(replace(turn, emit=told.append))
    assert reply == AgentReply("one\r\ntwo\n\nthree")
    assert [notice for notice in told if not isinstance(notice, AgentTranscript)] == [
        AgentMessage("step", "one\r\n"),
        AgentMessage("step", "two\n"),
        AgentMessage("step", "\n"),
        AgentMessage("step", "three"),
        AgentFinished("step", "completed"),
    ]


async def test_options_come_before_the_backends_own(turn: AgentTurn, tmp_path: Path) -> None:
    """Folder and timeout are those of the turn, and the variables of both are there."""
    backend = CommandBackend(
        'echo "$(pwd) $ONE $TWO"', cwd="/", env={"ONE": "a", "TWO": "a"}, timeout=30
    )
    options = AgentOptions(cwd=tmp_path, env={"TWO": "b"})
    reply = await backend.complete(replace(turn, options=options))
    assert reply.text == f"{tmp_path} a b\n"
    assert backend.options == AgentOptions(cwd="/", env={"ONE": "a", "TWO": "a"}, timeout_s=30)


def test_a_fallback_keeps_its_own_folder() -> None:
    """Of two programs of one name each has its own settings."""
    first, second = CommandBackend(["x", "1"], cwd="/one"), CommandBackend(["x", "2"], cwd="/two")
    agent = Agent("a", "x", backend=first, fallback=[second])
    routes = routes_of(agent, NO_SETTINGS, NO_SETTINGS)
    assert [route.options.cwd for route in routes] == ["/one", "/two"]


async def test_folder_and_environment_are_the_programs(turn: AgentTurn, tmp_path: Path) -> None:
    """It runs in cwd, with env added to the environment, under the marker of its step."""
    backend = CommandBackend(
        'echo "$(pwd) $WORD $HANDRAIL_STEP"', cwd=tmp_path, env={"WORD": "secret"}
    )
    reply = await backend.complete(turn)
    assert reply.text == f"{tmp_path} secret {turn.run_id}/step\n"
    assert "secret" not in repr(backend)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (
            "echo half; echo 'no credit' >&2; exit 3",
            "agent 'worker': 'echo' exited with 3: no credit",
        ),
        ("echo 'only here'; exit 1", "'echo' exited with 1: only here"),
        ("exit 1", "'exit' exited with 1 and said nothing"),
        ("kill -9 $$", "'kill' was ended by signal 9 and said nothing"),
    ],
)
async def test_a_program_that_fails_says_why(turn: AgentTurn, argv: Any, said: str) -> None:
    """The error has the agent, the program, how it ended, and what it said last."""
    with pytest.raises(AgentError, match=said):
        await CommandBackend(argv).complete(turn)


async def test_a_long_complaint_is_told_by_its_end(turn: AgentTurn) -> None:
    """Of 100,000 characters on stderr the error has the last 2,000."""
    code = "import sys; sys.exit('x' * 100_000 + 'the reason')"
    with pytest.raises(AgentError, match=r"\.\.\.x+the reason$") as caught:
        await CommandBackend([sys.executable, "-c", code]).complete(turn)
    assert len(str(caught.value)) < 2_100


async def test_a_program_that_is_not_there_is_the_cause(turn: AgentTurn) -> None:
    """The error that says why it was not started is the cause of the agent's, with all its help."""
    with pytest.raises(AgentError, match="cannot start 'no-such agent x': no program") as caught:
        await CommandBackend(["no-such agent x"]).complete(turn)
    assert isinstance(caught.value.__cause__, CommandNotFound)
    assert caught.value.kind == "not_installed"
    assert "write them as separate words" in str(caught.value)
    assert "executable=" not in str(caught.value)


@pytest.mark.parametrize("argv", ["exit 3", "kill -9 $$", f"head -c {9 << 20} /dev/zero; exit 3"])
async def test_the_exit_of_any_program_has_no_kind(turn: AgentTurn, argv: str) -> None:
    """It is the program's own word, so no launch follows it and the step's .retry decides."""
    with pytest.raises(AgentError) as caught:
        await CommandBackend(argv).complete(turn)
    assert caught.value.kind is None


@BOTH_LOOPS
async def test_a_timeout_ends_the_program(turn: AgentTurn) -> None:
    """A turn that takes longer fails with the time it had and what the program said."""
    backend = CommandBackend("echo waiting for the model >&2; exec sleep 1000", timeout=0.5)
    with pytest.raises(
        AgentError, match=r"'echo' gave no answer within 0\.5 s: waiting for the model"
    ):
        await backend.complete(turn)


@BOTH_LOOPS
@pytest.mark.parametrize(
    ("options", "script", "said"),
    [
        ({"timeout_s": 0.3}, "echo begun; exec sleep 1000", "gave no answer within 0.3 s: why"),
        ({"start_timeout_s": 0.3}, "exec sleep 1000", "gave no sign of life within 0.3 s"),
        ({"idle_timeout_s": 0.3}, "echo begun; exec sleep 1000", "printed nothing for 0.3 s: why"),
        ({"idle_timeout_s": 0.3}, "exec sleep 1000", "gave no sign of life within 0.3 s"),
    ],
)
async def test_an_option_bounds_a_silence_or_the_turn(
    turn: AgentTurn, options: Any, script: str, said: str
) -> None:
    """A program that is over its time is ended, as a timeout that says which."""
    script = script.replace("echo begun", "echo why >&2; echo begun")
    with pytest.raises(AgentError, match=said) as caught:
        await CommandBackend(script, timeout=30).complete(
            replace(turn, options=AgentOptions(**options))
        )
    assert caught.value.kind == "timeout"
    assert caught.value.text == ("begun\n" if "begun" in script else "")


def test_a_silence_is_not_bounded_by_itself() -> None:
    """A program may think for hours before it says anything, and between two lines."""
    patience = _patience(CommandBackend("x").options)
    assert deadline(patience, Signs(started=0.0)).at == math.inf
    assert deadline(patience, Signs(started=0.0, heard=1.0)).at == math.inf


@pytest.mark.parametrize(("printed", "ending", "is_answer"), [
    (b"42\n", Ending(-2, outstayed=True), True),
    (b"", Ending(-2, outstayed=True), False),
    (b"42\n", Ending(-2), False),
    (b"42\n", Ending(-2, "timeout", outstayed=True), False),
])  # fmt: skip
def test_a_program_that_has_closed_its_stdout_need_not_exit(
    turn: AgentTurn, printed: bytes, ending: Ending, is_answer: bool
) -> None:
    """What it had printed is the answer; one that printed nothing has given none."""
    parser = CommandParser(turn, "p", Patience(total_s=1.0))
    parser.feed(printed)
    if is_answer:
        assert parser.conclude(ending).text == "42\n"
    else:
        with pytest.raises(AgentError):
            parser.conclude(ending)


@BOTH_LOOPS
@pytest.mark.parametrize("rest", ["exec sleep 1000", "while :; do echo busy >&2; sleep 0.05; done"])
@pytest.mark.parametrize("bound", ["idle_s", "total_s"])
async def test_a_program_that_has_answered_is_ended_after_its_grace(
    turn: AgentTurn, rest: str, bound: str
) -> None:
    """Once its stdout is closed no timeout makes its answer a failure, whatever its stderr says."""
    forever: dict[str, Any] = dict.fromkeys(("start_s", "idle_s", "tool_s"), math.inf)
    patience = Patience(**{**forever, bound: 0.3, "grace_s": 0.6})
    with anyio.fail_after(30):
        reply = await run_turn(
            turn,
            f"echo 42; exec >&-; {rest}",
            Lines(CommandParser(turn, "p", patience), b"", keep_ends=True),
            Program("p", install=None),
            env=None,
            patience=patience,
        )
    assert reply.text == "42\n"


async def test_an_answer_too_long_to_keep_is_no_answer(turn: AgentTurn) -> None:
    """An answer that would be cut is an error, with how much too long it is."""
    backend = CommandBackend(f"head -c {9 << 20} /dev/zero")
    with pytest.raises(AgentError, match=rf"'head' printed {1 << 20} bytes more than are kept"):
        await backend.complete(turn)
    parser = CommandParser(turn, "p", Patience())
    for line in (b"x" * KEPT_BYTES, b"12\n", b"3456\n"):  # one more line, and another
        parser.feed(line)
    with pytest.raises(AgentError, match="'p' printed 8 bytes more than are kept"):
        parser.conclude(Ending(0))


async def test_bytes_that_are_no_text_do_not_end_the_run(turn: AgentTurn) -> None:
    """An answer that is not UTF-8 comes with replacement characters."""
    reply = await CommandBackend(r"printf 'a\377b'").complete(turn)
    assert reply.text == "a\N{REPLACEMENT CHARACTER}b"


@pytest.mark.parametrize(
    ("argv", "options", "said"),
    [
        ("", {}, "must name a program"),
        ([], {}, "must name a program"),
        (["a", 3], {}, "argument 1 of command 'a 3' must be str, got int"),
        ("a", {"env": {"N": 1}}, "variable 'N' must be str, got int"),
        ("a", {"timeout": 0}, "timeout of a CommandBackend must be above 0"),
    ],
)
def test_a_wrong_command_is_refused_at_once(argv: Any, options: Any, said: str) -> None:
    """What no program can be given is refused when the backend is made."""
    with pytest.raises((DefinitionError, WrongUse), match=said):
        CommandBackend(argv, **options)


@pytest.mark.parametrize(
    ("argv", "name"), [("/usr/bin/claude -p x", "claude"), (["bin/codex", "exec"], "codex")]
)
def test_a_backend_is_named_after_its_program(argv: Any, name: str) -> None:
    """The name is the program's, without folder and arguments."""
    assert CommandBackend(argv).name == name
