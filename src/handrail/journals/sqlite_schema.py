"""The tables of a journal in SQLite, and how older files come to have them.

``user_version`` is the number of migrations that a file has had. They only go forward; one that
was released is never changed. A file with more of them than are known here is refused.
"""

from __future__ import annotations

import functools
import sqlite3  # noqa: TID253 - loaded with SqliteJournal, on its first use
from collections.abc import Callable, Sequence
from typing import TypeAlias

from handrail.errors import JournalFailed
from handrail.journals.sqlite_failures import damaged
from handrail.journals.sqlite_transactions import snapshot, transaction

Migration: TypeAlias = Callable[[sqlite3.Connection], object]

APPLICATION_ID = 0x68726A6C
"""``hrjl`` in ASCII; it marks the file as a journal of handrail."""

_FIRST = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL UNIQUE,
    workflow TEXT NOT NULL,
    labels TEXT NOT NULL,
    started_at REAL NOT NULL,
    tail_seq INTEGER NOT NULL,
    tail_crc INTEGER NOT NULL,
    crc INTEGER NOT NULL
);
CREATE TABLE events (
    run INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    path TEXT NOT NULL,
    body TEXT NOT NULL,
    value TEXT,
    blob TEXT,
    crc INTEGER NOT NULL,
    PRIMARY KEY (run, seq)
) WITHOUT ROWID;
CREATE TABLE blobs (
    hash TEXT NOT NULL PRIMARY KEY,
    data TEXT NOT NULL
);
CREATE TABLE letters (
    run_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    key TEXT NOT NULL,
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    path TEXT NOT NULL,
    body TEXT NOT NULL,
    value TEXT,
    crc INTEGER NOT NULL,
    PRIMARY KEY (run_id, number)
) WITHOUT ROWID;
CREATE UNIQUE INDEX letter_keys ON letters (run_id, key) WHERE key <> '';
CREATE TABLE leases (
    run_id TEXT NOT NULL PRIMARY KEY,
    epoch INTEGER NOT NULL,
    token TEXT NOT NULL,
    pid INTEGER,
    start_ticks INTEGER NOT NULL,
    host TEXT NOT NULL,
    boot TEXT NOT NULL,
    since REAL NOT NULL,
    renewed_at REAL NOT NULL,
    expires_at REAL NOT NULL
) WITHOUT ROWID;
CREATE VIEW history AS
    SELECT runs.run_id, events.seq,
           strftime('%Y-%m-%d %H:%M:%f', events.at, 'unixepoch') AS time,
           events.kind, events.path, events.body, coalesce(events.value, blobs.data) AS value
    FROM runs JOIN events ON events.run = runs.id LEFT JOIN blobs ON blobs.hash = events.blob;
"""


def _create(connection: sqlite3.Connection) -> None:
    for statement in _FIRST.split(";\n"):
        if statement.strip():
            connection.execute(statement)


MIGRATIONS: tuple[Migration, ...] = (_create,)


def version_of(journal: str, connection: sqlite3.Connection, known: int = len(MIGRATIONS)) -> int:
    """How many migrations the file has had; 0 for one that is empty.

    Raises:
        JournalFailed: it is a database of another program, or of a newer version.
    """
    with snapshot(connection):  # another process may be making the file just now
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application == 0 and version == 0 and tables == 0:
        return 0
    if application != APPLICATION_ID:
        why = f"it is a database of another program (application_id {application})"
        raise JournalFailed(journal, "opening it", why, "Name another file for the journal.")
    if not 1 <= version <= known:
        why = f"its format is version {version}, this handrail knows up to {known}"
        raise JournalFailed(journal, "opening it", why, "Use the newer handrail that wrote it.")
    return int(version)


def migrate(
    journal: str,
    connection: sqlite3.Connection,
    migrations: Sequence[Migration] = MIGRATIONS,
) -> None:
    """Bring the file to the newest version, in one transaction."""
    if version_of(journal, connection, len(migrations)) == len(migrations):
        return
    with transaction(connection):  # another process may have been faster
        version = version_of(journal, connection, len(migrations))
        for migration in migrations[version:]:
            migration(connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(migrations)}")


def check_schema(
    journal: str,
    connection: sqlite3.Connection,
    migrations: tuple[Migration, ...] = MIGRATIONS,
) -> None:
    """Make sure that the tables are those that the migrations make; others may be beside them.

    Raises:
        JournalDamaged: one is missing, or is another.
    """
    there = set(connection.execute(_SCHEMA))
    changed = sorted(name for name, _ in expected_schema(migrations) - there)
    if changed:
        raise damaged(journal, "reading its tables", f"{', '.join(changed)}: not as created")


_SCHEMA = "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL"


@functools.cache
def expected_schema(migrations: tuple[Migration, ...]) -> frozenset[tuple[str, str]]:
    """Name and text of every table, index and view after all migrations."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for migration in migrations:
            migration(connection)
        return frozenset(connection.execute(_SCHEMA))
    finally:
        connection.close()
