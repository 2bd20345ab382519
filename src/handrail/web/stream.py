"""The events of runs as server-sent events.

Each event of a run is sent once, under its own number. A client that lost the connection sends the
last number that it has, and gets the events after it from the journal. So none is missed or
doubled, even if this server or the run's process has been replaced.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread

from handrail.errors import HandrailError
from handrail.model import events as ev
from handrail.model.dataclass import dataclass
from handrail.model.folders import numbered, run_folder, step_folder
from handrail.ports.journal import RunInfo
from handrail.typed.jsonsafe import Json
from handrail.web.reading import Reader, Snapshot
from handrail.web.texts import PLAIN, last_turn

EVERY_S = 0.2
ALIVE_S = 10.0
"""How often a quiet connection gets a ``beat``."""
_BATCH = 500
"""Events that are sent together."""
_LISTED_BEFORE_S = 5.0
"""A stream begins with the rows that were read since a list that the page got just before it."""


def frame(event: str, data: Json, number: int | None = None) -> bytes:
    """One server-sent event as bytes."""
    head = f"id: {number}\n" if number is not None else ""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return f"{head}event: {event}\ndata: {text}\n\n".encode()


BEAT = b"event: beat\ndata: \n\n"


class _Pulse:
    """Says when a quiet connection needs a ``beat``. Mutable."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def beat(self) -> None:
        self._last = time.monotonic()

    def due(self) -> bool:
        return time.monotonic() - self._last >= ALIVE_S


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """A request for a run's stream: events ``after`` a number, progress of one ``step`` or of all.

    ``rows``: of the events only what they are, and the rows that they change.
    """

    after: int = 0
    step: str | None = None
    rows: bool = False


async def run_events(reader: Reader, run_id: str, asked: StreamRequest) -> AsyncGenerator[bytes]:
    """A run's events after a number, then each one as it comes, without an end.

    ``record``: an event of the journal, with the row of the step that it changed as ``step``.
    ``run``: the run's row, when it has changed. ``progress``: a piece of the text of an agent or a
    program, with its place in bytes in the whole text. ``reset``: earlier data are no longer valid,
    load the run again. ``beat``: keeps the connection alive.
    """
    snapshot = await reader.snapshot(run_id, now=True)
    after = asked.after
    pulse, texts = _Pulse(), GrowingTexts(reader.artifacts, snapshot.recorded.info, asked.step)
    row: Json = None
    alive: bool | None = None
    yield b"retry: 1000\n\n"
    if after > len(snapshot.history):
        yield frame("reset", {"why": f"the run has {len(snapshot.history)} events"})
        after = len(snapshot.history)
    while True:
        for piece in _records(reader, snapshot, after, rows=asked.rows):
            pulse.beat()
            yield piece
            await anyio.lowlevel.checkpoint()
        was, after = after, len(snapshot.history)
        driven = snapshot.recorded.info.holder is not None
        is_gone = alive is True and not driven and snapshot.recorded.view.end is None
        if is_gone or any(isinstance(event, ev.RunResumed) for event in snapshot.history[was:]):
            yield frame("reset", {"why": "the run is driven by another process, or by none"})
        alive = driven
        if snapshot.row != row:
            row = snapshot.row
            pulse.beat()
            yield frame("run", row)
        for text in await texts.pieces(snapshot.at_work):
            pulse.beat()
            yield frame("progress", reader.mask_data(text))
        if pulse.due():
            pulse.beat()
            yield BEAT
        await anyio.sleep(EVERY_S)
        try:
            snapshot = await reader.snapshot(run_id)
        except (HandrailError, OSError) as error:
            yield frame("reset", {"why": str(error)})
            return


def _records(reader: Reader, snapshot: Snapshot, after: int, *, rows: bool) -> Iterator[bytes]:
    """The events after a number, in batches; the last event of a step comes with its row."""
    history = snapshot.history
    last = {getattr(event, "path", ""): event.seq for event in history[after:]}
    for start in range(after, len(history), _BATCH):
        found: list[bytes] = []
        for event in history[start : start + _BATCH]:
            path = getattr(event, "path", "")
            row = snapshot.rows.get(path) if last[path] == event.seq else None
            data = _row_change(event, row) if rows else reader.event_data(event, row)
            found.append(frame("record", data, event.seq))
        yield b"".join(found)


def _row_change(event: ev.Event, row: Json) -> Json:
    """The class, number, time and path of an event, and the row that it changed."""
    data: dict[str, Json] = {"type": type(event).__name__, "seq": event.seq, "at": event.at}
    path = getattr(event, "path", None)
    if path is not None:
        data["path"] = path
    return data if row is None else {**data, "step": row}


async def list_events(reader: Reader) -> AsyncGenerator[bytes]:
    """``run``: the row of each run that changes, and of each new one, from now on."""
    pulse = _Pulse()
    known = {info.run_id: info for info in await reader.listed()}
    read_at = time.monotonic() - _LISTED_BEFORE_S
    yield b"retry: 1000\n\n"
    while True:
        await anyio.sleep(EVERY_S)
        try:
            infos = await reader.runs()
        except (HandrailError, OSError):
            return  # the browser asks again, and gets the error
        filled, read_at = reader.filled(read_at), time.monotonic()
        changed = [
            info for info in infos if known.get(info.run_id) != info or info.run_id in filled
        ]
        if changed:
            known = {info.run_id: info for info in infos}
            pulse.beat()
            yield b"".join(frame("run", row) for row in await reader.rows(changed))
        if pulse.due():
            pulse.beat()
            yield BEAT


MOST_PIECE = 64 * 1024
"""Bytes: of more text that came at once only the end is sent."""
_AFTER_S = 2.0
"""How long a step's files may still grow after its end: a thread writes them."""
_OF_A_TURN = "answer.md"
_TEXTS: Mapping[str, str] = {_OF_A_TURN: "message", **PLAIN}


class GrowingTexts:
    """The growing texts of one run's steps, of one step or of all. Mutable: it knows what it read.

    Each piece has its start and end, in bytes, in the whole text of its kind (for a message: of its
    turn). A client that has loaded a step's text sees by them which bytes it lacks, and which it
    has already. If one step is followed, its first pieces are empty: they say where the text
    continues.
    """

    def __init__(self, artifacts: Path | None, info: RunInfo, step: str | None) -> None:
        self._folder = None
        if artifacts is not None:
            self._folder = artifacts / run_folder(info.workflow_name, info.run_id)
        self._step = step
        self._read: dict[Path, int] = {}
        self._turns: dict[str, int] = {}
        self._until: dict[str, float] = {}
        self._begun = False

    async def pieces(self, at_work: Collection[str]) -> list[Json]:
        """The text added since the last call to steps that are at work, or just were."""
        if self._folder is None:
            return []
        now = time.monotonic()
        for path in at_work:
            if self._step in {None, path}:
                self._until[path] = now + _AFTER_S
        self._until = {path: until for path, until in self._until.items() if until > now}
        folder = self._folder
        return await anyio.to_thread.run_sync(lambda: list(self._poll(folder)))

    def _poll(self, run: Path) -> Iterator[Json]:
        for path in self._until:
            folder = run / step_folder(path)
            turn = last_turn(folder)
            if self._turns.get(path, 0) < turn and self._begun:
                yield {
                    "path": path,
                    "kind": "message",
                    "turn": turn,
                    "text": "",
                    "start": 0,
                    "end": 0,
                }
            self._turns[path] = turn
            for name, kind in _TEXTS.items():
                piece = self._piece(folder / (numbered(name, turn) if name == _OF_A_TURN else name))
                if piece is None:
                    continue
                data: dict[str, Json] = {"path": path, "kind": kind, **piece}
                yield data | ({"turn": turn} if name == _OF_A_TURN else {})
        self._begun = True

    def _piece(self, file: Path) -> dict[str, Json] | None:
        """The text added to a file since it was last read; None: there is none."""
        try:
            if file.is_symlink():
                return None
            size = file.stat().st_size
            known = self._read.get(file, 0 if self._begun else size)
            is_new = file not in self._read and not self._begun and self._step is not None
            self._read[file] = size
            if size <= known:
                return {"text": "", "start": size, "end": size} if is_new else None
            start = max(known, size - MOST_PIECE)
            with file.open("rb") as stream:
                stream.seek(start)
                data = stream.read(size - start)
        except OSError:
            return None
        # A character whose last bytes are not there yet is sent with the next piece.
        end = self._read[file] = start + len(data) - _incomplete_tail_bytes(data)
        return {"text": data[: end - start].decode("utf-8", "ignore"), "start": start, "end": end}


def _incomplete_tail_bytes(data: bytes) -> int:
    """How many bytes at the end belong to an incomplete UTF-8 character."""
    for count in range(1, min(4, len(data)) + 1):
        byte = data[-count]
        if byte & 0xC0 == 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return count if length > count else 0
        if byte < 0x80:
            return 0
    return 0
