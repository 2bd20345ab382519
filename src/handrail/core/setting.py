"""What a drive of a run is given before its first event, and how the run is to end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from handrail.model.dataclass import dataclass
from handrail.model.policy import Limits
from handrail.model.results import RunStatus
from handrail.record.run_record import Recorded

if TYPE_CHECKING:
    from handrail.codec.codec import Codec  # attrs keeps the annotation as text


@dataclass(frozen=True, slots=True)
class Ending:
    """How the run is to end, once its tree has unwound."""

    status: RunStatus
    error: str | None = None
    error_type: str | None = None
    traceback: str | None = None
    failed_step: str | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """The configuration of a machine, fixed before its first event.

    ``codec`` is None if no other process will read the record. ``secrets`` are values, by name,
    that no description of a step may contain. ``unwinds``: a request to cancel follows the
    rehearsal, and no wait may end before it.
    """

    run_id: str
    limits: Limits = Limits()
    cleanup_timeout_s: float = 30.0
    recorded: Recorded = field(default_factory=lambda: Recorded(()))
    codec: Codec | None = None
    max_crashes: int = 5
    secrets: Mapping[str, str] | None = None
    unwinds: bool = False
