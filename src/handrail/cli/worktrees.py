"""``handrail worktrees``: lists the worktrees that steps have left, and removes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeAlias

import anyio
import attrs

from handrail.cli.channels import json_channel, tell, write_json
from handrail.cli.exits import Exit, Refused
from handrail.cli.masking import mask_text
from handrail.cli.options import Json
from handrail.cli.who import marker, refuse_in_step
from handrail.model.paths import decode_key
from handrail.sinks.console_text import counted
from handrail.workspace.claims.local import LocalClaims
from handrail.workspace.git import Repository, known_to_git, repository_of
from handrail.workspace.places import BRANCHES, places_of, tree_name, without_mark
from handrail.workspace.tree_lock import list_locked
from handrail.workspace.worktree import Worktree

State: TypeAlias = Literal["at work", "merged", "not merged"]


@attrs.frozen
class StepBranch:
    """A branch of a step's own, with its worktree if there is one.

    ``commits``: how many of them HEAD lacks. ``uncommitted``: how many files are not committed.
    """

    branch: str
    folder: str
    run: str
    path: str
    state: State
    commits: int
    uncommitted: int


def worktrees(*, prune: bool = False, force: bool = False, as_json: Json = False) -> int:
    """List the worktrees that steps left behind, or remove the merged ones.

    Parameters
    ----------
    prune
        Remove the worktrees that no step uses and whose work is merged.
    force
        With --prune: also remove worktrees whose work is not merged.
    """
    if force and not prune:
        raise Refused("--force", "only works with --prune", "Add --prune.")
    if prune:
        refuse_in_step("worktrees --prune")
    with json_channel(wanted=as_json) as data:
        found = anyio.run(_list_or_prune, prune, force)
        if data is not None:
            write_json([attrs.asdict(one) for one in found], data)
            return Exit.SUCCEEDED
        for one in found:
            print(mask_text(_line(one)))
        if prune:
            tell(f"{counted(len(found), 'worktree')} removed")
        elif not found:
            print("no worktrees of steps are left")
    return Exit.SUCCEEDED


def _line(one: StepBranch) -> str:
    ahead = f"not merged: {counted(one.commits, 'commit')}"
    what = {"at work": "at work", "merged": "merged", "not merged": ahead}
    files = counted(one.uncommitted, "file")
    more = f", {files} not committed" if one.uncommitted else ""
    place = one.folder or f"branch {one.branch}"
    return f"run {one.run}  step {one.path}  {what[one.state]}{more}  {place}"


async def _list_or_prune(prune: bool, force: bool) -> list[StepBranch]:  # noqa: FBT001  # by anyio.run
    repository = await repository_of(Path.cwd(), marker())
    if repository is None:
        raise Refused(str(Path.cwd()), "is in no git repository")
    found = await _step_branches(repository)
    if not prune:
        return found
    gone: list[StepBranch] = []
    for one in found:
        if one.state == "merged" or (force and one.state != "at work"):
            await _remove(repository, one)
            gone.append(one)
        elif one.state == "not merged":
            tell(f"{_line(one)}: kept; --force removes it, too")
    return gone


async def _step_branches(repository: Repository) -> list[StepBranch]:
    git = repository.git(marker())
    folders = _folders(await git("worktree", "list", "--porcelain"))
    listed = await git("for-each-ref", "--format=%(refname:short)", f"refs/heads/{BRANCHES}/")
    local = LocalClaims(str(repository.common))
    held = {its.name for one in (await local.listed()).held for its in one.resources}
    found: list[StepBranch] = []
    for branch in listed.split():
        folder = folders.get(branch, "")
        ahead = int(await git("rev-list", "--count", f"HEAD..{branch}"))
        dirty = 0
        if folder and _is_there(folder):
            dirty = await _uncommitted(repository, Path(folder), branch)
        _, run, *path = map(without_mark, branch.split("/"))
        state: State = "not merged" if ahead or dirty else "merged"
        if _is_at_work(branch, held):
            state = "at work"
        words = (decode_key(run), "/".join(map(decode_key, path)))
        found.append(StepBranch(branch, folder, *words, state, ahead, dirty))
    return found


async def _uncommitted(main: Repository, folder: Path, branch: str) -> int:
    own = known_to_git(main.common, folder)
    if own is None:
        return 0
    here = replace(main, root=folder, own=own)
    places = places_of(main.root, "run", branch)
    tree = Worktree(main, places, marker(), branch, of_steps=True, here=here, base=branch)
    return await tree.uncommitted()


def _folders(porcelain: str) -> dict[str, str]:
    """Where each branch is checked out."""
    found: dict[str, str] = {}
    folder = ""
    for line in porcelain.splitlines():
        word, _, rest = line.partition(" ")
        if word == "worktree":
            folder = rest
        elif word == "branch":
            found[rest.removeprefix("refs/heads/")] = folder
    return found


def _is_there(folder: str) -> bool:
    return Path(folder).is_dir()


def _is_at_work(branch: str, held: set[str]) -> bool:
    """True if a step at work has the claim of this worktree, from any of its attempts."""
    head, _, number = branch.rpartition("%7E")  # as "~" is written in a branch
    first = head if number.isdigit() else branch
    return not held.isdisjoint({tree_name(branch), tree_name(first)})


async def _remove(repository: Repository, one: StepBranch) -> None:
    git = repository.git(marker())
    async with list_locked(repository):
        if one.folder:
            await git.run_unchecked("worktree", "remove", "--force", "--force", one.folder)
        await git.run_unchecked("worktree", "prune")
        await git.run_unchecked("branch", "--quiet", "-D", one.branch)
