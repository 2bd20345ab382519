"""What a step, or a run, says about how an agent is to be carried out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from handrail.model.agent_options import NO_OPTIONS, AgentOptions
from handrail.model.results import Usage


@attrs.frozen
class AgentSettings:
    """``backend`` is one, or a name of one; None: not said here. ``session`` is gone on in, with
    ``fork`` in a copy of it; ``session_usage`` is what it had used so far, if that is known, and
    ``session_backend`` the name of the backend that keeps it ("": not known).
    ``writes`` are the patterns of what the agent may write, ``worktree`` gives it one of its own.
    ``wrap`` makes of every backend the one that is used; only a run says it.
    """

    backend: Any = None
    options: AgentOptions = NO_OPTIONS
    session: str | None = None
    session_usage: Usage | None = None
    fork: bool = False
    writes: tuple[str, ...] | None = None
    worktree: bool = False
    wrap: Callable[[Any], Any] | None = None
    session_backend: str = ""


NO_SETTINGS = AgentSettings()
