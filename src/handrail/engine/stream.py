"""The handle by which a caller follows and steers a run while it is driven."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar

import anyio
import anyio.abc
import anyio.lowlevel

from handrail.core.steering import check_path, guidance_event
from handrail.core.work_edits import edit_of
from handrail.engine.driver import Driver
from handrail.errors import TooEarly, WrongUse
from handrail.model.events import Event, Progress, RunSteered, WorkEdited
from handrail.model.outcome import INTERRUPTIONS, interruption
from handrail.model.results import WorkflowResult
from handrail.model.work import Task

R_co = TypeVar("R_co", covariant=True)

NO_RESULT = "has no result yet: iterate over it to its end first"


def not_entered(run_id: str) -> WrongUse:
    """The mistake of iterating over a run that nobody drives yet."""
    return WrongUse(
        f"run {run_id} has not begun: write `async with executor.stream(...) as run:`, and iterate "
        f"over run in that block"
    )


class EventQueue:
    """A sink that queues events for the task that iterates over the run. Mutable."""

    def __init__(self) -> None:
        self.events: deque[Event | Progress] = deque()
        self.wake = anyio.Event()
        self.closed = False

    def emit(self, event: Event | Progress, /) -> None:
        """Keep the event."""
        self.events.append(event)
        self.wake.set()

    def close(self) -> None:
        """Mark the end: no more events will come."""
        self.closed = True
        self.wake.set()


class Run(Generic[R_co]):
    """One run, streamed: ``async with executor.stream(ship, "task") as run``.

    Iterate over it for events and progress, as they come. ``result`` is set once the iteration has
    ended, or the block was left. Leaving the block early cancels the run and waits for its end. A
    cancellation of the task in the block, as by Ctrl-C or a server that shuts down, does not cancel
    the run: it interrupts the drive, and with a durable journal the run can be resumed.

    A message (``answer``, ``signal``, ``pause`` and the like) is in the journal when its method
    returns. If another process has the journal locked, the method waits for that, and the event
    loop with it: the executor's method of the same name waits beside the loop.
    """

    def __init__(
        self, run_id: str, drive: Callable[[Run[Any]], Awaitable[WorkflowResult[Any]]]
    ) -> None:
        self.run_id = run_id
        self.queue = EventQueue()
        self.mark = run_id
        """The mark by which the run's processes are found."""
        self.driver: Driver | None = None
        self._drive = drive
        self._result: WorkflowResult[R_co] | None = None
        self._error: BaseException | None = None
        self._group: anyio.abc.TaskGroup | None = None
        self._awaited = False
        """A task waits for the next event."""
        self._stopped = False
        """Its drive was cancelled with the task that began it."""
        self._cancel_reason: str | None = None
        self._interrupt_reason: str | None = None

    @property
    def result(self) -> WorkflowResult[R_co]:
        """How the run ended.

        Raises:
            TooEarly: it has not ended yet.
        """
        if self._result is None:
            raise TooEarly(self.run_id, NO_RESULT)
        return self._result

    def cancel(self, reason: str = "cancelled by its caller") -> None:
        """Ask for the run to be cancelled: running steps are stopped, the workflow unwinds, and
        rollbacks run. Returns at once; the events show the progress.
        """
        self._cancel_reason = reason
        if self.driver is not None:
            self.driver.cancel(reason)

    def interrupt(self, reason: str = "interrupted") -> None:
        """Ask for the drive to end because the process is to end: with a durable journal the run
        is suspended and can be resumed, without one it is cancelled. Returns at once.
        """
        self._interrupt_reason = reason
        if self.driver is not None:
            self.driver.interrupt(reason)

    def pause(self, *, by: str | None = None) -> None:
        """Let no more steps begin until ``unpause``; see ``Executor.pause``."""
        self._steer(RunSteered("pause", by=by))

    def unpause(self, *, by: str | None = None) -> None:
        """End the pause; see ``Executor.unpause``."""
        self._steer(RunSteered("unpause", by=by))

    def stop(self, *, by: str | None = None) -> None:
        """End the drive; a resume continues the run. See ``Executor.stop``."""
        self._steer(RunSteered("stop", by=by))

    def complete(self, path: str, output: Any, *, by: str | None = None) -> None:
        """End a step with this output; see ``Executor.complete``."""
        self._steer(RunSteered("complete", check_path(path), output, by))

    def skip(self, path: str, *, by: str | None = None) -> None:
        """End a step as its ``.default()`` or ``.skip_on_error()`` says; see ``Executor.skip``."""
        self._steer(RunSteered("skip", check_path(path), None, by))

    def retry(self, path: str, *, by: str | None = None) -> None:
        """Stop a step's attempt and begin it again; see ``Executor.retry``."""
        self._steer(RunSteered("retry", check_path(path), None, by))

    def guide(self, text: str, *, path: str | None = None, by: str | None = None) -> None:
        """Send a text to the agents at work, or those at ``path``; see ``Executor.guide``."""
        self._steer(guidance_event(self.run_id, text, path, by))

    def edit_work(
        self,
        path: str | None = None,
        *,
        add: Sequence[Task] = (),
        drop: Sequence[str] = (),
        priority: Mapping[str, float] | None = None,
        by: str | None = None,
    ) -> None:
        """Change the queue of a ``work`` step; see ``Executor.edit_work``."""
        self._steer(edit_of(path, add, drop, priority, by))

    def _steer(self, event: RunSteered | WorkEdited) -> None:
        self._begun().steer(event)

    def _begun(self) -> Driver:
        """The driver of this run.

        Raises:
            TooEarly: it has none yet.
        """
        if self.driver is None:
            raise TooEarly(self.run_id, "has not begun yet: steer it once its first event has come")
        return self.driver

    def signal(self, name: str, payload: Any = None) -> None:
        """Deliver a signal to a ``wait_for``.

        Raises:
            InvalidSignal: an open ``wait_for`` would fail with this payload. TooEarly: the run has
                not begun.
        """
        self._begun().signal(name, payload)

    def answer(self, gate: str, answer: Any, *, by: str | None = None) -> Any:
        """Answer an open gate, named by its path; the answer as converted.

        Raises:
            GateClosed, GateNotFound, InvalidAnswer: see those. TooEarly: the run has not begun.
        """
        return self._begun().answer(gate, answer, by)

    def attach(self, driver: Driver) -> None:
        """Take the driver of this run; the executor calls this."""
        self.driver = driver
        self.mark = driver.mark
        if self._cancel_reason is not None:
            driver.cancel(self._cancel_reason)
        if self._interrupt_reason is not None:
            driver.interrupt(self._interrupt_reason)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event | Progress:
        queue = self.queue
        if self._group is None:
            raise not_entered(self.run_id)
        while not queue.events:
            if queue.closed:
                if self._error is not None:
                    raise self._error
                if self._stopped:  # the cancellation of the drive is meant for this task, too
                    await anyio.lowlevel.checkpoint()
                raise StopAsyncIteration
            if self._awaited:
                raise WrongUse(
                    f"two tasks iterate over run {self.run_id}, and each would get a part of its "
                    f"events: iterate in one task, and pass on what others need"
                )
            queue.wake, self._awaited = anyio.Event(), True
            try:
                await queue.wake.wait()
            finally:
                self._awaited = False
        return queue.events.popleft()

    async def __aenter__(self) -> Self:
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        self._group.start_soon(self._work)
        return self

    async def _work(self) -> None:
        try:
            self._result = await self._drive(self)
        except anyio.get_cancelled_exc_class():
            self._stopped = True
            self._result = None if self.driver is None else self.driver.conductor.result
            raise
        except BaseException as error:  # noqa: BLE001  # raised where the caller iterates
            self._error = error
        finally:
            self.queue.close()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        assert self._group is not None
        if not self.queue.closed:
            stopped = (*INTERRUPTIONS, anyio.get_cancelled_exc_class())
            if isinstance(error, stopped):
                self.interrupt(interruption(error))
            else:
                self.cancel("its stream was left")
        with anyio.CancelScope(shield=True):
            while not self.queue.closed:
                self.queue.wake = anyio.Event()
                await self.queue.wake.wait()
        await self._group.__aexit__(None, None, None)
        if self._error is not None and error is None:
            raise self._error
