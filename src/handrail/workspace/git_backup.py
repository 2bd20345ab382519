"""A copy of the git directory for the time of a launch: an agent may remove or replace it.

Objects are copied up to a size in all; the rest, such as large packs, is hard-linked, which costs
neither time nor space. An agent that writes into a linked file writes into the copy, too: that is
seen by the file's checksum, and can only be reported. Where the system cannot link (another disk),
there is no copy, and a loss can only be reported.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import zlib
from contextlib import suppress
from pathlib import Path

from handrail.model.dataclass import dataclass
from handrail.workspace.git import Git, Repository
from handrail.workspace.git_files import GIT

_OBJECTS = "objects"
_LARGE = 16 << 20
_COPIED = 256 << 20
"""The most bytes of objects that are copied rather than linked."""
_SAME = ("lfs", "annex", "handrail")
"""Folders whose files the copy hard-links: git does not read them, or they are the journal's."""
_NO_FILE = ""


@dataclass(frozen=True, slots=True)
class GitBackup:
    """What is known of a repository before a launch.

    ``file``: the text of a working tree's ``.git`` file; empty where ``.git`` is a folder.
    ``kept``: True if there is a copy of the repository.
    """

    file: str = _NO_FILE
    kept: bool = False


def back_up(repository: Repository, copy: Path | None) -> GitBackup:
    """Copy the git directory to ``copy``; with None, note only the ``.git`` file's text."""
    file = repository.root / GIT
    text = file.read_text("utf-8", "surrogateescape") if file.is_file() else _NO_FILE
    if copy is None:
        return GitBackup(text)
    try:
        _copy(repository.common, copy)
    except OSError:
        shutil.rmtree(copy, ignore_errors=True)
        return GitBackup(text)
    return GitBackup(text, kept=True)


def _copy(source: Path, copy: Path) -> None:
    waiting = [("", False)]
    left = _COPIED
    while waiting:
        name, same = waiting.pop()
        (copy / name).mkdir(parents=True, exist_ok=True)
        with os.scandir(source / name) as found:
            for entry in found:
                path = os.path.join(name, entry.name)  # noqa: PTH118  # a name, not a file
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((path, same or entry.name in _SAME))
                elif entry.is_symlink():
                    (copy / path).symlink_to(os.readlink(entry.path))  # noqa: PTH115
                elif entry.is_file(follow_symlinks=False):
                    with suppress(FileNotFoundError):  # another git process's temporary file
                        size = entry.stat().st_size
                        if same or size > min(_LARGE, left):
                            os.link(entry.path, copy / path)
                        else:
                            left -= size
                            shutil.copy2(entry.path, copy / path)


_LED_AWAY = "leads elsewhere"
_BROKEN = "replaced or damaged"


async def find_damage(
    repository: Repository, backup: GitBackup, copy: Path, marker: str
) -> list[str]:
    """The damage, if any: a ``.git`` file that leads elsewhere, a replaced or broken repository."""
    file = repository.root / GIT
    away = file.is_symlink() or not file.is_file() or _read_text(file) != backup.file
    found = [_LED_AWAY] if backup.file and away else []
    broken = backup.kept and await _is_broken(repository, copy, marker)
    return [*found, _BROKEN] if broken else found


def overwritten_objects(repository: Repository, copy: Path, since_ns: int) -> dict[str, bool]:
    """The files of objects whose bytes are not those of before; True if they are put back.

    git never writes into such a file, only its times may be others. ``since_ns``: when the launch
    began; nobody can set the time of the last change of a file's entry.
    """
    found: dict[str, bool] = {}
    objects, kept = repository.common / _OBJECTS, copy / _OBJECTS
    for name in sorted(_objects(objects) & _objects(kept)):
        now, then = objects / name, kept / name
        new, old = now.lstat(), then.lstat()
        if name.startswith("info/") or new.st_ctime_ns < since_ns:
            continue
        if new.st_ino == old.st_ino and new.st_dev == old.st_dev:
            if not _has_checksum(now, sha256=repository.sha256):
                found[name] = False
        elif now.is_symlink() or now.read_bytes() != then.read_bytes():
            now.unlink()
            shutil.copy2(then, now)
            found[name] = True
    return found


def _has_checksum(file: Path, *, sha256: bool) -> bool:
    """True if the file of objects ends with its checksum, or is the object that its name says."""
    kind = "sha256" if sha256 else "sha1"
    data = file.read_bytes()
    if file.parent.name == "pack":
        size = hashlib.new(kind).digest_size
        plain = file.suffix in {".bitmap", ".keep", ".promisor", ".mtimes"}
        return plain or hashlib.new(kind, data[:-size]).digest() == data[-size:]
    with suppress(zlib.error):
        return hashlib.new(kind, zlib.decompress(data)).hexdigest() == file.parent.name + file.name
    return False


def repair(repository: Repository, wrong: str, backup: GitBackup, copy: Path, aside: Path) -> None:
    """Restore the repository; what was in its place goes ``aside``."""
    if wrong == _LED_AWAY:
        _move(repository.root / GIT, aside / "file")
        (repository.root / GIT).write_text(backup.file, "utf-8", "surrogateescape")
    else:
        _move(repository.common, aside)
        _copy(copy, repository.common)


def _read_text(file: Path) -> str:
    try:
        return file.read_text("utf-8", "surrogateescape")
    except OSError:
        return ""


def _move(file: Path, aside: Path) -> None:
    if os.path.lexists(file):
        with suppress(OSError):
            if not file.is_symlink():
                file.chmod(file.stat().st_mode | 0o700)
        aside.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(file, aside)


async def _is_broken(repository: Repository, copy: Path, marker: str) -> bool:
    common = repository.common
    if common.is_symlink() or not common.is_dir() or (repository.root / GIT).is_symlink():
        return True
    if common.stat().st_mode & 0o700 != 0o700:
        common.chmod(0o755)
    if not (common / "HEAD").is_file() or not (common / _OBJECTS).is_dir():
        return True
    now, then = _objects(common / _OBJECTS), _objects(copy / _OBJECTS)
    if then <= now:
        return False
    # Objects may have been repacked, or become unreachable. The check uses the copy's branches and
    # settings: those that the agent could change cannot be trusted.
    asked = {"GIT_DIR": str(copy), "GIT_OBJECT_DIRECTORY": str(common / _OBJECTS)}
    git = Git(repository.root, marker, asked)
    code, _, _ = await git.run_unchecked("rev-list", "--objects", "--all", "--quiet")
    return code != 0


def _objects(folder: Path) -> set[str]:
    found: set[str] = set()
    for above, _, names in os.walk(folder):
        found.update(os.path.relpath(os.path.join(above, name), folder) for name in names)  # noqa: PTH118
    return found
