"""Where a drive goes on from: what of a run's record still counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from handrail.engine.parts import Start
from handrail.model import events as ev
from handrail.model.definition import WorkflowDefinition
from handrail.record.dropped import cancelled_half_way
from handrail.record.inbox import asked_to_cancel
from handrail.record.reading import (
    dropped,
    inputs_of,
    refuse_partially_compensated,
    refuse_without_inputs,
)
from handrail.record.run_record import Recorded

if TYPE_CHECKING:
    from handrail.codec.codec import Codec


def start_after(
    history: Sequence[ev.Event],
    definition: WorkflowDefinition,
    codec: Codec,
    *,
    letters: Sequence[ev.Event] = (),
    late: int = 0,
    reuse: Sequence[str] = (),
    rerun: Sequence[str] = (),
    cancel: str | None = None,
    recorded: Recorded | None = None,
) -> Start:
    """Where a drive goes on from. ``letters`` are messages that came since, numbered ``late`` that
    which came too late for the last drive; ``cancel`` says why the run is only to unwind;
    ``recorded`` has read the history already, and is closed here.

    Raises:
        NotRecorded, WrongUse, Unresolvable, DefinitionError: as ``Executor.resume``.
    """
    run_id = history[0].run_id
    for number, event in enumerate(letters, len(history) + 2):
        ev.stamp(event, run_id, number, event.at)
    cancel = cancel or asked_to_cancel([*history, *letters])
    unwinds = cancel is not None
    gone = cancelled_half_way(history) if unwinds else dropped(history, reuse, rerun)
    if recorded is None:
        recorded = Recorded()
        recorded.take(history)
    recorded.take(letters)
    recorded.close(gone)
    refuse_partially_compensated(recorded, run_id, rerun)
    recorded.read_messages(late)
    recorded.reused.update(reuse)
    recorded.unwinds = unwinds
    recorded.run_again(rerun)
    inputs = inputs_of(recorded, definition, codec)
    refuse_without_inputs(run_id, definition, inputs)
    return Start(
        definition,
        run_id,
        inputs,
        ev.RunResumed(gone, tuple(reuse), tuple(rerun), definition.name, late),
        recorded,
        len(history),
        tuple(letters),
        cancel,
        history[-1].at,
    )
