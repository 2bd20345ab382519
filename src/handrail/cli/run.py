"""``handrail run``: a workflow, from a TARGET and inputs to an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs

from handrail.cli.again import go_on
from handrail.cli.agents import agent_labels, as_recorded
from handrail.cli.channels import json_channel
from handrail.cli.driving import Options, Session
from handrail.cli.exits import Refused
from handrail.cli.inputs import arguments_for, given_inputs
from handrail.cli.journal import Place
from handrail.cli.origin import labels_of
from handrail.cli.run_ids import of_this_id
from handrail.cli.target import load
from handrail.errors import RunIdTaken
from handrail.ports.journal import RunInfo


@attrs.frozen
class Wanted:
    """Which run: a TARGET, its inputs as they were typed and a file of more, and perhaps an id."""

    target: str
    typed: Sequence[str] = ()
    file: Path | None = None
    run_id: str | None = None
    new: bool = False


def run(wanted: Wanted, options: Options, place: Place) -> int:
    """Run a workflow to its end, or go on with the run of that id; the exit code.

    Raises:
        HandrailError: the target or the inputs are wrong, and nothing was run.
    """
    with json_channel(wanted=options.as_json) as data:
        workflow = load(wanted.target)
        known = None if wanted.run_id is None else _known(wanted.run_id, place)
        if known is not None and wanted.new:
            raise RunIdTaken(known.run_id)
        if known is not None:
            given = given_inputs(workflow.definition, wanted.typed, wanted.file)
            options = as_recorded(options, known.labels)
            return go_on(known, workflow, given, Session(options, data, place, place.find()))
        args, kwargs = arguments_for(workflow.definition, wanted.typed, wanted.file)
        labels = {**labels_of(wanted.target, workflow, place), **agent_labels(options)}
        session = Session(options, data, place, place.make())
        return session.drive(
            lambda executor: executor.options(run_id=wanted.run_id, labels=labels).stream(
                workflow, *args, **kwargs
            )
        )


def _known(run_id: str, place: Place) -> RunInfo | None:
    _check_id(run_id)
    return of_this_id(place.find(), run_id) if place.is_there() else None


def _check_id(run_id: str) -> None:
    if not run_id or run_id != run_id.strip() or not run_id.isprintable() or len(run_id) > 120:
        why = "is no run id: 1 to 120 printable characters, without blanks at its edges"
        raise Refused(f"--run-id {run_id!r}", why)
