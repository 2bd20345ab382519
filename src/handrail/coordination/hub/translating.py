"""What outsiders claim, as runs say it, and the other way round.

On the wire a claim is of a task and of paths in a worktree that has a label. For runs it is of
resources: names, and the files of a working tree that patterns cover. Both are one set here. A task
is a name. The working trees of the hub's own repository have the label "", others their path.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from handrail.coordination.hub.frames import Refusal
from handrail.coordination.hub.records import Claim, Held
from handrail.coordination.hub.scopes import normalized
from handrail.model.patterns import fixed_part
from handrail.ports import claims as port

OUTSIDE = "outside"
"""The journal of those who are in none, so that no run is taken for one of them."""
NAMES = ":names"
"""The label of the worktree that names are shown in: in it nobody has files."""
_SIGNS = re.compile(r"([\\*?\[])")


@lru_cache(maxsize=8_192)
def outsider(claim: Claim, folds: bool) -> port.Claim:  # noqa: FBT001  # a part of the key
    """The claim of an outsider, as of a run."""
    claimant = port.Claimant(claim.owner, "", OUTSIDE, "session")
    resources = wanted(claim.task_id, claim.worktree, claim.paths, folds=folds)
    return port.Claim(claimant, resources, claim.epoch, claim.claimed_at, claim.lease_expires_at)


def wanted(
    task_id: str, worktree: str, paths: Sequence[str], *, folds: bool
) -> tuple[port.Resource, ...]:
    """What an outsider's claim is of."""
    patterns = tuple(one for path in paths for one in _patterns(path)) or ("**",)
    files = port.Resource(patterns=patterns, tree=worktree, folds=folds)
    return files, port.Resource(task_id)


def placed(resources: Sequence[port.Resource], roots: Sequence[str]) -> tuple[port.Resource, ...]:
    """The same resources as the hub compares them, whoever says where they are."""
    return tuple(_placed(one, roots) for one in resources)


def shown_to(claim: port.Claim, asker: Sequence[port.Resource], roots: Sequence[str]) -> port.Claim:
    """A claim whose resources are where the asker has the same, or else where the hub is."""
    trees = {_placed(one, roots).tree: one for one in asker if one.tree}
    return replace(claim, resources=tuple(_shown(one, trees, roots) for one in claim.resources))


def paths_of(resources: Sequence[port.Resource]) -> tuple[str, ...] | None:
    """The paths that cover all of these files, for outsiders; None: of no files."""
    patterns = [pattern for one in resources for pattern in one.patterns if pattern[:1] != "!"]
    if not patterns:
        return None
    try:
        return normalized(map(fixed_part, patterns), ())
    except Refusal:  # a part of a name is more than a path can be: all of it
        return ()


def names_of(held: Held) -> list[str]:
    """The tasks that outsiders see of what a run holds."""
    names = [one.name for one in held.resources if one.name]
    if paths_of(held.resources) is not None:
        names.insert(0, held.claimant.name)
    return list(dict.fromkeys(names))


def _patterns(path: str) -> tuple[str, ...]:
    """What covers a path and all below it; a name with a sign in it stands for no folder."""
    plain = "/" + _SIGNS.sub(r"\\\1", path)
    return (plain, f"{plain}/") if _SIGNS.search(path) else (plain,)


def _placed(one: port.Resource, roots: Sequence[str]) -> port.Resource:
    if one.name:
        here = any(one.repository == f"{root}/.git" for root in roots)
        return replace(one, repository="" if here else one.repository)
    return replace(one, repository="", tree="" if one.tree in roots else one.tree)


def _shown(
    one: port.Resource, trees: dict[str, port.Resource], roots: Sequence[str]
) -> port.Resource:
    if one.repository:
        return one
    known = trees.get(one.tree)
    if known is not None:
        return replace(one, repository=known.repository, tree=known.tree)
    if not roots:
        return one
    tree = "" if one.name else one.tree or roots[-1]
    return replace(one, repository=f"{roots[-1]}/.git", tree=tree)
