"""The folders of a working tree: their modes, and what in them git does not see.

git takes files and links. It skips a folder that it may not read, a pipe, a socket, a second
``.git`` in a folder of files, and all that an ignore file hides, even that ignore file itself. An
agent could hide changes there. So this module walks the tree without git.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import field
from pathlib import Path

from handrail.model.dataclass import dataclass
from handrail.workspace.git import path_of, path_text
from handrail.workspace.git_files import GIT

_OPEN = 0o700
_IGNORE = ".gitignore"
_READ_BY_GIT = (_IGNORE, ".gitattributes", ".gitmodules")
_LARGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders before a launch; paths as :func:`path_text` writes them, the root's is empty.

    ``modes`` are those of the folders, ``files`` those of files; ``empty`` are folders without any
    file below. ``odd`` are entries that are no file, folder or link, or
    that are named ``.git``. ``ignore`` has the text of each ignore file. ``passed`` are folders
    that the walk skips.
    """

    modes: dict[str, int] = field(default_factory=dict[str, int])
    files: dict[str, int] = field(default_factory=dict[str, int])
    empty: frozenset[str] = frozenset()
    odd: frozenset[str] = frozenset()
    ignore: dict[str, str] = field(default_factory=dict[str, str])
    passed: frozenset[str] = frozenset()


def folders_of(root: Path, passed: Collection[str]) -> Folders:
    """The folders as they are now; does not look into those of ``passed``, nor into ``.git``."""
    seen = Folders(passed=frozenset(passed))
    odd: set[str] = set()
    full: set[str] = set()
    for name, mode, entries in _walk(root, seen, None):
        seen.modes[name] = mode
        for entry in entries:
            path = _join(name, entry.name)
            if _is_odd(entry):
                odd.add(path)
            elif entry.name == _IGNORE:
                seen.ignore[path] = _read_text(entry)
            if not entry.is_dir(follow_symlinks=False) or path in seen.passed or _is_odd(entry):
                full.update(_above(path))
            if entry.is_file(follow_symlinks=False):
                with suppress(OSError):
                    seen.files[path] = stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode)
    empty = frozenset(seen.modes.keys() - full)
    return Folders(seen.modes, seen.files, empty, frozenset(odd), seen.ignore, seen.passed)


def _above(path: str) -> Iterator[str]:
    """The folders that a path is in, and the root."""
    yield ""
    parts = path.split("/")
    yield from ("/".join(parts[:end]) for end in range(1, len(parts)))


def changed_modes(root: Path, before: Folders, shut: Collection[str]) -> dict[str, int | None]:
    """What changed that git does not see, and the mode that each had before.

    These are files and folders with other modes, empty folders that are new (None), and those that
    are gone. ``shut`` are folders that are reported, and restored, elsewhere.
    """
    now = folders_of(root, before.passed)
    was = {**before.modes, **before.files}
    found: dict[str, int | None] = {
        name: was[name]
        for name, mode in {**now.modes, **now.files}.items()
        if was.get(name, mode) != mode and name not in shut
    }
    found |= dict.fromkeys(now.empty - before.modes.keys())
    return found | {name: was[name] for name in before.empty - now.modes.keys()}


def restore_mode(root: Path, path: str, mode: int | None) -> str:
    """Undo one of ``changed_modes``; the kind of change, "" if it is none after all."""
    place = root / path
    try:
        if mode is None:
            place.rmdir()
            return "added"
        if not place.exists():
            place.mkdir(parents=True)
            place.chmod(mode)
            return "deleted"
        if not place.is_symlink():
            place.chmod(mode)
    except OSError:  # a folder that is not empty: git ignores what is in it
        return "" if mode is None else "mode changed"
    return "mode changed"


@dataclass(frozen=True, slots=True)
class UnseenEntry:
    """An entry that git does not see: a ``.git``, a pipe, or a changed ignore file.

    ``text_before`` is the ignore file's text before the launch (None: it was not there).
    """

    path: str
    special: bool
    is_ignore_file: bool = False
    text_before: str | None = None

    @property
    def read_by_git(self) -> bool:
        """True for a pipe or the like that git would read, and so would wait for a writer."""
        return self.special and self.path.rpartition("/")[2] in _READ_BY_GIT


@dataclass(frozen=True, slots=True)
class Inspection:
    """The folders after a launch: those that it shut, with their modes before (new ones: None).

    ``unseen`` are the unseen entries that were not there before.
    """

    shut: dict[str, int | None]
    unseen: tuple[UnseenEntry, ...]


def inspect_folders(root: Path, before: Folders) -> Inspection:
    """Open the folders that the launch shut; report these, and new unseen entries.

    It does not look into a new repository in a new folder.
    """
    shut: dict[str, int | None] = {}
    unseen: list[UnseenEntry] = []
    for name, _, entries in _walk(root, before, shut):
        for entry in entries:
            path = _join(name, entry.name)
            if _is_odd(entry) and path not in before.odd:
                if entry.name != GIT or name in before.modes:
                    unseen.append(UnseenEntry(path_of(path), special=_is_special(entry)))
            elif entry.name == _IGNORE and name in before.modes and not _is_odd(entry):
                text = before.ignore.get(path)
                if text != _read_text(entry):
                    unseen.append(
                        UnseenEntry(
                            path_of(path), special=False, is_ignore_file=True, text_before=text
                        )
                    )
    shown = {path_of(name): before.modes.get(name) for name in shut}
    return Inspection(shown, tuple(unseen))


def restore_modes(root: Path, shut: dict[str, int | None]) -> None:
    """Give the shut folders the modes that they had."""
    for name, mode in sorted(shut.items(), reverse=True):
        folder = root / name
        with suppress(OSError):
            if mode is not None and stat.S_ISDIR(folder.lstat().st_mode):
                folder.chmod(mode)


def _join(name: str, entry: str) -> str:
    return f"{name}/{path_text(entry)}" if name else path_text(entry)


def _walk(
    root: Path, before: Folders, shut: dict[str, int | None] | None
) -> Iterator[tuple[str, int, list[os.DirEntry[str]]]]:
    """Each folder with its mode and entries; given ``shut``, opens locked folders, noting them."""
    waiting = [""]
    while waiting:
        name = waiting.pop()
        folder = root / path_of(name)
        mode = 0
        try:
            mode = stat.S_IMODE(folder.lstat().st_mode)
            if shut is not None and mode & _OPEN != _OPEN and before.modes.get(name) != mode:
                folder.chmod(mode | _OPEN)
                shut[name] = before.modes.get(name)
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError:  # not readable, as before the launch
            entries = []
        yield name, mode, entries
        nested = bool(name) and any(entry.name == GIT for entry in entries)
        known = shut is None or name not in before.modes or f"{name}/{GIT}" in before.odd
        if nested and known:
            continue  # a repository of its own
        for entry in entries:
            path = _join(name, entry.name)
            walked = entry.is_dir(follow_symlinks=False) and not _is_odd(entry)
            if walked and path not in before.passed:
                waiting.append(path)


def _is_odd(entry: os.DirEntry[str]) -> bool:
    return _is_special(entry) or entry.name.lower() == GIT


def _is_special(entry: os.DirEntry[str]) -> bool:
    """True for a pipe, a socket and a device."""
    if entry.is_symlink() or entry.is_dir(follow_symlinks=False):
        return False
    return not entry.is_file(follow_symlinks=False)


def _read_text(entry: os.DirEntry[str]) -> str:
    try:
        with open(entry.path, "rb") as file:  # noqa: PTH123  # its path is one already
            return file.read(_LARGEST).decode("latin-1")
    except OSError:
        return ""
