"""What ``show``, and the end of ``run``, say of agents, budgets and errors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from handrail.cli.report import columns, readable, write_value
from handrail.model.results import AgentResult, StepResult, Usage, WorkflowResult
from handrail.model.work import Task, TaskDone, TaskRefused, Work
from tests.cli.conftest import Cli

FLOW = """
from handrail import (
    Agent, AgentError, AgentReply, Backoff, Budget, FakeBackend, Ladder, Usage, step, workflow
)

USED = Usage(9_000, 700)

def worker(*replies):
    ladder = Ladder(backoff=Backoff(initial_s=0.001, jitter=0))
    return Agent("w", "Work.", backend=FakeBackend(list(replies), name="fake"), ladder=ladder)

BUSY = AgentError("w", "529 overloaded", kind="transient")
FIRST = worker(BUSY, AgentReply("one\\n\\ntwo", usage=Usage(120_000, 4_500, 0.41)))
OTHERS = [AgentReply("ok", usage=USED)] * 3

@workflow
def used():
    yield from step("free").agent(worker("nothing said"))
    return (yield from step("code").agent(FIRST))

def rounds(item):
    for number in range(2):
        yield from step(f"r{number}").agent(worker(*OTHERS))
    return item

@workflow
def asks():
    yield from step("all").for_each([1], rounds).budget(Budget(launches=1, on_breach="ask"))

def check(item):
    raise ValueError("compared:\\n    got: 1\\n  wanted: 2")

@workflow
def fails():
    yield from step("all").for_each(["x"], lambda item: step("check").call(check, item))

@workflow
def raises():
    yield from step("fine").call(str)
    raise ValueError("one\\n  two")
"""


@pytest.fixture(autouse=True)
def flow(folder: Path) -> None:
    """Workflows with scripted agents, in ``flow.py``."""
    (folder / "flow.py").write_text(FLOW.replace("\\\\", "\\"), "utf-8")


def test_agent_steps_show_what_they_used(cli: Cli) -> None:
    """Tokens, cost and launches in the step's row, their sum on top, what nobody said as `?`."""
    cli("run", "flow.py:used", "--run-id", "u", "--quiet")
    lines = cli("show", "u").out.splitlines()
    assert (
        "  agents   3 launches, at least 120k in, 4.5k out, $0.41 (2 did not report usage)" in lines
    )
    free, code = [line for line in lines if "  agent  " in line]
    assert free.endswith("s  tokens ?, $?")
    assert code.endswith("s  2 launches, at least 120k in, 4.5k out, $0.41")
    assert lines[-7:-3] == ["value:", "  one", "", "  two"]
    assert "  transient (fake): 529 overloaded; tried again" in "  ".join(lines[-2].split("  ")[2:])
    assert lines[-1] == "in all: 1 retry"


def test_what_was_used_is_in_the_data_too(cli: Cli) -> None:
    """Of the run and of each agent step; what is unknown is null, with the launches that hid it."""
    cli("run", "flow.py:used", "--run-id", "u", "--quiet")
    data = cli("show", "u", "--json").data
    free, code = data["steps"]
    assert (free["launches"], free["usage"], free["unknown_tokens"]) == (1, None, 1)
    assert (code["launches"], code["unknown_cost"]) == (2, 1)
    assert (code["usage"]["input_tokens"], code["usage"]["cost_usd"]) == (120_000, 0.41)
    assert (data["launches"], data["usage"]["output_tokens"]) == (3, 4_500)


def test_a_budgets_question_is_shown_until_it_is_answered(cli: Cli) -> None:
    """It waits below its step; then who said what stands there, in the data too."""
    assert cli("run", "flow.py:asks", "--run-id", "a", "--quiet").code == 3
    assert "        ⏸ budget-1  ask  waiting" in cli("show", "a").out.splitlines()
    cli("answer", "a", "all/0/r1/budget-1", "allow", "--by", "ana")
    assert cli("resume", "a", "--quiet").code == 0
    (row,) = [line for line in cli("show", "a").out.splitlines() if "budget-1" in line]
    assert row.startswith("        ✓ budget-1  ask  ")
    assert row.endswith("  answered allow by ana")
    found = cli("show", "a", "--json").data["steps"][-1]
    assert (found["path"], found["step_type"]) == ("all/0/r1/budget-1", "ask")
    assert (found["status"], found["output"], found["answered_by"]) == ("succeeded", "allow", "ana")


def test_an_error_is_shown_once_with_its_lines(cli: Cli) -> None:
    """At the step that failed; groups name it, and the end its first line."""
    cli("run", "flow.py:fails", "--run-id", "f", "--quiet")
    lines = cli("show", "f").out.splitlines()
    at = next(place for place, line in enumerate(lines) if " check  python" in line)
    assert lines[at - 2].endswith("  at 0/check")
    assert lines[at - 1].endswith("  at check")
    assert lines[at].endswith("  ValueError: compared: (flow.py:31)")
    assert lines[at + 1 : at + 3] == ["            got: 1", "          wanted: 2"]
    assert "failed: all/0/check: ValueError: compared: (flow.py:31)" in lines
    assert "\n".join(lines).count("wanted") == 1


def test_an_error_of_the_body_keeps_its_lines(cli: Cli) -> None:
    """No step has it: it stands whole at the end, and above the last line of a run."""
    told = cli("run", "flow.py:raises", "--run-id", "e").err.splitlines()[:-1]
    assert told[-3].endswith("ValueError: one")
    assert told[-2] == "    two"
    shown = cli("show", "e").out.splitlines()
    place = next(place for place, line in enumerate(shown) if line.startswith("error: "))
    assert shown[place + 1] == "      two"
    assert cli("run", "flow.py:raises", "--quiet").err.splitlines()[1] == "      two"


USED = Usage(1, 2)
ANSWER = AgentResult("done", USED)
CHILD = WorkflowResult("child", "r", "succeeded", value=ANSWER)
FAILED: StepResult[Any] = StepResult("x", "all/x", "agent", "failed", error="boom")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (ANSWER, "done"),
        (CHILD, "done"),
        (WorkflowResult("child", "r", "succeeded", final_output=3), 3),
        (WorkflowResult("child", "r", "failed", error="boom"), "child failed: boom"),
        ([ANSWER, 1], ["done", 1]),
        ((ANSWER,), ("done",)),
        ({"a": CHILD}, {"a": "done"}),
        ([StepResult("x", "x", "agent", "succeeded", ANSWER)], ["done"]),
        ([FAILED], ["all/x failed: boom"]),
        (Work((TaskDone(Task("a"), ANSWER),)), {"done": {"a": "done"}}),
        (
            Work(left=(Task("b"),), refused=(TaskRefused(Task("c"), "dropped"),), why_stopped="ok"),
            {"left": ["b"], "refused": {"c": "dropped"}, "why_stopped": "ok"},
        ),
    ],
)
def test_results_are_shown_as_what_they_hold(value: Any, said: Any) -> None:
    """An answer's text or value, and not the record around it."""
    assert readable(value) == said


@pytest.mark.parametrize("value", ["text", [1, 2], {"a": (1,)}, USED, None])
def test_other_values_are_shown_as_they_are(value: Any) -> None:
    """The very same object."""
    assert readable(value) is value


def test_a_long_answer_is_cut_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever pipes it gets all of it."""
    answer = AgentResult("\n".join(map(str, range(100))))
    write_value(answer)
    assert len(capsys.readouterr().out.splitlines()) == 100
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    write_value(answer)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 40
    assert lines[-1] == "... 61 more lines (--json has all)"


def test_columns_are_aligned_by_what_the_letters_take_on_a_terminal() -> None:
    """Some letters take the place of two."""
    assert columns([("ab", "c"), ("\u65e5\u672c", "d")]) == ["ab    c", "\u65e5\u672c  d"]
