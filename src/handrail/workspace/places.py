"""Where handrail keeps files for an agent's launch.

Worktrees and patches are beside the repository's own files. The data that the check of an agent
relies on is elsewhere: any agent, even a sandboxed one, may write into the working tree, and must
not reach that data.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from handrail.errors import DefinitionError
from handrail.model.agent_options import NO_OPTIONS, AgentOptions
from handrail.model.dataclass import dataclass
from handrail.model.paths import on_disk
from handrail.ports.agent import AgentBackend
from handrail.workspace.git import path_of, path_text
from handrail.workspace.shadow import Change, Entry


@dataclass(frozen=True, slots=True)
class Places:
    """Folders and names for one step of one run.

    ``base`` is handrail's own folder: ``HANDRAIL_DIR``, or ``.handrail`` in the repository. git
    ignores what is in it. ``safe`` is a folder for this working tree, outside of it. ``parts`` are
    the run and the parts of the step's path, each a valid name on disk and in a branch.
    """

    base: Path
    safe: Path
    path: str
    parts: tuple[str, ...]

    @property
    def branch(self) -> str:
        """The branch of the step's worktree."""
        return "/".join((BRANCHES, *self.parts))

    @property
    def worktree(self) -> Path:
        """The folder of the step's worktree."""
        return self.base.joinpath("worktrees", *self.parts)

    @property
    def shadow(self) -> Path:
        """The folder with the state before the step's launch, until the launch has been checked."""
        return self.safe.joinpath("launches", *self.parts)

    @property
    def tree_lock(self) -> Path:
        """The file to lock before taking or restoring the state of the working tree."""
        return self.safe / "tree.lock"

    @property
    def restore_log(self) -> RestoreLog:
        """The notes of what checks have put back in the working tree."""
        return RestoreLog(self.safe / "undone", self.safe / "launches")

    def quarantine(self) -> Path:
        """The path of a new patch file; neither it nor another of its name exists yet."""
        first = self.base.joinpath("quarantine", *map(without_mark, self.parts))
        number, name = 1, first.name
        while any(first.with_name(f"{name}.{end}").exists() for end in _QUARANTINED):
            number += 1
            name = f"{first.name}-{number}"
        return first.with_name(f"{name}.patch")

    def make(self) -> None:
        """Create both folders, and have git ignore ``base``.

        Raises:
            DefinitionError: ``safe`` cannot be made, or belongs to another user.
        """
        try:
            self.safe.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.safe.mkdir(exist_ok=True, mode=0o700)
            for one in (self.safe.parent, self.safe):
                known = one.lstat() if one.name == _in_temporary() else self.safe.stat()
                if known.st_uid != os.getuid() or stat.S_ISLNK(known.st_mode):
                    raise PermissionError(f"{one} belongs to somebody else")
        except OSError as error:
            raise DefinitionError(
                f"step {self.path!r}: writes= and worktree=True keep the state before a launch out "
                f"of the agent's reach, in {self.safe}, and that folder cannot be made: {error}. "
                f"XDG_STATE_HOME names another place."
            ) from error
        self.base.mkdir(parents=True, exist_ok=True, mode=0o700)
        ignore = self.base / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", "utf-8")

    def forget(self) -> None:
        """Remove the state before the launch, and the folders above that are then empty."""
        shutil.rmtree(self.shadow, ignore_errors=True)
        prune(self.shadow.parent, self.safe)


_QUARANTINED = ("patch", "repositories", "git", "hidden")
BRANCHES = "handrail"
"""The first part of the names of worktrees' branches."""
_MARK = "."


def tree_name(branch: str) -> str:
    """The name to claim for a worktree on a branch, so that nothing removes it meanwhile."""
    return f"worktree {branch}"


def _parts(run_id: str, path: str) -> tuple[str, ...]:
    # git refuses branch names with "..", ".lock", a dot at the edge, or "~".
    parts = (on_disk(part) for part in (run_id, *path.split("/")))
    return tuple(part.replace(".", "%2E") for part in parts)


def folder_of(options: AgentOptions, backend: AgentBackend) -> Path:
    """The folder that a launch works in."""
    own: AgentOptions = getattr(backend, "options", NO_OPTIONS)
    return Path(options.over(own).cwd or getattr(backend, "cwd", None) or Path.cwd())


def places_of(root: Path, run_id: str, path: str) -> Places:
    """The places of a step in the repository at ``root``.

    If that is the worktree of an enclosing step, they are beside it, not in it: it may be removed
    first. A dot behind that step's part of the path has git take both names for branches.
    """
    named = os.environ.get("HANDRAIL_DIR")
    base = Path(named).resolve() if named else root / ".handrail"
    parts = _parts(run_id or "run", path)
    for depth in range(len(parts) - 1, 1, -1):
        folder, *outer = root.parts[-depth - 1 :]
        if folder == "worktrees" and tuple(map(without_mark, outer)) == parts[:depth]:
            base = root.parents[depth]
            parts = (*outer[:-1], f"{outer[-1]}{_MARK}", *parts[depth:])
            break
    home = state_home() / "handrail"
    if home.is_relative_to(root):  # a home that is a repository itself
        home = Path(tempfile.gettempdir()) / _in_temporary()
    safe = home / hashlib.sha256(os.fsencode(root)).hexdigest()[:16]
    if named and not base.is_relative_to(root):
        safe = base
    return Places(base, safe, path, parts)


def without_mark(part: str) -> str:
    """A part of a branch without the mark of a step whose worktree has another one inside."""
    return part.removesuffix(_MARK)


def _in_temporary() -> str:
    return f"handrail-{os.getuid()}"


def state_home() -> Path:
    """The user's folder for programs' lasting state. Source: XDG base directories."""
    named = os.environ.get("XDG_STATE_HOME", "")
    return Path(named) if Path(named).is_absolute() else Path.home() / ".local" / "state"


def prune(folder: Path, base: Path) -> None:
    """Remove a folder and those above it that are empty, up to ``base``, which stays."""
    while folder != base and folder.is_relative_to(base):
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent


class _Note(msgspec.Struct, frozen=True):
    path: str
    entry: Entry | None


class RestoreLog:
    """Notes of what checks have put back in a working tree: a line for each file, oldest first.

    Say two agents work in one tree at the same time. The first one's check undoes a change outside
    of its scope. The second launch began while that change was there, so to its check the undoing
    looks like its own agent's work. So each check notes what it puts back. Checks of other launches
    that were running then ignore a noted file, as long as it is still as the note says.
    """

    def __init__(self, file: Path, launches: Path) -> None:
        self._file = file
        self._launches = launches

    def position(self) -> int:
        """Where the notes end now; first deletes all notes if no launch is running."""
        if not any(self._launches.rglob("before.json")):
            self._file.unlink(missing_ok=True)
        return self._file.stat().st_size if self._file.exists() else 0

    def note(self, changes: Iterable[Change]) -> None:
        """Note that these changes were undone."""
        notes = [_Note(path_text(change.path), change.before) for change in changes]
        if notes:
            with self._file.open("ab") as file:
                file.writelines(msgspec.json.encode(note) + b"\n" for note in notes)

    def since(self, position: int) -> dict[str, Entry | None]:
        """The entries put back after a position in the notes, by path."""
        if not self._file.exists():
            return {}
        with self._file.open("rb") as file:
            file.seek(position)
            notes = [msgspec.json.decode(line, type=_Note) for line in file]
        return {path_of(note.path): note.entry for note in notes}
