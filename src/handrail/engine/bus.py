"""Shows events to sinks, without secrets; drops a sink that raises.

What comes in pieces (output of programs, text of agents) may have a secret across two of them. So
the end of a piece that may be the beginning of a secret is kept back and put before the next one,
or shown when there will be no next one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, TypeAlias, TypeVar, cast

from handrail.model.dataclass import dataclass
from handrail.model.described import text_of
from handrail.model.events import (
    AgentFinished,
    AgentMessage,
    AgentReasoning,
    AgentToolStarted,
    AgentTurnCompleted,
    AttemptFailed,
    Event,
    Progress,
    RunSuspended,
    SinkDropped,
    StepCompleted,
    StepInterrupted,
    StepOutput,
    StepReplayed,
    StepStarted,
    WorkflowCompleted,
    stamp,
)
from handrail.ports.sink import Sink
from handrail.secrets.masking import NAME_LEAST, PLAIN, Mask
from handrail.secrets.values import SecretValues

T = TypeVar("T")

Piece: TypeAlias = StepOutput | AgentMessage | AgentReasoning
Stream: TypeAlias = tuple[str, str]
"""A step's path, and which of its texts."""

_PIECES: Mapping[type, str] = {AgentMessage: "message", AgentReasoning: "reasoning", StepOutput: ""}
_ENDS = frozenset({
    AttemptFailed, StepCompleted, StepInterrupted, AgentFinished, AgentToolStarted,
    AgentTurnCompleted,
})  # fmt: skip
"""After these no more of an agent's or program's text follows that goes on from the last piece."""


@dataclass(frozen=True, slots=True)
class _HeldPiece:
    """The end of a stream's last piece, and of what was shown before it."""

    piece: Piece
    before: str


@dataclass(slots=True)
class Bus:
    """The sinks of one run. Mutable: it forgets the ones that raised, and keeps text back."""

    run_id: str
    sinks: list[Sink]
    mask: Mask
    kept: dict[Stream, _HeldPiece] = field(default_factory=dict[Stream, "_HeldPiece"])

    def emit(self, event: Event | Progress) -> None:
        """Show the event to every sink, in order; never raises an ``Exception``."""
        sinks = self.sinks
        if not sinks:
            return
        # What each step tells is asked here, not in a function: that costs half of it.
        if type(event) is StepStarted and not event.signal:
            quick = len(event.path) < NAME_LEAST or event.path == self.mask.clean
        elif (type(event) is StepCompleted or type(event) is StepReplayed) and not self.kept:
            result = event.result
            quick = result is not None and type(result.output) in PLAIN and result.error is None
            quick = quick and (len(event.path) < NAME_LEAST or event.path == self.mask.clean)
        else:
            quick = False
        if quick:
            events: Sequence[Event | Progress] = (event,)
        elif self.kept or type(event) in _PIECES:
            events = self._in_order(event)
        else:
            events = (masked_event(self.mask, event),)
        for shown in events:
            sinks = self.sinks
            for sink in sinks:
                if self.sinks is not sinks and not any(sink is kept for kept in self.sinks):
                    continue  # it raised at the notice that another one was dropped
                try:
                    sink.emit(shown)
                except Exception as error:  # noqa: BLE001  # a sink must not be able to stop a run
                    self._drop(sink, error, shown)

    # -- what comes in pieces --------------------------------------------------------------------

    def _in_order(self, event: Event | Progress) -> list[Event | Progress]:
        """What is to be shown now: the event, or as much of it as can be, and what was kept."""
        if isinstance(event, (StepOutput, AgentMessage, AgentReasoning)):
            piece = self._piece(event)
            return [] if piece is None else [piece]
        over: list[Stream] = []
        if isinstance(event, (WorkflowCompleted, RunSuspended)):
            over = list(self.kept)
        elif type(event) in _ENDS:
            path: str = getattr(event, "path", "")
            over = [stream for stream in self.kept if stream[0] == path]
        ends = [self._end(self.kept.pop(stream)) for stream in over]
        return [*(end for end in ends if end.text), masked_event(self.mask, event)]

    def _end(self, kept: _HeldPiece) -> Piece:
        return masked_event(
            self.mask, replace(kept.piece, text=self.mask.after(kept.before, kept.piece.text))
        )

    def _piece(self, piece: Piece) -> Piece | None:
        """The piece up to where a secret may begin, after what was kept of the one before."""
        which = piece.stream if isinstance(piece, StepOutput) else _PIECES[type(piece)]
        stream = (piece.path, which)
        kept = self.kept.pop(stream, None)
        text = piece.text if kept is None else kept.piece.text + piece.text
        shown, rest, before = self.mask.split(text, "" if kept is None else kept.before)
        if rest or before:
            self.kept[stream] = _HeldPiece(replace(piece, text=rest), before)
        if not shown and text:
            return None
        return masked_event(self.mask, piece if shown == piece.text else replace(piece, text=shown))

    # -- sinks that raise ------------------------------------------------------------------------

    def _drop(self, sink: Sink, error: Exception, event: Event | Progress) -> None:
        """Forget the sink and tell the others; those that raise at the notice go the same way."""
        broken = [(sink, error)]
        while broken:
            gone, why = broken.pop(0)
            self.sinks = [kept for kept in self.sinks if kept is not gone]
            text = self.mask.text(f"{type(why).__name__}: {text_of(why)}")
            notice = SinkDropped(type(gone).__name__, text)
            stamp(notice, self.run_id, event.seq, event.at)
            warn("sink dropped", run_id=self.run_id, sink=notice.sink, error=notice.error)
            for kept in self.sinks:
                try:
                    kept.emit(notice)
                except Exception as again:  # noqa: BLE001  # its turn comes
                    if all(kept is not other for other, _ in broken):
                        broken.append((kept, again))


def warn(said: str, *, run_id: str, **parts: Any) -> None:
    """Log a warning; never raises an ``Exception``: what cannot be logged must not end a run."""
    import structlog

    logger: Any = structlog.get_logger("handrail")
    with contextlib.suppress(Exception):
        logger.warning(said, run_id=run_id, **parts)


def bus_for(run_id: str, sinks: Iterable[Sink], secrets: SecretValues) -> Bus:
    """A bus of these sinks, which are shown nothing of ``secrets``."""
    bus = Bus(run_id, list(sinks), Mask(secrets))
    for sink in bus.sinks:
        take = getattr(sink, "mask_with", None)
        if callable(take):
            with contextlib.suppress(Exception):  # it is dropped when it raises at an event
                take(run_id, bus.mask)
    return bus


def masked_event(mask: Mask, event: T) -> T:
    """An event, or another of handrail's records, as it may be shown."""
    kind = type(event)
    if kind is StepStarted:
        started = cast("StepStarted", event)
        if not started.signal and mask.has_clean(started.path):
            return event
    elif kind is StepCompleted or kind is StepReplayed:
        ended = cast("StepCompleted | StepReplayed", event)
        result = ended.result
        if result is not None and result.error is None and mask.has_clean(ended.path):
            output = result.output
            if type(output) is str:
                if mask.text(output) is output:
                    return event
            elif type(output) in PLAIN or not mask.may_be_in(output):
                return event
    return mask.value(event)
