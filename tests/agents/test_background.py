"""What agents are shown besides their prompts: results of earlier steps, and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from handrail import Agent, Executor, FakeBackend, Steps, step, workflow
from handrail.agents.prompt import Files
from handrail.errors import DefinitionError
from handrail.model.agent_options import AgentOptions


async def prompt_of(executor: Executor | None = None, **settings: Any) -> str:
    """The prompt of an agent after three steps: a text, a list, and one that failed."""
    backend = FakeBackend(["done"])
    agent = Agent("worker", "Work.", backend=backend, **settings)

    @workflow
    def flow() -> Steps[None]:
        yield from step("first").call(lambda: "a text")
        yield from step("second").call(lambda: [1, 2])
        yield from step("third").call(int, "x").skip_on_error()
        yield from step("work").agent(agent)

    result = await (executor or Executor()).run(flow)
    assert result.success, result.error
    return backend.turns[0].prompt


async def test_an_agent_sees_nothing_that_it_is_not_given() -> None:
    """Without context_mode, the prompt is the template alone."""
    assert await prompt_of() == "Work."


async def test_the_last_result_is_shown() -> None:
    """The latest step that succeeded, as text or JSON, before the task."""
    prompt = await prompt_of(context_mode="last")
    assert prompt == ("# Results so far\n\n## second\n\n[\n  1,\n  2\n]\n\n# Your task\n\nWork.")


async def test_the_mode_of_an_executor_is_that_of_agents_without_one() -> None:
    """An agent's own counts first, and it may ask for none."""
    said = await prompt_of(Executor(context_mode="last"))
    assert said == await prompt_of(context_mode="last")
    assert await prompt_of(Executor(context_mode="last"), context_mode="explicit") == "Work."
    everything = await prompt_of(context_mode="accumulate")
    assert await prompt_of(Executor(context_mode="last"), context_mode="accumulate") == everything
    with pytest.raises(DefinitionError, match="context_mode of an Executor must be one of"):
        Executor(context_mode="all")  # type: ignore[arg-type]


async def test_results_accumulate_in_order() -> None:
    """All that fit, the oldest first."""
    prompt = await prompt_of(context_mode="accumulate")
    assert prompt.index("## first\n\na text") < prompt.index("## second")


async def test_the_latest_results_fit_first() -> None:
    """With room for one, it is the latest, and a long one is shortened."""
    assert "## first" not in await prompt_of(context_mode="accumulate", context_tokens=5)
    assert "## second" in await prompt_of(context_mode="accumulate", context_tokens=5)


async def test_files_and_folders_are_shown_with_their_names(tmp_path: Path) -> None:
    """Text files of a folder in order, not hidden or binary ones; what is too large is named."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "b.py").write_text("print('b')\n")
    (tmp_path / "src" / "a.py").write_text("```\ncode\n```\n")
    (tmp_path / "src" / ".env").write_text("hidden")
    (tmp_path / "src" / "c.bin").write_bytes(b"\0\1")
    (tmp_path / "big.txt").write_text("x" * 500)
    files = Files(["src", "big.txt"], max_bytes=100)
    prompt = await prompt_of(files=files, options=AgentOptions(cwd=tmp_path))
    assert prompt == (
        "# Files\n\n## src/a.py\n\n````\n```\ncode\n```\n````\n\n"
        "## src/b.py\n\n```\nprint('b')\n```\n\n"
        "Left out, because they are too large: big.txt (500 bytes)\n\n# Your task\n\nWork."
    )


async def test_a_missing_file_fails_the_step_and_is_named(tmp_path: Path) -> None:
    """The error has the path and the folder."""
    agent = Agent("w", "Work.", backend=FakeBackend(["x"]), files=["gone.txt"],
                  options=AgentOptions(cwd=tmp_path))  # fmt: skip

    @workflow
    def flow() -> Steps[Any]:
        return (yield from step("work").agent(agent))

    result = await Executor().run(flow)
    assert f"its file 'gone.txt' does not exist in {tmp_path}" in (result.error or "")


async def test_a_prompt_file_is_found_beside_the_file_that_makes_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the program is started."""
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "work.md").write_text("From beside.")
    scope: dict[str, Any] = {"__file__": str(tmp_path / "flow.py")}
    code = """
from pathlib import Path
from handrail import Agent
agent = Agent('w', Path('prompts/work.md'))
"""
    exec(code, scope)
    monkeypatch.chdir(Path(__file__).parent)
    assert scope["agent"].identity["prompt"] == "From beside."


def test_wrong_settings_are_refused() -> None:
    """A mode that does not exist, and a text for a list."""
    with pytest.raises(DefinitionError, match="context_mode of agent 'a' must be one of"):
        Agent("a", "x", context_mode="all")  # type: ignore[call-overload]
    with pytest.raises(DefinitionError, match="files= takes a list of paths"):
        Agent("a", "x", files="README.md")
