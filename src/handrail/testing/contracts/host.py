"""What every engine that drives runs must do: come to the ends that ``Executor`` comes to."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from handrail.executor import Executor
from handrail.model import events as ev
from handrail.testing.conformance import (
    CASES,
    FLOWS,
    Case,
    by_path,
    differences,
    drawn,
    effects,
    essence,
)
from handrail.testing.shapes import Body

MakeExecutor: TypeAlias = Callable[..., Any]
"""Makes an executor of the engine, with options that ``Executor`` has: ``limits``, ``gates``."""


class HostContract:
    """The tests of an engine; subclass it and override the fixture ``engine``.

    Whatever drives runs must know ``handrail.testing.conformance.FLOWS``. Tests are async and need
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
        """Result, events by path, and what was done outside are those of a run in one process."""
        options = case.options or {}
        here = Executor(workflows=FLOWS, portable=True, **options)
        there = engine(workflows=FLOWS, **options)
        await compared(case, here, there, tmp_path)

    async def test_drawn_workflows_come_to_the_same_end(
        self, engine: MakeExecutor, tmp_path: Path, bodies: Sequence[Body]
    ) -> None:
        """Whatever a workflow is made of."""
        for number, body in enumerate(bodies):
            here = Executor(workflows=FLOWS, portable=True, gates="approve")
            there = engine(workflows=FLOWS, gates="approve")
            one, other = await here.run(drawn, body), await there.run(drawn, body)
            assert essence(one) == essence(other), body
            files = [tmp_path / f"{number}-{which}" for which in ("here", "there")]
            histories = [
                await history_of(executor, result.run_id, file)
                for executor, result, file in ((here, one, files[0]), (there, other, files[1]))
            ]
            assert differences(*map(by_path, histories)) == [], body

    @pytest.fixture
    def bodies(self) -> Sequence[Body]:
        """Workflows that are data; override it with more of them."""
        return ()


async def compared(case: Case, here: Any, there: Any, scratch: Path) -> None:
    """Carry a case out with two executors, and compare what became of it."""
    folder = scratch / "effects"
    seen: list[tuple[Any, ...]] = []
    for which, executor in (("here", here), ("there", there)):
        shutil.rmtree(folder, ignore_errors=True)
        result = await case.act(executor, case.flow, {"folder": folder})
        undone = folder / "undone"
        told = undone.read_text("utf-8").split() if undone.exists() else []
        undone.unlink(missing_ok=True)
        history = await history_of(executor, result.run_id, scratch / f"{which}.jsonl")
        seen.append((essence(result), by_path(history), effects(folder), told))
    one, other = seen
    assert one[0] == other[0]
    assert differences(one[1], other[1]) == []
    assert one[2:] == other[2:]


async def history_of(executor: Any, run_id: str, file: Path) -> Sequence[ev.Event]:
    """The events of a run by its export, which is the same on every engine."""
    await executor.export(run_id, file)
    reader = Executor()
    found = await reader.import_run(file)
    return reader.journal.events(found)
