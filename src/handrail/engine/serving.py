"""Runs in the background: begins them, follows them and waits for them, of any process; and drives
the runs of a journal that are due.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeAlias, TypeVar

import anyio
import anyio.lowlevel

from handrail.codec.unresolved import Unresolvable
from handrail.engine.bus import warn
from handrail.engine.parts import Leased, Parts
from handrail.engine.requests import Existing, RunRequest
from handrail.engine.steering import SteeredEngine
from handrail.errors import (
    DefinitionError,
    HandrailError,
    JournalFailed,
    LeaseLost,
    ReplayMismatch,
    RunIdTaken,
    RunLocked,
    RunNotFound,
    WrongUse,
)
from handrail.later import later
from handrail.model.events import Event, RunResumed
from handrail.model.results import WaitsFor, WorkflowResult
from handrail.model.shapes import WorkflowLike
from handrail.ports.clock import Clock
from handrail.ports.journal import RunInfo, read_after
from handrail.system.threads import AsyncioLoop, running_loop

if TYPE_CHECKING:
    from handrail.engine import message_watch, rehearsal_io
    from handrail.engine import sweeps as sweeping
    from handrail.record import inbox as letters
    from handrail.record import reading
    from handrail.record.state import RunState
else:
    later(
        globals(),
        "engine.message_watch engine.rehearsal_io engine.sweeps:sweeping record.inbox:letters "
        "record.reading",
    )


R_co = TypeVar("R_co", covariant=True)

TellStuck: TypeAlias = Callable[[str, WaitsFor], object]
"""Called with a run whose code cannot go on with its record, and what it waits for."""

EVERY_S = 0.1
"""How often to look whether runs are due. A run that is followed is read less often than this where
that takes long."""
ASLEEP_S = 60.0
"""A run that waits for a time farther away than this takes no room from others that are due."""
_NO_SECRETS: Mapping[str, str] = {}
"""No secrets: events that are shown keep the placeholders that the journal has for secrets."""


class RunReader(Protocol):
    """What a handle asks of the executor that began its run."""

    async def get(self, run_id: str) -> RunState:
        """The run's state."""
        ...

    async def result(self, run_id: str) -> WorkflowResult[Any]:
        """The run's result, once it has ended."""
        ...

    def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[Event, None]:
        """The run's events as they come."""
        ...


class RunHandle(Generic[R_co]):
    """A run that was begun in the background.

    Awaiting the handle waits until the run is recorded: from then on any process finds it.
    """

    def __init__(
        self, run_id: str, reader: RunReader, recorded: Callable[[], Awaitable[object]]
    ) -> None:
        self.run_id = run_id
        self._reader = reader
        self._recorded = recorded

    def __await__(self) -> Generator[Any, Any, Self]:
        yield from self._recorded().__await__()
        return self

    async def state(self) -> RunState:
        """The state of the run; see ``Executor.get``."""
        await self._recorded()
        return await self._reader.get(self.run_id)

    async def result(self) -> WorkflowResult[R_co]:
        """The run's result, once it has ended; see ``Executor.result``.

        Raises:
            BaseException: what its drive raised, unless another process took the run over: an error
                of the journal, or of changed code.
        """
        await self._recorded()
        return await self._reader.result(self.run_id)

    async def follow(self, after: int = 0) -> AsyncGenerator[Event, None]:
        """The run's events as they come; see ``Executor.follow``."""
        await self._recorded()
        async with contextlib.aclosing(self._reader.follow(self.run_id, after)) as events:
            async for event in events:
                yield event


class _BackgroundDrive:
    """The drive of one run in the background of a block. Mutable."""

    def __init__(self, clock: Clock) -> None:
        self.error: BaseException | None = None
        """What it raised."""
        self._clock = clock
        self._ended_at = 0.0
        self.is_accepted = False
        """The run is the one that was asked for."""
        self.is_over = False

    async def drive(self, work: Awaitable[object]) -> None:
        """Drive the run; keep its exception for whoever asks for the run."""
        try:
            await work
        except Exception as error:  # noqa: BLE001  # raised where somebody asks for the run
            self.error = error
        finally:
            self._ended_at = self._clock.now()
            self.is_over = True

    def raise_error(self, resumed_at: float = 0.0) -> None:
        """Raise the exception of the drive, if there was one, and nobody took the run over; it was
        last resumed at this time.
        """
        is_taken_over = isinstance(self.error, LeaseLost) or resumed_at > self._ended_at
        if self.error is not None and not is_taken_over:
            raise self.error


class ServingEngine(SteeredEngine):
    """An engine that also drives runs in the background, and reports their state."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._blocks: list[tuple[int, Background]] = []
        """The open blocks, each with the id of the task that opened it."""
        self._drives: dict[str, _BackgroundDrive] = {}
        self.tells_stuck: list[TellStuck] = []

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self._open_block()
        return self

    async def __aexit__(self, *error: object) -> None:
        task = anyio.get_current_task().id
        mine = [block for block in self._blocks if block[0] == task] or self._blocks
        try:
            await self._close_block(mine[-1])
        finally:
            await super().__aexit__(*error)

    async def _open_block(self) -> tuple[int, Background]:
        block = anyio.get_current_task().id, background()
        await block[1].begin()
        self._blocks.append(block)
        return block

    async def _close_block(self, block: tuple[int, Background]) -> None:
        self._blocks.remove(block)
        await block[1].end()

    def start(
        self,
        workflow: WorkflowLike[..., R_co],
        /,
        *args: Any,
        run_id: str | None = None,
        existing: Existing = "refuse",
        **kwargs: Any,
    ) -> RunHandle[R_co]:
        """Begin a run in the background of the executor's block, ``async with executor:``. Leaving
        the block suspends it. Arguments are checked at once.

        ``run_id`` and ``existing`` are those of ``options``: with ``existing="go_on"`` a request
        that comes twice begins one run.

        Raises:
            WrongUse: the executor has no open block, or no event loop runs here. TypeError,
                InvalidInput, RunIdTaken: as ``run``.
        """
        if not self._blocks:
            raise WrongUse(
                "start() begins a run in the background of the executor's block: "
                "write async with executor: around it"
            )
        try:
            running_loop()
        except RuntimeError:
            raise WrongUse(
                "start() was called in a thread that runs no event loop, as that of a sync handler "
                "of a web framework: call it in an async function, in the executor's block"
            ) from None
        request = self._prepare(workflow, args, kwargs, self._options_for(run_id, existing))
        drive, run_id = _BackgroundDrive(self._parts.clock), request.run_id

        def accept() -> None:
            drive.is_accepted = True
            self._drives[run_id] = drive

        async def work() -> None:
            await drive.drive(self._begin_or_join(request, accept))
            if drive.error is not None:
                message_watch.wake_followers(self._journal)
            elif self._drives.get(run_id) is drive:
                del self._drives[run_id]

        async def recorded() -> None:
            while not (drive.is_over or (drive.is_accepted and await self._is_recorded(run_id))):  # noqa: ASYNC110  # another process may write it
                await anyio.sleep(0.002)
            if not (drive.is_accepted and await self._is_recorded(run_id)):
                drive.raise_error()

        self._blocks[-1][1].start(work)
        return RunHandle(run_id, self, recorded)

    async def _begin_or_join(self, request: RunRequest, accept: Callable[[], None]) -> None:
        """Drive the run of a request, unless it is being driven already.

        Raises:
            RunIdTaken: it is, and the request is for a new run. InputsDiffer, WrongUse: it is
                another run than the one that is asked for.
        """
        while True:
            try:
                await self._begin(request, None, accept)
            except RunLocked:
                if request.options.existing == "refuse":
                    raise RunIdTaken(request.run_id) from None
                if not await self._is_recorded(request.run_id):  # its driver has just begun
                    await anyio.sleep(0.002)
                    continue
                history = await self._history(request.run_id)
                request.refuse_other(history, self._journal.codec)
            return

    async def get(self, run_id: str) -> RunState:
        """The state of a run, whichever process drives it; read-only.

        Raises:
            RunNotFound: there is no such run.
        """
        from handrail.record.state import info_of, run_state_of

        journal, now = self._journal, self._parts.clock.now()
        return await self._users.read(
            lambda: run_state_of(journal, info_of(journal, run_id), now), run_id
        )

    async def result(self, run_id: str) -> WorkflowResult[Any]:
        """Wait until a run has ended, whichever process drives it; returns its result. It waits for
        a suspended run, too: see ``serve``.

        Raises:
            RunNotFound: there is no such run. WorkflowNotFound: its workflow is not known.
        """
        journal = self._journal
        with self._users.using():
            async with contextlib.aclosing(self.follow(run_id)) as events:
                definition = reading.workflow_for([await anext(events)], None, self._known)
                async for _ in events:
                    pass
            return await self._users.read(
                lambda: reading.recorded_result(
                    run_id, definition, journal.events(run_id), journal.codec
                ),
                run_id,
            )

    async def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[Event, None]:
        """The events of a run behind number ``after``: first the recorded ones, then new ones as
        they come, until the run has ended. Any process may drive it, and any number of readers may
        follow.

        A run may be resumed after its end; the iteration stops at an end that no event follows.

        Raises:
            RunNotFound: there is no such run.
        """
        journal, follower, resumed_at = self._journal, message_watch.Follower(run_id), 0.0
        with self._users.using(), message_watch.watch_events(journal, follower) as watch:
            read = read_after(journal)
            while True:
                began, known, new = time.monotonic(), follower.last_read, None
                if known:
                    new = await self._users.read(
                        functools.partial(read, run_id, known, secrets=_NO_SECRETS), run_id
                    )
                if new is None:  # the first time, or the run is gone
                    known, new = 0, await self._history(run_id, _NO_SECRETS)
                follower.last_read = known + len(new)
                took_s = time.monotonic() - began
                for event in new:
                    if isinstance(event, RunResumed):
                        resumed_at = event.at
                    if event.seq > after:
                        yield event
                    if not event.seq % rehearsal_io.EVENTS_A_TURN:
                        await anyio.lowlevel.checkpoint()
                if reading.ended(new) is not None:
                    return
                drive = self._drives.get(run_id)
                if drive is not None:
                    drive.raise_error(resumed_at)
                await anyio.sleep(max(0.0, 5 * took_s - EVERY_S))
                await watch.more(follower)

    @contextlib.asynccontextmanager
    async def serve(
        self, *, max_runs: int | None = None, on_stuck: TellStuck | None = None
    ) -> AsyncGenerator[None, None]:
        """Drive the runs of the journal that are due, while the block lasts.

        Due are runs whose process is gone, and suspended runs whose time has come, or that have a
        new answer, signal or other message. A fork is due once somebody has resumed it, or sent it
        a message. Only workflows that this executor knows are driven.
        Leaving the block suspends the runs. Several processes may serve one journal.

        ``max_runs``: how many at once, at most; runs begun by ``start`` do not count, nor do those
        that do nothing but wait for a time that is more than a minute away. ``on_stuck`` is called
        once with the id of a run whose code cannot go on with its record, as after a deploy, and
        what it waits for. Each process that serves tries such a run once; then only when something
        is sent to it.

        Raises:
            WrongUse: ``max_runs`` is no positive number.
        """
        if max_runs is not None and (type(max_runs) is not int or max_runs < 1):
            raise WrongUse(f"max_runs must be a positive number, got {max_runs!r}")
        tells = () if on_stuck is None else (on_stuck,)
        with self._users.using():
            block = await self._open_block()
            self.tells_stuck += tells
            try:
                block[1].start(functools.partial(self._serve, block[1], max_runs))
                yield
            finally:
                await self._close_block(block)
                for tell in tells:
                    self.tells_stuck.remove(tell)

    async def _serve(self, block: Background, max_runs: int | None) -> None:
        from handrail.record.due import Due

        due, sweeps, at_work = Due(self._journal), sweeping.Sweeps(self._journal), set[str]()
        while True:
            now = self._parts.clock.now()
            with contextlib.suppress(HandrailError):  # a journal that is busy: look again
                if sweeps.is_due(by_timer=now >= due.next_at):
                    with sweeps.measured():
                        for info in due.select_due(self._left_by_others(at_work), now):
                            if max_runs is not None and self._awake(at_work) >= max_runs:
                                break
                            due.note_begun(info, now)
                            at_work.add(info.run_id)
                            block.start(functools.partial(self._drive_due, info, at_work))
            await anyio.sleep(EVERY_S)

    def _left_by_others(self, at_work: set[str]) -> Iterator[RunInfo]:
        """The runs of known workflows that nothing in this process drives."""
        for info in self._journal.runs():
            driven = info.run_id in at_work or info.run_id in self._users.drivers
            if info.workflow_name in self._known and not driven:
                yield letters.with_messages(self._journal, info)

    @contextlib.asynccontextmanager
    async def _leased(self, run_id: str) -> AsyncGenerator[Leased]:
        async with super()._leased(run_id) as leased:
            try:
                yield leased
            except (ReplayMismatch, Unresolvable, DefinitionError) as error:  # those of its code
                await self._note_stuck(run_id, error)
                raise

    async def _note_stuck(self, run_id: str, error: HandrailError) -> None:
        """Have every process see that the run waits for a person; tell this one's hooks, once."""
        with contextlib.suppress(JournalFailed, RunNotFound):
            history, wait = await self._history(run_id), letters.stuck_wait(run_id, str(error))
            letter = letters.new_stuck_letter(self._journal, history, wait, self._parts.clock.now())
            if letter is None:
                return
            secrets = self._secrets()
            await self._when_free(lambda: self._journal.post(letter, secrets=secrets))
            for tell in self.tells_stuck:
                try:
                    tell(run_id, wait)
                except Exception as raised:  # noqa: BLE001  # of the user's own function
                    why = f"{type(raised).__name__}: {raised}"
                    warn("a run is stuck, and nobody was told", run_id=run_id, why=why)

    def _awake(self, run_ids: Iterable[str]) -> int:
        """How many of these runs need room: all but those that sleep for long."""
        drivers = self._users.drivers
        return sum(run not in drivers or not drivers[run].is_asleep(ASLEEP_S) for run in run_ids)

    async def _drive_due(self, info: RunInfo, at_work: set[str]) -> None:
        run_id = info.run_id
        earlier = self._drives.pop(run_id, None)  # what it raised is over now
        try:
            await self._resume(run_id, self._known[info.workflow_name], (), (), None)
        except RunLocked:
            pass  # another worker was first
        except HandrailError as error:
            if earlier is not None:
                earlier.error = error
                self._drives[run_id] = earlier
                message_watch.wake_followers(self._journal)
            warn("a run that is due cannot be driven", run_id=run_id, error=str(error))
        finally:
            at_work.discard(run_id)


Work: TypeAlias = Callable[[], Awaitable[object]]


class AsyncioBackground:
    """Asyncio tasks. The block may end in another task than it began in, as in a test fixture.

    Each has a scope: its cancellation lasts, also where an action swallows the first.
    """

    def __init__(self) -> None:
        self._scopes = dict[Any, anyio.CancelScope]()

    async def begin(self) -> None:
        """Do nothing: tasks need no group."""

    def start(self, work: Work) -> None:
        """Run ``work`` in the background; it must not raise."""
        import asyncio

        scope = anyio.CancelScope()
        task = asyncio.get_running_loop().create_task(_awaited(work, scope))
        self._scopes[task] = scope
        task.add_done_callback(self._scopes.pop)

    async def end(self) -> None:
        """Cancel all tasks, and wait for their ends."""
        import asyncio

        for scope in self._scopes.values():
            scope.cancel()
        while self._scopes:
            await asyncio.wait(self._scopes)
            await asyncio.sleep(0)  # so that those that have ended are discarded


class GroupBackground:
    """A task group of any loop. The block must end in the task that it began in."""

    def __init__(self) -> None:
        self._group = anyio.create_task_group()

    async def begin(self) -> None:
        """Open the group."""
        await self._group.__aenter__()

    def start(self, work: Work) -> None:
        """Run ``work`` in the background; it must not raise."""
        self._group.start_soon(_awaited, work, contextlib.nullcontext())

    async def end(self) -> None:
        """Cancel all tasks, and wait for their ends."""
        self._group.cancel_scope.cancel()
        await self._group.__aexit__(None, None, None)


Background: TypeAlias = AsyncioBackground | GroupBackground


def background() -> Background:
    """A background for a block that begins in this task."""
    return AsyncioBackground() if isinstance(running_loop(), AsyncioLoop) else GroupBackground()


async def _awaited(work: Work, scope: contextlib.AbstractContextManager[object]) -> None:
    with scope:
        await work()
