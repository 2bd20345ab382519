"""``handrail resume``: a run that was killed, interrupted, suspended, or that failed, goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from handrail.cli.agents import as_recorded
from handrail.cli.channels import json_channel, tell
from handrail.cli.driving import Options, Session
from handrail.cli.exits import Refused
from handrail.cli.journal import Place
from handrail.cli.origin import workflow_of
from handrail.cli.run_ids import picked
from handrail.cli.run_state import state_of
from handrail.ports.journal import Journal, RunInfo


@attrs.frozen
class Choices:
    """What counts of steps that changed: paths whose record is kept, and paths that run again."""

    reuse: Sequence[str] = ()
    rerun: Sequence[str] = ()

    @property
    def words(self) -> list[str]:
        """What to type for them."""
        reuse = [word for path in self.reuse for word in ("--reuse", path)]
        return reuse + [word for path in self.rerun for word in ("--rerun", path)]


def resume(
    name: str | None,
    options: Options,
    place: Place,
    *,
    latest: bool = False,
    choices: Choices,
    target: str | None = None,
) -> int:
    """Go on with a run; the exit code.

    Raises:
        HandrailError: there is no such run, or its workflow is not to be had; nothing was run.
    """
    with json_channel(wanted=options.as_json) as data:
        journal = place.find()
        info = _picked(journal, name, latest=latest)
        workflow = workflow_of(info, place, target)
        place = attrs.evolve(place, target=target)
        options = as_recorded(options, info.labels)
        return drive_again(info, workflow, choices, Session(options, data, place, journal))


def drive_again(info: RunInfo, workflow: Any, choices: Choices, session: Session) -> int:
    """Resume a run whose workflow is loaded; the exit code."""
    if state_of(info) == "succeeded" and not choices.rerun:
        tell(f"run {info.run_id} has succeeded already; this is its recorded result")
    reuse, rerun = choices.reuse, choices.rerun
    return session.drive(
        lambda executor: executor.held(
            info.run_id,
            lambda: executor.resume(info.run_id, workflow, reuse=reuse, rerun=rerun),
        )
    )


def _picked(journal: Journal, name: str | None, *, latest: bool) -> RunInfo:
    if latest == (name is not None):
        why = "takes either a run's id or --latest" + ("" if latest else ", and has neither")
        raise Refused("resume", why, "handrail runs lists them.")
    return picked(journal, name)
