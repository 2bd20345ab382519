"""Which agents a run tells of before it begins, because they could not run as things are."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from handrail import (
    Agent,
    AgentOptions,
    Executor,
    FakeBackend,
    NotReady,
    Steps,
    step,
    workflow,
)
from handrail.testing import FakeAgent
from tests.engine.support import same

pytestmark = pytest.mark.extra("jinja2")

BARE = Agent("bare", "Work.")
DEMANDING = Agent("demanding", "Work.", options=AgentOptions(max_turns=3))
RIGHT = Agent("right", "Work.", backend=FakeBackend(["done"] * 99))


def in_a_loop() -> Steps[Any]:
    """Under for, with and try."""
    for number in range(2):
        with contextlib.suppress(ValueError):
            yield from step(f"code-{number}").agent(BARE)


def helper() -> Steps[Any]:
    """What another function delegates to."""
    yield from step("code").agent(BARE)


def by_a_helper() -> Steps[Any]:
    """In a function of the module."""
    yield from helper()


def in_a_group() -> Steps[Any]:
    """As a member, and as the body of each item."""
    yield from step("all").parallel(step("code").agent(BARE), step("x").call(same))
    yield from step("each").for_each([1], lambda _: step("code").agent(BARE))


def of_a_child() -> Steps[Any]:
    """In a workflow that runs as a step."""
    yield from step("child").run_workflow(CHILD)


CHILD = workflow(name="child")(helper)


def around() -> Callable[[], Steps[Any]]:
    """A function that holds the agent of the one in it."""
    held = BARE

    def inner() -> Steps[Any]:
        yield from step("code").agent(held)

    return inner


def judges() -> Steps[Any]:
    """As a stage of a validation."""
    yield from step("check").validate([BARE])


def lacks_an_option() -> Steps[Any]:
    """An agent with an option that the run's backend may lack."""
    yield from step("code").agent(DEMANDING)


def names_one() -> Steps[Any]:
    """A step with a backend of its own."""
    yield from step("code").agent(BARE, backend=FakeBackend(["done"]))


def right() -> Steps[Any]:
    """An agent that can run."""
    yield from step("code").agent(RIGHT)


@pytest.mark.parametrize(
    ("function", "settings", "told"),
    [
        (in_a_loop, {}, "it has no backend"),
        (by_a_helper, {}, "it has no backend"),
        (in_a_group, {}, "it has no backend"),
        (of_a_child, {}, "it has no backend"),
        (around(), {}, "it has no backend"),
        (judges, {}, "it has no backend"),
        (helper, {"backend": "codex"}, "'codex' is not installed"),
        (lacks_an_option, {"backend": "codex"}, "backend 'codex' cannot honour max_turns"),
        (lacks_an_option, {"backend": RIGHT.backend}, ""),
        (helper, {"agents": {"bare": RIGHT}}, ""),
        (helper, {"agents": {"bare": FakeAgent("bare", ["done"])}}, ""),
        (names_one, {}, ""),
        (right, {}, ""),
    ],
)
def test_an_agent_that_could_not_run_is_told_of_before_the_run(
    function: Any, settings: Any, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Once, with the file and the reason; never of one that may have what it needs."""
    monkeypatch.setenv("PATH", str(tmp_path))
    flow = workflow(name="flow")(function)
    with capture_logs() as logs:
        Executor(**settings).stream(flow)
    reasons = [one["why"] for one in logs if one["event"] == "an agent cannot run"]
    assert len(reasons) == bool(told)
    assert all(told in why and why.startswith(f"{__file__}:") for why in reasons)


async def test_an_option_that_a_backend_lacks_fails_its_step() -> None:
    """When it is reached, before anything is paid for."""
    result = await Executor(backend="codex").run(workflow(name="flow")(lacks_an_option))
    assert result.step("code").is_a(NotReady)
    assert "Those that can: claude, api." in (result.error or "")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"options": lambda: AgentOptions(max_turns=-1)}, "max_turns"),
        ({"backend": lambda: 3}, "backend= takes a backend"),
        ({"backend": lambda: "cladue"}, "Did you mean 'claude'?"),
    ],
)
async def test_settings_that_make_no_sense_fail_where_they_are_written(
    settings: dict[str, Callable[[], Any]], says: str
) -> None:
    """A number out of range, a backend that is none."""

    @workflow
    def flow() -> Steps[Any]:
        given = {name: make() for name, make in settings.items()}
        yield from step("code").agent(RIGHT, **given)

    assert says in ((await Executor().run(flow)).error or "")


QUIET = """
from handrail import step, workflow
import sys

def same(value=None):
    return value

def helper():
    yield from step("b").call(same)

@workflow
def child():
    yield from step("c").call(same)

@workflow
def flow():
    yield from step("a").call(same)
    yield from helper()
    yield from step("child").run_workflow(child)

assert flow().success
names = ("handrail.static.outline", "handrail.agents.agent")
print(*(name for name in names if name in sys.modules))
"""


def test_a_run_without_agents_pays_nothing_for_it(tmp_path: Path) -> None:
    """No source is read, and nothing of agents is loaded."""
    file = tmp_path / "quiet.py"
    file.write_text(QUIET)
    done = subprocess.run([sys.executable, str(file)], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ""
