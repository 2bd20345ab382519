"""``handrail work``: queues are seen and changed, of runs that are alive, suspended and dead."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from handrail.cli.who import current_user
from tests.cli.conftest import Cli, Outcome, killed, live, notes

GROWS = """\
import asyncio
import os
from pathlib import Path

from handrail import Found, Task, step, workflow

BRINGS = {"a": [Task("a1", 1), Task("a2", 2, 5)], "b": [Task("a1", 9)]}


async def held(task, how):
    with open("leader", "a") as stream:
        stream.write("held\\n")
    while not Path("go").exists():
        if how == "dies":
            os.kill(os.getpid(), 9)
        await asyncio.sleep(0.02)


def find(task):
    with open("notes", "a") as stream:
        stream.write(task.id + "\\n")
    if task.payload == "broken":
        raise ValueError("it is broken")
    return Found(task.payload, BRINGS.get(task.id, []))


def body(how):
    def one(task):
        if task.id == "b" and how == "asks":
            yield from step("go on?").ask("Go on?", choices=["yes", "no"])
        elif task.id == "b":
            yield from step("hold").call(held, task, how)
        return (yield from step("find").call(find, task))
    return one


@workflow
def grows(how="holds"):
    tasks = [Task("a", 0), Task("b", 0), Task("c", 0, 7)]
    work = yield from step("search").work(tasks, body(how), max_concurrency=1)
    return " ".join(one.id for one in work.done)


@workflow
def no_queue():
    yield from step("one").call(str)


@workflow
def two():
    yield from step("x").work([Task("a", 0)], body("holds"))
    yield from step("y").work([Task("a", 0)], body("holds"))
    yield from step("ask").ask("Well?", choices=["yes"])
"""


@pytest.fixture(autouse=True)
def grows(folder: Path) -> None:
    """A file of workflows that have queues."""
    (folder / "grows.py").write_text(GROWS, "utf-8")


def edited(cli: Cli) -> Outcome:
    """One of each edit to the run ``w``."""
    typed = ["--add", 'd={"deep": [1]}', "--add", "e", "--drop", "a2", "--priority", "e=-1"]
    return cli("work", "w", *typed, "--priority", "c=-2", "--by", "eve")


@pytest.mark.parametrize("how", ["holds", "dies", "asks"])
def test_a_queue_is_changed_while_its_run_is_alive_dead_and_suspended(cli: Cli, how: str) -> None:
    """What was added is done, what was dropped is not, and the most urgent is next."""
    words = ["run", "grows.py:grows", "--input", f"how={how}", "--run-id", "w", "--quiet"]
    if how == "holds":
        with live(*words) as child:
            outcome = edited(cli)
            seen = cli("work", "w")
            Path("go").touch()
            out, err = child.communicate(timeout=30)
        assert (child.returncode, err) == (0, "")
    else:
        killed(*words) if how == "dies" else cli(*words)
        outcome = edited(cli)
        seen = cli("work", "w")
        Path("go").touch()
        if how == "asks":
            cli("answer", "w", "search/b/go on?", "yes")
        out = cli("resume", "w", "--quiet").out
    assert outcome.code == 0, outcome.err
    assert outcome.out.splitlines() == [
        "added task 'd', by eve",
        "added task 'e' with the priority -1, by eve",
        "dropped task 'a2', by eve",
        "gave task 'c' the priority -2, by eve",
    ]
    assert re.match(r"search: 1 at work, \d queued, \d done", seen.out)
    assert out == "a a1 b c d e\n"
    assert notes() == ["a", "b", "c", "e", "a1", "d"]


def test_a_queue_is_shown(cli: Cli) -> None:
    """What is at work, what is next and what was refused; as text, as JSON, and with the run."""
    cli("run", "grows.py:grows", "--input", "how=asks", "--run-id", "w", "--quiet")
    assert cli("work", "w").out == (
        "search: 1 at work, 3 queued, 1 done\n"
        "  at work  b\n"
        "  next     a1, a2 (priority 5), c (priority 7)\n"
    )
    assert cli("work", "w", "--json").data == [
        {
            "path": "search",
            "queued": [
                {"id": "a1", "priority": 0.0},
                {"id": "a2", "priority": 5.0},
                {"id": "c", "priority": 7.0},
            ],
            "running": ["b"],
            "done": 1,
            "failed": 0,
            "refused": [],
            "why_stopped": None,
            "over": False,
        }
    ]
    shown = cli("show", "w").out
    assert "queue of search: 1 at work, 3 queued, 1 done\n" in shown
    assert "search  work  open  1 of 5 done · 1 open" in shown
    cli("work", "w", "--add", "x=broken")
    cli("answer", "w", "search/b/go on?", "yes")
    cli("resume", "w", "--quiet")
    assert cli("work", "w").out == "search: 5 done, 1 failed, 1 refused\n  refused  a1\n"
    assert cli("work", "w", "--step", "nothing").out == "run w has no queue\n"


def test_what_was_changed_is_told_as_json(cli: Cli) -> None:
    """Who did it, and to which run."""
    cli("run", "grows.py:grows", "--input", "how=asks", "--run-id", "w", "--quiet")
    data = cli("work", "w", "--add", "d=1", "--priority", "d=2", "--json").data
    assert data == {
        "run_id": "w",
        "added": ["d"],
        "dropped": [],
        "priority": {"d": 2.0},
        "by": current_user(),
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--drop", "a"], "task 'a' does not wait: it has ended"),
        (["--drop", "b"], "task 'b' does not wait: it has begun"),
        (["--drop", "zz"], "step 'search' has no task 'zz'"),
        (["--add", "a1"], "there is a task 'a1' in step 'search' already"),
        (["--add", "=1"], "the id of a Task must not be empty"),
        (["--priority", "a1"], "--priority a1: takes ID=N, with a number."),
        (["--priority", "a1=nan"], "the priority of task 'a1' must be a finite number, got nan"),
        (
            ["--add", "d", "--step", "searches"],
            "no work has begun at 'searches'. At work: 'search'",
        ),
    ],
)
def test_what_cannot_be_done_to_a_queue_is_said(cli: Cli, words: list[str], said: str) -> None:
    """Exit code 2, why, and nothing has changed."""
    cli("run", "grows.py:grows", "--input", "how=asks", "--run-id", "w", "--quiet")
    before = cli("work", "w").out
    outcome = cli("work", "w", *words)
    assert (outcome.code, outcome.out) == (2, ""), outcome
    assert said in outcome.err
    assert cli("work", "w").out == before


def test_of_several_queues_one_is_named(cli: Cli) -> None:
    """A run without any has none to change, and a run that has succeeded takes no more."""
    cli("run", "grows.py:no_queue", "--run-id", "n", "--quiet")
    assert cli("work", "n").out == "run n has no queue\n"
    assert "it has succeeded" in cli("work", "n", "--add", "x").err
    cli("run", "grows.py:two", "--run-id", "t", "--quiet")
    assert cli("work", "t", "--step", "y").out.startswith("y: 3 done")
    assert "step 'y' has ended" in cli("work", "t", "--add", "x", "--step", "y").err
