"""A loop that yields very many steps is warned of, although no limit is set."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from handrail import Executor, Limits, SqliteJournal, Steps, step, workflow
from handrail.core.bodies import MANY_VISITS


@workflow
def loops(visits: int) -> Steps[None]:
    """One line, after another one, and beside one that is yielded now and then."""
    yield from step("first").call(int).inline()
    for n in range(visits):
        yield from step(f"round-{n}").call(int).inline()
        if n % 3 == 0:
            yield from step(f"third-{n}").call(int).inline()


@workflow
def by_a_helper(visits: int) -> Steps[None]:
    """The loop is in a helper."""

    def helper() -> Iterator[Any]:
        for n in range(visits):
            yield from step(f"round-{n}").call(int).inline()

    yield from helper()


@workflow
def inside(visits: int) -> Steps[None]:
    """The loop is in a child, and in a member."""
    yield from step("child").run_workflow(loops, visits)


@pytest.mark.parametrize("stored", ["memory", "SQLite"])
@pytest.mark.parametrize("flow", [loops, by_a_helper, inside])
async def test_the_thousandth_visit_of_a_line_is_warned_of(
    flow: Any, stored: str, tmp_path: Path
) -> None:
    """Once, with the line and the limit to set; one visit less is not, nor with a limit."""
    journal = SqliteJournal(tmp_path / "runs.db") if stored == "SQLite" else None
    async with Executor(journal=journal) as executor:
        with pytest.warns(
            UserWarning, match=r"test_many_visits.py:\d+: 1,000 steps .*max_visits"
        ) as seen:
            assert (await executor.run(flow, MANY_VISITS + 300)).success
        assert len(seen) == 1
        with warnings.catch_warnings(record=True) as others:
            warnings.simplefilter("always")
            assert (await executor.run(flow, MANY_VISITS - 1)).success
            bounded = Executor(limits=Limits(max_visits=5000))
            assert (await bounded.run(flow, MANY_VISITS + 1)).success
        assert others == []


async def test_a_warning_made_an_error_ends_no_run() -> None:
    """Filters of tests and of `python -W error` do that."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (await Executor().run(loops, MANY_VISITS)).success


async def test_members_are_no_visits() -> None:
    """A group of many is no loop."""

    @workflow
    def flow() -> Steps[Any]:
        yield from step("g").for_each(range(1200), lambda _: step("m").call(int).inline())

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert (await Executor().run(flow)).success
    assert seen == []
