"""The port through which steps, runs and people keep out of each other's way in a repository."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from handrail.model.patterns import covers, display_pattern, overlap

ClaimantKind: TypeAlias = Literal["step", "person", "command", "session"]
_ATTEMPT = re.compile(r"~\d+(?=/|\Z)")


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who claims: a step of a run, or somebody that no run started.

    ``run`` is the run's id, ``path`` the step's; of others ``run`` is their own name and ``path``
    is empty, or what they claim within something else that they hold. ``journal`` tells runs of
    one id in several journals apart.
    """

    run: str
    path: str = ""
    journal: str = ""
    kind: ClaimantKind = "step"

    @property
    def name(self) -> str:
        """``run/path``."""
        return f"{self.run}/{self.path}" if self.path else self.run

    def is_within(self, other: Claimant) -> bool:
        """True for the other itself, and for a step below it, whatever the attempt."""
        if (self.run, self.journal) != (other.run, other.journal):
            return False
        mine, theirs = _ATTEMPT.sub("", self.path), _ATTEMPT.sub("", other.path)
        return not theirs or mine == theirs or mine.startswith(f"{theirs}/")

    def __str__(self) -> str:
        if self.kind != "step":
            return self.name
        return f"step {self.path!r} of run {self.run}" if self.path else f"run {self.run}"


@dataclass(frozen=True, slots=True)
class Resource:
    """What can be claimed: a name, or the files of a working tree that patterns cover.

    ``repository`` is the git directory that all working trees of a repository share, empty outside
    of one. A name counts in all of its repository; outside of one, in all that is of this user.
    ``tree`` is the folder of the working tree, ``patterns`` are relative to it and normal (see
    ``handrail.model.patterns``); files of two trees are never the same. ``folds``: upper and lower
    case are one there.
    """

    name: str = ""
    patterns: tuple[str, ...] = ()
    repository: str = ""
    tree: str = ""
    folds: bool = False

    def overlaps(self, other: Resource) -> bool:
        """False only if nothing is part of both."""
        if self.repository != other.repository or bool(self.name) != bool(other.name):
            return False
        if self.name:
            return self.name == other.name
        if self.tree != other.tree:
            return False
        return overlap(self.patterns, other.patterns, folds=self.folds or other.folds)

    def covers(self, tree: str, path: str) -> bool:
        """True if the file at this path of a working tree is part of it."""
        return self.tree == tree and covers(self.patterns, path, folds=self.folds)

    def __str__(self) -> str:
        return self.name or ", ".join(map(display_pattern, self.patterns)) or "nothing"


def text_of(resources: Sequence[Resource]) -> str:
    """What is claimed, for people."""
    return " and ".join(map(str, resources))


@dataclass(frozen=True, slots=True)
class Claim:
    """What somebody holds, under an ``epoch`` that is greater than that of every claim before it.

    ``since`` and ``until`` (None: as long as its process lives and does not give it back) are unix
    seconds. ``host`` and ``pid`` say where it is held, 0 if no process keeps it.
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
    """What somebody wants to hold, all of it or nothing; the resources are of one repository.

    ``wait_s``: how long to stand in line for it (None: as long as it takes, 0: not at all).
    ``ttl_s``: it lasts as long as that, whatever becomes of the process that asked for it; None: as
    long as the process ``pid`` (None: this one) lives.
    """

    claimant: Claimant
    resources: tuple[Resource, ...]
    wait_s: float | None = None
    ttl_s: float | None = None
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class ClaimWait:
    """Who stands in line, for what, since when (unix seconds), and who is in the way."""

    claimant: Claimant
    resources: tuple[Resource, ...]
    since: float
    behind: tuple[Claimant, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimList:
    """All that is held, by epoch, and all who wait, first come first."""

    held: tuple[Claim, ...] = ()
    waiting: tuple[ClaimWait, ...] = ()


Waiting: TypeAlias = Callable[[tuple[Claimant, ...]], object]
"""Called with who is in the way, whenever that changes."""


class Claims(Protocol):
    """Who holds what: of what overlaps, one at a time; in line, first come first served.

    What a claimant holds does not stand in the way of those within it (see ``Claimant.is_within``),
    and what it holds it keeps until all of them are done. So somebody who waits, waits with all
    that it is within.

    A request is granted when nothing that overlaps it is held by others, nor was asked for before
    by others who still wait; but for those who wait themselves for what the claimant, or what it is
    within, holds: to wait behind them would be a circle.

    Several clients may be open at once, in several processes; all see the same. A claim whose
    process has died is free at once where that can be seen, and one that its process did not renew
    for so long that it counts as gone may be taken by who waits for it. Its holder is not asked: it
    has to look, with ``is_held``, before it does what its claim was for.

    Contract suite: ``handrail.testing.contracts.ClaimsContract``.
    """

    async def acquire(self, request: ClaimRequest, /, *, waiting: Waiting | None = None) -> Claim:
        """The claim, as soon as it is granted. Whoever is cancelled meanwhile leaves the line.

        ``waiting`` is told who is in the way, before the first wait and whenever that changes; it
        is called in the event loop of the caller. It is not called where nothing was in the way.

        Raises:
            ClaimTimeout: it was not granted within ``wait_s``.
            ClaimDeadlock: to wait would close a circle of waiting; the others wait on.
            ClaimsFailed: what keeps the claims cannot be used.
        """
        ...

    async def release(self, claim: Claim, /) -> None:
        """End it, whoever acquired it, so that the next one has it; a second time does nothing."""
        ...

    async def is_held(self, claim: Claim, /) -> bool:
        """True if it did not end. One that counts as gone and that nobody took is renewed."""
        ...

    async def others_since(self, claim: Claim, since: int | None = None, /) -> Sequence[Claim]:
        """The claims of files that others held at any time since an epoch.

        Without an epoch: since that of the claim. They may have ended since. Others are neither
        within the claimant, nor is it within them.
        """
        ...

    async def listed(self) -> ClaimList:
        """All that is held, and all who wait."""
        ...

    async def close(self) -> None:
        """Give back what was acquired here and has no ``ttl_s``, and let who waits here fail.

        It can be used again afterwards.
        """
        ...


@dataclass(frozen=True, slots=True)
class LaunchClaims:
    """What a launch of an agent has to do with claims.

    ``claim`` is held for it already, of what its step says that it writes. ``take`` holds more for
    as long as its block lasts; whoever has to wait for that holds no place of the run's limits.
    """

    claims: Claims
    claim: Claim | None
    take: Callable[[tuple[Resource, ...]], AbstractAsyncContextManager[Claim]]
