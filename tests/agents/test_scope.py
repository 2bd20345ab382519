from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from handrail import (
    Agent,
    AgentError,
    CallbackSink,
    ConsoleSink,
    DefinitionError,
    Executor,
    FakeBackend,
    ScopeViolated,
    SqliteJournal,
    Steps,
    step,
    workflow,
)
from handrail.cli import main
from handrail.model.agent_options import AgentOptions, AgentSettings
from handrail.model.events import ClaimWaiting
from handrail.model.results import Usage
from handrail.ports.agent import AgentReply, AgentTurn
from handrail.workspace.git import repository_of
from handrail.workspace.places import places_of
from handrail.workspace.scope import allows, before_launch
from handrail.workspace.shadow import Shadow
from tests.agents.conftest import BOTH_LOOPS
from tests.agents.repositories import contents, found, git, needs_git, repository, write

pytestmark = needs_git


Work = Callable[[Path], object]


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with `src/a.py` and `docs/guide.md`."""
    return repository(tmp_path / "repo")


@pytest.fixture
def launch(make_request: Callable[..., Any]) -> Callable[..., Any]:
    """A function that has an agent do something in a repository, within its scope."""

    async def run(repo: Path, work: Work, *writes: str, **changes: Any) -> Any:
        def reply(turn: AgentTurn) -> Any:
            done = work(Path(turn.options.cwd or ""))
            return done if isinstance(done, (AgentReply, BaseException)) else "done"

        agent = Agent(
            "coder", "work", backend=FakeBackend([reply]), options=AgentOptions(cwd=str(repo))
        )
        request = replace(make_request(), settings=AgentSettings(writes=writes), **changes)
        return await agent.run(request)

    return run


def apply(repo: Path, patch: str | None) -> None:
    """Do as the error says."""
    assert patch is not None
    git(repo, "apply", "--whitespace=nowarn", patch)


async def test_what_is_allowed_stays(repo: Path, launch: Callable[..., Any]) -> None:
    """An agent that keeps to its scope succeeds, and its changes are there."""
    await launch(repo, lambda at: write(at, {"src/a.py": "a = 2\n", "src/new/b.py": ""}), "src/**")
    assert contents(repo)["src/a.py"] == ("file", b"a = 2\n")
    assert "src/new/b.py" in contents(repo)
    assert not (repo / ".handrail/launches").exists()


@BOTH_LOOPS
async def test_what_is_outside_is_undone_and_kept_in_a_patch(
    repo: Path, launch: Callable[..., Any]
) -> None:
    """Changed, added, deleted, renamed and made executable: each is undone; the patch has it."""
    write(repo, {"docs/old.md": "old\n" * 9, "docs/run.sh": "true\n", "docs/gone.md": "x\n"})
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "-m", "more")

    def work(at: Path) -> None:
        write(at, {"src/a.py": "a = 2\n", "docs/guide.md": "mine\n", "notes/new": b"\0\xff\n"})
        (at / "docs/old.md").rename(at / "docs/moved.md")
        (at / "docs/run.sh").chmod(0o755)
        (at / "docs/gone.md").unlink()

    before = contents(repo)
    with pytest.raises(ScopeViolated) as caught:
        await launch(repo, work, "src/**")
    error = caught.value
    allowed = {**before, "src/a.py": ("file", b"a = 2\n")}
    assert contents(repo) == allowed
    assert error.files == (
        "docs/gone.md (deleted)",
        "docs/guide.md (changed)",
        "docs/moved.md (added)",
        "docs/old.md (deleted)",
        "docs/run.sh (mode changed)",
        "notes/new (added)",
    )
    assert error.patch == str(found(repo, ".handrail/quarantine/run-*/work/plan.patch")[0])
    assert f"git apply {error.patch}" in str(error)
    assert "'src/**'" in str(error)
    apply(repo, error.patch)
    assert contents(repo)["notes/new"] == ("file", b"\0\xff\n")
    assert contents(repo)["docs/run.sh"][0] == "program"
    assert git(repo, "status", "--porcelain").count("\n") == 7


async def test_a_file_that_was_dirty_gets_its_dirty_content_back(
    repo: Path, launch: Callable[..., Any]
) -> None:
    """Not the content of the last commit, nor is the user's index touched."""
    write(repo, {"docs/guide.md": "staged\n"})
    git(repo, "add", "docs/guide.md")
    write(repo, {"docs/guide.md": "dirty\r\n", "untracked": "mine\n"})
    index = (repo / ".git/index").read_bytes()
    with pytest.raises(ScopeViolated):
        await launch(repo, lambda at: write(at, {"docs/guide.md": "", "untracked": ""}), "src/**")
    assert contents(repo)["docs/guide.md"][1] == b"dirty\r\n"
    assert contents(repo)["untracked"][1] == b"mine\n"
    assert (repo / ".git/index").read_bytes() == index
    assert git(repo, "diff", "--cached", "--name-only") == "docs/guide.md\n"


async def test_bytes_come_back_whatever_attributes_say(
    repo: Path, launch: Callable[..., Any]
) -> None:
    """Neither line endings nor filters have a part in what is put back."""
    write(repo, {".gitattributes": "* text eol=lf\n*.bin filter=absent\n"})
    write(repo, {"docs/guide.md": "one\r\ntwo\n", "docs/x.bin": "x\n"})
    before = contents(repo)
    with pytest.raises(ScopeViolated):
        await launch(
            repo, lambda at: write(at, {"docs/guide.md": "z", "docs/x.bin": "z"}), "src/**"
        )
    assert contents(repo) == before


async def test_a_commit_is_taken_back(repo: Path, launch: Callable[..., Any]) -> None:
    """HEAD, branch and index are where they were; what is allowed stays, not committed."""

    def work(at: Path) -> None:
        git(at, "checkout", "--quiet", "-b", "agents-own")
        write(at, {"src/a.py": "a = 2\n", "docs/guide.md": "mine\n"})
        git(at, "commit", "--quiet", "--all", "-m", "agent")

    head = git(repo, "rev-parse", "HEAD")
    with pytest.raises(ScopeViolated) as caught:
        await launch(repo, work, "src/**")
    assert git(repo, "rev-parse", "HEAD") == head
    assert git(repo, "symbolic-ref", "HEAD") == "refs/heads/main\n"
    assert git(repo, "status", "--porcelain") == " M src/a.py\n"
    assert git(repo, "rev-parse", "agents-own").strip() in str(caught.value)
    apply(repo, caught.value.patch)
    assert contents(repo)["docs/guide.md"][1] == b"mine\n"


async def test_a_commit_within_the_scope_stays(repo: Path, launch: Callable[..., Any]) -> None:
    """An agent may commit what it may write."""

    def work(at: Path) -> None:
        write(at, {"src/a.py": "a = 2\n"})
        git(at, "commit", "--quiet", "--all", "-m", "agent")

    await launch(repo, work, "src/**")
    assert git(repo, "log", "--format=%s") == "agent\nfirst\n"


async def test_a_file_that_was_only_committed_is_found(
    repo: Path, launch: Callable[..., Any]
) -> None:
    """To commit what the user had changed, elsewhere, is a change too."""
    write(repo, {"docs/guide.md": "the user's\n"})

    def work(at: Path) -> None:
        git(at, "commit", "--quiet", "--all", "-m", "agent")

    with pytest.raises(ScopeViolated) as caught:
        await launch(repo, work, "src/**")
    assert caught.value.files == ("docs/guide.md (committed)",)
    assert caught.value.patch is None
    assert git(repo, "log", "--format=%s") == "first\n"
    assert git(repo, "status", "--porcelain") == " M docs/guide.md\n"


async def test_a_repository_without_a_commit_has_a_scope_too(
    tmp_path: Path, launch: Callable[..., Any]
) -> None:
    """A first commit of the agent's is taken back to none."""
    git(tmp_path, "init", "--quiet", "--initial-branch=main")

    def work(at: Path) -> None:
        write(at, {"src/a": "a", "b": "b"})
        git(at, "add", "--all")
        git(at, "commit", "--quiet", "-m", "agent")

    with pytest.raises(ScopeViolated):
        await launch(tmp_path, work, "src/")
    assert git(tmp_path, "status", "--porcelain") == "?? src/\n"


async def test_ignored_files_are_left_alone(repo: Path, launch: Callable[..., Any]) -> None:
    """What git ignores, by whichever list, is nobody's scope."""
    write(repo, {".gitignore": "*.log\n", ".git/info/exclude": "build/\n"})
    await launch(repo, lambda at: write(at, {"x.log": "", "build/y": ""}), "src/**")
    assert {"x.log", "build/y"} <= contents(repo).keys()


async def test_what_a_new_ignore_file_hides_is_found(
    repo: Path, launch: Callable[..., Any]
) -> None:
    """The lists that count are those from before the launch."""
    write(repo, {".git/info/exclude": ""})

    def work(at: Path) -> None:
        write(at, {".gitignore": "*.x\n", "hidden.x": "1", "hidden.y": "2"})
        write(at, {".git/info/exclude": "*.y\n"})

    before = contents(repo)
    with pytest.raises(ScopeViolated) as caught:
        await launch(repo, work, "src/**")
    assert contents(repo) == before
    apply(repo, caught.value.patch)
    assert {".gitignore", "hidden.x", "hidden.y"} <= contents(repo).keys()


LINKS = ["hooks", "config", "hooks that were there"]


@pytest.mark.parametrize("what", LINKS)
async def test_a_link_in_the_place_of_hooks_or_settings_is_not_followed(
    repo: Path,
    launch: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
    what: str,
) -> None:
    """It goes, what was there is there again, and what it led to is as it was."""
    victim = tmp_path_factory.mktemp("victim")
    (victim / "precious").write_text("keep me")
    (victim / "pre-commit").write_text("not yours")
    config = (repo / ".git/config").read_bytes()
    (victim / "config").write_bytes(config)
    hooks = repo / ".git/hooks"
    if what == "hooks that were there":
        hooks.mkdir(exist_ok=True)
        (hooks / "pre-commit").write_text("#!/bin/sh\n")

    def work(at: Path) -> None:
        if what == "config":
            (at / ".git/config").unlink()
            (at / ".git/config").symlink_to(victim / "config")
        else:
            shutil.rmtree(at / ".git/hooks", ignore_errors=True)
            (at / ".git/hooks").symlink_to(victim)

    with pytest.raises(ScopeViolated):
        await launch(repo, work, "a/**")
    assert {file.name for file in victim.iterdir()} == {"precious", "pre-commit", "config"}
    assert (victim / "precious").read_text() == "keep me"
    assert (victim / "pre-commit").read_text() == "not yours"
    assert not hooks.is_symlink()
    assert not (repo / ".git/config").is_symlink()
    assert (repo / ".git/config").read_bytes() == config
    if what == "hooks that were there":
        assert (hooks / "pre-commit").read_text() == "#!/bin/sh\n"


async def test_hooks_and_settings_of_git_are_put_back(
    repo: Path, launch: Callable[..., Any]
) -> None:
    """A hook would run with the user's next commit, so a pattern for all files is not enough."""

    def work(at: Path) -> None:
        write(at, {".git/hooks/pre-commit": "#!/bin/sh\n"})
        git(at, "config", "core.fsmonitor", "touch /tmp/x")

    config = (repo / ".git/config").read_bytes()
    with pytest.raises(ScopeViolated) as caught:
        await launch(repo, work, "**")
    assert caught.value.files == (".git/config (changed)", ".git/hooks/pre-commit (added)")
    assert (repo / ".git/config").read_bytes() == config
    assert not (repo / ".git/hooks/pre-commit").exists()
    kept = found(repo, ".handrail/quarantine/*/work/plan.git/hooks/pre-commit")[0]
    assert kept.read_text() == "#!/bin/sh\n"


@pytest.mark.parametrize("commit", [True, False])
async def test_a_new_repository_within_is_moved_away(
    repo: Path, launch: Callable[..., Any], *, commit: bool
) -> None:
    """It cannot be in a patch, so it is kept as a whole."""

    def work(at: Path) -> None:
        write(at, {"sub/x": "1"})
        git(at / "sub", "init", "--quiet")
        if commit:
            git(at / "sub", "commit", "--quiet", "--allow-empty", "-m", "x")

    with pytest.raises(ScopeViolated) as caught:
        await launch(repo, work, "src/**")
    assert caught.value.files == ("sub (added)",)
    assert not (repo / "sub").exists()
    assert found(repo, ".handrail/quarantine/*/work/plan.repositories/sub/x")[0].read_text() == "1"


async def test_a_folder_in_place_of_a_file_is_undone(
    repo: Path, launch: Callable[..., Any]
) -> None:
    """What is allowed gives way where what is not must come back, and is in the patch."""

    def work(at: Path) -> None:
        (at / "docs/guide.md").unlink()
        write(at, {"docs/guide.md/src/x": "1"})
        shutil.rmtree(at / "src")
        (at / "src").symlink_to("docs")

    before = contents(repo)
    with pytest.raises(ScopeViolated) as caught:
        await launch(repo, work, "x", "src", "!src/a.py")
    assert contents(repo) == before
    assert "docs/guide.md/src/x (added)" in caught.value.files
    apply(repo, caught.value.patch)
    assert contents(repo)["docs/guide.md/src/x"] == ("file", b"1")
    assert (repo / "src").is_symlink()


async def test_a_failed_launch_is_checked_too(repo: Path, launch: Callable[..., Any]) -> None:
    """An agent that fails leaves nothing outside of its scope either; what it used is known."""

    def work(at: Path) -> Exception:
        write(at, {"docs/guide.md": "x", "src/a.py": "b\n"})
        return AgentError("coder", "busy", kind="transient", usage=Usage(5, 6))

    with pytest.raises(ScopeViolated) as caught:
        await launch(repo, work, "src/**")
    assert caught.value.kind is None
    assert caught.value.usage == Usage(5, 6)
    assert git(repo, "status", "--porcelain") == " M src/a.py\n"


@BOTH_LOOPS
async def test_a_cancelled_launch_is_checked_too(
    repo: Path, make_request: Callable[..., Any], emitted: list[Any]
) -> None:
    """A cancelled agent leaves nothing outside of its scope; the cancellation goes on."""

    async def reply(turn: AgentTurn) -> str:
        write(repo, {"docs/guide.md": "x"})
        scope.cancel()
        await anyio.sleep(60)
        return turn.prompt

    agent = Agent("coder", "w", backend=FakeBackend([reply]), options=AgentOptions(cwd=str(repo)))
    request = replace(make_request(), settings=AgentSettings(writes=("src/**",)))
    with anyio.CancelScope() as scope:
        await agent.run(request)
    assert scope.cancelled_caught
    assert git(repo, "status", "--porcelain") == ""
    assert "docs/guide.md (changed)" in emitted[-1].text


async def test_a_crash_is_no_way_out(repo: Path, launch: Callable[..., Any], run_id: str) -> None:
    """What a killed launch did outside counts when the step is launched again."""
    found = await repository_of(repo, "m")
    assert found is not None
    places = places_of(repo, run_id, "work/plan")
    await before_launch(Shadow(places.shadow, repo, "m"), places, found)
    write(repo, {"docs/guide.md": "by the killed agent\n"})  # and then the process dies
    with pytest.raises(ScopeViolated, match="killed") as caught:
        await launch(repo, lambda _: None, "src/**", interrupted=True)
    assert caught.value.files == ("docs/guide.md (changed)",)
    begins = [line.partition(" ")[0] for line in str(caught.value).splitlines()[2:]]
    assert begins == [
        "These",
        "They",
        "What",
    ]  # were undone; are all since a kill; was undone is in
    assert git(repo, "status", "--porcelain") == ""


def test_what_is_set_aside_is_named_as_its_step(repo: Path) -> None:
    """Also of a step in the worktree of another, whose branch has a mark in its name."""
    tree = places_of(repo, "r", "fix/tree").worktree
    places = places_of(tree, "r", "fix/tree/change")
    assert places.parts[2] == "tree."
    assert places.quarantine() == repo / ".handrail/quarantine/r/fix/tree/change.patch"


async def test_there_must_be_a_repository(tmp_path: Path, launch: Callable[..., Any]) -> None:
    """Without git nothing could be enforced, so the agent is not launched."""
    begun: list[Path] = []
    with pytest.raises(DefinitionError, match=r"'work/plan': writes= needs a git repository"):
        await launch(tmp_path, begun.append, "src/**")
    assert begun == []


async def test_a_run_outside_a_repository_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are no files to hold, so the launch has its claims at once, and is refused."""
    monkeypatch.chdir(tmp_path)
    coder = Agent("coder", "Fix it.", backend=FakeBackend(["done"]))

    @workflow
    def flow() -> Steps[Any]:
        yield from step("edit").agent(coder, writes=["src/**"])

    result = await Executor().run(flow)
    assert "writes= needs a git repository" in (result.step("edit").error or "")


@pytest.mark.skipif(sys.platform != "linux", reason="open files are known on Linux and macOS")
def test_the_journal_of_the_run_is_nobodys_change(repo: Path) -> None:
    """A journal in the working tree grows during the launch, and is not undone."""

    def reply(turn: AgentTurn) -> str:
        write(Path(turn.options.cwd or ""), {"docs/guide.md": "x"})
        return "done"

    agent = Agent("c", "w", backend=FakeBackend([reply]), options=AgentOptions(cwd=str(repo)))

    @workflow
    def flow() -> Steps[None]:
        yield from step("work").agent(agent, writes=["src/**"])

    executor = Executor(journal=SqliteJournal(repo / "runs.db"))
    result = executor.run_sync(flow)
    assert result.step("work").is_a(ScopeViolated)
    assert "runs.db" not in str(result.error)
    assert (repo / "runs.db").stat().st_size > 0


def test_a_violation_fails_the_step_once(repo: Path) -> None:
    """The ladder does not launch the agent again; the step's error says what was undone."""

    def reply(turn: AgentTurn) -> AgentReply:
        write(Path(turn.options.cwd or ""), {"x": "1"})
        return AgentReply("done", usage=Usage(7, 8))

    backend = FakeBackend([reply, reply])
    agent = Agent("coder", "w", backend=backend, options=AgentOptions(cwd=str(repo)))

    @workflow
    def flow() -> Steps[None]:
        yield from step("work").agent(agent, writes=[])

    result = Executor().run_sync(flow)
    assert result.failed_step == "work"
    assert len(backend.turns) == 1
    assert "x (added)" in str(result.error)
    assert result.step("work").usage == Usage(7, 8)


# -- patterns --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("patterns", "yes", "no"),
    [
        (["src/**"], ["src/a", "src/b/c"], ["src", "a/src/b", "srcs/a"]),
        (["src/*"], ["src/a"], ["src/b/c"]),
        (["src/*.py"], ["src/a.py"], ["src/a.txt", "src/b/a.py"]),
        (["*.md"], ["a.md", "b/a.md"], ["a.md/x", "amd"]),
        (["docs/"], ["docs/a", "x/docs/b/c"], ["docs", "docs2/a"]),
        (["a/docs/"], ["a/docs/x"], ["b/a/docs/x", "a/docs"]),
        (["src"], ["src", "src/a", "x/src"], ["srcs"]),
        (["a/**/b"], ["a/b", "a/x/b", "a/x/y/b", "a/b/c"], ["x/a/b"]),
        (["**/t.py"], ["t.py", "a/b/t.py"], ["at.py"]),
        (["**"], ["a", "a/b"], [".git/config"]),
        ([".git/hooks/**"], [".git/hooks/x"], [".git/config"]),
        (["src/**", "!src/keep/**"], ["src/a"], ["src/keep/a"]),
        (["!src/keep/**", "src/**"], ["src/keep/a"], []),
        (["[a-c]?.py"], ["bx.py"], ["dx.py", "b/.py", "b.py"]),
        (["[!a].py"], ["b.py"], ["a.py"]),
        (["\\*.py"], ["*.py"], ["a.py"]),
        (["./src/a.py"], ["src/a.py"], ["x/src/a.py"]),
        (["[x"], ["[x"], ["x"]),
        ([], [], ["a"]),
    ],
)
def test_patterns_are_those_of_gitignore(
    patterns: Sequence[str], yes: Sequence[str], no: Sequence[str]
) -> None:
    """`*` stays in its folder, `**` does not; the last pattern that covers a path decides."""
    assert [path for path in yes if not allows(patterns, path)] == []
    assert [path for path in no if allows(patterns, path)] == []


# -- any change, any scope -------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "d/a", "d/b", "d/e/a", "d", "d/e", "f.x", "d/f.x"])
OPERATIONS = st.one_of(
    st.tuples(st.just("write"), NAMES, st.sampled_from([b"1\n", b"2\n2\n", b"\0\1\2", b"no end"])),
    st.tuples(st.just("delete"), NAMES, st.just(b"")),
    st.tuples(st.just("rename"), NAMES, st.sampled_from([b"a", b"d/n", b"n"])),
    st.tuples(st.just("mode"), NAMES, st.just(b"")),
    st.tuples(st.just("link"), NAMES, st.just(b"elsewhere")),
    st.tuples(st.just("commit"), st.just(""), st.just(b"")),
)
PATTERNS = st.lists(
    st.sampled_from(["a", "d/**", "d/*", "*.x", "d/e/", "!b", "/b"[1:]]), max_size=2
)


def perform(root: Path, operation: tuple[str, str, bytes]) -> None:
    """Do it, if it can be done; what stands in the way of a write is removed."""
    kind, name, data = operation
    file = root / name
    if kind == "commit":
        git(root, "add", "--all")
        git(root, "commit", "--quiet", "--allow-empty", "-m", "x")
    elif kind in {"write", "link"}:
        for above in [file, *file.parents]:
            if above != root and root in above.parents and (above.is_symlink() or above.is_file()):
                above.unlink()
        if file.is_dir():
            shutil.rmtree(file)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(os.fsdecode(data)) if kind == "link" else file.write_bytes(data)
    elif kind == "rename" and file.is_file() and not (root / os.fsdecode(data)).exists():
        target = root / os.fsdecode(data)
        if not target.is_symlink() and not any(p.is_file() for p in target.parents):
            target.parent.mkdir(parents=True, exist_ok=True)
            file.rename(target)
    elif kind == "delete" and (file.is_file() or file.is_symlink()):
        file.unlink()
    elif kind == "mode" and file.is_file() and not file.is_symlink():
        file.chmod(0o755)


@settings(max_examples=settings().max_examples // 4)
@given(
    dirty=st.lists(OPERATIONS.filter(lambda o: o[0] != "commit"), max_size=3),
    done=st.lists(OPERATIONS, min_size=1, max_size=6),
    patterns=PATTERNS,
)
def test_exactly_the_allowed_changes_remain(
    tmp_path_factory: pytest.TempPathFactory,
    dirty: list[tuple[str, str, bytes]],
    done: list[tuple[str, str, bytes]],
    patterns: list[str],
) -> None:
    """What is not allowed is as before, what is allowed as the agent left it (unless it stands in
    the way of the former), and the patch makes of that what the agent had left.
    """
    root = repository(tmp_path_factory.mktemp("scope"), {"a": "1\n", "d/a": "1\n", "d/f.x": "1\n"})
    for operation in dirty:
        perform(root, operation)
    before = contents(root)
    left: dict[str, Any] = {}

    def work(turn: AgentTurn) -> str:
        for operation in done:
            perform(Path(turn.options.cwd or ""), operation)
        left.update(contents(root))
        return "done"

    agent = Agent("c", "w", backend=FakeBackend([work]), options=AgentOptions(cwd=str(root)))

    @workflow
    def flow() -> Steps[None]:
        yield from step("work").agent(agent, writes=patterns)

    executor = Executor(agents={})
    result = executor.run_sync(flow)
    now = contents(root)
    outside = {
        path
        for path in before.keys() | left.keys()
        if before.get(path) != left.get(path) and not allows(patterns, path)
    }
    for path in before.keys() | left.keys():
        if path in outside or before.get(path) == left.get(path):
            assert now.get(path) == before.get(path), path
        elif now.get(path) != left.get(path):
            restored = {one for one in outside if one in before}
            assert any(f"{o}/".startswith(f"{path}/") or path.startswith(f"{o}/") for o in restored)
    assert now.keys() <= before.keys() | left.keys()
    if outside:
        assert not result.success
        patch = found(root, ".handrail/quarantine/*/*.patch")[0]
        apply(root, str(patch))
        assert contents(root) == left


# -- what is no file any more, and where nothing else looks ----------------------------------------


async def test_a_pipe_in_place_of_a_file_is_undone(repo: Path, launch: Callable[..., Any]) -> None:
    """Nor is a socket or device: the file is there again, as it was."""

    def work(at: Path) -> None:
        (at / "docs/guide.md").unlink()
        os.mkfifo(at / "docs/guide.md")

    with pytest.raises(ScopeViolated) as caught:
        await launch(repo, work, "src/**")
    assert caught.value.files == ("docs/guide.md (deleted)",)
    assert contents(repo)["docs/guide.md"] == ("file", b"# Guide\n")


async def test_a_file_that_cannot_be_read_is_undone(repo: Path, launch: Callable[..., Any]) -> None:
    """To take the right to read it away hides nothing."""

    def work(at: Path) -> None:
        (at / "docs/guide.md").write_text("hidden")
        (at / "docs/guide.md").chmod(0)

    with pytest.raises(ScopeViolated):
        await launch(repo, work, "src/**")
    assert contents(repo)["docs/guide.md"] == ("file", b"# Guide\n")


HIDDEN = {
    "a large hook": (".git/hooks/pre-commit", "#!/bin/sh\n" + "#" * (17 << 20)),
    "settings of one worktree": (".git/config.worktree", "[core]\n\tfsmonitor = evil\n"),
    "a hook of a submodule": (".git/modules/sub/hooks/post-checkout", "#!/bin/sh\n"),
    "settings of a submodule": (".git/modules/sub/config", "[core]\n\tfsmonitor = evil\n"),
    "a hook in a folder that a setting names": (".husky/_/pre-commit", "#!/bin/sh\nevil\n"),
}


@pytest.mark.parametrize("case", HIDDEN)
@pytest.mark.parametrize("existed", [True, False])
async def test_what_git_would_run_is_put_back(
    case: str, *, existed: bool, repo: Path, launch: Callable[..., Any]
) -> None:
    """Wherever git looks for hooks and settings, and whether git ignores the place or not."""
    name, content = HIDDEN[case]
    git(repo, "config", "core.hooksPath", ".husky/_")
    write(repo, {".gitignore": ".husky/_\n"})
    for file in ("HEAD", "objects/x", "config"):
        write(repo, {f".git/modules/sub/{file}": ""})
    if existed:
        write(repo, {name: "as it was\n"})
    before = (repo / name).read_bytes() if (repo / name).exists() else None
    with pytest.raises(ScopeViolated) as caught:
        await launch(repo, lambda at: write(at, {name: content}), "src/**")
    what = "added" if before is None else "changed"
    assert caught.value.files == (f"{name} ({what})",)
    now = (repo / name).read_bytes() if (repo / name).exists() else None
    assert now == before


async def test_an_agent_cannot_reach_what_its_check_relies_on(
    repo: Path, launch: Callable[..., Any], tmp_path: Path
) -> None:
    """Nothing of the check is in the working tree; what is put there is not believed, nor run."""
    marker = tmp_path / "executed"

    def work(at: Path) -> None:
        assert not list(at.rglob("before.json"))
        evil = f'[filter "x"]\n\tclean = touch {marker}\n[core]\n\tfsmonitor = touch {marker}\n'
        for folder in (at / ".handrail/launches/r/work/plan", at / ".handrail"):
            write(folder, {"config": evil, "info/exclude": "docs\n", "before.json": "{}"})
        write(at, {"docs/guide.md": "mine\n", ".gitattributes": "* filter=x\n"})

    with pytest.raises(ScopeViolated):
        await launch(repo, work, "src/**")
    assert not marker.exists()
    assert contents(repo)["docs/guide.md"] == ("file", b"# Guide\n")


def test_a_folder_that_cannot_be_made_is_told(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step fails before anything is launched, and the text says what to do."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(DefinitionError, match="XDG_STATE_HOME names another place"):
        places_of(repo, "r", "a").make()


# -- one at a time ---------------------------------------------------------------------------------

OTHER = """
import sys, time
from pathlib import Path
from handrail import Agent, AgentOptions, Executor, FakeBackend, SqliteJournal, step, workflow

repo = Path(sys.argv[1])

def work(turn):
    (repo / "b").mkdir()
    (repo / "b/begun").write_text("")
    while not (repo.parent / "go").exists():
        time.sleep(0.02)
    (repo / "b/x").write_text("of b")
    (repo / "b/begun").unlink()
    return "done"

agent = Agent("b", "work", backend=FakeBackend([work]), options=AgentOptions(cwd=str(repo)))

@workflow
def flow():
    yield from step("b").agent(agent, writes=["b/**", "all/**"])

sys.exit(not Executor().run_sync(flow).success)
"""


def test_two_that_write_the_same_files_take_turns(repo: Path) -> None:
    """Two steps of one run, and a process beside it: none undoes the work of another, who waits
    says for whom, in a log and where runs are listed, and what does not overlap does not wait.
    """
    journal = repo.parent / "runs" / "runs.db"
    told: list[str] = []

    def writer(name: str) -> Agent[str]:
        def work(_: AgentTurn) -> str:
            assert (repo / "b/begun").exists() is (name == "d")
            write(repo, {f"{name}/x": f"of {name}", **({f"all/{name}": ""} if name != "d" else {})})
            return "done"

        options = AgentOptions(cwd=str(repo))
        return Agent(name, "work", backend=FakeBackend([work]), options=options)

    @workflow
    def flow() -> Steps[Any]:
        yield from step("d").agent(writer("d"), writes=["d/**"])
        members = [step(n).agent(writer(n), writes=[f"{n}/**", "all/"]) for n in ("c", "e")]
        return (yield from step("all").parallel(*members))

    def seen(event: Any) -> None:
        if isinstance(event, ClaimWaiting) and not (repo.parent / "go").exists():
            for words in (["runs"], ["show", "mine"]):
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    assert main([*words, "--dir", str(journal.parent)]) == 0
                told.append(out.getvalue())
            (repo.parent / "go").touch()

    log = io.StringIO()
    plain = ConsoleSink(Console(file=log, width=200), live=False)
    with subprocess.Popen([sys.executable, "-c", OTHER, str(repo)]) as other:
        while not (repo / "b/begun").exists():
            with contextlib.suppress(subprocess.TimeoutExpired):
                other.wait(0.02)
                pytest.fail("it ended before it began")
        executor = Executor(journal=SqliteJournal(journal), sinks=[plain, CallbackSink(seen)])
        try:
            result = executor.options(run_id="mine").run_sync(flow)
        finally:
            (repo.parent / "go").touch()
        assert other.wait(60) == 0
    assert result.success, result.error
    kept = contents(repo)
    assert [kept[f"{name}/x"][1].decode() for name in "bcde"] == ["of b", "of c", "of d", "of e"]
    assert {"all/c", "all/e"} <= kept.keys()
    whose = "c/**, all/, behind step 'b' of run flow-"
    assert f"waits for {whose}" in told[1]
    assert whose in told[0]
    said = log.getvalue()
    assert "all/c  waits for c/**, all/, behind step 'b' of run flow-" in said
    assert "all/c  has c/**, all/ now" in said
    (info,) = SqliteJournal(journal).runs()
    assert info.waits_for == ()
