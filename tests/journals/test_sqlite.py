"""SqliteJournal: the laws of a journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from handrail.journals.sqlite.journal import SqliteJournal
from handrail.testing.contracts import JournalContract
from handrail.testing.contracts.journal import MakeJournal


class TestSqliteJournal(JournalContract):
    @pytest.fixture
    def make_journal(self, tmp_path: Path) -> MakeJournal:
        """A journal of the same file each time."""
        return lambda: SqliteJournal(tmp_path / "deep" / "runs.db")


class TestPowerSafeSqliteJournal(JournalContract):
    @pytest.fixture
    def make_journal(self, tmp_path: Path) -> MakeJournal:
        """The same, with each event on disk."""
        return lambda: SqliteJournal(tmp_path / "runs.db", durability="power")
