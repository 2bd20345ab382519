"""``handrail cancel``: alive, dead and suspended runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome, killed, live, notes

Cli = Callable[..., Outcome]
pytestmark = pytest.mark.usefixtures("durable")


def test_a_live_run_is_cancelled_by_its_own_process(cli: Cli) -> None:
    """It is asked and waited for; its rollbacks ran there, and it ends with its own code."""
    with live("run", "durable.py:holds", "--run-id", "h") as child:
        outcome = cli("cancel", "h", "--reason", "not today")
        _, err = child.communicate(timeout=30)

    assert outcome.code == 0
    assert outcome.err.splitlines() == [
        f"handrail: run h: asked process {child.pid} to cancel it",
        "handrail: run h has been cancelled",
    ]
    assert child.returncode == 4
    assert "cancelling: not today" in err
    assert notes() == ["before", "undone"]


def test_a_live_run_is_not_waited_for_longer_than_said(cli: Cli) -> None:
    """Exit code 1 says that it was asked, and is not done yet."""
    with live("run", "durable.py:holds", "--run-id", "h"):
        outcome = cli("cancel", "h", "--timeout", "0", "--json", "--quiet")

    assert (outcome.code, outcome.data["status"], outcome.err) == (1, "running", "")


def test_a_dead_run_is_unwound_here(cli: Cli) -> None:
    """What it did is undone, nothing new is begun, and it is cancelled for good."""
    killed("run", "durable.py:dies", "--run-id", "d")

    outcome = cli("cancel", "d")

    assert outcome.code == 0
    assert notes() == ["a", "b", "undone"]
    assert cli("runs", "--json").data[0]["status"] == "cancelled"


def test_a_suspended_run_is_unwound_here(cli: Cli) -> None:
    """With `--json` its result is printed, with the reason."""
    cli("run", "durable.py:asks", "--run-id", "a")

    data = cli("cancel", "a", "--reason", "no need", "--json").data

    assert (data["status"], data["error"]) == ("cancelled", "no need")


def test_a_run_that_has_ended_stays_as_it_was(cli: Cli) -> None:
    """Of a cancelled one that is a success, of another one not."""
    Path("go").touch()
    cli("run", "durable.py:dies", "--run-id", "d")
    cli("run", "durable.py:asks", "--run-id", "a")
    cli("cancel", "a")

    again, late = cli("cancel", "a"), cli("cancel", "d", "--json")

    assert (again.code, again.err) == (0, "handrail: run a has already been cancelled\n")
    assert (late.code, late.data["status"]) == (1, "succeeded")
    assert notes() == ["a", "b", "before"]
