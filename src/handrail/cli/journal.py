"""Where the command keeps its runs: ``.handrail/`` in the current folder, or where one says."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from handrail.cli.exits import Refused
from handrail.errors import JournalFailed

if TYPE_CHECKING:
    from handrail import SqliteJournal

FOLDER = ".handrail"
FILE = "runs.db"
ARTIFACTS = "runs"
VARIABLE = "HANDRAIL_DIR"


@attrs.frozen
class Place:
    """The folder of a journal (absolute), and what ``--dir`` and ``--target`` said, to be typed
    again.
    """

    folder: Path
    typed: str = ""
    target: str | None = None

    @property
    def base(self) -> Path:
        """The folder that it stands in: what is recorded of files is relative to this."""
        return self.folder.parent

    @property
    def file(self) -> Path:
        """The journal itself."""
        return self.folder / FILE

    @property
    def artifacts(self) -> Path:
        """The folder of what people read of its runs."""
        return self.folder / ARTIFACTS

    def is_there(self) -> bool:
        """True if there is a journal.

        Raises:
            Refused: what was named is no folder, or the journal in it no file.
        """
        named = f"with --dir or {VARIABLE}."
        if self.folder.exists() and not self.folder.is_dir():
            why = "is a file, and a journal is kept in a folder"
            raise Refused(str(self.folder), why, f"Name a folder {named}")
        if self.file.is_dir():
            why = "is a folder, and a journal is a file"
            raise Refused(str(self.file), why, f"Move it away, or name another folder {named}")
        return self.file.is_file()

    def make(self) -> SqliteJournal:
        """The journal, in a folder that is made if there is none, and that git ignores.

        Raises:
            JournalFailed: the folder cannot be made.
            Refused: it is no folder.
        """
        from handrail import SqliteJournal

        self.is_there()
        try:
            if not self.folder.exists():
                self.folder.mkdir(parents=True, exist_ok=True)
                (self.folder / ".gitignore").write_text("*\n", "utf-8")
        except OSError as error:
            said = error.strerror or str(error)
            hint = f"--dir or {VARIABLE} name another folder."
            raise JournalFailed(str(self.file), "making its folder", said, hint) from None
        return SqliteJournal(self.file)

    def find(self) -> SqliteJournal:
        """The journal that is there.

        Raises:
            Refused: there is none.
        """
        from handrail import SqliteJournal

        if not self.is_there():
            near = self._above()
            hint = f"There is one in {near}: cd there, or " if near else "Elsewhere? Then "
            hint += f"name its folder with --dir or {VARIABLE}."
            raise Refused(f"journal {self.file}", "there is none, so there are no runs", hint)
        return SqliteJournal(self.file)

    def command(self, *words: str) -> str:
        """A command of this tool for people to type, which reaches the same journal, and the same
        workflow.
        """
        again = ["--dir", self.typed] if self.typed else []
        if self.target is not None and words[0] in {"resume", "plan"}:
            again += ["--target", self.target]
        return shlex.join(["handrail", *words, *again])

    def _above(self) -> Path | None:
        above = (folder for folder in self.base.parents if (folder / FOLDER / FILE).is_file())
        return next(above, None)


def place_of(wanted: Path | None) -> Place:
    """The folder that ``--dir`` names, or ``HANDRAIL_DIR``, or ``.handrail`` here."""
    named = wanted or os.environ.get(VARIABLE) or FOLDER
    return Place(Path(named).resolve(), "" if wanted is None else str(wanted))
