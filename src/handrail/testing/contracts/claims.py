"""What every implementation of claims must do; subclass the suite in your tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import anyio
import pytest

from handrail.errors import ClaimDeadlock, ClaimTimeout
from handrail.ports.claims import Claim, Claimant, ClaimRequest, Claims, Resource

PATIENCE_S = 20.0
"""How long the tests wait for something that must happen."""

Ask: TypeAlias = "Callable[..., TrackedRequest]"
OpenClaims: TypeAlias = Callable[[], Claims]


class TrackedRequest:
    """A request that was made: for whom it waits, and its claim or its error. Mutable."""

    def __init__(self) -> None:
        self.in_the_way: list[tuple[str, ...]] = []
        """The names of the holders in the way, for each call of ``waiting``."""
        self.claim: Claim | None = None
        self.error: Exception | None = None
        self._changed = anyio.Event()

    def waiting(self, holders: tuple[Claimant, ...]) -> None:
        """Note the holders that are in the way."""
        self.in_the_way.append(tuple(holder.name for holder in holders))
        self._notify()

    def ended(self, claim: Claim | None, error: Exception | None = None) -> None:
        """Note the claim or the error."""
        self.claim, self.error = claim, error
        self._notify()

    async def waits(self, *holders: str) -> None:
        """Return once the request waits for exactly these holders."""
        await self._until(lambda: self.in_the_way and set(self.in_the_way[-1]) == set(holders))

    async def granted(self) -> Claim:
        """The claim, once the request is granted."""
        await self._until(lambda: self.claim or self.error)
        assert self.claim is not None, self.error
        return self.claim

    async def failed(self) -> Exception:
        """The error, once the request has failed."""
        await self._until(lambda: self.claim or self.error)
        assert self.error is not None, self.claim
        return self.error

    async def _until(self, happened: Callable[[], object]) -> None:
        with anyio.fail_after(PATIENCE_S):
            while not happened():
                self._changed = anyio.Event()
                await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()


class ClaimsContract:
    """The tests of ``handrail.ports.claims.Claims``; subclass it and override the fixture.

    Tests are async and need anyio's pytest plugin: ``anyio_mode = "auto"``, or mark the subclass
    with ``pytest.mark.anyio``.
    """

    repository = "/r/.git"
    tree = "/r"

    @pytest.fixture
    def open_claims(self) -> OpenClaims:
        """A function that opens another client of the same claims, new for each test."""
        raise NotImplementedError("override the fixture open_claims in your subclass")

    # -- helpers of the tests -------------------------------------------------------------------

    def files(self, *patterns: str, tree: str | None = None) -> Resource:
        """The files of a working tree that patterns cover."""
        tree = self.tree if tree is None else tree
        return Resource(patterns=patterns, repository=self.repository, tree=tree)

    def named(self, name: str) -> Resource:
        """A name in the repository."""
        return Resource(name, repository=self.repository)

    def request(self, who: str, *resources: Resource, **more: Any) -> ClaimRequest:
        """A request of ``run/path``."""
        run, _, path = who.partition("/")
        return ClaimRequest(Claimant(run, path), resources, **more)

    @asynccontextmanager
    async def asking(self, claims: Claims) -> AsyncGenerator[Ask]:
        """A function that makes requests in other tasks; the end of the block cancels them."""
        async with anyio.create_task_group() as tasks:

            def ask(
                who: str, *resources: Resource, by: Claims = claims, **more: Any
            ) -> TrackedRequest:
                tracked = TrackedRequest()
                tasks.start_soon(self._ask, by, self.request(who, *resources, **more), tracked)
                return tracked

            yield ask
            tasks.cancel_scope.cancel()

    async def _ask(self, claims: Claims, request: ClaimRequest, tracked: TrackedRequest) -> None:
        try:
            tracked.ended(await claims.acquire(request, waiting=tracked.waiting))
        except Exception as error:  # noqa: BLE001  # the test looks at it
            tracked.ended(None, error)

    # -- one at a time --------------------------------------------------------------------------

    async def test_what_does_not_overlap_is_held_at_the_same_time(
        self, open_claims: OpenClaims
    ) -> None:
        """Claims do not overlap for other files, other names, a name and files, or other trees."""
        one, other = open_claims(), open_claims()
        told: list[Any] = []
        requests = [
            self.request("a/1", self.files("src/**", "!src/gen/**")),
            self.request("b/1", self.files("src/gen/**", "docs/**")),
            self.request("c/1", self.files("src/**", tree="/other")),
            self.request("d/1", self.named("src")),
            self.request("e/1", self.named("git")),
        ]
        for at, request in enumerate(requests):
            await (one, other)[at % 2].acquire(request, waiting=told.append)
        assert told == []
        held = (await other.listed()).held
        assert [claim.claimant.name for claim in held] == ["a/1", "b/1", "c/1", "d/1", "e/1"]
        assert [claim.resources for claim in held] == [request.resources for request in requests]

    @pytest.mark.parametrize(
        ("first", "second"),
        [(["src/**"], ["src/a.py"]), (["*.py"], ["src/"]), (["**"], ["a"]), (["a*"], ["*b"])],
    )
    async def test_what_overlaps_waits_and_is_told_for_whom(
        self, open_claims: OpenClaims, first: list[str], second: list[str]
    ) -> None:
        """Only one request at a time gets files that both cover, whichever client asks."""
        one, other = open_claims(), open_claims()
        held = await one.acquire(self.request("a/1", self.files(*first)))
        async with self.asking(other) as ask:
            waits = ask("b/2", self.files(*second))
            await waits.waits("a/1")
            (wait,) = (await one.listed()).waiting
            assert (wait.claimant.name, wait.resources) == ("b/2", (self.files(*second),))
            assert [holder.name for holder in wait.behind] == ["a/1"]
            await one.release(held)
            granted = await waits.granted()
            assert granted.epoch > held.epoch
            assert (await one.listed()).held == (granted,)
            assert (await one.listed()).waiting == ()

    async def test_they_are_served_in_the_order_in_which_they_came(
        self, open_claims: OpenClaims
    ) -> None:
        """A request overtakes none that it overlaps; one that overlaps none does not wait."""
        one, other = open_claims(), open_claims()
        held = await one.acquire(self.request("a/1", self.named("x")))
        async with self.asking(other) as ask:
            second = ask("b/1", self.named("x"), self.named("y"))
            await second.waits("a/1")
            third = ask("c/1", self.named("y"), by=one)  # y is free, but b asked for it before
            await third.waits("b/1")
            beside = await ask("d/1", self.named("z")).granted()
            await one.release(held)
            granted = await second.granted()
            assert granted.epoch > beside.epoch > held.epoch
            assert third.claim is None
            await other.release(granted)
            assert (await third.granted()).epoch > granted.epoch

    async def test_all_that_is_asked_for_is_granted_or_nothing(
        self, open_claims: OpenClaims
    ) -> None:
        """Two requests for the same two names in another order do not wait for one another."""
        claims = open_claims()
        async with self.asking(claims) as ask:
            first = await ask("a/1", self.named("x"), self.named("y")).granted()
            second = ask("b/1", self.named("y"), self.named("x"))
            await second.waits("a/1")
            assert [claim.claimant.run for claim in (await claims.listed()).held] == ["a"]
            await claims.release(first)
            assert len((await second.granted()).resources) == 2

    # -- within one another ---------------------------------------------------------------------

    async def test_a_step_may_claim_what_it_is_within(self, open_claims: OpenClaims) -> None:
        """Siblings of the step wait for its claim, and steps outside for the enclosing claim."""
        claims = open_claims()
        async with self.asking(claims) as ask:
            above = await ask("a/1", self.files("src/**")).granted()
            outside = ask("b/1", self.files("src/**"))
            await outside.waits("a/1")
            inner = await ask("a/1~2/x", self.files("src/a")).granted()  # not behind b/1
            sibling = ask("a/1/y", self.files("src/*"))
            await sibling.waits("a/1~2/x")
            await claims.release(inner)
            await claims.release(await sibling.granted())
            await claims.release(above)
            await outside.granted()

    async def test_who_waits_for_what_one_is_within_is_not_waited_for(
        self, open_claims: OpenClaims
    ) -> None:
        """A request that waits for the enclosing claim does not delay a step inside of that."""
        claims = open_claims()
        async with self.asking(claims) as ask:
            await ask("a/1", self.named("x")).granted()
            outside = ask("b/1", self.named("x"), self.named("y"))
            await outside.waits("a/1")
            await ask("a/1/inner", self.named("y")).granted()
            await outside.waits("a/1", "a/1/inner")

    # -- waiting ends ---------------------------------------------------------------------------

    async def test_who_does_not_want_to_wait_is_refused(self, open_claims: OpenClaims) -> None:
        """The error names who is in the way, and the request is no longer in line."""
        claims = open_claims()
        await claims.acquire(self.request("a/1", self.named("x")))
        for wait_s in (0, 0.05):
            with pytest.raises(ClaimTimeout) as caught:
                await claims.acquire(self.request("b/1", self.named("x"), wait_s=wait_s))
            assert caught.value.seconds == wait_s
            assert caught.value.holders == ("step '1' of run a",)
            assert caught.value.what == "x"
        assert (await claims.listed()).waiting == ()

    async def test_who_is_cancelled_leaves_the_line(self, open_claims: OpenClaims) -> None:
        """The next request does not wait for a cancelled one."""
        claims = open_claims()
        held = await claims.acquire(self.request("a/1", self.named("x")))
        async with self.asking(claims) as ask:
            async with self.asking(claims) as ask_for_now:
                await ask_for_now("b/1", self.named("x"), self.named("y")).waits("a/1")
                third = ask("c/1", self.named("y"))
                await third.waits("b/1")
            await third.granted()
            assert (await claims.listed()).waiting == ()
            await claims.release(held)

    async def test_who_would_close_a_circle_fails_with_the_circle(
        self, open_claims: OpenClaims
    ) -> None:
        """Of three clients in a circle the last one fails; the others get their claims later."""
        clients = [open_claims() for _ in range(3)]
        async with self.asking(clients[0]) as ask:
            held = [
                await ask(f"{run}/h", self.named(run), by=claims).granted()
                for run, claims in zip("abc", clients, strict=True)
            ]
            first = ask("a/h/x", self.named("b"), by=clients[0])
            await first.waits("b/h")
            second = ask("b/h/y", self.named("c"), by=clients[1])
            await second.waits("c/h")
            closes = ask("c/h/z", self.named("a"), by=clients[2])
            error = await closes.failed()
            assert isinstance(error, ClaimDeadlock)
            assert error.what == "a"
            for whom in ("'h/x' of run a", "'h/y' of run b", "'h/z' of run c"):
                assert sum(f"step {whom} waits" in said for said in error.circle) == 1, error
            assert (first.claim, second.claim) == (None, None)
            await clients[2].release(held[2])
            await clients[1].release(await second.granted())
            await clients[1].release(held[1])
            await first.granted()

    # -- how a claim ends -----------------------------------------------------------------------

    async def test_whoever_released_it_a_claim_is_not_held_any_more(
        self, open_claims: OpenClaims
    ) -> None:
        """Its holder can see that it ended; releasing it again does not release the next claim."""
        one, other = open_claims(), open_claims()
        claim = await one.acquire(self.request("a/1", self.named("x")))
        assert await one.is_held(claim)
        assert await other.is_held(claim)
        await other.release(claim)
        assert not await one.is_held(claim)
        after = await other.acquire(self.request("b/1", self.named("x")))
        await one.release(claim)
        assert await other.is_held(after)
        assert not await one.is_held(claim)

    async def test_what_a_client_held_is_free_when_it_is_closed(
        self, open_claims: OpenClaims
    ) -> None:
        """A claim with a ``ttl_s`` stays, and the client can be used again."""
        one, other = open_claims(), open_claims()
        claim = await one.acquire(self.request("a/1", self.named("x")))
        lasting = await one.acquire(self.request("a/2", self.named("y"), ttl_s=3600))
        async with self.asking(other) as ask:
            waits = ask("b/1", self.named("x"))
            await waits.waits("a/1")
            await one.close()
            after = await waits.granted()
        assert (await other.listed()).held == (lasting, after)
        assert lasting.until is not None
        assert lasting.until > lasting.since
        assert not await one.is_held(claim)
        assert await one.is_held(lasting)
        with pytest.raises(ClaimTimeout):
            await one.acquire(self.request("c/1", self.named("y"), wait_s=0))

    async def test_epochs_grow_over_everything_that_is_claimed(
        self, open_claims: OpenClaims
    ) -> None:
        """Epochs only grow, whatever was claimed and released, and by whichever client."""
        clients = [open_claims(), open_claims()]
        epochs: list[int] = []
        for turn in range(6):
            claims = clients[turn % 2]
            claim = await claims.acquire(self.request("a/1", self.named(f"x{turn % 3}")))
            epochs.append(claim.epoch)
            await claims.release(claim)
        assert epochs == sorted(set(epochs))

    # -- claims of others -----------------------------------------------------------------------

    async def test_what_others_held_meanwhile_is_known_when_it_has_ended(
        self, open_claims: OpenClaims
    ) -> None:
        """Claims that were valid at any time since are known, but none of the step's own."""
        one, other = open_claims(), open_claims()

        async def held(who: str, *patterns: str) -> Claim:
            return await other.acquire(self.request(who, self.files(*patterns)))

        await other.release(await held("early/1", "early/**"))
        around = await held("a/0", "a/**")
        mine = await one.acquire(self.request("m/1/x", self.files("mine/**")))
        short = await held("b/0", "b/**")
        await other.release(short)
        await other.release(around)
        late = await held("c/0", "c/**")
        await held("m/1", "d/**")  # the enclosing step
        await held("m/1/x/y", "e/**")  # a step inside
        others = {claim.claimant.name for claim in await one.others_since(mine)}
        assert others == {"a/0", "b/0", "c/0"}
        since = await one.others_since(mine, late.epoch)
        assert {claim.claimant.name for claim in since} == {"c/0"}
