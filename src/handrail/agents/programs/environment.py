"""The environment of an agent's program."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from handrail.model.agent_options import AgentOptions


def child_environment(
    options: AgentOptions,
    *,
    drop: Iterable[str] = (),
    add: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """This process's environment without the names in ``drop``; over it ``add``, which a backend
    needs for its program, and over that the variables of the options.
    """
    left_out = frozenset(drop)
    inherited = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**inherited, **(add or {}), **(options.env or {})}
