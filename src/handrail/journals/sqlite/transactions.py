"""Several statements of SQLite's as one."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Generator


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Generator[None]:
    """All that is written inside, or nothing; inside another one it is a part of that."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextlib.contextmanager
def snapshot(connection: sqlite3.Connection) -> Generator[None]:
    """All that is read inside is of one moment; inside a transaction it is so already."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
