"""``handrail cancel``: a run is stopped and undone, by the process that drives it, or by this."""

from __future__ import annotations

from typing import Any

import anyio

from handrail import Executor
from handrail.cli.channels import json_channel, tell, write_json
from handrail.cli.driving import Options, Session
from handrail.cli.exits import Exit
from handrail.cli.journal import Place
from handrail.cli.origin import workflow_of
from handrail.cli.run_ids import exactly, picked
from handrail.cli.run_state import as_data, state_of, told
from handrail.errors import WorkflowNotFound
from handrail.ports.journal import Journal, RunInfo

EVERY_S = 0.05
_OVER = frozenset({"succeeded", "failed", "cancelled"})


def cancel(
    name: str,
    reason: str,
    place: Place,
    options: Options,
    *,
    timeout_s: float,
    target: str | None = None,
) -> int:
    """Cancel a run, and wait until it has ended; 0 if it was cancelled, by whomever.

    Raises:
        HandrailError: there is no such run, or its workflow is not to be had.
    """
    with json_channel(wanted=options.as_json) as data:
        journal = place.find()
        session = Session(options, data, place, journal)
        info = picked(journal, name)
        if state_of(info) in _OVER:
            return _told(info, f"run {info.run_id} has {_ended(info)} before", session)
        if info.holder is None or not _asked(journal, info, reason):
            code = _unwind(info, reason, session, target)
            return Exit.SUCCEEDED if code == Exit.CANCELLED else code
        if not options.quiet:
            tell(f"run {info.run_id}: asked process {info.holder.pid} to cancel it")
        return _wait(info, session, timeout_s)


def _asked(journal: Journal, info: RunInfo, reason: str) -> bool:
    """True if whoever drives the run was asked; False if nobody does any more."""
    try:
        Executor(journal=journal).cancel_sync(info.run_id, reason)
    except WorkflowNotFound:
        return False
    return True


def _unwind(info: RunInfo, reason: str, session: Session, target: str | None) -> int:
    """Resume it only to unwind it, here."""
    run_id = info.run_id
    workflow: Any = workflow_of(info, session.place, target)
    return session.drive(
        lambda executor: executor.held(run_id, lambda: executor.cancel(run_id, reason, workflow))
    )


def _wait(info: RunInfo, session: Session, timeout_s: float) -> int:
    """Wait for the process that was asked."""
    info = anyio.run(_once_over, session.journal, info, timeout_s)
    if info.holder is None:
        return _told(info, f"run {info.run_id} has {_ended(info)}", session)
    what = f"run {info.run_id} was asked, and is not done after {timeout_s:g} s: {told(info)}"
    return _told(info, what, session)


async def _once_over(journal: Journal, info: RunInfo, timeout_s: float) -> RunInfo:
    """The run as it stands when nobody drives it any more, or after that time."""
    with anyio.move_on_after(timeout_s):
        while info.holder is not None:
            await anyio.sleep(EVERY_S)
            info = exactly(journal.runs(), info.run_id) or info
    return info


def _told(info: RunInfo, what: str, session: Session) -> int:
    if session.data is not None:
        write_json(as_data(info), session.data)
    if not session.options.quiet:
        tell(what)
    return Exit.SUCCEEDED if state_of(info) == "cancelled" else Exit.FAILED


def _ended(info: RunInfo) -> str:
    """How it ended, to go with "has": a run may have succeeded meanwhile, or failed to unwind."""
    state = state_of(info)
    return f"been {state}" if state == "cancelled" else state
