"""Prefix continuation: every prefix of a record is one that a run can go on from."""

from __future__ import annotations

from tests.durability.support import backends, essence, every_crash, every_flow, hold, lives


@backends
@every_flow
def test_prefix_continuation(name: str, backend: str) -> None:
    """From every prefix of its record a run goes on: it keeps the prefix, and ends as it would."""
    expected = essence(lives(name, backend).through().result)
    for crash in every_crash(name)[:: 1 if backend == "asyncio" else 3]:
        story = lives(name, backend).through([crash])
        hold(story)
        assert essence(story.result) == expected, crash
