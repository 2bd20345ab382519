"""What the tests of the engine share: small actions, a clock that jumps, and readings of events."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, ParamSpec

import anyio
import anyio.lowlevel

from handrail import (
    Executor,
    MemorySink,
    Step,
    StepFailed,
    Steps,
    Workflow,
    WorkflowResult,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.ports.journal import Journal

RUN = "r"
"""The id of a run that is driven more than once."""
STILL_S = 0.15
"""How long work in flight may be silent in real time before the clock takes it to be waiting."""


P = ParamSpec("P")


class Jumping:
    """A clock whose time passes at once, when nothing happens that it would have to wait for."""

    def __init__(self, start: float = 1_000_000.0) -> None:
        self.time = start

    def now(self) -> float:
        """Unix seconds, made up."""
        return self.time

    async def wait(self, event: Any, until: float | None, *, busy: int) -> None:
        """Wait for the event; where only time could bring the next one, jump there."""
        if event.is_set():
            return
        if until is None:
            await event.wait()
            return
        if busy:
            with anyio.move_on_after(STILL_S):
                await event.wait()
                return
        else:
            await anyio.lowlevel.checkpoint()
        if not event.is_set():
            self.time = max(self.time, until)

    async def sleep(self, seconds: float) -> None:
        """Pass that much time."""
        await anyio.lowlevel.checkpoint()
        self.time += seconds


class Boom(RuntimeError):
    """What the tests' failing actions raise."""


def boom(text: str = "no") -> Any:
    """Fail."""
    raise Boom(text)


async def aboom(text: str = "no") -> Any:
    """Fail, after a turn of the loop."""
    await anyio.lowlevel.checkpoint()
    raise Boom(text)


async def give(value: Any = None) -> Any:
    """Give the value back, after a turn of the loop."""
    await anyio.lowlevel.checkpoint()
    return value


def same(value: Any = None) -> Any:
    """Give the value back."""
    return value


async def forever() -> None:
    """Wait until cancelled."""
    await anyio.sleep_forever()


def just(*steps: Step[Any]) -> Workflow[[], Any]:
    """A workflow of just these steps, one after the other; its value is the last one's output."""

    @workflow
    def flow() -> Steps[Any]:
        output = None
        for one in steps:
            output = yield from one
        return output

    return flow


def caught(made: Step[Any], tell: Callable[[StepFailed], Any]) -> Workflow[[], Any]:
    """A workflow that handles the failure of this step, and gives what is told of it."""

    @workflow
    def flow() -> Steps[Any]:
        try:
            yield from made
        except StepFailed as failed:
            return tell(failed)
        return "it did not fail"

    return flow


def bound(body: Callable[P, Steps[Any]]) -> Callable[P, Workflow[[], Any]]:
    """A maker of workflows that do what this body does; what it is given is no input of a run."""

    def made(*args: P.args, **kwargs: P.kwargs) -> Workflow[[], Any]:
        @workflow
        def flow() -> Steps[Any]:
            return (yield from body(*args, **kwargs))

        return flow

    return made


def done(log: list[str], name: str, path: str = "") -> Step[Any]:
    """A step that notes what it does, and its rollback that it is undone."""
    made = step(path or name).call(log.append, name)
    return made.with_rollback(lambda _: log.append(f"undo {name}"))


def undone(journal: Journal) -> list[str]:
    """The paths of the rollbacks that have ended, in order."""
    return [one.path for one in journal.events(RUN) if isinstance(one, ev.RollbackCompleted)]


class Flaky:
    """An action that fails its first ``failures`` times, then gives ``value``."""

    def __init__(self, failures: int, value: Any = "ok", error: type[Exception] = Boom) -> None:
        self.failures = failures
        self.value = value
        self.error = error
        self.calls = 0

    async def __call__(self) -> Any:
        """One try."""
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error(f"try {self.calls}")
        return self.value


@contextlib.asynccontextmanager
async def cancelled_when(ready: Callable[[], bool]) -> AsyncIterator[anyio.CancelScope]:
    """What stands inside is cancelled from outside as soon as this is true."""

    async def look() -> None:
        while not ready():  # noqa: ASYNC110  # what it looks for tells nobody
            await anyio.sleep(0.001)
        scope.cancel()

    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            group.start_soon(look)
            yield scope
        group.cancel_scope.cancel()


def paths(result: WorkflowResult[Any]) -> list[str]:
    """The paths of the finished steps, in the order of the result."""
    return [one.path for one in result.step_results]


def statuses(result: WorkflowResult[Any]) -> dict[str, str]:
    """How each finished step ended, by path."""
    return {one.path: one.status for one in result.step_results}


def paths_begun(sink: MemorySink) -> list[str]:
    """The paths of the steps that began, in order."""
    return [event.path for event in sink.events if isinstance(event, ev.StepStarted)]


def names(sink: MemorySink) -> list[str]:
    """The kinds of the events of a sink, in order."""
    return [type(event).__name__ for event in sink.events]


async def run_seen(
    workflow: Any, *args: Any, **options: Any
) -> tuple[WorkflowResult[Any], MemorySink]:
    """Run a workflow, which must not hang, with a memory sink; the result and the sink."""
    sink = MemorySink()
    with anyio.fail_after(60):
        result = await Executor(sinks=[sink], **options).run(workflow, *args)
    check_drive(sink)
    return result, sink


def check_drive(sink: MemorySink) -> None:
    """Assert what holds for every drive: numbers without a hole, one start and one end a path."""
    journaled = [event for event in sink.events if isinstance(event, ev.Event)]
    numbers = [event.seq for event in journaled]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert isinstance(journaled[-1], (ev.WorkflowCompleted, ev.RunSuspended))
    assert sum(isinstance(e, (ev.WorkflowCompleted, ev.RunSuspended)) for e in journaled) == 1
    started = [event.path for event in journaled if isinstance(event, ev.StepStarted)]
    ended = [event.path for event in journaled if isinstance(event, ev.StepCompleted)]
    assert len(started) == len(set(started))
    assert len(ended) == len(set(ended))
    assert set(ended) <= set(started)
    if isinstance(journaled[-1], ev.WorkflowCompleted):
        assert set(ended) == set(started)
