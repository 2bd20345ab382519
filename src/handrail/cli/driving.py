"""One drive of a run as this process shows it: started or resumed, interruptible, with an end."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, TextIO, TypeAlias, cast

import anyio
import attrs
from rich.console import Console

from handrail import Executor
from handrail.agents.cassette.cassette import Cassette
from handrail.cli.channels import silence, write_json
from handrail.cli.exits import EXIT_OF, Exit
from handrail.cli.gates import can_ask, gate_handler
from handrail.cli.interruption import Interruption
from handrail.cli.journal import Place
from handrail.cli.report import tell_ending, tell_mismatch, tell_missing, write_value
from handrail.cli.screen import Screen
from handrail.engine.parts import Start
from handrail.engine.run import Run
from handrail.errors import ReplayMismatch
from handrail.model.results import WorkflowResult
from handrail.ports.journal import Journal
from handrail.ports.sink import Sink
from handrail.sinks.artifacts import ArtifactsSink

Gates: TypeAlias = Literal["approve", "default", "fail", "ask"]
Begin: TypeAlias = "Callable[[DrivingExecutor], Run[Any]]"


@attrs.frozen
class Options:
    """How a run is shown, and who answers its gates (None: whoever sits at the terminal)."""

    as_json: bool = False
    quiet: bool = False
    gates: Gates | None = None
    artifacts: bool = True
    backend: str | None = None
    model: str | None = None
    cassette: Cassette | None = None


@attrs.frozen
class Session:
    """What runs of a journal on disk are driven with; ``data`` is where JSON goes, if it does."""

    options: Options
    data: TextIO | None
    place: Place
    journal: Journal

    def drive(self, begin: Begin) -> int:
        """Drive what ``begin`` gives to its end; the exit code."""
        return drive(begin, self.options, self.data, self.place, journal=self.journal)


class DrivingExecutor(Executor):
    """An executor whose resumed runs are held by a ``Run`` too, so that signals reach them."""

    _held: Run[Any] | None = None

    def held(
        self, run_id: str, work: Callable[[], Awaitable[WorkflowResult[Any] | None]]
    ) -> Run[Any]:
        """A call of ``resume`` or ``cancel`` for this run, as a ``Run``."""

        async def drive(run: Run[Any]) -> WorkflowResult[Any]:
            self._held = run
            return cast("WorkflowResult[Any]", await work())

        return Run(run_id, drive)

    async def _drive_from(self, start: Start, run: Run[Any] | None) -> WorkflowResult[Any]:
        return await super()._drive_from(start, self._held if run is None else run)

    def _missing(self, run_id: str, variables: Sequence[str]) -> None:
        tell_missing(run_id, variables)


def drive(
    begin: Begin,
    options: Options,
    data: TextIO | None = None,
    place: Place | None = None,
    **parts: Any,
) -> int:
    """Drive what ``begin`` gives to its end; the exit code. ``parts`` are an executor's.

    ``place`` is the journal's, if it has one on disk: what is not finished can be resumed.
    """
    screen = None if options.quiet else Screen(Console(stderr=options.as_json))
    sinks: list[Sink] = [] if screen is None else [screen]
    if place is not None and options.artifacts:
        sinks.append(ArtifactsSink(place.artifacts))
    executor = DrivingExecutor(
        sinks=sinks,
        gates=_gates(options.gates, screen),
        backend=options.backend,
        model=options.model,
        cassette=options.cassette,
        **parts,
    )
    with Interruption(place) as interruption:
        try:
            result = anyio.run(_streamed, executor, begin, interruption)
        except ReplayMismatch as error:
            tell_mismatch(error, place)
            return Exit.USAGE
        try:
            _report(result, data)
        except BrokenPipeError:  # whoever read it has gone; the exit code still says how it ended
            silence(1)
        tell_ending(result, quiet=options.quiet, interrupted=interruption.exit, place=place)
    if interruption.exit is not None and not result.success:
        return interruption.exit
    return EXIT_OF[result.status]


async def _streamed(
    executor: DrivingExecutor, begin: Begin, interruption: Interruption
) -> WorkflowResult[Any]:
    run = begin(executor)
    try:
        async with run:
            interruption.watch(run)
            async for _ in run:
                pass
    except (KeyboardInterrupt, SystemExit):  # raised by an action: an interruption like a signal
        if run.driver is None or run.driver.result is None:
            raise
        interruption.exit = Exit.INTERRUPTED
        return run.driver.result
    return run.result


def _gates(wanted: Gates | None, screen: Screen | None) -> Any:
    if wanted == "ask" or (wanted is None and can_ask()):
        return gate_handler(screen)
    return wanted


def _report(result: WorkflowResult[Any], data: TextIO | None) -> None:
    if data is not None:
        write_json(result.to_dict(), data)
    elif result.success and result.final_output is not None:
        write_value(result.final_output)
        sys.stdout.flush()
