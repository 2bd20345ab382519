"""`--record` and `--replay`, as people type them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.agents.repositories import git, needs_git, repository

pytestmark = needs_git

Cli: TypeAlias = Callable[..., Any]

FLOW = """
from __future__ import annotations

from handrail import Agent, CommandBackend, Steps, step, workflow

coder = Agent("coder", "Write {{ name }}.", backend=CommandBackend(["sh", "./coder"]))


@workflow
def build(name: str = "x.txt") -> Steps[str]:
    yield from step("ready?").ask("Ready?", choices=["yes"])
    return (yield from step("write").agent(coder, {"name": name})).output
"""
CODER = "echo made > x.txt\necho written\n"


@pytest.fixture
def project(folder: Path) -> Path:
    """A repository of a workflow, and of the program that is its agent and writes a file."""
    return repository(folder, {"flow.py": FLOW, "coder": CODER})


def test_a_run_is_recorded_and_replayed(project: Path, cli: Cli) -> None:
    """The replay gives the same result and the same files, without the agent's program."""
    done = cli("run", "flow.py", "--gates", "approve", "--record", "tapes", "--json")
    assert done.data["value"] == "written"
    assert (project / "tapes/coder/write-1.patch").is_file()
    (project / "x.txt").unlink()
    (project / "coder").unlink()
    done = cli("run", "flow.py", "--gates", "approve", "--replay", "tapes", "--json")
    assert done.data["value"] == "written"
    assert (project / "x.txt").read_text() == "made\n"


def test_a_resumed_run_is_recorded_and_replayed(project: Path, cli: Cli) -> None:
    """`resume` takes the same options."""
    assert cli("run", "flow.py", "--run-id", "r").code == 3
    assert cli("resume", "r", "--gates", "approve", "--record", "tapes").code == 0
    git(project, "clean", "--quiet", "--force", "x.txt")
    assert cli("run", "flow.py", "--run-id", "s").code == 3
    assert cli("resume", "s", "--gates", "approve", "--replay", "tapes").code == 0
    assert (project / "x.txt").is_file()


def test_a_changed_prompt_fails_the_run(project: Path, cli: Cli) -> None:
    """The difference is shown, and what to do."""
    assert cli("run", "flow.py", "--gates", "approve", "--record", "tapes").code == 0
    words = ("--input", "name=y.txt", "--gates", "approve", "--replay", "tapes", "--json")
    done = cli("run", "flow.py", *words)
    assert done.code == 1
    assert "-Write x.txt.\n+Write y.txt." in done.data["error"]
    assert "--record DIR" in done.data["error"]


def test_options_that_cannot_be_are_refused(project: Path, cli: Cli) -> None:
    """Both at once, no folder, or one that is not there: exit code 2, and nothing was run."""
    done = cli("run", "flow.py", "--record", "flow.py")
    assert done.code == 2
    assert "--record flow.py: is a file. Name a folder." in done.err
    done = cli("run", "flow.py", "--record", "a", "--replay", "b")
    assert done.code == 2
    assert "cannot be given together" in done.err
    done = cli("run", "flow.py", "--replay", "b")
    assert done.code == 2
    assert "there is no such folder" in done.err
    assert not (project / ".handrail").exists()
