"""What an agent's program finds in its environment."""

from __future__ import annotations

import pytest

from handrail.agents.transport.cli import child_environment
from handrail.model.agent_options import AgentOptions


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of the process that starts the program."""
    monkeypatch.setenv("KEPT", "ours")
    monkeypatch.setenv("DROPPED", "ours")


def test_the_surroundings_are_inherited_but_for_what_is_dropped() -> None:
    """A variable that would mislead the program is left out, all others are there."""
    env = child_environment(AgentOptions(), drop=["DROPPED", "NEVER_THERE"])
    assert env["KEPT"] == "ours"
    assert "DROPPED" not in env


def test_the_nearest_value_wins() -> None:
    """The backend's values are over the surroundings, and the options' are over both."""
    env = child_environment(
        AgentOptions(env={"B": "options", "DROPPED": "options"}),
        drop=["DROPPED"],
        add={"KEPT": "backend", "B": "backend"},
    )
    assert (env["KEPT"], env["B"], env["DROPPED"]) == ("backend", "options", "options")
