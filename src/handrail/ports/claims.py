"""The port through which steps, runs and people keep out of each other's way in a repository."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol, TypeAlias

from handrail.model.dataclass import dataclass
from handrail.model.patterns import covers, display_pattern, overlap

ClaimantKind: TypeAlias = Literal["step", "person", "command", "session"]
_ATTEMPT = re.compile(r"~\d+(?=/|\Z)")


@functools.lru_cache(maxsize=4096)
def _without_attempts(path: str) -> str:
    return _ATTEMPT.sub("", path)


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who claims: a step of a run, or a person, command or session outside every run.

    ``run`` is the run's id, ``path`` the step's. For other kinds ``run`` is the claimant's own
    name; ``path`` is empty, or names what claims within that claimant (``lock-<pid>``). ``journal``
    distinguishes runs with the same id in different journals.
    """

    run: str
    path: str = ""
    journal: str = ""
    kind: ClaimantKind = "step"

    @property
    def name(self) -> str:
        """``run/path``, or ``run`` without a path."""
        return f"{self.run}/{self.path}" if self.path else self.run

    def is_within(self, other: Claimant) -> bool:
        """True for the other claimant itself and for steps below it; attempts do not matter."""
        if (self.run, self.journal) != (other.run, other.journal):
            return False
        mine, theirs = _without_attempts(self.path), _without_attempts(other.path)
        return not theirs or mine == theirs or mine.startswith(f"{theirs}/")

    def __str__(self) -> str:
        if self.kind != "step":
            return self.name
        return f"step {self.path!r} of run {self.run}" if self.path else f"run {self.run}"


@dataclass(frozen=True, slots=True)
class Resource:
    """What can be claimed: a name, or the files of a working tree that patterns cover.

    ``repository`` is the git directory that all working trees of a repository share, empty outside
    of one. A name is unique within its repository; outside of one, among this user's names.
    ``tree`` is the folder of the working tree. ``patterns`` are relative to it and normalized (see
    ``handrail.model.patterns``); files of two trees are never the same. ``folds``: the file system
    of the tree ignores case.
    """

    name: str = ""
    patterns: tuple[str, ...] = ()
    repository: str = ""
    tree: str = ""
    folds: bool = False

    def overlaps(self, other: Resource) -> bool:
        """False only if no name or file is part of both."""
        if self.repository != other.repository or bool(self.name) != bool(other.name):
            return False
        if self.name:
            return self.name == other.name
        if self.tree != other.tree:
            return False
        return overlap(self.patterns, other.patterns, folds=self.folds or other.folds)

    def covers(self, tree: str, path: str) -> bool:
        """True if this resource includes the file at this path of a working tree."""
        return self.tree == tree and covers(self.patterns, path, folds=self.folds)

    def __str__(self) -> str:
        return self.name or ", ".join(map(display_pattern, self.patterns)) or "nothing"


def text_of(resources: Sequence[Resource]) -> str:
    """The claimed resources as text for people."""
    return " and ".join(map(str, resources))


@dataclass(frozen=True, slots=True)
class Claim:
    """Resources that a claimant has, under an ``epoch`` greater than every earlier claim's.

    ``since`` and ``until`` are unix seconds. Without ``until`` the claim lasts until it is released
    or its process dies. ``host`` and ``pid`` name that process; ``pid`` is 0 if none keeps it.
    """

    claimant: Claimant
    resources: tuple[Resource, ...]
    epoch: int
    since: float
    until: float | None = None
    host: str = ""
    pid: int = 0

    def __str__(self) -> str:
        return f"{self.claimant} has {text_of(self.resources)}"


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """A request for resources of one repository: the claimant gets all of them or none.

    ``wait_s``: how long to stand in line (None: without limit, 0: not at all). ``ttl_s``: how long
    the claim lasts, even if the process that requested it dies; None: as long as the process
    ``pid`` (None: this one) lives.
    """

    claimant: Claimant
    resources: tuple[Resource, ...]
    wait_s: float | None = None
    ttl_s: float | None = None
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class ClaimWait:
    """Who stands in line, for what, since when (unix seconds), and which claimants block it."""

    claimant: Claimant
    resources: tuple[Resource, ...]
    since: float
    behind: tuple[Claimant, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimList:
    """All claims, by epoch, and all waits, in the order of the line."""

    held: tuple[Claim, ...] = ()
    waiting: tuple[ClaimWait, ...] = ()


Waiting: TypeAlias = Callable[[tuple[Claimant, ...]], object]
"""Called with the claimants that block a request, whenever they change."""


class Claims(Protocol):
    """Grants overlapping resources to one claimant at a time, in the order of the requests.

    A claim does not block claimants within its claimant (see ``Claimant.is_within``). A claimant
    keeps its claims until all claimants within it are done. So while a claimant waits, all those
    that enclose it wait too.

    A request is granted once no other claimant has an overlapping claim, and no other claimant that
    still waits requested an overlapping one earlier. One exception: the request overtakes waiters
    that wait for a claim of its claimant, or of an enclosing one. To wait behind them would be a
    cycle.

    Several clients may be open at once, in several processes; all see the same claims. Once the
    process of a claim is known to be dead, the claim is free. A claim that its process has not
    renewed in time has lapsed: a waiter may take it. The previous owner is not notified. It must
    call ``is_held`` before it does the work that the claim was for.

    Contract suite: ``handrail.testing.contracts.ClaimsContract``.
    """

    async def acquire(self, request: ClaimRequest, /, *, waiting: Waiting | None = None) -> Claim:
        """The claim, as soon as it is granted. A caller cancelled meanwhile leaves the line.

        ``waiting`` is called with the claimants that block the request, in the caller's event loop:
        before the first wait and whenever they change. It is not called if nothing blocks.

        Raises:
            ClaimTimeout: it was not granted within ``wait_s``.
            ClaimDeadlock: waiting would close a cycle of waits; the other waiters keep waiting.
            ClaimsFailed: the store of the claims cannot be used.
        """
        ...

    async def release(self, claim: Claim, /) -> None:
        """End the claim, whoever acquired it, and let the next in line have it; idempotent."""
        ...

    async def is_held(self, claim: Claim, /) -> bool:
        """True if the claim has not ended. Renews a lapsed claim that no waiter has taken."""
        ...

    async def others_since(self, claim: Claim, since: int | None = None, /) -> Sequence[Claim]:
        """The claims of files that other claimants had at any time since an epoch.

        Without an epoch: since the claim's own. They may have ended since. Claimants within the
        claim's claimant, and those that enclose it, do not count as others.
        """
        ...

    async def listed(self) -> ClaimList:
        """All claims, and all waits."""
        ...

    async def close(self) -> None:
        """Release the claims acquired here that have no ``ttl_s``; waits of this client fail.

        The client can be used again afterwards.
        """
        ...


@dataclass(frozen=True, slots=True)
class LaunchClaims:
    """The claims of one launch of an agent.

    ``claim`` was acquired before the launch, for the files that its step declares it writes.
    ``take`` acquires more for the duration of its block. While that waits, the launch gives up its
    place in the run's limits.
    """

    claims: Claims
    claim: Claim | None
    take: Callable[[tuple[Resource, ...]], AbstractAsyncContextManager[Claim]]
