"""The pump of commands, the same for every host: it feeds the machine its records, in order.

It is a coroutine, which waits for nothing but what the host hands it: a write that takes a while,
an attempt in the driver's own task, a turn for others. A host that hands it none of these calls
``at_once``. A resume begins with it (``core.rehearsal``), a plan consists of it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from handrail.core import commands as cmd
from handrail.core.machine import Machine
from handrail.errors import HandrailError, OutputNotSerializable
from handrail.later import later
from handrail.model import events as ev
from handrail.ports.journal import GroupAppend, SyncLater

if TYPE_CHECKING:
    from handrail.core import value_texts
else:
    later(globals(), "core.value_texts")

T = TypeVar("T")
MAX_BATCH = 64
"""How many records one transaction writes, at most."""
MOST_AHEAD, AHEAD_S = 1024, 0.05
"""How many records the run goes ahead of the disk at most, and for how long it shows none."""
Append: TypeAlias = Callable[..., Awaitable[None] | None]
"""Writes a numbered event, as ``Journal.append`` does."""


class _BeingWritten(msgspec.Struct):
    """An event that is being written, or could not be; to carry it out is to wait for that."""

    event: ev.Event
    pending: Awaitable[None] | HandrailError


class _Cancelled(msgspec.Struct):
    """The task was cancelled while it waited for a write; to carry it out is to raise that."""

    error: BaseException


class CommandLoop:
    """Numbers records, has ``append`` write them, shows them, and gives them to the machine.

    ``tell`` takes progress, ``carry_out`` all other commands. ``pull`` takes the path of a group
    that has more members to start; by default the machine starts them when nothing else is left to
    do, so that at most as many are open as the group's window allows. ``append_all`` writes records
    that follow one another; without it each is written by itself.

    With ``sync_later`` the run goes ahead of the disk: the end of an attempt that ``has_no_effect``
    is stored, but not synced, while only such attempts follow. Before anything else is done, shown
    or awaited, ``_catch_up`` syncs the records and shows them.

    A task that is cancelled while it waits for a write has the cancellation raised before the next
    command: the machine has what was numbered by then, and ``run`` can be called again.
    """

    def __init__(
        self,
        machine: Machine,
        *,
        seq: int,
        now: Callable[[], float],
        append: Append,
        tell: Callable[[ev.Progress], None],
        carry_out: Callable[[cmd.Command], None],
        show: Callable[[ev.Event], object] = lambda _: None,
        pull: Callable[[str], Awaitable[None] | None] | None = None,
        append_all: GroupAppend | None = None,
        sync_later: SyncLater | None = None,
        has_no_effect: Callable[[cmd.Perform], bool] = lambda _: False,
    ) -> None:
        self.seq = seq
        """The number of the last event."""
        self.now = now
        self.todo: deque[Any] = deque()
        """The commands that are queued."""
        self._machine = machine
        self._run_id = machine.run.setting.run_id
        self._append, self._append_all = append, append_all
        self._show, self._tell = show, tell
        self._carry_out = carry_out
        self._pull = pull if pull is not None else self._pull_late
        self.here: Callable[[cmd.Perform], Awaitable[ev.Event | None] | None] | None = None
        """Returns an attempt to await, if nothing else can happen before it ends."""
        self.answer_here: Callable[[cmd.AskPredicate], cmd.Evaluated | None] | None = None
        """Answers a predicate at once; None if the answer comes later, or in another drive."""
        self._late: deque[cmd.Report] = deque()
        self._sync_later, self._has_no_effect = sync_later, has_no_effect
        self.ahead: list[ev.Event] = []
        """Events that are stored, and neither on disk yet nor shown."""
        self._is_writing = False
        self._alone = 0
        """How many of the next records are written one by one: one of them cannot be written."""

    def receive(self, happened: ev.Event | cmd.Report) -> None:
        """Give the machine what happened, and queue the commands that it returns."""
        self.begin(happened)
        self.todo.extend(self._machine.go_on())

    def begin(self, happened: ev.Event | cmd.Report) -> None:
        """Give the machine what happened; ``run`` carries out what follows, in parts if need be."""
        if self._machine.has_actions:
            self.todo.extend(self._machine.go_on())
        self.todo.extend(self._machine.receive(happened))

    def number(self, event: ev.Event) -> None:
        """Give an event the next number, and the time."""
        self.seq += 1
        ev.stamp(event, self._run_id, self.seq, self.now())

    def record_now(self, event: ev.Event) -> None:
        """Write an event ahead of what is queued; behind what is being written."""
        if self._is_writing or self.ahead:  # those must be shown first
            self.todo.append(cmd.Record(event))
            return
        self.number(event)
        try:
            pending: Awaitable[None] | HandrailError | None = self._append(event)
        except HandrailError as error:  # not the fault of who reports it: ``run`` raises it
            self.seq -= 1
            pending = error
        if pending is None:
            self._show(event)
        else:
            self.todo.append(_BeingWritten(event, pending))

    def _pull_late(self, path: str) -> None:
        self._late.append(cmd.Pulled(path, at=self.now()))

    async def run(self, most: float = math.inf) -> bool:  # noqa: C901, PLR0912, PLR0915  # see its text
        """Run until no command is left or about ``most`` are carried out; True if none is left.

        One long function on purpose: it runs for each step, and a call costs as much as what most
        of its lines do.
        """
        # long road of command_loop.CommandLoop._recorded_together
        todo, late, machine, run_id, now = (
            self.todo, self._late, self._machine, self._run_id, self.now,
        )  # fmt: skip
        agenda, reacts_to = machine.run.agenda, machine.reacts_to
        here, answer_here = self.here, self.answer_here
        stamp, ahead, later = ev.stamp, self.ahead, self._sync_later
        append, show, tell = self._append, self._show, self._tell
        is_sliced, gathers = most < math.inf, self._append_all is not None
        receive = machine.receive
        while todo or late or agenda or ahead:
            if is_sliced and most <= 0:
                return False
            if agenda:
                todo.extend(machine.go_on(most))
                if agenda:
                    return False
                continue
            if is_sliced:
                most -= 1
            if not todo:
                if ahead:
                    await self._catch_up()
                    continue
                todo.extend(receive(late.popleft()))
                continue
            command: Any = todo.popleft()
            kind = type(command)  # pyright: ignore[reportUnknownVariableType]  # of any command
            if kind is _Cancelled:
                raise command.error
            if ahead and not (
                len(ahead) < MOST_AHEAD
                and now() - ahead[0].at < AHEAD_S
                and self._may_run_ahead(command)
            ):
                todo.appendleft(command)
                await self._catch_up()
                continue
            sync: bool | None
            if kind is cmd.Record:
                if (
                    gathers
                    and len(todo) > 1
                    and not ahead
                    and await self._recorded_together(command)
                ):
                    continue
                event, sync = command.event, command.sync
            elif kind is cmd.Tell:
                tell(command.progress)
                continue
            elif kind is cmd.Perform:
                attempt = None if todo or here is None else here(command)
                if attempt is None:
                    self._carry_out(command)
                    continue
                event = await attempt
                while todo and isinstance(written := todo[0], _BeingWritten):
                    todo.popleft()  # it was numbered during the attempt: it precedes its end
                    await self._show_when_written(written.event, written.pending)
                if event is None:
                    continue
                modifiers = command.step.modifiers
                sync = modifiers.checkpoint or modifiers.once
                if todo:  # what came in meanwhile is recorded first: after a pause no step begins
                    todo.append(cmd.Record(event, bool(sync)))
                    continue
                if later is not None and not sync and type(event) is ev.StepCompleted:
                    sync = None if self._has_no_effect(command) else False
            elif kind is cmd.AskPredicate and answer_here is not None:
                answer = answer_here(command)
                if answer is not None:
                    todo.extend(receive(answer))
                continue
            elif kind is cmd.Pull:
                turn = self._pull(command.path)
                if turn is not None:
                    await turn
                continue
            elif kind is _BeingWritten:
                await self._show_when_written(command.event, command.pending)
                continue
            else:
                self._carry_out(command)
                continue
            self.seq = seq = self.seq + 1
            stamp(event, run_id, seq, now())
            try:
                pending = append(event, sync=sync)
            except OutputNotSerializable as error:
                types, keep = value_texts.declared_in(machine, event), partial(append, sync=sync)
                event, pending = value_texts.event_in_its_place(event, machine, types, error, keep)
            if pending is not None and sync is None:
                await self._wait_for_write(pending)
            elif pending is not None:
                if ahead:
                    await self._catch_up()
                await self._show_when_written(event, pending)
                continue
            if ahead or sync is None:
                ahead.append(event)
            else:
                show(event)
            if type(event) in reacts_to:
                more = receive(event)
                if more:
                    todo.extend(more)
        return True

    def _may_run_ahead(self, command: cmd.Command) -> bool:
        """True for the start of a step, or an attempt, without effects outside of the run."""
        # fast road of command_loop.CommandLoop._show_when_written
        if type(command) is cmd.Record:
            return type(command.event) is ev.StepStarted and not command.sync
        return type(command) is cmd.Perform and self._has_no_effect(command)

    async def _catch_up(self) -> None:
        """Have on disk what the run has gone ahead of, then show it."""
        pending = None if self._sync_later is None else self._sync_later()
        if pending is None or await self._wait_for_write(pending):
            for event in self.ahead:
                self._show(event)
            self.ahead.clear()

    async def _show_when_written(
        self, event: ev.Event, pending: Awaitable[None] | HandrailError
    ) -> None:
        """Wait until the event is written, then show it and give it to the machine."""
        # long road of command_loop.CommandLoop._may_run_ahead
        if isinstance(pending, HandrailError):
            raise pending
        is_written = await self._wait_for_write(pending)
        self._show_if(is_written, event)
        self.receive(event)

    def _show_if(self, is_written: bool, event: ev.Event) -> None:  # noqa: FBT001  # for speed
        if is_written and not self.ahead:
            self._show(event)
        else:
            self.ahead.append(event)

    async def _wait_for_write(self, pending: Awaitable[None]) -> bool:
        """Wait for it; False if this was cancelled meanwhile, which the next command raises."""
        self._is_writing = True
        try:
            await pending
        except (Exception, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001  # the cancellation of any event loop
            if not self.todo or type(self.todo[0]) is not _Cancelled:
                self.todo.appendleft(_Cancelled(error))
            return False
        finally:
            self._is_writing = False
        return True

    async def _recorded_together(self, first: cmd.Record) -> bool:
        """Write this record and those queued next in one transaction; False if nothing was written.

        Attempts queued between them begin afterwards. It writes nothing where this record is the
        only one, or where one cannot be serialized: then the caller writes them one by one.
        A transaction costs four times what a record in it does, and a sync a hundred times.
        """
        # fast road of command_loop.CommandLoop.run
        if self._alone:
            self._alone -= 1
            return False
        todo, append_all = self.todo, self._append_all
        assert append_all is not None
        records, attempts = [first], list[cmd.Perform]()
        while todo and len(records) + len(attempts) < 2 * MAX_BATCH:
            command = todo[0]
            if type(command) is cmd.Record:
                records.append(command)
            elif type(command) is cmd.Perform:
                attempts.append(command)
            else:
                break
            todo.popleft()
        if len(records) == 1:
            todo.extendleft(reversed(attempts))
            return False
        before = self.seq
        events = [record.event for record in records]
        for event in events:
            self.number(event)
        try:
            pending = append_all(events, sync=any(record.sync for record in records))
        except OutputNotSerializable:  # writing one by one shows which
            self.seq, self._alone = before, len(records) - 1
            todo.extendleft(reversed(attempts))
            todo.extendleft(reversed(records[1:]))
            return False
        todo.extendleft(reversed(attempts))
        is_written = pending is None or await self._wait_for_write(pending)
        run = self._machine.run
        run.receiving_batch = True
        for event in events:
            self._show_if(is_written, event)
            self.receive(event)
        run.receiving_batch = False
        for path in run.deferred_work:
            self.receive(cmd.Pulled(path, at=self.now()))
        run.deferred_work.clear()
        return True


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine whose host has it wait for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("this host has the conductor wait: await proceed()")
