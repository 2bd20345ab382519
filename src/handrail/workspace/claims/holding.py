"""Holds a claim while a block lasts, and reports its wait and its grant as events."""

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
"""How long the release of a claim may take."""
Tell = Callable[[ev.OfClaims], object]


@asynccontextmanager
async def hold_claim(
    claims: Claims, request: ClaimRequest, path: str, tell: Tell
) -> AsyncGenerator[Claim, None]:
    """Acquire a claim, and release it at the end of the block; ``tell`` as in ``acquire_claim``.

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
    """Wait for a claim; ``tell`` gets the events of who is in the way, and of the grant.

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
    """The error for a lost claim, with who has it now; None if the claim is still live."""
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
    """A launch's claims: those from its run, or, without a run, ``LocalClaims`` of its own."""
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
