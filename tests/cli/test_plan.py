"""``handrail plan``: what a resume would do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome, killed, notes

Cli = Callable[..., Outcome]
pytestmark = pytest.mark.usefixtures("durable")


def test_each_step_is_told_and_none_is_run(cli: Cli) -> None:
    """Recorded, the next one that will run, and what may run after it."""
    cli("run", "durable.py:asks", "--run-id", "a")

    outcome = cli("plan", "a")

    assert outcome.code == 0
    assert [line.split()[:3] for line in outcome.out.splitlines()] == [
        ["asks,", "run", "a:"],
        [],
        ["recorded", "before", "python"],
        ["will", "run", "merge?"],
        ["may", "run", "after"],
        [],
        ["Go", "on", "with:"],
    ]
    assert notes() == ["before"]


def test_a_step_that_was_at_work_is_told(cli: Cli) -> None:
    """After a kill the step that had begun is interrupted; as JSON it says so too."""
    killed("run", "durable.py:dies", "--run-id", "d")

    assert "interrupted  second  python  was at work" in cli("plan", "d").out
    steps = cli("plan", "d", "--json").data["steps"]
    assert [(step["path"], step["state"], step["interrupted"]) for step in steps] == [
        ("first", "recorded", False),
        ("second", "will run", True),
    ]


def test_a_changed_step_is_told_with_both_forms(cli: Cli, durable: Path) -> None:
    """What it was, what it is, and the commands that say what counts."""
    cli("run", "durable.py:asks", "--run-id", "a")
    durable.write_text(durable.read_text().replace('note, "before"', 'note, "earlier"'))

    lines = cli("plan", "a").out.splitlines()

    assert "  changed      before  python  succeeded" in lines
    assert '                 was  python durable:note ["before"]' in lines
    assert '                 now  python durable:note ["earlier"]' in lines
    assert "  run again:              handrail resume a --rerun before" in lines
    assert "  changed " not in cli("plan", "a", "--reuse", "before").out
    assert "will run     before" in cli("plan", "a", "--rerun", "before").out


def test_an_orphaned_step_is_told(cli: Cli, durable: Path) -> None:
    """A recorded step that the code does not come to any more is no mismatch."""
    Path("go").touch()
    cli("run", "durable.py:dies", "--run-id", "d")
    text = durable.read_text()
    durable.write_text(text.replace('step("second").call(survive', 'step("third").call(survive'))

    steps = cli("plan", "d", "--json").data["steps"]

    assert {step["path"]: step["state"] for step in steps} == {
        "first": "recorded",
        "second": "recorded",
        "third": "will run",
    }
