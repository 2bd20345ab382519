"""Verifying a journal finds all that was changed in it, and pruning takes no more than it says."""

from __future__ import annotations

import random
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from handrail import (
    DefinitionError,
    Executor,
    RunNotFound,
    SqliteJournal,
    Steps,
    WrongUse,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.ports.journal import Letter
from tests.engine.test_fork import flow

BIG = "y" * 50_000
CORRUPTIONS = 50
DAY = 86_400.0


@workflow
def large() -> Steps[str]:
    """A value that is stored apart."""
    return (yield from step("big").call(str.lower, BIG))


@workflow
def asks() -> Steps[str]:
    """It waits."""
    return (yield from step("q").ask("Well?"))


def made(folder: Path) -> SqliteJournal:
    """A journal with a run of each kind, and a letter."""
    journal = SqliteJournal(folder / "runs.db")
    executor = Executor(journal=journal, gates=lambda gate: "yes" if gate.choices else None)
    executor.options(run_id="one").run_sync(flow)
    executor.options(run_id="big").run_sync(large)
    executor.options(run_id="twin").run_sync(large)
    executor = Executor(journal=journal)
    executor.options(run_id="waits").run_sync(asks)
    executor.options(run_id="failed").run_sync(fails)
    letter = ev.stamp(ev.SignalReceived("go", 1), "waits", 0, 1.0)
    journal.post(Letter(letter))
    journal.close()
    return journal


@workflow
def fails() -> Steps[Any]:
    """It fails."""
    return (yield from step("no").call(int, "x"))


TABLES = {
    "events": ["seq", "at", "kind", "path", "body", "value", "crc"],
    "runs": ["run_id", "workflow", "labels", "started_at", "tail_seq", "tail_crc", "crc"],
    "letters": ["key", "at", "kind", "path", "body", "value", "crc"],
    "blobs": ["data", "hash"],
}


def corrupt(file: Path, seed: int) -> str:
    """Change one thing; what it was."""
    draw = random.Random(seed)  # of no value
    with sqlite3.connect(file) as connection:
        table = draw.choice(["events"] * 5 + ["runs", "letters", "blobs"])
        if table == "events" and draw.random() < 0.3:
            rows = connection.execute("SELECT run, seq FROM events").fetchall()
            run, seq = draw.choice(rows)
            connection.execute("DELETE FROM events WHERE run = ? AND seq = ?", (run, seq))
            said = f"event {seq} of run {run} was deleted"
        else:
            column = draw.choice(TABLES[table])
            where = f"{column} IS NOT NULL"
            keys = "run, seq" if table == "events" else "rowid" if table == "runs" else "*"
            rows = connection.execute(f"SELECT {keys} FROM {table} WHERE {where}").fetchall()
            key = draw.choice(rows)
            of_row = {
                "events": "run = ? AND seq = ?",
                "runs": "id = ?",
                "letters": "run_id = ? AND number = ?",
                "blobs": "hash = ?",
            }[table]
            places = key[: of_row.count("?")]
            (was,) = connection.execute(
                f"SELECT {column} FROM {table} WHERE {of_row}", places
            ).fetchone()
            other: Any = was + 1000 if isinstance(was, (int, float)) else f"{was}x"
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE {of_row}", (other, *places))
            said = f"{table}.{column} of {places}: {was!r:.40} is {other!r:.40}"
    connection.close()
    return said


def test_every_seeded_corruption_is_found(tmp_path: Path) -> None:
    """Whatever was changed or removed, and wherever; nothing is found in what is sound."""
    made(tmp_path)
    assert SqliteJournal(tmp_path / "runs.db").verify() == ()
    for seed in range(CORRUPTIONS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        shutil.copy(tmp_path / "runs.db", folder)
        said = corrupt(folder / "runs.db", seed)
        found = SqliteJournal(folder / "runs.db").verify()
        assert found, said


def test_each_fault_is_told_by_run_and_number(tmp_path: Path) -> None:
    """Two of one run, and one of another; the others are sound."""
    journal = made(tmp_path)
    with sqlite3.connect(tmp_path / "runs.db") as connection:
        connection.execute("UPDATE events SET body = '{}' WHERE run = 1 AND seq IN (3, 7)")
        connection.execute("UPDATE blobs SET data = data || 'x'")
    connection.close()
    found = [(one.run_id, one.number) for one in journal.verify()]
    events = {event.seq for event in made(tmp_path / "again").events("big") if event.seq}
    assert found[:2] == [("one", 3), ("one", 7)]
    assert {run for run, _ in found[2:]} == {"big", "twin"}
    assert {number for _, number in found[2:]} <= events
    assert [one.number for one in journal.verify("one")] == [3, 7]
    assert journal.verify("waits") == ()
    with pytest.raises(RunNotFound):
        journal.verify("nobody")


def test_what_has_ended_goes_and_what_is_shared_stays(tmp_path: Path) -> None:
    """By status, age and number; what a dry run says is what is removed then."""
    journal = made(tmp_path)
    with pytest.raises(WrongUse, match="older_than"):
        journal.prune()
    with pytest.raises(DefinitionError, match=r"keep_last of prune must be .* got -1"):
        journal.prune(keep_last=-1)
    assert journal.prune(older_than=DAY).runs == ()
    assert journal.prune(keep_last=9).runs == ()
    before = (tmp_path / "runs.db").stat().st_size
    planned = journal.prune(keep_last=2, dry_run=True)
    assert [one.run_id for one in journal.runs()] == ["one", "big", "twin", "waits", "failed"]
    pruned = journal.prune(keep_last=2)
    assert (pruned.runs, pruned.events) == (planned.runs, planned.events)
    assert pruned.runs == ("one", "big")
    assert pruned.bytes == planned.bytes
    assert Executor(journal=journal).resume_sync("twin", large).value == BIG
    assert journal.prune(keep_last=1).runs == ("twin",)
    assert journal.prune(older_than=0).runs == ("failed",)
    assert [one.run_id for one in journal.runs()] == ["waits"]
    journal.close()
    assert (tmp_path / "runs.db").stat().st_size < before - len(BIG)
    assert journal.prune(older_than=0).runs == ()
    assert journal.prune(statuses=["suspended"]).runs == ("waits",)
    assert journal.verify() == ()
    Executor(journal=journal).options(run_id="one").run_sync(flow)


def test_a_run_that_is_driven_notices_nothing(tmp_path: Path) -> None:
    """Also while others are removed in the midst of it; it is never removed itself."""
    journal = made(tmp_path)
    pruned: list[Any] = []

    def prune() -> None:
        pruned.append(SqliteJournal(tmp_path / "runs.db").prune(older_than=0))
        pruned.append(journal.prune(statuses=["dead", "suspended"]))

    @workflow
    def drives() -> Steps[str]:
        yield from step("before").call(str.lower, "A")
        yield from step("prunes").call(prune)
        return (yield from step("after").call(str.lower, BIG))

    result = Executor(journal=journal).options(run_id="driven").run_sync(drives)
    assert result.value == BIG
    assert [one.runs for one in pruned] == [("one", "big", "twin", "failed"), ("waits",)]
    assert [(one.run_id, one.status) for one in journal.runs()] == [("driven", "succeeded")]
    assert journal.verify() == ()
    assert Executor(journal=journal).resume_sync("driven", drives).value == BIG


@pytest.mark.soak
def test_nothing_is_found_in_a_thousand_sound_journals(tmp_path: Path) -> None:
    """With runs of all kinds."""
    for number in range(1_000):
        journal = SqliteJournal(tmp_path / f"{number}.db")
        executor = Executor(journal=journal, gates=lambda gate: "yes" if gate.choices else None)
        for one in ((flow, large, fails), (flow,), (fails, large))[number % 3]:
            executor.run_sync(one)
        assert journal.verify() == ()
        journal.close()
