"""Writes and shows the events that a resume's rehearsal (``core.rehearsal``) found."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence

import anyio
import anyio.lowlevel

from handrail.core.rehearsal import Rehearsal
from handrail.engine.bus import warn
from handrail.model import events as ev

EVENTS_A_TURN = 64
"""How many events are written and shown before the loop gets a turn."""


async def write_out(written: Iterable[Awaitable[None] | None]) -> None:
    """Journal the events that a rehearsal found, and show them (``Conductor.write_out``).

    All of them are numbered, so none may be missing: if the task is cancelled meanwhile, all is
    written before the cancellation is raised.
    """
    cancelled: BaseException | None = None
    for count, pending in enumerate(written):
        try:
            if pending is not None:
                await pending
            if count % EVENTS_A_TURN == 0 and cancelled is None:
                await anyio.lowlevel.checkpoint()
        except anyio.get_cancelled_exc_class() as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def warn_of_masked(run_id: str, rehearsal: Rehearsal) -> None:
    """Log which replayed outputs differ from the originals: a secret was cut before recording."""
    paths = [
        event.path
        for event, _ in rehearsal.happened
        if type(event) is ev.StepReplayed and event.result is not None and event.result.masked
    ]
    if paths:
        warn("outputs replay masked", run_id=run_id, paths=paths)


def warn_of_missing(run_id: str, variables: Sequence[str]) -> None:
    """Log the variables that a record needs and that are not set: ``${NAME}`` stands for them."""
    warn("secrets are not set here: ${NAME} stands for them", run_id=run_id, variables=variables)
