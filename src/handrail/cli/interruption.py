"""Ctrl-C, SIGTERM and a closed terminal: the first ends the run in order, the second at once.

The handlers are Python's own (``signal.signal``), not the event loop's, so that a second Ctrl-C
works even where a workflow's body, or an action on the loop, keeps the loop from turning.
"""

from __future__ import annotations

import asyncio
import os
import signal
import termios
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from handrail.cli.channels import tell
from handrail.cli.exits import Exit
from handrail.cli.journal import Place
from handrail.engine.run import Run
from handrail.system.run import kill_marked

TWICE_S = 0.05
"""Signals closer together are one: ``timeout`` and other launchers send theirs twice."""

_SHOW_CURSOR = b"\x1b[?25h\r\n"
_REASONS = {
    signal.SIGINT: ("keyboard interrupt", Exit.INTERRUPTED),
    signal.SIGTERM: ("SIGTERM", Exit.TERMINATED),
    signal.SIGHUP: ("its terminal was closed", Exit.HUNG_UP),
}


class Interruption:
    """What signals have asked for, while it is entered. Mutable; one for each run.

    ``place`` is that of the journal on disk: then the run can be resumed, and is only interrupted.
    """

    def __init__(
        self, place: Place | None = None, *, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._place = place
        self._now_s = now_s
        self.exit: Exit | None = None
        self._reason = ""
        self._at_s = 0.0
        self._leaving = False
        self._run: Run[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._before: dict[signal.Signals, Any] = {}
        self._terminal: list[Any] | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self  # Python takes signals in the main thread alone
        if os.isatty(0):
            self._terminal = termios.tcgetattr(0)
        for signum in _REASONS:
            before = signal.getsignal(signum)
            if signum is signal.SIGHUP and before is signal.SIG_IGN:
                continue  # nohup
            self._before[signum] = signal.signal(signum, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for signum, before in self._before.items():
            signal.signal(signum, before)

    def watch(self, run: Run[Any]) -> None:
        """Have signals end this run; one that came before does so now."""
        self._loop = asyncio.get_running_loop()
        self._run = run
        if self.exit is not None:
            self._stop()

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        del frame
        now_s = self._now_s()
        if self.exit is not None:
            if now_s - self._at_s > TWICE_S and not self._leaving:
                self._leaving = True
                self._leave()
            return
        self._at_s = now_s
        self._reason, self.exit = _REASONS[signal.Signals(signum)]
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        run = self._run
        assert run is not None
        undoing = ", and undoing what can be undone" if self._place is None else ""
        tell(f"stopping{undoing}; once more to leave at once")
        if run.driver is None and self._place is None:  # it has not begun, and never will
            run.cancel(self._reason)
        else:
            run.interrupt(self._reason)

    def _leave(self) -> None:
        """Kill what the run started, and be gone; only calls that no lock can hold up."""
        try:
            killed = kill_marked(self._run.mark) if self._run is not None else 0
            said = f"handrail: left at once, nothing more undone; processes killed: {killed}\n"
            if self._place is not None and self._run is not None:
                again = self._place.command("resume", self._run.run_id)
                said += f"handrail: go on with: {again}\n"
            for descriptor in (1, 2):
                if os.isatty(descriptor):
                    os.write(descriptor, _SHOW_CURSOR)
            if self._terminal is not None:  # a prompt may have changed it
                termios.tcsetattr(0, termios.TCSANOW, self._terminal)
            os.write(2, said.encode())
        finally:
            os._exit(self.exit or Exit.INTERRUPTED)
