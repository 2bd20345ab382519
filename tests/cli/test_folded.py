"""``show`` and ``plan`` of a long run fold what is done, and neither the latest nor failures."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Cli

LONG = """\
from handrail import step, workflow


def act(number):
    if number == 3:
        raise ValueError("no")
    return number


def one(number):
    return step("one").call(act, number).default(0)


@workflow
def week():
    for number in range(60):
        yield from step(f"day-{number}").call(int)
    yield from step("all").for_each(range(50), one)
    yield from step("ok?").ask("Go on?")
"""


def test_a_long_run_is_folded(cli: Cli, folder: Path) -> None:
    """The lines that are left out are counted at their place; what did not succeed is kept."""
    (folder / "long.py").write_text(LONG, "utf-8")
    assert cli("run", "long.py", "--run-id", "w", "--quiet").code == 3
    shown = [line.split()[:2] for line in cli("show", "w").out.splitlines()]
    assert ["…", "21"] in shown or ["...", "21"] in shown
    names = [line[1] for line in shown if len(line) == 2]
    assert "day-20" not in names
    assert "day-21" in names
    assert {"3", "10", "49", "ok?"} < set(names)
    assert "2" not in names

    plan = cli("plan", "w").out
    assert "recorded     ... 91 more (--json lists all)" in plan
    assert {"day-0", "day-9", "ok?"} < set(plan.split())
    assert "day-10" not in plan.split()
    assert len(cli("plan", "w", "--json").data["steps"]) == 112
