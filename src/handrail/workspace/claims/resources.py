"""Turns patterns and paths of a repository into resources that can be claimed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from handrail.errors import CommandNotFound, DefinitionError
from handrail.model.patterns import fixed_part, literal, normal
from handrail.ports.claims import Resource
from handrail.workspace.git import Repository, printable, repository_of


def files_of(repository: Repository, patterns: Sequence[str]) -> Resource:
    """The files of a working tree that patterns cover, with links in patterns resolved.

    Raises:
        DefinitionError: a pattern leads out of the working tree; the text says which.
    """
    root = Path(os.path.realpath(repository.root))
    placed = tuple(_resolve_folders(root, normal(pattern)) for pattern in patterns)
    return Resource(
        patterns=placed,
        repository=str(repository.common),
        tree=str(repository.root),
        folds=folds_case(repository.common),
    )


def these_files(repository: Repository, paths: Iterable[str]) -> Resource:
    """Exactly these files of a working tree."""
    patterns = tuple(literal(printable(path)) for path in paths)
    where = str(repository.common), str(repository.root)
    return Resource("", patterns, *where, folds_case(repository.common))


async def common_of(folder: Path, marker: str) -> str:
    """The git directory that a repository's working trees share; "" outside of a repository."""
    try:
        repository = await repository_of(folder, marker)
    except CommandNotFound:  # no git, so no repository
        return ""
    return "" if repository is None else str(repository.common)


def folds_case(common: Path) -> bool:
    """True if the file system ignores case: git's ``HEAD`` is found as ``head``."""
    try:
        return (common / "HEAD").samefile(common / "head")
    except OSError:
        return False


def _resolve_folders(root: Path, pattern: str) -> str:
    """The pattern with links in its fixed part resolved; an existing file becomes a literal."""
    sign = "!" if pattern.startswith("!") else ""
    wanted = pattern.removeprefix("!")
    fixed = fixed_part(wanted)
    if not fixed:
        return pattern
    there = root / fixed
    real = Path(os.path.realpath(there))
    if not real.is_relative_to(root):
        raise DefinitionError(
            f"the pattern {pattern!r} leads out of the repository: {there} is a link, or is in "
            f"one, to {real}"
        )
    placed = real.relative_to(root).as_posix()
    rest = wanted.removeprefix("/").removeprefix(fixed)
    if not rest and not sign and real.is_file():
        return literal(placed)
    if placed == fixed:
        return pattern
    return f"{sign}/{placed}{rest}" if "/" not in placed else f"{sign}{placed}{rest}"
