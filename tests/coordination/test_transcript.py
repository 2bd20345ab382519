"""What programs of synapse-channel 0.32.0 and their hub said to each other, said to ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.coordination.room import Heard, Room, merge

LINES = [
    json.loads(line)
    for line in (Path(__file__).parent / "transcript.jsonl").read_text("utf-8").splitlines()
]
"""Who said what, and what each then heard. Times are left out."""


def play() -> list[tuple[Heard, Heard]]:
    """What was to be heard after each line, and what was heard."""
    room = Room()
    found: list[tuple[Heard, Heard]] = []
    for line in LINES:
        who, says = line["from"], line["says"]
        heard: Heard = {}
        if says is None:
            heard = room.leave(who)
        else:
            if who not in room.sockets:
                merge(heard, room.open(who))
            text = says if isinstance(says, str) else json.dumps({**says, "timestamp": 1.0})
            merge(heard, room.send(who, text))
        expected: Heard = {}
        for names, frame in line["heard"]:
            for name in names:
                expected.setdefault(name, []).append(frame)
        found.append((expected, heard))
        room.clock += 0.15
    return found


PLAYED = play()


@pytest.mark.parametrize(
    ("number", "line"), list(enumerate(LINES)), ids=[line["from"] for line in LINES]
)
def test_the_hub_says_what_theirs_says(number: int, line: dict[str, Any]) -> None:
    """After each line everybody hears the same messages, with at least the same fields."""
    expected, heard = PLAYED[number]
    assert {name: len(frames) for name, frames in heard.items()} == {
        name: len(frames) for name, frames in expected.items()
    }, (line, heard)
    for name, frames in expected.items():
        for frame, actual in zip(frames, heard[name], strict=True):
            assert has(actual, frame), (frame, actual)


def has(actual: Any, expected: Any) -> bool:
    """True if all that is expected is there."""
    if isinstance(expected, dict):
        return all(name in actual and has(actual[name], one) for name, one in expected.items())
    if isinstance(expected, list):
        pairs = zip(actual, expected, strict=False)
        return len(actual) == len(expected) and all(has(*pair) for pair in pairs)
    return bool(actual == expected)
