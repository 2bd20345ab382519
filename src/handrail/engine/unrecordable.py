"""What is recorded in the place of an end whose value cannot be."""

from __future__ import annotations

from dataclasses import replace

from handrail.errors import OutputNotSerializable
from handrail.model import events as ev
from handrail.model.described import bases_of
from handrail.model.results import StepResult, qualified
from handrail.steps.verbs import LEAF_KINDS


def instead(event: ev.Event, error: OutputNotSerializable, *, settled: bool) -> ev.Event:
    """The failure to record instead of this end; ``settled``: it is no longer an attempt that ends,
    but the step, with the output of a fallback, say.

    Raises:
        OutputNotSerializable: the event is no end of a step; nobody can go on from it.
    """
    kind, bases, said = qualified(type(error)), bases_of(error), str(error)
    match event:
        case ev.StepCompleted(result=result) if (
            not settled and result.status == "succeeded" and result.step_type in LEAF_KINDS
        ):
            return ev.AttemptFailed(event.path, result.attempts, said, kind, bases, retryable=False)
        case ev.StepCompleted() | ev.MemberCompleted():
            failed: StepResult[object] = replace(
                event.result,
                status="failed",
                output=None,
                error=said,
                error_type=kind,
                error_bases=bases,
                traceback=None,
            )
            return replace(event, result=failed, composed="")
        case ev.AttemptFailed():
            return replace(event, output=None)
        case _:
            raise error
