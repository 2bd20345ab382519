"""Runs' claims and waiting requests, and how they compare with outsiders' claims.

On the wire an outsider claims a task, and paths in a worktree that has a label. A run claims
resources: names, and the files of a working tree that patterns cover. Here both become resources.
A task is a name. The working trees of the hub's own repository have the label "", others have their
path.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from handrail.coordination.hub.bounded import Bounded
from handrail.coordination.hub.frames import Refusal
from handrail.coordination.hub.records import RunClaim, RunClaimRequest, TaskClaim
from handrail.coordination.hub.scopes import Scopes, normalized
from handrail.model.patterns import fixed_part
from handrail.ports import claims as port
from handrail.ports.claims import Claimant, Resource
from handrail.workspace.claims.deciding import KEEPS_S

ENDED = (10_000, 16 * 1024 * 1024)
NAMES = ":names"
"""The label of a pseudo-worktree without files, in which outsiders see claims of names."""


class RunClaims:
    """The claims of runs, live and ended, and their waiting line. Mutable."""

    def __init__(self, roots: tuple[str, ...], *, folds_case: bool) -> None:
        self.held: dict[int, RunClaim] = {}
        self.line: dict[int, RunClaimRequest] = {}
        self.ended: Bounded[RunClaim] = Bounded(*ENDED)
        self.last_number = 0
        self.sent_behind: dict[int, tuple[Claimant, ...]] = {}
        self.due = False
        """True if the waiting line needs a look: claims or requests have changed."""
        self._roots = roots
        self._cut_since: dict[int, float] = {}
        self._epochs_by_task: dict[str, dict[int, None]] = {}
        self._requests: dict[tuple[str, str], RunClaim | RunClaimRequest] = {}
        self._keys_by_agent: dict[str, dict[tuple[str, str], None]] = {}
        self._sizes: dict[str, int] = {}
        self._held_scopes = Scopes(folds_case=folds_case)
        self._line_scopes = Scopes(folds_case=folds_case)
        self._ends: list[tuple[float, int]] = []

    # -- queries -----------------------------------------------------------------------------------

    def request(self, agent: str, request: str) -> RunClaim | RunClaimRequest | None:
        """The live claim or the waiting entry of a client's request, or None."""
        return self._requests.get((agent, request))

    def entries_of(self, agent: str) -> list[RunClaim | RunClaimRequest]:
        """The claims that an agent has or waits for."""
        return [self._requests[key] for key in self._keys_by_agent.get(agent, ())]

    def size(self, agent: str) -> int:
        """The approximate size of ``entries_of(agent)``, in characters."""
        return self._sizes.get(agent, 0)

    def agents(self) -> Iterable[str]:
        """The agents that have a claim, or wait for one."""
        return self._keys_by_agent

    def owner(self, task_id: str) -> str | None:
        """The run that has the task, as outsiders see it; None if no run has."""
        epochs = self._epochs_by_task.get(task_id)
        return None if epochs is None else self.held[next(iter(epochs))].claimant.run

    def concerns(self, worktree: str, paths: tuple[str, ...], task_id: str = "") -> bool:
        """True if a run may have, or wait for, a claim that overlaps this one."""
        if not self.held and not self.line:
            return False
        return bool(
            task_id in self._epochs_by_task
            or self._held_scopes.overlaps(worktree, paths, "")
            or self.is_awaited(worktree, paths, task_id)
        )

    def is_awaited(self, worktree: str, paths: tuple[str, ...], task_id: str) -> bool:
        """True if a request in line may overlap this claim."""
        return bool(self.line) and bool(
            self._line_scopes.overlaps(worktree, paths, "")
            or self._line_scopes.overlaps(NAMES, (_as_path(task_id),), "")
        )

    def looks_back(self, now: float) -> bool:
        """True if a live or recently cut claim may still ask for claims that end now."""
        for epoch in [epoch for epoch, at in self._cut_since.items() if at < now - KEEPS_S]:
            del self._cut_since[epoch]
        return bool(self.held or self._cut_since)

    def expired(self, now: float) -> Iterator[RunClaim]:
        """The claims whose time is over; the caller ends each before it takes the next."""
        while self._ends and self._ends[0][0] <= now:
            _, epoch = heapq.heappop(self._ends)
            claim = self.held.get(epoch)
            if claim is not None:
                yield claim

    def next_end(self) -> float | None:
        """When the next claim's time is over, or None."""
        return self._ends[0][0] if self._ends else None

    # -- changes -----------------------------------------------------------------------------------

    def put_claim(self, key: str, claim: RunClaim) -> None:
        """Add a claim: a live one, or one that has ended."""
        self.drop_claim(key)
        if claim.ended is not None:
            self.ended.put(key, claim, size_of(claim.resources))
            if claim.cut:
                self._cut_since[claim.epoch] = claim.since
            return
        self.held[claim.epoch] = claim
        self.due = True  # requests in line may have this claim in their way now
        self._add_entry(claim)
        for name in names_of(claim):
            self._epochs_by_task.setdefault(name, {})[claim.epoch] = None
        self._add_scopes(self._held_scopes, str(claim.epoch), claim.resources)
        if claim.until is not None:
            heapq.heappush(self._ends, (claim.until, claim.epoch))

    def drop_claim(self, key: str) -> None:
        """Remove a claim, live or ended."""
        self.ended.drop(key)
        self._cut_since.pop(int(key), None)
        claim = self.held.pop(int(key), None)
        if claim is not None:
            self._remove_entry(claim)
            for name in names_of(claim):
                del self._epochs_by_task[name][claim.epoch]
                if not self._epochs_by_task[name]:
                    del self._epochs_by_task[name]
            self._remove_scopes(self._held_scopes, key, claim.resources)
            self.due = True

    def put_request(self, key: str, queued: RunClaimRequest) -> None:
        """Add a request to the waiting line."""
        self.line[queued.number] = queued
        self.last_number = max(self.last_number, queued.number)
        self._add_entry(queued)
        self._add_scopes(self._line_scopes, key, queued.resources)

    def drop_request(self, key: str) -> None:
        """Remove a request from the waiting line."""
        queued = self.line.pop(int(key), None)
        self.sent_behind.pop(int(key), None)
        if queued is not None:
            self._remove_entry(queued)
            self._remove_scopes(self._line_scopes, key, queued.resources)
            self.due = True

    def _add_entry(self, one: RunClaim | RunClaimRequest) -> None:
        if one.agent:
            self._requests[one.agent, one.request] = one
            self._keys_by_agent.setdefault(one.agent, {})[one.agent, one.request] = None
            self._sizes[one.agent] = self.size(one.agent) + size_of(one.resources)

    def _remove_entry(self, one: RunClaim | RunClaimRequest) -> None:
        key = one.agent, one.request
        if self._requests.get(key) is one:
            del self._requests[key]
            del self._keys_by_agent[one.agent][key]
            self._sizes[one.agent] -= size_of(one.resources)
            if not self._keys_by_agent[one.agent]:
                del self._keys_by_agent[one.agent], self._sizes[one.agent]

    def _add_scopes(self, scopes: Scopes, key: str, resources: tuple[Resource, ...]) -> None:
        for worktree, paths in self._places(resources):
            scopes.add(key, key, worktree, paths)

    def _remove_scopes(self, scopes: Scopes, key: str, resources: tuple[Resource, ...]) -> None:
        for worktree, paths in self._places(resources):
            scopes.remove(key, key, worktree, paths)

    def _places(self, resources: tuple[Resource, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
        for place in normalize_places(resources, self._roots):
            if place.name:
                yield NAMES, (_as_path(place.name),)
            else:
                yield place.tree, paths_of((place,)) or ()


def _as_path(name: str) -> str:
    """A name as a single path component."""
    return name.replace("/", "\0")


def size_of(resources: tuple[Resource, ...]) -> int:
    """The approximate size of resources, in characters."""
    return 200 + sum(
        len(resource.name) + sum(map(len, resource.patterns)) for resource in resources
    )


OUTSIDE = "outside"
"""The journal in outsiders' claimants: no run has it, so no run is mistaken for an outsider."""
_SIGNS = re.compile(r"([\\*?\[])")


@lru_cache(maxsize=8_192)
def outsider(claim: TaskClaim, folds: bool) -> port.Claim:  # noqa: FBT001  # a part of the key
    """An outsider's claim in the form of a run's."""
    claimant = port.Claimant(claim.owner, "", OUTSIDE, "session")
    resources = outsider_resources(claim.task_id, claim.worktree, claim.paths, folds=folds)
    return port.Claim(claimant, resources, claim.epoch, claim.claimed_at, claim.lease_expires_at)


def outsider_resources(
    task_id: str, worktree: str, paths: Sequence[str], *, folds: bool
) -> tuple[port.Resource, ...]:
    """The resources of an outsider's claim: its files, and its task's name."""
    patterns = tuple(pattern for path in paths for pattern in _patterns(path)) or ("**",)
    files = port.Resource(patterns=patterns, tree=worktree, folds=folds)
    return files, port.Resource(task_id)


def normalize_places(
    resources: Sequence[port.Resource], roots: Sequence[str]
) -> tuple[port.Resource, ...]:
    """The resources as the hub compares them, whichever path their client uses for the place."""
    return tuple(_normalize_place(one, roots) for one in resources)


def localize_for(
    claim: port.Claim, asker: Sequence[port.Resource], roots: Sequence[str]
) -> port.Claim:
    """A claim with places as in the asker's own resources, or else as the hub's roots say."""
    trees = {_normalize_place(one, roots).tree: one for one in asker if one.tree}
    return replace(claim, resources=tuple(_localize(one, trees, roots) for one in claim.resources))


def paths_of(resources: Sequence[port.Resource]) -> tuple[str, ...] | None:
    """The paths that cover all of these files, for outsiders; None if there are no files."""
    patterns = [
        pattern for resource in resources for pattern in resource.patterns if pattern[:1] != "!"
    ]
    if not patterns:
        return None
    try:
        return normalized(map(fixed_part, patterns), ())
    except Refusal:  # no valid path covers them: the whole repository does
        return ()


def names_of(claim: RunClaim) -> list[str]:
    """The tasks under which outsiders see a run's claim."""
    names = [resource.name for resource in claim.resources if resource.name]
    if paths_of(claim.resources) is not None:
        names.insert(0, claim.claimant.name)
    return list(dict.fromkeys(names))


def _patterns(path: str) -> tuple[str, ...]:
    """Patterns that cover a path and all below it; a path with wildcard signs needs two."""
    plain = "/" + _SIGNS.sub(r"\\\1", path)
    return (plain, f"{plain}/") if _SIGNS.search(path) else (plain,)


def _normalize_place(one: port.Resource, roots: Sequence[str]) -> port.Resource:
    if one.name:
        here = any(one.repository == f"{root}/.git" for root in roots)
        return replace(one, repository="" if here else one.repository)
    return replace(one, repository="", tree="" if one.tree in roots else one.tree)


def _localize(
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
