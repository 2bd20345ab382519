"""Keeps what a step started from steering runs of the step's journal."""

from __future__ import annotations

from handrail.errors import CannotSteer
from handrail.system.marker import enclosing_step


def sender(run_id: str, journal: str, by: str | None, *, may: bool = False) -> str | None:
    """Who sends a message to a run, for its record: ``by``, or the step that this process is in.

    ``may``: a step may send it to the run that it is part of, and to others of its journal.

    Raises:
        CannotSteer: it is in a step of the run, or of another run in its journal, and may not.
    """
    step = enclosing_step(run_id, journal)
    if step is not None and not may:
        why = f"{step} cannot steer it: what a step starts steers no run of the step's journal"
        raise CannotSteer(run_id, why, "A person can, from a process that no step started.")
    step = step or enclosing_step()
    return by if step is None else str(step)
