"""A week of a run, on a clock that jumps: timers, questions, signals, and twenty crashes."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from handrail import Backoff, Executor, GateNotFound, Steps, WorkflowResult, current, step, workflow
from handrail.model import events as ev
from handrail.testing import JumpClock, ProcessGone, TextJournal
from handrail.testing.clock import START
from tests.durability.flows import Broken
from tests.durability.support import RUN, backends

CRASHES = 20
MOST_LIVES = 300
MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0
DAYS = range(1, 8)
NOBODY_ANSWERS = (3, 6)
LONGEST_DOWN_S = 10 * MINUTE
WHO = "somebody"
Act = tuple[str, str, Any]
"""What somebody outside does: ``("answer", gate, choice)`` or ``("signal", name, payload)``."""


def at(day: int, hour: float) -> float:
    """Unix seconds of this hour of a day of the week, the first of which is 1."""
    return START + (day - 1) * DAY + hour * HOUR


async def flaky() -> int:
    """Fails three times."""
    if current().attempt < 4:
        raise Broken(f"attempt {current().attempt}")
    return current().attempt


def week_of(clock: JumpClock) -> Any:
    """The workflow, some steps of which take their time."""

    async def slow() -> str:
        await clock.sleep(2 * HOUR)
        return "done"

    @workflow
    def week() -> Steps[list[Any]]:
        days = []
        for day in DAYS:
            morning = datetime.fromtimestamp(at(day, 8), UTC)
            yield from step(f"morning{day}").sleep(morning)
            built = (
                yield from step(f"build{day}").call(flaky).retry(4, backoff=Backoff(600, 3, 7200))
            )
            ship = yield from step(f"ship{day}").ask(
                "Ship?", choices=("yes", "no"), timeout=6 * HOUR, default="no"
            )
            rest = yield from step(f"rest{day}").parallel(
                step("nap").sleep(3 * HOUR),
                step("delivery").wait_for("delivery", int),
                step("report")
                .call(slow)
                .timeout(HOUR)
                .retry(2, backoff=15 * MINUTE)
                .default("none"),
                step("call").wait_for("call", str).timeout(2 * HOUR).default("nobody"),
            )
            days.append((day, built, ship, rest))
        yield from step("weekend").sleep(datetime.fromtimestamp(START + 7 * DAY, UTC))
        return days

    return week


def plan() -> list[tuple[float, Act]]:
    """What happens outside, and when; the delivery of an even day comes a day early."""
    answers = [
        (at(day, 12), ("answer", f"ship{day}", "yes")) for day in DAYS if day not in NOBODY_ANSWERS
    ]
    deliveries = [(at(day - (day % 2 == 0), 19), ("signal", "delivery", day)) for day in DAYS]
    return sorted([*answers, *deliveries])


EXPECTED = [
    (day, 4, "no" if day in NOBODY_ANSWERS else "yes", (None, day, "none", "nobody"))
    for day in DAYS
]


@dataclass
class World:
    """A run, the processes that drive it, and the people outside. Mutable."""

    backend: str
    crashes: list[tuple[int, bool]] = field(default_factory=list[tuple[int, bool]])
    """After how many writes since the last one the process dies, and whether that one returns."""
    draw: random.Random = field(default_factory=lambda: random.Random(0))
    clock: JumpClock = field(default_factory=JumpClock)
    journal: TextJournal = field(default_factory=TextJournal)
    pending: list[tuple[float, Act]] = field(default_factory=plan)
    begins: list[float] = field(default_factory=list[float])
    """When each process began."""
    crashed: int = 0
    down_s: float = 0.0
    writes: int = 0

    def to_the_end(self) -> WorkflowResult[Any]:
        """The result, after all lives that it takes."""
        for _ in range(MOST_LIVES):
            result = anyio.run(self._live, backend=self.backend)
            if result is None:
                self.crashed += 1
                down_s = self.draw.choice([0.0, self.draw.uniform(0, LONGEST_DOWN_S)])
                self.down_s += down_s
                self.clock.advance(down_s)
            elif result.status == "suspended":
                self._let_time_pass(result)
            else:
                return result
        raise AssertionError(f"the run has not ended after {MOST_LIVES} lives")

    async def _live(self) -> WorkflowResult[Any] | None:
        """One process; None if it died."""
        await self._happen_elsewhere()
        writes, returns = self.crashes[0] if self.crashes else (None, True)
        self.journal = self.journal.reopened(stop_at=writes, abrupt=not returns)
        self.begins.append(self.clock.now())
        executor = Executor(journal=self.journal, clock=self.clock)
        result = None
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._happen_here, executor)
                try:
                    result = await self._drive(executor)
                except ProcessGone:
                    self.crashes.pop(0)
                tasks.cancel_scope.cancel()
        self.writes += self.journal.writes
        if result is not None and self.crashes and writes is not None:
            self.crashes[0] = (writes - self.journal.writes, returns)
        return result

    async def _drive(self, executor: Executor) -> WorkflowResult[Any]:
        week = week_of(self.clock)
        if self.journal.events(RUN):
            return await executor.resume(RUN, week)
        return await executor.options(run_id=RUN).run(week)

    def _let_time_pass(self, result: WorkflowResult[Any]) -> None:
        """Until something happens that the suspended run waits for."""
        dues = [gate.deadline for gate in result.waiting if gate.deadline is not None]
        dues.extend(due for due, _ in self.pending[:1])
        self.clock.set(max(self.clock.now(), min(dues)))

    async def _happen_here(self, executor: Executor) -> None:
        """What people do by way of the process that drives the run."""
        while self.pending:
            await self.clock.elapse(self.pending[0][0] - self.clock.now())
            try:
                await self._act(executor)
            except ProcessGone:
                return

    async def _happen_elsewhere(self) -> None:
        """What people did while nobody drove it, by way of other processes."""
        while self.pending and self.pending[0][0] <= self.clock.now():
            await self._act(Executor(journal=self.journal.reopened(), clock=self.clock))

    async def _act(self, executor: Executor) -> None:
        """Do what comes next, unless it is too early, or was done by a process that died of it."""
        due, act = self.pending[0]
        if not self._is_done(act):
            what, name, value = act
            try:
                if what == "answer":
                    await executor.answer(RUN, name, value, by=WHO)
                else:
                    await executor.signal(RUN, name, value, by=WHO)
            except GateNotFound:
                self.pending = sorted([(due + HOUR / 4, act), *self.pending[1:]])
                return
        self.pending.pop(0)

    def _is_done(self, act: Act) -> bool:
        letters = [one.event for one in self.journal.reopened().letters(RUN, 0)]
        return any(
            act == ("answer", one.path, one.answer)
            if isinstance(one, ev.GateAnswered)
            else isinstance(one, ev.SignalReceived) and act == ("signal", one.name, one.payload)
            for one in letters
        )

    def history(self) -> list[ev.Event]:
        """All that is recorded."""
        return self.journal.reopened().events(RUN)


def timers_keep_their_times(world: World) -> None:
    """Assert that each timer has one due time, whoever noted it again, and that what waited for it
    went on then, or when there was a process again.
    """
    history = world.history()
    dues: dict[tuple[str, str, int], set[float]] = {}
    for one in history:
        if isinstance(one, ev.TimerSet):
            dues.setdefault((one.path, one.reason, one.attempt), set()).add(one.due)
        elif isinstance(one, ev.GateOpened) and one.gate.deadline is not None:
            dues.setdefault((one.path, "gate", 1), set()).add(one.gate.deadline)
    assert {reason for _, reason, _ in dues} == {"sleep", "retry", "timeout", "gate"}
    attempts = {
        (one.path, one.attempt): one.at for one in history if isinstance(one, ev.AttemptFailed)
    }
    ends = {one.path: one.at for one in history if isinstance(one, ev.StepCompleted)}
    answered = {one.path for one in history if isinstance(one, ev.GateAnswered) if one.by == WHO}
    for (path, reason, attempt), found in dues.items():
        (due,) = found
        match reason:
            case "sleep" | "timeout":
                assert _on_time(world, due, ends[path]), path
            case "retry":
                assert attempts[path, attempt] < due, path
                then = attempts.get((path, attempt + 1), ends[path])
                assert _on_time(world, due, then) or (path.startswith("rest") and then > due), path
            case _:
                assert path in answered or _on_time(world, due, ends[path]), path


def _on_time(world: World, due: float, then: float) -> bool:
    """True if it happened when it was due, or at the beginning of a process that came later."""
    return then == due or (then > due and then in world.begins)


def everything_is_consumed_once(world: World) -> None:
    """Assert that each gate has one answer and each signal is taken by one step."""
    history = world.history()
    answers = [(one.path, one.answer) for one in history if isinstance(one, ev.GateAnswered)]
    assert sorted(answers) == [(f"ship{day}", ship) for day, _, ship, _ in EXPECTED]
    signals = [one.payload for one in history if isinstance(one, ev.SignalReceived)]
    assert sorted(signals) == list(DAYS)
    letters = [
        one.letter
        for one in history
        if isinstance(one, (ev.GateAnswered, ev.SignalReceived)) and one.letter
    ]
    assert len(letters) == len(set(letters))
    ends = Counter(one.path for one in history if isinstance(one, ev.StepCompleted))
    assert set(ends.values()) == {1}


def total_s(world: World) -> float:
    """How long the run took."""
    history = world.history()
    assert [one.seq for one in history] == list(range(1, len(history) + 1))
    return history[-1].at - history[0].at


@backends
def test_a_week_without_a_crash(backend: str) -> None:
    """It takes seven days, to the second."""
    world = World(backend)
    result = world.to_the_end()
    assert (result.status, result.value) == ("succeeded", EXPECTED)
    timers_keep_their_times(world)
    everything_is_consumed_once(world)
    assert total_s(world) == 7 * DAY


@backends
@pytest.mark.parametrize("seed", range(2))
def test_a_week_with_twenty_crashes(backend: str, seed: int) -> None:
    """It ends as planned, and later by no more than the last crash took."""
    whole = World(backend)
    whole.to_the_end()
    draw = random.Random(seed)
    crashes = [
        (draw.randint(1, whole.writes // 12), draw.choice([True, False])) for _ in range(CRASHES)
    ]
    world = World(backend, crashes, draw)
    result = world.to_the_end()
    assert (result.status, result.value) == ("succeeded", EXPECTED)
    assert world.crashed == CRASHES
    timers_keep_their_times(world)
    everything_is_consumed_once(world)
    assert 7 * DAY <= total_s(world) <= 7 * DAY + LONGEST_DOWN_S
