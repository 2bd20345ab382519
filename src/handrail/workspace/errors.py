"""Errors: an agent changed files outside its scope, or its work cannot be merged or applied."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from handrail.errors import HandrailError
from handrail.model.launch import AgentError
from handrail.model.results import Conflict

_SHOWN = 20


def _listed(files: Sequence[str]) -> str:
    shown = [f"  {file}" for file in files[:_SHOWN]]
    if len(files) > _SHOWN:
        shown.append(f"  and {len(files) - _SHOWN} more")
    return "\n".join(shown)


RECORD_AGAIN = (
    'Record it again: Cassette(folder, mode="record"), handrail run --record DIR, or '
    "pytest --handrail-record."
)


class ScopeViolated(AgentError):
    """An agent changed files outside of its ``writes=``; these changes were undone.

    ``files`` are their paths, ``patch`` is the file with the changes (None: nothing but commits),
    ``allowed`` the patterns. ``notes`` say what else was undone or kept.
    """

    def __init__(
        self,
        agent: str,
        files: Sequence[str],
        patch: str | None,
        allowed: Sequence[str] = (),
        notes: Sequence[str] = (),
    ) -> None:
        super().__init__(agent, "changed files outside of its scope")
        self.args = (agent, tuple(files), patch, tuple(allowed), tuple(notes))
        self.files = tuple(files)
        self.patch = patch
        self.allowed = tuple(allowed)
        self.notes = tuple(notes)

    def __str__(self) -> str:
        count = f"{len(self.files)} {'file' if len(self.files) == 1 else 'files'}"
        allowed = ", ".join(map(repr, self.allowed)) or "nothing"
        lost = any(note.startswith("NOTHING") for note in self.notes)
        lines = [
            f"agent {self.agent!r} changed {count} outside of what it may write ({allowed}):",
            _listed(self.files),
            *([] if lost else ["These changes were undone; those it may make are kept."]),
            *self.notes,
        ]
        if self.patch is not None:
            again = shlex.join(["git", "apply", self.patch])
            lines.append(f"What was undone is in {self.patch}. To have it after all: {again}")
        return "\n".join(lines)


class WorktreeConflict(AgentError):
    """The work in a worktree cannot be merged: it conflicts with the main working tree.

    ``agent`` names the agent or step that did the work. ``path`` (and ``folder``) is the worktree,
    which is kept; the work is committed on ``branch``. ``files`` are those that both sides changed,
    as far as git tells.
    """

    of_steps = False
    """True for a worktree over several recorded steps: a resume finds a merge done by hand."""
    is_committed = True
    """False if the work is in the worktree as it was left, and not committed on its branch."""

    def __init__(
        self, agent: str, folder: str, branch: str, reason: str, files: Sequence[str] = ()
    ) -> None:
        super().__init__(agent, reason)
        self.args = (agent, folder, branch, reason, tuple(files))
        self.folder = self.path = folder
        self.branch = branch
        self.files = tuple(files)

    @property
    def conflict(self) -> Conflict:
        """The conflict as data: the output of the step that fails by it."""
        return Conflict(self.path, self.branch, self.files, self.reason)

    def __str__(self) -> str:
        undo = f"git worktree remove --force {shlex.quote(self.folder)}"
        removal = f"remove both: {undo} && git branch -D {self.branch}"
        follows = f"then {removal}"
        if self.of_steps:
            follows = f"and resume the run, which removes both; if it is not to go on, {removal}"
        if not self.is_committed:
            again = "Finish it there and resume the run" if self.of_steps else "Look there"
            return (
                f"what {self.agent!r} did in its worktree is not merged: {self.reason}\n"
                f"The working tree was left as it is. The worktree is kept as it is, too, in "
                f"{self.folder}, with the branch {self.branch}. {again}; to drop it, {removal}"
            )
        return (
            f"what {self.agent!r} did in its worktree conflicts with the working tree, which "
            f"was left as it is:\n{self.reason}\nThe worktree is kept in {self.folder}, its work "
            f"is committed on the branch {self.branch}. Merge it (git merge {self.branch}), "
            f"{follows}"
        )


class PatchRefused(HandrailError):
    """A recorded agent's patch does not apply to this working tree."""

    def __init__(self, patch: str, folder: str, reason: str) -> None:
        super().__init__(patch, folder, reason)
        self.patch = patch
        self.folder = folder
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"the recorded patch {self.patch} does not apply to {self.folder}, which was left as "
            f"it is: {self.reason}\nBring the files to the state in which it was recorded. "
            f"{RECORD_AGAIN}"
        )
