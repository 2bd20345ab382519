"""What steps hold, and worktrees of their own, in runs whose process is killed at every record."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail import Executor, Steps, current, step, workflow
from handrail.ports.claims import Claim
from handrail.ports.journal import Journal
from handrail.testing import Crashes, JumpClock, plugin
from handrail.workspace.claims.local import LocalClaims
from tests.agents.repositories import git, needs_git, repository

pytestmark = needs_git
CrashEverywhere = Callable[..., Crashes]
crash_everywhere = plugin.crash_everywhere
IN_CI = 3


def held_here() -> list[Claim]:
    """What is held in the repository that the process works in."""
    claims = LocalClaims(git(Path.cwd(), "rev-parse", "--absolute-git-dir").strip())
    return list(anyio.run(claims.listed).held)


def in_repository(journal: Journal) -> Executor:
    """An executor in a repository that is made for each run, and is the same for its processes."""
    inner: Any = getattr(journal, "_behind", journal)
    place = Path(inner.path).with_name("repository")
    if not journal.runs():
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(os.environ["REPOSITORY"], place, symlinks=True)
    os.chdir(place)
    return Executor(journal=journal, clock=JumpClock())


@pytest.fixture(autouse=True)
def template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The repository that each run begins with: the same, to its first commit."""
    place = repository(tmp_path / "template")
    git(place, "tag", "start")
    monkeypatch.setenv("REPOSITORY", str(place))


# -- what is held ----------------------------------------------------------------------------------


def holding(*names: str) -> list[str]:
    """These names, each of which this very process holds for this step, or above it."""
    here = current()
    for name in names:
        holders = [
            claim
            for claim in held_here()
            if any(name in {its.name, *its.patterns} for its in claim.resources)
        ]
        assert [claim.pid for claim in holders] == [os.getpid()], holders
        (claimant,) = (claim.claimant for claim in holders)
        assert f"{here.path}/".startswith(f"{claimant.path}/"), (here.path, claimant)
    return list(names)


def deploy(name: str) -> Steps[list[str]]:
    """Two steps one after the other, and one that holds more."""
    first = yield from step("first").call(holding, "deploy")
    inner = yield from step("inner").holding(["src/**"], both)
    last = yield from step("last").call(holding, "deploy", "git").holds("git")
    return [name, *first, *inner, *last]


def both() -> Steps[list[str]]:
    """A group in it, of which two members want the same."""
    a, b = yield from step("both").parallel(
        step("a").call(holding, "deploy", "src/**", "db").holds("db"),
        step("b").call(holding, "deploy", "src/**", "db").holds("db"),
    )
    return [*a, *b]


@workflow
def holds() -> Steps[Any]:
    """Names and files, held by steps and over several, side by side and in one another."""
    done = yield from step("all").parallel(
        step("one").holding("deploy", deploy, "one"),
        step("two").holding("deploy", deploy, "two"),
        step("git").call(holding, "git").holds("git"),
    )
    yield from step("free").call(nothing_held)
    return done


def nothing_held() -> int:
    """How much is held when all is done; what was held is given back beside the next step."""
    end = time.monotonic() + 10
    while held_here() and time.monotonic() < end:
        time.sleep(0.01)  # noqa: TID251  # another thread gives it back
    assert held_here() == []
    return 0


def test_no_step_runs_without_its_claim_and_none_outlives_its_run(
    crash_everywhere: CrashEverywhere,
) -> None:
    """Killed anywhere and resumed, each step has what it holds, in the process that runs it."""
    told = crash_everywhere(holds, executor=in_repository, limit=IN_CI)
    assert told.crashes == IN_CI
    assert sum(record.startswith("ClaimGranted") for record in told.records) == 11


# -- worktrees -------------------------------------------------------------------------------------


def write(name: str, text: str) -> str:
    """A file in the folder that the step is to work in."""
    (Path(current().cwd) / name).write_text(text)
    return text


def task(name: str) -> Steps[str]:
    """What is done in a worktree: two files, and the folder of another program."""
    yield from step("write").call(write, f"{name}.txt", name)
    told = yield from step("list").command("ls *.txt")
    assert told.exit_code == 0
    return name


@workflow
def trees() -> Steps[Any]:
    """Two worktrees at once, and a look at what came of them."""
    done = yield from step("all").for_each(["x", "y"], in_tree, key=str)
    return done, (yield from step("look").call(look))


def in_tree(name: str) -> Any:
    """One of them."""
    setup = step("setup").command(f"echo {name} > setup.txt; rm setup.txt")
    return step("tree").worktree(task, name, base="start", setup=setup)


def look() -> list[str]:
    """The files, what is committed, and what is left of the worktrees."""
    here = Path.cwd()
    assert git(here, "status", "--porcelain") == ""
    assert git(here, "worktree", "list").count("\n") == 1
    assert git(here, "branch", "--list", "handrail/*") == ""
    return sorted(git(here, "ls-files").split())


def test_worktrees_survive_crashes(crash_everywhere: CrashEverywhere) -> None:
    """Killed anywhere and resumed, what was done in each is merged, and nothing is left."""
    told = crash_everywhere(trees, executor=in_repository, limit=IN_CI)
    assert told.crashes == IN_CI
    assert told.executions["all/x/tree/(merge)"] <= 2
