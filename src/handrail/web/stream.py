"""What happens in runs, as server-sent events.

Each event of a run is told once, under its own number. A reader that lost the line says the last
number that it has, and is told what came after it: from the journal, so that nothing is missed or
doubled, also when this server or the run's process is another one by then.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread

from handrail.errors import HandrailError
from handrail.model import events as ev
from handrail.model.folders import numbered, run_folder, step_folder
from handrail.ports.journal import RunInfo
from handrail.typed.jsonsafe import Json
from handrail.web.reading import Reader, Snapshot

EVERY_S = 0.2
ALIVE_S = 10.0
"""So often a quiet line says that it is there."""
_BATCH = 500
"""Events that are put together at a time."""
_MOST_PIECE = 64 * 1024
_TEXTS: Mapping[str, str] = {
    "answer.md": "message", "reasoning.md": "reasoning", "stdout": "stdout", "stderr": "stderr",
}  # fmt: skip
_NUMBERED = "answer.md"


def frame(event: str, data: Json, number: int | None = None) -> bytes:
    """One event as it is sent."""
    head = f"id: {number}\n" if number is not None else ""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return f"{head}event: {event}\ndata: {text}\n\n".encode()


BEAT = b"event: beat\ndata: \n\n"


class _Pulse:
    """Says when a quiet line must say something. Mutable."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def beat(self) -> None:
        self._last = time.monotonic()

    def due(self) -> bool:
        return time.monotonic() - self._last >= ALIVE_S


async def run_events(reader: Reader, run_id: str, after: int) -> AsyncIterator[bytes]:
    """A run's events after a number, then each one as it comes, without an end.

    ``record`` is an event of the journal, with the row of the step that it changed as ``step``;
    ``run`` the run's row, when it is another; ``progress`` a piece of what an agent or a program
    says, which ends at so many bytes of all of it; ``reset``: what was told before no longer holds,
    load the run again; ``beat``: nothing.
    """
    snapshot = await reader.snapshot(run_id, now=True)
    pulse, texts = _Pulse(), _Texts(reader, snapshot.told.info)
    row: Json = None
    alive: bool | None = None
    yield b"retry: 1000\n\n"
    if after > len(snapshot.history):
        yield frame("reset", {"why": f"the run has {len(snapshot.history)} events"})
        after = len(snapshot.history)
    while True:
        for piece in _records(reader, snapshot, after):
            pulse.beat()
            yield piece
            await anyio.lowlevel.checkpoint()
        was, after = after, len(snapshot.history)
        driven = snapshot.told.info.holder is not None
        is_gone = alive is True and not driven and snapshot.told.view.end is None
        if is_gone or any(_turns_back(event) for event in snapshot.history[was:]):
            yield frame("reset", {"why": "the run is driven by another process, or by none"})
        alive = driven
        now = reader.shown(snapshot.row)
        if now != row:
            row = now
            pulse.beat()
            yield frame("run", row)
        for piece in await texts.pieces(snapshot):
            pulse.beat()
            yield piece
        if pulse.due():
            pulse.beat()
            yield BEAT
        await anyio.sleep(EVERY_S)
        try:
            snapshot = await reader.snapshot(run_id)
        except (HandrailError, OSError) as error:
            yield frame("reset", {"why": str(error)})
            return


def _turns_back(event: ev.Event) -> bool:
    return isinstance(event, ev.RunResumed)


def _records(reader: Reader, snapshot: Snapshot, after: int) -> Iterator[bytes]:
    """The events after a number, some at a time; a step's row is told with its last one."""
    history = snapshot.history
    last = {getattr(event, "path", ""): event.seq for event in history[after:]}
    for start in range(after, len(history), _BATCH):
        found: list[bytes] = []
        for event in history[start : start + _BATCH]:
            path = getattr(event, "path", "")
            row = snapshot.rows.get(path) if last[path] == event.seq else None
            found.append(frame("record", reader.told_event(event, row), event.seq))
        yield b"".join(found)


async def list_events(reader: Reader) -> AsyncIterator[bytes]:
    """``run``: the row of each run that changes, and of each new one, from now on."""
    pulse = _Pulse()
    known = {info.run_id: info for info in await reader.runs(now=True)}
    yield b"retry: 1000\n\n"
    while True:
        await anyio.sleep(EVERY_S)
        try:
            infos = await reader.runs()
        except (HandrailError, OSError):
            return  # the browser asks again, and is told why
        changed = [info for info in infos if known.get(info.run_id) != info]
        if changed:
            known = {info.run_id: info for info in infos}
            pulse.beat()
            yield b"".join(frame("run", row) for row in await reader.rows(changed))
        if pulse.due():
            pulse.beat()
            yield BEAT


class _Texts:
    """What agents and programs say meanwhile, read from the files that a run writes for people.

    A run that writes none has none of it: its steps' outputs come when they have ended. Mutable:
    it knows how far it has read.
    """

    def __init__(self, reader: Reader, info: RunInfo) -> None:
        self._reader = reader
        self._folder: Path | None = None
        if reader.artifacts is not None:
            self._folder = reader.artifacts / run_folder(info.workflow_name, info.run_id)
        self._read: dict[Path, int] = {}
        self._begun = False

    async def pieces(self, snapshot: Snapshot) -> list[bytes]:
        """What came since the last look, of the steps that are at work."""
        if self._folder is None or snapshot.told.info.holder is None:
            return []
        paths = [
            step.path
            for step in snapshot.told.view.steps
            if step.state == "running" and step.step_type in {"agent", "generate", "run"}
        ]
        return await anyio.to_thread.run_sync(self._look, paths)

    def _look(self, paths: Sequence[str]) -> list[bytes]:
        assert self._folder is not None
        found: list[bytes] = []
        for path in paths:
            folder = self._folder / step_folder(path)
            for name, kind in _TEXTS.items():
                turn = _turns(folder) if name == _NUMBERED else 1
                file = folder / numbered(name, turn)
                text = self._piece(file)
                if text:
                    data: dict[str, Json] = {"path": path, "kind": kind, "text": text}
                    data["end"] = self._read[file]
                    if name == _NUMBERED:
                        data["turn"] = turn
                    found.append(frame("progress", self._reader.shown(data)))
        self._begun = True
        return found

    def _piece(self, file: Path) -> str:
        try:
            if file.is_symlink():
                return ""
            size = file.stat().st_size
            known = self._read.get(file, 0 if self._begun else size)
            self._read[file] = size
            if size <= known:
                return ""
            with file.open("rb") as stream:
                stream.seek(max(known, size - _MOST_PIECE))
                data = stream.read(size - stream.tell())
        except OSError:
            return ""
        text = data.decode("utf-8", "ignore")
        # A character that is not there whole yet is told with the next piece.
        self._read[file] = size - _begun_character(data)
        return text


def _begun_character(data: bytes) -> int:
    """How many bytes at the end begin a character that goes on after them."""
    for count in range(1, min(4, len(data)) + 1):
        byte = data[-count]
        if byte & 0xC0 == 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return count if length > count else 0
        if byte < 0x80:
            return 0
    return 0


def _turns(folder: Path) -> int:
    """How many answers an agent has begun to give."""
    number = 1
    while (folder / numbered(_NUMBERED, number + 1)).exists():
        number += 1
    return number
