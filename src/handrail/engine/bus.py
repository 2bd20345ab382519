"""Shows events to sinks; drops a sink that raises."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from handrail.model.described import text_of
from handrail.model.events import Event, Progress, SinkDropped, stamp
from handrail.ports.sink import Sink


@dataclass(slots=True)
class Bus:
    """The sinks of one run. Mutable: it forgets the ones that raised."""

    run_id: str
    sinks: list[Sink]

    def emit(self, event: Event | Progress) -> None:
        """Show the event to every sink, in order; never raises an ``Exception``."""
        sinks = self.sinks
        for sink in sinks:
            if self.sinks is not sinks and not any(sink is kept for kept in self.sinks):
                continue  # it raised at the notice that another one was dropped
            try:
                sink.emit(event)
            except Exception as error:  # noqa: BLE001  # a sink must not be able to stop a run
                self._drop(sink, error, event)

    def _drop(self, sink: Sink, error: Exception, event: Event | Progress) -> None:
        """Forget the sink and tell the others; those that raise at the notice go the same way."""
        broken = [(sink, error)]
        while broken:
            gone, why = broken.pop(0)
            self.sinks = [kept for kept in self.sinks if kept is not gone]
            notice = SinkDropped(type(gone).__name__, f"{type(why).__name__}: {text_of(why)}")
            stamp(notice, self.run_id, event.seq, event.at)
            _log(notice)
            for kept in self.sinks:
                try:
                    kept.emit(notice)
                except Exception as again:  # noqa: BLE001  # its turn comes
                    if all(kept is not other for other, _ in broken):
                        broken.append((kept, again))


def _log(notice: SinkDropped) -> None:
    import structlog

    logger: Any = structlog.get_logger("handrail")
    with contextlib.suppress(Exception):  # a log that cannot be written must not end a run either
        logger.warning("sink dropped", sink=notice.sink, error=notice.error, run_id=notice.run_id)


def bus_for(run_id: str, sinks: Iterable[Sink]) -> Bus:
    """A bus of these sinks."""
    return Bus(run_id, list(sinks))
