"""The port through which a run is watched."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from handrail.model.events import Event, Progress


@runtime_checkable
class Sink(Protocol):
    """Something that is shown every event and every progress notice of a run, in order.

    ``emit`` is sync and runs on the event loop: a slow target queues for itself. An event is
    shown after it is in the journal. A sink whose ``emit`` raises is dropped: the others see one
    ``SinkDropped``, a log line says so, and the run goes on.

    What it is shown is masked: no text, and no field of a record, has a secret in it. What other
    objects in it say of themselves is not known before somebody asks them: a sink that writes that
    may have a method ``mask_with(run_id, mask)``, which is called before the run's first event
    with its ``handrail.secrets.masking.Mask``. Contract suite:
    ``handrail.testing.contracts.SinkContract``.
    """

    def emit(self, event: Event | Progress, /) -> None:
        """Take note of the event."""
