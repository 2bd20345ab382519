"""The claims that are held: by task, by owner, by what they cover, and by when they end.

A claim ends when its lease is over. That of an owner who is away ends sooner: a while after they
left, unless they come back. So an agent that died holds nothing for long.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator

from handrail.coordination.hub.records import Claim
from handrail.coordination.hub.scopes import Scopes

_SPARE = 64


class Leases:
    """Mutable."""

    def __init__(self, grace_s: float, *, folds_case: bool) -> None:
        self._grace_s = grace_s
        self._claims: dict[str, Claim] = {}
        self._owned: dict[str, dict[str, None]] = {}
        self._sizes: dict[str, int] = {}
        self._scopes = Scopes(folds_case=folds_case)
        self._away: dict[str, float] = {}
        self._ends: list[tuple[float, str]] = []

    # -- what is held ------------------------------------------------------------------------------

    def get(self, task_id: str) -> Claim | None:
        """The claim of a task, or None."""
        return self._claims.get(task_id)

    def all(self) -> Iterable[Claim]:
        """Every claim that is held."""
        return self._claims.values()

    def owners(self) -> Iterable[str]:
        """Whoever holds something."""
        return self._owned

    def count(self, owner: str) -> int:
        """How many claims an owner holds."""
        return len(self._owned.get(owner, ()))

    def size(self, owner: str) -> int:
        """How many characters all that an owner holds has, about."""
        return self._sizes.get(owner, 0)

    def overlap(
        self, worktree: str, paths: tuple[str, ...], owner: str, besides: Claim | None = None
    ) -> Claim | None:
        """A claim of another than ``owner`` that covers a part of the same, the oldest of them."""
        if besides is not None:
            self._leave(besides)
        found = [self._claims[one] for one in self._scopes.overlaps(worktree, paths, owner)]
        if besides is not None:
            self._enter(besides)
        return min(found, key=lambda claim: claim.first_epoch, default=None)

    # -- when it ends ------------------------------------------------------------------------------

    def end_of(self, claim: Claim) -> float:
        """When a claim ends as things stand."""
        left = self._away.get(claim.owner)
        until = claim.lease_expires_at
        return until if left is None else min(until, left + self._grace_s)

    def expired(self, now: float) -> Iterator[Claim]:
        """The claims that are over; each is to be removed before the next is asked for."""
        while self._ends and self._ends[0][0] <= now:
            _, task_id = heapq.heappop(self._ends)
            claim = self._claims.get(task_id)
            if claim is not None and self.end_of(claim) <= now:
                yield claim

    def next_end(self) -> float | None:
        """When there is something to be looked at, or None."""
        return self._ends[0][0] if self._ends else None

    def mark_away(self, owner: str, now: float) -> None:
        """Note that an owner is away since now."""
        held = self._owned.get(owner)
        if held:
            self._away[owner] = now
            for task_id in held:
                self._schedule_end(self._claims[task_id])

    def mark_present(self, owner: str) -> None:
        """Note that an owner is here."""
        if self._away.pop(owner, None) is not None:
            for task_id in self._owned.get(owner, ()):
                self._schedule_end(self._claims[task_id])

    # -- changes -----------------------------------------------------------------------------------

    def put(self, claim: Claim) -> None:
        """Hold this claim, in place of that of the same task."""
        known = self._claims.get(claim.task_id)
        if known is not None:
            self._leave(known)
        self._claims[claim.task_id] = claim
        self._enter(claim)
        self._schedule_end(claim)

    def remove(self, task_id: str) -> None:
        """Let go of a claim, if there is one."""
        claim = self._claims.pop(task_id, None)
        if claim is not None:
            self._leave(claim)
            if claim.owner not in self._owned:
                self._away.pop(claim.owner, None)

    def _enter(self, claim: Claim) -> None:
        self._owned.setdefault(claim.owner, {})[claim.task_id] = None
        self._sizes[claim.owner] = self._sizes.get(claim.owner, 0) + _size(claim)
        self._scopes.add(claim.task_id, claim.owner, claim.worktree, claim.paths)

    def _leave(self, claim: Claim) -> None:
        self._scopes.remove(claim.task_id, claim.owner, claim.worktree, claim.paths)
        self._sizes[claim.owner] -= _size(claim)
        held = self._owned[claim.owner]
        del held[claim.task_id]
        if not held:
            del self._owned[claim.owner], self._sizes[claim.owner]

    def _schedule_end(self, claim: Claim) -> None:
        heapq.heappush(self._ends, (self.end_of(claim), claim.task_id))
        if len(self._ends) > 2 * len(self._claims) + _SPARE:  # most are of leases renewed since
            self._ends = [(self.end_of(one), one.task_id) for one in self._claims.values()]
            heapq.heapify(self._ends)


def _size(claim: Claim) -> int:
    texts = (claim.task_id, claim.note, claim.data_ref, claim.checkpoint)
    return sum(map(len, texts)) + sum(map(len, claim.paths))


class Waits:
    """Who waits for which task, so that nobody waits in a circle. Mutable.

    An agent waits for one task at a time. For whom it waits follows from who holds that task now:
    when it is released, the wait is over.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, str] = {}
        self._waiters: dict[str, dict[str, None]] = {}

    def get(self, agent: str) -> str | None:
        """The task that an agent waits for, or None."""
        return self._tasks.get(agent)

    def agents(self) -> Iterable[str]:
        """Whoever waits."""
        return self._tasks

    def waiters(self, task_id: str) -> list[str]:
        """Who waits for a task."""
        return list(self._waiters.get(task_id, ()))

    def put(self, agent: str, task_id: str) -> None:
        """Have an agent wait for this task alone."""
        self.remove(agent)
        self._tasks[agent] = task_id
        self._waiters.setdefault(task_id, {})[agent] = None

    def remove(self, agent: str) -> None:
        """An agent waits no more."""
        task_id = self._tasks.pop(agent, None)
        if task_id is not None:
            del self._waiters[task_id][agent]
            if not self._waiters[task_id]:
                del self._waiters[task_id]

    def makes_circle(self, agent: str, task_id: str, holder: Callable[[str], str | None]) -> bool:
        """True if whoever holds the task waits, through others or not, for the agent itself."""
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
