"""The examples run on a cluster as they are, and come to what they come to in one process."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from examples.research import research
from examples.review_files import review_files
from examples.ship import Report, ship
from handrail import Executor
from handrail.agents.fake_agent import FakeAgent
from handrail.temporal import TemporalExecutor, TemporalWorker
from handrail.testing.conformance import by_path, essence, history_differences
from handrail.testing.contracts.host import history_of
from tests.examples.conftest import repository
from tests.examples.ship_parts import PLAN, TEST, edit

pytestmark = pytest.mark.temporal
_ = repository  # a fixture, which pytest finds by its name here
EXAMPLES = (research, review_files, ship)


def agents() -> dict[str, FakeAgent]:
    """A coder that is wrong once, and a fixer."""
    coder, fixer = edit("x = 33\n", "as planned"), edit("x = 2 #\n", "the test wants 2")
    return {
        "planner": FakeAgent("planner", [PLAN]),
        "coder": FakeAgent("coder", [coder]),
        "fixer": FakeAgent("fixer", [fixer]),
    }


async def both(
    client: Client, flow: Any, inputs: tuple[Any, ...], scratch: Path, between: Callable[[], None]
) -> list[Any]:
    """The results in one process and on a cluster, whose events are the same at each path."""
    results: list[Any] = []
    histories: list[Any] = []
    queue = f"examples-{flow.definition.name}"
    there = TemporalExecutor(client, task_queue=queue, gates="approve", workflows=EXAMPLES)
    here = Executor(workflows=EXAMPLES, portable=True, gates="approve", agents=agents())
    async with TemporalWorker(
        client, EXAMPLES, executor=Executor(agents=agents()), task_queue=queue
    ):
        for which, executor in (("here", here), ("there", there)):
            result = await executor.run(flow, *inputs)
            results.append(result)
            file = scratch / f"{which}.jsonl"
            histories.append(by_path(await history_of(executor, result.run_id, file)))
            between()
    assert sorted(histories[0]) == sorted(histories[1])
    if flow is review_files:  # the others race, or have commits with a time
        assert essence(results[0]) == essence(results[1])
        assert history_differences(*histories) == []
    return [result.unwrap() for result in results]


async def test_research(client: Client, tmp_path: Path) -> None:
    """Races within a group."""
    one, other = await both(client, research, (("light", "dusk"),), tmp_path, lambda: None)
    assert one == other
    assert "all colours" in one


async def test_review_files(client: Client, repository: Path, tmp_path_factory: Any) -> None:
    """Commands, agents side by side of which one fails, a question, and a file."""
    report = repository / "REVIEW.md"
    scratch = tmp_path_factory.mktemp("records")
    texts: list[str] = []

    def look() -> None:
        texts.append(report.read_text("utf-8"))
        report.unlink()

    values = await both(client, review_files, (repository, "HEAD~1"), scratch, look)
    assert values == texts
    assert values[0] == values[1]


async def test_ship(
    client: Client, repository: Path, tmp_path_factory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task is planned and done, its checks fail, the fixer repairs it, and it is committed."""
    monkeypatch.chdir(repository)
    for name in ("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"):
        monkeypatch.setenv(name, "A")
    for name in ("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(name, "a@example.invalid")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (repository / "test_clean.py").write_text(TEST, "utf-8")

    def undo() -> None:
        subprocess.run(["git", "reset", "--quiet", "--hard", "HEAD~1"], check=True)

    made = await both(client, ship, ("set x to 2",), tmp_path_factory.mktemp("records"), undo)
    for report in made:
        assert isinstance(report, Report)
        assert report.commit.endswith(" Set x to 2")
        assert [change.why for change in report.changes] == ["as planned", "the test wants 2"]
