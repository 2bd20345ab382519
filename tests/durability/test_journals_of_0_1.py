"""Journals in the format of 0.1 are read and resumed as they were, and written as they were.

They cover what has a name in the format: kinds of events, every tag of the codec, every way an
output is composed. ``journals_of_0_1/make.py`` wrote them, and noted what became of each run.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import re
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from handrail import SqliteJournal
from handrail.model.events import Event

FOLDER = Path(__file__).parent / "journals_of_0_1"
MODULES = ("actions", "values", "workflows", "models", "drives")
EXPECTED: dict[str, dict[str, Any]] = json.loads((FOLDER / "expected.json").read_text("utf-8"))
WITHOUT_A_RUN = {
    *("ClaimWaiting", "ClaimGranted", "ClaimLost", "RunSteered", "AgentGuided"),
    "SandboxDenied",
    *("TasksQueued", "WorkEdited", "WorkStopped"),
}
"""Kinds of events that these runs lack: ``docs/reference/journal.md`` has their format."""
NEEDS = {"agents": ("jinja2",), "failures": ("jinja2",), "models": ("pydantic",)}
FILES = [
    pytest.param(file, id=file.stem, marks=pytest.mark.extra(*NEEDS.get(file.stem, ())))
    for file in sorted(FOLDER.glob("*.db"))
]
RUNS = [
    pytest.param(
        run_id, one["journal"], id=run_id, marks=pytest.mark.extra(*NEEDS.get(one["journal"], ()))
    )
    for run_id, one in EXPECTED.items()
]


def never_killed(run_id: str, journal: str) -> bool:
    """True if every drive of the run has an end on record."""
    query = "SELECT kind FROM history WHERE run_id = ? ORDER BY seq"
    with contextlib.closing(sqlite3.connect(FOLDER / f"{journal}.db")) as connection:
        kinds = [kind for (kind,) in connection.execute(query, (run_id,))]
    ends = {"WorkflowCompleted", "RunSuspended"}
    begun = [index for index, kind in enumerate(kinds) if kind == "RunResumed"]
    return all(kinds[index - 1] in ends for index in [*begun, len(kinds)])


@pytest.fixture(scope="module")
def drives() -> Iterator[Any]:
    """The module of the runs; it and the workflows have the names that the journals know."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        for name in MODULES:
            patch.delitem(sys.modules, name, raising=False)
        module = importlib.import_module("drives")
        values = importlib.import_module("values")
        patch.setenv(values.VARIABLE, values.SECRET)
        yield module
    for name in MODULES:
        sys.modules.pop(name, None)


def kinds_in(file: Path, drives: Any) -> set[str]:
    """The kinds of events in a journal."""
    return {row[2] for run_id in drives.JOURNALS[file.stem] for row in drives.rows_of(file, run_id)}


def test_the_journals_hold_nearly_every_kind_of_event(drives: Any) -> None:
    """All but a few kinds of events are in one of these."""
    found = set[str]().union(*(kinds_in(FOLDER / f"{name}.db", drives) for name in drives.JOURNALS))
    assert {kind.__name__ for kind in get_args(Event)} - found == WITHOUT_A_RUN


@pytest.mark.parametrize("file", FILES)
def test_events_are_read_and_written_as_they_were(file: Path, tmp_path: Path, drives: Any) -> None:
    """Every event of every run, read and stored in another journal, is stored as the same bytes."""
    values = sys.modules["values"]
    secrets = {values.VARIABLE: values.SECRET}
    was, copy = tmp_path / "was.db", tmp_path / "copy.db"
    shutil.copyfile(file, was)
    old, new = drives.opened(was), drives.opened(copy)
    assert [one.run_id for one in old.runs()] == list(drives.JOURNALS[file.stem])
    for run_id in drives.JOURNALS[file.stem]:
        assert append_all(new, run_id, old.events(run_id, secrets=secrets), secrets) > 0
        assert drives.rows_of(copy, run_id) == drives.rows_of(was, run_id)
    old.close()
    new.close()


def append_all(journal: SqliteJournal, run_id: str, events: Any, secrets: Any) -> int:
    """Store all events of a run; how many there were."""
    lease = journal.acquire(run_id, secrets=secrets)
    for event in events:
        assert journal.append(event) is None
    lease.release()
    return len(events)


@pytest.mark.parametrize(("run_id", "journal"), RUNS)
def test_a_run_is_planned_and_resumed_as_it_was(
    run_id: str, journal: str, tmp_path: Path, drives: Any
) -> None:
    """Its plan, its end and the effects of its last life are those that 0.1 came to."""
    file = tmp_path / "runs.db"
    shutil.copyfile(FOLDER / f"{journal}.db", file)
    expected = EXPECTED[run_id]
    if isinstance(expected["result"], str):
        expected = {**expected, "result": EXPECTED[expected["result"]]["result"]}
    found = drives.brought_to_an_end(file, run_id, tmp_path / "effects")
    assert json.loads(json.dumps({"journal": journal, **found})) == expected


@pytest.mark.parametrize(("run_id", "journal"), [one for one in RUNS if never_killed(*one.values)])
def test_a_run_is_written_as_it_was(run_id: str, journal: str, tmp_path: Path, drives: Any) -> None:
    """The same lives of a run, if none was killed, leave the same record, but for times, the text
    of tracebacks, and the order of what has none in fingerprints.
    """
    file = tmp_path / "runs.db"
    run, world = drives.RUNS[run_id], sys.modules["actions"].WORLD
    world.effects = tmp_path / "effects"
    for world.life, life in enumerate(run.lives, 1):
        drive = drives.drive_of(file, run_id, life, lambda _: None)
        drives.live(drive, run, life)
        drive.journal.close()
    recorded = drives.rows_of(FOLDER / f"{journal}.db", run_id)
    assert comparable(drives.rows_of(file, run_id)) == comparable(recorded)


def comparable(rows: list[Any]) -> list[tuple[str, ...]]:
    """Records without numbers, times, tracebacks and checksums; sorted, for threads may race."""
    found: list[tuple[str, ...]] = []
    for _, _, kind, path, *texts, _ in rows:
        body, value, blob = texts
        kept = json.loads(body.replace(f"{FOLDER}/", ""))
        for name in ("duration_ms", "traceback", "fingerprint", "digest"):
            kept.pop(name, None)
        said = re.sub(r'duration_ms":[^,}]+', 'duration_ms":0', value or blob or "")
        said = re.sub(r'"traceback":"(?:[^"\\]|\\.)*"', '"traceback":""', said)
        said = re.sub(r'"at":[^,}]+', '"at":0', said)
        found.append((kind, path, json.dumps(kept), said))
    return sorted(found)
