"""``handrail doctor``: what is here, what is missing, what to do about it, and its exit code."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail.agents.routes import OTHER_NAMES, backend_names
from handrail.cli.doctor import Named, examine
from handrail.cli.exits import Exit
from handrail.cli.target import place_of
from handrail.journals.sqlite.journal import SqliteJournal
from handrail.model import events as ev
from handrail.ports.agent import Probe
from tests.cli.conftest import Cli

Program = Callable[[str, str], Path]
Look = Callable[..., dict[str, Any]]

GIT = "echo git version 2.99.1"
LOGGED_IN = Probe(found=True, version="1.2", where="/bin/agent", logged_in=True)
LOGGED_OUT = Probe(found=True, version="1.2", logged_in=False, advice="Log in: agent login")
ABSENT = Probe(found=False, advice="Install it: npm install -g agent")


class Backend:
    """A backend that says this of itself, or raises it, or never says anything."""

    def __init__(self, says: Probe | Exception | None) -> None:
        self._says = says

    async def probe(self) -> Probe:
        """What it says."""
        if self._says is None:
            await anyio.sleep_forever()
        if isinstance(self._says, Exception):
            raise self._says
        assert self._says is not None
        return self._says


def named(name: str, says: Probe | Exception | None) -> Named:
    """A backend by its name."""
    return name, lambda: Backend(says)


@pytest.fixture
def program(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Puts a shell script of this name on PATH, on which there is nothing else."""
    programs = folder / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    for variable in ("HANDRAIL_BACKEND", "HANDRAIL_MODEL", "HANDRAIL_DIR"):
        monkeypatch.delenv(variable, raising=False)

    def write(name: str, text: str) -> Path:
        file = programs / name
        file.write_text(f"#!/bin/sh\n{text}\n", "utf-8")
        file.chmod(0o755)
        return file

    return write


@pytest.fixture
def look(program: Program, capfd: pytest.CaptureFixture[str]) -> Look:
    """What the command finds, by name, where these are the backends; its exit code as `code`."""

    def run(*backends: Named, at: Path | None = None, timeout_s: float = 5) -> dict[str, Any]:
        capfd.readouterr()
        place = place_of(at)
        code = examine(place, as_json=True, backends=backends, timeout_s=timeout_s)
        data = json.loads(capfd.readouterr().out)
        assert data["ok"] is (code == Exit.SUCCEEDED)
        return {"code": code, **{check["name"]: check for check in data["checks"]}}

    return run


def test_with_python_git_and_a_journal_all_is_well(look: Look, program: Program) -> None:
    """A missing backend is noted, with what to do, and is no problem; nothing is written."""
    git = program("git", GIT)

    found = look(named("agent", LOGGED_IN), named("other", ABSENT))

    assert found["code"] == Exit.SUCCEEDED
    assert [found[name]["state"] for name in ("python", "journal", "git", "agent", "other")] == [
        "ok",
        "ok (to be made)",
        "ok",
        "logged in",
        "not found",
    ]
    assert (found["git"]["version"], found["git"]["where"]) == ("2.99.1", str(git))
    assert (found["agent"]["version"], found["agent"]["where"]) == ("1.2", "/bin/agent")
    assert found["other"]["advice"] == "Install it: npm install -g agent"
    assert not Path(".handrail").exists()


@pytest.mark.parametrize(
    ("script", "state", "advice"),
    [
        ("exit 1", "failed", "exited with 1"),
        ("while :; do :; done", "failed", "gave no answer within 0.2 s"),
        (None, "not found", "Install git"),
    ],
    ids=["broken", "hanging", "absent"],
)
def test_without_git_nothing_runs(
    look: Look, program: Program, script: str | None, state: str, advice: str
) -> None:
    """A git that is absent, fails or hangs is a problem, and ended."""
    if script is not None:
        program("git", script)

    found = look(timeout_s=0.2 if "within" in advice else 20)

    assert (found["code"], found["git"]["state"]) == (Exit.FAILED, state)
    assert advice in found["git"]["advice"]


def test_a_backend_that_hangs_or_fails_spoils_no_other(look: Look, program: Program) -> None:
    """Each is asked within a bound of time, and what it raises is told."""
    program("git", GIT)

    def broken() -> Any:
        raise RuntimeError("no such\nthing")

    found = look(
        named("hangs", None),
        named("raises", ValueError("odd")),
        ("broken", broken),
        ("silent", object),
        named("agent", LOGGED_OUT),
        timeout_s=2,
    )

    assert found["code"] == Exit.SUCCEEDED
    told = {
        name: (found[name]["state"], found[name]["advice"])
        for name in ("hangs", "raises", "broken", "silent", "agent")
    }
    assert told == {
        "hangs": ("no answer", "It said nothing within 2 s."),
        "raises": ("failed", "ValueError: odd"),
        "broken": ("failed", "RuntimeError: no such thing"),
        "silent": ("unknown", "It has no probe()."),
        "agent": ("not logged in", "Log in: agent login"),
    }


@pytest.mark.parametrize(
    ("says", "code"),
    [
        (LOGGED_IN, Exit.SUCCEEDED),
        (Probe(found=True), Exit.SUCCEEDED),
        (LOGGED_OUT, Exit.FAILED),
        (ABSENT, Exit.FAILED),
        (ValueError("odd"), Exit.FAILED),
    ],
    ids=["logged in", "unknown", "logged out", "absent", "broken"],
)
def test_the_backend_that_the_project_asks_for_is_needed(
    look: Look, program: Program, says: Any, code: Exit
) -> None:
    """`backend` in pyproject.toml makes a missing or logged-out one a problem."""
    program("git", GIT)
    Path("pyproject.toml").write_text('[tool.handrail]\nbackend = "claude:opus"\n', "utf-8")

    found = look(named("claude", says), named("codex", ABSENT))

    assert found["code"] == code
    assert (found["claude"]["needed"], found["codex"]["needed"]) == (True, False)


def test_a_backend_that_does_not_exist_is_a_problem(look: Look, program: Program) -> None:
    """The text says which there are, and what was probably meant."""
    program("git", GIT)
    Path("pyproject.toml").write_text('[tool.handrail]\nbackend = "clude"\n', "utf-8")

    found = look()

    assert found["code"] == Exit.FAILED
    assert "Did you mean 'claude'?" in found["settings"]["advice"]


def test_a_journal_that_cannot_be_written_is_a_problem(look: Look, program: Program) -> None:
    """A file in the folder's place, a folder in the journal's, or no right to write there; --dir
    names another one.
    """
    program("git", GIT)
    Path("taken").write_text("", "utf-8")

    Path("odd/runs.db").mkdir(parents=True)

    for place in (Path("taken"), Path("taken/below"), Path("/proc/handrail"), Path("odd")):
        found = look(at=place)
        assert (found["code"], found["journal"]["state"]) == (Exit.FAILED, "not writable")
        assert "--dir or HANDRAIL_DIR" in found["journal"]["advice"]

    assert look(at=Path("free"))["journal"]["state"] == "ok (to be made)"
    Path("free").mkdir()
    assert look(at=Path("free"))["journal"]["state"] == "ok"
    assert list(Path("free").iterdir()) == []


def test_a_journal_that_no_command_can_read_is_a_problem(look: Look, program: Program) -> None:
    """It is opened, and its runs are listed; one that is damaged is named."""
    program("git", GIT)
    Path("other").mkdir()
    Path("other/runs.db").write_text("hello, this is not a journal", "utf-8")
    found = look(at=Path("other"))
    assert (found["code"], found["journal"]["state"]) == (Exit.FAILED, "not readable")
    assert "it is not a database" in found["journal"]["advice"]

    Path("whole").mkdir()
    journal = SqliteJournal("whole/runs.db")
    journal.append(ev.stamp(ev.WorkflowStarted("w"), "r", 1, 1.0))
    journal.close()
    assert look(at=Path("whole"))["journal"]["state"] == "ok"
    with sqlite3.connect("whole/runs.db") as connection:
        connection.execute("UPDATE events SET body = '{'")
    connection.close()
    found = look(at=Path("whole"))
    assert (found["code"], found["journal"]["state"]) == (
        Exit.SUCCEEDED,
        "ok, but for 1 damaged run",
    )
    assert found["journal"]["advice"].startswith("`handrail runs` says what of r is not as")


def test_a_journal_that_git_would_remove_is_told_of(look: Look, program: Program) -> None:
    """It lies in a checkout; below the git folder, or elsewhere, it is out of reach."""
    program("git", GIT)
    Path("checkout/.git").mkdir(parents=True)
    found = look(at=Path("checkout/.handrail"))
    assert (found["code"], found["journal"]["state"]) == (Exit.SUCCEEDED, "ok (to be made)")
    assert "`git clean -fdx` removes it" in found["journal"]["advice"]
    for outside in ("checkout/.git/handrail", "elsewhere"):
        assert look(at=Path(outside))["journal"]["advice"] == ""


def test_the_command_prints_a_line_for_each(cli: Cli, program: Program) -> None:
    """All backends are there, columns are aligned, and advice stands below what it is about."""
    program("git", GIT)

    done = cli("doctor")

    lines = done.out.splitlines()
    assert (done.code, lines[0].split(), lines[-1]) == (
        Exit.SUCCEEDED,
        ["CHECK", "STATE", "VERSION", "WHERE"],
        "ready to run, except for agents: no agent program works here",
    )
    column = lines[0].index("STATE")
    names = [line.split()[0] for line in lines[1:-1] if not line.startswith(" ")]
    assert names[:3] == ["python", "journal", "git"]
    assert set(backend_names()) < set(names)
    assert {line[column - 2 : column] for line in lines[:-1]} == {"  "}
    assert any(line.strip().startswith("-> Install") for line in lines)


def test_the_command_finds_backends_that_are_little_known(cli: Cli, program: Program) -> None:
    """They have a line where their program is there, with what it is."""
    for name in ("agy", "vibe-acp"):
        program(name, "echo 1.2.17")
    lines = [line.split()[:3] for line in cli("doctor").out.splitlines()]
    there = [line for line in lines if line[0] in OTHER_NAMES]
    assert there == [[name, "found", "1.2.17"] for name in ("agy", "vibe")]


def test_the_command_says_what_is_to_be_seen_to(cli: Cli, program: Program) -> None:
    """Its last line names the problems, and the exit code is 1."""
    done = cli("doctor", "--dir", "/proc/handrail")

    assert (done.code, done.out.splitlines()[-1]) == (Exit.FAILED, "to fix: journal, git")
