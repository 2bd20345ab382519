"""A backend that goes through a cassette."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

from handrail.model.agent_options import NO_OPTIONS, AgentOptions
from handrail.model.policy import Secrets
from handrail.ports.agent import (
    AgentBackend,
    AgentReply,
    AgentTurn,
    Capabilities,
    capabilities_of,
)
from handrail.secrets.masking import Mask
from handrail.secrets.values import secret_values

Complete: TypeAlias = Callable[[AgentTurn, AgentBackend, Mask], Awaitable[AgentReply]]


class TapedBackend:
    """A backend whose turns are carried out by ``complete``; all else is the backend's own."""

    def __init__(
        self, complete: Complete, backend: AgentBackend, folder: Path, secrets: Secrets
    ) -> None:
        self.own_folders = (folder,)
        """Where its recordings are: no agent has written them."""
        self._complete = complete
        self._backend = backend
        self._secrets = secrets

    def __repr__(self) -> str:
        return f"<{self._backend!r} with a cassette>"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    @property
    def name(self) -> str:
        """The backend's."""
        return self._backend.name

    @property
    def capabilities(self) -> Capabilities:
        """The backend's."""
        return capabilities_of(self._backend)

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """The reply, recorded or replayed; see ``Cassette``."""
        own: AgentOptions = getattr(self._backend, "options", NO_OPTIONS)
        around = {**os.environ, **_variables(turn.options.over(own))}
        return await self._complete(turn, self._backend, Mask(secret_values(self._secrets, around)))


def _variables(options: AgentOptions) -> dict[str, str]:
    """The variables that the options give to programs."""
    given: list[Mapping[str, Any]] = [options.env or {}]
    for server in (options.mcp_servers or {}).values():
        more = server.get("env")
        if isinstance(more, Mapping):
            given.append(cast("Mapping[str, Any]", more))
    return {name: str(value) for variables in given for name, value in variables.items()}
