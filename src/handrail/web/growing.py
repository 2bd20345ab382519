"""What agents and programs say meanwhile, read from the files that a run writes for people.

A run that writes none has none of it: its steps' outputs come when they have ended.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import anyio.to_thread

from handrail.model.folders import numbered, run_folder, step_folder
from handrail.ports.journal import RunInfo
from handrail.typed.jsonsafe import Json
from handrail.web.texts import last_turn

MOST_PIECE = 64 * 1024
"""Bytes: of more that came at once only the end is sent."""
_AFTER_S = 2.0
"""So long after a step has ended its files may still grow: they are written in the background."""
_TEXTS: Mapping[str, str] = {
    "answer.md": "message", "reasoning.md": "reasoning", "activity.jsonl": "activity",
    "stdout": "stdout", "stderr": "stderr",
}  # fmt: skip
_OF_A_TURN = "answer.md"


class GrowingTexts:
    """The texts of one run's steps as they grow, of one step alone or of all. Mutable: it knows how
    far it has read.

    Each piece says where it starts and ends in all that there is of its kind, in bytes (of a
    message in that of its turn). Who has read what a step had said sees by that what is missing,
    and what is known already. Of a step that is looked at alone the first pieces are empty: they
    say from where on its text is sent.
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
        """What came since the last look, of the steps that are at work now, or were just now."""
        if self._folder is None:
            return []
        now = time.monotonic()
        for path in at_work:
            if self._step in {None, path}:
                self._until[path] = now + _AFTER_S
        self._until = {path: until for path, until in self._until.items() if until > now}
        folder = self._folder
        return await anyio.to_thread.run_sync(lambda: list(self._look(folder)))

    def _look(self, run: Path) -> Iterator[Json]:
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
        """What came into a file since it was read last; None: nothing did."""
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
        # A character that is not there whole yet is sent with the next piece.
        end = self._read[file] = start + len(data) - _begun_character(data)
        return {"text": data[: end - start].decode("utf-8", "ignore"), "start": start, "end": end}


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
