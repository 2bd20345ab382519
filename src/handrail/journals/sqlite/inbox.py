"""Stores messages to runs, in order; of those with the same key only the first."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping
from typing import Any, cast
from zlib import crc32

from handrail.codec.codec import Codec
from handrail.journals.sqlite.open import journal_damaged
from handrail.ports.journal import Letter, Message
from handrail.record.rows import Record, from_record, to_record
from handrail.system.sqlite import transaction

_ROW = "SELECT number, key, at, kind, path, body, value, crc FROM letters WHERE run_id = ?"


class MessageTable:
    """The messages of one journal; ``journal`` is its name in errors."""

    def __init__(self, journal: str, codec: Codec) -> None:
        self.journal = journal
        self.codec = codec

    def keep(
        self, connection: sqlite3.Connection, letter: Letter, secrets: Mapping[str, str] | None
    ) -> Letter:
        """Store a message, unless one of its key is stored; returns the stored one."""
        event, key = letter.event, letter.key
        run_id = event.run_id
        record = to_record(event, self.codec, secrets)
        with transaction(connection):
            first = self._find_by_key(connection, run_id, key, secrets) if key else None
            if first is not None:
                return first
            number = self._last_number(connection, run_id) + 1
            row = (number, key, float(event.at), *record)
            connection.execute(
                "INSERT INTO letters VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (run_id, *row, letter_checksum(run_id, row)),
            )
        return Letter(event, key, number)

    def after(
        self,
        connection: sqlite3.Connection,
        run_id: str,
        number: int,
        secrets: Mapping[str, str] | None,
    ) -> list[Letter]:
        """The messages of a run with a higher number, in order."""
        rows = connection.execute(f"{_ROW} AND number > ? ORDER BY number", (run_id, number))
        return [self._letter(run_id, row, secrets) for row in rows.fetchall()]

    def last_numbers(
        self, connection: sqlite3.Connection, run_ids: Collection[str]
    ) -> dict[str, int]:
        """By run, the number of its last message; without runs that have none."""
        numbers = {run_id: self._last_number(connection, run_id) for run_id in run_ids}
        return {run_id: number for run_id, number in numbers.items() if number}

    def _find_by_key(
        self,
        connection: sqlite3.Connection,
        run_id: str,
        key: str,
        secrets: Mapping[str, str] | None,
    ) -> Letter | None:
        query = f"{_ROW} AND key = ? AND key <> ''"
        row = connection.execute(query, (run_id, key)).fetchone()
        return self._letter(run_id, row, secrets) if row else None

    def _last_number(self, connection: sqlite3.Connection, run_id: str) -> int:
        query = "SELECT coalesce(max(number), 0) FROM letters WHERE run_id = ?"
        return int(connection.execute(query, (run_id,)).fetchone()[0])

    def _letter(
        self, run_id: str, row: tuple[Any, ...], secrets: Mapping[str, str] | None
    ) -> Letter:
        number, key, at, kind, path, body, value, crc = row
        if letter_checksum(run_id, row[:-1]) != crc:
            why = f"message {number} to run {run_id} is not as it was written"
            raise journal_damaged(self.journal, f"reading the messages of run {run_id}", why)
        record = Record(kind, path, body, value)
        event = from_record(run_id, 0, at, record, self.codec, secrets)
        return Letter(cast("Message", event), key, number)


def letter_checksum(run_id: str, row: tuple[Any, ...]) -> int:
    """The checksum of a message's row, from its columns before the checksum."""
    return crc32("\n".join(map(repr, row)).encode("utf-8", "surrogatepass"), crc32(run_id.encode()))
