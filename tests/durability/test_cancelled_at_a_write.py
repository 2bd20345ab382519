"""A task that is cancelled while it drives a run: at each wait for the disk, or in a rehearsal."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from handrail import Executor, StepResult, Steps, WorkflowContext, step, workflow
from handrail.core import command_loop
from handrail.journals.memory import MemoryJournal
from handrail.model import events as ev
from handrail.testing import ProcessGone, TextJournal
from handrail.testing.text_journal import GroupingTextJournal
from tests.durability.support import RUN, Lives, Story, essence, hold
from tests.engine.support import same

BACKENDS = pytest.mark.parametrize(
    "backend", ["asyncio", pytest.param("trio", marks=pytest.mark.extra("trio"))]
)


class Written:
    """What to await for a write; the task is cancelled at one of them."""

    def __init__(self, disk: SlowDisk) -> None:
        self._disk = disk

    def __await__(self) -> Generator[Any, Any, None]:
        """Take one turn of the event loop."""
        self._disk.waits += 1
        if self._disk.waits == self._disk.cancel_at:
            self._disk.cancel()
        yield from anyio.lowlevel.checkpoint().__await__()


class SlowDisk(TextJournal):
    """Has whoever writes wait for the disk; steps without effects may run ahead of it."""

    waits = 0
    cancel_at = 0
    cancel: Callable[[], None]

    def append(self, event: ev.Event, /, *, sync: bool | None = False) -> Any:
        """Keep the event; it is on disk once the awaitable is done."""
        super().append(event)
        return None if sync is None or isinstance(event, ev.StepStarted) else Written(self)

    def sync_later(self) -> Written:
        """Have it all on disk."""
        return Written(self)


class GroupingSlowDisk(SlowDisk, GroupingTextJournal):
    """Stores several events in one write, too."""

    def append_all(self, events: Sequence[ev.Event], /, *, sync: bool = False) -> Any:
        """Keep events; they are on disk once the awaitable is done."""
        super().append_all(events, sync=sync)
        return Written(self)


class Cancelled(Lives):
    """Lives that can end by a cancellation of their task."""

    async def _live(self) -> Any:
        with anyio.CancelScope() as scope:
            if isinstance(self.journal, SlowDisk):
                self.journal.cancel = scope.cancel
            return await super()._live()


@workflow
def flow() -> Steps[list[Any]]:
    """Steps that run ahead, groups of them, an effect, a question and a signal."""
    found: list[Any] = [(yield from step("a").call(same, "a").inline())]
    found.append((yield from step("b").call(same, "b").inline()))
    members = [step(f"m{number}").call(same, number) for number in range(3)]
    found.append((yield from step("group").parallel(*members)))
    found.append((yield from step("q").ask("?")))
    found.append((yield from step("go").wait_for("go")))
    found.append((yield from step("last").call(same, "z").inline()))
    return found


def cancelled_at(backend: str, kind: type[SlowDisk], number: int) -> tuple[Story, bool]:
    """The story of a run each of whose first lives is cancelled at the wait of this number, and if
    there was one.
    """
    lives = Cancelled(flow, backend, journal=kind(), few=0)
    was_cancelled = False
    for _ in range(3):
        if lives.found and lives.at_its_end():
            break
        kind.cancel_at = number
        result = lives.live()
        kind.cancel_at = 0
        was_cancelled |= result is None
        history = lives.journal.reopened().events(RUN)
        if result is None:
            assert isinstance(history[-1], (ev.RunSuspended, ev.WorkflowCompleted))
    return lives.through(), was_cancelled


@BACKENDS
@pytest.mark.parametrize("ahead_s", [command_loop.AHEAD_S, 0.0])
@pytest.mark.parametrize("kind", [SlowDisk, GroupingSlowDisk])
def test_a_run_that_is_cancelled_at_any_write_goes_on_from_there(
    backend: str, kind: type[SlowDisk], ahead_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record is whole, says that it was suspended unless it had ended, and a resume ends as
    without the cancellation; also where what it is ahead of the disk is overdue by then.
    """
    monkeypatch.setattr(command_loop, "AHEAD_S", ahead_s)
    whole = Lives(flow, backend, few=0).through()
    number, was_cancelled = 1, True
    while was_cancelled:
        story, was_cancelled = cancelled_at(backend, kind, number)
        hold(story)
        assert essence(story.result) == essence(whole.result)
        number += 1
    assert number > 12


class Handler:
    """A fallback of three steps, by an ``on_error`` that may think for ever."""

    thinks = False

    async def __call__(self, context: WorkflowContext, failed: StepResult[Any]) -> Any:
        """Return the fallback."""
        if self.thinks:
            await anyio.sleep_forever()
        return step("plan").run_workflow(plan)


@workflow
def plan() -> Steps[Any]:
    """Two steps below a fallback."""
    yield from step("a").call(same, 1)
    return (yield from step("b").call(same, 2))


def fails() -> None:
    """Fail."""
    raise ValueError


@BACKENDS
@pytest.mark.parametrize("durable", [True, False])
def test_a_resume_that_is_cancelled_while_it_asks_ends(backend: str, *, durable: bool) -> None:
    """The handler that it asked leads back into the record; the next resume asks again."""
    handler: Any = Handler()

    @workflow
    def asks() -> Steps[Any]:
        return (yield from step("x").call(fails).on_error(handler))

    journal = TextJournal(stop_at=7)  # a has ended
    with pytest.raises(ProcessGone):
        Executor(journal=journal).options(run_id=RUN).run_sync(asks)
    history = journal.reopened().events(RUN)
    again: Any = journal.reopened()
    if not durable:
        again = MemoryJournal()
        for event in history:
            again.append(event)

    async def resumed() -> None:
        with anyio.fail_after(20), anyio.move_on_after(0.01):
            await Executor(journal=again).resume(RUN, asks)

    handler.thinks = True
    anyio.run(resumed, backend=backend)
    assert isinstance(again.events(RUN)[-1], ev.RunSuspended)
    handler.thinks = False
    assert Executor(journal=again).resume_sync(RUN, asks).success
