"""A journal in a file, for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from handrail.journals.sqlite.journal import SqliteJournal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of a journal, which is not there yet."""
    return tmp_path / "runs.db"


@pytest.fixture
def journal(path: Path) -> Iterator[SqliteJournal]:
    """A journal in that file; it is closed afterwards."""
    made = SqliteJournal(path)
    yield made
    made.close()
