"""``handrail claims``, ``claim``, ``release``, ``lock``, ``guard`` and ``worktrees``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agents.repositories import git, needs_git, repository

pytestmark = needs_git


class Done:
    """What a command of its own came to."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def data(self) -> Any:
        """What it printed, as JSON."""
        return json.loads(self.out)


def handrail(*words: str, text: str = "", **env: str) -> Done:
    """Run it as a process of its own: what it claims is not this process's."""
    done = subprocess.run(
        [sys.executable, "-m", "handrail", *words],
        input=text,
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, **env},
        timeout=60,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture(autouse=True)
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository, which is the current folder."""
    made = repository(tmp_path / "repo")
    monkeypatch.chdir(made)
    return made


def test_a_person_claims_lists_and_gives_back(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is typed in a folder counts there, lasts as long as is said, and is listed. The name of
    what is there is no pattern.
    """
    assert handrail("claims").out == "there are no claims here\n"
    monkeypatch.chdir(repo / "src")
    made = handrail("claim", "sub/**", "--ttl", "2h", "--json").data
    assert made["patterns"] == ["src/sub/**"]
    assert made["until"] - made["since"] == pytest.approx(7200)
    (held,) = handrail("claims", "--json").data["held"]
    assert held == made
    assert "src/sub/**" in handrail("claims").out
    assert handrail("release").out.startswith("released src/sub/**, which ")
    (repo / "[id]").mkdir()
    (repo / "[id]" / "a?.py").touch()
    monkeypatch.chdir(repo / "[id]")
    for typed, claimed in {"a?.py": "[id]/a?.py", "../[id]": r"\[id]/**", "b?.py": "b?.py"}.items():
        assert handrail("claim", typed, "--json").data["patterns"] == [claimed]
        assert handrail("release", typed).out.startswith(f"released {claimed}, which ")
    assert handrail("claims", "--json").data == {"held": [], "waiting": []}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["claim", "../x"], "'../x' leads out of it"),
        (["claim", "/etc/passwd"], "'/etc/passwd' leads out of the repository"),
        (["claim", "out/**"], "leads out of the repository"),
        (["release", "nothing"], "nothing: is not claimed here"),
        (["lock", "git"], "lock"),
        (["worktrees", "--force"], "Add --prune"),
        (["guard", "--install", "vi"], "vi: is not a program that the guard supports"),
    ],
)
def test_what_cannot_be_done_is_refused(words: list[str], said: str, repo: Path) -> None:
    """With exit code 2, and why; a link out of the repository leads out of it."""
    (repo / "out").symlink_to("/")
    done = handrail(*words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_a_lock_is_held_while_its_command_runs() -> None:
    """Its exit code is the command's; another one that does not wait is refused meanwhile."""
    inner = [sys.executable, "-m", "handrail"]
    listed = handrail("lock", "git", "--", *inner, "claims", "--json")
    assert [held["names"] for held in listed.data["held"]] == [["git"]]
    assert handrail("lock", "git", "--", "sh", "-c", "exit 7").code == 7
    assert handrail("claims", "--json").data["held"] == []


def test_who_waits_too_long_for_a_lock_hears_who_has_it(repo: Path) -> None:
    """It is no mistake, so the exit code is 1."""
    command = "echo ready; read go"
    words = [sys.executable, "-m", "handrail", "lock", "git", "--", "sh", "-c", command]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, cwd=repo, stdin=pipe, stdout=pipe, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        late = handrail("lock", "git", "--wait", "0.2s", "--", "echo", "never")
        holder.communicate("go\n", timeout=60)
    assert (late.code, late.out) == (1, "")
    assert "/lock-" in late.err
    assert holder.returncode == 0


def edit(repo: Path, name: str, session: str, event: str = "PreToolUse") -> Done:
    """What a session's program is told about an edit."""
    asked = {"session_id": session, "cwd": str(repo), "hook_event_name": event}
    return handrail("guard", text=json.dumps({**asked, "tool_input": {"file_path": name}}))


def test_the_guard_lets_one_session_at_a_time_edit_a_file(repo: Path) -> None:
    """Until its turn is over; the other one's model reads who has it, and what to do."""
    assert edit(repo, "src/a.py", "one-session").code == 0
    assert edit(repo, "src/a.py", "one-session").code == 0
    refused = edit(repo, "src/a.py", "two-session")
    assert refused.code == 2
    assert refused.err.startswith(
        "src/a.py is claimed by session one-sess, who is working on it now."
    )
    assert edit(repo, "src/b.py", "two-session").code == 0
    assert edit(repo, "", "one-session", "Stop").code == 0
    assert edit(repo, "src/a.py", "two-session").code == 0
    (claim,) = {held["holder"] for held in handrail("claims", "--json").data["held"]}
    assert claim == "session two-sess"


def test_the_guard_is_put_into_settings_once_and_taken_out(repo: Path) -> None:
    """All else in them stays."""
    file = repo / ".claude/settings.json"
    file.parent.mkdir()
    mine = {"model": "x", "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "bell"}]}]}}
    file.write_text(json.dumps(mine), "utf-8")
    for _ in range(2):
        assert handrail("guard", "--install", "claude").code == 0
    hooks = json.loads(file.read_text("utf-8"))["hooks"]
    assert [len(hooks[name]) for name in ("PreToolUse", "Stop", "SessionEnd")] == [1, 2, 1]
    assert handrail("guard", "--remove", "claude").code == 0
    assert json.loads(file.read_text("utf-8")) == mine


TREES = """
from handrail import step, workflow

def body():
    yield from step("write").command("echo new > new.txt")

@workflow
def keep():
    yield from step("tree").worktree(body, merge="keep")
"""


def test_worktrees_that_are_kept_are_listed_and_pruned(repo: Path) -> None:
    """What is not merged goes by force alone."""
    (repo / "flow.py").write_text(TREES, "utf-8")
    assert handrail("run", "flow.py", "--quiet", "--run-id", "r").code == 0
    (left,) = handrail("worktrees", "--json").data
    assert (left["run"], left["path"], left["state"]) == ("r", "tree", "not merged")
    kept = handrail("worktrees", "--prune")
    assert "kept; --force removes it, too" in kept.err
    assert len(handrail("worktrees", "--json").data) == 1
    assert handrail("worktrees", "--prune", "--force").err == "handrail: 1 worktree removed\n"
    assert handrail("worktrees").out == "no worktrees of steps are left\n"
    assert git(repo, "branch", "--list", "handrail/*") == ""
