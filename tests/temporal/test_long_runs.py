"""A run that is too long for one execution goes on in the next, from its own record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from temporalio.client import Client

from handrail import Budget, Executor, Limits, RunTerminated
from handrail.model import events as ev
from handrail.temporal import TemporalExecutor, TemporalWorker
from handrail.temporal.wire import Bounds, Row, merge_chunks, pack_rows, unpack_rows
from handrail.testing.conformance import CASES, Case, by_path, costly, essence, history_differences
from handrail.testing.conformance import FLOWS as CONFORMANCE
from handrail.testing.contracts.host import compared, history_of
from tests.temporal.flows import FLOWS, asks_between, counts, fans

pytestmark = pytest.mark.temporal
ALL = (*FLOWS, *CONFORMANCE)
Make = Callable[..., TemporalExecutor]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Executions are long from 40 events on, and too long from 100; 30 steps are in flight."""
    bounds = Bounds(window=30, soft_events=40, hard_events=100)
    monkeypatch.setattr("handrail.temporal.wire.BOUNDS", bounds)


@pytest.mark.parametrize(("flow", "inputs"), [(counts, (40,)), (fans, (100, 0.02))])
async def test_it_comes_to_the_same_end(
    flow: Any, inputs: tuple[Any, ...], engine: Make, tmp_path: Path
) -> None:
    """Step by step, and in a group that is wider than one execution is long."""
    here, there = Executor(workflows=ALL, portable=True), engine(workflows=ALL)
    one, other = await here.run(flow, *inputs), await there.run(flow, *inputs)
    histories = [
        await history_of(executor, result.run_id, tmp_path / f"{which}.jsonl")
        for which, executor, result in (("here", here, one), ("there", there, other))
    ]
    assert essence(one) == essence(other)
    assert history_differences(*map(by_path, histories)) == []
    drives = [event for event in histories[1] if isinstance(event, ev.RunResumed)]
    assert len(drives) >= 1


NAMES = ("handled failures", "groups", "sub-workflows", "validation", "rollbacks", "cancel")


@pytest.mark.parametrize("case", [one for one in CASES if one.name in NAMES], ids=lambda o: o.name)
async def test_the_contract_holds_over_executions(
    case: Case, engine: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same when nearly each step has an execution of its own."""
    monkeypatch.setattr("handrail.temporal.wire.BOUNDS", Bounds(soft_events=8))
    here = Executor(workflows=ALL, portable=True)
    await compared(case, here, engine(workflows=ALL), tmp_path)


async def test_what_was_asked_and_spent_and_paused_is_known_in_the_next(
    engine: Make, client: Client
) -> None:
    """A question stays open, a pause holds, a signal is kept, over executions."""
    there = engine(workflows=ALL)
    await there.options(run_id="long").run(asks_between, 12)
    await there.pause("long", by="somebody")
    await there.signal("long", "news", {"early": True})
    await there.answer("long", "go?", "yes")
    state = await there.get("long")
    assert state.status == "paused"
    assert "between-0" not in {one.path for one in state.steps}
    await there.unpause("long")
    result = await there.result("long")
    assert result.value == ["yes", "{'early': True}"]
    executions = [one.run_id async for one in client.list_workflows("WorkflowId = 'long'")]
    assert len(executions) > 2
    limits = Limits(budget=Budget(launches=2))
    spent = await engine(workflows=ALL, limits=limits).run(costly, Path("x"))
    assert [str(one).rpartition(".")[2] for one in spent.unwrap()] == ["BudgetExceeded"] * 2


async def test_a_record_that_is_too_large_to_go_along_says_so_and_fits_a_store(
    engine: Make, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not the server that ends the run, by a word of its own; with a store it goes on."""
    monkeypatch.setattr("handrail.temporal.wire.MOST_BYTES", 2_000)
    monkeypatch.setattr("handrail.temporal.execution.LARGE_BYTES", 1_000)
    monkeypatch.setattr("handrail.temporal.execution.SLICE", 60)
    there = engine(workflows=ALL)
    with pytest.raises(RunTerminated, match=r"the record of the run has .* bytes.*--blobs"):
        await there.options(run_id="large").run(counts, 60)
    assert len((await there.get("large")).steps) > 8
    async with TemporalWorker(client, ALL, task_queue="stored", blobs=tmp_path):
        stored = TemporalExecutor(client, task_queue="stored", workflows=ALL, blobs=tmp_path)
        assert (await stored.run(counts, 60)).value == 60


@pytest.mark.parametrize("sizes", [(), (1,), (400, 1, 1, 400), (1, 1, 1, 1, 1, 1), (3, 90, 3)])
def test_merged_chunks_have_the_rows_in_their_order(sizes: Sequence[int]) -> None:
    """And are large, but for a few at the end."""
    rows = iter(range(1_000))
    random = Random(1)  # no secret
    chunks = [
        pack_rows([Row(next(rows), 0.0, "x", random.randbytes(20).hex(), "") for _ in range(size)])[
            0
        ]
        for size in sizes
    ]
    made = merge_chunks(chunks, 200)
    assert [row.seq for row in unpack_rows(made)] == list(range(sum(sizes)))
    assert sum(len(one) < 150 for one in made) <= 3
