"""Messages from other processes, looked for once for all live runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail import Executor, SqliteJournal, Steps, step, workflow
from handrail.ports.journal import Letter
from handrail.testing import TextJournal


@workflow
def waits() -> Steps[Any]:
    """Wait for a number."""
    return (yield from step("told").wait_for("number", int))


async def begin(executor: Executor, *run_ids: str) -> None:
    """Begin runs that wait."""
    for run_id in run_ids:
        await executor.start(waits, run_id=run_id)
    await anyio.sleep(0.5)


async def test_runs_that_wait_do_not_read_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One question a look, whatever their number, until another process writes; then the one that
    is meant reads its message.
    """
    journal, asked = SqliteJournal(tmp_path / "runs.db"), Counter[str]()
    letters, version = journal.letters, journal.version

    def counted(run_id: str, after: int, /) -> Sequence[Letter]:
        asked[run_id] += 1
        return letters(run_id, after)

    def counted_version() -> object:
        asked["version"] += 1
        return version()

    monkeypatch.setattr(journal, "letters", counted)
    monkeypatch.setattr(journal, "version", counted_version)
    other = Executor(journal=SqliteJournal(tmp_path / "runs.db"))
    async with Executor(journal=journal, linger_s=100) as executor:
        await begin(executor, *(f"r{number}" for number in range(20)))
        asked.clear()
        await anyio.sleep(0.5)
        assert set(asked) == {"version"}
        assert asked["version"] <= 6
        asked.clear()
        await other.signal("r7", "number", 7)
        with anyio.fail_after(5):
            assert (await executor.result("r7")).value == 7
        del asked["version"]
        assert set(asked) == {"r7"}


@pytest.mark.parametrize("on_disk", [True, False])
async def test_each_run_is_told_also_when_another_one_has_ended(
    tmp_path: Path, *, on_disk: bool
) -> None:
    """The run whose task looked for all may end at any time; the next one goes on."""
    mine: Any
    theirs: Any
    if on_disk:
        mine, theirs = (SqliteJournal(tmp_path / "runs.db") for _ in range(2))
    else:  # which cannot say whether it was written
        mine = TextJournal()
        theirs = mine.reopened()
    other = Executor(journal=theirs)
    async with Executor(journal=mine, linger_s=100) as executor:
        await begin(executor, "a", "b", "c")
        for number, run_id in enumerate(("a", "b", "c")):
            await other.signal(run_id, "number", number)
            with anyio.fail_after(5):
                assert (await executor.result(run_id)).value == number
        await begin(executor, "d")
        await other.signal("d", "number", 4)
        with anyio.fail_after(5):
            assert (await executor.result("d")).value == 4


async def test_who_follows_runs_reads_none_until_the_journal_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them looks for all; when it leaves, another one does. Those read whose run was."""
    journal, asked = SqliteJournal(tmp_path / "runs.db"), Counter[str]()
    events_after = journal.events_after

    def counted(run_id: str, after: int, /, **kwargs: Any) -> Any:
        asked[run_id] += 1
        return events_after(run_id, after, **kwargs)

    monkeypatch.setattr(journal, "events_after", counted)
    values: dict[str, Any] = {}
    async with (
        Executor(journal=journal, linger_s=100) as executor,
        anyio.create_task_group() as all_,
    ):
        await begin(executor, *(f"r{number}" for number in range(20)))

        async def follow(run_id: str) -> None:
            values[run_id] = (await executor.result(run_id)).value

        for number in range(20):
            all_.start_soon(follow, f"r{number}")
        await anyio.sleep(0.5)
        asked.clear()
        await anyio.sleep(0.5)
        assert not asked
        await executor.signal("r7", "number", 7)
        await anyio.sleep(0.5)
        assert set(asked) == {"r7"}
        for number in set(range(20)) - {7}:
            await executor.signal(f"r{number}", "number", number)
    assert values == {f"r{number}": number for number in range(20)}
