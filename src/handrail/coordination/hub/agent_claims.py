"""Agents' live claims, indexed by task, by owner, by the files they cover and by their end.

A claim ends with its lease. If the owner disconnects and does not come back, it ends a grace period
after that, if this is sooner. So a dead agent's claims do not block others for long.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator

from handrail.coordination.hub.records import TaskClaim
from handrail.coordination.hub.scopes import Scopes

_SPARE = 64


class AgentClaims:
    """The live claims of agents. Mutable."""

    def __init__(self, grace_s: float, *, folds_case: bool) -> None:
        self._grace_s = grace_s
        self._claims: dict[str, TaskClaim] = {}
        self._owned: dict[str, dict[str, None]] = {}
        self._sizes: dict[str, int] = {}
        self._scopes = Scopes(folds_case=folds_case)
        self._away: dict[str, float] = {}
        self._ends: list[tuple[float, str]] = []

    # -- queries -----------------------------------------------------------------------------------

    def get(self, task_id: str) -> TaskClaim | None:
        """The claim of a task, or None."""
        return self._claims.get(task_id)

    def all(self) -> Iterable[TaskClaim]:
        """Every live claim."""
        return self._claims.values()

    def owners(self) -> Iterable[str]:
        """The agents that have a claim."""
        return self._owned

    def count(self, owner: str) -> int:
        """How many claims an owner has."""
        return len(self._owned.get(owner, ()))

    def size(self, owner: str) -> int:
        """The approximate size of an owner's claims, in characters."""
        return self._sizes.get(owner, 0)

    def overlap(
        self, worktree: str, paths: tuple[str, ...], owner: str, ignoring: TaskClaim | None = None
    ) -> TaskClaim | None:
        """The oldest claim of another owner that overlaps these paths; leaves out ``ignoring``."""
        if ignoring is not None:
            self._leave(ignoring)
        found = [self._claims[one] for one in self._scopes.overlaps(worktree, paths, owner)]
        if ignoring is not None:
            self._enter(ignoring)
        return min(found, key=lambda claim: claim.first_epoch, default=None)

    # -- expiry ------------------------------------------------------------------------------------

    def end_of(self, claim: TaskClaim) -> float:
        """When a claim ends, if its owner neither renews it nor leaves or comes back."""
        left = self._away.get(claim.owner)
        until = claim.lease_expires_at
        return until if left is None else min(until, left + self._grace_s)

    def expired(self, now: float) -> Iterator[TaskClaim]:
        """The expired claims; the caller removes each before it takes the next."""
        while self._ends and self._ends[0][0] <= now:
            _, task_id = heapq.heappop(self._ends)
            claim = self._claims.get(task_id)
            if claim is not None and self.end_of(claim) <= now:
                yield claim

    def next_end(self) -> float | None:
        """When ``expired`` next has something to check, or None."""
        return self._ends[0][0] if self._ends else None

    def mark_away(self, owner: str, now: float) -> None:
        """Note that an owner has left now."""
        held = self._owned.get(owner)
        if held:
            self._away[owner] = now
            for task_id in held:
                self._schedule_end(self._claims[task_id])

    def mark_present(self, owner: str) -> None:
        """Note that an owner is connected."""
        if self._away.pop(owner, None) is not None:
            for task_id in self._owned.get(owner, ()):
                self._schedule_end(self._claims[task_id])

    # -- changes -----------------------------------------------------------------------------------

    def put(self, claim: TaskClaim) -> None:
        """Add a claim, in place of the one of the same task."""
        known = self._claims.get(claim.task_id)
        if known is not None:
            self._leave(known)
        self._claims[claim.task_id] = claim
        self._enter(claim)
        self._schedule_end(claim)

    def remove(self, task_id: str) -> None:
        """Remove the claim of a task, if there is one."""
        claim = self._claims.pop(task_id, None)
        if claim is not None:
            self._leave(claim)
            if claim.owner not in self._owned:
                self._away.pop(claim.owner, None)

    def _enter(self, claim: TaskClaim) -> None:
        self._owned.setdefault(claim.owner, {})[claim.task_id] = None
        self._sizes[claim.owner] = self._sizes.get(claim.owner, 0) + _size(claim)
        self._scopes.add(claim.task_id, claim.owner, claim.worktree, claim.paths)

    def _leave(self, claim: TaskClaim) -> None:
        self._scopes.remove(claim.task_id, claim.owner, claim.worktree, claim.paths)
        self._sizes[claim.owner] -= _size(claim)
        held = self._owned[claim.owner]
        del held[claim.task_id]
        if not held:
            del self._owned[claim.owner], self._sizes[claim.owner]

    def _schedule_end(self, claim: TaskClaim) -> None:
        heapq.heappush(self._ends, (self.end_of(claim), claim.task_id))
        if len(self._ends) > 2 * len(self._claims) + _SPARE:  # most entries are outdated
            self._ends = [(self.end_of(one), one.task_id) for one in self._claims.values()]
            heapq.heapify(self._ends)


def _size(claim: TaskClaim) -> int:
    texts = (claim.task_id, claim.note, claim.data_ref, claim.checkpoint)
    return sum(map(len, texts)) + sum(map(len, claim.paths))


class Waits:
    """Which agent waits for which task, to refuse waits in a circle. Mutable.

    An agent waits for one task at a time, that is, for the task's current owner. The wait is over
    when the owner releases the task.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, str] = {}
        self._waiters: dict[str, dict[str, None]] = {}

    def get(self, agent: str) -> str | None:
        """The task that an agent waits for, or None."""
        return self._tasks.get(agent)

    def agents(self) -> Iterable[str]:
        """The agents that wait."""
        return self._tasks

    def waiters(self, task_id: str) -> list[str]:
        """The agents that wait for a task."""
        return list(self._waiters.get(task_id, ()))

    def put(self, agent: str, task_id: str) -> None:
        """Have an agent wait for this task alone."""
        self.remove(agent)
        self._tasks[agent] = task_id
        self._waiters.setdefault(task_id, {})[agent] = None

    def remove(self, agent: str) -> None:
        """End an agent's wait, if it waits."""
        task_id = self._tasks.pop(agent, None)
        if task_id is not None:
            del self._waiters[task_id][agent]
            if not self._waiters[task_id]:
                del self._waiters[task_id]

    def makes_circle(self, agent: str, task_id: str, holder: Callable[[str], str | None]) -> bool:
        """True if the task's owner is the agent, or waits for it, directly or through others."""
        seen: set[str] = set()
        one: str | None = task_id
        while one is not None and one not in seen:
            seen.add(one)
            owner = holder(one)
            if owner is None:
                return False
            if owner == agent:
                return True
            one = self._tasks.get(owner)
        return False
