"""Where an exception is said to come from: the author's own line."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest

from handrail import (
    Agent,
    AgentOptions,
    Backoff,
    Budget,
    FakeBackend,
    Ladder,
    Stage,
    Steps,
    step,
    workflow,
)
from handrail.model.described import raised_at

MADE_WRONG: list[tuple[Any, str]] = [
    (lambda: AgentOptions(permission="write"), "permission of AgentOptions"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    (lambda: Budget(usd="3"), "usd of a Budget must be a number, got '3'"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    (lambda: Agent("", "x", backend=FakeBackend([])), "needs a name"),
    (lambda: Stage("", "true"), "stage"),
    (lambda: Ladder(max_launches=-1), "max_launches"),
    (lambda: Backoff(factor=0), "factor"),
    (lambda: json.loads("{"), "JSONDecodeError"),
]


@pytest.mark.parametrize(("make", "said"), MADE_WRONG)
def test_a_value_refused_in_a_body_is_placed_at_the_authors_line(make: Any, said: str) -> None:
    """Not in the code that attrs made for its class, nor in a library."""

    @workflow
    def flow() -> Steps[None]:
        make()
        yield from step("a").call(str, 1)

    error = flow().error or ""
    line = inspect.getsourcelines(make)[1]
    assert error.startswith(f"{__file__}:{line}: "), error
    assert said in error


def test_code_of_no_file_has_at_least_its_own_place() -> None:
    """Where all is generated or installed, the outermost line counts."""
    code = compile("def f():\n    g()\ndef g():\n    1 / 0\nf()", "<given>", "exec")
    with pytest.raises(ZeroDivisionError) as caught:
        exec(code, {})
    generated = caught.value.with_traceback(caught.tb.tb_next)
    assert raised_at(generated) == "<given>:5"


def test_an_error_of_no_frames_has_no_place() -> None:
    """Nothing was passed through."""
    assert raised_at(ValueError()) is None
