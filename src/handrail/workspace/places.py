"""Where handrail keeps what it needs of an agent's launch: files beside the repository's."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from handrail.model.agent_options import NO_OPTIONS, AgentOptions
from handrail.model.paths import on_disk
from handrail.ports.agent import AgentBackend


@dataclass(frozen=True, slots=True)
class Places:
    """Folders and names for one step of one run; ``base`` is theirs alone.

    ``base`` is ``HANDRAIL_DIR``, or ``.handrail`` in the repository. git ignores what is in it.
    """

    base: Path
    run_id: str
    path: str

    @property
    def parts(self) -> tuple[str, ...]:
        """The run and the path, each part as it can be a name on disk and in a branch."""
        # Dots would be trouble in branches: "..", ".lock", one at the edge.
        return tuple(
            on_disk(part).replace(".", "%2E") for part in (self.run_id, *self.path.split("/"))
        )

    @property
    def branch(self) -> str:
        """The branch of the step's worktree."""
        return "/".join(("handrail", *self.parts))

    @property
    def worktree(self) -> Path:
        """The step's worktree."""
        return self.base.joinpath("worktrees", *self.parts)

    @property
    def shadow(self) -> Path:
        """What is known of the state before the step's launch, until that has ended."""
        return self.base.joinpath("launches", *self.parts)

    @property
    def merging(self) -> Path:
        """The file whose lock the step holds that merges into the working tree."""
        return self.base / "merging.lock"

    def quarantine(self) -> Path:
        """A patch file that is not there yet."""
        first = self.base.joinpath("quarantine", *self.parts)
        number, name = 1, first.name
        while (file := first.with_name(f"{name}.patch")).exists():
            number += 1
            name = f"{first.name}-{number}"
        return file

    def make(self) -> None:
        """Make the base, and have git ignore it."""
        self.base.mkdir(parents=True, exist_ok=True)
        ignore = self.base / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", "utf-8")

    def forget(self) -> None:
        """Remove what is known of the state before the launch, and folders that are empty now."""
        shutil.rmtree(self.shadow, ignore_errors=True)
        prune(self.shadow.parent, self.base)


def folder_of(options: AgentOptions, backend: AgentBackend) -> Path:
    """The folder that a launch works in."""
    own: AgentOptions = getattr(backend, "options", NO_OPTIONS)
    return Path(options.over(own).cwd or getattr(backend, "cwd", None) or Path.cwd())


def places_of(root: Path, run_id: str, path: str) -> Places:
    """The places of a step in the repository at ``root``."""
    named = os.environ.get("HANDRAIL_DIR")
    base = Path(named).resolve() if named else root / ".handrail"
    return Places(base, run_id or "run", path)


def prune(folder: Path, base: Path) -> None:
    """Remove a folder and those above it, up to ``base``, that are empty."""
    while folder != base and folder.is_relative_to(base):
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent
