"""What the end of a program says when the program itself said nothing of use."""

from __future__ import annotations

from typing import Any

import pytest

from handrail.agents.transport.parser import Ending, kind_of_end, said_on_stderr, words_of_end


@pytest.mark.parametrize(
    ("ending", "kind"),
    [
        (Ending(2, stderr="error: unknown option --x"), "config"),
        (Ending(1, stderr="Error: Not logged in"), "auth"),
        (Ending(101, stderr="thread 'main' panicked at src/main.rs:1"), "crashed"),
        (Ending(1, stderr=""), "crashed"),
        (Ending(1, stderr="WARNING: proceeding\n"), "crashed"),
        (Ending(0, stderr="error: unknown option"), "crashed"),
        (Ending(-9, stderr="error: unknown option"), "crashed"),
        (Ending(None, stderr="error: unknown option"), "crashed"),
        (Ending(1, "interrupted", stderr="Not logged in"), "interrupted"),
        (Ending(1, "start_timeout", stderr="Not logged in"), "timeout"),
    ],
)
def test_an_end_has_a_kind(ending: Ending, kind: str) -> None:
    """A refusal before the first event is a wrong setting or login; what we stopped is ours."""
    assert kind_of_end(ending, alive=False) == kind


def test_a_program_that_had_begun_crashed() -> None:
    """What stands on stderr after the first event does not make it a wrong setting."""
    assert kind_of_end(Ending(1, stderr="Not logged in"), alive=True) == "crashed"


@pytest.mark.parametrize(
    ("ending", "alive", "words"),
    [
        (Ending(2, stderr="\x1b[91mError\x1b[0m: no"), False, "p exited with 2: Error: no"),
        (Ending(1, stderr="x"), True, "p exited with 1 without saying that it is done: x"),
        (Ending(-9), True, "p was ended by signal 9 without saying that it is done"),
        (Ending(None), False, "p never exited without saying that it is done"),
        (Ending(0, "interrupted"), True, "p was interrupted"),
        (Ending(0, "timeout", after_s=5), True, "p did not finish within 5 s"),
        (Ending(0, "start_timeout", after_s=60), False, "p gave no sign of life within 60 s"),
        (
            Ending(0, "idle_timeout", after_s=99),
            True,
            "p gave no sign of life for 99 s and was stopped",
        ),
    ],
)
def test_an_end_has_words(ending: Ending, alive: Any, words: str) -> None:
    """The words say what was done, and what stood on stderr."""
    assert words_of_end("p", ending, alive=alive) == words


def test_much_on_stderr_is_shortened() -> None:
    """Beginning and end of a long complaint are kept."""
    said = said_on_stderr(Ending(1, stderr=f"first {'x' * 5000} last"))
    assert len(said) < 700
    assert said.startswith("first")
    assert said.endswith("last")
