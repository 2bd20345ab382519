"""What a program that a step started can do to the runs of its journal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from handrail import CannotSteer, Executor, SqliteJournal
from handrail.cli.app import COMMANDS, NOT_STEERING, STEERING
from handrail.system import marker
from tests.cli.conftest import Cli

FLOW = """\
from handrail import step, workflow


@workflow
def guarded():
    answer = yield from step("merge?").ask("Merge it?", choices=["yes", "no"], default="no")
    return answer


@workflow
def open_to_all():
    return (yield from step("merge?").ask("Merge it?", agents_may_answer=True))


@workflow
def waits():
    return (yield from step("wait").wait_for("approved", int))


@workflow
def hears_all():
    return (yield from step("wait").wait_for("approved", int, agents_may_answer=True))
"""

STEERED: Mapping[str, Sequence[str]] = {
    "resume": ("resume", "guarded"),
    "cancel": ("cancel", "guarded"),
    "answer": ("answer", "guarded", "merge?", "yes"),
    "signal": ("signal", "waits", "approved", "1"),
    "pause": ("pause", "guarded"),
    "unpause": ("unpause", "guarded"),
    "complete": ("complete", "guarded", "merge?", "yes"),
    "skip": ("skip", "guarded", "merge?"),
    "retry": ("retry", "guarded", "merge?"),
    "guide": ("guide", "guarded", "do it"),
    "stop": ("stop", "guarded"),
    "fork": ("fork", "guarded"),
    "import": ("import", "guarded.jsonl", "--run-id", "again"),
    "prune": ("prune", "--status", "suspended"),
    "worker": ("worker",),
    "release": ("release", "x", "--force"),
    "worktrees": ("worktrees", "--prune"),
    "trust": ("trust",),
}


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> SqliteJournal:
    """A journal with suspended runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HANDRAIL_DIR", raising=False)
    (tmp_path / "flow.py").write_text(FLOW)
    for name in ("guarded", "open_to_all", "waits", "hears_all"):
        assert cli("run", f"flow.py:{name}", "--run-id", name, "--quiet").code == 3
    assert cli("export", "guarded").code == 0
    return SqliteJournal(tmp_path / ".handrail" / "runs.db")


def _record(journal: SqliteJournal) -> list[str]:
    found = [str(one) for info in journal.runs() for one in journal.events(info.run_id)]
    return found + [str(one) for info in journal.runs() for one in journal.letters(info.run_id, 0)]


def test_every_command_is_known_to_steer_or_not() -> None:
    """A new command is in one of the two lists."""
    assert set(COMMANDS) == STEERING | NOT_STEERING
    assert not STEERING & NOT_STEERING
    assert set(STEERED) == STEERING


@pytest.mark.parametrize("where", ["its own run", "another run", "an outer step"])
@pytest.mark.parametrize("name", sorted(STEERING))
def test_no_command_steers_from_within_a_step(
    name: str, where: str, journal: SqliteJournal, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused, the step is named, and the journal stays as it was."""
    run = "open_to_all" if where == "another run" else STEERED[name][1:2]
    mark = f"{run if isinstance(run, str) else (run or ['guarded'])[0]}@{journal.identity}/review#1"
    if where == "an outer step":
        monkeypatch.setenv("HANDRAIL_OUTER_STEPS", mark)
        mark = "inner@00000000/lock-a#1"
    monkeypatch.setenv("HANDRAIL_STEP", mark)
    before = _record(journal)
    outcome = cli(*STEERED[name])
    assert outcome.code != 0
    assert "step 'review' of run " in outcome.err
    assert _record(journal) == before


@pytest.mark.parametrize(
    "command",
    [("answer", "open_to_all", "merge?", "yes"), ("signal", "hears_all", "approved", "1")],
    ids=lambda command: command[0],
)
def test_a_wait_that_says_so_takes_the_answer_of_a_step(
    command: Sequence[str], journal: SqliteJournal, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record has the step as who answered, whatever name it gave."""
    monkeypatch.setenv("HANDRAIL_STEP", f"{command[1]}@{journal.identity}/review#1")
    assert cli(*command, "--by", "ann").code == 0
    answered = journal.letters(command[1], 0)[-1].event
    assert getattr(answered, "by", None) == f"step 'review' of run {command[1]}"


def test_a_signal_that_no_step_awaits_is_none_of_an_agents(
    journal: SqliteJournal, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wait's word counts for its own signal, once the step waits."""
    monkeypatch.setenv("HANDRAIL_STEP", f"hears_all@{journal.identity}/review#1")
    assert cli("signal", "hears_all", "another", "1").code != 0
    assert journal.letters("hears_all", 0) == []


def test_a_step_steers_runs_of_another_journal_under_its_own_name(
    journal: SqliteJournal, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an agent tries in a journal of its own is its business."""
    monkeypatch.setenv("HANDRAIL_STEP", "ship@00000000/review#1")
    assert cli("answer", "guarded", "merge?", "yes").code == 0
    answered = journal.letters("guarded", 0)[-1].event
    assert getattr(answered, "by", None) == "step 'review' of run ship"


def test_the_methods_of_an_executor_are_refused_as_the_commands_are(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an agent writes in Python steers no more than what it types."""
    monkeypatch.setenv("HANDRAIL_STEP", f"ship@{journal.identity}/review#1")
    it = Executor(journal=journal)
    before = _record(journal)
    for act in (
        lambda: it.answer_sync("guarded", "merge?", "yes"),
        lambda: it.signal_sync("waits", "approved", 1),
        lambda: it.pause_sync("guarded"),
        lambda: it.unpause_sync("guarded"),
        lambda: it.stop_sync("guarded"),
        lambda: it.complete_sync("guarded", "merge?", "yes"),
        lambda: it.skip_sync("guarded", "merge?"),
        lambda: it.retry_sync("guarded", "merge?"),
        lambda: it.guide_sync("guarded", "do it"),
        lambda: it.cancel_sync("guarded"),
        lambda: it.resume_sync("guarded"),
        lambda: it.fork_sync("guarded"),
        lambda: it.import_run_sync("guarded.jsonl", run_id="again"),
    ):
        with pytest.raises(CannotSteer, match="step 'review' of run ship"):
            act()
    assert _record(journal) == before


@pytest.mark.skipif(not marker.HAS_PROC, reason="needs /proc")
@pytest.mark.parametrize("without", ["env -u HANDRAIL_STEP", "env -i PATH=$PATH", "setsid env -i"])
def test_a_program_that_drops_its_environment_is_known_by_its_ancestors(
    without: str, journal: SqliteJournal
) -> None:
    """An agent's shell keeps the step's name, also for what it starts without it."""
    command = f"{without} {sys.executable} -m handrail answer guarded merge? yes; true"
    env = {**os.environ, "HANDRAIL_STEP": f"guarded@{journal.identity}/review#1"}
    done = subprocess.run(
        ["sh", "-c", command], env=env, capture_output=True, text=True, check=False
    )
    assert "step 'review' of run guarded cannot steer it" in done.stderr
    assert journal.letters("guarded", 0) == []
