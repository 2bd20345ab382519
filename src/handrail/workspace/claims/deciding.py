"""Who may have what now: of those who hold and those in line, by their claimants and resources.

Theory of operation. Somebody in line is kept by two kinds of others: by who *holds* something that
overlaps, and by who stands *ahead* in line for something that overlaps. A holder lets go when all
that is within it is done, so who waits behind a holder waits for everybody in line within it, too.

That makes a graph, and a circle in it would never end. One whose parts are all holders is a
deadlock: it comes into being when its last one joins the line, and that one is refused (see
``ClaimSnapshot.circle``). In one with somebody ahead in it nobody need wait behind that one: what
it waits for is held by the one behind, or by what that is within. So it does not count as ahead
(see ``ClaimSnapshot.ahead``), and no circle is left.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass

from handrail.ports.claims import Claim, Claimant, Resource, text_of


@dataclass(frozen=True, slots=True)
class InLine:
    """Somebody in line; lower numbers came before."""

    number: int
    claimant: Claimant
    resources: tuple[Resource, ...]
    since: float = 0.0


class ClaimSnapshot:
    """A snapshot of the claims that are held, and of the requests in line."""

    def __init__(
        self, held: Sequence[Claim], line: Sequence[InLine], gone: Collection[int] = ()
    ) -> None:
        """``gone``: the epochs of what may be taken from its holder."""
        self.held = {claim.epoch: claim for claim in held}
        self.line = {one.number: one for one in sorted(line, key=lambda one: one.number)}
        self.gone = frozenset(gone)
        self._holders: dict[Hashable, list[Claim]] = {}
        for claim in held:
            for place in _places(claim.resources):
                self._holders.setdefault(place, []).append(claim)
        self._lined: dict[Hashable, list[InLine]] = {}
        self._by_run: dict[tuple[str, str], list[InLine]] = {}
        for one in self.line.values():
            for place in _places(one.resources):
                self._lined.setdefault(place, []).append(one)
            key = (one.claimant.run, one.claimant.journal)
            self._by_run.setdefault(key, []).append(one)
        self._kept_by: dict[int, list[Claim]] = {}
        self._ahead: dict[int, list[InLine]] = {}

    def in_the_way(self, one: InLine) -> tuple[Claimant, ...]:
        """Whom it waits for; nobody, if it may have what it wants."""
        holders = [claim.claimant for claim in self.holders(one)]
        ahead = [other.claimant for other in self.ahead(one)]
        return tuple(dict.fromkeys((*holders, *ahead)))

    def holders(self, one: InLine) -> list[Claim]:
        """What is held by others and overlaps, but for what may be taken."""
        return [claim for claim in self._overlapping(one) if claim.epoch not in self.gone]

    def to_be_taken(self, one: InLine) -> list[Claim]:
        """What ends when it gets what it wants."""
        return [claim for claim in self._overlapping(one) if claim.epoch in self.gone]

    def ahead(self, one: InLine) -> list[InLine]:
        """Those before it in line for something that overlaps, who do not wait for it."""
        for number, each in self.line.items():
            if number > one.number:
                break
            if number not in self._ahead:
                self._ahead[number] = self._find_ahead(each)
        return self._ahead[one.number]

    def circle(self, one: InLine) -> tuple[str, ...]:
        """Who waits for whom, round to itself, if it may not wait; one sentence each."""
        steps: dict[int, tuple[InLine | None, Claim | None]] = {one.number: (None, None)}
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

    def _overlapping(self, one: InLine) -> list[Claim]:
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

    def _find_ahead(self, one: InLine) -> list[InLine]:
        near = {
            other.number: other
            for place in _places(one.resources)
            for other in self._lined.get(place, ())
            if other.number < one.number
        }
        return [
            near[number]
            for number in sorted(near)
            if _conflict(near[number], one) and not self._waits_for(near[number], one)
        ]

    def _waits_for(self, first: InLine, one: InLine) -> bool:
        """True if what the first waits for is held by this one, or by what that is within."""
        seen, waiting = {first.number}, [first]
        while waiting:
            here = waiting.pop()
            following = list(self._ahead.get(here.number, ()))
            for claim in self.holders(here):
                if one.claimant.is_within(claim.claimant):
                    return True
                following += self._within(claim)
            for other in following:
                if other.number not in seen:
                    seen.add(other.number)
                    waiting.append(other)
        return False

    def _within(self, claim: Claim) -> Iterator[InLine]:
        """Those in line who must be done before the claim can end."""
        key = (claim.claimant.run, claim.claimant.journal)
        for one in self._by_run.get(key, ()):
            if one.claimant.is_within(claim.claimant):
                yield one


def related(one: Claimant, other: Claimant) -> bool:
    """True if either is within the other: they do not stand in one another's way."""
    return one.is_within(other) or other.is_within(one)


def _conflict(one: Claim | InLine, other: InLine) -> bool:
    if related(one.claimant, other.claimant):
        return False
    return any(mine.overlaps(theirs) for mine in one.resources for theirs in other.resources)


def _places(resources: Sequence[Resource]) -> set[Hashable]:
    """Where to look for what overlaps: of a name itself, of files their working tree."""
    return {(one.repository, one.name, one.tree) for one in resources}


def _circle_sentences(
    last: InLine, closing: Claim, steps: dict[int, tuple[InLine | None, Claim | None]]
) -> tuple[str, ...]:
    said = [_sentence(last, closing)]
    here = last
    while True:
        before, claim = steps[here.number]
        if before is None or claim is None:
            return tuple(reversed(said))
        said.append(_sentence(before, claim))
        here = before


def _sentence(one: InLine, claim: Claim) -> str:
    wanted = [each for each in one.resources if any(each.overlaps(its) for its in claim.resources)]
    return f"{one.claimant} waits for {text_of(wanted)}, which {claim.claimant} has"
