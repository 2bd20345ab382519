"""Times that no calendar has: refused where they are written, and shown where they are recorded."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from handrail import (
    Backoff,
    Budget,
    DefinitionError,
    Executor,
    Ladder,
    Limits,
    SqliteJournal,
    Stage,
    Steps,
    step,
    workflow,
)
from handrail.model.results import WaitsFor
from handrail.sinks.console_text import local_text, until
from handrail.steps.verbs import Step
from handrail.steps.waits import Pause
from tests.cli.conftest import Cli

FAR = {
    "1e12": 10**12,
    "1e300": 1e300,
    "an int beyond floats": 10**400,
    "infinity": math.inf,
    "not a number": math.nan,
    "timedelta.max": timedelta.max,
    "a century and a day": 100 * 366 * 86_400 + 1,
}

PLACES: dict[str, Callable[[Any], Any]] = {
    "sleep": lambda far: step("a").sleep(far),
    "timeout": lambda far: step("a").call(int).timeout(far),
    "ask": lambda far: step("a").ask("?", timeout=far),
    "backoff": lambda far: step("a").call(int).retry(2, backoff=far),
    "Backoff(max_s=)": lambda far: Backoff(max_s=far),
    "Backoff(initial_s=)": lambda far: Backoff(initial_s=far),
    "Limits": lambda far: Limits(timeout_s=far),
    "Budget": lambda far: Budget(wall_s=far),
    "Ladder": lambda far: Ladder(cap_probe_s=far),
    "holds": lambda far: step("a").call(int).holds("db", wait=far),
    "rollback": lambda far: step("a").call(int).with_rollback(print, timeout=far),
    "stage": lambda far: Stage("a", "true", far),
    "suspend_timers": lambda far: Executor(suspend_timers_after_s=far),
    "cleanup": lambda far: Executor(cleanup_timeout_s=far),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("case", FAR)
def test_a_far_duration_is_refused_where_it_is_written(case: str, place: str) -> None:
    """Whatever takes seconds says how many it takes, and what it got."""
    with pytest.raises((DefinitionError, ValueError), match=r"finite|at most a hundred years"):
        PLACES[place](FAR[case])


@pytest.mark.parametrize("offset", [0, 14, -14])
async def test_a_far_datetime_is_refused_at_its_line(offset: int) -> None:
    """The run fails, and names the limit; a datetime long ago is just over."""
    zone = timezone(timedelta(hours=offset)) if offset else UTC

    @workflow
    def flow(moment: datetime) -> Steps[str]:
        yield from step("a").sleep(moment)
        return "over"

    async with Executor() as executor:
        result = await executor.run(flow, datetime.max.replace(tzinfo=zone))
        assert "before the year 9999" in (result.error or "")
        assert "test_far_times.py" in (result.error or "")
        assert (await executor.run(flow, datetime.min.replace(tzinfo=zone))).value == "over"


RECORDED: dict[str, Step[None]] = {
    "1e12": Step("a", Pause(1e12)),
    "1e300": Step("a", Pause(1e300)),
    "infinity": Step("a", Pause(math.inf)),
    "the last moment": Step("a", Pause(None, datetime.max.replace(tzinfo=UTC))),
    "the run's": step("a").ask("?")._with(timeout_s=1e300),
}


@pytest.mark.parametrize("case", RECORDED)
def test_a_far_time_in_a_record_keeps_nobody_from_reading_it(
    case: str, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier version has recorded such timers: every reader shows them."""
    monkeypatch.chdir(tmp_path)

    @workflow
    def flow() -> Steps[None]:
        yield RECORDED[case]

    journal = SqliteJournal(tmp_path / ".handrail" / "runs.db")
    result = Executor(journal=journal, suspend_timers_after_s=1).run_sync(flow)
    assert result.status == "suspended"
    assert "'a'" in str(result.waits_for[0])
    for words in (["runs"], ["show", result.run_id], ["show", result.run_id, "a"],
                  ["report", result.run_id], ["verify"]):  # fmt: skip
        outcome = cli(*words)
        assert "Traceback" not in outcome.err, (words, outcome)
        assert outcome.code in {0, 3}, (words, outcome)
    assert cli("runs", "--json").data[0]["run_id"] == result.run_id


@pytest.mark.parametrize("at", [1e12, 1e300, -1e300, math.inf, math.nan])
def test_a_time_that_no_calendar_has_is_shown_nevertheless(at: float) -> None:
    """In words for people, in local time and in UTC."""
    assert str(WaitsFor("time", "a", "sleep", until=at)).startswith("'a' (sleep) until ")
    assert all((local_text(at), local_text(at, "%Y"), until(at, 0)))
