"""``--notify``: somebody is told when a run needs them, or has ended; once for each."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from handrail import MemoryJournal, OpenGate
from handrail.cli import notify
from handrail.cli.notify import Notifier
from handrail.model import events as ev
from handrail.model.launch import Launch
from tests.cli.conftest import Cli

_SAID = " ".join(f"$HANDRAIL_{name}" for name in ("RUN_ID", "WORKFLOW", "REASON", "PATH", "TEXT"))
TELL = f'echo "{_SAID}" >> told'


def told() -> list[str]:
    """What the command was told, in order."""
    file = Path("told")
    return file.read_text("utf-8").splitlines() if file.exists() else []


def test_each_thing_is_told_once_over_resumes(cli: Cli, flows: Path) -> None:
    """A question, however often the run is resumed in vain; and its end, after the answer."""
    del flows
    words = ("--notify", TELL, "--quiet")
    assert cli("run", "flows.py:asks", "--run-id", "r", *words).code == 3
    assert told() == ["r asks answer merge? Merge it?"]
    for _ in range(2):
        assert cli("resume", "r", *words).code == 3
    cli("answer", "r", "merge?", "yes")
    assert cli("resume", "r", *words).code == 0
    assert cli("resume", "r", *words).code == 0  # the recorded result
    assert told() == ["r asks answer merge? Merge it?", "r asks succeeded  "]


def test_the_project_says_it_for_all_runs(cli: Cli, flows: Path) -> None:
    """In pyproject.toml; a failure is told with its step and error, and a cancellation."""
    del flows
    Path("pyproject.toml").write_text(f"[tool.handrail]\nnotify = '{TELL}'\n", "utf-8")
    assert cli("run", "flows.py:fails", "--run-id", "f", "--quiet").code == 1
    assert cli("run", "flows.py:gives_up", "--run-id", "c", "--quiet").code == 4
    assert cli("run", "flows.py:asks", "--run-id", "a", "--quiet", "--gates", "approve").code == 0
    first, second, third = told()
    assert first.startswith("f fails failed divide ")
    assert "ZeroDivisionError" in first or "division" in first
    assert second.startswith("c gives_up cancelled")
    assert third.startswith("a asks succeeded")  # nobody had to answer


def test_a_run_that_is_unwound_by_cancel_is_told_as_any_other(cli: Cli, flows: Path) -> None:
    """Its process is that of the command, and the project's command counts for all runs."""
    del flows
    Path("pyproject.toml").write_text(f"[tool.handrail]\nnotify = '{TELL}'\n", "utf-8")
    assert cli("run", "flows.py:asks", "--run-id", "a", "--quiet").code == 3
    assert cli("cancel", "a", "--quiet").code == 0
    assert told() == ["a asks answer merge? Merge it?", "a asks cancelled  cancelled by hand"]


def test_an_empty_command_runs_none(cli: Cli, flows: Path) -> None:
    """Whatever the project says; and nothing counts as told."""
    del flows
    Path("pyproject.toml").write_text(f"[tool.handrail]\nnotify = '{TELL}'\n", "utf-8")
    assert cli("run", "flows.py:asks", "--run-id", "a", "--quiet", "--notify", "").code == 3
    assert told() == []
    assert cli("resume", "a", "--quiet").code == 3
    assert told() == ["a asks answer merge? Merge it?"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("echo no >&2; exit 3", "exit 3"),
        ("sleep 600 & sleep 600", "was killed"),
        ("/none", "exit 127"),
    ],
)
def test_a_command_that_fails_or_hangs_harms_nothing(
    cli: Cli, flows: Path, command: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run goes on and ends as it would have; it is told what became of the command."""
    del flows
    monkeypatch.setattr(notify, "AT_END_S", 0.3)
    began = time.monotonic()
    done = cli("run", "flows.py:greet", "--input", "who=ann", "--json", "--notify", command)
    assert (done.code, done.data["status"]) == (0, "succeeded")
    assert said in done.err
    assert time.monotonic() - began < 20


WAIT = Launch(2, rung="wait")
KINDS: dict[str, tuple[list[Any], list[str]]] = {
    "parked again for the same": (
        [
            ev.LadderStep("a", 1, "auth", "log in", WAIT, parked=True),
            ev.RunSuspended(),
            ev.RunResumed((), workflow_name="w"),
            ev.LadderStep("a", 1, "auth", "log in", WAIT, parked=True),
        ],
        ["person a log in"],
    ),
    "parked for another thing, and again later": (
        [
            ev.LadderStep("a", 1, "auth", "log in", WAIT, parked=True),
            ev.LadderStep("a", 1, "spending_cap", "pay", WAIT, parked=True),
            ev.LadderStep("a", 1, "transient", "down", WAIT),
            ev.LadderStep("a", 1, "spending_cap", "pay", WAIT, parked=True),
            ev.LadderStep("b", 1, "auth", "log in", WAIT, parked=True),
        ],
        ["person a log in", "person a pay", "person a pay", "person b log in"],
    ),
    "a question that is another": (
        [
            ev.GateOpened("q", OpenGate("q", "one?", opening=1)),
            ev.GateOpened("q", OpenGate("q", "one?", opening=1)),
            ev.GateOpened("q", OpenGate("q", "two?", opening=2)),
        ],
        ["answer q one?", "answer q two?"],
    ),
    "two ends": (
        [
            ev.WorkflowCompleted("failed", error="x", failed_step="s"),
            ev.RunResumed((), workflow_name="w"),
            ev.WorkflowCompleted("succeeded"),
        ],
        ["failed s x", "succeeded"],
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_counts_as_the_same(kind: str, folder: Path) -> None:
    """A table; told by several notifiers, as by several processes."""
    events, expected = KINDS[kind]
    journal = MemoryJournal()
    line = 'echo "$HANDRAIL_REASON $HANDRAIL_PATH $HANDRAIL_TEXT" | xargs >> told'
    notifier = Notifier(line, journal, folder, answers=True)
    for seq, event in enumerate([ev.WorkflowStarted("w", {}), *events], 1):
        journal.append(ev.stamp(event, "r", seq, float(seq)))
        if isinstance(event, ev.RunResumed):
            notifier = Notifier(line, journal, folder, answers=True)
        notifier.emit(event)
        notifier.close()
    assert told() == expected
    keys = (folder / "w-r" / "notified.jsonl").read_text("utf-8").splitlines()
    assert len(set(map(json.loads, keys))) == len(expected)
