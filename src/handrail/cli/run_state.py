"""How a run stands, in one word, and when things happened, for people."""

from __future__ import annotations

import platform
import time
from typing import Any, Literal, TypeAlias

from handrail.cli.target import target_of
from handrail.model.results import RunStatus
from handrail.ports.journal import RunInfo

RunState: TypeAlias = RunStatus | Literal["running", "dead", "damaged"]
"""``dead``: it has no end, and nobody drives it. ``damaged``: its record is not as it was."""


def state_of(info: RunInfo) -> RunState:
    """How the run stands."""
    if info.damaged:
        return "damaged"
    if info.holder is not None:
        return "running"
    return info.status or "dead"


def told(info: RunInfo) -> str:
    """The same, with the process that drives it."""
    holder = info.holder
    if holder is None or info.damaged:
        return state_of(info)
    where = "" if holder.host == platform.node() else f" on {holder.host}"
    return f"running (pid {holder.pid}{where})"


def moment(at: float) -> str:
    """A time of day, with its date, as it is here."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def as_data(info: RunInfo) -> dict[str, Any]:
    """All there is to say of it, JSON-safe; times are unix seconds."""
    holder = info.holder
    return {
        "run_id": info.run_id,
        "workflow": info.workflow_name,
        "status": state_of(info),
        "started_at": info.started_at,
        "updated_at": info.updated_at,
        "events": info.events,
        "target": target_of(info.labels) or None,
        "labels": dict(info.labels),
        "damaged": info.damaged or None,
        "holder": None
        if holder is None
        else {"pid": holder.pid, "host": holder.host, "since": holder.since},
    }
