"""``handrail claims``, ``claim``, ``release``, ``lock``, ``guard`` and ``worktrees``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agents.repositories import git, needs_git, repository
from tests.cli.conftest import Cli, Outcome, live

pytestmark = needs_git


@pytest.fixture(autouse=True)
def repo(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository, which is the current folder."""
    made = repository(folder / "repo")
    monkeypatch.chdir(made)
    return made


def test_a_person_claims_lists_and_gives_back(
    repo: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is typed in a folder counts there, lasts as long as is said, and is listed. The name of
    what is there is no pattern.
    """
    assert cli("claims").out == "there are no claims here\n"
    monkeypatch.chdir(repo / "src")
    made = cli("claim", "sub/**", "--ttl", "2h", "--json").data
    assert made["patterns"] == ["src/sub/**"]
    assert made["until"] - made["since"] == pytest.approx(7200)
    (held,) = cli("claims", "--json").data["held"]
    assert held == made
    assert "src/sub/**" in cli("claims").out
    cli("claim", "a\x1b[2J\x07b")
    assert "a b" in cli("claims").out
    cli("release", "a\x1b[2J\x07b")
    assert cli("release").out.startswith("released src/sub/**, which ")
    (repo / "[id]").mkdir()
    (repo / "[id]" / "a?.py").touch()
    monkeypatch.chdir(repo / "[id]")
    for typed, claimed in {"a?.py": "[id]/a?.py", "../[id]": r"\[id]/**", "b?.py": "b?.py"}.items():
        assert cli("claim", typed, "--json").data["patterns"] == [claimed]
        assert cli("release", typed).out.startswith(f"released {claimed}, which ")
    assert cli("claims", "--json").data == {"held": [], "waiting": []}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["claim", "../x"], "'../x' leads out of it"),
        (["claim", "/etc/passwd"], "'/etc/passwd' leads out of the repository"),
        (["claim", "out/**"], "leads out of the repository"),
        (["claim", "odd\udce9/**"], r"'odd\udce9/**' is not. '*' covers such a part of a name"),
        (["release", "nothing"], "nothing: is not claimed here"),
        (["lock", "git"], "lock"),
        (["lock", "od\udcff", "--", "true"], r"'od\udcff' is no name for a claim"),
        (["worktrees", "--force"], "Add --prune"),
        (["guard", "--install", "vi"], "vi: is not a program that the guard supports"),
    ],
)
def test_what_cannot_be_done_is_refused(words: list[str], said: str, repo: Path, cli: Cli) -> None:
    """With exit code 2, and why; a link out of the repository leads out of it."""
    (repo / "out").symlink_to("/")
    done = cli(*words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_a_lock_is_held_while_its_command_runs(cli: Cli) -> None:
    """Its exit code is the command's; another one that does not wait is refused meanwhile."""
    inner = [sys.executable, "-m", "handrail"]
    listed = cli("lock", "git", "--", *inner, "claims", "--json")
    assert [held["names"] for held in listed.data["held"]] == [["git"]]
    assert cli("lock", "git", "--", "sh", "-c", "exit 7").code == 7
    assert cli("claims", "--json").data["held"] == []


def test_who_waits_too_long_for_a_lock_hears_who_has_it(repo: Path, cli: Cli) -> None:
    """It is no mistake, so the exit code is 1."""
    command = "echo ready; read go"
    words = [sys.executable, "-m", "handrail", "lock", "git", "--", "sh", "-c", command]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, cwd=repo, stdin=pipe, stdout=pipe, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        late = cli("lock", "git", "--wait", "0.2s", "--", "echo", "never")
        holder.communicate("go\n", timeout=60)
    assert (late.code, late.out) == (1, "")
    assert "/lock-" in late.err
    assert holder.returncode == 0


HOLDS = """\
from handrail import step, workflow


@workflow
def holds():
    yield from step("ready").command("echo ready >leader")
    yield from step("push").command("true").holds("git")
"""


def test_a_step_that_waits_for_a_claim_is_named(repo: Path, cli: Cli) -> None:
    """`show` says which step waits, for what, and behind whom."""
    (repo / "holds.py").write_text(HOLDS)
    pipe = subprocess.PIPE
    words = [
        sys.executable,
        "-m",
        "handrail",
        "lock",
        "git",
        "--",
        "sh",
        "-c",
        "echo ready; read go",
    ]
    with subprocess.Popen(words, cwd=repo, stdin=pipe, stdout=pipe, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        with live("run", "holds.py", "--run-id", "h") as child:
            while " waits for " not in (shown := cli("show", "h").out):
                assert child.poll() is None
            holder.communicate("go\n", timeout=60)
    assert "\npush waits for git, behind " in shown


def edit(cli: Cli, name: str, session: str, event: str = "PreToolUse") -> Outcome:
    """What a session's program is told about an edit."""
    asked = {"session_id": session, "cwd": str(Path.cwd()), "hook_event_name": event}
    return cli("guard", text=json.dumps({**asked, "tool_input": {"file_path": name}}))


def test_the_guard_lets_one_session_at_a_time_edit_a_file(cli: Cli) -> None:
    """Until its turn is over; the other one's model reads who has it, and what to do."""
    assert edit(cli, "src/a.py", "one-session").code == 0
    assert edit(cli, "src/a.py", "one-session").code == 0
    refused = edit(cli, "src/a.py", "two-session")
    assert refused.code == 2
    assert refused.err.startswith(
        "src/a.py is claimed by session one-sess, who is working on it now."
    )
    assert edit(cli, "src/b.py", "two-session").code == 0
    assert edit(cli, "", "one-session", "Stop").code == 0
    assert edit(cli, "src/a.py", "two-session").code == 0
    (claim,) = {held["holder"] for held in cli("claims", "--json").data["held"]}
    assert claim == "session two-sess"


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
def test_the_guard_refuses_an_edit_of_a_file_that_cannot_be(cli: Cli, name: str) -> None:
    """An agent program takes any other exit code than 2 for leave."""
    refused = edit(cli, name, "one")
    assert refused.code == 2
    assert "Edit no file of such a name." in refused.err


def test_the_guard_is_put_into_settings_once_and_taken_out(repo: Path, cli: Cli) -> None:
    """All else in them stays."""
    file = repo / ".claude/settings.json"
    file.parent.mkdir()
    mine = {"model": "x", "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "bell"}]}]}}
    file.write_text(json.dumps(mine), "utf-8")
    for _ in range(2):
        assert cli("guard", "--install", "claude").code == 0
    hooks = json.loads(file.read_text("utf-8"))["hooks"]
    assert [len(hooks[name]) for name in ("PreToolUse", "Stop", "SessionEnd")] == [1, 2, 1]
    assert cli("guard", "--remove", "claude").code == 0
    assert json.loads(file.read_text("utf-8")) == mine


TREES = """
from handrail import step, workflow

def body():
    yield from step("write").command("echo new > new.txt")

@workflow
def keep():
    yield from step("tree").worktree(body, merge="keep")
"""


def test_worktrees_that_are_kept_are_listed_and_pruned(repo: Path, cli: Cli) -> None:
    """What is not merged goes by force alone."""
    (repo / "flow.py").write_text(TREES, "utf-8")
    assert cli("run", "flow.py", "--quiet", "--run-id", "r").code == 0
    (left,) = cli("worktrees", "--json").data
    assert (left["run"], left["path"], left["state"]) == ("r", "tree", "not merged")
    kept = cli("worktrees", "--prune")
    assert "kept; --force removes it, too" in kept.err
    assert len(cli("worktrees", "--json").data) == 1
    assert cli("worktrees", "--prune", "--force").err == "handrail: 1 worktree removed\n"
    assert cli("worktrees").out == "no worktrees of steps are left\n"
    assert git(repo, "branch", "--list", "handrail/*") == ""
