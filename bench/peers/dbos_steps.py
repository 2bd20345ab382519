"""DBOS: a workflow function that calls steps; its SQLite system database."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path

from common import report

with contextlib.suppress(ImportError):  # DBOS needs SQLite 3.42, and Python may have an older one
    import pysqlite3

    sys.modules["sqlite3"] = pysqlite3

from dbos import DBOS, DBOSConfig

folder = tempfile.TemporaryDirectory()
config: DBOSConfig = {
    "name": "bench",
    "system_database_url": f"sqlite:///{Path(folder.name) / 'dbos.db'}",
    "log_level": "ERROR",
}
DBOS(config=config)


@DBOS.step()
def one() -> int:
    """What each step does."""
    return 1


@DBOS.workflow()
def flow(count: int) -> int:
    """So many steps, one after the other."""
    return sum(one() for _ in range(count))


def durable(count: int) -> None:
    """Each step's output is in the database before the next begins."""
    assert flow(count) == count


DBOS.launch()
try:
    report("dbos", None, durable, 300)
finally:
    DBOS.destroy()
    folder.cleanup()
