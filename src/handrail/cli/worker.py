"""``handrail worker``: drives the runs of a journal that are due, each in a process of its own."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType

from handrail.cli.apart import resumed_apart
from handrail.cli.channels import tell
from handrail.cli.exits import Exit, Refused
from handrail.cli.journal import Place
from handrail.errors import HandrailError
from handrail.record.due import Due
from handrail.record.inbox import runs_of

EVERY_S = 0.25
_SPARE = 150
"""A look takes at most this share of a core: one part in so many."""
_UNIT = """\
[Unit]
Description=handrail worker of {folder}

[Service]
WorkingDirectory={here}
ExecStart={command}
Restart=always
TimeoutStopSec=90

[Install]
WantedBy=default.target
"""


def worker(place: Place, *, max_runs: int, prints: bool) -> int:
    """Drive what is due until SIGTERM or Ctrl-C; then what is at work is suspended.

    Raises:
        Refused: ``max_runs`` is no positive number.
    """
    if max_runs < 1:
        raise Refused(f"--max-runs {max_runs}", "must be 1 or more")
    if prints:
        words = [sys.executable, "-m", "handrail", *shlex.split(place.command("worker"))[1:]]
        here = Path.cwd()
        command = shlex.join([*words, "--max-runs", str(max_runs)])
        print(_UNIT.format(folder=place.file, here=here, command=command), end="")
        tell("put it into ~/.config/systemd/user/handrail-worker.service, then:")
        tell("systemctl --user enable --now handrail-worker")
        return Exit.SUCCEEDED
    _Worker(place, max_runs).work()
    return Exit.SUCCEEDED


class _Worker:
    """Mutable: it holds the processes that it started."""

    def __init__(self, place: Place, max_runs: int) -> None:
        self._place = place
        self._max_runs = max_runs
        self._journal = place.make()
        self._due = Due(self._journal)
        self._here = Path.cwd()
        self._at_work: dict[str, subprocess.Popen[bytes]] = {}
        self._ends = threading.Event()

    def work(self) -> None:
        """Until somebody ends it."""
        for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(name, self._end)
        tell(f"drives what is due in {self._place.file}, until Ctrl-C")
        while not self._ends.is_set():
            began = time.monotonic()
            try:
                self._look()
            except HandrailError as error:  # a journal that is busy, or a full disk: look again
                tell(str(error))
            self._ends.wait(max(EVERY_S, _SPARE * (time.monotonic() - began)))
        self._suspend_all()

    def _end(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._ends.set()

    def _look(self) -> None:
        for run_id, process in list(self._at_work.items()):
            if process.poll() is not None:
                del self._at_work[run_id]
                tell(f"run {run_id}: {_ENDS.get(process.returncode, f'exit {process.returncode}')}")
        room = self._max_runs - len(self._at_work)
        if room <= 0:
            return
        now = time.time()
        due = self._due.among(runs_of(self._journal), now)
        for info in [one for one in due if one.run_id not in self._at_work][:room]:
            self._due.begun(info, now)
            process = resumed_apart(self._place, info, self._here)
            self._at_work[info.run_id] = process
            tell(f"run {info.run_id}: goes on, in process {process.pid}")

    def _suspend_all(self) -> None:
        for process in self._at_work.values():
            process.terminate()
        for run_id, process in self._at_work.items():
            process.wait()
            tell(f"run {run_id}: {_ENDS.get(process.returncode, f'exit {process.returncode}')}")


_ENDS = {
    int(Exit.SUCCEEDED): "succeeded",
    int(Exit.FAILED): "failed, or another process drives it",
    int(Exit.SUSPENDED): "suspended",
    int(Exit.CANCELLED): "cancelled",
    int(Exit.TERMINATED): "suspended, to go on later",
    int(Exit.INTERRUPTED): "suspended, to go on later",
}
