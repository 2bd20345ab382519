"""Runs on a terminal: a live tree, or plain lines where there is no terminal to draw on.

Three locks are always taken in this order: ``_screen`` (to start, stop or write to the display),
rich's own, and ``_state`` (the trees). The thread that refreshes the display takes only the last
two, and no thread waits while it has ``_state``. So no two threads wait for each other, and an
event is taken in while the display draws.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from handrail.errors import MissingExtra, WrongUse
from handrail.model import events as ev
from handrail.model.events import Event, Progress
from handrail.record.live_view import LiveRun
from handrail.sinks.console_lines import tree_lines
from handrail.sinks.console_plain import PlainLog, ending, error_below
from handrail.sinks.console_text import ASCII, UNICODE, Glyphs, Line, Span, text_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

FINAL_HEIGHT = 200
"""Lines of the tree, at most, that stays printed when a drive ends."""

REFRESHES_PER_SECOND = 10
PULSE_S = 15.0
"""How often a plain log checks for steps that have been at work for long."""
_LEAST_HEIGHT = 4
_REMEMBERED_NAMES = 100

_STYLES = {
    "plain": "",
    "name": "bold",
    "dim": "dim",
    "good": "green",
    "bad": "red",
    "warn": "yellow",
    "busy": "cyan",
    "wait": "magenta",
}


class _Drive:
    """The live view of a drive under way, and its plain log."""

    __slots__ = ("log", "view")

    def __init__(self, run_id: str, name: str, glyphs: Glyphs) -> None:
        self.view = LiveRun(run_id, name)
        self.log = PlainLog(glyphs)


class ConsoleSink:
    """Shows runs to a person: a live tree on a terminal, else one plain line for what matters.

    ``console``: where to draw; by default the process's stderr, so that stdout is left to data.
    ``live``: None draws a tree if the console is a terminal that can, and ``CI`` is not set; False
    never does; True always does. When a drive ends its tree stays on the screen, followed by one
    line with the status, the time, what failed, and the run's id.

    Several runs may emit at once: their trees are drawn one below the other.

    Raises:
        MissingExtra: rich is not installed.
    """

    def __init__(self, console: Console | None = None, *, live: bool | None = None) -> None:
        try:
            import rich.console
        except ImportError:
            raise MissingExtra("sinks.console", "rich", "cli") from None
        if console is None:
            console = rich.console.Console(stderr=True)
        elif not isinstance(console, rich.console.Console):
            raise WrongUse(f"ConsoleSink takes a rich.console.Console, got {console!r}")
        self._console = console
        self._is_live = _can_be_live(console) if live is None else live
        self._glyphs = _glyphs_for(console)
        self._screen = threading.RLock()
        self._state = threading.Lock()
        self._runs: dict[str, _Drive] = {}
        self._names: dict[str, str] = {}
        self._display: Live | None = None
        self._below: Text | None = None
        self._logs: list[tuple[Any, Any]] = []
        self._idle = threading.Event()
        """Set while no run is under way: then no thread checks for long-running steps."""
        self._idle.set()
        self._pauses = 0
        self._buffered_lines: list[Line] = []
        self._event_at = (0.0, 0.0)

    def emit(self, event: Event | Progress, /) -> None:
        """Take the event in; the display shows it at its next refresh."""
        is_start = isinstance(event, ev.DriveBegan)
        with self._state:
            drive = self._open(event.run_id) if is_start else self._runs.get(event.run_id)
            in_tree = self._is_live and drive is not None and not isinstance(event, ev.SinkDropped)
            drive = drive or self._new(event.run_id)  # the event is outside of any drive
            step = drive.view.apply(event)
            self._event_at = (event.at, time.monotonic())
            lines = [] if in_tree else drive.log.lines(event, step)
        if lines:
            self._print(lines)
        if is_start:
            self._start_display()
            self._start_pulse()
        elif isinstance(event, ev.DriveEnded):
            self._finish(drive, event)

    def close(self) -> None:
        """Stop the live display and print its trees; another run starts it again."""
        with self._screen:
            was_live = self._stop_display()
            self._release()
            with self._state:
                runs = list(self._runs.values())
                self._runs.clear()
                self._idle.set()
                lines = [line for drive in runs for line in self._tree(drive, FINAL_HEIGHT)]
            if was_live:
                self._write(lines, cropped=True)

    @contextmanager
    def pause(self) -> Generator[Console]:
        """Leave the screen to other output, for example a prompt; yields the console.

        Meanwhile events are taken in and not drawn, except the end of a drive.
        """
        with self._screen:
            self._pauses += 1
            self._stop_display()
        try:
            yield self._console
        finally:
            with self._screen:
                self._pauses -= 1
                if not self._pauses:
                    self._release()
                    self._start_display()

    @property
    def draws(self) -> bool:
        """True if a tree is on the screen."""
        return self._display is not None

    def draw_below(self, text: Text | None) -> None:
        """Show a text, such as a question, below the trees until the next call; None removes it."""
        with self._state:
            self._below = text
        with self._screen:
            if self._display is not None:
                self._display.refresh()

    # -- runs --------------------------------------------------------------------------------

    def _open(self, run_id: str) -> _Drive:
        drive = self._runs[run_id] = self._new(run_id)
        return drive

    def _new(self, run_id: str) -> _Drive:
        return _Drive(run_id, self._names.get(run_id, ""), self._glyphs)

    def _finish(self, drive: _Drive, event: ev.DriveEnded) -> None:
        """Print the drive's last tree and its closing line above the runs still under way."""
        with self._screen:
            with self._state:
                self._runs.pop(event.run_id, None)
                self._remember(drive.view)
                tree = self._tree(drive, FINAL_HEIGHT) if self._is_live else []
                error = error_below(drive.view, event, steps_logged=not self._is_live)
                end = ending(drive.view, event, self._glyphs)
                is_last = not self._runs
                if is_last:
                    self._idle.set()
            if is_last:
                self._stop_display()
            self._release()
            self._write(tree, cropped=True)
            self._write([*error, end])

    def _remember(self, view: LiveRun) -> None:
        """Keep the workflow's name for a resume, whose events may lack it."""
        self._names[view.run_id] = view.workflow_name
        if len(self._names) > _REMEMBERED_NAMES:
            del self._names[next(iter(self._names))]

    # -- the display -------------------------------------------------------------------------

    def _start_display(self) -> None:
        with self._screen:
            if not self._is_live or self._pauses or self._display is not None or not self._runs:
                return
            from rich.errors import LiveError
            from rich.live import Live

            display = Live(
                console=self._console,
                get_renderable=self._frame,
                refresh_per_second=REFRESHES_PER_SECOND,
                transient=True,  # the last tree is printed, so it may be taller than the screen
                vertical_overflow="crop",
                redirect_stdout=_is_terminal(sys.stdout),
                redirect_stderr=_is_terminal(sys.stderr),
            )
            try:
                display.start()
            except LiveError:  # the console has a live display of the user's own
                self._is_live = False
                return
            self._display = display
            self._logs = _logs_above()
            atexit.register(self.close)

    def _start_pulse(self) -> None:
        """Start the thread that logs long-running steps, if there is no tree and no such thread."""
        with self._state:
            if self._is_live or not self._idle.is_set():
                return
            self._idle = threading.Event()
        beat = threading.Thread(
            target=self._beat, args=[self._idle], name="handrail console", daemon=True
        )
        beat.start()

    def _beat(self, idle: threading.Event) -> None:
        while not idle.wait(PULSE_S):
            with self._state:
                at, seen = self._event_at
                now = at + (time.monotonic() - seen)
                lines = [
                    one
                    for run in self._runs.values()
                    for one in run.log.long_running(run.view, now)
                ]
            with suppress(Exception):  # the reader may have gone; the next event raises it
                self._print(lines)

    def _stop_display(self) -> bool:
        """True if the display was there."""
        display, self._display = self._display, None
        if display is None:
            return False
        logs, self._logs = self._logs, []
        for handler, stream in logs:
            handler.setStream(stream)
        atexit.unregister(self.close)
        display.stop()
        return True

    def _frame(self) -> Text:
        with self._state:
            runs, below = list(self._runs.values()), self._below
            taken = 1 if below is None else 2 + below.plain.count("\n")
            height = max(_LEAST_HEIGHT, self._console.height - taken)
            each = max(_LEAST_HEIGHT, height // max(1, len(runs)))
            fitting = max(1, height // each)
            lines = [line for drive in runs[:fitting] for line in self._tree(drive, each)]
        if len(runs) > fitting:
            lines[-1] = (Span(f"{self._glyphs.more} {len(runs) - fitting} more runs", "dim"),)
        text = self._text(lines, cropped=True)
        return text if below is None else text.append("\n").append_text(below)

    def _tree(self, drive: _Drive, height: int) -> list[Line]:
        at, seen = self._event_at
        now = at + (time.monotonic() - seen)  # in the time of the events, whose clock may jump
        return tree_lines(drive.view, height, now=now, glyphs=self._glyphs)

    # -- writing -----------------------------------------------------------------------------

    def _print(self, lines: list[Line]) -> None:
        with self._screen:
            if self._pauses:
                self._buffered_lines.extend(lines)
            else:
                self._write(lines)

    def _release(self) -> None:
        lines, self._buffered_lines = self._buffered_lines, []
        self._write(lines)

    def _write(self, lines: list[Line], *, cropped: bool = False) -> None:
        """Print lines; ``cropped`` at the console's width, else whole, however long."""
        if not lines:
            return
        console = self._console
        if cropped:
            console.print(self._text(lines, cropped=True))
        elif console.color_system is None and not console.record and self._display is None:
            # Fifty times as fast as rich, which has nothing to add here.
            console.file.write("".join(f"{self._encodable(text_of(line))}\n" for line in lines))
            console.file.flush()
        else:
            console.print(self._text(lines), soft_wrap=True)

    def _text(self, lines: list[Line], *, cropped: bool = False) -> Text:
        from rich.text import Text

        text = Text(no_wrap=cropped)
        if cropped:
            text.overflow = "ellipsis" if self._glyphs is UNICODE else "crop"
        for index, line in enumerate(lines):
            if index:
                text.append("\n")
            for span in line:
                text.append(self._encodable(span.text), _STYLES[span.tone])
        return text

    def _encodable(self, text: str) -> str:
        if text.isascii():
            return text
        encoding = self._console.encoding
        return text.encode(encoding, "replace").decode(encoding)


def _can_be_live(console: Console) -> bool:
    """True for a terminal whose cursor moves, with a person in front of it."""
    if not console.is_terminal or console.is_dumb_terminal:
        return False
    return os.environ.get("CI", "").lower() in {"", "0", "false"}


def _glyphs_for(console: Console) -> Glyphs:
    if console.legacy_windows:
        return ASCII
    try:
        "✓✗⊘↷⚑⏸▸↻↶…·├━╌⠋".encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


def _logs_above() -> list[tuple[Any, Any]]:
    """Redirect ``logging`` handlers that write to the terminal, so that they print above the tree.

    Returns each handler with its former stream.
    """
    loggers = [logging.getLogger(), *map(logging.getLogger, list(logging.root.manager.loggerDict))]
    found: list[tuple[Any, Any]] = []
    for handler in {id(h): h for logger in loggers for h in logger.handlers}.values():
        if not isinstance(handler, logging.StreamHandler):
            continue
        of_stream: Any = handler  # pyright: ignore[reportUnknownVariableType]  # of any stream
        for real, drawn in ((sys.__stderr__, sys.stderr), (sys.__stdout__, sys.stdout)):
            if of_stream.stream is real and drawn is not real:
                of_stream.setStream(drawn)
                found.append((of_stream, real))
    return found


def _is_terminal(stream: Any) -> bool:
    """True if other output to this stream would land in the middle of the display."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):  # no stream, or a closed one
        return False
