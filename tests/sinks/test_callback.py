"""CallbackSink: a function as a sink."""

from __future__ import annotations

from typing import Any

import pytest

from handrail.errors import WrongUse
from handrail.sinks.callback import CallbackSink
from handrail.testing.contracts import SinkContract
from handrail.testing.contracts.sample_events import sample_events


class TestCallbackSink(SinkContract):
    @pytest.fixture
    def make_sink(self) -> Any:
        """A new sink each time."""
        return lambda: CallbackSink(lambda event: None)


def test_the_function_gets_every_event() -> None:
    """What is emitted is passed on as it is, in order."""
    seen: list[Any] = []
    sink = CallbackSink(seen.append)
    for event in sample_events():
        sink.emit(event)
    assert seen == sample_events()


def test_what_the_function_raises_is_raised() -> None:
    """The engine drops a sink that raises, so the sink hides nothing."""

    def fail(event: object) -> None:
        raise RuntimeError("full")

    with pytest.raises(RuntimeError, match="full"):
        CallbackSink(fail).emit(sample_events()[0])


def test_an_async_function_is_refused() -> None:
    """Nobody would await it; the error says what to do instead."""

    async def later(event: object) -> None: ...

    with pytest.raises(WrongUse, match=r"cannot be async\. Put the event into a queue"):
        CallbackSink(later)


def test_what_cannot_be_called_is_refused() -> None:
    """A value that is no function is refused when the sink is made."""
    with pytest.raises(WrongUse, match="takes a function of one event, got 'print'"):
        CallbackSink("print")  # type: ignore[arg-type]
