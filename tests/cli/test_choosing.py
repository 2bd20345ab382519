"""What keys do to a list of choices, and what a terminal sends for them."""

from __future__ import annotations

import os
import pty
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from handrail.cli.gates import CURSOR, Choosing, Done, Lines, keys_from, list_lines, parse_keys

COLOURS = Choosing(("red", "green", "grey"))


def after(keys: list[str], state: Choosing = COLOURS) -> Choosing | Done:
    """The state after several keys."""
    now: Choosing | Done = state
    for key in keys:
        assert isinstance(now, Choosing)
        now = now.after(key)
    return now


@pytest.mark.parametrize(
    ("keys", "choice"),
    [
        ([], "red"),
        (["down", "down", "down"], "red"),
        (["up"], "grey"),
        (["end", "home", "tab"], "green"),
        (["r"], "red"),
        (["g", "r", "e", "e"], "green"),
        (["g", "r", "e", "y"], "grey"),
        (["G", "R", "E", "Y"], "grey"),
        (["g", "x", "backspace", "r", "e", "y"], "grey"),
        (["g", "r", "e", "y", "escape", "r"], "red"),
        (["page down"], "red"),
    ],
)
def test_keys_lead_to_a_choice(keys: list[str], choice: str) -> None:
    """Arrows go round, letters find the one choice that begins with them, others do nothing."""
    assert after([*keys, "enter"]) == Done(choice)


@pytest.mark.parametrize("typed", ["g", "y", "gx", "always", "q", "7", "redd"])
def test_what_names_no_choice_or_several_is_no_answer(typed: str) -> None:
    """Enter takes nothing then, least of all the choice that is under the cursor."""
    state = after([*typed, "enter"])
    assert isinstance(state, Choosing)
    assert state.matches_none
    assert after(["escape", "r", "enter"], state) == Done("red")


def test_the_end_of_the_input_is_no_choice() -> None:
    """It is told from every choice there is."""
    assert after(["down", "closed"]) == Done(None)


def test_a_long_list_is_shown_round_the_cursor() -> None:
    """No more lines than there is room for, and the chosen one among them."""
    many = Choosing(tuple(str(number) for number in range(100)), at=57)

    lines = list_lines(many, 5)

    assert [line for line, _ in lines] == ["  55", "  56", f"{CURSOR} 57", "  58", "  59"]
    assert [chosen for _, chosen in lines] == [False, False, True, False, False]


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        ("a", ["a"]),
        ("\x1b[A\x1bOB\r", ["up", "down", "enter"]),
        ("\x1b", ["escape"]),
        ("\x1b[3~x", ["x"]),
        ("\x1b[1;5C", ["right"]),
        ("\x7f\x04", ["backspace", "closed"]),
        ("é\n", ["é", "enter"]),
        ("\x1b[", []),
    ],
)
def test_what_a_terminal_sends_is_read_as_keys(sent: str, keys: list[str]) -> None:
    """Sequences become names, and those that mean nothing here are left out."""
    assert parse_keys(sent) == keys


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Both ends of a pipe; the test closes the second."""
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)


async def test_lines_that_come_together_are_given_one_by_one(pipe: tuple[int, int]) -> None:
    """What was read with the first line is kept for the next; a last one needs no end."""
    reading, writing = pipe
    os.write(writing, b"one\ntwo\n\nse\xffven")
    os.close(writing)

    lines = Lines(reading)

    assert [await lines.next() for _ in range(6)] == ["one", "two", "", "se\ufffdven", None, None]


async def test_lines_can_come_from_a_plain_file(tmp_path: Path) -> None:
    """A file, which no event loop can wait for, is read too."""
    file = tmp_path / "answers"
    file.write_text("yes\n")
    descriptor = os.open(file, os.O_RDONLY)
    try:
        lines = Lines(descriptor)
        assert [await lines.next(), await lines.next()] == ["yes", None]
    finally:
        os.close(descriptor)


async def test_a_terminal_that_was_closed_is_not_the_end_of_the_input() -> None:
    """The question stays open, and nothing is raised because the terminal cannot be set back."""
    ours, theirs = pty.openpty()
    try:
        with keys_from(theirs) as keys, anyio.move_on_after(0.05) as waiting:
            os.close(ours)
            await keys.next()
        assert waiting.cancelled_caught
    finally:
        os.close(theirs)
