from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from handrail.ports.claims import Claimant, ClaimRequest, Claims, Resource
from handrail.testing.contracts import ClaimsContract
from handrail.workspace.claims.local import LocalClaims


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


def open_files_below(folder: Path) -> list[str]:
    """The files there that this process has open."""
    held = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [one for one in held if one.startswith(str(folder))]
