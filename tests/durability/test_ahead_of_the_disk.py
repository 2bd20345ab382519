"""A loss of power at any moment: what has left a run is on record, though steps run ahead."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from handrail import Executor, SqliteJournal, Steps, step, workflow
from handrail.model import events as ev
from handrail.testing import JumpClock

HEADER, FRAME = 32, 24 + 4096
"""Bytes of a write-ahead log's header, and of a frame of it."""


class Disk:
    """Knows how much of the log is on disk, and what had left the run by then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log_bytes = 0
        self.syncs = 0
        self.left: list[tuple[str, int]] = []
        """The paths of steps that must be on record, and the length of the log on disk then."""
        sync = os.fdatasync

        def note(fd: int) -> None:
            size = os.fstat(fd).st_size
            sync(fd)
            self.log_bytes = max(self.log_bytes, size)
            self.syncs += 1

        monkeypatch.setattr(os, "fdatasync", note)

    def emit(self, event: ev.Event | ev.Progress, /) -> None:
        """A sink shows the end of a step."""
        if isinstance(event, ev.StepCompleted):
            self.left.append((event.path, self.log_bytes))


def ended_in(journal: SqliteJournal) -> set[str]:
    """The steps whose end is on record."""
    found = journal.runs() and journal.events("r")
    return {event.path for event in found or () if isinstance(event, ev.StepCompleted)}


def cut_everywhere(file: Path) -> list[tuple[int, set[str]]]:
    """The log's length and the steps on record, if the log ends behind each of its frames."""
    log = Path(f"{file}-wal").read_bytes()
    cuts: list[tuple[int, set[str]]] = []
    for size in range(HEADER, len(log) + 1, FRAME):
        copy = file.parent / f"cut{size}" / "runs.db"
        copy.parent.mkdir()
        shutil.copy(file, copy)
        Path(f"{copy}-wal").write_bytes(log[:size])
        cuts.append((size, ended_in(SqliteJournal(copy))))
    return cuts


async def test_what_has_left_is_on_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the log ends, the steps that were shown, or came before an effect, are in it."""
    disk = Disk(monkeypatch)
    before: list[str] = []

    other = sqlite3.connect(tmp_path / "runs.db", isolation_level=None)

    def pure(name: str) -> str:
        if name == "e1":  # another process locks the file while the end of it is recorded
            other.execute("BEGIN IMMEDIATE")
            asyncio.get_running_loop().call_later(0.02, other.execute, "ROLLBACK")
        before.append(name)
        return name

    async def effect(name: str) -> str:
        disk.left.extend((path, disk.log_bytes) for path in before)
        before.append(name)
        return name

    @workflow
    def flow() -> Steps[None]:
        for number, letters in enumerate(("abcd", "e", "fg")):
            for letter in letters:
                name = f"{letter}{number}"
                yield from step(name).call(pure, name).inline()
            yield from step(f"effect{number}").call(effect, f"effect{number}")
        yield from step("last").call(pure, "last").inline()

    journal = SqliteJournal(tmp_path / "runs.db", durability="power")
    async with Executor(journal=journal, sinks=[disk]).options(run_id="r") as executor:
        assert (await executor.run(flow)).success
        cuts = cut_everywhere(tmp_path / "runs.db")
    assert disk.syncs < len(before)
    assert len(disk.left) == len(before) + 4 + 6 + 9
    for size, recorded in cuts:
        assert {path for path, on_disk in disk.left if on_disk <= size} <= recorded


async def test_what_runs_ahead_is_shown_soon(tmp_path: Path) -> None:
    """However slow the steps are, the end of one is shown before three of them have passed."""
    clock, late = JumpClock(jumps=False), list[float]()

    @workflow
    def flow() -> Steps[None]:
        for number in range(10):
            yield from step(f"s{number}").call(clock.advance, 0.03).inline()

    class Shown:
        def emit(self, event: ev.Event | ev.Progress, /) -> None:
            if isinstance(event, ev.StepCompleted):
                late.append(clock.now() - event.at)

    journal = SqliteJournal(tmp_path / "runs.db", durability="power")
    assert (await Executor(journal=journal, sinks=[Shown()], clock=clock).run(flow)).success
    assert len(late) == 10
    assert 0 < max(late) < 3 * 0.03


async def test_a_run_of_steps_without_effects_is_complete_at_its_end(tmp_path: Path) -> None:
    """A run that ran ahead of the disk to its end has every record, in order."""

    @workflow
    def flow() -> Steps[int]:
        total = 0
        for number in range(200):
            total += yield from step(f"s{number}").call(int, 1).inline()
        return total

    journal = SqliteJournal(tmp_path / "runs.db", durability="power")
    shown: list[ev.Event | ev.Progress] = []

    class Shown:
        def emit(self, event: ev.Event | ev.Progress, /) -> None:
            shown.append(event)

    result = await Executor(journal=journal, sinks=[Shown()]).options(run_id="r").run(flow)
    assert result.unwrap() == 200
    assert shown == journal.events("r")
