"""Records an agent's changes of the working tree as a patch, and applies such a patch."""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio

from handrail.errors import CommandFailed, CommandNotFound
from handrail.model.dataclass import dataclass
from handrail.secrets.masking import Mask
from handrail.system.own_files import own_files
from handrail.typed.jsonsafe import Json
from handrail.workspace.errors import PatchRefused
from handrail.workspace.git import Git, Repository, head_of, repository_of
from handrail.workspace.shadow import Change, Shadow, State, shadow_for_a_time

_SHORTEST_LINE = 12
_BINARY = b"\nGIT binary patch\n"


@dataclass(frozen=True, slots=True)
class WorkingTree:
    """The working tree that an agent works in: a repository's, or just a folder."""

    root: Path
    repository: Repository | None
    marker: str
    why_not: str = ""

    @contextmanager
    def watched(self, ignored: Sequence[Path]) -> Generator[Watched | None]:
        """A watch that can later tell what was changed; None without a repository."""
        if self.repository is None:
            yield None
            return
        named = os.environ.get("HANDRAIL_DIR")
        places = [self.root / ".handrail", *([Path(named).resolve()] if named else []), *ignored]
        with shadow_for_a_time(self.root, self.repository, self.marker, places) as shadow:
            yield Watched(shadow, self.repository)

    async def apply(self, patch: Path, ignored: Sequence[Path]) -> None:
        """Apply a patch to the files, to all of them or to none.

        Raises:
            PatchRefused: the patch does not apply to these files.
        """
        try:
            with self.watched(ignored) as watched:
                if watched is not None:
                    await watched.apply(_bytes(patch))
                else:
                    words = ("apply", "--whitespace=nowarn", "-")
                    await Git(self.root, self.marker)(*words, stdin=_bytes(patch))
        except CommandFailed as error:
            reason = (error.stderr or error.stdout).strip()
            raise PatchRefused(str(patch), str(self.root), reason) from None
        except OSError as error:
            raise PatchRefused(str(patch), str(self.root), str(error)) from None


async def working_tree(folder: Path, marker: str) -> WorkingTree:
    """The working tree that a folder is in."""
    repository, why = None, "not a git repository"
    try:
        repository = await repository_of(folder, marker)
    except CommandNotFound as error:
        why = str(error)
    if repository is None:
        return WorkingTree(Path(await anyio.Path(folder).resolve()), None, marker, why)
    return WorkingTree(repository.root, repository, marker)


def _bytes(file: Path) -> bytes:
    return file.read_bytes()


@dataclass(slots=True)
class Watched:
    """A working tree whose changes are watched. Mutable."""

    shadow: Shadow
    repository: Repository
    before: State | None = None

    async def begin(self) -> None:
        """Take the state that ``change`` compares with."""
        self.before = await self._state()

    async def change(self, mask: Mask) -> tuple[bytes, dict[str, Json]]:
        """The change since ``begin`` as a patch without secrets, and a report for people."""
        assert self.before is not None
        now = await self.shadow.state(self.before.tree)
        own = own_files(self.repository.root)
        changes = [c for c in await self.shadow.changes(self.before, now) if c.path not in own]
        told: dict[str, Json] = {"files": [mask.text(str(change)) for change in changes]}
        secret = [c for c in changes if not c.is_repository and await self._hides_secret(c, mask)]
        left_out = {c.path for c in secret} | {c.path for c in changes if c.is_repository}
        if left_out:
            told["left_out"] = [mask.text(path) for path in sorted(left_out)]
        kept = [(c.path, c.after) for c in changes if c.path not in left_out]
        if not kept:
            return b"", told
        wanted = await self.shadow.with_entries(self.before, kept)
        return _mask_patch(await self.shadow.patch(self.before, wanted), mask), told

    async def apply(self, patch: bytes) -> None:
        """Apply the patch to the files."""
        now = await self._state()
        await self.shadow.write(now, await self.shadow.apply_patch(now, patch))

    async def _state(self) -> State:
        return await self.shadow.state(await head_of(self.repository.git(self.shadow.marker)))

    async def _hides_secret(self, change: Change, mask: Mask) -> bool:
        """True for a binary file with a secret: the patch encodes it, so masking would miss it."""
        texts = [await self.shadow.text(e) for e in (change.before, change.after) if e is not None]
        return any("\0" in text for text in texts) and any(
            mask.text(text) != text for text in texts
        )


def _mask_patch(patch: bytes, mask: Mask) -> bytes:
    """The patch without secrets, including those of several lines; binary parts stay as is."""
    files = re.split(rb"(?m)^(?=diff --git )", patch)
    return b"".join(part if _BINARY in part else _mask_text(part, mask) for part in files)


def _mask_text(part: bytes, mask: Mask) -> bytes:
    shown: bytes = mask.value(part)
    for name, value in mask.values.items():
        for line in value.splitlines()[: None if "\n" in value else 0]:
            if len(line) >= _SHORTEST_LINE:
                shown = shown.replace(
                    line.encode("utf-8", "surrogateescape"), b"${%s}" % name.encode()
                )
    return shown
