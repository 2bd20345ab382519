"""A run on a cluster as this process shows it: begun or resumed there, and watched to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TextIO, cast

from rich.console import Console

from handrail.cli.bounds import limits_of
from handrail.cli.channels import tell
from handrail.cli.driving import REASONS, Begin, Options, conclude, gates_of, with_default_budget
from handrail.cli.exits import Exit
from handrail.cli.journal import OpenedPlace
from handrail.cli.report import tell_mismatch
from handrail.cli.screen import Screen
from handrail.cli.settings import project_executor
from handrail.errors import ReplayMismatch
from handrail.model.definition import WorkflowDefinition
from handrail.model.results import WorkflowResult
from handrail.ports.sink import Sink
from handrail.temporal import TemporalExecutor
from handrail.temporal.run import ClusterRun


class DrivingTemporalExecutor(TemporalExecutor):
    """A cluster's executor that gives resumes and cancellations as a ``ClusterRun``, too.

    ``detached``: it waits for no run that the cluster has.
    """

    detached = False

    async def _wait_for_result(self, run_id: str, *args: Any) -> WorkflowResult[Any]:
        if self.detached:
            raise _Begun(run_id)
        return await super()._wait_for_result(run_id, *args)

    def as_run(
        self, run_id: str, work: Callable[[], Awaitable[WorkflowResult[Any] | None]]
    ) -> ClusterRun[Any]:
        """A call of ``resume`` or ``cancel`` for this run, as a run that can be iterated over."""

        async def drive(_: Any) -> WorkflowResult[Any]:
            return cast("WorkflowResult[Any]", await work())

        return ClusterRun(run_id, self.cancel, drive)


class _Begun(Exception):
    """The cluster has the run of this id."""


def drive(  # noqa: PLR0917  # as every place drives, and its settings
    begin: Begin,
    options: Options,
    data: TextIO | None,
    place: OpenedPlace,
    definition: WorkflowDefinition,
    settings: tuple[str, str | None],
) -> int:
    """Begin a run, and watch it to its end; the exit code. Ctrl-C leaves the run to the cluster.
    ``settings``: the task queue, and the store of large values.
    """
    detached = options.detached
    screen = None if options.quiet or detached else Screen(Console(stderr=True))
    executor = _executor(options, place, screen, definition, settings)
    executor.detached = detached is not None
    watching = _Watching()
    try:
        result = asyncio.run(watching.watch(begin, executor))
    except ReplayMismatch as error:
        tell_mismatch(error, place)
        return Exit.USAGE
    except _Begun as begun:
        assert detached is not None
        detached.report({"run_id": str(begun), "cluster": place.address})
        return Exit.SUCCEEDED
    if result is None:
        assert watching.exit is not None
        run_id = watching.run_id
        tell(f"run {run_id} continues on the cluster; to watch it: {place.command('tail', run_id)}")
        tell(f"to cancel it: {place.command('cancel', run_id)}")
        return watching.exit
    return conclude(result, options, data, place)


class _Watching:
    """Watches one run, until its end or a signal. Mutable."""

    def __init__(self) -> None:
        self.run_id = ""
        self.exit: Exit | None = None

    async def watch(
        self, begin: Begin, executor: DrivingTemporalExecutor
    ) -> WorkflowResult[Any] | None:
        """The result; None if a signal came first."""
        task = asyncio.ensure_future(self._watch_run(begin, executor))
        loop = asyncio.get_running_loop()
        for signum, (_, code) in REASONS.items():
            loop.add_signal_handler(signum, self._leave, code, task)
        try:
            return await task
        except asyncio.CancelledError:
            if self.exit is None:
                raise
            return None

    def _leave(self, code: Exit, task: asyncio.Task[Any]) -> None:
        self.exit = code
        task.cancel()

    async def _watch_run(
        self, begin: Begin, executor: DrivingTemporalExecutor
    ) -> WorkflowResult[Any]:
        run: Any = begin(cast("Any", executor))
        self.run_id = run.run_id
        async with run:
            async for _ in run:
                pass
        result: WorkflowResult[Any] = run.result
        return result


def _executor(
    options: Options,
    place: OpenedPlace,
    screen: Screen | None,
    definition: WorkflowDefinition,
    settings: tuple[str, str | None],
) -> DrivingTemporalExecutor:
    """The executor that begins the run: the named one or the project's, on the cluster.

    It lacks the parts that perform steps: the workers have those.
    """
    base = place.executor or project_executor(None, None)
    known = base.parts
    sinks: list[Sink] = [] if screen is None else [screen]
    gates = gates_of(options.gates, screen)
    return DrivingTemporalExecutor(
        place.address,
        task_queue=settings[0],
        blobs=settings[1],
        workflows=known.workflows,
        limits=with_default_budget(limits_of(**options.bounds).over(known.limits), definition),
        gates=known.gates if gates is None else gates,
        sinks=(*known.sinks, *sinks),
        codec=known.journal.codec,
        secrets=known.secrets,
        linger_s=0,
        cleanup_timeout_s=known.cleanup_timeout_s,
        max_crashes=known.max_crashes,
        on_change=options.on_change or known.on_change,
    )
