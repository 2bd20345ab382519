"""One drive of a run in this process: started or resumed, shown, interruptible, concluded."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import sys
import termios
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self, TextIO, TypeAlias, cast

import anyio
import attrs
from rich.console import Console

from handrail import Executor, addons
from handrail.cli.bounds import Bounds, bounds_in, labels_for, limits_of, words_for_more
from handrail.cli.channels import silence, tell, write_json
from handrail.cli.detaching import Detached
from handrail.cli.exits import EXIT_OF, Exit
from handrail.cli.gates import ESCAPE, can_ask, gate_handler, set_quit_key
from handrail.cli.journal import Place
from handrail.cli.notify import Notifier
from handrail.cli.report import tell_ending, tell_mismatch, tell_missing, write_value
from handrail.cli.screen import Screen
from handrail.cli.who import acting_user
from handrail.engine.parts import DriveStart, OnChange
from handrail.engine.serving import ServingEngine
from handrail.engine.stream import Run
from handrail.errors import HandrailError, ReplayMismatch
from handrail.executor import agent_defaults
from handrail.model.agent_options import NO_OPTIONS, AgentSettings
from handrail.model.definition import WorkflowDefinition
from handrail.model.events import DriveBegan
from handrail.model.policy import Budget, Limits
from handrail.model.results import WorkflowResult
from handrail.ports.journal import Journal
from handrail.ports.sink import Sink
from handrail.sinks.artifacts import ArtifactsSink
from handrail.system.run import kill_marked

if TYPE_CHECKING:
    from handrail.agents.cassette.cassette import Cassette  # attrs does not look at it

# Ctrl-C, SIGTERM, a closed terminal: the first signal ends the run in order, the second at once.
#
# The handlers are Python's own (``signal.signal``), not the event loop's, so that a second Ctrl-C
# works even while a workflow's body, or an action on the loop, blocks the loop.

TWICE_S = 0.05
"""Signals closer together count as one: ``timeout`` and other launchers send theirs twice."""

_SHOW_CURSOR = b"\x1b[?25h\r\n"
REASONS = {
    signal.SIGINT: ("keyboard interrupt", Exit.INTERRUPTED),
    signal.SIGTERM: ("SIGTERM", Exit.TERMINATED),
    signal.SIGHUP: ("its terminal was closed", Exit.HUNG_UP),
}
"""The reason that each signal stands for, and the exit code of a process that it ends."""


class Interruption:
    """Handles signals while it is entered: they end the run. Mutable; one for each run.

    ``place`` is that of the journal on disk: then a signal suspends the run, else it cancels it.
    """

    def __init__(
        self, place: Place | None = None, *, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._place = place
        self._now_s = now_s
        self.exit: Exit | None = None
        self._reason = ""
        self._at_s = 0.0
        self._leaving = False
        self._run: Run[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._before: dict[signal.Signals, Any] = {}
        self._terminal: list[Any] | None = None
        self._executor: Executor | None = None
        self._is_paused = False
        self._steering: asyncio.Task[None] | None = None
        self._escapes: threading.Thread | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self  # Python takes signals in the main thread alone
        if os.isatty(0):
            self._terminal = termios.tcgetattr(0)
        for signum in REASONS:
            before = signal.getsignal(signum)
            if signum is signal.SIGHUP and before is signal.SIG_IGN:
                continue  # nohup
            self._before[signum] = signal.signal(signum, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        if self._escapes is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(0, termios.TCSANOW, self._terminal or [])
            watch, self._escapes = self._escapes, None
            signal.pthread_kill(watch.ident or 0, signal.SIGQUIT)
            watch.join()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGQUIT})
        for signum, before in self._before.items():
            signal.signal(signum, before)

    def let_escape_pause(self) -> None:
        """Let the key Esc pause the run, and continue it, until the end of this context.

        The terminal sends SIGQUIT for Esc meanwhile. So nothing is read from stdin, which an action
        of the run may read. What an action starts ignores the signal, as it inherits that: the key
        is to end nothing. A thread takes it here; threads that start later have it blocked.
        """
        with contextlib.suppress(OSError):  # the terminal controls another session
            if self._terminal is not None and os.tcgetpgrp(0) == os.getpgrp():
                self._before[signal.SIGQUIT] = signal.signal(signal.SIGQUIT, signal.SIG_IGN)
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGQUIT})
                self._escapes = threading.Thread(target=self._take_escapes, daemon=True)
                self._escapes.start()
                set_quit_key(0, ESCAPE)

    def _take_escapes(self) -> None:
        while True:
            signal.sigwait({signal.SIGQUIT})
            if self._escapes is None:
                return
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._toggle_pause)

    def watch(self, run: Run[Any], executor: Executor) -> None:
        """Let signals end this run; a signal that came before ends it now."""
        self._loop = asyncio.get_running_loop()
        self._run, self._executor = run, executor
        if self.exit is not None:
            self._stop()

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        del frame
        now_s = self._now_s()
        if self.exit is not None:
            if now_s - self._at_s > TWICE_S and not self._leaving:
                self._leaving = True
                self._leave()
            return
        self._at_s = now_s
        self._reason, self.exit = REASONS[signal.Signals(signum)]
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        run = self._run
        assert run is not None
        undoing = " and rolling back" if self._place is None else ""
        tell(f"stopping{undoing}; press Ctrl-C again to leave at once")
        if run.driver is None and self._place is None:  # it has not begun, and never will
            run.cancel(self._reason)
        else:
            run.interrupt(self._reason)

    def _toggle_pause(self) -> None:
        if self._steering is None or self._steering.done():
            self._steering = asyncio.get_running_loop().create_task(self._pause_or_unpause())

    async def _pause_or_unpause(self) -> None:
        assert self._run is not None
        assert self._executor is not None
        run_id, pauses = self._run.run_id, not self._is_paused
        act = self._executor.pause if pauses else self._executor.unpause
        try:
            await act(run_id, by=acting_user())
        except HandrailError as error:  # it has just ended
            tell(str(error))
            return
        self._is_paused = pauses
        tell("paused: no new step starts; Esc continues" if pauses else "continuing")

    def _leave(self) -> None:
        """Kill the programs that the run started, and exit; makes no call that a lock can block."""
        try:
            killed = kill_marked(self._run.mark) if self._run is not None else 0
            said = f"handrail: left at once without rolling back; processes killed: {killed}\n"
            if self._place is not None and self._run is not None:
                again = self._place.command("resume", self._run.run_id)
                said += f"handrail: to continue: {again}\n"
            for descriptor in (1, 2):
                if os.isatty(descriptor):
                    os.write(descriptor, _SHOW_CURSOR)
            if self._terminal is not None:  # a prompt may have changed it
                termios.tcsetattr(0, termios.TCSANOW, self._terminal)
            os.write(2, said.encode())
        finally:
            os._exit(self.exit or Exit.INTERRUPTED)


Gates: TypeAlias = Literal["approve", "default", "fail", "ask"]
Begin: TypeAlias = "Callable[[DrivingExecutor], Run[Any]]"


@attrs.frozen
class Options:
    """How a run is driven and shown; ``gates``: who answers them (None: the terminal's user)."""

    as_json: bool = False
    quiet: bool = False
    gates: Gates | None = None
    artifacts: bool = True
    backend: str | None = None
    model: str | None = None
    cassette: Cassette | None = None
    bounds: Bounds = attrs.field(factory=dict[str, float])
    on_change: OnChange | None = None
    labels: Mapping[str, str] = attrs.field(factory=dict[str, str])
    ui: bool = False
    detached: Detached | None = None
    """The sink that lets go of the terminal once the run has begun."""
    notify: str | None = None
    """The command to run when the run needs a person, or has ended."""


class DrivingExecutor(Executor):
    """An executor that gives resumes and cancellations as a ``Run``, too: signals reach them."""

    bounds: Bounds = MappingProxyType({})
    """What a person typed for this drive; once it has begun, also what is recorded of the run."""
    _held: Run[Any] | None = None

    @classmethod
    def of(cls, executor: Executor, **parts: Any) -> Self:
        """A copy of another executor with these parts in place of its own."""
        made = cls.__new__(cls)
        ServingEngine.__init__(made, replace(executor.parts, **parts))
        return made

    def as_run(
        self, run_id: str, work: Callable[[], Awaitable[WorkflowResult[Any] | None]]
    ) -> Run[Any]:
        """A call of ``resume`` or ``cancel`` for this run, as a ``Run``."""

        async def drive(run: Run[Any]) -> WorkflowResult[Any]:
            self._held = run
            return cast("WorkflowResult[Any]", await work())

        return Run(run_id, drive)

    async def _drive_from(self, start: DriveStart, run: Run[Any] | None) -> WorkflowResult[Any]:
        self.bounds = {**bounds_in(start.recorded.labels), **self.bounds}
        limits = limits_of(**self.bounds).over(self._parts.limits)
        self._parts = replace(self._parts, limits=with_default_budget(limits, start.definition))
        first = cast("DriveBegan", start.first)
        first = replace(first, labels={**first.labels, **labels_for(self.bounds)})
        return await super()._drive_from(
            replace(start, first=first), self._held if run is None else run
        )

    def _missing(self, run_id: str, variables: Sequence[str]) -> None:
        tell_missing(run_id, variables)


def drive(
    begin: Begin,
    options: Options,
    data: TextIO | None = None,
    place: Place | None = None,
    **parts: Any,
) -> int:
    """Drive the run that ``begin`` returns to its end; the exit code. ``parts`` are an executor's.

    ``place`` is that of the journal on disk, if there is one: an unfinished run can be resumed.
    """
    is_detached = options.detached is not None
    console = Console(stderr=True, force_terminal=False if is_detached else None)
    screen = None if options.quiet else Screen(console)
    sinks: list[Sink] = [] if screen is None else [screen]
    if options.detached is not None and place is not None:
        options.detached.artifacts = place.artifacts
        sinks.insert(0, options.detached)
    if place is not None and options.artifacts:
        sinks.append(ArtifactsSink(place.artifacts))
    with Interruption(place) as interruption, ExitStack() as stack:
        if screen is not None and can_ask() and not console.is_dumb_terminal:
            interruption.let_escape_pause()
        notifier = stack.enter_context(_notifier(options, place, parts.get("journal")))
        if notifier is not None:
            sinks.append(notifier)
        executor = _executor(options, place, screen, sinks, parts)
        if notifier is not None:
            executor.tells_stuck.append(notifier.tell_stuck)
        tell_page = stack.enter_context(_page(options, place, executor.journal))
        try:
            result = anyio.run(_stream_run, executor, begin, interruption, tell_page)
        except ReplayMismatch as error:
            tell_mismatch(error, place)
            return Exit.USAGE
        more = words_for_more(executor.bounds, result.error)
        return conclude(result, options, data, place, interruption.exit, more=more)


ASKS_AFTER = 200
"""Launches of agents after which a run without bounds asks whether it may continue.

A run bounded only by tokens or dollars asks after so many launches that do not report their usage.
"""


def _executor(
    options: Options,
    place: Place | None,
    screen: Screen | None,
    sinks: list[Sink],
    parts: Mapping[str, Any],
) -> DrivingExecutor:
    """The named executor, or else the project's, with the typed options over its own."""
    from handrail.cli.settings import project_executor

    base = None if place is None else place.executor
    if base is None:
        base = project_executor(options.backend, options.model)
    known = base.parts
    waits_for_people = options.detached is not None and options.detached.waits_for_people
    gates = options.gates if waits_for_people else gates_of(options.gates, screen)
    made = DrivingExecutor.of(
        base,
        **parts,
        sinks=(*known.sinks, *sinks),
        gates=known.gates if gates is None else gates,
        linger_s=math.inf if waits_for_people else known.linger_s,
        agent_defaults=agents_of(options, known.agent_defaults),
        on_change=options.on_change or known.on_change,
    )
    made.bounds = options.bounds
    return made


def with_default_budget(limits: Limits, definition: WorkflowDefinition) -> Limits:
    """The limits; if they do not bound agents, with a budget that asks: see ``ASKS_AFTER``."""
    bounds = limits.over(definition.limits)
    if bounds.bounds_agents:
        return limits
    said = bounds.budget
    budget = (
        Budget(launches=ASKS_AFTER, on_breach="ask")
        if said is None
        else attrs.evolve(said, unknown=said.unknown or ASKS_AFTER)
    )
    return attrs.evolve(limits, budget=budget)


def agents_of(options: Options, known: Callable[[], AgentSettings]) -> Callable[[], AgentSettings]:
    """The settings for agents: the typed ones over the executor's."""

    def settings() -> AgentSettings:
        found = known()
        if options.backend is not None or options.model is not None:
            typed = agent_defaults(options.backend, options.model, NO_OPTIONS)
            found = attrs.evolve(
                found, backend=typed.backend, options=typed.options.over(found.options)
            )
        if options.cassette is not None:
            found = attrs.evolve(found, replace_backend=options.cassette.wrap)
        return found

    return cache(settings)


@contextlib.contextmanager
def _notifier(options: Options, place: Place | None, journal: Any) -> Generator[Notifier | None]:
    """The sink that runs the command of ``--notify``, if there is one."""
    if not options.notify or place is None or journal is None:
        yield None
        return
    own = None if place.executor is None else place.executor.parts.gates
    asks = options.gates == "ask" or (options.gates is None and own is None)
    notifier = Notifier(options.notify, journal, place.artifacts, answers=asks)
    try:
        yield notifier
    finally:
        notifier.close()


@contextlib.contextmanager
def _page(
    options: Options, place: Place | None, journal: Journal
) -> Generator[Callable[[str], None] | None]:
    """Serve the page beside a run, if asked for; yields a function that prints a run's address."""
    if not options.ui or place is None:
        yield None
        return
    with addons.load(addons.PAGES, "beside")(place, journal) as print_address:
        yield print_address


async def _stream_run(
    executor: DrivingExecutor,
    begin: Begin,
    interruption: Interruption,
    tell_page: Callable[[str], None] | None,
) -> WorkflowResult[Any]:
    run = begin(executor)
    if tell_page is not None:
        tell_page(run.run_id)
    try:
        async with run:
            interruption.watch(run, executor)
            async for _ in run:
                pass
    except (KeyboardInterrupt, SystemExit):  # raised by an action: an interruption like a signal
        if run.driver is None or run.driver.conductor.result is None:
            raise
        interruption.exit = Exit.INTERRUPTED
        return run.driver.conductor.result
    return run.result


def gates_of(wanted: Gates | None, screen: Screen | None) -> Any:
    """Who answers gates: as typed, or by default a person at the terminal, if there is one."""
    if wanted == "ask" or (wanted is None and can_ask()):
        return gate_handler(screen)
    return wanted


def conclude(
    result: WorkflowResult[Any],
    options: Options,
    data: TextIO | None,
    place: Place | None,
    interrupted: Exit | None = None,
    *,
    more: Sequence[str] = (),
) -> int:
    """Print a run's result, and what to do now; the exit code. ``more``: as ``tell_ending``."""
    try:
        _print_result(result, data)
    except BrokenPipeError:  # the reader has gone; the exit code still says how the run ended
        silence(1 if data is None else data.fileno())
    tell_ending(result, quiet=options.quiet, interrupted=interrupted, place=place, more=more)
    if interrupted is not None and not result.success:
        return interrupted
    if result.status == "cancelled" and result.rollback_errors:
        return Exit.FAILED
    return EXIT_OF[result.status]


def _print_result(result: WorkflowResult[Any], data: TextIO | None) -> None:
    if data is not None:
        write_json(result.to_dict(), data)
    elif result.success and result.value is not None:
        write_value(result.value)
        sys.stdout.flush()
