"""What a person typed to bound a run holds for the run's whole life."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from handrail import SqliteJournal
from handrail.record.reading import ended
from tests.cli.conftest import Cli, live
from tests.cli.machines import until

BOUNDED = """\
from handrail import Agent, AgentReply, FakeBackend, Usage, step, workflow

used = Usage(input_tokens=10, output_tokens=10, cost_usd=1.0)


def note(number):
    with open("launched", "a") as file:
        file.write(f"{number}\\n")


@workflow
def bud(rest: float = 0):
    for number in range(6):
        if number == 2:
            yield step("go?").ask("go?", choices=["yes"])
        agent = Agent("spends", "x", backend=FakeBackend([AgentReply("ok", usage=used)]))
        yield step(f"look-{number}").agent(agent)
        yield step(f"note-{number}").call(note, number)
    yield step("rest").sleep(rest)
    return "done"
"""
BOUNDS = [
    pytest.param(["--budget-usd", "3"], "usd 3 of 3", "--budget-usd 6", id="dollars"),
    pytest.param(["--max-launches", "3"], "launches 3 of 3", "--max-launches 6", id="launches"),
    pytest.param(["--max-steps", "6"], "max_steps=6", "--max-steps 12", id="steps"),
    pytest.param(["--timeout", "6"], "timeout_s=6", "--timeout 12", id="seconds"),
]


@pytest.fixture(autouse=True)
def _spends(folder: Path) -> None:
    """A workflow of six launches for a dollar each, which asks after the second."""
    (folder / "bud.py").write_text(BOUNDED, "utf-8")


def error_of(run_id: str) -> str:
    """The error of a run that has ended; empty if it has not."""
    last: Any = ended(SqliteJournal(Path(".handrail/runs.db")).events(run_id))
    return "" if last is None else str(last.error)


def begin(cli: Cli, *words: str) -> None:
    """Run up to the question, and answer it."""
    assert cli("run", "bud.py", "--run-id", "b", "--quiet", *words).code == 3
    assert cli("answer", "b", "go?", "yes").code == 0


@pytest.mark.parametrize("road", ["resume", "worker", "detach"])
@pytest.mark.parametrize(("words", "said", "more"), BOUNDS)
def test_a_bound_holds_whatever_continues_the_run(
    words: list[str], said: str, more: str, road: str, cli: Cli
) -> None:
    """The run ends at the bound of its start, and `resume` says how to type a larger one."""
    rest = ["--input", "rest=60"]
    match road:
        case "detach":
            run = cli("run", "bud.py", "--run-id", "b", "--detach", "--json", *rest, *words)
            until(lambda: cli("show", "b", "--json").data["waits_for"])
            os.kill(run.data["pid"], signal.SIGKILL)
            assert cli("answer", "b", "go?", "yes").code == 0
        case "worker":
            begin(cli, *rest, *words)
            with live("worker", until="launched"):
                until(lambda: error_of("b"))
            assert said in error_of("b")
        case _:
            begin(cli, *rest, *words)
    outcome = cli("resume", "b", "--quiet")
    assert (outcome.code, said in outcome.err) == (1, True), outcome.err
    assert f"handrail resume b {more}" in outcome.err


def test_a_bound_that_is_typed_later_holds_from_then_on(cli: Cli) -> None:
    """It replaces the first; a bound of another kind is kept beside it."""
    begin(cli, "--budget-usd", "3", "--max-steps", "11")
    assert "usd 4 of 4" in cli("resume", "b", "--quiet", "--budget-usd", "4").err
    assert "usd 4 of 4" in cli("resume", "b", "--quiet").err
    assert "usd 4 of 4" in cli("run", "bud.py", "--run-id", "b", "--quiet").err
    assert "max_steps=11" in cli("resume", "b", "--quiet", "--budget-usd", "60").err
    assert cli("resume", "b", "--quiet", "--max-steps", "60").out == "done\n"


def test_a_fork_takes_the_bounds_over(cli: Cli) -> None:
    """Also one that was typed behind the place of the fork; unless another is typed at `fork`."""
    begin(cli, "--max-launches", "3")
    assert "launches 4 of 4" in cli("resume", "b", "--quiet", "--max-launches", "4").err
    fork = ["fork", "b", "--at", "look-1", "--quiet", "--gates", "approve"]
    assert "launches 4 of 4" in cli(*fork, "--run-id", "same").err
    assert cli(*fork, "--run-id", "more", "--max-launches", "9").out == "done\n"
    assert cli(*fork, "--run-id", "idle", "--no-run").code == 0
    assert "launches 4 of 4" in cli("resume", "idle", "--quiet", "--gates", "approve").err
    refused = cli(*fork, "--no-run", "--max-launches", "9")
    assert (refused.code, "--max-launches" in refused.err) == (2, True)
