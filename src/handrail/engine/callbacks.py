"""Calls of the user's functions outside of attempts: evaluations, gate handlers, rollbacks."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

import anyio
import anyio.to_thread

from handrail.core import commands as cmd
from handrail.core.attempt_ends import rollback_event
from handrail.core.commands import AskFallback, AskPredicate, Evaluated, FindStages, Undo
from handrail.core.conductor import Question
from handrail.engine.attempt_tasks import cancelled_itself
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
)
from handrail.model import outcome as outcomes
from handrail.model.dataclass import dataclass
from handrail.model.outcome import INTERRUPTIONS
from handrail.model.results import OpenGate, answer_words
from handrail.ports.journal import WhenFree
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
            case _:
                assert_never(command)

    async def evaluated(self, command: AskFallback | FindStages, at: float) -> Evaluated:
        """The outcome, awaited: a value, or the exception that the user's function raised."""
        try:
            value = self.begin(command)
            if hasattr(value, "__await__"):
                value = await value
        except BaseException as error:
            is_cancelled = isinstance(error, anyio.get_cancelled_exc_class())
            if isinstance(error, INTERRUPTIONS) or (is_cancelled and not cancelled_itself()):
                raise
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
            wanted = tuple(name for name, stage in known.items() if not isinstance(stage, Mapping))
        in_sets = ((item,) if isinstance(item, Stage) else _named(item, known) for item in wanted)
        wanted = tuple(dict.fromkeys(item for items in in_sets for item in items))
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
            from handrail.record.answers import policy_answer

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


def _named(name: str, known: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of a set of stages, ``{"stages": [...]}``; of a stage its own."""
    given = known.get(name)
    return tuple(given["stages"]) if isinstance(given, Mapping) else (name,)


def _stage(item: str | Stage, known: Mapping[str, Any]) -> Stage:
    if isinstance(item, Stage):
        return item
    parameters = known[item]
    return parameters if isinstance(parameters, Stage) else Stage(item, parameters)


class Callbacks:
    """Starts evaluations, gate handlers and rollbacks; reports their outcomes to the core. Mutable.

    ``answer`` answers a gate for its handler.
    """

    def __init__(
        self,
        loop: Loop,
        evaluator: Evaluator,
        *,
        answer: Callable[[str, Any, str | None], Any],
        when_free: WhenFree,
    ) -> None:
        self._loop, self._conductor = loop, loop.conductor
        self._evaluator = evaluator
        self._answer, self._when_free = answer, when_free

    def on_finished(self, flight: Flight, outcome: Any) -> None:
        """Report the outcome of a flight to the core."""
        match flight.kind:
            case "evaluation":
                self._on_evaluated(flight, outcome)
            case "gate":
                self._on_answered(flight, outcome)
            case "rollback":
                self._on_undone(flight, outcome)
            case _:
                raise AssertionError(flight.kind)

    # -- evaluations and gate handlers ----------------------------------------------------------

    def evaluate(self, question: Question) -> None:
        """Call a small function of the user's, look up stages, or start a gate's handler."""
        loop = self._loop
        if isinstance(question, cmd.Ask):
            asked: Flight = self._conductor.flights[question.path, "gate"]
            loop.start(asked, lambda: self._answer_gate(asked, question), loop.context())
            return
        self._begun(question, *outcomes.call(loop.context().run, self._evaluator.begin, question))

    def answered_at_once(self, question: cmd.AskPredicate) -> cmd.Evaluated | None:
        """Call a predicate; its answer, or None if that is awaited, or the drive is to end."""
        loop = self._loop
        if self._conductor.ends is not None:
            return None  # the next drive asks
        what, value = outcomes.call(loop.context().run, self._evaluator.begin, question)
        if what == outcomes.RAISED:
            return cmd.Evaluated(question.path, error=value, at=self._conductor.now())
        if what == outcomes.RETURNED and not hasattr(value, "__await__"):
            return cmd.Evaluated(question.path, value, at=self._conductor.now())
        self._conductor.flights[question.path, "evaluation"] = Flight(
            question.path, "evaluation", question
        )
        self._begun(question, what, value)
        return None

    def _begun(self, question: Question, what: int, value: Any) -> None:
        loop, conductor = self._loop, self._conductor
        if what == outcomes.RETURNED and hasattr(value, "__await__"):
            flight: Flight = conductor.flights[question.path, "evaluation"]
            flight.awaited = value
            loop.start(flight, lambda: await_value(value), loop.context())
        elif what == outcomes.RETURNED:
            conductor.evaluated(question, value)
        else:
            self._on_raised(question, value)

    def _on_raised(self, question: Question, error: BaseException) -> None:
        """Report what a user's function raised; an interruption also ends the drive, which must not
        wait for an answer.
        """
        if isinstance(error, INTERRUPTIONS):
            self._loop.on_escaped(error)
            self._conductor.queue_job(partial(self._conductor.evaluated, question, error=error))
        else:
            self._conductor.evaluated(question, error=error)

    def _on_evaluated(self, flight: Flight, outcome: Any) -> None:
        if outcome is STOPPED and hasattr(flight.awaited, "close"):
            flight.awaited.close()  # it was perhaps not begun, and would warn of that
        value, error = _ended(flight, outcome)
        if error is None:
            self._conductor.evaluated(flight.command, value)
        else:
            self._on_raised(flight.command, error)

    async def _answer_gate(self, asked: Flight, command: cmd.Ask) -> tuple[HandrailError, ...]:
        """Have the gate's handler answer it; returns the failure of the run's journal, if any."""
        answer, by = await self._evaluator.answer(command.gate)
        if self._conductor.flights.get((command.path, "gate"), asked) is not asked:
            return ()  # the gate has opened again, and is another handler's to answer
        try:
            await self._when_free(partial(self._answer, command.path, answer, by))
        except (JournalFailed, LeaseLost) as error:  # not the answer's fault
            return (error,)
        return ()

    def _on_answered(self, flight: Flight, outcome: Any) -> None:
        conductor, path = self._conductor, flight.path
        conductor.remove_flight(path, "gate")
        if path not in conductor.machine.run.gates or path in conductor.machine.run.answered:
            return
        if outcome is STOPPED and not flight.stopping:
            outcome = CancelledFromWithin(path)
        match outcome:
            case KeyboardInterrupt() | SystemExit():
                self._loop.on_escaped(outcome)
            case BaseException():
                conductor.receive(cmd.GateRefused(path, outcome, at=conductor.now()))
            case (HandrailError() as failure,):
                raise failure
            case _:
                pass

    # -- rollbacks ------------------------------------------------------------------------------

    def undo(self, command: cmd.Undo) -> None:
        """Start a rollback with its timeout."""
        loop, conductor = self._loop, self._conductor
        evaluator, path = self._evaluator, command.path
        contexts = evaluator.contexts
        services, config = contexts.services, contexts.config
        current = Current(
            conductor.run_id, path, 1, services=services, config=config, mask=loop.mask
        )
        flight: Flight = conductor.flights[path, "rollback"]
        flight.current = current
        context = loop.context()
        context.run(CURRENT.set, current)
        loop.start(flight, lambda: evaluator.undo(command, current), context)
        conductor.limit(path, "rollback", command.rollback.timeout_s)

    def _on_undone(self, flight: Flight, outcome: Any) -> None:
        _, error = _ended(flight, outcome)
        self._conductor.undone(flight.path, rollback_event(flight.path, error))


def _ended(flight: Flight, outcome: Any) -> tuple[Any, BaseException | None]:
    """What a flight returned, and what it raised."""
    if outcome is STOPPED or outcome is ABANDONED:
        return None, CancelledFromWithin(flight.path)
    return (None, outcome) if isinstance(outcome, BaseException) else (outcome, None)


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
        from handrail.record.answers import accept_answer

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
    offered = ", ".join(answer_words(gate.choices, gate.values))
    choices = f" [{clean(offered)}]" if offered else ""
    default = f" (default: {clean(str(gate.default))})" if gate.has_default else ""
    return f"{clean(gate.path, 80)}: {clean(gate.question)}{choices}{default} "
