"""Drives a run to its end from wherever it stands, and gives it what it waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from handrail.engine.executor import Engine
from handrail.engine.history import ended, recorded_result
from handrail.model import events as ev
from handrail.model.results import WorkflowResult
from handrail.model.shapes import WorkflowLike
from handrail.ports.journal import Journal

MOST_RESUMES = 10_000


@attrs.frozen
class Errand:
    """One run of a workflow: its id, its inputs, and what to do when it waits.

    ``answers`` are by the path of the gate. The payloads of a signal are sent one by one, whenever
    somebody waits for it.
    """

    workflow: WorkflowLike[..., Any]
    run_id: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    answers: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    signals: Mapping[str, Sequence[Any]] = attrs.field(factory=dict[str, Sequence[Any]])

    async def finish(self, executor: Engine, journal: Journal) -> WorkflowResult[Any]:
        """The result of the run: begun if the journal does not know it, else resumed, and helped
        on until it has ended or waits for what we do not have. One that has ended is not resumed.
        """
        history = journal.events(self.run_id)
        if ended(history) is not None:
            definition = self.workflow.definition
            return recorded_result(self.run_id, definition, history, journal.codec)
        if history:
            result = await executor.resume(self.run_id, self.workflow)
        else:
            begun = executor.options(run_id=self.run_id)
            result = await begun.run(self.workflow, *self.args, **self.kwargs)
        for _ in range(MOST_RESUMES):
            if result.status != "suspended" or not await self._help(executor, journal, result):
                return result
            result = await executor.resume(self.run_id, self.workflow)
        raise AssertionError(f"run {self.run_id} was suspended {MOST_RESUMES} times")

    async def _help(self, executor: Engine, journal: Journal, result: WorkflowResult[Any]) -> bool:
        """Give the run one thing that it waits for; False if we have none."""
        for gate in result.waiting:
            if gate.path in self.answers:
                answer = self.answers[gate.path]
                await executor.answer(self.run_id, gate.path, answer, by="test")
                return True
        for name in result.waiting_signals:
            sent = sum(
                isinstance(letter.event, ev.SignalReceived) and letter.event.name == name
                for letter in journal.letters(self.run_id, 0)
            )
            payloads = self.signals.get(name, ())
            if sent < len(payloads):
                await executor.signal(self.run_id, name, payloads[sent], by="test")
                return True
        return False
