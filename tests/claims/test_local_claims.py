from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from handrail.ports.claims import Claim, Claimant, ClaimRequest, Claims, Resource
from handrail.testing.contracts import ClaimsContract
from handrail.workspace.claims.local import LocalClaims
from handrail.workspace.claims.store import QueuePosition, Store


class TestLocalClaims(ClaimsContract):
    @pytest.fixture
    async def open_claims(self, tmp_path: Path) -> AsyncIterator[Callable[[], Claims]]:
        """Clients that share nothing but the file."""
        self.repository = str(tmp_path / "repo/.git")
        opened: list[LocalClaims] = []

        def open_one() -> Claims:
            opened.append(LocalClaims(self.repository))
            return opened[-1]

        yield open_one
        for claims in opened:
            await claims.close()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are seen in /proc")
async def test_what_is_released_after_the_end_opens_no_file(tmp_path: Path) -> None:
    """A release may be on its way when the store is closed; nobody closes it again."""
    claims = LocalClaims()
    wanted = ClaimRequest(
        Claimant("run", "step"), (Resource("git", repository=str(tmp_path / ".git")),)
    )
    claim = await claims.acquire(wanted)
    await claims.close()
    await claims.release(claim)
    assert not open_files_below(tmp_path)


def test_a_line_that_stands_still_is_decided_once(tmp_path: Path) -> None:
    """A look at the same claims and requests finds what the last one did, and a change shows."""
    git = Resource("git", repository=str(tmp_path))
    store = Store(tmp_path / "claims.db", 30.0)
    held, *queued = (store.ask(ClaimRequest(Claimant(f"run{n}", "step"), (git,))) for n in range(4))
    assert isinstance(held, Claim)
    numbers = {one.number for one in queued if isinstance(one, QueuePosition)}
    first, again = store.look(numbers), store.look(numbers)
    for number in numbers:
        was, now = first[number], again[number]
        assert isinstance(was, QueuePosition)
        assert isinstance(now, QueuePosition)
        assert now.behind is was.behind
    store.end(held)
    granted = store.look(numbers)[min(numbers)]
    assert isinstance(granted, Claim)
    assert granted.claimant == Claimant("run1", "step")
    store.close()


def test_a_claim_that_was_waited_for_longer_than_a_lease_is_not_taken_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is next in line finds it held, as long as its holder renews."""
    git = Resource("git", repository=str(tmp_path))
    stores = [Store(tmp_path / "claims.db", 30.0) for _ in range(3)]
    held, *queued = (
        store.ask(ClaimRequest(Claimant(f"run{n}", "step"), (git,)))
        for n, store in enumerate(stores)
    )
    assert isinstance(held, Claim)
    second, third = (one.number for one in queued if isinstance(one, QueuePosition))
    running = time.monotonic
    for ahead_s in (20, 40):
        monkeypatch.setattr(time, "monotonic", lambda ahead_s=ahead_s: running() + ahead_s)
        for store in stores:
            store.renew()
    stores[0].end(held)
    granted = stores[1].look({second})[second]
    assert isinstance(granted, Claim)
    assert isinstance(stores[2].look({third})[third], QueuePosition)
    assert stores[1].is_held(granted)
    for store in stores:
        store.close()


def open_files_below(folder: Path) -> list[str]:
    """The files there that this process has open."""
    held = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [one for one in held if one.startswith(str(folder))]
