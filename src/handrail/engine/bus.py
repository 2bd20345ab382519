"""Shows events to sinks, with secrets masked; drops a sink that raises.

Output of programs and text of agents come in pieces, and a secret may span two of them. So the bus
keeps back the end of a piece where a secret may begin. It shows that text with the stream's next
piece, or when the stream ends.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from handrail.model import events as ev
from handrail.model.dataclass import dataclass
from handrail.model.described import text_of
from handrail.model.events import Event, Progress
from handrail.model.outcome import INTERRUPTIONS
from handrail.secrets.masking import NAME_LEAST, PLAIN, Mask
from handrail.secrets.values import SecretValues

if TYPE_CHECKING:
    from handrail.ports.sink import Sink


T = TypeVar("T")

Piece: TypeAlias = ev.StepOutput | ev.AgentMessage | ev.AgentReasoning
Stream: TypeAlias = tuple[str, str]
"""A step's path, and which of its texts: stdout, stderr, messages or reasoning."""

_PIECES: Mapping[type, str] = {
    ev.AgentMessage: "message",
    ev.AgentReasoning: "reasoning",
    ev.StepOutput: "",
}
_ENDS = frozenset({
    ev.AttemptFailed, ev.StepCompleted, ev.StepInterrupted, ev.AgentFinished, ev.AgentToolStarted,
    ev.AgentTurnCompleted,
})  # fmt: skip
"""Events of a step after which its next piece of text does not continue the last one."""


@dataclass(frozen=True, slots=True)
class _HeldPiece:
    """The text of a stream that the bus keeps back, and the end of the text shown before it."""

    piece: Piece
    before: str


def _raise(error: BaseException) -> None:
    raise error


@dataclass(slots=True)
class Bus:
    """The sinks of one run. Mutable: it drops sinks that raise, and keeps back text."""

    run_id: str
    sinks: list[Sink]
    mask: Mask
    kept: dict[Stream, _HeldPiece] = field(default_factory=dict[Stream, "_HeldPiece"])
    on_interruption: Callable[[BaseException], None] = _raise
    """Gets a KeyboardInterrupt or SystemExit that hit a sink."""

    def emit(self, event: Event | Progress) -> None:
        """Show the event to every sink, in order; never raises an ``Exception``."""
        sinks = self.sinks
        if not sinks:
            return
        # Inline on purpose: every step has these events, and a call would be half of the cost.
        if type(event) is ev.StepStarted and not event.signal:
            quick = len(event.path) < NAME_LEAST or event.path == self.mask.last_clean_path
        elif (type(event) is ev.StepCompleted or type(event) is ev.StepReplayed) and not self.kept:
            result = event.result
            quick = (
                result is not None
                and type(result.output) in PLAIN
                and result.error is None
                and not result.handled
                and (len(event.path) < NAME_LEAST or event.path == self.mask.last_clean_path)
            )
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
                    continue  # dropped meanwhile: it raised at the notice about another sink
                try:
                    sink.emit(shown)
                except INTERRUPTIONS as interruption:  # it is not the sink's fault
                    self.on_interruption(interruption)
                except BaseException as error:  # noqa: BLE001  # no sink may stop a run
                    self._drop(sink, error, shown)

    # -- text in pieces --------------------------------------------------------------------------

    def _in_order(self, event: Event | Progress) -> list[Event | Progress]:
        """What to show now: kept text of streams that ended, and the event, or its safe part."""
        if isinstance(event, (ev.StepOutput, ev.AgentMessage, ev.AgentReasoning)):
            piece = self._piece(event)
            return [] if piece is None else [piece]
        over: list[Stream] = []
        if isinstance(event, (ev.WorkflowCompleted, ev.RunSuspended)):
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
        """The kept text and this piece, up to where a secret may begin; None if nothing is safe."""
        which = piece.stream if isinstance(piece, ev.StepOutput) else _PIECES[type(piece)]
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

    def _drop(self, sink: Sink, error: BaseException, event: Event | Progress) -> None:
        """Drop the sink and notify the others; drop those, too, that raise at the notice."""
        broken = [(sink, error)]
        while broken:
            gone, why = broken.pop(0)
            self.sinks = [kept for kept in self.sinks if kept is not gone]
            text = self.mask.text(f"{type(why).__name__}: {text_of(why)}")
            notice = ev.SinkDropped(type(gone).__name__, text)
            ev.stamp(notice, self.run_id, event.seq, event.at)
            warn("sink dropped", run_id=self.run_id, sink=notice.sink, error=notice.error)
            for kept in self.sinks:
                try:
                    kept.emit(notice)
                except INTERRUPTIONS as interruption:
                    self.on_interruption(interruption)
                except BaseException as again:  # noqa: BLE001  # it is dropped in its turn
                    if all(kept is not sink for sink, _ in broken):
                        broken.append((kept, again))


def warn(text: str, *, run_id: str, **parts: Any) -> None:
    """Log a warning; never raises an ``Exception``: a logger that fails must not end a run."""
    import structlog

    logger: Any = structlog.get_logger("handrail")
    with contextlib.suppress(Exception):
        logger.warning(text, run_id=run_id, **parts)


def bus_for(run_id: str, sinks: Iterable[Sink], secrets: SecretValues) -> Bus:
    """A bus of these sinks, which masks the values of ``secrets``."""
    bus = Bus(run_id, list(sinks), Mask(secrets))
    for sink in bus.sinks:
        take = getattr(sink, "mask_with", None)
        if callable(take):
            with contextlib.suppress(Exception):  # it is dropped when it raises at an event
                take(run_id, bus.mask)
    return bus


def masked_event(mask: Mask, event: T) -> T:
    """An event, or another record of handrail, with its secrets masked."""
    kind = type(event)
    if kind is ev.StepStarted:
        started = cast("ev.StepStarted", event)
        if not started.signal and mask.has_clean(started.path):
            return event
    elif kind is ev.StepCompleted or kind is ev.StepReplayed:
        ended = cast("ev.StepCompleted | ev.StepReplayed", event)
        result = ended.result
        if (
            result is not None
            and result.error is None
            and not result.handled
            and mask.has_clean(ended.path)
        ):
            output = result.output
            if type(output) is str:
                if mask.text(output) is output:
                    return event
            elif type(output) in PLAIN or not mask.may_be_in(output):
                return event
    return mask.value(event)
