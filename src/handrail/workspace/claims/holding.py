"""A claim that is held for as long as something lasts, and told of."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio

from handrail.errors import ClaimLost
from handrail.model import events as ev
from handrail.model.shapes import AgentRequest
from handrail.ports.claims import (
    Claim,
    Claimant,
    ClaimRequest,
    Claims,
    LaunchClaims,
    Resource,
    text_of,
)

_BOUND_S = 60
"""So long it may take to give a claim back."""
Tell = Callable[[ev.OfClaims], object]


@asynccontextmanager
async def hold_claim(
    claims: Claims, request: ClaimRequest, path: str, tell: Tell
) -> AsyncGenerator[Claim, None]:
    """Hold it, from when it is free to the end of the block; ``tell`` is told who has it until
    then, and that it is held.

    Raises:
        ClaimTimeout, ClaimDeadlock, ClaimsFailed: see the port.
    """
    claim = await acquire_claim(claims, request, path, tell)
    try:
        yield claim
    finally:
        with anyio.move_on_after(_BOUND_S, shield=True):
            await claims.release(claim)


async def acquire_claim(claims: Claims, request: ClaimRequest, path: str, tell: Tell) -> Claim:
    """The claim, when it is free.

    Raises:
        ClaimTimeout, ClaimDeadlock, ClaimsFailed: see the port.
    """
    what = text_of(request.resources)

    def waiting(others: tuple[Claimant, ...]) -> None:
        tell(ev.ClaimWaiting(path, what, ", ".join(map(str, others))))

    claim = await claims.acquire(request, waiting=waiting)
    tell(ev.ClaimGranted(path, what, claim.epoch))
    return claim


async def find_lost_claim(claims: Claims, claim: Claim) -> ClaimLost | None:
    """The error of a step that has lost its claim; None if it has it."""
    if await claims.is_held(claim):
        return None
    now = next(
        (
            str(other.claimant)
            for other in (await claims.listed()).held
            if any(mine.overlaps(its) for mine in claim.resources for its in other.resources)
        ),
        "",
    )
    return ClaimLost(str(claim.claimant), text_of(claim.resources), claim.epoch, now)


def claims_of(request: AgentRequest) -> LaunchClaims:
    """What a launch claims with: what its run gives it, or, where none does, claims of its own."""
    given = request.claims
    if isinstance(given, LaunchClaims):
        return given
    from handrail.workspace.claims.local import LocalClaims

    claims = LocalClaims()
    journal = request.mark.removeprefix(request.run_id).removeprefix("@")
    claimant = Claimant(request.run_id, request.path, journal)

    def take(resources: tuple[Resource, ...]) -> AbstractAsyncContextManager[Claim]:
        return hold_claim(claims, ClaimRequest(claimant, resources), request.path, request.emit)

    return LaunchClaims(claims, None, take)
