"""Agents that replace others by name, and a warning of names that no agent has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handrail.engine.bus import warn


class Replacements:
    """The agents of ``Executor(agents=)`` in one drive. Mutable: it notes which are used."""

    def __init__(self, agents: Mapping[str, Any]) -> None:
        self._agents = agents
        self._used: set[str] = set()
        self._launched: set[str] = set()

    def replacement_for(self, agent: Any) -> Any:
        """The agent to launch: the replacement of that name, else the agent itself."""
        name: str = agent.name
        replaced = name in self._agents
        (self._used if replaced else self._launched).add(name)
        return self._agents[name] if replaced else agent

    def warning_text(self) -> str:
        """A warning of names that no step used, or nothing.

        Unused names alone are no reason to warn, for a run need not reach every step. It warns only
        if an agent was launched without a replacement, too.
        """
        unused = [name for name in self._agents if name not in self._used]
        if not unused or not self._launched:
            return ""
        import difflib

        launched = sorted(self._launched)
        near = {name: difflib.get_close_matches(name, launched, n=1) for name in unused}
        said = ", ".join(
            f"{name!r} (did you mean {near[name][0]!r}?)" if near[name] else repr(name)
            for name in unused
        )
        return (
            f"agents= has names that no step of this run used: {said}. "
            f"Launched as they are: {', '.join(map(repr, launched))}."
        )

    def warn_of_unused(self, run_id: str) -> None:
        """Log that warning, if there is one."""
        notice = self.warning_text()
        if notice:
            warn("agents not replaced", run_id=run_id, notice=notice)
