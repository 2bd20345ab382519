"""``handrail run --run-id`` of a run that is there already: it goes on, or gives its result."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import Parameter
from typing import Any

from handrail.cli.driving import Session
from handrail.cli.exits import Refused
from handrail.cli.resume import Choices, drive_again
from handrail.engine.history import history_of, inputs_of
from handrail.model.definition import WorkflowDefinition
from handrail.ports.journal import Journal, RunInfo
from handrail.record.run_record import Recorded
from handrail.typed.jsonsafe import short_repr


def go_on(info: RunInfo, workflow: Any, given: Mapping[str, Any], session: Session) -> int:
    """Resume the run with what was recorded; the exit code.

    Raises:
        Refused: it is another workflow's, it was given other inputs, or it was cancelled.
    """
    definition: WorkflowDefinition = workflow.definition
    another = "Leave out --run-id to start another run."
    if info.workflow_name != definition.name:
        why = f"is one of workflow {info.workflow_name!r}, not of {definition.name!r}"
        raise Refused(f"run {info.run_id}", why, another)
    if info.status == "cancelled" and info.holder is None:
        resume = session.place.command("resume", info.run_id)
        raise Refused(f"run {info.run_id}", "was cancelled", f"{resume} goes on with it. {another}")
    _compare(info.run_id, definition, given, session.journal)
    return drive_again(info, workflow, Choices(), session)


def _compare(
    run_id: str, definition: WorkflowDefinition, given: Mapping[str, Any], journal: Journal
) -> None:
    recorded = inputs_of(Recorded(history_of(journal, run_id)), definition, journal.codec)
    kinds = {parameter.name: parameter.kind for parameter in definition.parameters}
    rest = next((name for name, kind in kinds.items() if kind is Parameter.VAR_KEYWORD), None)
    for name, value in given.items():
        of = recorded if name in kinds else recorded.get(rest or "", {})
        then, now = of.get(name), value
        if kinds.get(name) is Parameter.VAR_POSITIONAL:
            then, now = tuple(then or ()), tuple(value)
        if name not in of or journal.codec.identity(now) != journal.codec.identity(then):
            why = f"it was started with {name}={short_repr(then)}, not {short_repr(now)}"
            hint = "Leave the inputs out to go on with it; leave out --run-id to start another run."
            raise Refused(f"run {run_id}", why, hint)
