"""Effect exactly once: an effect whose end is recorded has happened once, for good."""

from __future__ import annotations

from handrail import Steps, current, step, workflow
from handrail.model import events as ev
from tests.durability.support import Lives, every_crash, every_flow, lives


@every_flow
def test_a_recorded_effect_happens_exactly_once(name: str) -> None:
    """An effect is repeated only if it was at work when the process died; all others happen once,
    in whichever life.
    """
    whole = lives(name).through()
    for crash in every_crash(name)[::3]:
        story = lives(name).through([crash])
        begun = {(did.kind, did.path, did.attempt) for did in story.did}
        assert begun == {(did.kind, did.path, did.attempt) for did in whole.did}
        twice = len(story.did) - len(begun)
        recorded = {
            ("attempt", event.path, attempt)
            for event in story.found[-1]
            if isinstance(event, ev.StepCompleted)
            for attempt in range(1, event.result.attempts + 1)
        }
        at_work = {key for key in begun if key not in recorded}
        repeated = [did for did in story.did if did.life > 0]
        assert {(did.kind, did.path, did.attempt) for did in repeated} <= at_work
        assert twice <= len(at_work)


def test_what_was_at_work_is_told_that_it_was_interrupted() -> None:
    """The step that is repeated learns it, with the same idempotency key and the same attempt."""
    seen: list[tuple[str, int, bool, str]] = []

    def look() -> None:
        here = current()
        seen.append((here.path, here.attempt, here.interrupted, here.idempotency_key))

    @workflow
    def looks() -> Steps[None]:
        yield from step("before").call(look)
        yield from step("during").call(look)
        yield from step("after").call(look)

    Lives(looks).through([(4, True)])  # its effect was there, its end was not
    before, during, again, after = seen
    assert [one[:3] for one in seen] == [
        ("before", 1, False),
        ("during", 1, False),
        ("during", 1, True),
        ("after", 1, False),
    ]
    assert during[3] == again[3]
    assert len({before[3], during[3], after[3]}) == 3
