"""Verbs that this file alone defines, a leaf and a composite, do all that handrail's own do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from handrail import Executor, MemoryJournal, SqliteJournal, Steps, step, workflow
from handrail.codec.codec import Codec
from handrail.core import commands as cmd
from handrail.engine.portable import PortableFormat
from handrail.model.results import StepResult, Usage
from handrail.steps.groups import Group
from handrail.steps.identity import Identity
from handrail.steps.table import VERBS
from handrail.steps.verbs import Leaf, Performing, Step
from handrail.testing import Script


def add_line(file: str, word: str) -> int:
    """Add a word to a file, and die the first time if the word says so; the number of lines."""
    path = Path(file)
    with path.open("a", encoding="utf-8") as lines:
        lines.write(f"{word}\n")
    if word == "dies" and path.read_text("utf-8").count("dies") == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return len(path.read_text("utf-8").splitlines())


@dataclass(frozen=True, slots=True)
class Note(Leaf):
    """Write a word into a file."""

    kind: ClassVar[str] = "note"
    file: str
    word: str

    def fingerprint(self, identity: Identity) -> str:
        """The word."""
        return f"note {identity(self.word)}"

    def output_type(self) -> Any:
        """The word, in capitals."""
        return str

    async def perform(self, at: Performing) -> tuple[str, Usage | None]:
        """The word, in capitals."""
        await at.call(add_line, self.file, self.word)
        return self.word.upper(), None

    def portable(self) -> bool:
        """True: it is data."""
        return True

    def subject(self) -> str:
        """The word."""
        return self.word


@dataclass(frozen=True, slots=True)
class Quorum(Group):
    """Run steps side by side until enough of them have succeeded."""

    kind: ClassVar[str] = "quorum"
    steps: tuple[Step[Any], ...]
    needed: int
    max_concurrency: int | None = 1
    on_error: Any = "continue"

    def fingerprint(self, identity: Identity) -> str:
        """How many, of which steps."""
        return f"quorum {self.needed} {identity([one.name for one in self.steps])}"

    def members(self) -> Sequence[Step[Any]]:
        """The steps."""
        return self.steps

    def child_ended(self, ended: StepResult[Any], results: Mapping[int, StepResult[Any]]) -> bool:
        """True once enough have succeeded."""
        return sum(one.success for one in results.values()) >= self.needed

    def output(
        self, results: Sequence[StepResult[Any]], decider: StepResult[Any] | None
    ) -> tuple[Any, str]:
        """What the successful members gave."""
        if decider is None:
            raise ValueError(f"fewer than {self.needed} of {len(self.steps)} succeeded")
        return [one.output for one in results if one.success], ""


VERBS[Note.kind] = Note
VERBS[Quorum.kind] = Quorum


@workflow
def votes(file: str, words: tuple[str, ...] = ("a", "dies", "c")) -> Steps[list[str]]:
    """A note, a quorum of two, and a note of what came of it."""
    yield from step("first").verb(Note(file, "first"))
    notes = tuple(step(word).verb(Note(file, word)) for word in words)
    both: list[str] = yield from step("both").verb(Quorum(notes, 2))
    yield from step("last").verb(Note(file, "last"))
    return both


LINES = ["first", "a", "dies", "last"]
PATHS = ["first", "both", "both/a", "both/dies", "last"]


def file_of(tmp_path: Path) -> str:
    """A file in which nothing dies any more."""
    path = tmp_path / "lines"
    path.write_text("dies\n", "utf-8")
    return str(path)


def lines_of(file: str) -> list[str]:
    """The words that were written, after the one that was there."""
    return Path(file).read_text("utf-8").split()[1:]


@pytest.mark.parametrize("portable", [False, True], ids=["as they are", "as elsewhere"])
async def test_they_run_in_memory(tmp_path: Path, portable: bool) -> None:
    """The leaf is performed, and the composite ends once enough of its members have."""
    file = file_of(tmp_path)
    result = await Executor(journal=MemoryJournal(), portable=portable).run(votes, file)
    assert result.unwrap() == ["A", "DIES"]
    assert lines_of(file) == LINES
    assert [one.path for one in result.step_results] == PATHS
    assert {one.path: one.step_type for one in result.step_results}["both"] == "quorum"


async def test_a_composite_fails_with_what_its_output_raises(tmp_path: Path) -> None:
    """Its step fails, and the run with it."""
    result = await Executor().run(votes, file_of(tmp_path), ("a",))
    assert (result.status, result.failed_step) == ("failed", "both")
    assert "fewer than 2 of 1 succeeded" in (result.error or "")


async def test_they_are_read_from_a_file(tmp_path: Path) -> None:
    """What SQLite has of a run that ended is the run."""
    file, journal = file_of(tmp_path), tmp_path / "runs.db"
    async with Executor(journal=SqliteJournal(journal), workflows=[votes]) as executor:
        ran = await executor.options(run_id="r").run(votes, file)
    async with Executor(journal=SqliteJournal(journal), workflows=[votes]) as executor:
        again = await executor.resume("r")
    assert again.unwrap() == ran.unwrap() == ["A", "DIES"]
    assert [one.path for one in again.step_results] == PATHS
    assert lines_of(file) == LINES


def elsewhere(call: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """A call of a function of this file, in a process that imports it."""
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}; import tests.test_own_verbs as own; own.{call}"
    )
    python = [sys.executable, "-c", code]
    return subprocess.run(python, check=False, input=given, capture_output=True, text=True)


def run(folder: str) -> None:
    """Run until the process is killed."""
    Executor(journal=SqliteJournal(Path(folder) / "runs.db")).options(run_id="r").run_sync(
        votes, str(Path(folder) / "lines")
    )


async def test_they_continue_after_a_kill(tmp_path: Path) -> None:
    """What had ended is not performed again, the plan says so, and the rest follows."""
    killed = elsewhere(f"run({str(tmp_path)!r})")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    async with Executor(journal=SqliteJournal(tmp_path / "runs.db"), workflows=[votes]) as executor:
        plan = await executor.plan("r", votes)
        states = {one.path: one.state for one in plan.steps}
        result = await executor.resume("r", votes)
    assert result.unwrap() == ["A", "DIES"]
    assert (tmp_path / "lines").read_text("utf-8").split() == ["first", "a", "dies", "dies", "last"]
    assert (states["first"], states["both/a"]) == ("recorded", "recorded")
    assert states["both/dies"] != "recorded"


async def test_a_changed_argument_is_a_change(tmp_path: Path) -> None:
    """Their fingerprints are compared, and the steps behind run again in a fork."""
    file = file_of(tmp_path)
    executor = Executor(journal=MemoryJournal(), workflows=[votes])
    await executor.options(run_id="r").run(votes, file)
    fork = await executor.fork("r", inputs={"words": ("a", "b")})
    assert (await executor.resume(fork)).unwrap() == ["A", "B"]
    assert lines_of(file)[-2:] == ["b", "last"]
    given = await executor.fork("r", outputs={"both/a": "given"})
    assert (await executor.resume(given)).unwrap() == ["given", "DIES"]


def test_they_are_drawn() -> None:
    """The graph, and the description of the workflow, show both by name."""
    chart = votes.to_mermaid()
    assert "first<br/>verb: Note(file, 'first')" in chart
    assert "both<br/>verb: Quorum(notes, 2)" in chart
    assert [one["path"] for one in votes.describe()["steps"]] == ["first", "both", "last"]


async def test_the_page_shows_them(tmp_path: Path) -> None:
    """Each step of theirs is a row of its kind."""
    testclient = pytest.importorskip("starlette.testclient")
    from handrail.web import create_app

    executor = Executor(journal=MemoryJournal(), workflows=[votes])
    await executor.options(run_id="r").run(votes, file_of(tmp_path))
    app = create_app(executor.journal, token="t" * 8, executor=executor)
    client = testclient.TestClient(
        app, base_url="http://127.0.0.1:8484", headers={"authorization": "Bearer tttttttt"}
    )
    rows = client.get("/api/runs/r").json()["steps"]
    assert {row["path"]: row["step_type"] for row in rows}["both"] == "quorum"
    assert sorted(row["path"] for row in rows) == sorted(PATHS)


def test_a_script_answers_them() -> None:
    """A test sees the leaf with all its arguments, and ends it by hand."""
    script = Script(votes, "-")
    assert script.pending["first"].kind == "note"
    assert script.pending["first"].verb == Note("-", "first")
    for path, output in (("first", "F"), ("both/a", "x"), ("both/dies", "y"), ("last", "L")):
        script.expect(path, "note").returns(output)
    assert script.finish().unwrap() == ["x", "y"]


def test_another_process_performs_the_leaf(tmp_path: Path) -> None:
    """Its attempt is text, which a process that imports this file reads and performs."""
    file = file_of(tmp_path)
    attempt = cmd.Perform("first", step("first").verb(Note(file, "far")), 1, time.time(), None)
    text = PortableFormat(Codec()).write_attempt(attempt, time.time())
    done = elsewhere("work()", text)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == "FAR"
    assert lines_of(file) == ["far"]


def work() -> None:
    """Perform the attempt that stdin describes, and print its output."""
    read = PortableFormat(Codec()).read_attempt(sys.stdin.read(), time.time())

    @workflow
    def there() -> Steps[str]:
        return (yield from read.step)

    sys.stdout.write(json.dumps(Executor().run_sync(there).unwrap()))
