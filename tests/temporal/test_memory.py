"""A run that a worker has put out of its memory goes on as if it had not."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Generator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from handrail import Executor
from handrail.temporal import TemporalExecutor, TemporalWorker
from handrail.temporal.cluster import PATIENCE_S
from handrail.temporal.pinned_generators import PinnedGenerators, closing_runs_code
from handrail.testing.conformance import CASES, Case
from handrail.testing.conformance import FLOWS as CONFORMANCE
from handrail.testing.contracts.host import compared
from tests.temporal.flows import FLOWS, closed, tidies_up

pytestmark = pytest.mark.temporal


@pytest.fixture(scope="module")
async def forgetful(client: Client) -> AsyncIterator[TemporalWorker]:
    """A worker that keeps no run in memory: it makes each again from its history, at each task."""
    known = [*FLOWS, *CONFORMANCE]
    async with TemporalWorker(client, known, task_queue="forgetful", max_cached_runs=0) as running:
        yield running


NAMES = ("order", "groups", "sub-workflows", "validation", "rollbacks", "questions and signals")


@pytest.mark.parametrize("case", [one for one in CASES if one.name in NAMES], ids=lambda o: o.name)
async def test_without_a_cache_runs_come_to_the_same_end(
    case: Case, client: Client, forgetful: TemporalWorker, tmp_path: Path
) -> None:
    """Result, events by path, and what was done outside."""
    del forgetful
    here = Executor(workflows=CONFORMANCE, portable=True)
    there = TemporalExecutor(client, task_queue="forgetful", workflows=CONFORMANCE)
    await compared(case, here, there, tmp_path)


async def test_a_question_that_a_worker_lost_is_asked_again(
    client: Client, forgetful: TemporalWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one may that puts the run out of its memory: no error reaches who asked."""
    del forgetful
    query = WorkflowHandle.query

    async def lost(*_: Any, **options: Any) -> NoReturn:
        monkeypatch.setattr(WorkflowHandle, "query", query)
        assert options["rpc_timeout"].total_seconds() == PATIENCE_S / 2
        raise RPCError("Timeout expired", RPCStatusCode.CANCELLED, b"")

    there = TemporalExecutor(client, task_queue="forgetful", workflows=FLOWS)
    await there.options(run_id="asked-again").run(tidies_up, "asked-again")
    monkeypatch.setattr(WorkflowHandle, "query", lost)
    assert [one.path for one in (await there.get("asked-again")).waits_for] == ["go?"]
    assert WorkflowHandle.query is query
    await there.answer("asked-again", "go?", "yes")


async def test_no_finally_runs_because_a_worker_needed_room(client: Client) -> None:
    """A body that waits is put out of memory by another; its ``finally`` runs at its end, once."""
    there = TemporalExecutor(client, task_queue="room for one", workflows=FLOWS)
    closed.clear()
    async with TemporalWorker(client, FLOWS, task_queue="room for one", max_cached_runs=1):
        for name in ("first", "second", "third"):
            await there.options(run_id=f"tidy-{name}").run(tidies_up, name)
        gc.collect()
        assert closed == []
        await there.answer("tidy-first", "go?", "yes")
        assert (await there.result("tidy-first")).value == "yes"
        gc.collect()
        assert closed == ["first"]


def guarded() -> Generator[int]:
    """It waits in a ``try``."""
    try:
        yield 1
    finally:
        closed.append("guarded")


def within() -> Generator[int]:
    """What it delegates to waits in one."""
    yield from guarded()


def managed() -> Generator[int]:
    """It waits in a ``with``."""
    with open(__file__, encoding="utf-8"):  # noqa: PTH123  # any will do
        yield 1


def passed_by() -> Generator[int]:
    """Its ``try`` is over when it waits."""
    try:
        pass
    finally:
        closed.append("passed by")
    yield 1


def plain() -> Generator[int]:
    """It waits in nothing."""
    yield from iter([1, 2])


@pytest.mark.parametrize(
    ("make", "does"),
    [(guarded, True), (within, True), (managed, True), (passed_by, False), (plain, False)],
)
def test_it_is_seen_whether_closing_a_generator_runs_code(make: Any, *, does: bool) -> None:
    """Only one that stands in a ``try`` or a ``with`` is kept; all others may be collected."""
    body = make()
    next(body)
    assert closing_runs_code(body) is does
    body.close()


def test_a_body_is_kept_for_as_long_as_the_process_lives() -> None:
    """Nobody refers to it, and it is not closed."""
    closed.clear()
    bodies = PinnedGenerators()
    body = within()
    next(body)
    bodies.keep("a run", iter([body]))
    del body
    gc.collect()
    assert closed == []
    assert bodies.count == 1
