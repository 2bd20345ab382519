"""Decides which requests may be granted now, from all live claims and all requests in line.

Theory of operation. Two kinds of others block a request: *holders*, who have a claim that overlaps
it, and requests *ahead* of it in line that overlap it. A holder releases its claim only when all
steps within the holder are done. So who waits for a holder also waits for each request in line from
within that holder.

These waits form a graph, and a circle in it would never end. A circle of holders alone is a
deadlock: it closes when its last request joins the line, and that request is refused (see
``ClaimSnapshot.circle``). A circle that leads through a request ahead is opened: that request waits
for a claim of the one behind it, or of a step that the one behind is within. So it does not count
as ahead (see ``ClaimSnapshot.ahead``), and no circle is left.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence

from handrail.model.dataclass import dataclass
from handrail.ports.claims import Claim, Claimant, Resource, text_of

KEEPS_S = 30 * 86_400.0
"""How long a step may ask what others had since its claim that a crash ended."""


@dataclass(frozen=True, slots=True)
class QueuedRequest:
    """A request in line; lower numbers came earlier."""

    number: int
    claimant: Claimant
    resources: tuple[Resource, ...]
    since: float = 0.0


class ClaimSnapshot:
    """A snapshot of the live claims, and of the requests in line."""

    def __init__(
        self, held: Sequence[Claim], line: Sequence[QueuedRequest], gone: Collection[int] = ()
    ) -> None:
        """``gone``: the epochs of claims that may be taken from their holders."""
        self.held = {claim.epoch: claim for claim in held}
        self.line = {one.number: one for one in sorted(line, key=lambda one: one.number)}
        self.gone = frozenset(gone)
        self._holders: dict[Hashable, list[Claim]] = {}
        for claim in held:
            for place in _places(claim.resources):
                self._holders.setdefault(place, []).append(claim)
        self._queued: dict[Hashable, list[QueuedRequest]] = {}
        self._by_run: dict[tuple[str, str], list[QueuedRequest]] = {}
        for one in self.line.values():
            for place in _places(one.resources):
                self._queued.setdefault(place, []).append(one)
            key = (one.claimant.run, one.claimant.journal)
            self._by_run.setdefault(key, []).append(one)
        self._kept_by: dict[int, list[Claim]] = {}
        self._ahead: dict[int, list[QueuedRequest]] = {}
        self._inside: dict[int, list[QueuedRequest]] = {}
        self._in_the_way: dict[int, tuple[Claimant, ...]] = {}

    def same_as(self, other: ClaimSnapshot) -> bool:
        """True if both have the same claims and requests, and so decide alike."""
        return (self.held, self.line, self.gone) == (other.held, other.line, other.gone)

    def in_the_way(self, one: QueuedRequest) -> tuple[Claimant, ...]:
        """The claimants that a request waits for; empty if it may be granted."""
        found = self._in_the_way.get(one.number)
        if found is None:
            holders = [claim.claimant for claim in self.holders(one)]
            ahead = [other.claimant for other in self.ahead(one)]
            found = self._in_the_way[one.number] = tuple(dict.fromkeys((*holders, *ahead)))
        return found

    def holders(self, one: QueuedRequest) -> list[Claim]:
        """The overlapping claims of others, without those that may be taken."""
        return [claim for claim in self._overlapping(one) if claim.epoch not in self.gone]

    def to_be_taken(self, one: QueuedRequest) -> list[Claim]:
        """The claims of others that end when the request is granted."""
        return [claim for claim in self._overlapping(one) if claim.epoch in self.gone]

    def ahead(self, one: QueuedRequest) -> list[QueuedRequest]:
        """The overlapping requests that came earlier and do not wait for this one."""
        found = self._ahead.get(one.number)
        if found is None:
            found = self._ahead[one.number] = self._find_ahead(one)
        return found

    def circle(self, one: QueuedRequest) -> tuple[str, ...]:
        """The circle of waits that the request would close, a sentence each; empty if none."""
        steps: dict[int, tuple[QueuedRequest | None, Claim | None]] = {one.number: (None, None)}
        waiting = [one]
        while waiting:
            here = waiting.pop()
            for claim in self.holders(here):
                if one.claimant.is_within(claim.claimant):
                    return _circle_sentences(here, claim, steps)
                for other in self._within(claim):
                    if other.number not in steps:
                        steps[other.number] = (here, claim)
                        waiting.append(other)
        return ()

    # -- inside ---------------------------------------------------------------------------------

    def _overlapping(self, one: QueuedRequest) -> list[Claim]:
        found = self._kept_by.get(one.number)
        if found is None:
            near = {
                claim.epoch: claim
                for place in _places(one.resources)
                for claim in self._holders.get(place, ())
            }
            found = [near[epoch] for epoch in sorted(near) if _conflict(near[epoch], one)]
            self._kept_by[one.number] = found
        return found

    def _find_ahead(self, one: QueuedRequest) -> list[QueuedRequest]:
        near = {
            other.number: other
            for place in _places(one.resources)
            for other in self._queued.get(place, ())
            if other.number < one.number
        }
        found = [near[number] for number in sorted(near) if _conflict(near[number], one)]
        if any(one.claimant.is_within(claim.claimant) for claim in self.held.values()):
            for number, each in self.line.items():
                if number >= one.number:
                    break
                self.ahead(each)
            found = [other for other in found if not self._waits_for(other, one)]
        return found

    def _waits_for(self, first: QueuedRequest, one: QueuedRequest) -> bool:
        """True if ``first`` waits, directly or not, for a claimant that ``one`` is within."""
        seen, waiting = {first.number}, [first]
        looked_at: set[int] = set()
        while waiting:
            here = waiting.pop()
            following = self._ahead[here.number][:] if here.number < one.number else []
            for claim in self.holders(here):
                if claim.epoch in looked_at:
                    continue
                looked_at.add(claim.epoch)
                if one.claimant.is_within(claim.claimant):
                    return True
                following += self._within(claim)
            for other in following:
                if other.number not in seen:
                    seen.add(other.number)
                    waiting.append(other)
        return False

    def _within(self, claim: Claim) -> list[QueuedRequest]:
        """The requests in line from within the claim's claimant: they must end before the claim."""
        found = self._inside.get(claim.epoch)
        if found is None:
            of_run = self._by_run.get((claim.claimant.run, claim.claimant.journal), ())
            found = [one for one in of_run if one.claimant.is_within(claim.claimant)]
            self._inside[claim.epoch] = found
        return found


def related(one: Claimant, other: Claimant) -> bool:
    """True if either claimant is within the other: then their claims do not conflict."""
    return one.is_within(other) or other.is_within(one)


def _conflict(one: Claim | QueuedRequest, other: QueuedRequest) -> bool:
    if related(one.claimant, other.claimant):
        return False
    return any(mine.overlaps(theirs) for mine in one.resources for theirs in other.resources)


def _places(resources: Sequence[Resource]) -> set[Hashable]:
    """The index keys under which overlaps are found: a name itself, or files' working tree."""
    return {(resource.repository, resource.name, resource.tree) for resource in resources}


def _circle_sentences(
    last: QueuedRequest, closing: Claim, steps: dict[int, tuple[QueuedRequest | None, Claim | None]]
) -> tuple[str, ...]:
    said = [_sentence(last, closing)]
    here = last
    while True:
        before, claim = steps[here.number]
        if before is None or claim is None:
            return tuple(reversed(said))
        said.append(_sentence(before, claim))
        here = before


def _sentence(one: QueuedRequest, claim: Claim) -> str:
    wanted = [
        resource
        for resource in one.resources
        if any(resource.overlaps(its) for its in claim.resources)
    ]
    return f"{one.claimant} waits for {text_of(wanted)}, which {claim.claimant} has"
