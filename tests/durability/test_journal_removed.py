"""An agent or a person removes the journal of a run that goes on: the run ends and says why."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail import Executor, JournalFailed, SqliteJournal, Steps, step, workflow
from handrail.engine import message_watch
from handrail.journals.sqlite.watch import LOOK_S
from handrail.model import events as ev
from handrail.ports.journal import Letter

pytestmark = pytest.mark.extra("trio")
path = Path()
did: list[str] = []


def remove() -> None:
    """What `git clean -fdx` does to a folder that is not tracked."""
    did.append("remove")
    shutil.rmtree(path.parent)


def put_another_there() -> None:
    """A copy that somebody put back, say."""
    did.append("remove")
    other = path.with_name("other.db")
    shutil.copy(path, other)
    other.replace(path)


async def work() -> None:
    """Take as long as the shortest step of an agent."""
    did.append("work")
    await anyio.sleep(2 * LOOK_S)


@workflow
def tidies(how: str) -> Steps[str]:
    """Work, lose the journal, and work on."""
    yield from step("before").call(work)
    yield from step("tidy").call(remove if how == "removed" else put_another_there)
    yield from step("after").call(work)
    yield from step("after that").call(work)
    return "done"


@workflow
def tidies_at_the_end(how: str) -> Steps[str]:
    """Lose the journal in the last step."""
    yield from step("tidy").call(remove if how == "removed" else put_another_there)
    return "done"


@pytest.fixture(autouse=True)
def _anew(tmp_path: Path) -> None:
    global path  # noqa: PLW0603  # what the actions are to harm
    path = tmp_path / ".handrail" / "runs.db"
    did.clear()


@pytest.mark.parametrize("how", ["removed", "replaced by another"])
async def test_a_run_without_a_journal_ends_and_says_so(how: str) -> None:
    """The drive fails by the next write, names the file, and performs no more steps."""
    executor = Executor(journal=SqliteJournal(path))
    with pytest.raises(JournalFailed, match=f"the file was {how}") as caught:
        await executor.run(tidies, how)
    assert str(path) in str(caught.value)
    assert "start the run again" in str(caught.value)
    assert did.count("work") <= 2


@pytest.mark.parametrize("how", ["removed", "replaced by another"])
async def test_a_drive_whose_record_is_gone_does_not_succeed(how: str) -> None:
    """Neither caller nor sinks are told of an end that is not on record."""
    ends: list[Any] = []

    class Heard:
        def emit(self, event: Any) -> None:
            """Note how the run ended."""
            if type(event).__name__ == "WorkflowCompleted":
                ends.append(event)

    executor = Executor(journal=SqliteJournal(path), sinks=[Heard()])
    with pytest.raises(JournalFailed, match=f"the file was {how}"):
        await executor.run(tidies_at_the_end, how)
    assert ends == []


async def test_the_next_run_of_the_same_executor_has_a_journal() -> None:
    """The file is made anew for it, so that one loss is no reason to begin a new process."""
    executor = Executor(journal=SqliteJournal(path))
    with pytest.raises(JournalFailed):
        await executor.run(tidies_at_the_end, "removed")

    @workflow
    def quiet() -> Steps[str]:
        yield from step("work").call(work)
        return "done"

    result = await executor.run(quiet)
    assert result.final_output == "done"
    assert [info.status for info in SqliteJournal(path).runs()] == ["succeeded"]


@workflow
def tidies_and_works_for_days(how: str) -> Steps[str]:
    """Lose the journal, and then have a step that takes very long."""
    yield from step("tidy").call(remove if how == "removed" else put_another_there)
    yield from step("long").call(anyio.sleep, 100_000)
    return "done"


@pytest.mark.parametrize("how", ["removed", "replaced by another"])
async def test_a_long_step_is_not_done_in_vain(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The drive does not wait for its end to find that it cannot be recorded."""
    monkeypatch.setattr(message_watch, "UNREADABLE", 3)
    executor = Executor(journal=SqliteJournal(path))
    with anyio.move_on_after(20) as scope:
        with pytest.raises(JournalFailed, match=f"the file was {how}"):
            await executor.run(tidies_and_works_for_days, how)
    assert not scope.cancel_called


async def test_a_journal_that_could_not_be_read_for_a_moment_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run that was cancelled from outside after that hears of it."""
    journal = SqliteJournal(path)
    letters, failures = journal.letters, [JournalFailed(str(path), "reading", "it is busy")] * 3

    def at_times(run_id: str, after: int, /) -> Any:
        if failures:
            raise failures.pop()
        return letters(run_id, after)

    monkeypatch.setattr(journal, "letters", at_times)

    @workflow
    def flow() -> Steps[None]:
        yield from step("long").call(anyio.sleep, 100_000)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:

            async def cancel() -> None:
                await anyio.sleep(0.6)
                event = ev.stamp(ev.CancelRequested("enough"), "r", 0, 0.0)
                SqliteJournal(path).post(Letter(event))

            group.start_soon(cancel)
            result = await Executor(journal=journal).options(run_id="r").run(flow)
    assert (result.status, failures) == ("cancelled", [])
