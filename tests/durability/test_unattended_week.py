"""A week of agents, left alone: caps, hangs, full sessions, garbage, and twenty reboots.

The agents are programs, fakes that speak claude's and codex's protocols; the time is made up.
"""

from __future__ import annotations

import random
import sys
import uuid
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import anyio
import pytest

from handrail import (
    Agent,
    AgentOptions,
    Executor,
    Ladder,
    Steps,
    WorkflowResult,
    step,
    workflow,
)
from handrail.agents.claude.backend import ClaudeBackend
from handrail.agents.codex.backend import CodexBackend
from handrail.model import events as ev
from handrail.system.marker import carries, environ_of, live_pids
from handrail.testing import JumpClock, ProcessGone, TextJournal
from handrail.testing.clock import START
from handrail.testing.fake_programs import Act, Fails, Garbage, Hangs, Says, fake_cli
from tests.durability.support import backends

REBOOTS = 20
DAYS = range(1, 8)
SHIFTS = range(1, 3)
WINDOWS = 16
"""Of ten hours, in a week; each ends with a cap."""
HOUR, DAY = 3_600.0, 86_400.0
MOST_LIVES = 60
QUICK = AgentOptions(start_timeout_s=20, idle_timeout_s=0.7)
DURATION_S = 3 * HOUR
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo")
LADDER = Ladder()
PROBE_S = 1801.0  # within a second, for times are rounded
FORMS = ("clock", "clock", "date and clock", "duration", "field")
"""How programs tell when a cap ends."""


def week_of(coder: Agent[int], checker: Agent[int]) -> Any:
    """Each day two agents beside one another, and one after them; no step may be tried twice."""

    @workflow
    def week() -> Steps[list[int]]:
        found = []
        for day in DAYS:
            morning = datetime.fromtimestamp(START + (day - 1) * DAY + 8 * HOUR, UTC)
            yield from step(f"morning{day}").sleep(morning)
            pair = yield from step(f"pair{day}").parallel(
                step("code").agent(coder, {"day": day}), step("check").agent(checker, {"day": day})
            )
            found += [pair[0].output, pair[1].output]
            for shift in SHIFTS:
                done = yield from step(f"shift{day}-{shift}").agent(coder, {"day": day})
                found.append(done.output)
        yield from step("weekend").sleep(datetime.fromtimestamp(START + 7 * DAY, UTC))
        return found

    return week


def resets(when: float, number: int) -> dict[str, Any]:
    """When a cap ends, in one of the forms; a clock is of some zone, and a minute late at most."""
    zone = ZONES[number % len(ZONES)]
    there = datetime.fromtimestamp(when, ZoneInfo(zone)) + timedelta(minutes=1)
    clock = f"{there:%I:%M%p}".lstrip("0").lower()
    text = f"{clock} ({zone})"
    match FORMS[number % len(FORMS)]:
        case "field":
            return {"resets_at": when}
        case "duration":
            text = f"in {DURATION_S / HOUR:g} hours"
        case "date and clock":
            text = f"{there:%b} {there.day}, {text}"
        case _:
            pass
    return {"resets": text, "resets_at": None}


def end_of(window: int) -> float:
    """When a window of ten hours is over."""
    return START + (13 + 10 * window) * HOUR


def troubles(draw: random.Random) -> list[Act | str]:
    """What a program does, launch by launch. Each window ends with a cap, which the
    probe meets too; each day has a session that gets too long and two hangs, and one answer in ten
    is garbage.
    """
    acts: list[Act | str] = []
    for window in range(WINDOWS):
        trouble: dict[int, Act | str] = {
            0: Fails("context_overflow"),
            1: Hangs(after="start", leaves_child=True),
            2: Hangs(after="result", says=Says("42")),
            3: "no number at all",
            4: Garbage(),
        }
        some: list[Act | str] = ["42", trouble[window % 5]]
        draw.shuffle(some)
        acts += [*some, *[Fails("usage_cap", **resets(end_of(window), window))] * 2]
    return acts + ["42"] * 100


class Week:
    """The run, its journal, and the processes that drive it one after the other. Mutable."""

    def __init__(self, backend: str, folder: Path, reboots: int) -> None:
        draw = random.Random(f"{backend}-{reboots}")
        self.run_id = f"week-{uuid.uuid4().hex}"
        self.clock = JumpClock()
        self.journal = TextJournal()
        self.rebooted = 0
        self.launched_again: list[str] = []
        """Steps whose end was recorded, and that a later life launched nevertheless."""
        self.claude = fake_cli("claude", troubles(draw), path=folder / "claude")
        uncapped = [act for act in troubles(draw) if getattr(act, "kind", "") != "usage_cap"]
        self.codex = fake_cli("codex", uncapped, path=folder / "codex")
        self._backend = backend
        self._draw = draw
        self._reboots = [draw.randint(1, 12) for _ in range(reboots)]
        programs = (
            ClaudeBackend(str(self.claude.executable), options=QUICK),
            CodexBackend(str(self.codex.executable), options=QUICK),
        )
        coder, checker = (
            Agent(name, "Do day {{ day }}.", output=int, ladder=LADDER, backend=program)
            for name, program in zip(("coder", "checker"), programs, strict=True)
        )
        self._flow = week_of(coder, checker)

    def to_the_end(self) -> WorkflowResult[Any]:
        """The result, after all lives that it takes."""
        for _ in range(MOST_LIVES):
            ended, before = self.ended(), self._launches()
            result = anyio.run(self._live, backend=self._backend)
            self.launched_again += [path for path in self._launches() - before if path in ended]
            if result is not None:
                return result
            self.rebooted += 1
            self.clock.advance(self._draw.uniform(0, HOUR))
        raise AssertionError("the run has not ended")

    async def _live(self) -> WorkflowResult[Any] | None:
        """One process; None if it died."""
        writes = self._reboots.pop(0) if self._reboots else None
        self.journal = self.journal.reopened(stop_at=writes, abrupt=self._draw.random() < 0.5)
        executor = Executor(journal=self.journal, clock=self.clock, max_crashes=REBOOTS)
        try:
            if self.journal.events(self.run_id):
                return await executor.resume(self.run_id, self._flow)
            return await executor.options(run_id=self.run_id).run(self._flow)
        except ProcessGone:
            return None

    def history(self) -> list[ev.Event]:
        """All that is recorded."""
        return self.journal.reopened().events(self.run_id)

    def ended(self) -> Counter[str]:
        """How often the end of each step is recorded."""
        return Counter(one.path for one in self.history() if isinstance(one, ev.StepCompleted))

    def _launches(self) -> Counter[str]:
        """How often a program was launched for each step."""
        calls = [*self.claude.calls, *self.codex.calls]
        return Counter(call.env["HANDRAIL_STEP"].partition("/")[2] for call in calls)

    def left_running(self) -> list[int]:
        """Processes of the run that still live."""
        return [pid for pid in live_pids() if carries(environ_of(pid), self.run_id, below=True)]


@pytest.mark.skipif(sys.platform != "linux", reason="markers are read from /proc")
@backends
def test_a_week_of_agents_with_twenty_reboots(backend: str, tmp_path: Path) -> None:
    """It ends with every answer, no attempt is lost, nothing recorded is done again, and the result
    lists what it lived through.
    """
    week = Week(backend, tmp_path, REBOOTS)
    with week.claude, week.codex:
        result = week.to_the_end()
        assert (result.status, result.error) == ("succeeded", None)
        assert result.value == [42] * (2 + len(SHIFTS)) * len(DAYS)
        assert week.rebooted == REBOOTS
        assert all(one.attempts == 1 for one in result.step_results)
        history = week.history()
        assert [one.seq for one in history] == list(range(1, len(history) + 1))
        assert set(week.ended().values()) == {1}
        assert week.launched_again == []
        kinds = Counter(one.kind for one in result.incidents)
        assert kinds["usage_cap"] >= 2 * WINDOWS - REBOOTS
        assert min(kinds["timeout"], kinds["context_overflow"], kinds["invalid_output"]) >= 3
        assert len(result.incidents) == sum(isinstance(one, ev.LadderStep) for one in history)
        assert 7 * DAY <= history[-1].at - history[0].at < 10 * DAY
        assert len(week.claude.calls) + len(week.codex.calls) > len(result.incidents)
        assert week.left_running() == []
        assert_ends_were_waited_for(history)


def assert_ends_were_waited_for(history: list[ev.Event]) -> None:
    """After a probe each cap is waited for until its end, in whatever form that was told."""
    waits = [
        one
        for one in history
        if isinstance(one, ev.LadderStep) and one.kind == "usage_cap" and one.due - one.at > PROBE_S
    ]
    assert len(waits) >= WINDOWS // 2
    ends = {round(end_of(window)): window for window in range(WINDOWS)}
    forms: set[str] = set()
    for one in waits:
        over = round(one.due - LADDER.cap_margin_s)
        window = ends.get(over, ends.get(over - 60))  # a clock without seconds
        if window is None:
            assert over - one.at == pytest.approx(DURATION_S, abs=1)
        forms.add("duration" if window is None else FORMS[window % len(FORMS)])
    assert forms == set(FORMS)
