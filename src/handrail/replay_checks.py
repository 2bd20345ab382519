"""Checks whether today's code still replays a run, recorded in an export or in a journal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from handrail.codec.unresolved import Unresolvable
from handrail.core.comparison import Comparison
from handrail.core.machine import act
from handrail.engine.engine import Engine
from handrail.engine.exporting import import_from
from handrail.engine.outside import run_outside
from handrail.engine.parts import definition_of
from handrail.engine.step_names import yielded_at
from handrail.errors import WrongUse
from handrail.executor import Executor
from handrail.journals.memory import MemoryJournal
from handrail.journals.sqlite.journal import SqliteJournal
from handrail.model import events as ev
from handrail.model.definition import WorkflowDefinition
from handrail.model.history import Divergence, ReplayReport
from handrail.model.shapes import WorkflowLike
from handrail.ports.journal import Journal
from handrail.record.reading import ended, history_of, refuse_other_workflow
from handrail.secrets.values import SecretValues

if TYPE_CHECKING:
    import pytest


Source: TypeAlias = str | os.PathLike[str] | Journal
"""An exported run, the file of a journal, or a journal."""
_SQLITE = b"SQLite format 3"
_IN_A_THREAD = (
    "await anyio.to_thread.run_sync(replay, source, workflow), or make the test a plain `def`"
)


def replay(
    source: Source, workflow: WorkflowLike[..., Any], *, run_id: str | None = None
) -> ReplayReport:
    """Compare the workflow's code with a recorded run; nothing is performed.

    ``run_id`` is needed for a journal with several runs.

    Raises:
        DamagedExport, JournalDamaged: it cannot be read. RunNotFound: there is no such run.
        WrongUse: the run is of another workflow, or the journal has several and none was named.
    """
    history, definition = _history(source, run_id), definition_of(workflow)
    engine = Executor(durable=True)  # a durable engine compares steps with their record
    return run_outside("replay()", _IN_A_THREAD, replay_code, engine, history, definition)


def _history(source: Source, run_id: str | None) -> Sequence[ev.Event]:
    """The events of a recorded run."""
    if isinstance(source, (str, os.PathLike)):
        file = Path(source)
        with file.open("rb") as stream:
            is_journal = stream.read(len(_SQLITE)) == _SQLITE
        if not is_journal:
            journal = MemoryJournal()
            return journal.events(import_from(file, journal, run_id, SecretValues({})))
        source = SqliteJournal(file)
    if run_id is None:
        known = [info.run_id for info in source.runs()]
        if len(known) != 1:
            listed = ", ".join(known[-5:]) or "none"
            where = getattr(source, "path", "the journal")
            how = "with run_id, or --run-id on the command line"
            raise WrongUse(f"name a run of {where}, {how}: it has {listed}")
        run_id = known[0]
    return history_of(source, run_id)


async def replay_code(
    engine: Engine, history: Sequence[ev.Event], definition: WorkflowDefinition
) -> ReplayReport:
    """Compare a workflow's code with a recorded run of it, up to the first divergence.

    Raises:
        WrongUse: the run is of another workflow.
    """
    refuse_other_workflow(history, definition)
    run, evaluator = engine.as_recorded(history, definition)
    comparison, found = Comparison(run, act, ended(history)), None
    try:
        search = comparison.of_run()
        while search.question is not None:
            search.answer(await evaluator.evaluated(search.question, 0.0))
        for change in run.changes[:1]:
            found = Divergence(change.path, change.was, change.now, comparison.line)
    except Unresolvable as error:
        found = Divergence(error.path, "an output", str(error), comparison.line)
    finally:
        comparison.close()
    if run.escaped is not None:
        raise run.escaped
    if found is not None and not found.where and found.path:
        found = replace(found, where=yielded_at(definition, found.path))
    return ReplayReport(history[0].run_id, found)


def assert_replays(
    source: Source, workflow: WorkflowLike[..., Any], *, run_id: str | None = None
) -> None:
    """Do nothing if ``replay`` finds no divergence.

    Raises:
        AssertionError: it found one, which the text has.
    """
    __tracebackhide__ = True  # so that pytest shows the line of the test
    report = replay(source, workflow, run_id=run_id)
    if report.divergence is not None:
        raise AssertionError(f"run {report.run_id} is not replayed: {report.divergence}")


def recorded_runs(folder: str | os.PathLike[str]) -> pytest.MarkDecorator:
    """Run a test for each exported run (``*.jsonl``) in a folder, as its argument ``recorded_run``.

    Raises:
        FileNotFoundError: the folder has none.
    """
    import pytest

    files = sorted(Path(folder).glob("*.jsonl"))
    if not files:
        raise FileNotFoundError(f"no exported run (*.jsonl) is in {folder}")
    return pytest.mark.parametrize("recorded_run", files, ids=[file.stem for file in files])
