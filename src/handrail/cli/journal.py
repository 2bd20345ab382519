"""Where the command keeps its runs: ``.handrail/`` in the current folder, or the named place."""

from __future__ import annotations

import contextlib
import difflib
import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol, TextIO, cast

import attrs

from handrail import addons
from handrail.cli.exits import Refused
from handrail.errors import JournalFailed
from handrail.ports.journal import Journal, RunInfo
from handrail.record.state import RecordedRun, read_run
from handrail.system.own_files import FOLDER, make_ignored

if TYPE_CHECKING:
    from handrail import Executor, SqliteJournal  # attrs does not look at it
    from handrail.model.definition import WorkflowDefinition


_NEED_CODE = frozenset({"cancel", "fork", "plan", "resume"})
"""Commands that load the run's workflow."""
FILE = "runs.db"
ARTIFACTS = "runs"
VARIABLE = "HANDRAIL_DIR"


def _git_storage(root: Path) -> Path | None:
    """The folder below ``.git`` for the journals of the checkout ``root``; None: no checkout.

    For a linked worktree it is in the main repository: git removes the worktree's own folder.
    """
    found = root / ".git"
    if found.is_dir():
        return found / "handrail"
    try:
        leads = found.read_text("utf-8").removeprefix("gitdir:").strip()
        own = root / leads
        common = own / "commondir"
        if not common.is_file():  # a submodule
            return own / "handrail" if (own / "HEAD").is_file() else None
        return (own / common.read_text("utf-8").strip()).resolve() / "handrail" / f"@{own.name}"
    except (OSError, UnicodeDecodeError):
        return None


class Elsewhere(Protocol):
    """Drives the runs of a place, in workers of its own; a suspended run continues by itself."""

    def refuse(self, typed: Mapping[str, object]) -> None:
        """Refuse options of ``run`` that do not apply; ``typed`` has the values of those that may
        not.

        Raises:
            Refused: one of them was typed.
        """

    def drive(
        self, begin: Any, options: Any, data: TextIO | None, definition: WorkflowDefinition
    ) -> int:
        """Have a run driven and show it to its end, as ``cli.driving.drive``; the exit code."""
        ...

    def serve(self, modules: Sequence[str], serving: Any) -> int:
        """Be a worker, for the workflows in these modules, until a signal; the exit code."""
        ...

    def check(self) -> Any:
        """What ``handrail doctor`` says of it, as ``cli.doctor.Check``."""


@attrs.frozen
class Place:
    """The absolute folder of a journal; ``typed_location``, ``target``: the options to type again.

    They are the values of ``--dir``, or of the option of a registered journal, and ``--target``.
    """

    folder: Path
    typed_location: str = ""
    target: str | None = None
    executor: Executor | None = None
    """The executor to drive runs with, if one was named.

    Its journal is the place's, if that is a file and no folder was typed.
    """
    typed_executor: str = ""
    named: bool = False
    """A folder was named, by ``--dir`` or, less strongly than an executor, by the environment."""
    kept: Path | None = None
    """The journal's file, where the project's executor kept it when it was last loaded."""
    unread_executor: str = ""
    """The project's executor, if it was not loaded and it is not known where it keeps its runs."""

    settings: ClassVar[Mapping[str, str]] = {}
    """Keys of ``[tool.handrail]`` that only such places have, and what each must be."""

    @staticmethod
    def serving() -> type | None:
        """A dataclass of the options of ``handrail worker`` that only such places have."""
        return None

    @property
    def elsewhere(self) -> Elsewhere | None:
        """What drives the runs here, if processes of this command do not."""
        return None

    @property
    def base(self) -> Path:
        """The parent of the folder: recorded paths of files are relative to it."""
        return self.folder.parent

    @property
    def file(self) -> Path:
        """The journal's file."""
        own = self.own_journal()
        if own is not None:
            return own.path
        if self.kept is not None:
            return self.kept
        here, kept = self.folder / FILE, self._file_in_git
        return kept if kept and kept.is_file() and not here.exists() else here

    @property
    def _file_in_git(self) -> Path | None:
        """The place of the file below ``.git``, if the folder is in a git checkout; else None.

        ``git clean`` leaves it alone there. The folder itself has a link to it.
        """
        if self.named:
            return None
        for root in (self.base, *self.base.parents):
            if (git := _git_storage(root)) is not None:
                return git / self.base.relative_to(root) / FILE
        return None

    def own_journal(self) -> SqliteJournal | None:
        """The journal of the executor, if it is a file and no folder was typed."""
        from handrail import SqliteJournal

        typed = self.typed_location and self.named
        journal = None if self.executor is None or typed else self.executor.journal
        return journal if isinstance(journal, SqliteJournal) else None

    @property
    def artifacts(self) -> Path:
        """The folder of its runs' artifacts, for people."""
        return self.folder / ARTIFACTS

    def is_there(self) -> bool:
        """True if there is a journal.

        Raises:
            Refused: the named place is no folder, or the journal in it is no file.
        """
        named = f"with --dir or {VARIABLE}."
        if self.folder.exists() and not self.folder.is_dir():
            why = "is a file, and a journal is kept in a folder"
            its = "" if self.folder.name != FILE else f" This one is in {self.base}."
            raise Refused(str(self.folder), why, f"Name a folder {named}{its}")
        if self.file.is_dir():
            why = "is a folder, and a journal is a file"
            raise Refused(str(self.file), why, f"Move it away, or name another folder {named}")
        return self.file.is_file()

    def make(self) -> Journal:
        """The journal; its folder is created if need be, and git ignores it.

        Raises:
            JournalFailed: the folder cannot be made.
            Refused: as for ``is_there``.
        """
        from handrail import SqliteJournal

        self.is_there()
        own = self.own_journal()
        if own is not None:
            return own
        try:
            make_ignored(self.folder)
            self._link()
        except OSError as error:
            said = error.strerror or str(error)
            hint = f"--dir or {VARIABLE} name another folder."
            raise JournalFailed(str(self.file), "making its folder", said, hint) from None
        return SqliteJournal(self.file)

    @property
    def is_safe(self) -> bool:
        """True if the file is, or will be, below ``.git``, where ``git clean`` leaves it alone."""
        return self._file_in_git is not None and not (self.folder / FILE).is_file()

    def _link(self) -> None:
        here, kept = self.folder / FILE, self._file_in_git
        if kept is None or here.exists():
            return
        with contextlib.suppress(OSError):  # a read-only git folder: the file is here then
            here.unlink(missing_ok=True)  # a link of a worktree that was moved
            kept.parent.mkdir(parents=True, exist_ok=True)
            here.symlink_to(os.path.relpath(kept, self.folder))

    def find(self) -> Journal:
        """The existing journal.

        Raises:
            Refused: there is none.
        """
        return self.find_file()

    def find_file(self) -> SqliteJournal:
        """The existing journal, which is a file."""
        from handrail import SqliteJournal

        if not self.is_there():
            why = "does not exist, so there are no runs"
            raise Refused(f"journal {self.file}", why, self.where_else)
        own = self.own_journal()
        return SqliteJournal(self.file) if own is None else own

    def command(self, *words: str) -> str:
        """A command of this tool to type, which reaches the same journal, executor and workflow.

        The only place that makes one: ``target.reaching`` sets the run's workflow, if need be.
        """
        command, *others = words
        again = self._options()
        if self.target is not None and command in _NEED_CODE:
            again += ["--target", self.target]
        # of ``run``, a name after TARGET may be that of an input
        line = [*again, *others] if command == "run" else [*others, *again]
        return shlex.join(["handrail", command, *line])

    def _options(self) -> list[str]:
        """The options that lead to the journal."""
        is_own = self.named and self.own_journal() is None
        folder = self.typed_location or (str(self.folder) if is_own else "")
        again = ["--dir", folder] if folder else []
        return again + (["--executor", self.typed_executor] if self.typed_executor else [])

    @property
    def where_else(self) -> str:
        """Where there is a journal, if there is none here, and how to name it."""
        above = (folder for folder in self.base.parents if (folder / FOLDER / FILE).is_file())
        near = next(above, None)
        if self.unread_executor:
            said = "The project's executor may keep them elsewhere, but its code is not run to read"
            return f"{said}: handrail trust, or --executor {self.unread_executor}"
        hint = f"There is one in {near}: cd there, or " if near else "Elsewhere? Then "
        return f"{hint}name its folder with --dir or {VARIABLE}."


@attrs.frozen
class OpenedPlace(Place):
    """A place of runs that a package has registered as ``kind``, at an address.

    ``opened`` makes its journal from the address, once.
    """

    kind: str = ""
    address: str = ""
    opened: Callable[[str], Journal] | None = None

    @property
    def file(self) -> Path:
        """The address, for people."""
        return Path(self.address)

    def is_there(self) -> bool:
        """True: only a request shows whether it answers."""
        return True

    def find(self) -> Journal:
        """The journal at the address.

        Raises:
            WrongUse: the address is invalid.
        """
        assert self.opened is not None
        return _opened(self.opened, self.address)

    def find_file(self) -> NoReturn:
        """Raise: the record is not in a file.

        Raises:
            Refused: always.
        """
        hint = "`handrail export` writes a run to a file; --dir names a journal."
        raise Refused(self.address, f"is a {self.kind}, which keeps its own record", hint)

    make = find

    def _options(self) -> list[str]:
        return [f"--{self.kind}", self.address] if self.typed_location else []


@cache
def _opened(opened: Callable[[str], Journal], address: str) -> Journal:
    return opened(address)


def place_at(place: Place, kind: str, address: str, typed: str) -> Place:
    """The place that is registered as ``kind``, with the other fields of ``place``; ``typed`` as in
    ``Place``.

    Raises:
        DefinitionError: it cannot be imported. MissingExtra: it needs a library.
    """
    made: Any = addons.load(addons.JOURNALS, kind)
    fields: dict[str, Any] = {
        field.name: getattr(place, field.name) for field in attrs.fields(Place)
    }
    fields |= {"typed_location": typed, "kind": kind, "address": address}
    if hasattr(made, "elsewhere"):  # a class of such places
        return cast("Place", made(**fields))
    return OpenedPlace(**fields, opened=made)


def with_executor(place: Place, executor: Executor, typed: str = "") -> Place:
    """The place with an executor, and with its journal unless a folder was typed.

    ``typed``: the executor's TARGET; people must type it again if its journal is another one.
    """
    before, place = place.file, attrs.evolve(place, executor=executor)
    own = place.own_journal()
    if own is None:
        return place
    if own.path == before.resolve():  # perhaps by the link to the file below .git
        return place
    return attrs.evolve(place, folder=own.path.parent, typed_executor=typed or place.typed_executor)


MOST = 8
"""Candidates that an error lists."""


def pick_run(journal: Journal, name: str | None) -> RunInfo:
    """The run of ``choose_run`` for a name, or of ``newest_run`` without one, if it can be read.

    Raises:
        Refused: there is none, or more than one.
        JournalDamaged: its record is not as it was written.
    """
    exact = None if name is None else find_info(journal, name)
    if exact is not None:
        return require_undamaged(journal, exact)
    runs = journal.runs()
    return require_undamaged(journal, newest_run(runs) if name is None else choose_run(runs, name))


def read(journal: Journal, info: RunInfo) -> RecordedRun:
    """The record of a run, viewed as of now.

    Raises:
        JournalDamaged: its record is not as it was written.
    """
    return read_run(journal, info, time.time())


def find_info(journal: Journal, run_id: str) -> RunInfo | None:
    """The run with exactly this id, if there is one; without listing all, if the journal can."""
    alone: Callable[[str], RunInfo | None] | None = getattr(journal, "info", None)
    return run_with_id(journal.runs(), run_id) if alone is None else alone(run_id)


def require_undamaged(journal: Journal, info: RunInfo) -> RunInfo:
    """The run, if its record is not known to be damaged.

    Raises:
        JournalDamaged, Refused: it is.
    """
    if info.damaged:
        journal.events(info.run_id)
        raise Refused(f"run {info.run_id!r}", f"cannot be read: {info.damaged}")
    return info


def find_exact(journal: Journal, run_id: str) -> RunInfo | None:
    """The run with exactly this id, if there is one; its record can be read.

    Raises:
        Refused: the id may be that of a run whose entry is damaged.
        JournalDamaged: its record is not as it was written.
    """
    info = find_info(journal, run_id)
    if info is not None:
        return require_undamaged(journal, info)
    _refuse_if_hidden(journal.runs(), run_id)
    return None


def _refuse_if_hidden(runs: Sequence[RunInfo], name: str) -> None:
    hidden = [run.run_id for run in runs if run.damaged and not run.workflow_name]
    if hidden:
        why = f"was not found, but may be one whose entry is damaged: {', '.join(hidden)}"
        raise Refused(f"run {name!r}", why, "Put back a copy of the journal, or name another.")


def choose_run(runs: Sequence[RunInfo], name: str) -> RunInfo:
    """The run whose id is ``name``, or the only one whose id, or its last part, begins with that.

    Raises:
        Refused: there is none, or more than one.
    """
    exact = run_with_id(runs, name)
    if exact is not None:
        return exact
    found = matching_runs(runs, name)
    if len(found) == 1:
        return found[0]
    if found:
        why = f"may be any of {len(found)}: {_list_ids(found)}"
        raise Refused(f"run {name!r}", why, "Type more of it.")
    _refuse_if_hidden(runs, name)
    raise Refused(f"run {name!r}", "does not exist", _hint(runs, name))


def matching_runs(runs: Sequence[RunInfo], name: str) -> list[RunInfo]:
    """The runs whose id begins with the name; without any, those whose id's last part does."""
    if not name:
        return []
    found = [run for run in runs if run.run_id.startswith(name)]
    return found or [run for run in runs if run.run_id.rpartition("-")[2].startswith(name)]


def newest_run(runs: Sequence[RunInfo]) -> RunInfo:
    """The run that was started last.

    Raises:
        Refused: there is none.
    """
    if not runs:
        raise Refused("--latest", "the journal has no runs yet")
    return runs[-1]


def run_with_id(runs: Sequence[RunInfo], run_id: str) -> RunInfo | None:
    """The run with exactly this id, if there is one."""
    return next((run for run in runs if run.run_id == run_id), None)


def _hint(runs: Sequence[RunInfo], name: str) -> str:
    if not runs:
        return "The journal has no runs yet."
    near = difflib.get_close_matches(name, [run.run_id for run in runs], n=3, cutoff=0.5)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    return f"The newest: {_list_ids(runs[-3:])}."


def _list_ids(runs: Sequence[RunInfo]) -> str:
    """The ids of the newest runs, at most ``MOST``."""
    names = [run.run_id for run in runs[-MOST:]]
    return ", ".join(["...", *names] if len(runs) > len(names) else names)
