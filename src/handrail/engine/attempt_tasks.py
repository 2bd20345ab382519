"""Starts attempts, in the driver's own task or in a task each, and records their ends."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from contextvars import Context
from functools import partial
from typing import Any, Final

import anyio
import anyio.lowlevel
import msgspec

from handrail.core import commands as cmd
from handrail.core.attempt_ends import success_event, time_bound
from handrail.core.conductor import End
from handrail.core.run_state import RunState
from handrail.engine.calls import UNBEGUN, InContext, await_value, call, is_async
from handrail.engine.claiming import Claiming
from handrail.engine.current import CURRENT, Current
from handrail.engine.loop import Loop, Skew
from handrail.engine.perform import Performer, raised_event
from handrail.engine.tasks import ABANDONED, STOPPED, AttemptStopped, Flight
from handrail.model import events as ev
from handrail.model.outcome import INTERRUPTIONS, interruption
from handrail.steps.leaves import PythonCall

TURN_STEPS = 64
"""How many steps in a row the driver's own task performs before the event loop gets a turn."""

ATTEMPT: Final = "attempt"
_NOTHING: Mapping[str, Any] = {}


class _Ended(msgspec.Struct):
    """Wraps the event that an attempt ended in, to tell it from an action's output."""

    event: Any


class Attempts:
    """The attempts of one drive. Mutable.

    With a ``durable`` journal, attempts that are interrupted are recorded as such, else as stopped.
    """

    def __init__(
        self,
        loop: Loop,
        performer: Performer,
        skew: Skew,
        claiming: Claiming,
        *,
        durable: bool,
    ) -> None:
        self.inline: Flight | None = None
        """The attempt that the driver performs in its own task now, if any."""
        self._loop, self._conductor = loop, loop.conductor
        self._performer = performer
        self._skew = skew
        self._durable = durable
        self._ticks = 0
        self._now = loop.conductor.now
        self._run_id, self._mask = loop.conductor.run_id, loop.mask
        self._context, self._by_hand = loop.context, loop.tasks.by_hand
        self._in_place = performer.in_place
        self._surrounded = bool(performer.around) or performer.portable_format is not None
        self._claiming = claiming
        contexts = performer.contexts
        self._services, self._config = contexts.services, contexts.config

    # -- in the driver's own task ---------------------------------------------------------------

    async def perform_here(self, command: cmd.Perform) -> ev.Event | None:  # noqa: C901, PLR0912  # runs for each step, and a call costs as much as most of its lines
        """Perform an attempt on the fast road (see ``engine.driver``); the event of its end.
        None: it was stopped or interrupted, or the core decides about a failed launch.
        """
        # fast road of perform.Performer.perform
        # fast road of tasks.AsyncioTasks.inline
        self._ticks += 1
        if self._ticks >= TURN_STEPS:
            self._ticks = 0
            await anyio.lowlevel.checkpoint()
        context = self._context()
        context.run(CURRENT.set, current := self._current(command))
        before_s = self._skew.total_s
        timed = command.step.modifiers.timeout_s is not None
        due = self._now() + time_bound(command, 0.0)[0] if timed else None
        try:
            verb: Any = command.step.verb
            watch = self._in_place
            if (
                type(verb) is not PythonCall
                or self._surrounded
                or (watch is not None and watch.may_change(verb))
            ):
                coroutine = self._performed(command, current)
            elif is_async(verb.action):
                coroutine = verb.action(*verb.args, **(verb.kwargs or _NOTHING))
            elif command.step.modifiers.inline:
                value = context.run(verb.action, *verb.args, **(verb.kwargs or _NOTHING))
                if not hasattr(value, "__await__"):
                    return success_event(command, value, None, self._now())
                coroutine = await_value(value)
            else:
                kwargs = verb.kwargs or _NOTHING
                coroutine = call(verb.action, verb.args, kwargs, inline=False, current=current)
            if self._by_hand:
                try:
                    first = context.run(coroutine.send, None)
                except StopIteration as stop:
                    outcome = stop.value
                else:
                    outcome = await self._finish_here(command, coroutine, context, first, due)
            else:
                outcome = await self._finish_here(command, coroutine, context, UNBEGUN, due)
        except AttemptStopped:
            return None
        except INTERRUPTIONS as error:
            self.on_interrupted(command.path, error)
            return None
        except BaseException as error:  # whatever an action raises fails its step
            if isinstance(error, anyio.get_cancelled_exc_class()) and not cancelled_itself():
                self._note_interruption(command.path, "cancelled")
                raise
            try:
                return raised_event(command, error)
            except INTERRUPTIONS as raised:  # by the predicate of .retry(on=)
                self.on_interrupted(command.path, raised)
                return None
        if type(outcome) is _Ended:
            ended: ev.Event | cmd.LaunchFailed = outcome.event
            if isinstance(ended, cmd.LaunchFailed):
                self._conductor.receive(ended)
                return None
            return ended
        return success_event(command, outcome, None, self._now() - (self._skew.total_s - before_s))

    def _current(self, command: cmd.Perform) -> Current:
        return Current(
            self._run_id,
            command.path,
            command.attempt,
            command.interrupted,
            False,  # noqa: FBT003  # by position, for speed: not cancelled
            self._services,
            self._config,
            self._mask,
            command.tree,
        )

    async def _performed(self, command: cmd.Perform, current: Current) -> _Ended:
        claims_of = self._claiming.of_launch
        return _Ended(await self._performer.perform(command, current, claims_of))

    async def _finish_here(
        self,
        command: cmd.Perform,
        coroutine: Any,
        context: Context,
        first: Any,
        due: float | None,
    ) -> Any:
        """Await the rest of an attempt that did not end at once, so that it can be stopped."""
        flight = Flight(command.path, ATTEMPT, command)
        self.inline = flight
        self._loop.stop_inline_if_asked(flight)
        watch = None if due is None else self._stop_in_time(flight, due)
        try:
            return await self._loop.tasks.inline(flight, InContext(coroutine, context, first))
        except AttemptStopped as stopped:
            self._stopped_here(flight, abandoned=stopped.abandoned)
            raise
        finally:
            self.inline = None
            if watch is not None:
                self._loop.tasks.stop(watch)
            self._loop.left_inline()

    def _stop_in_time(self, flight: Flight, due: float) -> Flight:
        """Have a task stop an attempt in the driver's own task once its time is over."""
        loop, skew, clock = self._loop, self._skew, self._performer.clock
        now, before_s, never = self._now, skew.total_s, anyio.Event()

        async def wait() -> None:
            while (until := due + skew.total_s - before_s) > now():
                await clock.wait(never, until, busy=1)
                loop.look_at_clock()
            if self.inline is flight and not flight.stopping:
                flight.timed_out = True
                loop.stop_inline()

        watch = Flight(flight.path, "timeout", None)
        watch.finished = True
        loop.tasks.start(watch, wait, loop.context())
        return watch

    def _stopped_here(self, flight: Flight, *, abandoned: bool) -> None:
        """Report the stop behind urgent messages: they say why the attempt was stopped."""
        command: cmd.Perform = flight.command
        known = self._broken_off(flight.path)
        end = cmd.Stopped(flight.path, command.attempt, abandoned, known)
        self._conductor.queue_job(lambda: self._conductor.on_stopped(flight, command, end))

    def _report_stop(self, path: str, attempt: int, *, abandoned: bool = False) -> None:
        self._conductor.report_stop(path, attempt, self._broken_off(path), abandoned=abandoned)

    def _broken_off(self, path: str) -> cmd.BrokenOff:
        return self._performer.broken_off.pop(path, cmd.NOTHING_KNOWN)

    # -- in a task of its own -------------------------------------------------------------------

    def perform(self, command: cmd.Perform) -> None:
        """Start an attempt in a task of its own."""
        conductor, path = self._conductor, command.path
        flight: Flight = conductor.flights[path, ATTEMPT]
        flight.current = current = self._current(command)
        context = self._context()
        context.run(CURRENT.set, current)
        self._loop.start(flight, lambda: self._at_work(command, current), context)
        if command.deadline is not None or command.step.modifiers.timeout_s is not None:
            conductor.limit(path, ATTEMPT, time_bound(command, conductor.now())[0])

    async def _at_work(self, command: cmd.Perform, current: Current) -> Any:
        claiming = self._claiming
        perform = partial(self._performer.perform, command, current, claiming.of_launch)
        if claiming.depends_on_claims(command.path):
            return await claiming.guarded(command, perform)
        return await perform()

    def end_of(self, flight: Flight, outcome: Any) -> End:
        """How an attempt that had a task of its own has ended."""
        command, path = flight.command, flight.path
        if flight.stopping or outcome is STOPPED or outcome is ABANDONED:
            abandoned, known = outcome is ABANDONED, self._broken_off(path)
            return cmd.Stopped(path, command.attempt, abandoned, known, self._conductor.now())
        if isinstance(outcome, BaseException):
            return raised_event(command, outcome)
        end: End = outcome
        return end

    def on_interrupted(self, path: str, error: BaseException) -> None:
        """End the drive, because an action raised KeyboardInterrupt or SystemExit."""
        self._note_interruption(path, interruption(error))
        self._loop.on_escaped(error)

    def _note_interruption(self, path: str, reason: str) -> None:
        if self._durable:
            self._conductor.record(ev.StepInterrupted(path, reason, self._broken_off(path).own))
        else:
            node = self._conductor.machine.run.nodes.get(path)
            if node is not None:
                attempt = node.attempt
                self._conductor.queue_job(lambda: self._report_stop(path, attempt))


def cancelled_itself() -> bool:
    """True if the action raised a cancellation by itself: this asyncio task was not cancelled."""
    with contextlib.suppress(RuntimeError):
        import asyncio

        task = asyncio.current_task()
        return task is not None and task.cancelling() == 0
    return False


PAUSED_S = 5.0
"""How long, at least, an idle drive of a paused run waits for ``unpause`` before it suspends."""


def idle_wait_s(linger_s: float, run: RunState) -> float:
    """How long an idle drive waits for an answer, a signal or ``unpause`` before it suspends."""
    if run.paused is not None:
        return max(linger_s, PAUSED_S)
    return linger_s if run.gates or run.listeners else 0.0
