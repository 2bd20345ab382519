"""What an agent may do to hide a change, or to have git run something: each is seen and undone."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from handrail import Agent, AgentOptions, Executor, FakeBackend, Steps, step, workflow
from handrail.errors import DefinitionError
from handrail.workspace.places import places_of
from tests.agents.repositories import contents, git, needs_git, repository, write

pytestmark = needs_git

_HOOK = "#!/bin/sh\ntouch {marker}\n"


@dataclass(frozen=True)
class Trick:
    """What the agent's shell does, what the error lists, and what was there before.

    ``{marker}`` is a file that is there if something was run that should not have been, ``{hook}``
    a command that writes a hook which makes it.
    """

    does: str
    listed: tuple[str, ...]
    writes: str = "src/**"
    before: str = "true"
    for_anybody: bool = True


TRICKS = {
    "a folder is shut": Trick(
        "echo x > docs/guide.md; chmod 0 docs",
        ("docs/guide.md (changed)", "docs (mode changed)"),
        for_anybody=False,
    ),
    "a folder cannot be written": Trick(
        "echo x > docs/guide.md; chmod 555 docs",
        ("docs/guide.md (changed)", "docs (mode changed)"),
        for_anybody=False,
    ),
    "a new folder is shut": Trick(
        "mkdir new; echo x > new/x; chmod 0 new", ("new/x (added)",), for_anybody=False
    ),
    "hooks are shut": Trick(
        "{hook} .git/hooks/pre-commit; chmod 100 .git/hooks",
        (".git/hooks/pre-commit (added)",),
        for_anybody=False,
    ),
    "settings are shut": Trick(
        "git config core.fsmonitor 'touch {marker}'; chmod 0 .git/config",
        (".git/config (changed)",),
        "**",
        for_anybody=False,
    ),
    "git is shut": Trick(
        "echo x > docs/guide.md; chmod 0 .git", ("docs/guide.md (changed)",), for_anybody=False
    ),
    "an ignore file hides itself and more": Trick(
        "echo '*' > docs/.gitignore; touch docs/z",
        ("docs/.gitignore (added)", "docs/z (added)"),
    ),
    "a second .git hides a folder": Trick(
        "git init -q docs; echo x > docs/guide.md",
        ("docs/.git (added)", "docs/guide.md (changed)"),
    ),
    "names that git does not take": Trick(
        "mkdir docs/.GIT; touch docs/.GIT/x docs/git~1", ("docs/.GIT (added)", "docs/git~1 (added)")
    ),
    "a new pipe": Trick("mkfifo docs/pipe", ("docs/pipe (added)",)),
    "git would wait at an ignore file": Trick(
        "mkfifo .gitignore src/.gitignore", (".gitignore (added)", "src/.gitignore (added)")
    ),
    "git would wait at its settings": Trick(
        "rm .git/config; mkfifo .git/config", (".git/config (deleted)",), "**"
    ),
    "a folder for settings": Trick(
        "rm .git/config; mkdir .git/config", (".git/config (deleted)",), "**"
    ),
    "settings from elsewhere": Trick(
        "cp -r .git src/g; {hook} src/g/hooks/pre-commit; echo ../src/g > .git/commondir",
        (".git/commondir (added)",),
    ),
    "another repository by a file": Trick(
        "mv .git src/g; {hook} src/g/hooks/pre-commit; echo 'gitdir: src/g' > .git",
        (".git (replaced or damaged)",),
    ),
    "another repository by a link": Trick(
        "mv .git src/g; {hook} src/g/hooks/pre-commit; ln -s src/g .git",
        (".git (replaced or damaged)",),
    ),
    "no repository any more": Trick(
        "rm -rf .git; echo x > docs/guide.md",
        (".git (replaced or damaged)", "docs/guide.md (changed)"),
    ),
    "a new repository": Trick(
        "rm -rf .git; git init -q; echo x > docs/guide.md",
        (".git (replaced or damaged)", "docs/guide.md (changed)"),
    ),
    "a missing object is fetched by a program": Trick(
        "{hook} src/up; git config remote.o.url .; git config remote.o.uploadpack src/up; "
        "git config remote.o.promisor true; git config extensions.partialClone o; "
        "git config core.repositoryformatversion 1; find .git/objects -type f -exec rm -f {{}} +",
        (".git (replaced or damaged)",),
    ),
    "hooks in the working tree": Trick(
        "{hook} .husky/pre-commit",
        (".husky/pre-commit (added)",),
        "**",
        "mkdir .husky; git config core.hooksPath .husky",
    ),
    "settings that settings include": Trick(
        "{hook} src/pre-commit; printf '[core]\\nhooksPath = src\\n' > more.cfg",
        ("more.cfg (added)",),
        "**",
        "git config include.path ../more.cfg",
    ),
    "a rebase that would run something": Trick(
        "mkdir .git/rebase-merge; echo 'exec touch {marker}' > .git/rebase-merge/git-rebase-todo",
        (".git/rebase-merge/git-rebase-todo (added)",),
        "**",
    ),
    "names that are no UTF-8": Trick(
        "printf x > \"$(printf 'docs/\\377')\"; printf x > \"$(printf 'src/\\377')\"",
        ("docs/\\xff (added)",),
    ),
    "a filter for what handrail adds": Trick(
        "git config filter.x.clean 'touch {marker}'; echo '* filter=x' > .gitattributes; "
        "echo '* filter=x' > .git/info/attributes; echo x > docs/guide.md",
        (
            ".git/config (changed)",
            ".git/info/attributes (added)",
            ".gitattributes (added)",
            "docs/guide.md (changed)",
        ),
    ),
    "only the index": Trick(
        "git update-index --cacheinfo 100644,$(echo x | git hash-object -w --stdin),docs/guide.md; "
        "git update-index --add --cacheinfo 100644,$(echo x | git hash-object -w --stdin),new",
        ("docs/guide.md (staged)", "new (staged)"),
    ),
    "flags of the index": Trick(
        "git update-index --skip-worktree docs/guide.md", ("docs/guide.md (staged)",)
    ),
    "refs": Trick(
        "git branch -qf other $(git commit-tree HEAD^{{tree}} -m x); git tag -f tag other "
        "> /dev/null; git branch new; git replace HEAD other; git update-ref refs/stash other; "
        "git update-ref -d refs/remotes/o/main; git symbolic-ref refs/heads/link refs/heads/main",
        (
            "refs/heads/link (added)",
            "refs/heads/new (added)",
            "refs/heads/other (changed)",
            "refs/remotes/o/main (deleted)",
            "refs/replace/{head} (added)",
            "refs/stash (added)",
            "refs/tags/tag (changed)",
        ),
        before="git branch other; git tag tag; git update-ref refs/remotes/o/main HEAD",
    ),
    "objects that are written over": Trick(
        "echo x > docs/guide.md; for one in $(find .git/objects -type f); do chmod u+w $one; "
        "echo y > $one; done",
        ("{objects}", "docs/guide.md (changed)"),
    ),
    "what a hook calls": Trick(
        "echo x > .git/hooks/pre-commit.d/a; {hook} .git/hooks/pre-commit.d/b; "
        "printf x > \"$(printf '.git/hooks/pre-commit.d/\\377')\"",
        (
            ".git/hooks/pre-commit.d/a (changed)",
            ".git/hooks/pre-commit.d/b (added)",
            ".git/hooks/pre-commit.d/\\xff (added)",
        ),
        "**",
        "mkdir -p .git/hooks/pre-commit.d; touch .git/hooks/pre-commit.d/a",
    ),
    "what git reads besides": Trick(
        "echo x > .git/info/grafts; echo /tmp > .git/objects/info/alternates; "
        "git rev-parse HEAD > .git/MERGE_HEAD",
        (
            ".git/MERGE_HEAD (added)",
            ".git/info/grafts (added)",
            ".git/objects/info/alternates (added)",
        ),
        "**",
    ),
    "the user's settings hide it": Trick(
        "echo '# guide' > docs/guide.md; touch -d 2001-01-01 docs/guide.md; touch new",
        ("docs/guide.md (changed)", "new (added)"),
        before="git config --global core.trustctime false; echo '*' > ~/ignored; "
        "git config --global core.checkStat minimal; "
        "git config --global core.excludesFile '~/ignored'; "
        "mkdir -p ~/.config/git; echo '*' > ~/.config/git/ignore; "
        "touch -d 2001-01-01 docs/guide.md",
    ),
    "modes and empty folders": Trick(
        "chmod 600 docs/guide.md; chmod 751 docs; mkdir -p e/f; rmdir was",
        (
            "was (deleted)",
            "e/f (added)",
            "e (added)",
            "docs/guide.md (mode changed)",
            "docs (mode changed)",
        ),
        before="mkdir was",
    ),
    "HEAD goes back": Trick(
        "git reset -q --soft HEAD~1",
        ("HEAD (lacks commits that it had)",),
        before="echo 2 > src/a.py; git commit -qam more",
    ),
    "commits are made one": Trick(
        "git reset -q --soft HEAD~2; git commit -qm squashed",
        ("HEAD (lacks commits that it had)",),
        before="for i in 1 2; do echo $i > src/a.py; git commit -qam more; done",
    ),
    "HEAD without a commit": Trick(
        "git symbolic-ref HEAD refs/heads/none", ("HEAD (lacks commits that it had)",)
    ),
    "HEAD on no branch": Trick(
        "git checkout -q --detach", ("HEAD (was on refs/heads/main, now on none)",)
    ),
    "commits on another branch": Trick(
        "git checkout -q other; echo 2 > src/a.py; git commit -qam x",
        (
            "HEAD (was on refs/heads/main, now on refs/heads/other)",
            "refs/heads/other (changed)",
        ),
        before="git branch other",
    ),
    "a rebase that never was": Trick(
        "mkdir -p .git/rebase-merge/x .git/sequencer; touch .git/rebase-merge/git-rebase-todo",
        (".git/rebase-merge/git-rebase-todo (added)",),
    ),
    "locks": Trick(
        "echo x > docs/guide.md; git commit -qam x; touch .git/index.lock .git/HEAD.lock "
        ".git/refs/heads/main.lock",
        ("docs/guide.md (changed)",),
    ),
}


def _rights_count(folder: Path) -> bool:
    """True for a user who is bound by them."""
    (folder / "shut").touch(0)
    return not os.access(folder / "shut", os.R_OK)


@pytest.fixture
def me(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user of git."""
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "me")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "me@localhost")
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@dataclass(frozen=True)
class GitState:
    """What git has: refs, the index, modes of files and folders, and the objects."""

    refs: str
    index: str
    modes: dict[str, int]
    objects: dict[str, bytes]


def state_of(repo: Path) -> GitState:
    """What git has in a repository, apart from what it needs not to have."""
    kept = [f for f in sorted(repo.rglob("*")) if not {".git", ".handrail", "src"} & {*f.parts}]
    objects = repo / ".git/objects"
    return GitState(
        git(repo, "for-each-ref"),
        git(repo, "ls-files", "-sv"),
        {str(file): file.lstat().st_mode for file in kept},
        {str(f.relative_to(objects)): f.read_bytes() for f in sorted(objects.rglob("*/*"))},
    )


def launch(repo: Path, work: Callable[[], object], *writes: str) -> tuple[str, str]:
    """How a run ended whose agent does this, and its error."""

    def reply(_: object) -> str:
        work()
        return "done"

    options = AgentOptions(cwd=str(repo))
    agent = Agent("coder", "work", backend=FakeBackend([reply]), options=options)

    @workflow
    def flow() -> Steps[object]:
        return (yield from step("plan").agent(agent, writes=list(writes)))

    result = Executor().run_sync(flow)
    return result.status, result.error or ""


@pytest.mark.parametrize("case", TRICKS)
@pytest.mark.usefixtures("me")
def test_no_trick_hides_a_change_or_has_git_run_something(case: str, tmp_path: Path) -> None:
    """All is as before but for what the agent may write, and neither handrail nor the user's next
    commit runs what it put there.
    """
    trick = TRICKS[case]
    if not trick.for_anybody and not _rights_count(tmp_path):
        pytest.skip("root may read anything")
    marker = tmp_path / "executed"
    hook = tmp_path / "hook"
    hook.write_text(_HOOK.format(marker=marker))
    hook.chmod(0o755)
    repo = repository(tmp_path / "repo")
    trick_before = trick.before.replace("{marker}", str(marker))
    subprocess.run(["sh", "-ec", trick_before], cwd=repo, check=True)
    before, settings = contents(repo), (repo / ".git/config").read_bytes()
    head, known = git(repo, "rev-parse", "HEAD"), state_of(repo)
    branch = git(repo, "symbolic-ref", "HEAD")
    objects = [f".git/objects/{f}" for f in known.objects]
    does = trick.does.format(marker=marker, hook=f"install -D {hook}")

    def work() -> None:
        subprocess.run(["sh", "-ec", does], cwd=repo, check=True)

    status, error = launch(repo, work, trick.writes)
    assert (status, marker.exists()) == ("failed", False)
    first, *lines = error.splitlines()
    assert "ScopeViolated" in first
    listed = [line.strip() for line in lines if line.startswith("  ")]
    wanted = [one.replace("{head}", head.strip()) for one in trick.listed]
    if "{objects}" in wanted:
        wanted[:1] = [f"{one} (changed)" for one in objects]
    assert listed == wanted
    after = state_of(repo)
    assert known.objects.items() <= after.objects.items() or "rm -f" in trick.does
    assert replace(after, objects={}) == replace(known, objects={})
    now = contents(repo)
    assert {n: now[n] for n in now if not n.startswith("src/")} == {
        name: kept for name, kept in before.items() if not name.startswith("src/")
    }
    assert (repo / ".git/config").read_bytes() == settings
    assert (git(repo, "rev-parse", "HEAD"), git(repo, "symbolic-ref", "HEAD")) == (head, branch)
    assert "rebas" not in git(repo, "status")
    assert (repo / ".handrail").stat().st_mode & 0o077 == 0
    subprocess.run(["git", "commit", "-q", "--allow-empty", "-m", "x"], cwd=repo, check=True)
    assert not marker.exists()


@pytest.mark.usefixtures("me")
def test_who_may_change_hooks_names_their_folder(tmp_path: Path) -> None:
    """Then they are files as others are; a pattern that begins elsewhere does not count."""
    repo = repository(tmp_path / "repo")
    git(repo, "config", "core.hooksPath", ".husky")

    def work() -> None:
        write(repo, {".husky/pre-commit": "#!/bin/sh\n"})

    status, error = launch(repo, work, "**")
    assert status == "failed"
    assert "writes= has to name '.husky' for it" in error
    assert launch(repo, work, "src/**", ".husky/**")[0] == "succeeded"
    assert (repo / ".husky/pre-commit").exists()


@pytest.mark.usefixtures("me")
def test_what_git_itself_does_to_its_objects_is_no_damage(tmp_path: Path) -> None:
    """An agent may commit, pack, make a worktree, and let go of what nobody needs."""
    repo = repository(tmp_path / "repo")
    (repo / "src/a.py").write_text("lost = 1\n")
    git(repo, "stash")
    git(repo, "stash", "drop")

    def work() -> None:
        write(repo, {"src/a.py": "a = 2\n"})
        git(repo, "commit", "-qam", "agent")
        git(repo, "worktree", "add", "-q", str(tmp_path / "other"))
        git(repo, "gc", "--quiet", "--prune=now")
        git(repo, "reflog", "expire", "--expire=now", "--all")
        git(repo, "prune")

    assert launch(repo, work, "src/**") == ("succeeded", "")
    assert git(repo, "log", "--format=%s") == "agent\nfirst\n"


def test_a_home_that_is_a_repository_does_not_hold_what_its_check_relies_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would lie where the agent may write."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert not places_of(tmp_path, "r", "a").safe.is_relative_to(tmp_path)
    assert places_of(tmp_path / "repo", "r", "a").safe.is_relative_to(tmp_path)


@pytest.mark.usefixtures("me")
def test_a_folder_that_is_no_ones_stays_as_it_was(tmp_path: Path) -> None:
    """Modes that were odd before the launch are so after it, and are nobody's violation."""
    repo = repository(tmp_path / "repo")
    (repo / "docs").chmod(0o500)
    try:
        status, error = launch(repo, lambda: write(repo, {"src/a.py": "a = 2\n"}), "src/**")
        assert (status, error) == ("succeeded", "")
        assert (repo / "docs").stat().st_mode & 0o777 == 0o500
    finally:
        (repo / "docs").chmod(0o755)
        shutil.rmtree(repo)


@pytest.mark.parametrize("how", ["another's", "a link"])
def test_a_folder_of_somebody_elses_keeps_nothing(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a temporary folder that all may write to, another user may be there first."""
    root = tmp_path / "home"
    root.mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(root))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    uid = os.getuid()
    if how == "a link":
        (tmp_path / "theirs").mkdir(mode=0o700)
        (tmp_path / f"handrail-{uid}").symlink_to("theirs")
    else:
        (tmp_path / f"handrail-{uid + 1}").mkdir(mode=0o700)
        monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    with pytest.raises(DefinitionError, match="belongs to somebody else"):
        places_of(root, "r", "a").make()
