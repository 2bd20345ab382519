"""What checks have put back in a working tree, so that no other check takes it for an agent's work.

Two agents work in one tree at the same time. The check of the first takes back what that wrote
outside of its scope; to the check of the second, whose launch began while that was there, it looks
as if its own agent had done so. So each check notes what it has put back, and later ones of
launches that were at work then leave alone what is still like that.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from handrail.workspace.shadow import Change, Entry


class _Note(msgspec.Struct, frozen=True):
    path: str
    entry: Entry | None


class Undone:
    """The notes of one working tree, a line each, in the order in which they came."""

    def __init__(self, file: Path, launches: Path) -> None:
        self._file = file
        self._launches = launches

    def position(self) -> int:
        """Where the notes end now; none is needed any more if no launch is at work."""
        if not any(self._launches.rglob("before.json")):
            self._file.unlink(missing_ok=True)
        return self._file.stat().st_size if self._file.exists() else 0

    def note(self, changes: Iterable[Change]) -> None:
        """Note that these are as they were before, again."""
        notes = [_Note(change.path, change.before) for change in changes]
        if notes:
            with self._file.open("ab") as file:
                file.writelines(msgspec.json.encode(note) + b"\n" for note in notes)

    def since(self, position: int) -> dict[str, Entry | None]:
        """What was put back since then, by path."""
        if not self._file.exists():
            return {}
        with self._file.open("rb") as file:
            file.seek(position)
            notes = [msgspec.json.decode(line, type=_Note) for line in file]
        return {note.path: note.entry for note in notes}
