from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from handrail.ports.claims import Claims
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
