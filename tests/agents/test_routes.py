"""Which backend carries an agent out, with which model and options: the nearest setting wins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import handrail
from handrail import Agent, AgentOptions, DefinitionError, Executor, FakeBackend, Steps, workflow
from handrail import step as a_step
from handrail.agents.routes import make_backend, routes_of
from handrail.executor import agent_defaults
from handrail.model.agent_options import NO_OPTIONS, NO_SETTINGS, AgentSettings


def chosen(
    agent: Agent[Any], step: AgentSettings = NO_SETTINGS, run: AgentSettings = NO_SETTINGS
) -> list[tuple[str, str | None]]:
    """Backend and model of each route."""
    return [(route.name, route.options.model) for route in routes_of(agent, step, run)]


def settings(backend: Any = None, model: str | None = None) -> AgentSettings:
    """What a step or a run says."""
    return AgentSettings(backend, AgentOptions(model=model))


OPUS = Agent("a", "x", backend="claude", model="opus")
BARE = Agent("a", "x")


@pytest.mark.parametrize(
    ("agent", "step", "run", "expected"),
    [
        (OPUS, NO_SETTINGS, NO_SETTINGS, ("claude", "opus")),
        (OPUS, settings(model="haiku"), NO_SETTINGS, ("claude", "haiku")),
        (OPUS, settings("claude:haiku"), NO_SETTINGS, ("claude", "haiku")),
        (OPUS, settings("codex:gpt-6"), NO_SETTINGS, ("codex", "gpt-6")),
        (OPUS, settings("codex"), NO_SETTINGS, ("codex", None)),
        (OPUS, NO_SETTINGS, settings("codex", "gpt-6"), ("claude", "opus")),
        (Agent("a", "x", backend="claude"), NO_SETTINGS, settings("codex", "g"), ("claude", None)),
        (Agent("a", "x", backend="claude"), NO_SETTINGS, settings(model="m"), ("claude", "m")),
        (BARE, NO_SETTINGS, settings("codex:gpt-5", "gpt-6"), ("codex", "gpt-6")),
        (BARE, NO_SETTINGS, settings("codex:gpt-5"), ("codex", "gpt-5")),
        (Agent("a", "x", model="opus"), NO_SETTINGS, settings("claude"), ("claude", "opus")),
        (Agent("a", "x", model="opus"), settings("codex"), settings("claude"), ("codex", None)),
    ],
)
def test_the_nearest_setting_wins_and_a_model_is_its_backends(
    agent: Agent[Any], step: AgentSettings, run: AgentSettings, expected: tuple[str, str | None]
) -> None:
    """A model counts for the backend that it was named with, and for no other."""
    assert chosen(agent, step, run) == [expected]


def test_a_chain_takes_options_along_but_no_model_of_another_backend() -> None:
    """Names, models of the same backend, and backends, in their order."""
    options = AgentOptions(permission="full")
    chain = ["codex:gpt-6", ":haiku", "codex", FakeBackend([])]
    agent = Agent("a", "x", backend="claude", model="opus", options=options, fallback=chain)
    assert chosen(agent) == [
        ("claude", "opus"), ("codex", "gpt-6"), ("claude", "haiku"), ("codex", None),
        ("fake", None),
    ]  # fmt: skip
    routes = routes_of(agent, NO_SETTINGS, NO_SETTINGS)
    assert {route.options.permission for route in routes} == {"full"}


def test_options_are_joined_field_by_field() -> None:
    """The step's, the agent's, the run's; and the variables of all."""
    agent = Agent("a", "x", backend="claude", options=AgentOptions(effort="low", env={"A": "1"}))
    step = AgentSettings(options=AgentOptions(effort="high"))
    run = AgentSettings(options=AgentOptions(max_turns=3, effort="max", env={"B": "2"}))
    (route,) = routes_of(agent, step, run)
    assert (route.options.effort, route.options.max_turns) == ("high", 3)
    assert route.options.env == {"A": "1", "B": "2"}


@pytest.mark.parametrize(
    "make",
    [
        lambda options: Agent("a", "x", backend="codex", options=options),
        lambda options: Executor(backend="codex", agent_options=options),
    ],
)
def test_an_option_that_a_backend_cannot_honour_is_refused_with_those_that_can(make: Any) -> None:
    """Where it is written, before anything runs."""
    with pytest.raises(DefinitionError, match=r"'codex' cannot honour max_turns.* can: claude"):
        make(AgentOptions(max_turns=3))


async def test_a_step_that_asks_too_much_fails_before_its_agent_is_launched() -> None:
    """With the same words, where the source does not say beforehand what it asks."""

    @workflow
    def flow(turns: int) -> Steps[Any]:
        return (
            yield from a_step("a").agent(
                BARE, backend="codex", options=AgentOptions(max_turns=turns)
            )
        )

    result = await Executor().run(flow, 3)
    assert "cannot honour max_turns" in (result.error or "")


async def test_an_unknown_backend_of_a_step_names_the_agent() -> None:
    """And what was meant."""

    @workflow
    def flow(backend: str) -> Steps[Any]:
        return (yield from a_step("a").agent(BARE, backend=backend))

    result = await Executor().run(flow, "claud")
    assert "agent 'a': there is no backend 'claud'. Did you mean 'claude'?" in (result.error or "")


def test_what_is_given_beats_the_environment_and_that_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arguments, HANDRAIL_BACKEND and HANDRAIL_MODEL, [tool.handrail]; a model goes with what it
    was named with.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HANDRAIL_BACKEND", raising=False)
    monkeypatch.delenv("HANDRAIL_MODEL", raising=False)
    project = '[tool.handrail]\nbackend = "codex"\nmodel = "gpt-6"\n'
    (tmp_path / "pyproject.toml").write_text(project)

    def found(backend: str | None = None, model: str | None = None) -> tuple[Any, str | None]:
        made = agent_defaults(backend, model, NO_OPTIONS)
        return made.backend, made.options.model

    assert found() == ("codex", "gpt-6")
    assert found("codex") == ("codex", "gpt-6")
    assert found("claude") == ("claude", None)
    assert found(model="gpt-7") == ("codex", "gpt-7")
    monkeypatch.setenv("HANDRAIL_BACKEND", "claude")
    assert found() == ("claude", None)
    monkeypatch.setenv("HANDRAIL_MODEL", "opus")
    assert found() == ("claude", "opus")
    assert found("copilot") == ("copilot", None)
    monkeypatch.setenv("HANDRAIL_BACKEND", "clod")
    with pytest.raises(DefinitionError, match="HANDRAIL_BACKEND: there is no backend 'clod'"):
        found()


def test_a_backend_with_an_empty_model_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an agent, an executor and the environment; what to write is named."""
    said = "'claude:' names no model after the colon. Write 'claude' for the default model, or"
    with pytest.raises(DefinitionError, match=f"agent 'a': {said}"):
        Agent("a", "x", backend="claude:")
    with pytest.raises(DefinitionError, match=said):
        Executor(backend="claude:")
    monkeypatch.setenv("HANDRAIL_BACKEND", "claude:")
    with pytest.raises(DefinitionError, match=f"HANDRAIL_BACKEND: {said}"):
        agent_defaults(None, None, NO_OPTIONS)


RETIRED = {
    "codex-exec": "'codex'",
    "gemini-acp": "'gemini'",
    "gemini-cli": "'gemini'",
    "opencode-run": "'opencode'",
    "CodexExecBackend": "CodexBackend",
    "GeminiBackend": "backend='gemini'",
    "OpencodeBackend": "backend='opencode'",
}
PLACES: dict[str, Callable[[str], object]] = {
    "agent": lambda name: Agent("a", "x", backend=name),
    "model": lambda name: Agent("a", "x", backend=f"{name}:m"),
    "fallback": lambda name: Agent("a", "x", backend="claude", fallback=[name]),
    "executor": lambda name: Executor(backend=name),
    "make": make_backend,
    "variable": lambda _: agent_defaults(None, None, NO_OPTIONS),
    "import": lambda name: getattr(handrail, name),
}


@pytest.mark.parametrize(
    ("place", "name"),
    [(place, name) for name in RETIRED for place in PLACES if ("-" in name) != (place == "import")],
)
def test_a_retired_name_says_what_to_write(
    place: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever a backend is named, and where its class was imported from."""
    if place == "variable":
        monkeypatch.setenv("HANDRAIL_BACKEND", name)
    with pytest.raises(DefinitionError) as caught:
        PLACES[place](name)
    assert f"backend {name!r} was retired: write {RETIRED[name]}" in str(caught.value)
