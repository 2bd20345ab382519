"""The console sink of a run whose reader may go away: `handrail run flow.py | head -1`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from handrail.cli.channels import silence
from handrail.model.events import Event, Progress
from handrail.sinks.console import ConsoleSink

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


class Screen:
    """Shows a run for as long as somebody reads it; the run continues without. Mutable."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._sink: ConsoleSink | None = ConsoleSink(console)

    def emit(self, event: Event | Progress, /) -> None:
        """Show the event."""
        if self._sink is None:
            return
        try:
            self._sink.emit(event)
        except OSError:  # a closed pipe, a terminal that has gone, a full disk
            self._sink = None
            silence(self._console.file.fileno())

    @property
    def draws(self) -> bool:
        """True if a tree is on the screen."""
        return self._sink is not None and self._sink.draws

    @property
    def console(self) -> Console:
        """The console that shows the run."""
        return self._console

    def draw_below(self, text: Text | None) -> None:
        """Show a text below the tree until the next call; None removes it."""
        if self._sink is not None:
            self._sink.draw_below(text)

    @contextmanager
    def pause(self) -> Generator[Console]:
        """Leave the screen to a prompt."""
        if self._sink is None:
            yield self._console
        else:
            with self._sink.pause() as console:
                yield console
