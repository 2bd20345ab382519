"""The list of runs of a place that is slow to answer, as a cluster without a worker is."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from handrail import Executor, MemoryJournal, Steps, step, workflow
from handrail.errors import JournalFailed
from handrail.model import events as ev
from handrail.ports.journal import RunInfo
from handrail.secrets.masking import Mask
from handrail.secrets.values import SecretValues
from handrail.web.reading import Reader
from handrail.web.stream import list_events

IN_TIME_S = 0.5
MASK = Mask(SecretValues({}))


class SlowPlace(MemoryJournal):
    """It answers for runs whose ids begin with ``slow`` only when it is let. Mutable."""

    durable = True

    def __init__(self) -> None:
        super().__init__()
        self.let = threading.Event()
        self.lists = threading.Event()
        self.lists.set()
        self.works = True

    def runs(self) -> list[RunInfo]:
        """Every run."""
        self.lists.wait(30)
        return super().runs()

    def events(self, run_id: str, /, *, secrets: Mapping[str, str] | None = None) -> list[ev.Event]:
        """The events, or that they cannot be had."""
        if run_id.startswith("slow"):
            self.let.wait(30)
            if not self.works:
                raise JournalFailed(run_id, "reading a run", "no worker answers")
        return super().events(run_id, secrets=secrets)


@workflow
def hello(name: str) -> Steps[str]:
    """One step."""
    return (yield from step("greet").call(str.upper, name))


async def place_with(*run_ids: str) -> SlowPlace:
    """A place with these runs, all over."""
    journal = SlowPlace()
    journal.let.set()
    for run_id in run_ids:
        await Executor(journal=journal).options(run_id=run_id).run(hello, run_id)
    journal.let.clear()
    return journal


async def rows_of(reader: Reader) -> dict[str, Any]:
    """The row of each run, had in time."""
    began = time.monotonic()
    rows = await reader.rows(await reader.listed())
    assert time.monotonic() - began < IN_TIME_S
    return {str(row["run_id"]): row for row in rows}


@pytest.mark.parametrize("works", [True, False], ids=["it answers", "it refuses"])
async def test_a_slow_run_is_listed_at_once_and_filled_in_later(works: bool) -> None:
    """Its row says that it is being read, those of others are whole; a stream brings the rest."""
    journal = await place_with("slow-1", "slow-2", "quick-1", "slow-3", "quick-2")
    journal.works = works
    reader = Reader(journal, MASK)
    rows = await rows_of(reader)
    assert {name: row["unread"] for name, row in rows.items()} == {
        "slow-1": "reading", "slow-2": "reading", "slow-3": "reading",
        "quick-1": None, "quick-2": None,
    }  # fmt: skip
    assert {name: row["launches"] for name, row in rows.items() if row["unread"] is None} == {
        "quick-1": 0, "quick-2": 0,
    }  # fmt: skip
    told = list_events(reader)
    assert await anext(told) == b"retry: 1000\n\n"
    journal.let.set()
    found: dict[str, Any] = {}
    while not {"slow-1", "slow-2", "slow-3"} <= found.keys():
        for line in (await anext(told)).decode().splitlines():
            if line.startswith("data: {"):
                row = json.loads(line.removeprefix("data: "))
                found[row["run_id"]] = row
    assert found["slow-1"]["launches"] == (0 if works else None)
    assert works == (found["slow-1"]["unread"] is None)
    assert works or "no worker answers" in found["slow-1"]["unread"]
    await told.aclose()


async def test_a_list_that_takes_long_is_that_of_before() -> None:
    """While a place does not list its runs, the list that was read last is shown."""
    journal = await place_with("quick-1")
    reader = Reader(journal, MASK)
    assert (await rows_of(reader)).keys() == {"quick-1"}
    journal.lists.clear()
    assert (await rows_of(reader)).keys() == {"quick-1"}
    journal.lists.set()
