"""A worktree over several steps: how it comes back, and what does not go together."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from handrail import (
    Agent,
    Conflict,
    Executor,
    FakeBackend,
    MemoryJournal,
    OwnTree,
    Steps,
    current,
    step,
    workflow,
)
from handrail.ports.agent import AgentTurn
from handrail.testing import TextJournal

pytestmark = [
    pytest.mark.usefixtures("outside_git"),
    pytest.mark.parametrize("anyio_backend", ["asyncio"]),  # what git does knows no loop
]


def git(folder: Path, *words: str) -> str:
    """What git prints."""
    asked = ["git", "-C", str(folder), *words]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit, in which the test is."""
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "me")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "me@localhost")
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "a.txt").write_text("a\n")
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    monkeypatch.chdir(folder)
    return folder


def write(name: str, text: str) -> None:
    """A file of the worktree."""
    (Path(current().cwd) / name).write_text(text)


def commit_beside(folder: str, name: str, text: str) -> None:
    """A commit of somebody else in the working tree meanwhile."""
    (Path(folder) / name).write_text(text)
    git(Path(folder), "add", ".")
    git(Path(folder), "commit", "--quiet", "-m", f"beside {name}")


def by_hand(tree: OwnTree) -> None:
    """A merge of one's own: all that was done as one commit."""
    here = Path.cwd()
    git(here, "merge", "--squash", tree.branch)
    git(here, "commit", "--quiet", "-m", "by hand")


@pytest.mark.parametrize(
    ("merge", "parents", "subjects"),
    [
        ("ff", 1, ["beside c.txt", "first"]),
        ("merge", 2, ["beside c.txt", "first"]),
        (by_hand, 1, ["by hand", "beside c.txt", "first"]),
    ],
    ids=["ff", "merge", "a function"],
)
async def test_what_was_done_comes_back_as_asked(
    repo: Path, merge: str | Callable[[OwnTree], None], parents: int, subjects: list[str]
) -> None:
    """Beside what was committed meanwhile; no worktree and no branch is left."""

    def body() -> Steps[str]:
        yield from step("write").call(write, "b.txt", "b\n")
        yield from step("beside").call(commit_beside, str(repo), "c.txt", "c\n")
        return "done"

    @workflow
    def flow() -> Steps[str]:
        return (yield from step("tree").worktree(body, merge=merge))  # type: ignore[arg-type]

    result = await Executor().run(flow)
    assert result.unwrap() == "done"
    assert git(repo, "status", "--porcelain") == ""
    assert git(repo, "ls-files").split() == ["a.txt", "b.txt", "c.txt"]
    assert len(git(repo, "log", "-1", "--format=%P").split()) == parents
    told = git(repo, "log", "--format=%s").splitlines()
    assert [one for one in told if one in {"by hand", "first"} or "beside" in one] == subjects
    assert git(repo, "worktree", "list").count("\n") == 0
    assert git(repo, "branch", "--list", "handrail/*") == ""


@pytest.mark.parametrize("merge", ["ff", "merge"])
async def test_what_does_not_go_together_is_a_conflict_with_its_fields(
    repo: Path, merge: str
) -> None:
    """The working tree is as it was; what was done is on a branch, in a worktree that is kept."""

    def body() -> Steps[None]:
        yield from step("ours").call(write, "a.txt", "ours\n")
        yield from step("theirs").call(commit_beside, str(repo), "a.txt", "theirs\n")

    @workflow
    def flow() -> Steps[Any]:
        return (yield from step("tree").worktree(body, merge=merge))  # type: ignore[arg-type]

    result = await Executor().run(flow)
    assert result.failed_step is not None
    (failed,) = [one for one in result.step_results if one.path == "tree"]
    assert failed.error_type is not None
    assert failed.error_type.endswith("WorktreeConflict")
    conflict = failed.output
    assert isinstance(conflict, Conflict)
    assert conflict.files == ("a.txt",)
    assert conflict.reason
    assert (Path(conflict.path) / "a.txt").read_text() == "ours\n"
    assert git(repo, "show", f"{conflict.branch}:a.txt") == "ours"
    assert (repo / "a.txt").read_text() == "theirs\n"
    assert git(repo, "status", "--porcelain") == ""


async def test_a_run_goes_on_once_a_person_has_merged(repo: Path) -> None:
    """As the error says: merged by hand and resumed, nothing is done twice, and nothing is left."""
    made: list[str] = []

    def ours() -> None:
        made.append("ours")
        write("a.txt", "ours\n")

    def body() -> Steps[str]:
        yield from step("ours").call(ours)
        yield from step("theirs").call(commit_beside, str(repo), "a.txt", "theirs\n")
        return "done"

    @workflow
    def flow() -> Steps[str]:
        return (yield from step("tree").worktree(body, merge="merge"))

    executor = Executor(journal=MemoryJournal())
    result = await executor.run(flow)
    (failed,) = [one for one in result.step_results if one.path == "tree"]
    assert f"Merge it (git merge {failed.output.branch}), and resume the run" in str(failed.error)
    git(repo, "merge", "--quiet", "-X", "theirs", failed.output.branch)
    resumed = await executor.resume(result.run_id, flow)
    assert (resumed.unwrap(), made) == ("done", ["ours"])
    assert (repo / "a.txt").read_text() == "ours\n"
    assert git(repo, "worktree", "list").count("\n") == 0
    assert git(repo, "branch", "--list", "handrail/*") == ""


async def test_each_attempt_has_a_worktree_of_its_own(repo: Path) -> None:
    """Another attempt begins where the first one did, and not in what that left behind."""
    folders: list[str] = []

    def look() -> None:
        folders.append(current().cwd)
        if len(folders) == 1:
            raise ValueError("again")

    def body() -> Steps[None]:
        yield from step("look").call(look)

    @workflow
    def flow() -> Steps[None]:
        yield from step("tree").worktree(body).retry(2, backoff=0)
        yield from step("after").call(look)

    assert (await Executor().run(flow)).success
    assert folders[2] == str(repo)
    assert len(set(folders)) == 3
    assert git(repo, "worktree", "list").count("\n") == 0


async def test_a_fork_has_a_worktree_of_its_own(repo: Path) -> None:
    """It does again what was done in the other run's, which it does not touch."""
    folders: list[str] = []

    def look(name: str) -> None:
        folders.append(current().cwd)
        write(name, f"{len(folders)}\n")

    def body() -> Steps[None]:
        yield from step("one").call(look, "one.txt")
        yield from step("go?").ask("Go?", choices=["yes"])
        yield from step("two").call(look, "two.txt")

    @workflow
    def flow() -> Steps[None]:
        yield from step("tree").worktree(body)

    executor = Executor(journal=TextJournal(), workflows=[flow])
    first = await executor.run(flow)
    fork = await executor.fork(first.run_id)
    for run_id in (fork, first.run_id):
        await executor.resume(run_id)
        await executor.answer(run_id, "tree/go?", "yes")
        result = await executor.resume(run_id)
        assert result.success or run_id == first.run_id, result.error
    assert (folders[1], folders[0]) == (folders[2], folders[3])
    assert folders[0] != folders[1]
    assert git(repo, "show", "HEAD:one.txt") == "2"
    assert result.error is not None  # it had the same files to add
    assert "conflicts with the working tree" in result.error


class Writing:
    """A body that writes a file twice, and whose steps fail as often as asked. Mutable."""

    def __init__(self, **fails: int) -> None:
        self.log: list[str] = []
        self._fails = fails

    def do(self, name: str) -> None:
        """Note that the step runs; fail, or add a line to a file of the worktree."""
        self.log.append(name)
        if self._fails.get(name, 0) >= self.log.count(name):
            raise OSError(name)
        if name in {"one", "two"}:
            file = Path(current().cwd) / f"{name}.txt"
            before = file.read_text() if file.exists() else ""
            file.write_text(f"{before}{name}\n")

    def body(self) -> Steps[str]:
        """Write the two files."""
        yield from step("look").call(self.do, "look")
        yield from step("one").call(self.do, "one").with_rollback(lambda _: self.log.append("undo"))
        yield from step("two").call(self.do, "two")
        return "written"


def written(writing: Writing) -> Any:
    """A workflow whose step ``tree`` has this body, and another step behind that."""

    @workflow
    def flow() -> Steps[str]:
        value = yield from step("tree").worktree(writing.body)
        yield from step("after").call(writing.do, "after")
        return value

    return flow


@pytest.mark.parametrize("way", ["resume", "rerun", "fork"])
async def test_a_worktree_that_was_merged_and_removed_is_made_again_for_what_runs_again(
    repo: Path, way: str
) -> None:
    """A step in it that was undone, or is to run again; the others, merged by then, are kept."""
    writing = Writing(after=way != "rerun")
    flow = written(writing)
    executor = Executor(journal=TextJournal(), workflows=[flow])
    run_id = (await executor.run(flow)).run_id
    before = len(writing.log)
    if way == "fork":
        run_id = await executor.fork(run_id, at="after")
    result = await executor.resume(run_id, rerun=["tree/one"] if way == "rerun" else ())
    assert (result.value, result.error) == ("written", None)
    done = {"resume": ["one", "after"], "rerun": ["one"], "fork": ["look", "one", "two", "after"]}
    assert writing.log[before:] == done[way]
    assert git(repo, "show", "HEAD:one.txt") == "one\none"
    assert git(repo, "worktree", "list").count("\n") == 0


async def test_a_worktree_that_was_left_without_changes_is_made_again(repo: Path) -> None:
    """A resume of what failed in it finds its steps a place to work in."""
    writing = Writing(one=1)
    flow = written(writing)
    executor = Executor(journal=TextJournal(), workflows=[flow])
    failed = await executor.run(flow)
    assert git(repo, "worktree", "list").count("\n") == 0
    result = await executor.resume(failed.run_id)
    assert (result.value, writing.log) == ("written", ["look", "one", "one", "two", "after"])
    assert git(repo, "show", "HEAD:two.txt") == "two"


async def test_a_worktree_that_was_left_with_changes_is_gone_on_in(repo: Path) -> None:
    """What stands in it is neither lost nor done again."""
    writing = Writing(two=1)
    flow = written(writing)
    executor = Executor(journal=TextJournal(), workflows=[flow])
    failed = await executor.run(flow)
    before = len(writing.log)
    assert git(repo, "worktree", "list").count("\n") == 1
    result = await executor.resume(failed.run_id)
    assert (result.error, writing.log[before:]) == (None, ["one", "two", "after"])
    assert git(repo, "show", "HEAD:one.txt") == "one\none"


@pytest.mark.parametrize("named", [False, True])
async def test_a_worktree_may_have_others_in_it(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, named: bool
) -> None:
    """What is done in the innermost comes to the outermost; they stand beside each other."""
    if named:
        monkeypatch.setenv("HANDRAIL_DIR", str(tmp_path / "own"))
    folders: list[Path] = []

    def body(names: list[str]) -> Steps[None]:
        yield from step("write").call(write, f"{names[0]}.txt", names[0])
        folders.append(Path((yield from step("where").call(lambda: current().cwd))))
        if names[1:]:
            yield from step(names[1]).worktree(body, names[1:], merge="merge")

    @workflow
    def flow() -> Steps[None]:
        yield from step("one").worktree(body, ["one", "two", "three"])

    result = await Executor().run(flow)
    assert result.error is None
    assert [git(repo, "show", f"HEAD:{name}.txt") for name in ("one", "two", "three")] == [
        "one",
        "two",
        "three",
    ]
    assert git(repo, "status", "--porcelain") == ""
    assert git(repo, "branch", "--list", "handrail/*") == ""
    assert all(
        not one.is_relative_to(other) for one in folders for other in folders if one != other
    )


async def test_what_a_step_left_in_a_worktree_of_a_worktree_is_kept(repo: Path) -> None:
    """Also if the enclosing one, whose body handled that, is merged and removed."""

    def inner() -> Steps[None]:
        yield from step("write").call(write, "inner.txt", "inner")
        raise ValueError

    def outer() -> Steps[None]:
        yield from step("inner").worktree(inner).skip_on_error()
        yield from step("agent").agent(agent, worktree=True)

    def reply(turn: AgentTurn) -> str:
        (Path(turn.options.cwd or "") / "agent.txt").write_text("agent")
        return "done"

    agent = Agent("coder", "work", backend=FakeBackend([reply]))

    @workflow
    def flow() -> Steps[None]:
        yield from step("outer").worktree(outer)

    result = await Executor().run(flow)
    assert result.error is None
    assert git(repo, "show", "HEAD:agent.txt") == "agent"
    (kept,) = git(repo, "worktree", "list").splitlines()[1:]
    folder, *_ = kept.split()
    assert (Path(folder) / "inner.txt").read_text() == "inner"
