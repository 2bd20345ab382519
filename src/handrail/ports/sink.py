"""The port through which a run is watched."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from handrail.model.events import Event, Progress


@runtime_checkable
class Sink(Protocol):
    """Receives every event and every progress notice of a run, in order.

    ``emit`` is sync and runs on the event loop: a slow target must queue for itself. A sink
    receives an event after the event is in the journal. If ``emit`` raises, the sink is dropped:
    the others receive one ``SinkDropped``, handrail logs a line, and the run continues.

    Events are masked: no text and no field of a record contains a secret. The ``str`` and ``repr``
    of other objects in them are not masked in advance. A sink that writes these may have a method
    ``mask_with(run_id, mask)``; it is called before the run's first event with the run's
    ``handrail.secrets.masking.Mask``. Contract suite: ``handrail.testing.contracts.SinkContract``.
    """

    def emit(self, event: Event | Progress, /) -> None:
        """Take one event or notice."""
