"""Consume once: an answer and a signal have their effect once, however often a process dies."""

from __future__ import annotations

from typing import Any

from handrail import Steps, step, workflow
from tests.durability.support import SOAKING, Lives, backends, hold


@workflow
def consumes() -> Steps[Any]:
    """Takes four signals and two answers, in turn and at the same time."""
    first = yield from step("first").wait_for("go", int)
    asked = yield from step("asked").ask("?", type=str)
    three = yield from step("three").parallel(
        *(step(f"take{n}").wait_for("go", int) for n in range(3))
    )
    again = yield from step("again").ask("?", type=str)
    return first, asked, sorted(three), again


@backends
def test_consume_once(backend: str) -> None:
    """Wherever the process dies, each signal is taken by one step, and each gate by one answer."""

    def run() -> Lives:
        return Lives(consumes, backend=backend, signals={"go": [1, 2, 3, 4]})

    whole = run()
    expected = whole.through().result.value
    assert expected == (1, "yes", [2, 3, 4], "yes")
    for writes in range(0, whole.writes[0] + 1, 1 if SOAKING else 5):
        story = run().through([(writes, writes % 2 == 0), (2 + writes % 5, True)])
        hold(story)
        assert story.result.value == expected, writes


@backends
def test_a_signal_that_did_not_fit_is_consumed_too(backend: str) -> None:
    """A ``wait_for`` that is tried again after a wrong payload does not get it a second time."""

    @workflow
    def picky() -> Steps[Any]:
        both = yield from step("both").parallel(
            step("one").wait_for("go", int).retry(2, backoff=60),
            step("any").wait_for("go"),  # so that anything may be sent
        )
        other = yield from step("other").wait_for("go", int)
        return sorted((*both, other))

    def run() -> Lives:
        return Lives(picky, backend=backend, signals={"go": ["x", 1, 2, 3]})

    whole = run()
    assert whole.through().result.value == [1, 2, 3]
    for writes in range(0, whole.writes[0] + 1, 1 if SOAKING else 3):
        story = run().through([(writes, True)])
        assert story.result.value == [1, 2, 3], writes
