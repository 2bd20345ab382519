"""A run that one thread drives is reached from another, by any executor on its journal."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import anyio
import pytest

from handrail import CallbackSink, Executor, MemoryJournal, SqliteJournal, Steps, step, workflow
from handrail.model import events as ev
from tests.leftovers import journal_threads


@workflow
def waits() -> Steps[Any]:
    """A question, a signal, and something that has no end."""
    answer = yield from step("ask").ask("Go?", choices=["yes", "no"])
    count = yield from step("signal").wait_for("count", int)
    yield from step("told").call(print, answer, count)
    yield from step("endless").call(anyio.sleep, 3_600)


def in_memory(_: Path) -> Any:
    """A journal that no other process can write a letter to."""
    return MemoryJournal()


def on_disk(folder: Path) -> Any:
    """A journal that the driver looks at now and then."""
    return SqliteJournal(folder / "runs.db")


@pytest.mark.parametrize("journal_in", [in_memory, on_disk])
def test_a_request_of_another_thread_reaches_the_drive(
    tmp_path: Path, journal_in: Callable[[Path], Any]
) -> None:
    """Answers, signals and cancellations of a web server's threads are heard at once."""
    before = journal_threads()
    seen = SimpleQueue[Any]()
    journal = journal_in(tmp_path)
    driving = Executor(journal=journal, sinks=[CallbackSink(seen.put)], linger_s=60)
    asking = Executor(journal=journal, workflows=[waits])

    def until(kind: type[Any], path: str) -> None:
        while not (isinstance(event := seen.get(timeout=30), kind) and event.path == path):
            pass

    with ThreadPoolExecutor() as threads:
        driven = threads.submit(driving.options(run_id="r").run_sync, waits)
        until(ev.GateOpened, "ask")
        assert asking.answer_sync("r", "ask", "yes") == "yes"
        until(ev.StepStarted, "signal")
        asking.signal_sync("r", "count", 3)
        until(ev.StepStarted, "endless")
        assert asking.cancel_sync("r", "enough") is None
        result = driven.result(timeout=30)
    assert result.status == "cancelled"
    assert [one.status for one in result.step_results] == 3 * ["succeeded"] + ["cancelled"]
    assert journal_threads() <= before
