from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail import (
    Agent,
    AgentError,
    DefinitionError,
    Executor,
    FakeBackend,
    ScopeViolated,
    Steps,
    WorktreeConflict,
    step,
    workflow,
)
from handrail.model.agent_options import AgentOptions, AgentSettings
from handrail.model.launch import Launch
from handrail.ports.agent import AgentReply, AgentTurn, Capabilities
from tests.agents.conftest import BOTH_LOOPS
from tests.agents.repositories import contents, found, git, needs_git, repository, write

pytestmark = needs_git


Work = Callable[[Path], object]


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with `src/a.py` and `docs/guide.md`."""
    return repository(
        tmp_path / "repo", {"src/a.py": "".join(f"a{n} = 1\n" for n in range(9)), "docs/g": "g\n"}
    )


@pytest.fixture
def launch(make_request: Callable[..., Any]) -> Callable[..., Any]:
    """A function that has an agent do something in a worktree of its own."""

    async def run(
        repo: Path, work: Work, *, writes: tuple[str, ...] | None = None, **changes: Any
    ) -> Any:
        def reply(turn: AgentTurn) -> Any:
            done = work(Path(turn.options.cwd or ""))
            return done if isinstance(done, (AgentReply, BaseException)) else "done"

        backend = FakeBackend([reply])
        agent = Agent("coder", "work", backend=backend, options=AgentOptions(cwd=str(repo)))
        settings = AgentSettings(writes=writes, worktree=True)
        return await agent.run(replace(make_request(), settings=settings, **changes))

    return run


def left(repo: Path) -> list[str]:
    """The worktrees and branches that there are besides the main one."""
    worktrees = git(repo, "worktree", "list", "--porcelain").count("worktree ") - 1
    branches = git(repo, "for-each-ref", "--format=%(refname:short)", "refs/heads/handrail")
    return [*branches.splitlines(), *["worktree"] * worktrees]


async def test_its_changes_are_merged_back(repo: Path, launch: Callable[..., Any]) -> None:
    """Committed and not, binary and text; worktree and branch are gone."""
    seen: list[Path] = []

    def work(at: Path) -> None:
        seen.append(at)
        assert git(at, "symbolic-ref", "HEAD").startswith("refs/heads/handrail/run-")
        write(at, {"src/b.py": "b = 1\n"})
        git(at, "add", "--all")
        git(at, "commit", "--quiet", "-m", "agent")
        write(at, {"blob": b"\0\1"})
        (at / "docs/g").unlink()
        assert "blob" not in contents(repo)

    before = contents(repo)
    del before["docs/g"]
    await launch(repo, work)
    assert contents(repo) == {**before, "src/b.py": ("file", b"b = 1\n"), "blob": ("file", b"\0\1")}
    assert git(repo, "log", "--format=%s") == "first\n"
    assert not seen[0].exists()
    assert left(repo) == []
    assert git(repo, "status", "--porcelain") == " D docs/g\n?? blob\n?? src/b.py\n"


@BOTH_LOOPS
async def test_it_is_merged_with_what_changed_meanwhile(
    repo: Path, launch: Callable[..., Any]
) -> None:
    """Other lines of the same file may have changed meanwhile; the index is not touched."""
    write(repo, {"docs/g": "staged\n"})
    git(repo, "add", "docs/g")
    lines = (repo / "src/a.py").read_text().splitlines()

    def work(at: Path) -> None:
        assert (at / "docs/g").read_text() == "g\n"  # it begins at HEAD
        write(at, {"src/a.py": "\n".join([*lines[:-1], "agent = 1", ""])})
        write(repo, {"src/a.py": "\n".join(["user = 1", *lines[1:], ""])})

    await launch(repo, work)
    assert (repo / "src/a.py").read_text().splitlines() == ["user = 1", *lines[1:-1], "agent = 1"]
    assert git(repo, "diff", "--cached", "--name-only") == "docs/g\n"


async def test_a_conflict_fails_the_step_and_keeps_the_worktree(
    repo: Path, launch: Callable[..., Any]
) -> None:
    """The working tree is as it was; the error names worktree and branch, which has the work."""

    def work(at: Path) -> None:
        write(at, {"src/a.py": "agent\n", "new": "1\n"})
        write(repo, {"src/a.py": "user\n"})

    with pytest.raises(WorktreeConflict) as caught:
        await launch(repo, work)
    error = caught.value
    assert contents(repo).keys() == {"src/a.py", "docs/g"}
    assert (repo / "src/a.py").read_text() == "user\n"
    assert "src/a.py" in error.reason
    assert (Path(error.folder) / "new").exists()
    assert left(repo) == [error.branch, "worktree"]
    assert git(repo, "show", f"{error.branch}:new") == "1\n"
    assert f"git merge {error.branch}" in str(error)
    assert git(repo, "status", "--porcelain") == " M src/a.py\n"


async def test_without_changes_nothing_is_left(repo: Path, launch: Callable[..., Any]) -> None:
    """Of a launch that changes nothing, succeeded or failed, there is no worktree."""
    await launch(repo, lambda _: None)
    with pytest.raises(AgentError):
        await launch(repo, lambda _: AgentError("coder", "no"))
    assert left(repo) == []
    assert not (repo / ".handrail/launches").exists()


async def test_folders_are_mapped(
    repo: Path, tmp_path: Path, make_request: Callable[..., Any]
) -> None:
    """The agent works in the same folder of the worktree; folders elsewhere stay."""
    backend = FakeBackend(["done"])
    options = AgentOptions(cwd=str(repo / "src"), add_dirs=(str(repo / "docs"), str(tmp_path)))
    agent = Agent("coder", "work", backend=backend, options=options)
    await agent.run(replace(make_request(), settings=AgentSettings(worktree=True)))
    told = backend.turns[0].options
    root = Path(told.cwd or "").parent
    assert root.is_relative_to(repo / ".handrail/worktrees")
    assert told.add_dirs == (str(root / "docs"), str(tmp_path))


async def test_the_next_launch_goes_on_in_it(repo: Path, launch: Callable[..., Any]) -> None:
    """After a failure the files of the launch before are there, and merged in the end."""

    def first(at: Path) -> AgentError:
        write(at, {"half": "1\n"})
        return AgentError("coder", "busy", kind="transient")

    with pytest.raises(AgentError):
        await launch(repo, first)
    assert left(repo)

    def second(at: Path) -> None:
        assert (at / "half").read_text() == "1\n"
        write(at, {"rest": "2\n"})

    await launch(repo, second, launch=Launch(number=2, rung="retry"))
    assert {"half", "rest"} <= contents(repo).keys()
    assert left(repo) == []


async def test_an_answer_that_does_not_fit_is_not_merged_yet(
    repo: Path, make_request: Callable[..., Any], climb: Callable[..., Any]
) -> None:
    """The re-ask goes on in the worktree; what is merged is what the fitting answer left."""

    def first(turn: AgentTurn) -> str:
        write(Path(turn.options.cwd or ""), {"count": "one\n"})
        return "no number"

    def second(turn: AgentTurn) -> str:
        at = Path(turn.options.cwd or "")
        assert (at / "count").read_text() == "one\n"
        assert not (repo / "count").exists()
        write(at, {"count": "two\n"})
        return "2"

    backend = FakeBackend([first, second])
    agent = Agent("coder", "work", output=int, backend=backend, options=AgentOptions(cwd=str(repo)))
    request = replace(make_request(), settings=AgentSettings(worktree=True))
    assert (await climb(agent, request)).output == 2
    assert (repo / "count").read_text() == "two\n"


async def test_a_step_that_begins_anew_sets_aside_what_was_left(
    repo: Path, launch: Callable[..., Any]
) -> None:
    """A new attempt starts from HEAD; the work of the one before is in a patch."""

    def first(at: Path) -> AgentError:
        write(at, {"half": "1\n"})
        return AgentError("coder", "no")

    with pytest.raises(AgentError):
        await launch(repo, first)
    await launch(repo, lambda at: write(at, {"whole": str((at / "half").exists())}))
    assert (repo / "whole").read_text() == "False"
    assert "half" not in contents(repo)
    patch = found(repo, ".handrail/quarantine/*/work/plan.patch")[0]
    git(repo, "apply", str(patch))
    assert (repo / "half").read_text() == "1\n"


async def test_a_step_that_begins_anew_keeps_commits_and_repositories_of_before(
    repo: Path, launch: Callable[..., Any]
) -> None:
    """Commits that HEAD of the worktree lacked are on a branch, and repositories in quarantine."""

    def first(at: Path) -> AgentError:
        git(at, "commit", "--quiet", "--allow-empty", "-m", "lost?")
        git(at, "checkout", "--quiet", "--detach", "HEAD~1")
        write(at, {"inner/x": "1\n"})
        git(at / "inner", "init", "--quiet")
        return AgentError("coder", "no")

    for _ in range(2):
        with pytest.raises(AgentError):
            await launch(repo, first)
    await launch(repo, lambda at: write(at, {"whole": ""}))
    assert [git(repo, "log", "-1", "--format=%s", name) for name in left(repo)] == ["lost?\n"] * 2
    assert len(found(repo, ".handrail/quarantine/*/work/plan*.repositories/inner/x")) == 2
    assert not (repo / "inner").exists()


async def test_what_is_left_of_a_broken_worktree_is_gone_on_in(
    repo: Path, launch: Callable[..., Any]
) -> None:
    """A worktree without its ``.git`` file gets it back, with the work that stands in it."""

    def first(at: Path) -> AgentError:
        write(at, {"half": "1\n"})
        (at / ".git").unlink()
        return AgentError("coder", "no")

    with pytest.raises(AgentError):
        await launch(repo, first)
    await launch(repo, lambda at: write(at, {"whole": ""}), interrupted=True)
    assert {"half", "whole"} <= contents(repo).keys()
    assert left(repo) == []


async def test_a_repository_made_within_the_scope_comes_home(
    repo: Path, launch: Callable[..., Any]
) -> None:
    """With ``writes=`` and a worktree, too."""

    def work(at: Path) -> None:
        write(at, {"src/inner/x": "1\n"})
        git(at / "src/inner", "init", "--quiet")

    await launch(repo, work, writes=("src/**",))
    assert (repo / "src/inner/x").read_text() == "1\n"
    assert (repo / "src/inner/.git").is_dir()


async def test_the_scope_is_checked_before_the_merge(
    repo: Path, launch: Callable[..., Any]
) -> None:
    """A violation leaves the working tree as it was, and what was allowed in the worktree."""
    before = contents(repo)
    with pytest.raises(ScopeViolated) as caught:
        await launch(
            repo, lambda at: write(at, {"src/b.py": "", "docs/g": "x\n"}), writes=("src/**",)
        )
    assert caught.value.files == ("docs/g (changed)",)
    assert contents(repo) == before
    [worktree] = found(repo, ".handrail/worktrees/*/work/plan")
    assert str(worktree) in str(caught.value)
    assert contents(worktree).keys() == {"docs/g", "src/a.py", "src/b.py"}
    assert (worktree / "docs/g").read_text() == "g\n"
    await launch(repo, lambda at: write(at, {"src/b.py": ""}), writes=("src/**",))
    assert "src/b.py" in contents(repo)


@BOTH_LOOPS
async def test_a_cancelled_launch_keeps_its_work(
    repo: Path, make_request: Callable[..., Any]
) -> None:
    """Nothing is merged, and the worktree is there for the next launch."""

    async def reply(turn: AgentTurn) -> str:
        write(Path(turn.options.cwd or ""), {"half": "1"})
        scope.cancel()
        await anyio.sleep(60)
        return ""

    agent = Agent("coder", "w", backend=FakeBackend([reply]), options=AgentOptions(cwd=str(repo)))
    with anyio.CancelScope() as scope:
        await agent.run(replace(make_request(), settings=AgentSettings(worktree=True)))
    assert "half" not in contents(repo)
    assert len(left(repo)) == 2


async def test_a_commit_is_needed_to_begin_with(tmp_path: Path, launch: Callable[..., Any]) -> None:
    """A repository without one is refused before the launch."""
    git(tmp_path, "init", "--quiet")
    with pytest.raises(DefinitionError, match="needs a commit to begin with"):
        await launch(tmp_path, lambda _: None)


async def test_the_backend_must_work_elsewhere(
    repo: Path, make_request: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that cannot be told its folder is refused before the launch."""

    class Fixed(FakeBackend):
        capabilities = Capabilities()

    monkeypatch.chdir(repo)
    agent = Agent("coder", "work", backend=Fixed(["done"]))
    with pytest.raises(DefinitionError, match="working folder"):
        await agent.run(replace(make_request(), settings=AgentSettings(worktree=True)))


def test_steps_at_the_same_time_do_not_meet(repo: Path) -> None:
    """Several agents change the same file in other places at once: all of it is merged."""

    def reply(turn: AgentTurn) -> str:
        number = int(turn.prompt)
        file = Path(turn.options.cwd or "") / "src/a.py"
        lines = file.read_text().splitlines()
        lines[number] = f"agent{number} = 1"
        file.write_text("\n".join([*lines, ""]))
        write(file.parent, {f"n{number}": ""})
        return "done"

    options = AgentOptions(cwd=str(repo))
    agent = Agent("coder", "{{ number }}", backend=FakeBackend([reply] * 3), options=options)

    @workflow
    def flow() -> Steps[Any]:
        return (
            yield from step("all").for_each(
                [0, 4, 8],
                lambda number: step("work").agent(agent, {"number": number}, worktree=True),
                max_concurrency=3,
            )
        )

    result = Executor().run_sync(flow)
    assert result.success, result.error
    lines = (repo / "src/a.py").read_text().splitlines()
    assert [n for n, line in enumerate(lines) if line.startswith("agent")] == [0, 4, 8]
    assert {"src/n0", "src/n4", "src/n8"} <= contents(repo).keys()
    assert left(repo) == []
