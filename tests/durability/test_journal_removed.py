"""An agent or a person removes the journal of a run that goes on: the run ends and says why."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail import Executor, JournalFailed, SqliteJournal, Steps, step, workflow
from handrail.journals.sqlite_watch import LOOK_S

pytestmark = [pytest.mark.anyio, pytest.mark.extra("trio")]
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
