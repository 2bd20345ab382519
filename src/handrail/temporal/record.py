"""What a cluster run's record yields: a result, labels, and a journal in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from handrail.codec.codec import Codec
from handrail.journals.memory import MemoryJournal
from handrail.model import events as ev
from handrail.model.definition import WorkflowDefinition
from handrail.model.results import WorkflowResult
from handrail.record.answers import accept_answer, check_payload
from handrail.record.inbox import gate_in
from handrail.record.reading import recorded_result
from handrail.record.run_record import Recorded


class Scratch(MemoryJournal):
    """A journal in memory that stands for a cluster's runs. Mutable, as that is."""

    def __init__(self, codec: Codec, identity: str) -> None:
        super().__init__(codec=codec)
        self.identity = identity


def scratch(codec: Codec, identity: str, *histories: Sequence[ev.Event]) -> Scratch:
    """A journal with these runs of a cluster, for operations that need only their records."""
    journal = Scratch(codec, identity)
    for history in histories:
        if history:
            journal.append_run(history)
    return journal


def result_of(
    run_id: str,
    definition: WorkflowDefinition,
    history: Sequence[ev.Event],
    codec: Codec,
    *,
    after: int = 0,
    suspended: ev.RunSuspended | None = None,
) -> WorkflowResult[Any]:
    """The result of a run, from its record; ``suspended`` is needed if the run has not ended.

    Steps that ended at event number ``after`` or before count as replayed.
    """
    result = recorded_result(run_id, definition, history, codec, suspended)
    now = {event.path for event in history if event.seq > after and isinstance(event, ev.Ended)}
    steps = tuple(
        dataclasses.replace(one, replayed=False) if one.path in now else one
        for one in result.step_results
    )
    return dataclasses.replace(result, step_results=steps)


def accepted_by(history: Sequence[ev.Event], event: ev.Event, now: float) -> ev.Event:
    """A message as the run of this record accepts it, for example with its answer converted.

    Steering of a step is checked once the run is driven.

    Raises:
        HandrailError: the run refuses it.
    """
    match event:
        case ev.GateAnswered(path=path):
            gate = gate_in(Recorded(history), path, now)
            return ev.GateAnswered(path, accept_answer(gate, event.answer), event.by)
        case ev.SignalReceived(name=name):
            types = Recorded(history).awaited_types().get(name)
            if types:
                check_payload(name, event.payload, types, 0)
            return event
        case _:
            return event


def labels_of(history: Sequence[ev.Event]) -> Mapping[str, str]:
    """The labels that the run was started with."""
    first = history[0]
    return first.labels if isinstance(first, ev.WorkflowStarted) else {}
