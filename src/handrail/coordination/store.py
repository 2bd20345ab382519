"""The file of a hub: all that it remembers, in SQLite.

The file has the newest value of each key, so it does not grow with time. A hub writes the changes
of several messages in one transaction, and answers these messages only after that. So a killed
process loses nothing that it has answered. With ``synced`` each transaction also waits for the
disk; then a loss of power loses nothing either.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path

import msgspec

from handrail.coordination.hub.records import KINDS, Put
from handrail.errors import HubFailed

_APPLICATION = 0x68726862
_VERSION = 1
_SCHEMA = """
CREATE TABLE kept (
    number INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL,
    UNIQUE (kind, key)
);
CREATE TABLE hub (id TEXT NOT NULL);
"""


class HubStore:
    """The open file of a hub, which no other hub can use meanwhile. Mutable.

    Raises:
        HubFailed: the file cannot be opened, another hub uses it, or it is no file of a hub.
    """

    def __init__(self, path: Path, *, synced: bool = False) -> None:
        self._path = path
        with _translate_errors(path, "opened"):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            self._connection = sqlite3.connect(path, isolation_level=None, timeout=0.5)
        try:
            with _translate_errors(path, "opened"):
                self._prepare(synced=synced)
                (self.hub_id,) = self._connection.execute("SELECT id FROM hub").fetchone()
        except BaseException:
            self._connection.close()
            raise

    def read(self) -> Iterator[Put]:
        """All stored values, in the order in which they were last put.

        Raises:
            HubFailed: the file cannot be read, or is damaged.
        """
        with _translate_errors(self._path, "read"):
            rows = self._connection.execute("SELECT kind, key, value FROM kept ORDER BY number")
            for kind, key, value in rows:
                yield Put(kind, key, msgspec.json.decode(value, type=KINDS[kind]))

    def write(self, puts: Iterable[Put]) -> None:
        """Write these changes, all or none.

        Raises:
            HubFailed: they could not be written.
        """
        run = self._connection.execute
        with _translate_errors(self._path, "written"):
            try:
                run("BEGIN IMMEDIATE")
                for put in puts:
                    if put.value is None:
                        run("DELETE FROM kept WHERE kind = ? AND key = ?", (put.kind, put.key))
                    else:
                        run(
                            "INSERT OR REPLACE INTO kept (kind, key, value) VALUES (?, ?, ?)",
                            (put.kind, put.key, msgspec.json.encode(put.value)),
                        )
                run("COMMIT")
            finally:
                if self._connection.in_transaction:
                    run("ROLLBACK")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _prepare(self, *, synced: bool) -> None:
        run = self._connection.execute
        run("PRAGMA locking_mode = EXCLUSIVE")  # before WAL, which then needs no shared memory
        (tables,) = run("SELECT count(*) FROM sqlite_master").fetchone()
        (application,) = run("PRAGMA application_id").fetchone()
        (version,) = run("PRAGMA user_version").fetchone()
        if tables and application != _APPLICATION:
            raise HubFailed(str(self._path), "is a database of something else", "Give another file")
        if tables and version != _VERSION:
            why = f"has the format {version}, and this handrail knows the format {_VERSION}"
            hint = "Use the handrail that wrote it, or give another file"
            raise HubFailed(str(self._path), why, hint)
        run("PRAGMA journal_mode = WAL")
        run(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")
        run("BEGIN EXCLUSIVE")  # locking_mode keeps this lock until the file is closed
        if not tables:
            for statement in filter(str.strip, _SCHEMA.split(";")):
                run(statement)
            run("INSERT INTO hub VALUES (?)", (new_id(),))
            run(f"PRAGMA application_id = {_APPLICATION}")
            run(f"PRAGMA user_version = {_VERSION}")
        run("COMMIT")


def new_id() -> str:
    """A random id for a new hub."""
    return f"syn-{secrets.token_hex(4)}"


@contextlib.contextmanager
def _translate_errors(path: Path, what: str) -> Generator[None]:
    """Raise ``HubFailed``, with the file's path, for the errors of SQLite and of the disk."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
            hint = "A file has one hub: stop the other, or give another file"
            raise HubFailed(str(path), "is used by another hub", hint) from error
        raise HubFailed(str(path), f"cannot be {what}: {error}") from error
    except (sqlite3.Error, OSError, msgspec.MsgspecError, KeyError) as error:
        why = getattr(error, "strerror", None) or error
        raise HubFailed(str(path), f"cannot be {what}: {why}") from error
