"""An index of claimed paths, which finds the claims that overlap a path.

A path covers itself and all below it. So two paths overlap if they are equal, or one is above the
other. The index has an entry for each claimed path, and one for each folder above it. A look-up
reads only the entries of the path and of the folders above it, however many claims there are.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from handrail.coordination.hub.frames import Refusal

DEEPEST = 64
"""The most folders in a path; each costs an entry of the index."""
_MOST_OVERLAPS = 200
"""The most overlaps that a look-up returns."""
_DRIVE = re.compile(r"[A-Za-z]:/")


def normalized(
    paths: Iterable[str], roots: Sequence[str], real: Callable[[str], str] = str
) -> tuple[str, ...]:
    """The paths relative to the repository's root, each once; empty: the whole repository.

    ``a/../b`` is ``b``, and a wildcard stands for the folder that it is in. An absolute path must
    be below one of ``roots``. ``real`` follows the links of an absolute path: a linked folder is
    the folder.

    Raises:
        Refusal: a path leads out of the repository.
    """
    plain = dict.fromkeys(_normal(path, roots) for path in paths)
    found = tuple(dict.fromkeys(_followed(path, roots, real) for path in plain))
    return () if "" in found else found


def _normal(path: str, roots: Iterable[str]) -> str:
    if not all(one.isprintable() for one in path):
        raise Refusal(f"Path {path[:80]!a} has characters in it that cannot be seen.")
    plain = path.replace("\\", "/").strip()
    if plain.startswith("/") or _DRIVE.match(plain):
        plain = _below(path, plain, roots)
    parts: list[str] = []
    wild = False
    for part in plain.split("/"):
        wild = wild or "*" in part or "?" in part
        if part == "..":
            if wild or not parts:
                raise Refusal(f"Path '{path}' leads out of the repository, or may do so.")
            parts.pop()
        elif part not in {"", "."} and not wild:
            parts.append(part)
    if len(parts) > DEEPEST:
        raise Refusal(f"Path '{path[:80]}…' is more than {DEEPEST} folders deep.")
    return "/".join(parts)


def _followed(path: str, roots: Sequence[str], real: Callable[[str], str]) -> str:
    """The path without links in it, if it is in the repository then."""
    for root in roots[:1] if path else ():
        base, found = real(root), real(f"{root}/{path}")
        if found.startswith(f"{base}/"):
            return found[len(base) + 1 :]
        if found == base:
            return ""
    return path


def _below(path: str, plain: str, roots: Iterable[str]) -> str:
    for root in roots:
        base = root.replace("\\", "/").rstrip("/")
        if base and (plain == base or plain.startswith(f"{base}/")):
            return plain[len(base) :]
    known = " or ".join(f"'{root}'" for root in roots) or "a folder that the hub knows"
    raise Refusal(
        f"Path '{path}' is absolute and not below {known}: give it from the root of the repository."
    )


class Scopes:
    """The index, by worktree. Mutable."""

    def __init__(self, *, folds_case: bool) -> None:
        self._folds_case = folds_case
        self._at: dict[tuple[str, str], dict[str, dict[str, int]]] = {}
        self._within: dict[tuple[str, str], dict[str, dict[str, int]]] = {}

    def add(self, task_id: str, owner: str, worktree: str, paths: tuple[str, ...]) -> None:
        """Add the paths of a claim."""
        for path in self._keys(paths):
            _count(self._at, (worktree, path), owner, task_id, 1)
            for place in (path, *_above(path)):
                _count(self._within, (worktree, place), owner, task_id, 1)

    def remove(self, task_id: str, owner: str, worktree: str, paths: tuple[str, ...]) -> None:
        """Remove the paths that ``add`` added."""
        for path in self._keys(paths):
            _count(self._at, (worktree, path), owner, task_id, -1)
            for place in (path, *_above(path)):
                _count(self._within, (worktree, place), owner, task_id, -1)

    def overlaps(self, worktree: str, paths: tuple[str, ...], ignoring: str) -> list[str]:
        """Tasks whose claims overlap these paths, without those of the owner ``ignoring``.

        At most ``_MOST_OVERLAPS``, for the caller to find the oldest.
        """
        found = (
            task_id
            for path in self._keys(paths)
            for owners in self._met(worktree, path)
            for owner, tasks in owners.items()
            if owner != ignoring
            for task_id in tasks
        )
        return list(islice(found, _MOST_OVERLAPS))

    def _met(self, worktree: str, path: str) -> Iterator[dict[str, dict[str, int]]]:
        if (owners := self._within.get((worktree, path))) is not None:
            yield owners
        for place in _above(path):
            if (owners := self._at.get((worktree, place))) is not None:
                yield owners

    def _keys(self, paths: tuple[str, ...]) -> Iterable[str]:
        return [_key(path, folds_case=self._folds_case) for path in paths] or [""]


def _key(path: str, *, folds_case: bool) -> str:
    if not path.isascii():
        path = unicodedata.normalize("NFC", path)
    return path.casefold() if folds_case else path


def _above(path: str) -> Iterator[str]:
    """The folders above a path, the root last."""
    while path:
        path = path.rpartition("/")[0]
        yield path


def _count(
    places: dict[tuple[str, str], dict[str, dict[str, int]]],
    place: tuple[str, str],
    owner: str,
    task_id: str,
    by: int,
) -> None:
    tasks = places.setdefault(place, {}).setdefault(owner, {})
    tasks[task_id] = tasks.get(task_id, 0) + by
    if not tasks[task_id]:
        del tasks[task_id]
        if not tasks:
            del places[place][owner]
            if not places[place]:
                del places[place]
