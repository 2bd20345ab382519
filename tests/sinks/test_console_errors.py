"""Errors as lines, and which failure another one comes from."""

from __future__ import annotations

from handrail.record.view import FailureCause
from handrail.sinks.console_words import error_lines


def test_an_error_of_one_line_is_one_line() -> None:
    """With the name of its class; without an error there is none."""
    assert error_lines("boom", "app.Broken") == ["Broken: boom"]
    assert error_lines("boom\n", "app.Broken") == ["Broken: boom"]
    assert error_lines(None) == []


def test_lines_keep_how_they_are_indented() -> None:
    """What all after the first begin with is taken away; blank lines and terminal codes are too."""
    error = "no:\n\n\t\x1b[31ma\x1b[0m\n\t  b\n"
    assert error_lines(error, "app.Broken") == ["Broken: no:", "    a", "      b"]


def test_of_very_many_lines_the_first_and_the_last_are_told() -> None:
    """A program's error mostly stands at the end of what it printed."""
    told = error_lines("\n".join(map(str, range(100))), most=10)
    assert [line.strip() for line in told] == [
        *"01234",
        "... 91 lines left out ...",
        *("96", "97", "98", "99"),
    ]


def test_a_failure_is_known_by_its_name_and_its_text() -> None:
    """The same text under another name, and the name with another text, are somebody else's."""
    cause = FailureCause("all/x", "x", "boom")
    assert cause.place_in("member 'x' failed: boom; 2 more failed") is not None
    assert cause.place_in("step 'all/x' failed after 2 attempts: ValueError: boom") is not None
    assert cause.place_in("member 'y' failed: boom") is None
    assert cause.place_in("member 'x' failed: bang") is None
    assert cause.place_in("boom") is None
