"""Checkpoint validity: what a checkpoint says is on disk before anything follows from it."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from handrail import Executor, StepFailed, Steps, step, workflow
from handrail.model import events as ev
from handrail.testing import ProcessGone, TextJournal
from handrail.testing.crash_trial import RunScenario
from tests.durability.support import RUN, backends


class PowerCut(TextJournal):
    """A journal whose unsynced end is lost when the power fails. Mutable."""

    def __init__(self, **ends: Any) -> None:
        super().__init__(**ends)
        self.on_disk = 0
        self.waiting = 0

    def append(self, event: ev.Event, /, *, sync: bool = False) -> Awaitable[None] | None:
        """Keep it; what is to be on disk is there once the awaitable is done."""
        super().append(event, sync=sync)
        return self._sync(len(self.records(RUN))) if sync else None

    async def _sync(self, count: int) -> None:
        self.waiting += 1
        await anyio.lowlevel.checkpoint()
        self.waiting -= 1
        self.on_disk = max(self.on_disk, count)

    def after_the_cut(self) -> TextJournal:
        """The store as it is found when the power is back."""
        other = self.reopened()
        del other._store.rows[RUN][self.on_disk :]
        if not self.on_disk:
            del other._store.rows[RUN]
        return other


@backends
@pytest.mark.parametrize("stop_at", range(3, 12))
def test_checkpoint_validity(stop_at: int, backend: str) -> None:
    """A checkpoint is on disk before anything follows it, and what is cut off after it is not
    missed: the run goes on from there to the same end.
    """
    did: list[str] = []
    synced: dict[str, int] = {}
    journal = PowerCut(stop_at=stop_at)

    async def act(name: str) -> str:
        assert journal.waiting == 0
        did.append(name)
        synced[name] = journal.on_disk
        return name

    @workflow
    def saves() -> Steps[list[str]]:
        given = []
        for name in ("a", "b", "save", "c", "d"):
            one = step(name).call(act, name)
            given.append((yield from one.checkpoint() if name == "save" else one))
        return given

    async def first() -> None:
        await Executor(journal=journal).options(run_id=RUN).run(saves)

    async def second(found: TextJournal) -> Any:
        return await RunScenario(saves, RUN).finish(Executor(journal=found), found)

    with pytest.raises(ProcessGone):
        anyio.run(first, backend=backend)
    assert synced.get("c", 7) == 7  # the start, and two records of each of three steps
    found = journal.after_the_cut()
    kept = [one.path for one in found.events(RUN) if isinstance(one, ev.StepCompleted)]
    assert kept == ([] if journal.on_disk == 0 else ["a", "b", "save"])
    del did[:]
    result = anyio.run(second, found, backend=backend)
    assert result.value == ["a", "b", "save", "c", "d"]
    assert did == [name for name in result.value if name not in kept]


@backends
@pytest.mark.parametrize("stop_at", range(1, 10))
def test_a_once_step_is_on_disk_before_it_begins(stop_at: int, backend: str) -> None:
    """Not even a power cut has it run twice."""
    did: list[str] = []
    journal = PowerCut(stop_at=stop_at)

    async def act(name: str) -> None:
        did.append(name)

    @workflow
    def buys() -> Steps[str]:
        yield from step("a").call(act, "a")
        try:
            yield from step("charge").call(act, "charge").once()
        except StepFailed as failed:
            return str(failed.result.error_type)
        yield from step("z").call(act, "z")
        return "bought"

    async def first() -> None:
        await Executor(journal=journal).options(run_id=RUN).run(buys)

    async def second(found: TextJournal) -> Any:
        return await RunScenario(buys, RUN).finish(Executor(journal=found), found)

    with contextlib.suppress(ProcessGone):
        anyio.run(first, backend=backend)
    result = anyio.run(second, journal.after_the_cut(), backend=backend)
    interrupted = "handrail.errors.StepWasInterrupted"
    assert result.value in {"bought", interrupted}
    assert did.count("charge") <= 1
    assert (result.value == "bought") <= (did.count("charge") == 1)
