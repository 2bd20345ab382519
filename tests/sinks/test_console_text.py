"""The words of the console: times, texts from outside, glyphs."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.shortening import clean, error_text, last_line
from handrail.sinks.console_text import (
    ASCII,
    UNICODE,
    Span,
    counted,
    duration,
    text_of,
    until,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 ms"),
        (0, "0 ms"),
        (0.0804, "80 ms"),
        (1.44, "1.4 s"),
        (12.3, "12 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_a_duration_has_two_units_at_most(seconds: float, text: str) -> None:
    """A time is told as exactly as a person reads it."""
    assert duration(seconds) == text


@given(st.floats())
def test_any_number_is_a_duration(seconds: float) -> None:
    """Infinities and NaN have a text too."""
    assert duration(seconds)


def test_what_is_due_soon_is_told_in_seconds() -> None:
    """Under a minute the clock would say less."""
    assert until(112.0, 100.0) == "in 12 s"
    assert until(90.0, 100.0) == "in 0 s"


def test_what_is_due_later_is_told_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The local time comes with how long that is; a far one with its day."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    noon = 1_741_089_600.0  # 2025-03-04 12:00 UTC
    assert until(noon + 9120, noon + 8940) == "until 14:32 (in 3 min)"
    assert until(noon + 18_000, noon + 0.01) == "until 17:00 (in 5 h)"
    assert until(noon + 3 * 86_400 + 60, noon) == "until Fri 07 Mar 12:01 (in 3 d)"
    monkeypatch.undo()
    time.tzset()


@given(st.floats(), st.floats())
def test_any_two_numbers_are_a_due_time(due: float, now: float) -> None:
    """A time that no calendar has is told without one."""
    assert until(due, now)


def test_text_from_outside_is_one_printable_line() -> None:
    """Colours, cursor movements, line ends and direction marks do not reach the terminal."""
    assert clean("\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b[2J\r\n\tand \u202ethen\ud800") == (
        "red and then"
    )


@given(st.text(), st.integers(10, 300))
def test_clean_text_fits(text: str, limit: int) -> None:
    """Whatever comes, it is printable and no longer than the limit."""
    assert clean(text, limit).isprintable()
    assert len(clean(text, limit)) <= limit


def test_the_last_line_is_the_last_that_says_something() -> None:
    """Empty lines are passed over, and of an overwritten line the last state counts."""
    assert last_line("first\nsecond\n\n  \n") == "second"
    assert last_line("10 %\r50 %\r\x1b[K") == "50 %"
    assert last_line("\n") == ""


def test_an_error_is_told_with_the_name_of_its_class() -> None:
    """The module is left out, and a name that the text has already is not repeated."""
    assert error_text("no\nluck", "app.errors.Broken") == "Broken: no luck"
    assert error_text("Broken: no", "app.Broken") == "Broken: no"
    assert error_text("", "app.Broken") == "Broken"
    assert error_text(None) == ""


def test_nouns_agree_with_their_number() -> None:
    """One step, two steps."""
    assert (counted(1, "step"), counted(0, "step")) == ("1 step", "0 steps")


def test_the_spinner_turns_with_the_time() -> None:
    """The sign of what runs depends on the time alone, those of other states on nothing."""
    assert [UNICODE.of("running", now) for now in (0.0, 0.1, 1.0)] == ["⠋", "⠙", "⠋"]
    assert UNICODE.of("failed", 3.3) == "✗"


def test_ascii_glyphs_are_ascii() -> None:
    """A terminal without Unicode gets signs that it has."""
    signs = [*ASCII.running, *ASCII.bar]
    signs += [getattr(ASCII, name) for name in ASCII.__slots__ if name not in {"running", "bar"}]
    assert all(sign.isascii() for sign in signs)


def test_a_line_without_tones_is_its_text() -> None:
    """`text_of` joins the spans."""
    assert text_of((Span("a "), Span("b", "bad"))) == "a b"
