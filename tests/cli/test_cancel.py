"""``handrail cancel``: alive, dead and suspended runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli, live, notes

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
