"""Kinds of repositories and habits of agents, through both doors: nothing is lost in silence."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from handrail import Agent, Executor, FakeBackend, OwnTree, Steps, current, step, workflow
from handrail.ports.agent import AgentTurn
from tests.agents.repositories import needs_git, repository

pytestmark = needs_git
HOME = "home"
KEPT = "kept"
GONE = "gone"

_SUB = (
    "git init -q ../up; cd ../up; echo u > u; git add .; git commit -qm u; cd ../repo; "
    "git -c protocol.file.allow=always submodule --quiet add ../up sub; git commit -qm sub"
)
_POINTER = (
    "printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:%s\\nsize 5\\n' "
    "$(echo real | sha256sum | cut -c-64) > big.bin"
)
_FILL = "git -c protocol.file.allow=always submodule --quiet update --init; "


@dataclass(frozen=True)
class Habit:
    """What an agent's shell does in its worktree, and what becomes of it.

    ``home``: texts of files that are in the main working tree then, by path. ``ends``: how, through
    each door; a text that the error has, if it is kept.
    """

    does: str
    home: dict[str, str] = field(default_factory=dict)
    before: str = "true"
    ends: str = HOME
    of_steps: str = ""
    told: str = ""
    meanwhile: str = "true"
    kept: dict[str, str] = field(default_factory=dict)
    by_hand: bool = True
    """False if a merge with git's own words does something else here."""


HABITS = {
    "a file": Habit("echo 1 > new", {"new": "1\n"}),
    "a nested repository with a commit": Habit(
        "git init -q sub; cd sub; echo 1 > x; git add .; git commit -qm x",
        {"sub/x": "1\n", "sub/.git/HEAD": "ref: refs/heads/main\n"},
    ),
    "a nested repository without a commit": Habit(
        "mkdir -p app; git init -q app; echo 1 > app/x", {"app/x": "1\n"}
    ),
    "a nested repository that was added": Habit(
        "git init -q sub; cd sub; echo 1 > x; git add .; git commit -qm x; cd ..; git add sub "
        "2> /dev/null; git commit -qm sub",
        {"sub/x": "1\n"},
    ),
    "a nested repository deep down": Habit(
        "mkdir -p a/b; git init -q a/b/c; echo 1 > a/b/c/x; echo 2 > a/y",
        {"a/b/c/x": "1\n", "a/y": "2\n"},
    ),
    "a repository with work in an ignored folder": Habit(
        "echo vendor/ > .gitignore; mkdir vendor; git init -q vendor/x; echo 1 > vendor/x/y",
        {"vendor/x/y": "1\n"},
    ),
    "a nested repository where something is already": Habit(
        "git init -q sub; echo 1 > sub/x",
        meanwhile="echo '*' > .git/info/exclude; mkdir sub; echo 2 > sub/z",
        ends=KEPT,
        told="sub",
        kept={"sub/x": "1\n"},
    ),
    "a repository over files of this one": Habit(
        "git init -q src; echo 2 > src/a.py",
        ends=KEPT,
        told="src: has work",
        kept={"src/a.py": "2\n"},
    ),
    "a merge commit": Habit(
        "git checkout -qb side; echo s > side; git add .; git commit -qm side; "
        "git checkout -q -; echo m > mine; git add .; git commit -qm mine; "
        "git merge -q --no-commit side; echo evil > only-here; git add .; git commit -qm merge",
        {"side": "s\n", "mine": "m\n", "only-here": "evil\n"},
    ),
    "a merge commit, and HEAD was moved": Habit(
        "git checkout -qb side; echo s > side; git add .; git commit -qm side; "
        "git checkout -q -; echo m > mine; git add .; git commit -qm mine; "
        "git merge -q --no-commit side; echo evil > only-here; git add .; git commit -qm merge",
        {"side": "s\n", "mine": "m\n", "only-here": "evil\n", "theirs": "t\n"},
        meanwhile="echo t > theirs; git add .; git commit -qm theirs",
    ),
    "skip-worktree": Habit(
        "git update-index --skip-worktree src/a.py; echo 2 > src/a.py", {"src/a.py": "2\n"}
    ),
    "assume-unchanged": Habit(
        "git update-index --assume-unchanged src/a.py; echo 2 > src/a.py", {"src/a.py": "2\n"}
    ),
    "a sparse checkout": Habit(
        "git sparse-checkout set --no-cone docs; echo 1 > new",
        {"new": "1\n", "src/a.py": "a = 1\n"},
    ),
    "an unfinished merge": Habit(
        "git checkout -qb side; echo s > src/a.py; git commit -qam side; git checkout -q -; "
        "echo m > src/a.py; git commit -qam mine; ! git merge -q side > /dev/null",
        ends=KEPT,
        told="a merge was begun",
    ),
    "an unfinished cherry-pick": Habit(
        "git checkout -qb side; echo s > src/a.py; git commit -qam side; git checkout -q -; "
        "echo m > src/a.py; git commit -qam mine; ! git cherry-pick side > /dev/null 2>&1",
        ends=KEPT,
        told="a cherry-pick was begun",
    ),
    "an unfinished rebase": Habit(
        "git checkout -qb side; echo s > src/a.py; git commit -qam side; git checkout -q -; "
        "echo m > src/a.py; git commit -qam mine; ! git rebase -q side > /dev/null 2>&1",
        ends=KEPT,
        told="a rebase was begun",
    ),
    "a stash that conflicts": Habit(
        "echo s > src/a.py; git stash -q; echo m > src/a.py; git commit -qam mine; "
        "! git stash pop -q > /dev/null 2>&1",
        ends=KEPT,
        told="src/a.py",
    ),
    "HEAD behind its branch": Habit(
        "echo 1 > new; git add .; git commit -qm new; git checkout -q --detach HEAD~1",
        ends=KEPT,
        told="lacks the last commit",
    ),
    "a detached HEAD": Habit(
        "git checkout -q --detach; echo 1 > new; git add .; git commit -qm x; echo 2 > more",
        {"new": "1\n", "more": "2\n"},
    ),
    "another branch": Habit(
        "git checkout -qb mine; echo 1 > new; git add .; git commit -qm x", {"new": "1\n"}
    ),
    "an amended root": Habit(
        "echo 1 > new; git add .; git commit -q --amend -m amended", {"new": "1\n"}
    ),
    "an amended root, and HEAD was moved": Habit(
        "echo 2 > src/a.py; git commit -qa --amend -m amended; echo 1 > new; git add .; "
        "git commit -qm more",
        {"src/a.py": "2\n", "new": "1\n", "theirs": "t\n"},
        meanwhile="echo t > theirs; git add .; git commit -qm theirs",
    ),
    "no history": Habit(
        "git checkout -q --orphan new; echo 1 > new; git add .; git commit -qm alone",
        {"new": "1\n", "src/a.py": "a = 1\n"},
    ),
    "a clean submodule": Habit(f"{_FILL} echo 1 > new", {"new": "1\n"}, before=_SUB),
    "work in a submodule": Habit(
        f"{_FILL} echo 1 > sub/x",
        before=_SUB,
        ends=KEPT,
        told="sub: has work",
        kept={"sub/x": "1\n"},
    ),
    "a commit in a submodule": Habit(
        f"{_FILL} cd sub; echo 1 > x; git add .; git commit -qm x",
        before=_SUB,
        ends=KEPT,
        told="sub: has work",
        kept={"sub/x": "1\n"},
    ),
    "pointers of git-lfs": Habit(
        "echo 1 > new; git status > /dev/null",
        {"new": "1\n", "big.bin": "real\n"},
        before="echo '*.bin filter=x' > .gitattributes; "
        "git config filter.x.clean 'echo pointer #'; "
        "git config filter.x.smudge 'echo real #'; git config filter.x.required true; "
        "echo real > big.bin; git add .; git commit -qm big",
    ),
    "files of git-lfs that were fetched": Habit(
        "echo real > big.bin; echo 1 > new",
        {"new": "1\n", "big.bin": "real\n"},
        before=f"{_POINTER}; git add .; git commit -qm big; echo real > big.bin; mkdir .git/lfs; "
        "git update-index --assume-unchanged big.bin",
        by_hand=False,
    ),
    "a changed file of git-lfs": Habit(
        "echo new > big.bin",
        {"big.bin": "new\n"},
        before=f"{_POINTER}; git add .; git commit -qm big; echo real > big.bin; mkdir .git/lfs",
        by_hand=False,
    ),
    "modes and links": Habit(
        "echo 1 > run; chmod 755 run; ln -s run link; chmod 755 src/a.py",
        {"run": "1\n", "link": "1\n"},
    ),
    "line ends": Habit(
        "printf 'one\\nTWO\\nthree\\n' > lines",
        {"lines": "one\r\nTWO\r\nthree\r\n"},
        before="git config core.autocrlf true; printf 'one\\r\\ntwo\\r\\nthree\\r\\n' > lines; "
        "git add . 2> /dev/null; git commit -qm lines",
    ),
    "line ends of the repository's": Habit(
        "printf 'one\\nTWO\\nthree\\n' > lines",
        {"lines": "one\nTWO\nthree\n"},
        before="printf 'one\\ntwo\\nthree\\n' > lines; git add .; git commit -qm lines; "
        "git config core.autocrlf true",
        by_hand=False,
    ),
    "no .git file": Habit("echo 1 > new; rm .git", {"new": "1\n"}),
    "git has forgotten it": Habit(
        'echo 1 > new; rm -rf "$(git rev-parse --absolute-git-dir)" .git', {"new": "1\n"}
    ),
    "a repository in place of the .git file": Habit(
        "echo 1 > new; rm .git; git init -q .; git add .; git commit -qm mine",
        ends=KEPT,
        told="another repository",
        kept={"new": "1\n"},
    ),
    "a removed worktree": Habit('rm -rf "$PWD"', ends=GONE, told="is not there any more"),
    "a lock of a killed git": Habit(
        'echo 1 > new; touch "$(git rev-parse --absolute-git-dir)/index.lock"', {"new": "1\n"}
    ),
    "an index that is none": Habit(
        'echo 1 > new; echo x > "$(git rev-parse --absolute-git-dir)/index"', {"new": "1\n"}
    ),
    "a forced ignored file": Habit(
        "echo '*.x' > .gitignore; echo 1 > a.x; git add -f a.x", {"a.x": "1\n"}
    ),
    "a forced file where an ignored one is": Habit(
        "echo 1 > a.x; git add -f a.x",
        before="echo '*.x' > .git/info/exclude; echo mine > a.x",
        ends=KEPT,
        told="a.x: is there already",
        by_hand=False,
    ),
    "a stash": Habit("echo 2 > src/a.py; git stash -q", ends=KEPT, told="stash@{0}"),
    "names that are no UTF-8": Habit(
        "printf 1 > \"$(printf 'a\\377b')\"; printf 2 > \"$(printf 'c\\nd \\042\\t')\"; "
        "printf 3 > ':(top)x'; mkdir -- -d; printf 4 > -d/e",
        {"a\udcffb": "1", 'c\nd "\t': "2", ":(top)x": "3", "-d/e": "4"},
    ),
    "a renamed branch": Habit(
        "git branch -qm mine; echo 1 > new; git add .; git commit -qm x", {"new": "1\n"}
    ),
    "a file in place of a folder": Habit("rm -r src; echo 1 > src", {"src": "1\n"}),
    "a file in place of a folder with a new file": Habit(
        "rm -r src; echo 1 > src",
        meanwhile="echo 2 > src/b.py",
        ends=KEPT,
        told="src",
        by_hand=False,
    ),
    "a folder that git does not take": Habit(
        "mkdir x; mkdir x/.GIT; echo 1 > x/.GIT/y; echo 2 > new",
        ends=KEPT,
        told="x",
        kept={"new": "2\n", "x/.GIT/y": "1\n"},
    ),
    "everything is gone": Habit(
        "rm -rf src docs; git rm -qr --cached .; git commit -qm none; echo 1 > new", {"new": "1\n"}
    ),
    "a rename, and a change of the same file": Habit(
        "git mv src/a.py src/b.py; git commit -qm moved",
        {"src/b.py": "".join(f"{n}\n" for n in (*range(9), "more"))},
        before="seq 0 8 > src/a.py; git commit -qam lines",
        meanwhile="echo more >> src/a.py; git commit -qam more",
    ),
    "another worktree in it": Habit(
        "git worktree add -q inner -b inner; echo 1 > inner/x",
        ends=KEPT,
        told="inner: has work",
        kept={"inner/x": "1\n"},
    ),
    "a new submodule": Habit(
        "git -c protocol.file.allow=always submodule --quiet add ../../../../../up up",
        before="git init -q ../up; cd ../up; echo u > u; git add .; git commit -qm u",
        ends="either",
    ),
    "settings that would run something": Habit(
        '(cd "$(git rev-parse --path-format=absolute --git-common-dir)/.."; echo t > theirs; '
        "git add theirs; git commit -qm theirs); "
        "echo '* filter=evil diff=evil merge=evil' > .gitattributes; echo 2 > src/a.py; "
        "for one in filter.evil.clean filter.evil.smudge filter.evil.process diff.evil.textconv "
        "diff.evil.command diff.external merge.evil.driver core.fsmonitor core.sshCommand "
        "gpg.program core.editor sequence.editor core.pager credential.helper "
        'core.alternateRefsCommand; do git config $one "touch $MARKER; cat"; done; '
        "git config commit.gpgSign true; git config merge.verifySignatures true; "
        "mkdir -p ../hooks; git config core.hooksPath $MARKER.hooks; "
        "mkdir $MARKER.hooks; cd $MARKER.hooks; "
        "for one in post-checkout post-commit pre-commit reference-transaction post-merge; do "
        'printf "#!/bin/sh\\ntouch $MARKER\\n" > $one; chmod 755 $one; done',
        {"src/a.py": "2\n", "theirs": "t\n"},
    ),
}


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit, in which the test is."""
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "me")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "me@localhost")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home/.gitconfig").write_text("[init]\n\tdefaultBranch = main\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "home/.gitconfig"))
    monkeypatch.setenv("MARKER", str(tmp_path / "executed"))
    folder = repository(tmp_path / "repo")
    monkeypatch.chdir(folder)
    return folder


def shell(text: str, folder: Path) -> None:
    """Do this in a folder."""
    subprocess.run(["sh", "-ec", text], cwd=folder, check=True)


def by_hand(tree: OwnTree) -> None:
    """A merge of one's own."""
    words = ["git", "-c", "core.hooksPath=/dev/null", "-c", "merge.verifySignatures=false", "merge"]
    more = ["--no-gpg-sign", "-q", "--no-edit", "--allow-unrelated-histories", tree.branch]
    subprocess.run([*words, *more], check=True, env={**os.environ, "GIT_EDITOR": "true"})


def through_agent(does: Callable[[Path], None]) -> Any:
    """An agent in a worktree of its own."""

    def reply(turn: AgentTurn) -> str:
        does(Path(turn.options.cwd or ""))
        return "done"

    return step("tree").agent(Agent("coder", "w", backend=FakeBackend([reply])), worktree=True)


def through_steps(merge: Any) -> Callable[[Callable[[Path], None]], Any]:
    """A step of a body in a worktree of its own."""

    def door(does: Callable[[Path], None]) -> Any:
        def body() -> Steps[None]:
            yield from step("do").call(lambda: does(Path(current().cwd)))

        return step("tree").worktree(body, merge=merge)

    return door


REPOSITORIES = {
    "a detached HEAD": "git checkout -q --detach",
    "packed refs": "git pack-refs --all; git gc -q",
    "a split index": "git update-index --split-index",
    "an untracked cache": "git update-index --untracked-cache --index-version 4",
    "a sparse checkout": "git sparse-checkout set src",
    "a sparse index": "git sparse-checkout set --cone --sparse-index src",
    "settings of each worktree": "git config extensions.worktreeConfig true",
    "a linked worktree": "git worktree add -q ../linked; cd ../linked",
    "a git directory elsewhere": "git init -q --separate-git-dir ../elsewhere",
    "a shallow clone": "git commit -q --allow-empty -m 2; git clone -q --depth 1 file://$PWD ../c; "
    "cd ../c",
    "objects of another": "git clone -q --shared . ../c; cd ../c",
    "sha256": "git init -q --object-format sha256 ../c; cp -r src docs ../c; cd ../c; git add .; "
    "git commit -qm first",
    "odd names": "mkdir '../c d'; mv .git * '../c d'; cd '../c d'",
    "a submodule": f"{_SUB}; git -c protocol.file.allow=always submodule --quiet update --init",
    "in a submodule": f"{_SUB}; cd sub; mkdir src docs; echo 'a = 1' > src/a.py; git add .; "
    "git commit -qm x",
    "a failing hook": "mkdir -p .git/hooks; printf '#!/bin/sh\nexit 1\n' > .git/hooks/pre-commit; "
    "chmod 755 .git/hooks/pre-commit",
    "signatures": "git config commit.gpgSign true; git config gpg.program false",
    "odd settings": "git config merge.ff only; git config diff.noprefix true; "
    "git config core.fileMode false; git config apply.whitespace error; git config "
    "core.ignoreCase true; git config status.showUntrackedFiles no; git config merge.renames false",
    "line ends by attributes": "echo '* text eol=crlf' > .gitattributes; git add .; "
    "git commit -qm ends; rm -r src docs; git checkout -q .",
    "an ident": "echo '* ident' > .gitattributes; echo '$Id$' > src/id; git add .; "
    "git commit -qm ident; rm src/id; git checkout -q .",
    "changes that are not committed": "echo dirty >> docs/guide.md; git add .; echo more > more",
}


@pytest.mark.parametrize("door", ["agent", "ff", "merge"])
@pytest.mark.parametrize("kind", REPOSITORIES)
def test_any_kind_of_repository_has_worktrees(kind: str, door: str, repo: Path) -> None:
    """What is done comes home, and what else is in the repository stays as it was."""
    script = f'{REPOSITORIES[kind]}; pwd > "$MARKER.at"'
    shell(script, repo)
    at = Path(Path(f"{os.environ['MARKER']}.at").read_text().rstrip("\n"))
    os.chdir(at)
    before = {f: f.read_bytes() for f in at.rglob("*") if f.is_file() and ".git" not in f.parts}
    status = subprocess.run(["git", "status", "--short"], capture_output=True, check=True).stdout

    def does(folder: Path) -> None:
        shell("echo 'b = 2' >> src/a.py; echo 1 > src/new", folder)

    @workflow
    def flow() -> Steps[None]:
        yield DOORS[door](does)

    result = Executor().run_sync(flow)
    assert result.success, result.error
    assert (at / "src/new").read_text() == "1\n"
    assert (at / "src/a.py").read_text().splitlines() == ["a = 1", "b = 2"]
    changed = {at / "src/a.py", at / "src/new"}
    for file, content in before.items():
        assert file in changed or file.read_bytes() == content
    after = subprocess.run(["git", "status", "--short"], capture_output=True, check=True).stdout
    mine = (b" M src/a.py", b"?? src/new")
    assert {*status.splitlines()} == {x for x in after.splitlines() if x not in mine}
    if door != "agent":
        assert not [line for line in after.splitlines() if line in mine]


DOORS: dict[str, Callable[[Callable[[Path], None]], Any]] = {
    "agent": through_agent,
    "ff": through_steps("ff"),
    "merge": through_steps("merge"),
    "by hand": through_steps(by_hand),
    "keep": through_steps("keep"),
}


def run(door: str, habit: Habit, repo: Path) -> tuple[Any, Path]:
    """A run in which the agent does this, and its worktree."""
    seen: list[Path] = []
    shell(habit.before, repo)

    def does(at: Path) -> None:
        seen.append(at)
        shell(habit.does, at)
        shell(habit.meanwhile, repo)

    @workflow
    def flow() -> Steps[None]:
        yield DOORS[door](does)

    return Executor().run_sync(flow), seen[0]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", HABITS)
def test_what_was_done_comes_home_or_is_kept_and_named(name: str, door: str, repo: Path) -> None:
    """Whatever an agent does in its worktree, through each door."""
    habit = HABITS[name]
    if door == "by hand" and not habit.by_hand:
        pytest.skip("what git does is not handrail's")
    result, worktree = run(door, habit, repo)
    marker = Path(os.environ["MARKER"])
    error = result.error or ""
    if door != "by hand":
        assert not marker.exists()
    if door == "keep":
        assert result.success, error
        assert worktree.is_dir() is (habit.ends != GONE)
    elif habit.ends == HOME and not (door == "by hand" and not result.success):
        assert result.success, error
        assert {path: (repo / path).read_bytes().decode() for path in habit.home} == habit.home
        assert not worktree.exists()
        if name == "modes and links":
            assert os.access(repo / "run", os.X_OK)
            assert os.access(repo / "src/a.py", os.X_OK)
            assert (repo / "link").is_symlink()
    elif habit.ends != "either":
        assert not result.success
        assert habit.told in error
        if habit.ends == KEPT:
            assert worktree.is_dir()
            assert str(worktree) in error or door == "by hand"
            assert {p: (worktree / p).read_text() for p in habit.kept} == habit.kept
