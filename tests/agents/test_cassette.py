from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail import (
    Agent,
    AgentError,
    CassetteMismatch,
    CassetteMissing,
    DefinitionError,
    Executor,
    FakeBackend,
    PatchRefused,
    Secrets,
    Steps,
    step,
    workflow,
)
from handrail.model.agent_options import AgentOptions
from handrail.model.events import (
    AgentFinished,
    AgentMessage,
    AgentReasoning,
    AgentToolStarted,
    AgentUsage,
    Notice,
    StepOutput,
)
from handrail.model.results import Usage
from handrail.ports.agent import AgentReply, AgentTurn
from handrail.testing import Cassette, JumpClock, cassette
from tests.agents.conftest import BOTH_LOOPS
from tests.agents.repositories import contents, found, git, needs_git, repository, write

pytestmark = needs_git


SECRET = "hunter2-hunter2"
TOKEN = "ghp_" + "a1B2" * 9


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with `src/a.py` and `docs/guide.md`."""
    return repository(tmp_path / "repo")


@pytest.fixture
def tapes(tmp_path: Path) -> Path:
    """Where recordings are."""
    return tmp_path / "tapes"


def turn_in(folder: Path, prompt: str = "Do it.", **given: Any) -> AgentTurn:
    """A turn of a step that works in a folder."""
    options = AgentOptions(cwd=str(folder), model="big", timeout_s=9)
    # git is ended with all that carries its marker: two tests at a time must not share a run's name
    run_id = f"run-{uuid.uuid4().hex}"
    return AgentTurn("coder", prompt, run_id, "build/plan", options=options, **given)


def clean_copy(repo: Path, where: Path) -> Path:
    """A clone of a repository."""
    git(repo.parent, "clone", "--quiet", str(repo), str(where))
    return where


def writing(files: dict[str, str | bytes], reply: Any = "done") -> Callable[[AgentTurn], Any]:
    """A reply of an agent that writes files first."""

    def play(turn: AgentTurn) -> Any:
        write(Path(turn.options.cwd or ""), files)
        return reply

    return play


class Unused:
    """A backend that must not be asked."""

    name = "unused"

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """Nothing; it is a failure of the test."""
        raise AssertionError(f"asked: {turn.prompt}")


@BOTH_LOOPS
async def test_a_launch_is_replayed_as_it_was(repo: Path, tapes: Path, tmp_path: Path) -> None:
    """Same notices, same reply, and the files as the agent left them; no backend is asked."""
    copy = clean_copy(repo, tmp_path / "copy")

    def play(turn: AgentTurn) -> AgentReply:
        at = Path(turn.options.cwd or "")
        turn.emit(AgentToolStarted(turn.path, "t1", "edit", {"file": str(at / "src/a.py")}))
        turn.emit(AgentReasoning(turn.path, "two\nlines"))
        write(at, {"src/a.py": "a = 2\n", "new/blob": b"\0\xff\1", "new/text": "no end"})
        (at / "docs/guide.md").unlink()
        (at / "new/text").chmod(0o755)
        (at / "link").symlink_to("new/text")
        return AgentReply(
            "Done.\nAll of it.", "big-1", "s1", Usage(5, 6, 0.5), {"a": [1]}, has_value=True
        )

    heard: list[Notice] = []
    turn = turn_in(repo, emit=heard.append)
    reply = await Cassette(tapes, "record").wrap(FakeBackend([play])).complete(turn)
    replayed: list[Notice] = []
    turn = turn_in(copy, emit=replayed.append)
    assert await Cassette(tapes).wrap(Unused()).complete(turn) == reply
    tool = heard[0]
    assert isinstance(tool, AgentToolStarted)
    heard[0] = replace(tool, input={"file": str(copy / "src/a.py")})
    assert replayed == heard
    assert contents(copy) == contents(repo)
    assert sorted(f.relative_to(tapes).as_posix() for f in found(tapes, "**/*.*")) == [
        "coder/build/plan-1.json",
        "coder/build/plan-1.patch",
    ]


async def test_a_recording_is_read_by_people(repo: Path, tapes: Path) -> None:
    """Texts are lists of lines, each notice is one line, and what changed is listed."""
    backend = FakeBackend([writing({"src/a.py": "a = 2\n"}, "One.\nTwo.")])
    await (
        Cassette(tapes, "record")
        .wrap(backend)
        .complete(turn_in(repo, "Do\nit.", now=lambda: 0.0, session="s0"))
    )
    text = (tapes / "coder/build/plan-1.json").read_text()
    data = json.loads(text)
    assert data["prompt"] == ["Do", "it."]
    assert data["reply"] == {"text": ["One.", "Two."]}
    assert data["change"] == {"patch": "plan-1.patch", "files": ["src/a.py (changed)"]}
    assert data["asked"]["model"] == "big"
    assert data["asked"]["session"] == "s0"
    assert "timeout_s" not in data["asked"]
    assert data["recorded_at"] == "1970-01-01T00:00:00+00:00"
    assert '\n    {"type": "AgentMessage", "text": "One.\\nTwo."},\n' in text
    assert "+a = 2\n" in (tapes / "coder/build/plan-1.patch").read_text()


async def test_an_error_is_replayed(repo: Path, tapes: Path) -> None:
    """With its kind and all that is known of it; a change before it too."""
    error = AgentError(
        "coder",
        "limit",
        kind="usage_cap",
        retry_at=5.0,
        session="s",
        text="so\nfar",
        usage=Usage(1, 2),
        hint="Wait.",
    )
    backend = FakeBackend([writing({"src/a.py": "half\n"}, error)])
    with pytest.raises(AgentError):
        await Cassette(tapes, "record").wrap(backend).complete(turn_in(repo))
    git(repo, "checkout", "--quiet", ".")
    heard: list[Notice] = []
    with pytest.raises(AgentError) as caught:
        await Cassette(tapes).wrap(Unused()).complete(turn_in(repo, emit=heard.append))
    for name in ("agent", "reason", "kind", "retry_at", "session", "text", "usage", "hint"):
        assert getattr(caught.value, name) == getattr(error, name)
    assert isinstance(heard[-1], AgentFinished)
    assert heard[-1].status == "failed"
    assert contents(repo)["src/a.py"][1] == b"half\n"


async def test_what_was_committed_is_replayed_as_a_change(repo: Path, tapes: Path) -> None:
    """The patch is from the files before to the files after, whatever was committed of them."""
    write(repo, {"docs/guide.md": "the user's\n"})

    def play(turn: AgentTurn) -> str:
        write(repo, {"src/a.py": "a = 2\n"})
        git(repo, "commit", "--quiet", "-m", "agent", "src/a.py")
        write(repo, {"src/b.py": "b = 2\n"})
        return turn.prompt

    await Cassette(tapes, "record").wrap(FakeBackend([play])).complete(turn_in(repo))
    after = contents(repo)
    git(repo, "reset", "--quiet", "--hard", "HEAD~1")
    (repo / "src/b.py").unlink()
    write(repo, {"docs/guide.md": "the user's\n"})
    await Cassette(tapes).wrap(Unused()).complete(turn_in(repo))
    assert contents(repo) == after
    assert git(repo, "log", "--format=%s") == "first\n"


async def test_launches_are_found_by_their_order(repo: Path, tapes: Path) -> None:
    """The second of an agent and path is replayed second, in other processes too."""
    taped = Cassette(tapes, "record").wrap(FakeBackend(["one", "two", "three"]))
    for prompt in ("a", "b"):
        await taped.complete(turn_in(repo, prompt))
    replay = Cassette(tapes).wrap(Unused())
    assert (await replay.complete(turn_in(repo, "a"))).text == "one"
    assert (await replay.complete(turn_in(repo, "b"))).text == "two"
    resumed = Cassette(tapes).wrap(Unused())
    assert (await resumed.complete(turn_in(repo, "b", launch=2))).text == "two"
    resumed = Cassette(tapes, "record").wrap(FakeBackend(["three"]))
    await resumed.complete(turn_in(repo, "c", launch=4))
    assert (await replay.complete(turn_in(repo, "c"))).text == "three"


async def test_recording_again_takes_the_place_of_what_was(repo: Path, tapes: Path) -> None:
    """Of a step that took three launches then and one now, one is left."""
    taped = Cassette(tapes, "record").wrap(FakeBackend([writing({"x": "1"}), "two", "three"]))
    for _ in range(3):
        await taped.complete(turn_in(repo))
    await Cassette(tapes, "record").wrap(FakeBackend(["again"])).complete(turn_in(repo))
    assert [f.name for f in found(tapes, "**/*.*")] == ["plan-1.json"]


async def test_recorded_twice_is_the_same(repo: Path, tapes: Path, tmp_path: Path) -> None:
    """In another folder, in another run: the same files, byte for byte, but for the time."""

    async def record(at: Path, into: Path, now: float) -> dict[str, bytes]:
        backend = FakeBackend([writing({"src/a.py": "a = 2\n"}, f"In {at}/src.")])
        turn = turn_in(at, f"Work in {at}.", now=lambda: now)
        await Cassette(into, "record").wrap(backend).complete(turn)
        files = {file.name: file.read_bytes() for file in found(into, "**/*.*")}
        lines = files["plan-1.json"].splitlines()
        files["plan-1.json"] = b"\n".join(line for line in lines if b"recorded_at" not in line)
        return files

    copy = clean_copy(repo, tmp_path / "copy")
    assert await record(repo, tapes, 1) == await record(copy, tmp_path / "tapes2", 2)
    assert str(tmp_path).encode() not in b"".join((await record(repo, tapes, 1)).values())


async def test_another_prompt_is_refused_with_the_difference(repo: Path, tapes: Path) -> None:
    """It names the nearest recording, whichever launch that is of, and says what to do."""
    taped = Cassette(tapes, "record").wrap(FakeBackend(["one", "two"]))
    await taped.complete(turn_in(repo, "Write\nthe docs."))
    await taped.complete(turn_in(repo, "Fix the\nparser of dates\nnow."))
    with pytest.raises(CassetteMismatch) as caught:
        await (
            Cassette(tapes).wrap(Unused()).complete(turn_in(repo, "Fix the\nparser of times\nnow."))
        )
    assert caught.value.recording == "coder/build/plan-2.json"
    assert "-parser of dates\n+parser of times\n now." in str(caught.value)
    assert "--record DIR" in str(caught.value)
    auto = Cassette(tapes, "auto").wrap(FakeBackend(["never"]))
    with pytest.raises(CassetteMismatch):
        await auto.complete(turn_in(repo, "x"))


async def test_a_launch_that_is_not_recorded_is_refused(repo: Path, tapes: Path) -> None:
    """It says which are."""
    await Cassette(tapes, "record").wrap(FakeBackend(["one"])).complete(turn_in(repo))
    replay = Cassette(tapes).wrap(Unused())
    await replay.complete(turn_in(repo))
    with pytest.raises(CassetteMissing, match=r"launch 2 .*Recorded: coder/build/plan-1\.json"):
        await replay.complete(turn_in(repo))
    with pytest.raises(CassetteMissing, match="Recorded: nothing"):
        await Cassette(tapes / "none").wrap(Unused()).complete(turn_in(repo))


async def test_auto_records_what_is_not_there(repo: Path, tapes: Path) -> None:
    """What is there is replayed, and the rest is launched once."""
    backend = FakeBackend(["one", "two"])
    await Cassette(tapes, "auto").wrap(backend).complete(turn_in(repo, "a"))
    taped = Cassette(tapes, "auto").wrap(backend)
    assert (await taped.complete(turn_in(repo, "a"))).text == "one"
    assert (await taped.complete(turn_in(repo, "b"))).text == "two"
    assert len(backend.turns) == 2
    replay = Cassette(tapes).wrap(Unused())
    assert [(await replay.complete(turn_in(repo, p))).text for p in "ab"] == ["one", "two"]


async def test_a_patch_that_does_not_apply_changes_nothing(repo: Path, tapes: Path) -> None:
    """The error says which patch, where, and why."""
    backend = FakeBackend([writing({"src/a.py": "a = 2\n", "new": "1\n"})])
    await Cassette(tapes, "record").wrap(backend).complete(turn_in(repo))
    (repo / "new").unlink()
    write(repo, {"src/a.py": "other\n"})
    before = contents(repo)
    with pytest.raises(PatchRefused, match=r"plan-1\.patch does not apply .*src/a\.py"):
        await Cassette(tapes).wrap(Unused()).complete(turn_in(repo))
    assert contents(repo) == before


async def test_without_git_there_is_no_patch(tmp_path: Path, tapes: Path) -> None:
    """The recording says so."""
    backend = FakeBackend([writing({"x": "1"})])
    (tmp_path / "plain").mkdir()
    await Cassette(tapes, "record").wrap(backend).complete(turn_in(tmp_path / "plain"))
    data = json.loads((tapes / "coder/build/plan-1.json").read_text())
    assert data["change"] == {"none": "not a git repository"}
    assert (await Cassette(tapes).wrap(Unused()).complete(turn_in(tmp_path / "plain"))).text


async def test_a_patch_applies_where_there_is_no_repository(
    repo: Path, tapes: Path, tmp_path: Path
) -> None:
    """Replaying needs the files, not their history."""
    backend = FakeBackend([writing({"src/a.py": "a = 2\n"})])
    await Cassette(tapes, "record").wrap(backend).complete(turn_in(repo))
    plain = tmp_path / "plain"
    write(plain, {"src/a.py": "a = 1\n"})
    await Cassette(tapes).wrap(Unused()).complete(turn_in(plain))
    assert contents(plain)["src/a.py"][1] == b"a = 2\n"


async def test_recordings_within_the_working_tree_are_no_change(repo: Path) -> None:
    """What the cassette writes beside the tests is not taken for the agent's work."""
    taped = Cassette(repo / "tests/tapes", "record").wrap(FakeBackend(["one", "two"]))
    await taped.complete(turn_in(repo))
    await taped.complete(turn_in(repo))
    for file in found(repo, "**/plan-*.json"):
        assert json.loads(file.read_text())["change"] == {"files": []}


def test_recordings_are_in_nobodys_scope(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step with `writes=` is recorded into its own working tree, and replayed from it."""
    monkeypatch.chdir(repo)

    @workflow
    def flow(agent: Any) -> Steps[str]:
        return (yield from step("work").agent(agent, writes=["src/**"])).output

    def run(mode: Any, *replies: Any) -> Any:
        agent = Agent("coder", "Work.", backend=FakeBackend(replies))
        return Executor(cassette=Cassette("tests/tapes", mode)).run_sync(flow, agent)

    assert run("record", writing({"src/a.py": "a = 2\n"})).value == "done"
    git(repo, "checkout", "--quiet", ".")
    assert run("replay").value == "done"
    assert contents(repo)["src/a.py"][1] == b"a = 2\n"


async def test_no_secret_is_written(
    repo: Path, tapes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeded everywhere, in pieces too: no byte of a secret's value, no token, in any file."""
    monkeypatch.setenv("MY_API_KEY", SECRET)
    monkeypatch.setenv("PEM_KEY", f"-----BEGIN\n{SECRET[::-1]}ABCDEFGH\n-----END")
    own = "own-secret-value"
    write(repo, {f"docs/{SECRET}.txt": SECRET})

    def play(turn: AgentTurn) -> AgentReply:
        seeded = f"{SECRET} {TOKEN} {own}"
        for text in (SECRET[:5], SECRET[5:], "\n"):
            turn.emit(AgentMessage(turn.path, text))
            turn.emit(AgentUsage(turn.path, Usage(1)))
            turn.emit(StepOutput(turn.path, "stderr", text))
        turn.emit(AgentToolStarted(turn.path, "1", "sh", {"command": [seeded], SECRET: 1}))
        write(
            repo,
            {
                "src/a.py": f"key = '{seeded}'\n",
                "src/pem": os.environ["PEM_KEY"],
                "src/bin": f"\0\0{SECRET}".encode(),
                f"docs/{SECRET}.txt": "gone\n",
            },
        )
        return AgentReply(seeded, value={"key": seeded}, has_value=True)

    options = AgentOptions(cwd=str(repo), env={"OTHER_TOKEN": own}, system_prompt=f"use {SECRET}")
    turn = replace(turn_in(repo, f"with {SECRET} {TOKEN}"), options=options)
    await Cassette(tapes, "record").wrap(FakeBackend([play])).complete(turn)
    every_byte = b"".join(f.read_bytes() for f in found(tapes, "**/*.*"))
    for secret in (SECRET, TOKEN, own, SECRET[::-1]):
        assert secret.encode() not in every_byte
    assert b"${MY_API_KEY}" in every_byte
    data = json.loads((tapes / "coder/build/plan-1.json").read_text())
    assert data["change"]["left_out"] == ["src/bin"]
    told = [n["text"] for n in data["notices"] if n["type"] == "StepOutput"]
    assert "".join(told) == "${MY_API_KEY}\n"
    git(repo, "checkout", "--quiet", ".")
    write(repo, {f"docs/{SECRET}.txt": "${MY_API_KEY}"})
    assert data["prompt"] == ["with ${MY_API_KEY} ghp_***a1B2".replace("a1B2", TOKEN[-4:])]


async def test_a_cassette_may_have_secrets_of_its_own(
    repo: Path, tapes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`secrets=` names further variables."""
    monkeypatch.setenv("PLAIN_NAME", SECRET)
    taped = Cassette(tapes, "record", secrets=Secrets(names=frozenset({"PLAIN_NAME"})))
    await taped.wrap(FakeBackend([SECRET])).complete(turn_in(repo))
    assert SECRET not in (tapes / "coder/build/plan-1.json").read_text()


@BOTH_LOOPS
async def test_a_launch_that_was_cancelled_is_not_recorded(repo: Path, tapes: Path) -> None:
    """Nor does it count: the next one is the first."""

    async def hang(_: AgentTurn) -> str:
        scope.cancel()
        await anyio.sleep(60)
        return ""

    taped = Cassette(tapes, "record").wrap(FakeBackend([hang, "one"]))
    with anyio.CancelScope() as scope:
        await taped.complete(turn_in(repo))
    await taped.complete(turn_in(repo))
    assert [f.name for f in found(tapes, "**/*.json")] == ["plan-1.json"]


def test_a_mode_must_be_one(tapes: Path) -> None:
    """The error lists them."""
    with pytest.raises(DefinitionError, match="'record', 'replay' or 'auto', got 'play'"):
        Cassette(tapes, "play")  # type: ignore[arg-type]


async def test_a_file_that_is_no_recording_is_named(repo: Path, tapes: Path) -> None:
    """Damaged by hand, it is told which file, and why."""
    write(tapes, {"coder/build/plan-1.json": "{}"})
    with pytest.raises(DefinitionError, match=r"plan-1\.json cannot be read"):
        await Cassette(tapes).wrap(Unused()).complete(turn_in(repo))


def test_a_run_is_replayed_with_its_ladder(repo: Path, tapes: Path) -> None:
    """Through an executor: re-asks, failures that pass and all, with no reply left to give."""
    busy = AgentError("counter", "busy", kind="transient")
    options = AgentOptions(cwd=str(repo))

    @workflow
    def flow(agent: Any) -> Steps[int]:
        return (yield from step("count").agent(agent, {})).output

    def run(backend: FakeBackend, mode: Any) -> Any:
        agent = Agent("counter", "Count.", output=int, backend=backend, options=options)
        executor = Executor(cassette=cassette(tapes, mode), clock=JumpClock())
        return executor.run_sync(flow, agent)

    recorded = run(FakeBackend([busy, "no number", AgentReply("7", usage=Usage(1, 1))]), "record")
    assert recorded.value == 7
    replayed = run(FakeBackend([]), "replay")
    assert replayed.value == 7
    assert replayed.step("count").output == recorded.step("count").output
    assert sorted(f.name for f in found(tapes, "**/*.json")) == [
        f"count-{n}.json" for n in (1, 2, 3)
    ]


TEST = """
import os

from handrail import Agent, Executor, FakeBackend, Steps, step, workflow


class TestGreeting:
    def test_it(self, cassette) -> None:
        agent = Agent("greeter", "Greet.", backend=FakeBackend(os.environ["REPLIES"].split()))

        @workflow
        def greet() -> Steps[str]:
            return (yield from step("greet").agent(agent, {})).output

        assert Executor(cassette=cassette).run_sync(greet).value == "hello"
"""

TWICE = """
import os
import pytest

for replies, more in (("hello", ["--handrail-record"]), ("", [])):
    os.environ["REPLIES"] = replies
    options = ["-q", "-c", os.devnull, "--rootdir", ".", "-p", "no:cacheprovider"]
    assert pytest.main([*options, "-p", "handrail.testing.plugin", *more, "test_it.py"]) == 0
"""


def test_the_fixture_keeps_its_recordings_beside_the_test(tmp_path: Path) -> None:
    """`--handrail-record` writes them, and without it they are replayed."""
    write(tmp_path, {"test_it.py": TEST})
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    subprocess.run([sys.executable, "-c", TWICE], cwd=tmp_path, env=env, check=True)
    tape = "cassettes/TestGreeting.test_it/greeter/greet-1.json"
    assert (tmp_path / tape).is_file()
