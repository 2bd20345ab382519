"""What the commands say of a run that nobody but a person can help on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from handrail import WaitsFor, WorkflowResult
from handrail.cli import report
from handrail.cli.journal import Place
from handrail.testing.fake_programs import Fails, fake_cli
from tests.cli.conftest import Cli

FLOW = """
from handrail import Agent, Steps, step, workflow

coder = Agent("coder", "Do it.")

@workflow
def flow() -> Steps[str]:
    return (yield from step("code").agent(coder)).output
"""


def test_a_run_that_needs_a_login_says_so_and_goes_on_after_it(cli: Cli, tmp_path: Path) -> None:
    """The backend of the command line, what to do, in `run`, in `show` and in its JSON; then the
    resume that ends it.
    """
    Path("flow.py").write_text(FLOW, "utf-8")
    with fake_cli("claude", ["seen", Fails("auth"), "done."], path=tmp_path / "fake"):
        assert cli("run", "flow.py", "--backend", "claude", "--quiet").out.strip() == "seen"
        told = cli("run", "flow.py", "--backend", "claude", "--run-id", "r", "--quiet")
        assert told.code == 3
        assert "it needs a person: claude: " in told.err
        assert "to continue: " in told.err
        shown = cli("show", "r")
        assert "needs a person: claude: " in shown.out
        assert "agent failures that the run recovered from: 1" in shown.out
        data = json.loads(cli("show", "r", "--json").out)
        assert len(data["needs"]) == 1
        assert [one["kind"] for one in data["incidents"]] == ["auth"]
        done = cli("resume", "r", "--quiet")  # with the backend that the run was started with
        assert (done.code, done.out.strip()) == (0, "done.")
        assert "needs a person" not in cli("show", "r").out


def test_what_a_person_must_do_is_not_said_thrice(cli: Cli, tmp_path: Path) -> None:
    """The console says it at the step and where the run ends; the command adds how to go on."""
    Path("flow.py").write_text(FLOW, "utf-8")
    with fake_cli("claude", [Fails("auth")], path=tmp_path / "fake"):
        told = cli("run", "flow.py", "--backend", "claude", "--run-id", "r")
    said = " ".join((told.out + told.err).split())  # the console wraps its lines
    assert said.count("Log in (`claude auth login`)") == 2
    assert "it needs a person" not in told.err
    assert "to continue: handrail resume r" in told.err


def test_what_the_console_cut_off_is_said_in_full(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long text is said again, by the command, for its end is what to do."""
    monkeypatch.setattr(report, "CLOSING_LINE_CHARS", 20)
    Path("flow.py").write_text(FLOW, "utf-8")
    with fake_cli("claude", [Fails("auth")], path=tmp_path / "fake"):
        told = cli("run", "flow.py", "--backend", "claude", "--run-id", "r")
    assert "it needs a person: claude: " in told.err


@pytest.mark.parametrize("words", [["--backend", "cluade"], ["--backend", "claude:"]])
@pytest.mark.parametrize("again", [[], ["--run-id", "r"]])
def test_a_backend_that_was_mistyped_is_told_as_it_was_typed(
    cli: Cli, tmp_path: Path, words: list[str], again: list[str]
) -> None:
    """The option is named, of a first run and of one that goes on; nothing is run."""
    Path("flow.py").write_text(FLOW, "utf-8")
    if again:
        with fake_cli("claude", [Fails("auth")], path=tmp_path / "fake"):
            cli("run", "flow.py", "--backend", "claude", *again)
    told = cli("run", "flow.py", *words, *again)
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith("handrail: --backend: ")
    assert words[1] in told.err
    assert told.err.count("\n") == 1


def test_a_run_that_is_paused_says_how_to_unpause_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A resume alone begins nothing of it."""
    wait = WaitsFor("unpause", what="ann", whom="a person")
    result: WorkflowResult[None] = WorkflowResult(
        "flow", "r", "suspended", (), 0.0, None, None, waits_for=(wait,)
    )
    report.tell_ending(result, quiet=True, interrupted=None, place=Place(folder / ".handrail"))
    assert capsys.readouterr().err.splitlines() == [
        "handrail: it waits for an unpause (paused by ann): handrail unpause r",
        "handrail: nothing was rolled back; to continue: handrail resume r",
    ]
