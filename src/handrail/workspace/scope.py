"""Enforced scope: what an agent changed outside of ``writes=`` is set aside and undone.

Theory of operation. Before the launch the state of the working tree is taken by a shadow (see
``system.shadow``), tracked and untracked files alike, and what git keeps beside them (see
``scope_inside``). After it, however it ended, both are compared. If anything outside of the
patterns was changed, it goes into a patch, the files are brought back to the bytes they had before
(which need not be those of the last commit), and HEAD, its branch and the index to where they were;
what the patterns allow stays in the working tree. This is repeated until nothing is found any more:
an ignore file that was undone may have hidden others.

The state before is kept on disk until the check is over. If the process is killed meanwhile, the
next launch of the step finds it, and takes up that check: a crash is no way out of the scope.

Files that git ignores are left alone, as are those that this process has open: its journal, its
logs. Of a repository within the repository (a submodule) only its commit is looked at.

A working tree has one state, so launches with ``writes=`` take turns in it (see ``tree_lock``).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import msgspec

from handrail.system.own_files import own_files
from handrail.workspace.git import Git, Repository, head_of
from handrail.workspace.places import Places
from handrail.workspace.shadow import Change, Shadow, State

# What git keeps of a working tree beside its files: HEAD, index, hooks, settings.
#
# An agent may change these too: by a commit, by ``git add``, or by hand. They are looked at before
# a launch, and what was changed can be put back.

_SETTINGS = ("config", "info/exclude", "info/attributes")
_SAMPLE = ".sample"
_LARGEST = 16 << 20
"""Of a larger file only size and time are kept: it is seen if it is another, and not put back."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A file's bytes, mode and time; of a link also where it leads."""

    data: bytes | None
    mode: int
    at_ns: int
    size: int = -1
    link: str = ""

    def same(self, other: Kept | None) -> bool:
        """True if it is the same file but for its time."""
        if other is None or self.link != other.link:
            return False
        if (self.data, self.mode) != (other.data, other.mode):
            return False
        return self.data is not None or (self.size, self.at_ns) == (other.size, other.at_ns)


@dataclass(frozen=True, slots=True)
class Inside:
    """HEAD as a commit (None: there is none yet) and as a branch (None: it is on none), the index,
    and the hooks and settings by their names, seen from the git directory.

    They are those of the repository, of this working tree and of submodules, and those in the
    folder ``hooks`` that a setting names, which may lie in the working tree and be ignored.
    """

    head: str | None
    branch: str | None
    index: Kept | None
    files: dict[str, Kept]
    hooks: str = ""


async def inside_of(repository: Repository, marker: str, was: Inside | None = None) -> Inside:
    """What there is now; ``was``: what there was before a launch."""
    git = repository.git(marker)
    hooks = None if was is None else was.hooks
    before = None if was is None else was.files
    _, branch, _ = await git.ends("symbolic-ref", "--quiet", "HEAD")
    if hooks is None:
        # The words that keep hooks from running name the setting, too: it is asked for by file.
        words = ("config", "--show-origin", "--type=path", "--get-all", "core.hooksPath")
        _, said, _ = await git.ends(*words)
        named = [line.partition("\t") for line in said.splitlines()]
        own = [path for origin, _, path in named if not origin.startswith("command line")]
        hooks = str(repository.root / own[-1]) if own else ""
    names = _names(repository, hooks, before)
    files = {name: kept for name in names if (kept := _kept(repository.common / name))}
    return Inside(await head_of(git), branch.strip() or None, _index(repository), files, hooks)


def _names(repository: Repository, hooks: str, before: Mapping[str, Kept] | None) -> list[str]:
    """The names that count. A folder of hooks that is a link is one itself, and what it leads to
    counts only if it was that link before: behind a new one are files that are nobody's here.
    """
    common = repository.common
    submodules = [head.parent for head in sorted((common / "modules").rglob("HEAD"))]
    homes = [common, *(folder for folder in submodules if (folder / "objects").is_dir())]
    found = [home / name for home in homes for name in (*_SETTINGS, "config.worktree")]
    found.append(repository.own / "config.worktree")
    folders = [home / "hooks" for home in homes] + ([Path(hooks)] if hooks else [])
    for folder in folders:
        if folder.is_symlink():
            found.append(folder)
            known = None if before is None else before.get(os.path.relpath(folder, common))
            if before is not None and (known is None or known.link != _link_of(folder)):
                continue
        there = sorted(folder.iterdir()) if _can_be_read(folder) else []
        found += [f for f in there if f.suffix != _SAMPLE and f.name.isprintable()]
    return list(dict.fromkeys(os.path.relpath(file, common) for file in found))


def _index(repository: Repository) -> Kept | None:
    return _kept(repository.own / "index", largest=None)


def _kept(file: Path, largest: int | None = _LARGEST) -> Kept | None:
    try:
        link = _link_of(file)
        known = file.lstat() if link and not file.is_file() else file.stat()
        if not file.is_file():
            return Kept(b"", 0o777, known.st_mtime_ns, 0, link) if link else None
        data = None if largest is not None and known.st_size > largest else file.read_bytes()
        return Kept(data, known.st_mode & 0o777, known.st_mtime_ns, known.st_size, link)
    except OSError:
        return None


def _link_of(file: Path) -> str:
    """Where a link leads, as it says it; empty of what is none."""
    try:
        return os.readlink(file)  # noqa: PTH115  # as it is written, not resolved
    except OSError:
        return ""


def _can_be_read(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.R_OK | os.X_OK)


def put_back(repository: Repository, name: str, wanted: Kept | None) -> None:
    """Make a file in the git directory what it was; with None, remove it."""
    _write(repository.common / name, wanted)


def _write(file: Path, wanted: Kept | None) -> None:
    folder, link = file.parent, "" if wanted is None else wanted.link
    if folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
        folder.chmod(0o755)
    if wanted is None or _link_of(file) != link:
        file.unlink(missing_ok=True)
        if link:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.symlink_to(link)
    if wanted is None or wanted.data is None or (link and not file.is_file()):
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(wanted.data)
    file.chmod(wanted.mode)
    # An index that were younger than it is would take files for unchanged that were changed since.
    os.utime(file, ns=(wanted.at_ns, wanted.at_ns))


async def rewind(repository: Repository, marker: str, before: Inside, after: Inside) -> None:
    """Put HEAD, its branch and the index back to where they were."""
    git = repository.git(marker)
    if before.branch is not None:
        if after.branch != before.branch:
            await git("symbolic-ref", "HEAD", before.branch)
        if before.head is None:
            await git("update-ref", "-d", before.branch)
        else:
            await git("update-ref", before.branch, before.head)
    elif before.head is not None:
        await git("update-ref", "--no-deref", "HEAD", before.head)
    now = _index(repository)
    if before.index is not None and not before.index.same(now):
        _write(repository.own / "index", before.index)
    elif before.index is None and now is not None:
        _write(repository.own / "index", None)


_GIT = ".git"


def allows(patterns: Sequence[str], path: str) -> bool:
    """True if the last of the patterns that covers the path is none with ``!``.

    Paths are relative to the repository, with ``/``. In a pattern ``*`` and ``?`` stand for
    anything but ``/``, ``**`` for any number of folders, ``[a-z]`` for one character of these. One
    without ``/``, except at its end, counts in every folder. A name without such signs covers a
    file, or a folder with all that is below it; with ``/`` at its end only the latter. What is in
    ``.git`` is allowed by patterns alone that begin with it.
    """
    verdict = False
    for pattern in patterns:
        wanted = pattern.removeprefix("!")
        if path.startswith(f"{_GIT}/") and not wanted.startswith(_GIT):
            continue
        if _compiled(wanted).fullmatch(path):
            verdict = wanted is pattern
    return verdict


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    """The paths that a pattern covers."""
    pattern = pattern.removeprefix("./")
    folder = pattern.endswith("/")
    parts = pattern.rstrip("/").split("/")
    if len(parts) == 1 and parts != ["**"]:
        parts = ["**", *parts]
    plain = not re.search(r"[*?\[]", parts[-1])
    below = "/.+" if folder else "(?:/.+)?" if plain else ""
    return re.compile(_joined(parts) + below, re.DOTALL)


def _joined(parts: Sequence[str]) -> str:
    """The parts with ``/`` between them; ``**`` as a part is any number of them."""
    *before, last = parts
    folders = "".join("(?:[^/]+/)*" if part == "**" else f"{_part(part)}/" for part in before)
    return folders + (".+" if last == "**" else _part(last))


def _part(part: str) -> str:
    found: list[str] = []
    at = 0
    while at < len(part):
        sign, at = part[at], at + 1
        if sign == "*":
            found.append("[^/]*")
        elif sign == "?":
            found.append("[^/]")
        elif sign == "\\" and at < len(part):
            found.append(re.escape(part[at]))
            at += 1
        elif sign == "[" and (end := part.find("]", at + 1 + (part[at : at + 1] in "!^"))) > 0:
            found.append(_class(part[at:end]))
            at = end + 1
        else:
            found.append(re.escape(sign))
    return "".join(found)


def _class(inside: str) -> str:
    """``[abc]``, ``[a-z]``, ``[!abc]``; never a ``/``."""
    negated = inside[:1] in {"!", "^"}
    members = re.sub(r"([\\\[\]^&~|])", r"\\\1", inside[negated:])
    return f"(?!/)[{'^' * negated}{members}]"


_MAX_PASSES = 10
_BEFORE = "before.json"
_OF_EARLIER = (
    "An earlier launch of this step was killed: whatever was changed since it began counts as the "
    "agent's."
)


@dataclass(frozen=True, slots=True)
class Before:
    """What there was before a launch."""

    state: State
    inside: Inside
    own: frozenset[str]
    of_earlier: bool = False
    """It is the state before an earlier launch, which was killed."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What an agent did that it may not do, and where it is now."""

    files: tuple[str, ...] = ()
    patch: str | None = None
    notes: tuple[str, ...] = ()


async def before_launch(
    shadow: Shadow, places: Places, repository: Repository, ours: Sequence[Path] = ()
) -> Before:
    """The state before a launch: now, or, if an earlier launch was killed, before that one.

    ``ours`` are folders in which handrail itself writes meanwhile; they are in no state.
    """
    known = shadow.folder / _BEFORE
    if known.is_file():
        return replace(msgspec.json.decode(known.read_bytes(), type=Before), of_earlier=True)
    places.make()
    shadow.make(repository, [places.base, repository.root / ".handrail", *ours])
    inside = await inside_of(repository, shadow.marker)
    state = await shadow.state(inside.head)
    before = Before(state, inside, own_files(repository.root))
    fresh = known.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(before))
    fresh.replace(known)
    return before


async def left_from_before(shadow: Shadow, places: Places) -> Path | None:
    """The patch file that has now what was changed since the launch that was killed, if any was."""
    known = shadow.folder / _BEFORE
    if not known.is_file():
        return None
    before = msgspec.json.decode(known.read_bytes(), type=Before)
    patch = await shadow.patch(before.state, await shadow.state())
    if not patch:
        return None
    file = places.quarantine()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(patch)
    return file


@dataclass(frozen=True, slots=True)
class Scope:
    """Where an agent may write, in a repository whose state before the launch is known."""

    patterns: tuple[str, ...]
    repository: Repository
    shadow: Shadow
    places: Places
    before: Before

    async def enforced(self) -> Findings:
        """What was found, set aside and undone; nothing in it if the agent kept to its scope."""
        found = _Found()
        before = self.before.inside
        after = await inside_of(self.repository, self.shadow.marker, before)
        self._settings(after, found)
        for _ in range(_MAX_PASSES):
            now = await self.shadow.state()
            outside = self._outside(await self.changes(now))
            if not outside:
                break
            await self._set_aside(now, outside, found)
        await self._commits(after, found)
        if found.files:
            await rewind(self.repository, self.shadow.marker, self.before.inside, after)
            if self.before.of_earlier:
                found.notes.append(_OF_EARLIER)
            if after.head is not None and after.head != self.before.inside.head:
                found.notes.append(
                    f"HEAD is where it was before; the agent's last commit was {after.head}."
                )
        patch = None if found.patch is None else str(found.patch)
        return Findings(tuple(found.files), patch, tuple(found.notes))

    async def changes(self, now: State) -> tuple[Change, ...]:
        """What was changed since the launch, but for files that this process has open."""
        own = self.before.own | own_files(self.repository.root)
        changes = await self.shadow.changes(self.before.state, now)
        return tuple(change for change in changes if change.path not in own)

    def _outside(self, changes: Sequence[Change]) -> list[Change]:
        """Those that are not allowed, and those that stand in the way of undoing these."""
        outside = [change for change in changes if not allows(self.patterns, change.path)]
        while in_the_way := _in_the_way(outside, changes):
            outside += in_the_way
        return sorted(outside, key=lambda change: change.path)

    async def _set_aside(self, now: State, outside: list[Change], found: _Found) -> None:
        """Put these changes into the patch, and undo them."""
        files = [change for change in outside if not change.is_repository]
        if files:
            allowed = await self.shadow.mixed(now, [(c.path, c.before) for c in files])
            patch = await self.shadow.patch(allowed, now)
            found.patch = self._aside(found).with_suffix(".patch")
            with found.patch.open("ab") as file:
                file.write(patch)
            await self.shadow.write(now, allowed)
        found.files += [str(change) for change in outside]
        for change in outside:
            if change.is_repository:
                self._repository(change, found)

    def _repository(self, change: Change, found: _Found) -> None:
        """Move a new repository out of the way; of one that was there before only tell."""
        if change.before is not None:
            found.notes.append(f"The repository in {change.path} was changed, and left as it is.")
            return
        aside = self._aside(found).with_suffix(".repositories") / change.path
        aside.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(self.repository.root / change.path, aside)
        found.notes.append(f"The new repository {change.path} was moved to {aside}.")

    def _settings(self, after: Inside, found: _Found) -> None:
        """Set aside and undo changes of hooks and settings."""
        before = self.before.inside.files
        for name in sorted({*before, *after.files}):
            old, new = before.get(name), after.files.get(name)
            if (old is None and new is None) or (old is not None and old.same(new)):
                continue
            shown = os.path.normpath(f"{_GIT}/{name}")
            if allows(self.patterns, shown):
                continue
            found.files.append(f"{shown} ({_what(old, new)})")
            if new is not None:
                aside = self._aside(found).with_suffix(".git") / name.replace("../", "")
                aside.parent.mkdir(parents=True, exist_ok=True)
                if new.data is None:
                    shutil.move(self.repository.common / name, aside)
                else:
                    aside.write_bytes(new.link.encode() or new.data)
                found.notes.append(f"What it wrote into {shown} is in {aside}.")
            if old is not None and old.data is None:
                found.notes.append(f"{shown} was too large to be kept, and is not put back.")
            put_back(self.repository, name, old)

    async def _commits(self, after: Inside, found: _Found) -> None:
        """Tell of files outside that are in the agent's commits alone."""
        head = self.before.inside.head
        if after.head is None or after.head == head:
            return
        git = self.repository.git(self.shadow.marker)
        known = {file.rpartition(" (")[0] for file in found.files}
        changes = await self.shadow.changes(await _tree(git, head), await _tree(git, after.head))
        for change in changes:
            if change.shown not in known and not allows(self.patterns, change.path):
                found.files.append(f"{change.shown} (committed)")

    def _aside(self, found: _Found) -> Path:
        """Where its things go, to be given an ending."""
        if found.aside is None:
            found.aside = self.places.quarantine()
            found.aside.parent.mkdir(parents=True, exist_ok=True)
        return found.aside


@dataclass(slots=True)
class _Found:
    """What was found so far. Mutable."""

    files: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    aside: Path | None = None
    patch: Path | None = None


def _in_the_way(outside: Sequence[Change], changes: Sequence[Change]) -> list[Change]:
    """Files where there was a folder, and files in folders where there was a file."""
    back = {change.path for change in outside if change.before is not None}
    above = {folder for path in back for folder in _folders(path)}
    return [
        change
        for change in changes
        if change.after is not None
        and change not in outside
        and (change.path in above or not back.isdisjoint(_folders(change.path)))
    ]


def _folders(path: str) -> list[str]:
    """The folders that a path is in."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


def _what(old: Kept | None, new: Kept | None) -> str:
    if old is None:
        return "added"
    return "deleted" if new is None else "changed"


async def _tree(git: Git, commit: str | None) -> State:
    """The files of a commit; none of them if there is none."""
    if commit is None:
        return State((await git("hash-object", "-t", "tree", "/dev/null")).strip())
    return State((await git("rev-parse", f"{commit}^{{tree}}")).strip())
