"""What runs hold and wait for, beside what outsiders claim: as data."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from handrail.coordination.hub.bounded import Bounded
from handrail.coordination.hub.records import Held, Lined
from handrail.coordination.hub.scopes import Scopes
from handrail.coordination.hub.translating import names_of, paths_of, placed
from handrail.ports.claims import Claimant, Resource

ENDED = (10_000, 16 * 1024 * 1024)
KEEPS_S = 30 * 86_400.0
"""So long a claim that was cut is looked back to."""


class Steps:
    """Mutable."""

    def __init__(self, roots: tuple[str, ...], *, folds_case: bool) -> None:
        self.held: dict[int, Held] = {}
        self.line: dict[int, Lined] = {}
        self.ended: Bounded[Held] = Bounded(*ENDED)
        self.last_number = 0
        self.told: dict[int, tuple[Claimant, ...]] = {}
        self.due = False
        """True if those in line may have what they want, or others are in their way now."""
        self._roots = roots
        self._cut: dict[int, float] = {}
        self._shown: dict[str, dict[int, None]] = {}
        self._requests: dict[tuple[str, str], Held | Lined] = {}
        self._kept: dict[str, dict[tuple[str, str], None]] = {}
        self._sizes: dict[str, int] = {}
        self._held_scopes = Scopes(folds_case=folds_case)
        self._line_scopes = Scopes(folds_case=folds_case)
        self._until: list[tuple[float, int]] = []

    # -- questions ---------------------------------------------------------------------------------

    def request(self, agent: str, request: str) -> Held | Lined | None:
        """What became of a request that was not given back."""
        return self._requests.get((agent, request))

    def kept_for(self, agent: str) -> list[Held | Lined]:
        """What an agent has, and what it waits for."""
        return [self._requests[key] for key in self._kept.get(agent, ())]

    def size(self, agent: str) -> int:
        """How many characters all that has, about."""
        return self._sizes.get(agent, 0)

    def agents(self) -> Iterable[str]:
        """All who have something, or wait."""
        return self._kept

    def owner(self, task_id: str) -> str | None:
        """Who has the task, as outsiders see it; None if no run has."""
        epochs = self._shown.get(task_id)
        return None if epochs is None else self.held[next(iter(epochs))].claimant.run

    def concerns(self, worktree: str, paths: tuple[str, ...], task_id: str = "") -> bool:
        """True if a run may have a part of this, or stand in line for one."""
        if not self.held and not self.line:
            return False
        return bool(
            task_id in self._shown
            or self._held_scopes.overlaps(worktree, paths, "")
            or self.is_awaited(worktree, paths, task_id)
        )

    def is_awaited(self, worktree: str, paths: tuple[str, ...], task_id: str) -> bool:
        """True if somebody in line may want a part of this."""
        return bool(self.line) and bool(
            self._line_scopes.overlaps(worktree, paths, "")
            or self._line_scopes.overlaps(NAMED, (_as_path(task_id),), "")
        )

    def looks_back(self, now: float) -> bool:
        """True if somebody may ask what was held at any time until now."""
        for epoch in [epoch for epoch, at in self._cut.items() if at < now - KEEPS_S]:
            del self._cut[epoch]
        return bool(self.held or self._cut)

    def lapsed(self, now: float) -> Iterator[Held]:
        """What is over by its own time; each is to be ended before the next is asked for."""
        while self._until and self._until[0][0] <= now:
            _, epoch = heapq.heappop(self._until)
            held = self.held.get(epoch)
            if held is not None:
                yield held

    def next_end(self) -> float | None:
        """When something is over by its own time, or None."""
        return self._until[0][0] if self._until else None

    # -- changes -----------------------------------------------------------------------------------

    def put_held(self, key: str, held: Held) -> None:
        """Hold this, or have held it."""
        self.drop_held(key)
        if held.ended is not None:
            self.ended.put(key, held, size_of(held.resources))
            if held.cut:
                self._cut[held.epoch] = held.since
            return
        self.held[held.epoch] = held
        self.due = True  # who is in the way has changed
        self._keep(held)
        for name in names_of(held):
            self._shown.setdefault(name, {})[held.epoch] = None
        self._enter(self._held_scopes, str(held.epoch), held.resources)
        if held.until is not None:
            heapq.heappush(self._until, (held.until, held.epoch))

    def drop_held(self, key: str) -> None:
        """Hold it no more, and have it forgotten."""
        self.ended.drop(key)
        self._cut.pop(int(key), None)
        held = self.held.pop(int(key), None)
        if held is not None:
            self._let_go(held)
            for name in names_of(held):
                del self._shown[name][held.epoch]
                if not self._shown[name]:
                    del self._shown[name]
            self._leave(self._held_scopes, key, held.resources)
            self.due = True

    def put_lined(self, key: str, lined: Lined) -> None:
        """Stand in line."""
        self.line[lined.number] = lined
        self.last_number = max(self.last_number, lined.number)
        self._keep(lined)
        self._enter(self._line_scopes, key, lined.resources)

    def drop_lined(self, key: str) -> None:
        """Stand in line no more."""
        lined = self.line.pop(int(key), None)
        self.told.pop(int(key), None)
        if lined is not None:
            self._let_go(lined)
            self._leave(self._line_scopes, key, lined.resources)
            self.due = True

    def _keep(self, one: Held | Lined) -> None:
        if one.agent:
            self._requests[one.agent, one.request] = one
            self._kept.setdefault(one.agent, {})[one.agent, one.request] = None
            self._sizes[one.agent] = self.size(one.agent) + size_of(one.resources)

    def _let_go(self, one: Held | Lined) -> None:
        key = one.agent, one.request
        if self._requests.get(key) is one:
            del self._requests[key]
            del self._kept[one.agent][key]
            self._sizes[one.agent] -= size_of(one.resources)
            if not self._kept[one.agent]:
                del self._kept[one.agent], self._sizes[one.agent]

    def _enter(self, scopes: Scopes, key: str, resources: tuple[Resource, ...]) -> None:
        for worktree, paths in self._places(resources):
            scopes.add(key, key, worktree, paths)

    def _leave(self, scopes: Scopes, key: str, resources: tuple[Resource, ...]) -> None:
        for worktree, paths in self._places(resources):
            scopes.remove(key, key, worktree, paths)

    def _places(self, resources: tuple[Resource, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
        for one in placed(resources, self._roots):
            if one.name:
                yield NAMED, (_as_path(one.name),)
            else:
                yield one.tree, paths_of((one,)) or ()


NAMED = ":names"


def _as_path(name: str) -> str:
    """A name as one part of a path."""
    return name.replace("/", "\0")


def size_of(resources: tuple[Resource, ...]) -> int:
    """The characters of what is claimed, about."""
    return 200 + sum(len(one.name) + sum(map(len, one.patterns)) for one in resources)
