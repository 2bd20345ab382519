"""The masks of runs, for sinks that turn the values in events into text."""

from __future__ import annotations

from handrail.model import events as ev
from handrail.model.events import Event, Progress
from handrail.secrets.masking import Mask
from handrail.typed.jsonsafe import Json


class Masks:
    """Masks by run, while their drives last. Mutable."""

    __slots__ = ("_masks",)

    def __init__(self) -> None:
        self._masks: dict[str, Mask] = {}

    def take(self, run_id: str, mask: Mask) -> None:
        """Remember the mask of a run."""
        self._masks[run_id] = mask

    def of(self, event: Event | Progress) -> Mask | None:
        """The mask of the event's run, which is forgotten at the end of its drive."""
        if isinstance(event, ev.DriveEnded):
            return self._masks.pop(event.run_id, None)
        return self._masks.get(event.run_id)


def mask_data(data: Json, mask: Mask | None) -> Json:
    """JSON data without secrets, as they may be written."""
    return data if mask is None or not mask.may_be_in(data) else mask.plain(data)
