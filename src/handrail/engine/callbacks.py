"""Calls of the user's functions outside of attempts: evaluations, gate handlers, rollbacks."""

from __future__ import annotations

import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from handrail.core import commands as cmd
from handrail.core.attempt_ends import rollback_event
from handrail.core.commands import AskFallback, AskPredicate, Evaluated, FindStages, Undo
from handrail.engine.calls import ActionRaised, await_value, call
from handrail.engine.current import CURRENT, Contexts, Current
from handrail.engine.loop import Loop
from handrail.engine.tasks import ABANDONED, STOPPED, Flight
from handrail.errors import (
    CancelledFromWithin,
    GateRefusal,
    HandrailError,
    InvalidAnswer,
    JournalFailed,
    LeaseLost,
    StagesMissing,
    StepTimeout,
)
from handrail.model.dataclass import dataclass
from handrail.model.results import OpenGate
from handrail.record.answers import accept_answer, policy_answer
from handrail.shortening import clean
from handrail.steps.verbs import Stage

if TYPE_CHECKING:
    from handrail.engine.portable import PortableFormat


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Calls the user's functions of one run: on the event loop, sync rollbacks in threads."""

    contexts: Contexts
    stages: Callable[[], Mapping[str, Any]]
    gates: Any
    portable_format: PortableFormat | None = None
    """Writes and reads each rollback, as if another process ran it; None: rollbacks run as is."""

    def begin(self, command: AskPredicate | AskFallback | FindStages) -> Any:
        """The value, or an awaitable of it.

        Raises:
            Exception: what the user's function raised; StagesMissing.
        """
        match command:
            case AskPredicate():
                return command.predicate(self.contexts.of(command.view))
            case AskFallback():
                return command.handler(self.contexts.of(command.view), command.failed)
            case FindStages():
                return self.find_stages(command)

    async def evaluated(self, command: AskFallback | FindStages, at: float) -> Evaluated:
        """The outcome, awaited: a value, or the exception that the user's function raised."""
        try:
            value = self.begin(command)
            if hasattr(value, "__await__"):
                value = await value
        except (Exception, GeneratorExit) as error:  # noqa: BLE001  # the user's function
            return Evaluated(command.path, error=error, at=at)
        return Evaluated(command.path, value, at=at)

    def find_stages(self, command: FindStages) -> tuple[Stage, ...]:
        """The stages of a ``validate`` step, in order.

        Raises:
            StagesMissing: there are no stages, or a name is not configured.
        """
        wanted = command.stages
        if wanted is not None and all(isinstance(item, Stage) for item in wanted) and wanted:
            return tuple(item for item in wanted if isinstance(item, Stage))
        known = self.stages()
        if wanted is None:
            wanted = tuple(known)
        missing = [item for item in wanted if isinstance(item, str) and item not in known]
        if missing or not wanted:
            raise StagesMissing(command.path, missing, tuple(known))
        return tuple(_stage(item, known) for item in wanted)

    async def answer(self, gate: OpenGate) -> tuple[Any, str]:
        """The answer of the gate handler or policy, and by which name it is recorded.

        Raises:
            Exception: there is no answer; the step fails.
        """
        if self.gates == "ask":
            return await ask_on_stdin(gate), "console"
        if isinstance(self.gates, str):
            return policy_answer(self.gates, gate), f"policy {self.gates}"
        value = self.gates(gate)
        if hasattr(value, "__await__"):
            value = await value
        return value, getattr(self.gates, "__name__", type(self.gates).__name__)

    async def undo(self, command: Undo, current: Current) -> None:
        """Run a rollback; a sync one in a thread.

        Raises:
            BaseException: what the rollback raised.
        """
        if self.portable_format is not None:
            command = self.portable_format.read_rollback(
                self.portable_format.write_rollback(command)
            )
        context = self.contexts.of(command.view)
        try:
            await call(command.rollback.action, (context,), {}, inline=False, current=current)
        except ActionRaised as carried:
            raise RuntimeError(f"rollback raised StopIteration: {carried.error}") from None


def _stage(item: str | Stage, known: Mapping[str, Any]) -> Stage:
    if isinstance(item, Stage):
        return item
    found = known[item]
    return found if isinstance(found, Stage) else Stage(item, found)


EVALUATION, GATE, ROLLBACK = "evaluation", "gate", "rollback"


class Callbacks:
    """Starts evaluations, gate handlers and rollbacks; reports their outcomes to the core. Mutable.

    ``answer`` answers a gate for its handler; ``interrupted`` gets the KeyboardInterrupt or
    SystemExit that a gate handler raised.
    """

    def __init__(
        self,
        loop: Loop,
        evaluator: Evaluator,
        *,
        answer: Callable[[str, Any, str | None], Awaitable[Any]],
        interrupted: Callable[[BaseException], None],
    ) -> None:
        self._loop = loop
        self._evaluator = evaluator
        self._answer = answer
        self._interrupted = interrupted
        self._asked: dict[str, Flight] = {}

    def finished_flight(self, flight: Flight, outcome: Any) -> None:
        """Report the outcome of a flight to the core."""
        match flight.kind:
            case "evaluation":
                self._evaluated(flight, outcome)
            case "gate":
                self._answered(flight, outcome)
            case _:
                self._undone(flight, outcome)

    # -- evaluations ----------------------------------------------------------------------------

    def evaluate(self, command: cmd.AskPredicate | cmd.AskFallback | cmd.FindStages) -> None:
        """Call a small function of the user's, or look up the stages of a validation."""
        loop = self._loop
        try:
            value = loop.context().run(self._evaluator.begin, command)
        except (Exception, GeneratorExit) as error:  # noqa: BLE001  # the user's function
            loop.receive(cmd.Evaluated(command.path, error=error, at=loop.now()))
            return
        if hasattr(value, "__await__"):
            flight = Flight(command.path, EVALUATION, command, None)
            flight.awaited = value
            loop.start(flight, lambda: await_value(value), loop.context())
        else:
            loop.receive(cmd.Evaluated(command.path, value, at=loop.now()))

    async def evaluated(self, command: cmd.AskFallback | cmd.FindStages) -> cmd.Evaluated:
        """Evaluate, and wait for the outcome."""
        return await self._evaluator.evaluated(command, self._loop.now())

    def _evaluated(self, flight: Flight, outcome: Any) -> None:
        loop = self._loop
        if outcome is STOPPED and hasattr(flight.awaited, "close"):
            flight.awaited.close()  # it was perhaps not begun, and would warn of that
        if loop.closing:
            return  # it was stopped, whatever it answered; the next drive asks again
        if outcome is STOPPED or outcome is ABANDONED:
            outcome = CancelledFromWithin(flight.path)
        if isinstance(outcome, BaseException):
            loop.receive(cmd.Evaluated(flight.path, error=outcome, at=loop.now()))
        else:
            loop.receive(cmd.Evaluated(flight.path, outcome, at=loop.now()))

    # -- gate handlers --------------------------------------------------------------------------

    def ask(self, command: cmd.Ask) -> None:
        """Start the gate handler for a gate; one that still answers its last opening is stopped."""
        self._dismiss(command.path)
        flight = Flight(command.path, GATE, command, None)
        self._asked[command.path] = flight
        self._loop.start(flight, lambda: self._answer_gate(command), self._loop.context())

    async def _answer_gate(self, command: cmd.Ask) -> tuple[HandrailError, ...]:
        """Have the gate's handler answer it; returns the failure of the run's journal, if any."""
        answer, by = await self._evaluator.answer(command.gate)
        try:
            await self._answer(command.path, answer, by)
        except (JournalFailed, LeaseLost) as error:  # not the answer's fault
            return (error,)
        return ()

    def dismiss(self) -> None:
        """Stop the handlers of closed gates: their answers no longer count."""
        gates = self._loop.machine.run.gates
        for path in [path for path in self._asked if path not in gates]:
            self._dismiss(path)

    def _dismiss(self, path: str) -> None:
        flight = self._asked.pop(path, None)
        if flight is not None and not flight.finished:
            flight.finished = True
            del self._loop.flights[path, GATE]
            self._loop.tasks.stop(flight)

    def _answered(self, flight: Flight, outcome: Any) -> None:
        loop, path = self._loop, flight.path
        if path not in loop.machine.run.gates or path in loop.machine.run.answered:
            return
        match outcome:
            case KeyboardInterrupt() | SystemExit():
                self._interrupted(outcome)
            case BaseException():
                loop.receive(cmd.GateRefused(path, outcome, at=loop.now()))
            case (HandrailError() as failure,):
                raise failure
            case _:
                pass

    # -- rollbacks ------------------------------------------------------------------------------

    def undo(self, command: cmd.Undo) -> None:
        """Start a rollback with its timeout; if this drive is closing, the next one starts it."""
        loop = self._loop
        if loop.closing:
            return
        contexts = self._evaluator.contexts
        services, config = contexts.services, contexts.config
        current = Current(
            loop.run_id, command.path, 1, services=services, config=config, mask=loop.mask
        )
        flight = Flight(command.path, ROLLBACK, command, current)
        context = loop.context()
        context.run(CURRENT.set, current)
        evaluator = self._evaluator
        loop.start(flight, lambda: evaluator.undo(command, current), context)
        loop.timers.at(loop.now() + command.rollback.timeout_s, flight)

    def _undone(self, flight: Flight, outcome: Any) -> None:
        broken_off = outcome is STOPPED or outcome is ABANDONED
        if self._loop.closing and (broken_off or isinstance(outcome, BaseException)):
            return  # interrupted: the next drive runs it again
        if flight.timed_out:
            outcome = StepTimeout(flight.path, flight.command.rollback.timeout_s)
        elif broken_off:
            outcome = CancelledFromWithin(flight.path)
        error = outcome if isinstance(outcome, BaseException) else None
        self._loop.record(rollback_event(flight.path, error))


_AT_THE_TERMINAL = threading.Lock()
"""Held while a question is on the terminal: runs in several threads take turns."""
_POLL_S = 0.05
_ENDED = (
    "gates='ask', and stdin has ended. Type the answer there, or leave gates= out: then the run is "
    "suspended, and can be answered later"
)


async def ask_on_stdin(gate: OpenGate) -> Any:
    """The answer to a gate, read from stdin; an invalid answer repeats the question.

    The question goes to stderr, so that it never mixes with data on stdout. A cancelled wait leaves
    its thread behind, and that thread consumes the next line.

    Raises:
        GateRefusal: stdin has ended.
    """
    while not _AT_THE_TERMINAL.acquire(blocking=False):  # noqa: ASYNC110  # of several loops
        await anyio.sleep(_POLL_S)
    try:
        while True:
            sys.stderr.write(_prompt(gate))
            sys.stderr.flush()
            line = await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
            if not line:
                raise GateRefusal(gate.path, _ENDED)
            text = line.strip()
            if not text and gate.has_default:
                return gate.default
            try:
                return accept_answer(gate, text)
            except InvalidAnswer as error:
                sys.stderr.write(f"{error}\n")
    finally:
        _AT_THE_TERMINAL.release()


def _prompt(gate: OpenGate) -> str:
    offered = ", ".join(str(choice) for choice in gate.choices)
    choices = f" [{clean(offered)}]" if offered else ""
    default = f" (default: {clean(str(gate.default))})" if gate.has_default else ""
    return f"{clean(gate.path, 80)}: {clean(gate.question)}{choices}{default} "
