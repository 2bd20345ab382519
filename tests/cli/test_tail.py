"""``handrail tail``: a run of another process, followed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, live

pytestmark = pytest.mark.usefixtures("durable")


def test_a_live_run_is_followed_to_its_end() -> None:
    """Lines come while the run is at work, the last ones after; the exit code is the run's."""
    with (
        live("run", "durable.py:holds", "--run-id", "h") as child,
        subprocess.Popen(
            [sys.executable, "-m", "handrail.cli", "tail", "h"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        ) as follower,
    ):
        assert follower.stdout is not None
        seen = follower.stdout.readline()
        while "hold  command" not in seen:
            seen += follower.stdout.readline()
        assert child.poll() is None
        Path("go").touch()
        rest, said = follower.communicate(timeout=30)
        child.wait(30)

    assert (follower.returncode, said) == (0, "")
    assert "✓ before  python" in seen
    assert "✓ after  python" in rest
    assert "holds succeeded in " in rest.splitlines()[-1]


@pytest.mark.parametrize(
    ("name", "code", "last"),
    [("asks", 3, "RunSuspended"), ("dies", 0, "WorkflowCompleted")],
)
def test_a_run_that_has_ended_is_told_once(cli: Cli, name: str, code: int, last: str) -> None:
    """`--json` prints every event of it as a line, and ends."""
    Path("go").touch()
    cli("run", f"durable.py:{name}", "--run-id", "x")

    outcome = cli("tail", "x", "--json")

    events = [json.loads(line) for line in outcome.out.splitlines()]
    assert outcome.code == code
    assert [event["seq"] for event in events] == list(range(1, 7))
    assert (events[0]["type"], events[-1]["type"]) == ("WorkflowStarted", last)


def test_nobody_has_to_read_it_to_the_end(cli: Cli) -> None:
    """With a closed pipe for stdout it ends at once, without a word."""
    cli("run", "durable.py:asks", "--run-id", "a")
    with subprocess.Popen(
        [sys.executable, "-m", "handrail.cli", "tail", "a", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as follower:
        assert follower.stdout is not None
        assert follower.stderr is not None
        follower.stdout.close()
        said = follower.stderr.read()

    assert (follower.returncode, said) == (141, "")
