"""``handrail show RUN PATH``: one step whole, and what trees say of failures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli, spawned

FLOW = """\
from handrail import step, workflow


def deep(number):
    if number % 3 == 0:
        raise ValueError(f"no {number}")
    return number


def act():
    return deep(3)


def each(number):
    return step("x").call(deep, number)


def instead(ctx, failed):
    return step("other").call(str)


@workflow
def flow():
    yield from step("kept").call(act).on_error(instead)
    yield from step("left").call(act).default({"a": "b"})
    yield from step("exits").command("echo out; exit 3", check=False)
    yield from step("good").for_each([1, 2], each)
    yield from step("some").for_each([1, 2, 3], each, on_error="continue")
    yield from step("group").for_each([1, 2, 3, 4, 5], each, max_concurrency=1)
"""


@pytest.fixture
def run(cli: Cli, folder: Path) -> str:
    """The id of a run of it, whose group failed."""
    (folder / "flow.py").write_text(FLOW, "utf-8")
    assert cli("run", "flow.py:flow", "--run-id", "r-1").code == 1
    return "r-1"


def test_a_tree_names_the_authors_line_and_what_was_got_over(cli: Cli, run: str) -> None:
    """Each failure once, with its place; a fallback, an exit code and what never began are seen."""
    shown = cli("show", run).out
    assert "kept  python  " in shown
    assert "by its fallback, after ValueError: no 3" in shown
    assert "ValueError: no 3 (flow.py:6)" in shown
    assert "exit code 3" in shown
    assert "at 2/x; 2 not begun" in shown
    assert "  good  for_each  2 of 2 done  " in shown.replace("✓", "")
    assert "some  for_each  2 of 3 done · 1 failed · ValueError × 1  " in shown  # noqa: RUF001  # the sign is meant
    assert "failed  2 of 5 done · 1 failed · 2 not begun  " in shown


def test_the_log_counts_what_a_group_did(cli: Cli, folder: Path) -> None:
    """What was done of how many, what failed, and what never began."""
    (folder / "flow.py").write_text(FLOW, "utf-8")
    told = cli("run", "flow.py:flow").err
    assert "2 of 5 done · 1 failed · 2 not begun" in told
    assert "by its fallback, after ValueError: no 3" in told
    assert "group/2/x: ValueError: no 3 (flow.py:6)" in told


def test_one_step_is_shown_whole(cli: Cli, run: str) -> None:
    """Its times, the traceback of each attempt, and its output."""
    shown = cli("show", run, "left").out
    assert "left, python of run r-1: defaulted\n" in shown
    assert 'flow.py", line 6, in deep' in shown
    assert shown.count("Traceback") == 1
    assert "{'a': 'b'}" in shown
    for path, ended in (
        ("kept", "by its fallback, after ValueError: no 3"),
        ("exits", "exit code 3"),
    ):
        assert f" of run r-1: succeeded, {ended}\n" in cli("show", run, path).out
    data = cli("show", run, "left", "--json").data
    assert (data["status"], data["output"]) == ("defaulted", {"a": "b"})
    assert [one["error"] for one in data["handled"]] == ["no 3"]
    assert data["ended_at"].endswith("+00:00")


def test_a_group_is_shown_with_what_its_members_gave(cli: Cli, run: str) -> None:
    """Its output is recorded in theirs."""
    assert cli("show", run, "good").out.endswith("output:\n  [1, 2]\n")
    assert cli("show", run, "good/1").out.endswith("output:\n  2\n")
    assert cli("show", run, "good", "--json").data["output"] == [1, 2]


def test_a_path_that_is_not_recorded_is_an_error(cli: Cli, run: str) -> None:
    """It names those that look like it."""
    outcome = cli("show", run, "lefd")
    assert outcome.code == 2
    assert "has no recorded step 'lefd'. Did you mean 'left'?" in outcome.err
    assert cli("show", "nobody", "left").code == 2


TYPED = """\
from dataclasses import dataclass
from handrail import Agent, FakeBackend, step, workflow


@dataclass
class Plan:
    title: str
    steps: list[str]


said = FakeBackend(['Sure: {"title": "t", "steps": ["a"]}'])


@workflow
def typed():
    plan = yield from step("plan").agent(Agent("planner", "Plan.", output=Plan, backend=said))
    yield from step("same").call(lambda: [plan.output])
    return plan.output
"""


def test_a_value_of_a_class_that_is_not_imported_is_shown_as_data(cli: Cli, folder: Path) -> None:
    """An agent's answer stands by itself, with who gave it; no name of a class is in the way."""
    (folder / "typed.py").write_text(TYPED, "utf-8")
    spawned("run", "typed.py", "--run-id", "t")
    data = "{'title': 't', 'steps': ['a']}"
    shown = cli("show", "t", "plan").out
    assert shown.endswith(f"output:\n  backend  fake\n  {data}\n")
    assert cli("show", "t", "same").out.endswith(f"output:\n  [{data}]\n")
    assert "value: Plan(title='t', steps=['a'])" in cli("show", "t").out
    assert "value: Plan(title='t', steps=['a'])" in cli("report", "t").out


FILES = """\
from handrail import step, workflow


def each(path):
    return step("open").call(open, path)


@workflow
def files():
    yield from step("all").for_each(["/no/a b.py"], each, key=lambda path: f"é{path}")
"""


def test_people_read_names_and_keys_as_they_were_given(cli: Cli, folder: Path) -> None:
    """In the log, the plan, the tree and the report; what they read, they may ask for."""
    (folder / "files.py").write_text(FILES, "utf-8")
    logged = cli("run", "files.py", "--run-id", "f").err
    for said in (logged, cli("plan", "f").out, cli("report", "f").out):
        assert "all/é/no/a b.py/open" in said
    assert "%2F" not in logged
    assert "  ✗ é/no/a b.py  member" in cli("show", "f").out
    assert cli("show", "f", "all/é/no/a b.py/open").out.startswith("all/é/no/a b.py/open, python")
    refused = cli("resume", "f", "--rerun", "all/é/no/a b.py/open")
    assert (refused.code, "Did you mean 'all/é%2Fno%2Fa b.py/open'?" in refused.err) == (
        2,
        True,
    )
