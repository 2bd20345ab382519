"""``[[tool.handrail.schedule]]``: which instants of it are begun, and when."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from handrail import DefinitionError, Executor, MemoryJournal, Steps, step, workflow
from handrail.cli.schedule import SOON_S, Schedule, Timetable, schedules_of
from handrail.ports.journal import SCHEDULE_LABEL, RunInfo
from handrail.project import project_table
from tests.cli.conftest import Cli

HOUR = 3_600.0
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()
HOURLY = Schedule("hourly", "0 * * * *", "flow.py:tick")


def timetable(folder: Path, one: Schedule, *, since: float, up_at: float) -> Timetable:
    """Of a worker that is begun now; the schedule was there before."""
    Timetable([one], folder, since)
    return Timetable([one], folder, up_at)


def ids(table: Timetable, now: float, *runs: RunInfo, at_work: Sequence[str] = ()) -> list[str]:
    """The runs that are begun at a look, and those that are skipped, with why."""
    found = table.due(runs, now, at_work)
    for one in found:
        table.mark_done(one)
    return [f"{one.run_id}: {one.skipped}" if one.skipped else one.run_id for one in found]


def run(run_id: str, status: Any = None, *, start: float = NOON, end: float = 0.0) -> RunInfo:
    """A run of the schedule."""
    labels = {SCHEDULE_LABEL: "hourly"}
    return RunInfo(run_id, "tick", status, start, 3, updated_at=end or start, labels=labels)


def test_an_instant_is_begun_when_it_comes_and_once(tmp_path: Path) -> None:
    """None before the schedule was there, and none twice, whoever began it."""
    table = Timetable([HOURLY], tmp_path, NOON + 1)
    assert ids(table, NOON + 1) == ids(table, NOON + HOUR - 1) == []
    assert ids(table, NOON + HOUR) == ["hourly-20260301T130000Z"]
    assert ids(table, NOON + HOUR) == ids(table, NOON + HOUR + 5) == []
    other = run("hourly-20260301T140000Z", "succeeded")
    assert ids(table, NOON + 2 * HOUR, other) == ids(table, NOON + 2 * HOUR) == []
    again = Timetable([HOURLY], tmp_path, NOON + 2.5 * HOUR)
    assert ids(again, NOON + 2.5 * HOUR, other) == []


@pytest.mark.parametrize(
    ("missed", "down_s", "begun"),
    [
        ("once", 8.5 * HOUR, ["hourly-20260301T200000Z"]),
        ("skip", 8.5 * HOUR, []),
        ("skip", 8 * HOUR + SOON_S / 2, ["hourly-20260301T200000Z"]),
    ],
)
def test_what_becomes_of_instants_at_which_nobody_was_up(
    missed: Any, down_s: float, begun: list[str], tmp_path: Path
) -> None:
    """The last of them is made up for, or none is; a worker that was only begun again missed
    nothing. The next is begun in any case.
    """
    schedule = Schedule("hourly", "0 * * * *", "flow.py:tick", missed=missed)
    table = timetable(tmp_path, schedule, since=NOON, up_at=NOON + down_s)
    assert ids(table, NOON + down_s) == begun
    assert ids(table, NOON + 9 * HOUR) == ["hourly-20260301T210000Z"]


def test_a_schedule_that_is_changed_begins_anew(tmp_path: Path) -> None:
    """Instants of its new times that lie before it was changed were never its own."""
    later = Schedule("hourly", "30 * * * *", "flow.py:tick")
    table = timetable(tmp_path, HOURLY, since=NOON, up_at=NOON + 10)
    assert ids(table, NOON + HOUR) == ["hourly-20260301T130000Z"]
    assert ids(Timetable([later], tmp_path, NOON + HOUR), NOON + HOUR) == []


def test_an_earlier_run_that_has_not_ended(tmp_path: Path) -> None:
    """The instant is skipped, for good; or waits for it; or has a run beside it."""
    at_one = NOON + HOUR
    earlier = run("hourly-20260301T120000Z", "suspended")
    skip = Timetable([HOURLY], tmp_path, NOON)
    said = "hourly-20260301T130000Z: run hourly-20260301T120000Z had not ended"
    assert ids(skip, at_one, earlier) == [said]
    assert ids(skip, at_one + 60) == []
    ended = run("hourly-20260301T120000Z", "succeeded", end=at_one + 30)
    assert ids(Timetable([HOURLY], tmp_path, at_one + 50), at_one + 60, ended) == [said]
    wait = Timetable([Schedule("hourly", "0 * * * *", "f:t", overlap="wait")], tmp_path, NOON)
    assert ids(wait, at_one, earlier) == []
    assert ids(wait, at_one + 60, ended) == ["hourly-20260301T130000Z"]
    start = Timetable([Schedule("hourly", "0 * * * *", "f:t", overlap="start")], tmp_path, NOON)
    assert ids(start, at_one, earlier) == ["hourly-20260301T130000Z"]


def test_an_earlier_run_that_has_only_a_process(tmp_path: Path) -> None:
    """It has not ended as long as its process may still record its start."""
    table = Timetable([HOURLY], tmp_path, NOON)
    one, two = "hourly-20260301T130000Z", "hourly-20260301T140000Z"
    assert ids(table, NOON + HOUR) == [one]
    assert ids(table, NOON + 2 * HOUR, at_work=[one]) == [f"{two}: run {one} had not ended"]
    assert ids(table, NOON + 3 * HOUR) == ["hourly-20260301T150000Z"]


def test_a_fork_is_no_run_of_the_schedule(tmp_path: Path) -> None:
    """It does not hold up the next instant; it has the other labels of the run."""

    @workflow
    def tick() -> Steps[int]:
        return (yield from step("tick").call(int, 1))

    labels = {SCHEDULE_LABEL: "hourly", "team": "red"}
    executor = Executor(journal=MemoryJournal(), workflows=[tick])
    executor.options(run_id="r", labels=labels).run_sync(tick)
    executor.fork_sync("r", fork_id="f")
    runs = {one.run_id: one for one in executor.journal.runs()}
    assert (runs["r"].labels, runs["f"].labels) == (labels, {"team": "red"})
    table = Timetable([HOURLY], tmp_path, NOON)
    assert ids(table, NOON + HOUR, runs["f"]) == ["hourly-20260301T130000Z"]


def test_a_day_on_which_the_clocks_are_set(tmp_path: Path) -> None:
    """A time that a day does not have comes when the clocks are set, one that it has twice once."""

    def times(month: int, day: int) -> list[str]:
        schedule = Schedule("hourly", "30 2 * * *", "f:t", timezone="Europe/Berlin")
        start = datetime(2026, month, day, tzinfo=UTC).timestamp() - 6 * HOUR
        table = Timetable([schedule], tmp_path / str(month), start)
        looks = [start + 300 * look for look in range(12 * 30)]
        return [one.removeprefix("hourly-") for now in looks for one in ids(table, now)]

    assert times(3, 29) == ["20260329T010000Z"]
    assert times(10, 25) == ["20261025T003000Z"]
    assert times(6, 1) == ["20260601T003000Z"]


AT = 'cron = "0 * * * *"'
OF = 'workflow = "f.py:t"'


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([AT], "lacks workflow"),
        ([OF], "lacks cron"),
        ([OF, 'cron = "0 25 * * *"'], "cron '0 25 * * *' is not valid: Bad hour"),
        ([OF, 'cron = "soon"'], "cron 'soon' is not valid: Wrong number of fields"),
        ([OF, 'cron = "0 0 30 2 *"'], "cron '0 0 30 2 *' is not valid"),
        ([OF, "cron = 5"], "cron must be text, got 5"),
        ([OF, AT, 'timezone = "Mars"'], "timezone 'Mars' is not valid"),
        ([OF, AT, 'timezone = "../x"'], "timezone '../x' is not valid"),
        ([OF, AT, "inputs = 5"], "inputs must be a table, got 5"),
        ([OF, AT, 'overlap = "no"'], "overlap must be one of 'skip', 'wait', 'start', got 'no'"),
        ([OF, AT, 'missed = "all"'], "missed must be one of 'once', 'skip', got 'all'"),
        ([OF, AT, 'name = "a/b"'], "name 'a/b' is not valid: use letters, digits"),
        ([OF, AT, 'name = ""'], "name '' is not valid"),
        ([OF, AT, "input = {}"], "has no key 'input'. Did you mean 'inputs'?"),
        ([OF, AT, "[[tool.handrail.schedule]]", OF, AT], "2 schedules are named 't'"),
    ],
)
def test_a_schedule_that_is_none(lines: list[str], said: str, tmp_path: Path) -> None:
    """The file and the key are named."""
    file = tmp_path / "pyproject.toml"
    file.write_text("\n".join(["[[tool.handrail.schedule]]", *lines]))
    with pytest.raises(DefinitionError) as caught:
        schedules_of(project_table(tmp_path))
    assert str(caught.value).startswith(f"{file}: [[tool.handrail.schedule]] ")
    assert said in str(caught.value)


def test_no_worker_begins_with_one_of_them(cli: Cli, tmp_path: Path) -> None:
    """It is told at once, not when the time has come."""
    (tmp_path / "pyproject.toml").write_text("[tool.handrail]\nschedule = 5\n")
    done = cli("worker")
    assert (done.code, "schedule must be a list of tables" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (['workflow = "gone.py:tick"'], "gone.py: there is no such file."),
        (['workflow = "gone.flows:tick"'], "module 'gone.flows': there is no such"),
        (['workflow = "flow.py:tock"'], "flow.py: has no workflow 'tock'."),
        (['workflow = "flow.py:tick"'], "workflow 'tick': needs repo (str). Add inputs.repo"),
        (
            ['workflow = "flow.py:tick"', 'inputs = { repo = ".", depth = true }'],
            "unknown input 'depth': workflow 'tick' has none. Did you mean 'deep'?",
        ),
        (['workflow = "flow.py:tick"', "inputs = { repo = [1] }"], "input 'repo': got [1]"),
    ],
)
def test_no_worker_begins_with_a_schedule_that_cannot_run(
    lines: list[str], said: str, cli: Cli, tmp_path: Path
) -> None:
    """Its workflow is looked up, and its inputs are checked, when the worker begins."""
    (tmp_path / "flow.py").write_text(
        "from handrail import Steps, step, workflow\n\n\n@workflow\n"
        "def tick(repo: str, deep: bool = False) -> Steps[None]:\n"
        "    yield from step('a').call(print, repo, deep)\n"
    )
    file = tmp_path / "pyproject.toml"
    file.write_text("\n".join(["[[tool.handrail.schedule]]", AT, 'name = "n"', *lines]))
    done = cli("worker")
    assert done.code == 2
    assert f"{file}: [[tool.handrail.schedule]] 'n': " in done.err
    assert said in done.err
    assert not (tmp_path / ".handrail").exists()


def test_a_schedule_has_a_name_and_a_key() -> None:
    """The name of its workflow, unless it is given one."""
    one, two = schedules_of(
        {
            "file": "pyproject.toml",
            "schedule": [
                {"workflow": "flows.nightly:review", "cron": "0 0 * * *"},
                {"workflow": "night.py", "cron": "0 2 * * *", "inputs": {"repo": "."}},
            ],
        }
    )
    assert (one.name, one.following(NOON) - NOON, two.name) == ("review", 12 * HOUR, "night")
    assert one.last(NOON) == NOON - 12 * HOUR
    assert two.run_id(NOON) == "night-20260301T120000Z"
