"""``gates="ask"``: whoever is at the terminal answers."""

from __future__ import annotations

import io
from typing import Any

import pytest

from handrail import Executor, Steps, step, workflow


@workflow
def asks() -> Steps[tuple[int, str]]:
    """A number with a default, and a choice."""
    number = yield from step("number").ask("How many?", type=int, default=3)
    return number, (yield from step("choice").ask("Which?", choices=["x", "y"]))


@pytest.mark.parametrize(
    ("typed", "value"), [("zz\n5\nq\ny\n", (5, "y")), ("\nx\n", (3, "x")), ("7\n", None)]
)
def test_who_is_at_the_terminal_answers(
    typed: str, value: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What does not fit is asked for again, an empty line is the default; no stdin, no answer."""
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    result = Executor(gates="ask").run_sync(asks)
    assert result.value == value
    told = capsys.readouterr()
    assert told.out == ""
    assert "choice: Which? [x, y]" in told.err
    assert ("'zz' is not a valid answer" in told.err) == typed.startswith("zz")
    assert (result.error is None) or "stdin has ended" in result.error
