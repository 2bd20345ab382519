"""Limits are never exceeded, nobody starves, and nobody waits without a reason."""

from __future__ import annotations

import copy
import inspect
import itertools
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.core import admission as planner
from handrail.core.admission import WINDOW_S, Admission
from handrail.errors import DefinitionError
from handrail.model.policy import Limits

Uses = tuple[tuple[str, int], ...]


# -- what happens to a planner ---------------------------------------------------------------------


@dataclass(frozen=True)
class Ask:
    """Request attempts that use these, one after another."""

    all_uses: tuple[Uses, ...]


@dataclass(frozen=True)
class End:
    """Release the running attempt of this index, modulo how many run."""

    which: int


@dataclass(frozen=True)
class Withdraw:
    """Withdraw the waiting attempt of this index, modulo how many wait."""

    which: int


@dataclass(frozen=True)
class Pass:
    """Let seconds go by."""

    seconds: float


Move = Ask | End | Withdraw | Pass


class Told:
    """A planner with a book kept beside it, from what it was told and said. Mutable."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.admission = Admission(limits)
        self.now = 1_000.0
        self.uses: dict[str, Uses] = {}
        self.waiting: list[str] = []
        self.running: list[str] = []
        self.withdrawn: set[str] = set()
        self.starts: list[tuple[float, str]] = []

    def tell(self, move: Move) -> list[str]:
        """What starts after this move."""
        self.apply(move)
        return self.grant()

    def apply(self, move: Move) -> None:
        """Make this move, without asking what starts."""
        match move:
            case Ask(all_uses=all_uses):
                for uses in all_uses:
                    path = f"step-{len(self.uses)}"
                    self.uses[path] = uses
                    self.waiting.append(path)
                    self.admission.request(path, uses)
            case End(which=which) if self.running:
                self.admission.release(self.running.pop(which % len(self.running)))
            case Withdraw(which=which) if self.waiting:
                path = self.waiting.pop(which % len(self.waiting))
                self.withdrawn.add(path)
                assert self.admission.withdraw(path)
            case Pass(seconds=seconds):
                self.now += seconds
            case _:
                pass

    def grant(self) -> list[str]:
        """What the planner starts now."""
        granted = self.admission.grants(self.now)
        for path in granted:
            self.started(path)
        return granted

    def expected(self) -> list[str]:
        """What is to start now by a plain reading of the rules; nothing is started."""
        scratch = copy.copy(self)
        scratch.waiting, scratch.running = [*self.waiting], [*self.running]
        scratch.starts = [*self.starts]
        granted = []
        while path := next(filter(scratch.may_start, scratch.waiting), None):
            scratch.started(path)
            granted.append(path)
        return granted

    def started(self, path: str) -> None:
        """Write down that a request was granted."""
        self.waiting.remove(path)
        self.running.append(path)
        self.starts.append((self.now, path))

    def needs(self, path: str) -> dict[str, int]:
        """The limited tags that a request uses."""
        limited = {**self.limits.tags, **self.limits.rates}
        return {tag: amount for tag, amount in self.uses[path] if tag in limited}

    def in_use(self, tag: str) -> int:
        """How many units of a tag are taken."""
        return sum(self.needs(path).get(tag, 0) for path in self.running)

    def starts_of(self, tag: str) -> list[float]:
        """When attempts that use a tag started."""
        return [at for at, path in self.starts if tag in self.needs(path)]

    def may_start(self, path: str) -> bool:
        """Whether the rules let a waiting request start now."""
        needs = self.needs(path)
        older = self.waiting[: self.waiting.index(path)]
        return (
            (self.limits.max_concurrency is None or len(self.running) < self.limits.max_concurrency)
            and not any(needs.keys() & self.needs(before).keys() for before in older)
            and all(
                self.in_use(tag) + amount <= self.limits.tags.get(tag, math.inf)
                for tag, amount in needs.items()
            )
            and all(
                self.now - max(self.starts_of(tag), default=-math.inf)
                > WINDOW_S / self.limits.rates[tag] * (1 + 1e-9)
                for tag in needs
                if tag in self.limits.rates
            )
        )


TAGS = ("gpu", "disk", "api", "unlimited")
FEW = st.integers(1, 3)
LIMITS = st.builds(
    Limits,
    max_concurrency=st.none() | FEW,
    tags=st.fixed_dictionaries({"gpu": FEW}, optional={"disk": FEW}),
    rates=st.fixed_dictionaries({"api": FEW}, optional={"gpu": FEW, "disk": FEW}),
)


@st.composite
def plans(draw: st.DrawFn) -> tuple[Limits, list[Move]]:
    """Limits and moves; no request asks for more than there is."""
    limits = draw(LIMITS)
    uses = st.lists(st.tuples(st.sampled_from(TAGS), FEW), max_size=3, unique_by=lambda u: u[0])
    possible = uses.map(
        lambda pairs: tuple((tag, min(n, limits.tags.get(tag, n))) for tag, n in pairs)
    )
    # Quarters of a second add up without rounding, so that the book is exact.
    seconds = st.integers(0, 4 * 90).map(lambda quarters: quarters / 4) | st.just(WINDOW_S)
    moves = st.one_of(
        st.builds(Ask, st.lists(possible, min_size=1, max_size=4).map(tuple)),
        st.builds(End, st.integers(0, 9)),
        st.builds(Withdraw, st.integers(0, 9)),
        st.builds(Pass, seconds),
    )
    return limits, draw(st.lists(moves, min_size=5, max_size=40))


PLANS = plans()


def told(plan: tuple[Limits, list[Move]]) -> Told:
    """A planner that was told all of a plan."""
    limits, moves = plan
    run = Told(limits)
    for move in moves:
        run.tell(move)
    return run


# -- laws ------------------------------------------------------------------------------------------


@given(PLANS)
def test_no_limit_is_exceeded_and_nobody_waits_who_could_start(
    plan: tuple[Limits, list[Move]],
) -> None:
    """What is granted is what a plain reading of the rules gives, by age; it fits into the slots
    and the units of each tag, and starts of a tag are spaced by its rate, in their order.
    """
    limits, moves = plan
    run = Told(limits)
    for move in moves:
        run.apply(move)
        assert run.expected() == run.grant()
        assert len(run.running) <= (limits.max_concurrency or math.inf)
        assert all(run.in_use(tag) <= units for tag, units in limits.tags.items())
    for tag, most in limits.rates.items():
        starts = run.starts_of(tag)
        assert all(
            later - start > WINDOW_S for start, later in zip(starts, starts[most:], strict=False)
        )
        assert all(later - start > WINDOW_S / most for start, later in itertools.pairwise(starts))
    for tag in {**limits.tags, **limits.rates}:
        came = [path for path in run.uses if tag in run.needs(path) and path not in run.withdrawn]
        started = [path for _, path in run.starts if tag in run.needs(path)]
        assert [path for path in came if path in started] == started


@given(PLANS)
def test_nobody_starves(plan: tuple[Limits, list[Move]]) -> None:
    """If what starts is released and time goes on, every request is granted."""
    run = told(plan)
    for _ in range(2 * len(run.uses) + 2):
        while run.running:
            run.tell(End(0))
        due = run.admission.next_time(run.now)
        run.now = run.now if due is None else due
        run.grant()
    assert run.waiting == []


@given(PLANS)
def test_the_next_time_is_when_time_alone_lets_somebody_start(
    plan: tuple[Limits, list[Move]],
) -> None:
    """Just before it nobody starts, at it somebody does; where it is None nobody ever does."""
    run = told(plan)
    while run.running:
        run.apply(End(0))
    run.grant()
    due = run.admission.next_time(run.now)
    if due is None:
        run.now += 10 * WINDOW_S
        assert run.grant() == []
        return
    assert due > run.now
    run.now = math.nextafter(due, 0)
    assert run.grant() == []
    run.now = due
    assert run.grant() != []


@given(PLANS, st.lists(st.integers(1, 400), min_size=1, max_size=8))
def test_a_clock_that_is_set_back_opens_no_rate_and_holds_none_back(
    plan: tuple[Limits, list[Move]], setbacks: list[int]
) -> None:
    """Counted in time that was seen to pass, rates hold; and nobody waits longer than a minute."""
    limits, moves = plan
    run = Told(limits)
    back = 0.0
    elapsed: list[tuple[float, str]] = []
    for number, move in enumerate(moves):
        if number % 5 == 4:
            seconds = setbacks[number % len(setbacks)]
            run.now -= seconds
            back += seconds
        elapsed.extend((run.now + back, path) for path in run.tell(move))
        due = run.admission.next_time(run.now)
        assert due is None or due - run.now <= WINDOW_S + 1e-6
    for tag, most in limits.rates.items():
        starts = [at for at, path in elapsed if tag in run.needs(path)]
        assert all(
            later - start >= WINDOW_S for start, later in zip(starts, starts[most:], strict=False)
        )


# -- cases -----------------------------------------------------------------------------------------


def test_waiting_for_a_tag_holds_no_slot() -> None:
    """Two requests that wait for the gpu leave the second slot to those who do not need it."""
    admission = Admission(Limits(max_concurrency=2, tags={"gpu": 1}))
    for path in ("gpu-1", "gpu-2", "gpu-3"):
        admission.request(path, [("gpu", 1)])
    admission.request("plain", [])
    assert admission.grants(0) == ["gpu-1", "plain"]


def test_a_large_request_is_not_overtaken_for_ever_by_small_ones() -> None:
    """Small requests that come after a large one wait for it, though units for them are free."""
    admission = Admission(Limits(tags={"gpu": 3}))
    admission.request("small", [("gpu", 1)])
    admission.request("large", [("gpu", 3)])
    admission.request("late", [("gpu", 1)])
    assert admission.grants(0) == ["small"]
    admission.release("small")
    assert admission.grants(0) == ["large"]
    admission.release("large")
    assert admission.grants(0) == ["late"]


def test_a_withdrawn_request_keeps_nobody_waiting() -> None:
    """Who was behind a request that was withdrawn starts at once."""
    admission = Admission(Limits(tags={"gpu": 3}))
    for path, amount in {"small": 1, "large": 3, "late": 1}.items():
        admission.request(path, [("gpu", amount)])
    assert admission.grants(0) == ["small"]
    assert admission.withdraw("large")
    assert admission.grants(0) == ["late"]


def test_a_rate_opens_just_after_its_share_of_a_minute() -> None:
    """The second start of a rate of two is due right after 30 s since the first, not at 30 s."""
    admission = Admission(Limits(rates={"api": 2}))
    for path in ("a", "b"):
        admission.request(path, [("api", 1)])
    assert admission.grants(100.0) == ["a"]
    assert admission.grants(130.0) == []
    due = admission.next_time(130.0)
    assert due == pytest.approx(130.0)
    assert due is not None
    assert admission.grants(due) == ["b"]


def test_a_rate_holds_from_the_last_start_of_an_earlier_drive() -> None:
    """Who was restarted waits as who goes on."""
    admission = Admission(Limits(rates={"api": 2}), last_start=100.0)
    admission.request("a", [("api", 1)])
    assert admission.grants(101.0) == []
    assert admission.next_time(101.0) == pytest.approx(130.0)


def test_the_next_time_is_that_of_the_first_rate_to_open() -> None:
    """With two rates full, the earlier of the two minutes counts."""
    admission = Admission(Limits(rates={"api": 1, "web": 1}))
    for at, (path, tag) in enumerate({"a": "api", "b": "web"}.items()):
        admission.request(path, [(tag, 1)])
        assert admission.grants(at) == [path]
    admission.request("web again", [("web", 1)])
    admission.request("api again", [("api", 1)])
    assert admission.next_time(1) == pytest.approx(60)
    assert admission.grants(60.5) == ["api again"]
    assert admission.next_time(60.5) == pytest.approx(61)


def test_of_two_rates_that_have_opened_the_older_request_starts() -> None:
    """Age decides about a slot, not the time at which a rate opened."""
    admission = Admission(Limits(max_concurrency=1, rates={"api": 1, "web": 1}))
    for at, (path, tag) in enumerate({"a": "api", "b": "web"}.items()):
        admission.request(path, [(tag, 1)])
        assert admission.grants(at) == [path]
        admission.release(path)
    admission.request("web again", [("web", 1)])
    admission.request("api again", [("api", 1)])
    assert admission.grants(100) == ["web again"]


def test_a_rate_counts_starts_and_tags_count_units() -> None:
    """Three units of a tag are one start of its rate."""
    admission = Admission(Limits(tags={"api": 3}, rates={"api": 2}))
    for at, path in ((0, "a"), (30.1, "b")):
        admission.request(path, [("api", 3)])
        assert admission.grants(at) == [path]
        admission.release(path)


def test_a_taken_slot_makes_no_time_worth_waiting_for() -> None:
    """While every slot is taken there is no next time: what is needed is a release."""
    admission = Admission(Limits(max_concurrency=1, rates={"api": 1}))
    admission.request("a", [("api", 1)])
    admission.request("b", [("api", 1)])
    assert admission.grants(0) == ["a"]
    assert admission.next_time(0) is None
    admission.release("a")
    assert admission.grants(0) == []
    assert admission.next_time(0) == pytest.approx(WINDOW_S)


def test_amounts_of_one_tag_add_up() -> None:
    """A tag that is named twice counts with the sum."""
    admission = Admission(Limits(tags={"gpu": 2}))
    admission.request("twice", [("gpu", 1), ("gpu", 1)])
    admission.request("once", [("gpu", 1)])
    assert admission.grants(0) == ["twice"]


def test_unknown_paths_are_released_and_withdrawn_without_effect() -> None:
    """Neither a release nor a withdrawal of what is not there changes what may start."""
    admission = Admission(Limits(max_concurrency=1))
    admission.release("nobody")
    assert not admission.withdraw("nobody")
    admission.request("a", [])
    admission.release("a")
    assert admission.grants(0) == ["a"]
    assert not admission.withdraw("a")
    admission.release("a")
    admission.release("a")
    admission.request("b", [])
    admission.request("c", [])
    assert admission.grants(0) == ["b"]


def test_a_path_can_be_requested_again_after_its_end() -> None:
    """The next attempt of a step goes to the end of the queue."""
    admission = Admission(Limits(max_concurrency=1))
    admission.request("a", [])
    admission.request("b", [])
    assert admission.grants(0) == ["a"]
    admission.release("a")
    admission.request("a", [])
    assert admission.grants(0) == ["b"]


@pytest.mark.parametrize("granted", [False, True])
def test_a_path_is_requested_once_at_a_time(*, granted: bool) -> None:
    """A second request for a path that waits or runs is refused."""
    admission = Admission(Limits(max_concurrency=1))
    admission.request("a", [])
    if granted:
        assert admission.grants(0) == ["a"]
    with pytest.raises(ValueError, match=r"'a' was requested already"):
        admission.request("a", [])


@pytest.mark.parametrize("call", [Admission.check, Admission.request])
def test_a_request_that_can_never_be_granted_is_refused(
    call: Callable[[Admission, str, Any], None],
) -> None:
    """The error has the step, what it asks for, what there is, and what to do."""
    admission = Admission(Limits(tags={"gpu": 2}))
    expected = (
        r"step 'train' uses 3 of 'gpu' and could never start: the run has 2 in all\. "
        r"Lower \.uses\('gpu', 3\) or raise Limits\(tags=\{'gpu': 2\}\)\."
    )
    with pytest.raises(DefinitionError, match=expected):
        call(admission, "train", [("gpu", 3)])
    admission.check("train", [("gpu", 2), ("tpu", 99)])
    admission.request("other", [("gpu", 2)])
    assert admission.grants(0) == ["other"]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (Limits(), True),
        (Limits(max_steps=3, timeout_s=1, max_visits=2), True),
        (Limits(max_concurrency=1), False),
        (Limits(tags={"gpu": 1}), False),
        (Limits(rates={"api": 1}), False),
    ],
)
def test_a_planner_is_trivial_if_no_limit_makes_anyone_wait(
    limits: Limits, *, expected: bool
) -> None:
    """Limits that end a run do not make a planner worth asking."""
    assert Admission(limits).trivial is expected


# -- cost ------------------------------------------------------------------------------------------


def cost(action: Callable[[], object]) -> int:
    """How many instructions of the planner's module an action executes."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if frame.f_code.co_filename != planner.__file__:
            return None
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    here = inspect.currentframe()
    assert here is not None
    here.f_trace_opcodes = True  # Python 3.12 heeds it only if it was set before settrace
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(
    ("limits", "uses"),
    [
        (Limits(max_concurrency=1), []),
        (Limits(tags={"gpu": 1}), [("gpu", 1)]),
        (Limits(max_concurrency=1, tags={"gpu": 1}, rates={"gpu": 100_000}), [("gpu", 1)]),
    ],
)
def test_a_release_and_the_next_grant_cost_the_same_whoever_waits(
    limits: Limits, uses: list[tuple[str, int]]
) -> None:
    """With 10,000 waiting the planner executes as many instructions as with 10."""

    def turn(waiting: int) -> int:
        admission = Admission(limits)
        for number in range(waiting):
            admission.request(f"step-{number}", uses)
        assert admission.grants(0) == ["step-0"]

        def release() -> None:
            admission.release("step-0")
            assert admission.grants(1) == ["step-1"]

        return cost(release)

    assert turn(10) > 0
    assert turn(10) == turn(10_000)


def test_requests_that_come_and_go_leave_nothing_behind() -> None:
    """While one attempt runs on, 10,000 requests that are withdrawn take up no lasting room."""
    admission = Admission(Limits(max_concurrency=1, tags={"gpu": 1}))
    admission.request("long", [])
    assert admission.grants(0) == ["long"]
    for number in range(10_000):
        admission.request(f"step-{number}", [("gpu", 1)] if number % 2 else [])
        assert admission.withdraw(f"step-{number}")
    assert len(admission._cleared) < 100
    assert all(not tag.queue for tag in admission._tags.values())
