"""What every engine that drives runs must do: end each run as ``Executor`` ends it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from handrail.executor import Executor
from handrail.model import events as ev
from handrail.model.results import WorkflowResult
from handrail.ports.journal import IMPORTED
from handrail.testing.conformance import (
    CASES,
    FLOWS,
    Case,
    by_path,
    drawn,
    effects,
    essence,
    history_differences,
)
from handrail.testing.shapes import Body

MakeExecutor: TypeAlias = Callable[..., Any]
"""Makes an executor of the engine, with options that ``Executor`` has: ``limits``, ``gates``."""


class HostContract:
    """The tests of an engine; subclass it and override the fixture ``engine``.

    The engine's workers must know ``handrail.testing.conformance.FLOWS``. Tests are async and need
    anyio's pytest plugin: ``anyio_mode = "auto"``, or mark the subclass with ``pytest.mark.anyio``.
    """

    @pytest.fixture
    def engine(self) -> MakeExecutor:
        """Makes executors of the engine."""
        raise NotImplementedError("override the fixture engine in your subclass")

    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
    async def test_it_comes_to_the_same_end(
        self, engine: MakeExecutor, tmp_path: Path, case: Case
    ) -> None:
        """Result, events by path, and effects outside are those of a run in one process."""
        options = case.options or {}
        here = Executor(workflows=FLOWS, portable=True, **options)
        there = engine(workflows=FLOWS, **options)
        await compared(case, here, there, tmp_path)

    async def test_drawn_workflows_come_to_the_same_end(
        self, engine: MakeExecutor, tmp_path: Path, bodies: Sequence[Body]
    ) -> None:
        """Result and events are the same, whatever a workflow is made of."""
        for number, body in enumerate(bodies):
            here = Executor(workflows=FLOWS, portable=True, gates="approve")
            there = engine(workflows=FLOWS, gates="approve")
            ends = [(engine, await engine.run(drawn, body)) for engine in (here, there)]
            await assert_alike(ends, tmp_path / str(number), body)

    @pytest.fixture
    def bodies(self) -> Sequence[Body]:
        """Workflows that are data; override it with more of them."""
        return ()


async def compared(case: Case, here: Any, there: Any, scratch: Path) -> None:
    """Carry a case out with two executors, and compare results, histories and effects."""
    folder = scratch / "effects"
    ends: list[tuple[Any, WorkflowResult[Any]]] = []
    done: list[tuple[Any, ...]] = []
    for executor in (here, there):
        shutil.rmtree(folder, ignore_errors=True)
        ends.append((executor, await case.act(executor, case.flow, {"folder": folder})))
        undone = folder / "undone"
        told = undone.read_text("utf-8").split() if undone.exists() else []
        undone.unlink(missing_ok=True)
        done.append((effects(folder), told))
    await assert_alike(ends, scratch / "history")
    assert done[0] == done[1]


async def assert_alike(
    ends: Sequence[tuple[Any, WorkflowResult[Any]]], scratch: Path, what: object = None
) -> None:
    """Assert that two runs, each with its executor, have equal results and histories.

    A failure shows ``what``.
    """
    one, other = (essence(result) for _, result in ends)
    assert one == other, what
    histories = [
        by_path(await history_of(executor, result.run_id, Path(f"{scratch}-{number}.jsonl")))
        for number, (executor, result) in enumerate(ends)
    ]
    assert history_differences(*histories) == [], what


async def history_of(executor: Any, run_id: str, file: Path) -> Sequence[ev.Event]:
    """The events of a run, read from its export, which every engine has."""
    await executor.export(run_id, file)
    reader = Executor()
    found = await reader.import_run(file)
    started, *others = reader.journal.events(found)
    assert isinstance(started, ev.WorkflowStarted)
    labels = {name: text for name, text in started.labels.items() if name != IMPORTED}
    return [replace(started, labels=labels), *others]
