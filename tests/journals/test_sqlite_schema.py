"""SqliteJournal: a file of another format is refused, and so are tables that are not as created."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from handrail.errors import JournalDamaged, JournalFailed
from handrail.journals.sqlite import open as sqlite_open
from handrail.journals.sqlite.journal import SqliteJournal
from tests.journals.sqlite_support import change_file, written


@pytest.mark.parametrize("version", [0, 2, 99])
def test_a_file_of_another_format_is_refused(path: Path, version: int) -> None:
    """What an earlier or a later format wrote is not read; it is said which, and what to do."""
    written(path)
    change_file(path, f"PRAGMA user_version = {version}")
    why = f"its format is version {version}, this handrail knows version 1. Go on with the handrail"
    with pytest.raises(JournalFailed, match=why):
        SqliteJournal(path).events("r")


def test_tables_are_made_all_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If one cannot be made, the file stays empty, and the next one makes them all."""
    connection = sqlite3.connect(tmp_path / "runs.db", isolation_level=None)
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_open, "TABLES", f"{sqlite_open.TABLES}\nno SQL")
        with pytest.raises(sqlite3.OperationalError):
            sqlite_open.make_tables("runs.db", connection)
    assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == []
    sqlite_open.make_tables("runs.db", connection)
    sqlite_open.check_schema("runs.db", connection)
    connection.close()


def test_tables_beside_ours_are_no_damage(path: Path) -> None:
    """People may add views and indexes of their own; to change a table of ours is damage."""
    written(path)
    change_file(path, "CREATE VIEW mine AS SELECT * FROM history")
    journal = SqliteJournal(path)
    assert len(journal.events("r")) == 40
    journal.close()
    change_file(path, "ALTER TABLE runs ADD COLUMN mine TEXT")
    with pytest.raises(JournalDamaged, match="runs: not as created"):
        SqliteJournal(path).runs()
