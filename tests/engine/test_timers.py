"""What is due comes in order, and what nobody waits for keeps nobody awake."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from handrail.core.timers import InFlight, Timers


@given(st.lists(st.integers(0, 5)), st.integers(0, 5))
def test_waits_come_by_their_time_and_then_by_their_order(dues: list[int], now: int) -> None:
    """Those that are due, and no other."""
    timers = Timers[InFlight](range(len(dues)))
    for token, due in enumerate(dues):
        timers.wait(due, token)
    popped: list[int] = []
    while isinstance(token := timers.pop(now), int):
        popped.append(token)
    assert popped == sorted((i for i, due in enumerate(dues) if due <= now), key=dues.__getitem__)
    assert sorted(timers.waits()) == sorted((due, i) for i, due in enumerate(dues) if due > now)


def test_of_one_time_the_drives_own_come_first() -> None:
    """An attempt that has had its time is stopped before the core goes on with that moment."""
    timers, done = Timers[InFlight]({7}), list[str]()
    timers.wait(1.0, 7)
    timers.at(1.0, lambda: done.append("own"))
    own = timers.pop(1.0)
    assert callable(own)
    own()
    assert (done, timers.pop(1.0), timers.pop(9.0)) == (["own"], 7, None)


def test_what_nobody_waits_for_is_dropped_when_the_next_is_asked_for() -> None:
    """It does not wake the loop, and it is gone."""
    timers = Timers[InFlight]({3})
    for token in (1, 2, 3):
        timers.wait(token, token)
    assert timers.next_due() == 3
    assert [token for _, token in timers.waits()] == [3]
    assert (timers.pop(9), timers.next_due(), timers.pop(9)) == (3, None, None)


def test_what_has_ended_or_is_being_stopped_is_not_stopped_again() -> None:
    """Of what is in flight, only the timer of what is still at work comes."""
    timers = Timers[InFlight](())
    at_work, stopping, finished = (InFlight(path, "attempt", None) for path in "abc")
    stopping.stopping = finished.finished = True
    for one in (stopping, finished, at_work):
        timers.at(1.0, one)
    assert (timers.pop(2.0), timers.pop(2.0)) == (at_work, None)
