"""Whichever write fails, and however: a clear error, nothing lost, and the run goes on."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from handrail import Executor, JournalFailed, SqliteJournal
from handrail.journals.sqlite.open import failure
from handrail.testing import JumpClock
from handrail.testing.crash_trial import RunScenario
from tests.durability import flows
from tests.durability.flows import FLOWS
from tests.durability.support import RUN, SOAKING, Lives, backends, essence, hold

CODES = {
    "full": (sqlite3.SQLITE_FULL, "SQLITE_FULL", "database or disk is full", "Free some space"),
    "io": (sqlite3.SQLITE_IOERR, "SQLITE_IOERR", "disk I/O error", "Look at the disk"),
    "readonly": (
        sqlite3.SQLITE_READONLY, "SQLITE_READONLY", "attempt to write a readonly database",
        "must be able to write",
    ),
    "locked": (sqlite3.SQLITE_BUSY, "SQLITE_BUSY", "database is locked", "keeps it locked"),
}  # fmt: skip


def of_sqlite(how: str) -> JournalFailed:
    """What an SqliteJournal raises when SQLite says this."""
    code, name, said, _ = CODES[how]
    error = sqlite3.OperationalError(said)
    error.sqlite_errorcode, error.sqlite_errorname = code, name
    return failure("runs.db", "storing event 7", error)


@backends
@pytest.mark.parametrize(("name", "gates"), [*((one, None) for one in FLOWS), ("waits", "approve")])
def test_the_nth_write_fails(name: str, gates: Any, backend: str) -> None:
    """The caller gets the journal's error, and the run goes on from what was recorded before."""
    flow, args = FLOWS[name]

    def lives() -> Lives:
        return Lives(flow, backend=backend, gates=gates, args=args)

    whole = lives()
    expected = essence(whole.through().result)
    for number in range(1, whole.writes[0] + 1, 1 if SOAKING else 5):
        run = lives()
        how = list(CODES)[number % len(CODES)]
        with pytest.raises(JournalFailed) as caught:
            run.live(fail_at=number, error=of_sqlite(how))
        for said in CODES[how][2:]:
            assert said in str(caught.value)
        story = run.through()
        hold(story)
        assert essence(story.result) == expected, number


class FailingOnce:
    """An SqliteJournal whose n-th write fails. Mutable."""

    def __init__(self, journal: SqliteJournal, number: int) -> None:
        self._journal = journal
        self._left = number

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def append(self, event: Any, /, *, sync: bool = False) -> Any:
        """Store, or fail."""
        self._count()
        return self._journal.append(event, sync=sync)

    def append_all(self, events: Any, /, *, sync: bool = False) -> Any:
        """Store together, or fail."""
        self._count()
        return self._journal.append_all(events, sync=sync)

    def post(self, letter: Any, /, **secrets: Any) -> Any:
        """Keep, or fail."""
        self._count()
        return self._journal.post(letter, **secrets)

    def _count(self) -> None:
        self._left -= 1
        if self._left == 0:
            raise of_sqlite("full")


async def test_a_run_in_a_file_goes_on_after_any_failed_write(tmp_path: Any) -> None:
    """With the same executor, once there is space again: its lease and its connection are free."""
    scenario = RunScenario(
        flows.waits, RUN, answers={"merge?": "no", "both/sure?": "yes"}, signals={"go": [1, 2]}
    )
    results = []
    for number in range(1, 1000, 7):
        journal: Any = FailingOnce(SqliteJournal(tmp_path / f"{number}.db"), number)
        executor = Executor(journal=journal, clock=JumpClock())
        try:
            await scenario.finish(executor, journal)
        except JournalFailed:
            results.append(await scenario.finish(executor, journal))
        else:
            break
        finally:
            journal.close()
    assert len(results) > 5
    assert [one.value for one in results] == [(1, "no", (2, "yes"))] * len(results)
