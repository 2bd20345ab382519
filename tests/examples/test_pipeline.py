"""``examples/pipeline.py``: what is done again is what was asked for, and no more."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from examples import pipeline
from handrail import SqliteJournal
from tests.examples.conftest import EXAMPLES

FAILED = ["7", "507", "1007", "1507", "2007", "2507"]
PRICES = "tea 300\nmilk 120\nsalt 90\n"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a list of prices in which one thing is missing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prices.txt").write_text(PRICES)
    return tmp_path


def performed(act: Callable[[], object]) -> list[str]:
    """The paths of the steps that were begun by this call."""
    journal = SqliteJournal("pipeline.db")
    before = len(journal.events(pipeline.RUN)) if Path("pipeline.db").exists() else 0
    act()
    later = journal.events(pipeline.RUN)[before:]
    return [event.path for event in later if type(event).__name__ == "StepStarted"]


def test_parts_of_the_run_are_done_again(shop: Path) -> None:
    """What failed, one item, and what follows: each runs again by itself, of 3,000 items."""
    report = pipeline.main("run")
    assert (report.priced, report.failed) == (2994, FAILED)

    with (shop / "prices.txt").open("a") as prices:
        prices.write("saffron 900\n")
    again = performed(lambda: pipeline.main("failed"))
    leaves = {path for path in again if path.count("/") > 1}
    assert leaves == {f"items/{n}/{name}" for n in FAILED for name in ("price", "times")}

    (shop / "prices.txt").write_text(PRICES.replace("tea 300", "tea 310") + "saffron 900\n")
    again = performed(lambda: pipeline.main("again", "items/3/*"))
    assert {path for path in again if path.count("/") > 1} == {"items/3/price", "items/3/times"}
    assert "total" in again

    assert performed(lambda: pipeline.main("total")) == ["total"]
    assert performed(lambda: pipeline.main("run")) == []
    assert pipeline.main("run").failed == []


def test_a_killed_run_continues(shop: Path) -> None:
    """After `kill -9` no item that was recorded is priced again."""
    command = [sys.executable, str(EXAMPLES / "pipeline.py"), "run"]
    process = subprocess.Popen(command, cwd=shop)
    while not (done := ended()):
        assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    again = performed(lambda: subprocess.run(command, cwd=shop, check=True, capture_output=True))
    assert len([path for path in again if path.count("/") > 1]) <= 2 * pipeline.COUNT - done
    assert "orders" not in again


def ended() -> int:
    """How many steps of items are recorded as ended; 0 until they are a few hundred."""
    try:
        with closing(sqlite3.connect("pipeline.db")) as connection:
            query = (
                "SELECT count(*) FROM history WHERE kind = 'StepCompleted' AND path LIKE '%/%/%'"
            )
            (count,) = connection.execute(query).fetchone()
    except sqlite3.OperationalError:  # not made yet
        return 0
    return int(count) if count > 300 else 0
