"""Fake programs: what the caller is told of them, and what may go wrong with them."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from handrail.errors import AgentError, WrongUse
from handrail.model.agent_options import AgentOptions
from handrail.model.events import AgentToolCompleted
from handrail.model.results import Usage
from handrail.ports.agent import AgentReply, AgentTurn
from handrail.testing.fake_programs import (
    Dies,
    Fails,
    Garbage,
    Hangs,
    Replays,
    Says,
    fake_cli,
)
from handrail.testing.plugin import fake_cli as fake_cli_of_plugin  # noqa: F401  # by its name
from tests.testing.fake_launches import (
    ARGUMENTS,
    BYPASS,
    CLAUDE,
    COPILOT,
    HELLO,
    NEEDED,
    RAN,
    Client,
    codex_thread,
    codex_turn,
    launch,
)
from tests.testing.recorded_shapes import (
    SAMPLES,
    lacking,
    order,
    printed,
    recording,
)

ID = "aaaaaaaa-1111-4222-8333-444444444444"


# ── What handrail's own backends make of them ────────────────────────────────────────────────────


BACKENDS = [
    ("claude", "claude.backend.ClaudeBackend"),
    ("codex", "codex.backend.CodexBackend"),
    ("copilot", "copilot.backend.CopilotBackend"),
    ("gemini", "acp.backend.gemini"),
    ("opencode", "acp.backend.opencode"),
]


@pytest.mark.parametrize(("name", "backend"), BACKENDS)
async def test_the_backend_for_a_program_understands_its_fake(
    name: Any, backend: str, tmp_path: Path
) -> None:
    """An answer with tools is one, and a resumed session goes on."""
    module, _, make = backend.rpartition(".")
    heard: list[Any] = []
    answer = Says("naïve ✓", tools=[RAN], reasoning="Hm.", split_utf8=True, noise_bytes=999)
    fake = fake_cli(name, [answer, Says("more", writes={"a.txt": "A"})], path=tmp_path / "fake")
    program = getattr(import_module(f"handrail.agents.{module}"), make)(str(fake.executable))

    run_id = uuid.uuid4().hex  # what is left of a turn is ended by it

    async def ask(session: str | None = None) -> AgentReply:
        options = AgentOptions(cwd=str(tmp_path), permission="full")
        turn = AgentTurn("a", "Hi.", run_id, "s", session=session, options=options)
        reply: AgentReply = await program.complete(replace(turn, emit=heard.append))
        return reply

    first = await ask()
    assert first.text == "naïve ✓"
    done = [notice for notice in heard if isinstance(notice, AgentToolCompleted)]
    assert [(one.ok, one.output.strip()[:7]) for one in done] == [(True, "tool-ok")]
    second = await ask(first.session)
    assert (second.text, second.session) == ("more", first.session)
    assert (tmp_path / "a.txt").read_text() == "A"
    assert fake.left == 0


async def test_a_script_that_is_used_up_is_a_wrong_configuration() -> None:
    """A conversation without a script ends at once, and the backend says what the fake said."""
    fake = fake_cli("codex", [])
    program = import_module("handrail.agents.codex.backend").CodexBackend(str(fake.executable))
    with pytest.raises(AgentError, match="its script of 0 is used up") as caught:
        await program.complete(AgentTurn("a", "Hi.", uuid.uuid4().hex, "s"))
    assert caught.value.kind == "config"


# ── Sessions ─────────────────────────────────────────────────────────────────────────────────────


def last(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The last event that was printed."""
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_claude_counts_cost_by_session_and_tokens_by_turn() -> None:
    """As recorded, a resumed session's cost is the sum, and its usage that of the turn alone."""
    first, second = (recording(f"claude/{one}.jsonl")[-1].data for one in RESUMED)
    with fake_cli("claude", ["one", "two"]):
        begun = last(launch("claude", *CLAUDE, f"--session-id={ID}"))
        resumed = last(launch("claude", *CLAUDE, f"--resume={ID}"))
    for fake, real in ((begun, first), (resumed, second)):
        assert fake["session_id"] == real["session_id"] == ID
        assert fake["total_cost_usd"] == pytest.approx(real["total_cost_usd"])
        assert fake["usage"]["input_tokens"] == real["usage"]["input_tokens"]
        model = real["modelUsage"]["claude-sonnet-4-5"]
        assert fake["modelUsage"]["claude-sonnet-4-5"]["inputTokens"] == model["inputTokens"]


RESUMED = ("resume_1_first", "resume_2_same_cwd")


def test_an_unknown_session_is_refused_as_by_the_real_program() -> None:
    """It says so in its result, and takes no act."""
    with fake_cli("claude", ["x"]) as claude:
        refused = launch("claude", *CLAUDE, "--resume=11111111-2222-3333-4444-555555555555")
        (real,) = recording("claude/bad_resume.jsonl")
        assert last(refused)["errors"] == real.data["errors"]
        assert last(refused)["subtype"] == real.data["subtype"]
        assert refused.returncode == 1
        assert claude.left == 1


def test_a_fork_goes_on_from_the_tokens_of_its_thread() -> None:
    """It has an id of its own; its usage is the sum, and that of the old thread does not grow."""
    act = Says("x", usage=Usage(1200, 25))
    with fake_cli("codex", [act] * 2) as fake:
        with Client("codex", "app-server") as client:
            old = codex_thread(client)
            codex_turn(client, old)
            thread = client.ask("thread/fork", threadId=old)["result"]["thread"]
            codex_turn(client, thread["id"])
            updates = [one for one in client.heard if one.get("method") == COUNTED]
        assert fake.left == 0
    assert (thread["id"] != old, thread["forkedFromId"]) == (True, old)
    usage = updates[-1]["params"]["tokenUsage"]
    assert [usage[one]["inputTokens"] for one in ("total", "last")] == [2400, 1200]


COUNTED = "thread/tokenUsage/updated"


def test_an_acp_agent_forks_if_it_says_that_it_can() -> None:
    """It opens a copy under an id of its own; one that cannot knows no such method."""
    with fake_cli("opencode", ["one"]).knows("ses_old"), Client("opencode", "acp") as client:
        fork = {"cwd": "/", "mcpServers": [], "sessionId": "ses_old"}
        client.ask("initialize", protocolVersion=1)
        session = client.ask("session/fork", **fork)["result"]["sessionId"]
        assert session != "ses_old"
        reply = client.ask("session/prompt", sessionId=session, prompt=[])
        assert reply["result"]["stopReason"] == "end_turn"
        assert "error" in client.ask("session/fork", **{**fork, "sessionId": "ses_none"})
    with fake_cli("gemini", ["one"]).knows("old"), Client("gemini", "--acp") as client:
        assert client.ask("session/fork", sessionId="old")["error"]["code"] == -32601


def test_a_session_of_an_earlier_day_can_be_made_known() -> None:
    """A session that the test says is known can be resumed; its own id is not given twice."""
    with fake_cli("claude", ["on we go"]) as claude:
        claude.knows(ID)
        assert last(launch("claude", *CLAUDE, f"--resume={ID}"))["result"] == "on we go"
        again = launch("claude", *CLAUDE, f"--session-id={ID}")
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == f"Error: Session ID {ID} is already in use.\n"


def test_claude_compacts_a_session_without_using_an_act() -> None:
    """The prompt ``/compact`` gives the recorded events, and the script does not go on."""
    real = recording("claude/resume_6_compact.jsonl")
    with fake_cli("claude", ["never"]) as claude:
        claude.knows(ID)
        done = launch("claude", *CLAUDE, f"--resume={ID}", stdin="/compact")
        assert claude.left == 1
    fake = printed(done.stdout.splitlines())
    assert order(fake) == order(real)
    assert lacking(fake, NEEDED["claude"]) == []


# ── What the caller is told ──────────────────────────────────────────────────────────────────────


def test_a_script_that_is_used_up_says_so(tmp_path: Path) -> None:
    """One prompt more than the script has fails like a wrong configuration: on stderr alone."""
    with fake_cli("claude", ["only one"], path=tmp_path):
        assert launch("claude", *CLAUDE).returncode == 0
        more = launch("claude", *CLAUDE)
    assert (more.returncode, more.stdout) == (1, "")
    assert "fake claude: its script of 1 is used up" in more.stderr


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("claude", (*CLAUDE, "--no-such-flag"), 1),
        ("copilot", (*COPILOT, "--no-such-flag"), 1),
    ],
)
def test_an_option_that_the_program_does_not_have_is_refused(
    name: Any, arguments: tuple[str, ...], code: int
) -> None:
    """It is named on stderr, with the program's own exit code, and no act is taken."""
    with fake_cli(name, ["x"]) as fake:
        done = launch(name, *arguments)
        assert fake.left == 1
    assert (done.returncode, done.stdout) == (code, "")
    assert "no-such-flag" in done.stderr


def test_a_call_is_recorded_with_what_it_was_given(tmp_path: Path) -> None:
    """Arguments, prompt, folder, added variables, times and exit code are there; no secrets."""
    with fake_cli("claude", ["x"], path=tmp_path / "fake") as fake:
        env = {**os.environ, "ANTHROPIC_API_KEY": "sk-secret", "CLAUDE_CODE_MAX_RETRIES": "2"}
        launch("claude", *CLAUDE, stdin="What is it?", cwd=tmp_path, env=env)
        assert launch("claude", "--version").stdout == "2.1.330 (Claude Code)\n"
    (call,) = fake.calls
    assert call.argv == ("claude", *CLAUDE)
    assert (call.stdin, call.cwd) == ("What is it?", str(tmp_path))
    assert (call.exit_code, call.acts) == (0, (0,))
    assert call.env["CLAUDE_CODE_MAX_RETRIES"] == "2"
    assert call.env["ANTHROPIC_API_KEY"] == "***"
    assert call.ended is not None
    assert call.started <= call.ended
    (probe,) = fake.probes
    assert probe.argv == ("claude", "--version")


def test_path_is_as_it_was_when_the_fake_is_gone() -> None:
    """PATH finds the fake inside the block and not after it; the fake itself can be run still."""
    before = os.environ["PATH"]
    with fake_cli("claude", ["x"]) as fake:
        assert os.environ["PATH"] == f"{fake.executable.parent}{os.pathsep}{before}"
    assert os.environ["PATH"] == before
    assert launch(str(fake.executable), *CLAUDE).returncode == 0


def test_path_is_as_it_was_whichever_of_two_fakes_goes_first() -> None:
    """The end of a block takes its own program off PATH and no other."""
    before = os.environ["PATH"]
    first, second = fake_cli("claude", ["x"]).__enter__(), fake_cli("codex", ["y"]).__enter__()
    first.__exit__()
    assert os.environ["PATH"] == f"{second.executable.parent}{os.pathsep}{before}"
    second.__exit__()
    assert os.environ["PATH"] == before


def test_fakes_of_one_path_know_nothing_of_one_another(tmp_path: Path) -> None:
    """Two programs, and two of one name: each has its own script and calls, and of the latter PATH
    finds the one that was entered last.
    """
    with (
        fake_cli("claude", ["first"], path=tmp_path) as first,
        fake_cli("copilot", ["other"], path=tmp_path) as other,
        fake_cli("claude", ["second", "third"], path=tmp_path) as second,
    ):
        said = [last(launch("claude", *CLAUDE))["result"]]
        assert (first.left, other.left, second.left) == (1, 1, 1)
        assert "other" in launch("copilot", *COPILOT).stdout
        said.append(last(launch(str(first.executable), *CLAUDE))["result"])
    assert said == ["second", "first"]
    assert [len(fake.calls) for fake in (first, other, second)] == [1, 1, 1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["claude", "claude-2", "copilot"]


def test_prompts_at_the_same_time_take_one_act_each() -> None:
    """Five launches at once say the five texts of the script, each once."""
    texts = [f"answer {number}" for number in range(5)]
    with fake_cli("claude", texts) as fake, ThreadPoolExecutor(5) as pool:
        said = pool.map(lambda _: last(launch("claude", *CLAUDE))["result"], texts)
        assert sorted(said) == sorted(texts)
        assert sorted(act for call in fake.calls for act in call.acts) == list(range(5))


@pytest.mark.parametrize("script", ["one text", [lambda prompt: prompt], [Says, "x"]])
def test_a_script_is_plain_data(script: Any) -> None:
    """A function, a class or a lone text is refused with what a script may have."""
    with pytest.raises(WrongUse, match=r"Says, Fails, Hangs|takes a list of acts"):
        fake_cli("claude", script)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Fails("tired"),  # type: ignore[arg-type]
        lambda: Hangs("never"),  # type: ignore[arg-type]
        lambda: Says(structured={"at": object()}),
        lambda: Says(tools="echo"),
        lambda: Replays("no/such.jsonl"),
        lambda: fake_cli("cluade", []),  # type: ignore[arg-type]
        lambda: fake_cli("codex", [Fails("max_turns")]),
    ],
)
def test_an_act_that_cannot_be_is_refused_when_it_is_written(make: Any) -> None:
    """The error comes in the test that wrote it, not from another process."""
    with pytest.raises(WrongUse):
        make()


# ── What may go wrong ────────────────────────────────────────────────────────────────────────────


def test_a_line_can_be_written_in_two_parts_inside_a_character() -> None:
    """What is written at once cannot be decoded by itself; together it is the text."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # keeps writes apart
    with ours, fake_cli("copilot", [Says("naïve", split_utf8=True)]) as fake:
        with its:
            subprocess.run([fake.executable, *COPILOT], input=b"x", stdout=its, check=True)
        parts = list(iter(lambda: ours.recv(65536), b""))
    with pytest.raises(UnicodeDecodeError):
        [part.decode() for part in parts]
    assert "naïve" in b"".join(parts).decode()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("claude", (*CLAUDE, *BYPASS)),
        ("copilot", COPILOT),
    ],
)
def test_writes_change_the_folder_and_are_told(
    name: Any, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    """A file of ``writes`` is there afterwards, one with None is not, and the stream names both."""
    (tmp_path / "old.txt").write_text("old")
    act = Says("Done.", writes={"src/new.txt": "naïve", "old.txt": None})
    with fake_cli(name, [act], path=tmp_path / "fake"):
        done = launch(name, *arguments, cwd=tmp_path)
    assert (tmp_path / "src" / "new.txt").read_text() == "naïve"
    assert not (tmp_path / "old.txt").exists()
    assert str(tmp_path / "src" / "new.txt") in done.stdout
    assert str(tmp_path / "old.txt") in done.stdout


@pytest.mark.parametrize(
    ("act", "code"),
    [
        (Dies("start", exit_code=7), 7),
        (Dies("launch", exit_code=3), 3),
        (Dies("tool", signal=signal.SIGKILL), -signal.SIGKILL),
        (Dies("result", exit_code=1), 1),
        (Garbage(exit_code=0), 0),
    ],
    ids=["start", "launch", "tool", "result", "garbage"],
)
def test_a_program_that_dies_ends_where_it_is_told(act: Any, code: int) -> None:
    """It has the exit code or signal that the act says, and no result before the moment for it."""
    with fake_cli("claude", [act]):
        done = subprocess.run(
            ["claude", *CLAUDE], input=b"x", capture_output=True, timeout=30, check=False
        )
    assert done.returncode == code
    is_after_result = isinstance(act, Dies) and act.after == "result"
    assert (b'"type":"result"' in done.stdout) == is_after_result


SIGNALS = [
    ("claude", "start", signal.SIGINT, 0, "user"),
    ("claude", "tool", signal.SIGINT, 0, "result"),
    ("claude", "start", signal.SIGTERM, 143, "system"),
    ("copilot", "start", signal.SIGTERM, 0, "result"),
]
LINES_AT_START = {"claude": 1, "copilot": 4}


@pytest.mark.parametrize(("name", "after", "number", "code", "final"), SIGNALS)
def test_a_signal_ends_each_program_as_was_measured(
    name: Any, after: Any, number: int, code: int, final: str
) -> None:
    """Exit code and last event are those of the real program."""
    with fake_cli(name, [Hangs(after)]) as fake:
        process = begun(name, *ARGUMENTS[name])
        until_it_hangs(process, LINES_AT_START[name] + (after == "tool"))
        process.send_signal(number)
        rest, _ = process.communicate(timeout=10)
        assert process.returncode == code
        assert fake.calls[0].exit_code == code
    lines = [*process.heard, *rest.splitlines()]
    assert json.loads(lines[-1])["type"] == final


class Begun(subprocess.Popen[str]):
    """A process of which some lines were read."""

    heard: list[str]


def begun(name: str, *arguments: str) -> Begun:
    """The program, with its prompt."""
    process = Begun(
        [name, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    process.heard = []
    assert process.stdin is not None
    process.stdin.write("Say hello.")
    process.stdin.close()
    process.stdin = None
    return process


def until_it_hangs(process: Begun, lines: int) -> None:
    """Read so many lines."""
    assert process.stdout is not None
    process.heard += [process.stdout.readline() for _ in range(lines)]


def test_a_program_can_ignore_both_polite_signals() -> None:
    """Only SIGKILL ends it; nobody wrote how it ended."""
    act = Hangs("start", ignores_sigint=True, ignores_sigterm=True)
    with fake_cli("claude", [act]) as fake:
        process = begun("claude", *CLAUDE)
        until_it_hangs(process, 1)
        process.send_signal(signal.SIGINT)
        process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.1)
        process.kill()
        process.communicate()
        assert (fake.calls[0].ended, fake.calls[0].exit_code) == (None, None)


def lives(pid: int) -> bool:
    """False for a process that is gone, or a zombie that nobody has waited for yet."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False


def test_a_child_is_left_in_a_session_of_its_own() -> None:
    """It lives on with the program's environment, and ``end_children`` ends it."""
    with fake_cli("claude", [Says("x", leaves_child=True)]) as fake:
        launch("claude", *CLAUDE, env={**os.environ, "HANDRAIL_STEP": "mark"})
        (child,) = fake.calls[0].children
        assert os.getsid(child) == child
        if Path("/proc/self/environ").exists():
            assert b"HANDRAIL_STEP=mark" in Path(f"/proc/{child}/environ").read_bytes()
        fake.end_children()
        until = time.monotonic() + 10
        while lives(child):
            assert time.monotonic() < until


def test_stdout_can_be_held_open_after_the_end() -> None:
    """The program has exited, and its stdout ends only later."""
    with fake_cli("claude", [Says("x", holds_stdout_s=30)]) as fake:
        process = begun("claude", *CLAUDE)
        until_it_hangs(process, 3)
        assert process.wait(10) == 0
        assert process.stdout is not None
        assert select.select((process.stdout,), (), (), 0)[0] == []  # not at its end
        os.kill(fake.calls[0].children[0], 0)  # raises if it is not there
        fake.end_children()
        process.stdout.close()


def test_noise_and_stderr_come_besides_the_answer() -> None:
    """An unknown event as long as it should be, and the text on stderr; the answer is as ever."""
    with fake_cli("claude", [Says("x", noise_bytes=300_000, stderr="quota? network?\n")]):
        done = launch("claude", *CLAUDE)
    assert done.stderr == "quota? network?\n"
    assert max(len(line.encode()) for line in done.stdout.splitlines()) > 300_000
    assert last(done)["result"] == "x"


def test_a_recording_is_printed_again_with_its_exit_code(tmp_path: Path) -> None:
    """Its lines come byte by byte as they were, and the code is that of the file beside it."""
    sample = SAMPLES / "claude" / "usage_limit_oauth.jsonl"
    copy = tmp_path / "cap.jsonl"
    copy.write_bytes(sample.read_bytes())
    (tmp_path / "cap.meta.json").write_text('{"exit_code": 1, "line_times_s": [0.0, 0.01]}')
    (tmp_path / "cap.stderr").write_text("as it was\n")
    with fake_cli("claude", [Replays(copy, speed=10), Replays(sample, exit_code=5)]):
        done = launch("claude", "-p", "--whatever")
        assert launch("claude").returncode == 5
    assert done.stdout == sample.read_text()
    assert (done.returncode, done.stderr) == (1, "as it was\n")


def test_a_recorded_conversation_is_held_again() -> None:
    """Whatever ids the client uses, the recorded replies answer its own requests."""
    with (
        fake_cli("codex", [Replays(SAMPLES / "codex" / "appserver_text.rpc.jsonl")]),
        Client("codex", "app-server") as client,
    ):
        client._number = 40
        turn = codex_turn(client, codex_thread(client))
    assert turn["status"] == "completed"
    assert turn["items"][0]["text"] == HELLO


@pytest.fixture
def path_stays() -> Iterator[None]:
    """PATH is the same after the test, with all that the test asked for gone."""
    before = os.environ["PATH"]
    yield
    assert os.environ["PATH"] == before


@pytest.mark.usefixtures("path_stays")
def test_the_fixture_puts_programs_on_path_until_the_test_ends(request: Any) -> None:
    """``fake_cli`` of the plugin needs no ``with``."""
    installed = request.getfixturevalue("fake_cli_of_plugin")
    claude, codex = installed("claude", ["hi"]), installed("codex", [])
    assert shutil.which("claude") == str(claude.executable)
    assert shutil.which("codex") == str(codex.executable)
    assert launch("claude", "-p").stdout == "hi\n"
    assert len(claude.calls) == 1


def test_it_starts_in_a_few_hundredths_of_a_second() -> None:
    """From its first own line to its end a launch takes less than a quarter of a second."""
    with fake_cli("claude", ["x"] * 3) as fake:
        for _ in range(3):
            launch("claude", *CLAUDE)
        assert min((call.ended or 1e9) - call.started for call in fake.calls) < 0.25
