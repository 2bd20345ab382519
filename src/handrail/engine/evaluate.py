"""Calls the user's small functions: predicates, handlers, gate handlers, rollbacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from handrail.core.answers import by_policy
from handrail.core.commands import AskFallback, AskPredicate, Evaluated, FindStages, Undo
from handrail.engine.calls import ActionRaised, call
from handrail.engine.contexts import Contexts
from handrail.engine.current import Current
from handrail.errors import StagesMissing
from handrail.model.results import OpenGate
from handrail.steps.verbs import Stage


@attrs.frozen
class Evaluator:
    """Evaluates for one run; sync functions run on the event loop, rollbacks in threads."""

    contexts: Contexts
    stages: Callable[[], Mapping[str, Any]]
    gates: Any

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
        """The value, waited for, or what the user's function raised."""
        try:
            value = self.begin(command)
            if hasattr(value, "__await__"):
                value = await value
        except Exception as error:  # noqa: BLE001  # the user's function
            return Evaluated(command.path, error=error, at=at)
        return Evaluated(command.path, value, at=at)

    def find_stages(self, command: FindStages) -> tuple[Stage, ...]:
        """The stages of a ``validate`` step, in order.

        Raises:
            StagesMissing: there is none, or a name is not configured.
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
        """What the gate handler or the policy answers, and who that is.

        Raises:
            Exception: it has no answer; the step fails.
        """
        if isinstance(self.gates, str):
            return by_policy(self.gates, gate), f"policy {self.gates}"
        value = self.gates(gate)
        if hasattr(value, "__await__"):
            value = await value
        return value, getattr(self.gates, "__name__", type(self.gates).__name__)

    async def undo(self, command: Undo, current: Current) -> None:
        """Run a rollback; sync ones in a thread.

        Raises:
            BaseException: what it raised.
        """
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
