"""Options of agents: what is taken, and what is refused by name."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from handrail import Agent, AgentOptions, DefinitionError, Executor, FakeBackend, step


def test_options_are_kept_in_one_form() -> None:
    """Lists become tuples, paths texts, durations seconds."""
    options = AgentOptions(
        allowed_tools=["Bash"],
        add_dirs=[Path("a"), "b"],
        cwd=Path("c"),
        env={"A": "1"},
        timeout_s=timedelta(minutes=1),
        idle_timeout_s=2,
    )
    assert (options.allowed_tools, options.add_dirs, options.cwd) == (("Bash",), ("a", "b"), "c")
    assert (options.env, options.timeout_s, options.idle_timeout_s) == ({"A": "1"}, 60.0, 2)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("start_timeout_s", "1", "must be seconds"),
        ("idle_timeout_s", 0, "must be above 0 seconds"),
        ("tool_timeout_s", -1, "must be finite and not negative"),
        ("timeout_s", True, "must be seconds"),
        ("allowed_tools", "Bash", "must be a list of texts, got 'Bash'"),
        ("denied_tools", 3, "must be a list of texts, got 3"),
        ("add_dirs", [1], r"must be a list of texts, got \(1,\)"),
        ("extra_args", {"a": 1}, "must be a list of texts"),
        ("env", "A=hunter2", "must be a mapping, got str$"),
        ("mcp_servers", ["x"], "must be a mapping, got list"),
        ("cwd", 3, "must be text"),
        ("model", " ", "must be text that is not blank"),
        ("permission", "write", "must be one of 'read_only', 'workspace', 'full', got 'write'"),
        ("max_turns", 0, "must be a whole number of at least 1"),
        ("max_cost_usd", "3", "must be dollars above 0"),
    ],
)
def test_what_is_wrong_is_named(name: str, value: Any, said: str) -> None:
    """The field, its class, and what came; but of variables nothing, they may be secret."""
    with pytest.raises(DefinitionError, match=rf"^{name} of AgentOptions {said}"):
        AgentOptions(**{name: value})


@pytest.mark.parametrize(
    "make",
    [
        lambda options: Agent("a", "x", model="opus", options=options),
        lambda options: step("a").agent(
            Agent("a", "x", backend=FakeBackend([])), model="opus", options=options
        ),
        lambda options: Executor(model="opus", agent_options=options),
        lambda options: Executor(backend="claude", model="opus", agent_options=options),
    ],
    ids=["agent", "step", "run", "run with backend"],
)
def test_two_models_at_one_place_are_refused(make: Any) -> None:
    """`model=` is short for the option: named twice alike it counts once."""
    with pytest.raises(DefinitionError, match="model='opus' and options that say model='sonnet'"):
        make(AgentOptions(model="sonnet"))
    make(AgentOptions(model="opus"))
    make(AgentOptions(effort="low"))
