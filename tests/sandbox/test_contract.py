"""The same words mean the same for every backend, for commands and for stages."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from handrail import Sandbox
from tests.leftovers import lasting_carriers_of
from tests.sandbox.conftest import CANARY, RUNNERS, World, git, run_script, script_of

REFUSED = {
    "write outside": "echo x > {out}/file.txt",
    "write in the home": "echo x >> {home}/.bashrc",
    "through a link": "ln -s {out}/file.txt link && echo x > link",
    "through a hard link": "ln {out}/file.txt hard && echo x > hard",
    "move in from outside": "mv {out}/file.txt moved",
    "a hook": "echo x > {git}/hooks/post-commit",
    "a setting of git": "git config user.name evil",
    "another ref": "git update-ref refs/heads/theirs $(git commit-tree HEAD^{tree} -m x)",
    "a new ref": "git branch mine",
    "a tag": "git tag v1",
    "a stash": "echo x >> test_pages.py && git stash; git checkout -- test_pages.py; false",
    "where git belongs": "echo gitdir: /nowhere > .git",
    "a key": "cat {home}/.ssh/id_ed25519",
    "a login": "cat {home}/.aws/credentials {home}/.netrc",
    "the journal": "cat {repo}/.handrail/journal.txt",
    "another worktree": "cat {other}/secret.txt",
    "the environment": "env | grep " + CANARY,
    "its parent's environment": "cat /proc/*/environ | tr '\\0' '\\n' | grep " + CANARY,
    "a service of the machine": "{python} -c 'import socket; "
    's = socket.socket(socket.AF_UNIX); s.connect("{out}/service.sock")\'',
    "a host": "{python} -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}), 2)'",
    "a name": "{python} -c 'import socket; socket.getaddrinfo(\"pypi.org\", 443)'",
    "an answer to its own question": "{python} -m handrail.cli answer run question yes",
}
"""What is refused, and a script that tries it."""
DONE = {
    "edit": "sed -i s/3/4/ src/pages.py && git checkout -- src/pages.py && echo hi > new.txt",
    "test": "{python} -m unittest -q",
    "commit": "git add --all && git commit --quiet --message Work && git log -1 --format=%s",
    "read": "cat {repo}/test_pages.py {out}/file.txt",
    "temporary files": "echo x > /tmp/x && cat /tmp/x && test $(ls /tmp | wc -l) -lt 9",
    "processes": "{python} -c 'import multiprocessing as m; m.Pool(2).map(abs, [1, 2])'",
    "a plain variable": 'test "$PLAIN" = plain',
}
"""What goes on as ever."""


def _script(acts: dict[str, str], world: World) -> str:
    return script_of(
        acts,
        out=world.outside,
        home=world.home,
        repo=world.repo,
        git=world.repo / ".git",
        other=world.other_tree,
        python=sys.executable,
        port=9,
    )


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_launch_stays_within_its_bounds(world: World, listening: Path, runner: str) -> None:
    """What is not the step's is neither changed nor read nor reached, and its work goes on."""
    before = world.snapshot()
    outlives = "setsid sh -c 'sleep 300' >/dev/null 2>&1 &\n"
    script = _script(REFUSED, world) + "\n" + _script(DONE, world) + f"\n{outlives}"
    outcome = run_script(world, runner, script, Sandbox(network="none"))
    wanted = dict.fromkeys(REFUSED, "refused") | dict.fromkeys(DONE, "done")
    assert wanted == outcome.acts, outcome.printed
    assert before == world.snapshot()
    assert CANARY not in outcome.printed
    for place in ("outside/file.txt", ".git/hooks/post-commit", "Operation not permitted"):
        assert outcome.told(place), outcome.denied
    assert {event.source for event in outcome.denied} == {"output"}
    assert lasting_carriers_of(outcome.result.run_id) == []
    assert (world.repo / "new.txt").read_text() == "hi\n"
    git(world.repo, "fsck", "--strict")
    assert list(world.home.glob(".local/state/handrail/incoming/*")) == []


@pytest.mark.parametrize("runner", ["program", "command", "stage"])
def test_without_a_sandbox_the_acts_are_done(world: World, listening: Path, runner: str) -> None:
    """The acts of the suite are real ones: outside of a sandbox nothing refuses them."""
    names = ("write outside", "through a link", "a key", "the journal", "another worktree")
    acts = {name: REFUSED[name] for name in (*names, "a service of the machine", "a new ref")}
    outcome = run_script(world, runner, _script(acts, world), False)
    assert dict.fromkeys(acts, "done") == outcome.acts
    assert outcome.denied == []


@pytest.mark.parametrize("runner", ["program", "command"])
def test_commits_of_a_sandbox_come_home(world: World, runner: str) -> None:
    """What was committed on the step's own branch is what is merged."""
    run_script(world, runner, "echo a > a.txt; git add -A; git commit -qm A; echo b > b.txt")
    assert ((world.repo / "a.txt").read_text(), (world.repo / "b.txt").read_text()) == (
        "a\n",
        "b\n",
    )
    assert git(world.repo, "for-each-ref", "--format=%(refname)") == (
        "refs/heads/main\nrefs/heads/theirs"
    )


@pytest.mark.parametrize(
    ("writes", "written"),
    [(["src/**"], {"src/a.py"}), (["docs/**"], {"docs/a.md"}), ([], set())],
    ids=["a folder", "a folder that is made", "nothing"],
)
def test_writes_are_what_the_kernel_lets_be_written(
    world: World, writes: list[str], written: set[str]
) -> None:
    """Of the main working tree only the folders of `writes=` can be changed at all."""
    script = "for file in top.txt src/a.py docs/a.md; do echo x > $file; done; git add -A"
    outcome = run_script(world, "program", script, own_tree=False, writes=writes)
    found = {name for name in ("top.txt", "src/a.py", "docs/a.md") if (world.repo / name).exists()}
    assert written == found
    assert outcome.told(".git/index.lock")


def test_what_may_only_be_read_is_not_changed(world: World) -> None:
    """`permission="read_only"` in a sandbox is the kernel's, not a habit of the program."""
    from handrail import Agent, AgentOptions, CommandBackend, Executor, Steps, step, workflow
    from handrail.agents.claude.backend import ClaudeBackend
    from handrail.testing import fake_cli

    fake = fake_cli("claude", ["done."], path=world.root)
    real = fake.executable.with_name("real")
    fake.executable.rename(real)
    fake.executable.write_text(f'#!/bin/sh\necho x > {world.repo}/new.txt\nexec {real} "$@"\n')
    fake.executable.chmod(0o755)
    options = AgentOptions(permission="read_only", sandbox=Sandbox(write=[str(fake.folder)]))
    agent = Agent("a", "x", backend=ClaudeBackend(str(fake.executable)), options=options)
    assert CommandBackend(["x"]).capabilities.permissions == frozenset()

    @workflow
    def flow() -> Steps[Any]:
        return (yield from step("a").agent(agent))

    assert Executor().run_sync(flow).success
    assert not (world.repo / "new.txt").exists()


@pytest.mark.parametrize(
    ("rule", "seen"),
    [
        (None, {"PLAIN"}),
        ("safe", {"PLAIN"}),
        ("all", {"PLAIN", "MY_TOKEN", "OTHER"}),
        (["MY_TOKEN"], {"MY_TOKEN"}),
        ([], set()),
    ],
    ids=["unset", "safe", "all", "names", "none"],
)
@pytest.mark.parametrize("where", ["sandbox", "program", "command", "stage"])
def test_the_variables_are_those_that_the_rule_names(
    world: World, monkeypatch: pytest.MonkeyPatch, rule: Any, seen: set[str], where: str
) -> None:
    """`inherit_env=` counts with a sandbox and without; a command without either inherits all."""
    monkeypatch.setenv("OTHER", "postgres://ann:hunter2hunter2@db/x")
    script = "for name in PLAIN MY_TOKEN OTHER PATH HOME; do printenv $name >/dev/null && "
    script += "echo =$name; done"
    runner = "command" if where == "sandbox" else where
    sandbox = Sandbox(env=rule) if where == "sandbox" else None
    inherits = None if where == "sandbox" else rule
    outcome = run_script(world, runner, script, sandbox, own_tree=False, inherit_env=inherits)
    found = {line[1:] for line in outcome.printed.splitlines() if line.startswith("=")}
    if rule is None and where in ("command", "stage"):
        seen = {"PLAIN", "MY_TOKEN", "OTHER"}
    assert seen | {"PATH", "HOME"} == found


def test_a_backend_keeps_the_keys_that_it_needs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that looks for its own key finds it, and no other's."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-1234567890")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1234567890")
    script = "printenv | cut -d= -f1 | grep _API_KEY"
    assert run_script(world, "claude", script).printed.split() == ["ANTHROPIC_API_KEY"]
    assert run_script(world, "codex", script).printed.split() == ["OPENAI_API_KEY"]
    assert run_script(world, "program", script).printed.split() == []


def test_a_variable_that_is_given_is_there(world: World) -> None:
    """`env=` adds to what is inherited, whatever it looks like."""
    for runner in ("program", "command"):
        outcome = run_script(world, runner, "printenv GIVEN_TOKEN", env={"GIVEN_TOKEN": "mine"})
        assert outcome.printed == "mine\n"


@pytest.mark.parametrize("said", ["write", "hide"])
def test_further_paths_are_written_or_hidden(world: World, said: str) -> None:
    """`write=` opens a path, made if it is missing; `hide=` covers one."""
    more = world.outside / "more"
    sandbox = Sandbox(write=[more, "build"]) if said == "write" else Sandbox(hide=["src", more])
    acts = {"out": f"echo x > {more}/a", "in": "echo x > build/a", "see": "cat src/pages.py"}
    script = script_of(acts)
    outcome = run_script(world, "command", script, sandbox, own_tree=False)
    wanted = {"out": "done", "in": "done", "see": "done"}
    if said == "hide":
        wanted = dict.fromkeys(wanted, "refused")
    assert wanted == outcome.acts
    assert (more / "a").exists() == (said == "write")


def test_a_path_to_write_is_not_followed_out_of_the_tree(world: World) -> None:
    """A link that an earlier agent left in the place of a folder to write opens nothing."""
    (world.repo / "build").symlink_to(world.home)
    outcome = run_script(
        world, "command", "true", Sandbox(write=["build"]), own_tree=False, check=lambda _: None
    )
    assert "leads out of" in str(outcome.result.error)
    (world.repo / "docs").symlink_to(world.home)
    outcome = run_script(
        world, "program", "true", own_tree=False, writes=["docs/**"], check=lambda _: None
    )
    assert "leads out of" in str(outcome.result.error)


def test_a_home_is_no_task(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step whose working folder is a home, or above one, is refused: all would be its own."""
    for folder in (world.home, world.root):
        monkeypatch.chdir(folder)
        outcome = run_script(world, "command", "true", own_tree=False, check=lambda _: None)
        assert "lets a step change its working folder" in str(outcome.result.error)


def test_the_files_of_the_journal_are_hidden(world: World) -> None:
    """A journal beside the code cannot be read, nor a question answered in it."""
    from handrail import SqliteJournal

    journal = SqliteJournal(world.repo / "runs.db")
    acts = {"read": "head -c 1 runs.db", "write": "echo x >> runs.db", "wal": "cat runs.db-wal"}
    script = script_of(acts)
    outcome = run_script(world, "command", script, own_tree=False, journal=journal)
    assert outcome.acts == {"read": "refused", "write": "refused", "wal": "refused"}
    assert os.fspath(journal.path) == str(world.repo / "runs.db")


@pytest.mark.parametrize("runner", ["claude", "command", "stage"])
def test_what_lies_in_tmp_is_shown_as_far_as_it_is_needed(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runner: str
) -> None:
    """A repository, a home and a program below /tmp are there; all else there is not."""
    moved = World(tmp_path / "world", world.scripts)
    shutil.copytree(world.root, moved.root, symlinks=True)
    git(moved.repo, "worktree", "repair")
    monkeypatch.setenv("HOME", str(moved.home))
    monkeypatch.chdir(moved.repo)
    (tmp_path / "other").mkdir()
    acts = {
        "edit": "echo x > new.txt && git add -A && git commit -qm New",
        "read": f"cat {moved.repo}/test_pages.py {moved.home}/.bashrc",
        "outside": f"ls {tmp_path}/other",
        "key": f"cat {moved.home}/.ssh/id_ed25519",
        "journal": f"cat {moved.repo}/.handrail/journal.txt",
    }
    outcome = run_script(moved, runner, script_of(acts))
    wanted = {"outside": "refused", "key": "refused", "journal": "refused"}
    assert outcome.acts == dict.fromkeys(("edit", "read"), "done") | wanted, outcome.printed
    assert git(moved.repo, "log", "-1", "--format=%s") in {"New", "Count pages"}
    assert (moved.repo / "new.txt").read_text() == "x\n"
