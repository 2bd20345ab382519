"""SqliteJournal: older files are brought up to date, newer ones refused."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from handrail.errors import JournalDamaged, JournalFailed
from handrail.journals.sqlite.journal import SqliteJournal
from handrail.journals.sqlite.open import MIGRATIONS, check_schema, migrate
from tests.journals.sqlite_support import change_file, written


def test_a_newer_file_is_refused(path: Path) -> None:
    """What a later version wrote is not read, and the version is named."""
    written(path)
    change_file(path, "PRAGMA user_version = 99")
    with pytest.raises(JournalFailed, match="format is version 99, this handrail knows up to 1"):
        SqliteJournal(path).events("r")


def test_an_older_file_is_brought_up_to_date(path: Path) -> None:
    """A file with fewer migrations gets those that it misses, keeps its runs, and is whole; whoever
    knows only the older ones refuses it from then on.
    """
    written(path)

    def tags(connection: sqlite3.Connection) -> None:
        connection.execute("ALTER TABLE blobs ADD COLUMN tag TEXT")

    newer = (*MIGRATIONS, tags)
    connection = sqlite3.connect(path, isolation_level=None)
    for _ in range(2):
        migrate(str(path), connection, newer)
        check_schema(str(path), connection, newer)
    found = connection.execute("SELECT count(*), count(DISTINCT run_id) FROM history").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.close()
    assert (found, version) == ((40, 1), len(newer))
    with pytest.raises(JournalFailed, match=f"version {len(newer)}, .* knows up to {version - 1}"):
        SqliteJournal(path).runs()


def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    """All missing migrations are one transaction."""
    connection = sqlite3.connect(tmp_path / "runs.db", isolation_level=None)

    def fails(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE half (id)")
        connection.execute("no SQL")

    with pytest.raises(sqlite3.OperationalError):
        migrate("runs.db", connection, [*MIGRATIONS, fails])
    assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == []
    migrate("runs.db", connection)
    check_schema("runs.db", connection)
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
