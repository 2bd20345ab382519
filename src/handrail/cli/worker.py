"""``handrail worker``: drives due runs, each in its own process, and begins scheduled ones."""

from __future__ import annotations

import math
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import IO, Annotated, TypeVar

import attrs
from cyclopts import Parameter

from handrail import addons
from handrail.cli.channels import tell
from handrail.cli.detaching import spawn_resume, spawn_run
from handrail.cli.exits import Exit, Refused
from handrail.cli.journal import VARIABLE, Place
from handrail.cli.notify import Notifier
from handrail.cli.options import WHERE, Command, Where, with_fields
from handrail.cli.schedule import Instant, Timetable, broken_schedules, schedules_of
from handrail.cli.who import refuse_in_step
from handrail.engine.sweeps import Sweeps
from handrail.errors import HandrailError
from handrail.ports.journal import SCHEDULE_LABEL
from handrail.project import project_table
from handrail.record.due import Due
from handrail.record.inbox import runs_of, stuck_wait
from handrail.record.reading import ended
from handrail.shortening import clean

T = TypeVar("T")
EVERY_S = 0.25
_TAIL_BYTES = 4_000
_PREFIX = "handrail: "
_KEPT_VARIABLES = ("PATH", VARIABLE, "HANDRAIL_BACKEND", "HANDRAIL_MODEL")
_UNIT = """\
[Unit]
Description=handrail worker of {folder}
StartLimitIntervalSec=0

[Service]
WorkingDirectory={here}
{environment}
ExecStart={command}
Restart=always
RestartSec=5
KillMode=mixed
TimeoutStopSec=90

[Install]
WantedBy=default.target
"""


def _with_serving(options: type[T]) -> type[T]:
    """The dataclass with the options that registered journals have for their workers."""
    kinds = (addons.load(addons.JOURNALS, kind) for kind in addons.names(addons.JOURNALS))
    served = (kind.serving() for kind in kinds if hasattr(kind, "serving"))
    return with_fields(options, *filter(None, served))


@Parameter(name="*")
@_with_serving
@dataclass(frozen=True)
class Serving:
    """How runs are served that others drive."""


SERVING = Serving()


def worker(
    *modules: Annotated[str, Parameter(name="MODULE")],
    max_runs: int = 10,
    notify: Command = None,
    print_systemd: bool = False,
    where: Where = WHERE,
    serving: Serving = SERVING,
) -> int:
    """Resume runs that are due (process gone, answer given, wait over), and start scheduled runs.

    With the option of a place that drives its runs itself, serve that: run the workflows in MODULE,
    and steps.

    Parameters
    ----------
    modules
        For such a place: FILE.py or MODULE with the workflows to serve; repeatable.
    max_runs
        At most this many runs at once, each in its own process.
    notify
        A shell command to run once when a run needs a person and once when it ends.
    print_systemd
        Only print a systemd unit that runs this worker.
    """
    place = where.place()
    if place.elsewhere is not None:
        return place.elsewhere.serve(modules, serving)
    if modules or serving != SERVING:
        typed = [name for name, value in vars(serving).items() if value]
        said = modules[0] if modules else " and ".join(f"--{name}" for name in typed)
        why = "is only for the worker of a place that drives its runs itself"
        named = " or ".join(f"--{kind} ADDRESS" for kind in addons.names(addons.JOURNALS))
        raise Refused(
            said.replace("_", "-"), why, f"Name the place: {named or 'none is installed'}."
        )
    if max_runs < 1:
        raise Refused(f"--max-runs {max_runs}", "must be 1 or more")
    if place.typed_location and not place.folder.exists():
        hint = "Create it, if its runs are still to be started."
        raise Refused(f"--dir {place.typed_location}", "there is no such folder", hint)
    if print_systemd:
        print(_unit(place, max_runs, notify, Path.cwd(), os.environ), end="")
        tell("put it into ~/.config/systemd/user/handrail-worker.service, then:")
        tell("systemctl --user enable --now handrail-worker")
        return Exit.SUCCEEDED
    if place.is_there():
        refuse_in_step("worker", place.find())
    _Worker(place, max_runs, notify).work()
    return Exit.SUCCEEDED


# -- a unit of systemd -----------------------------------------------------------------------------


def _unit(
    place: Place, max_runs: int, notify: str | None, here: Path, variables: Mapping[str, str]
) -> str:
    """The systemd unit that runs this worker from this folder.

    It has the present PATH, by which agents are found, and no keys. At its end systemd sends
    SIGTERM only to the worker, which then suspends each run in order.
    """
    typed = attrs.evolve(place, named=False)  # a folder of the environment is among ``variables``
    words = [sys.executable, "-m", "handrail", *shlex.split(typed.command("worker"))[1:]]
    words += ["--max-runs", str(max_runs)]
    words += [] if notify is None else ["--notify", notify]
    kept = [name for name in _KEPT_VARIABLES if variables.get(name)]
    lines = [f"Environment={_quote(f'{name}={variables[name]}')}" for name in kept]
    return _UNIT.format(
        folder=_escape_percent(str(place.file)),
        here=_escape_percent(str(here)),
        environment="\n".join(lines),
        command=" ".join(_quote(word).replace("$", "$$") for word in words),
    )


def _escape_percent(text: str) -> str:
    """A value in which only ``%`` is special to systemd, escaped."""
    return text.replace("%", "%%")


def _quote(word: str) -> str:
    """A word, quoted for systemd."""
    escaped = _escape_percent(word).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return escaped if word and word.isascii() and word.isalnum() else f'"{escaped}"'


# -- the worker ------------------------------------------------------------------------------------


@attrs.frozen
class _DriverProcess:
    """A process that drives a run, its log, and the number of events before it began."""

    process: subprocess.Popen[bytes]
    log: IO[bytes]
    events: int

    def last_line(self) -> str:
        """The last line of the log that begins with ``_PREFIX``, or without one the last line."""
        size = self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, size - _TAIL_BYTES))
        lines = self.log.read().decode("utf-8", "replace").splitlines()
        said = [line.removeprefix(_PREFIX) for line in lines if line.startswith(_PREFIX)]
        return clean((said or lines or [""])[-1], _TAIL_BYTES)


class _Worker:
    """Polls a journal, and drives what is due. Mutable: it keeps the processes that it started."""

    def __init__(self, place: Place, max_runs: int, notify: str | None) -> None:
        table = project_table()
        schedules = schedules_of(table)
        self._broken = broken_schedules(table["file"], schedules)
        self._place = place
        self._max_runs = max_runs
        self._journal = place.make()
        self._due = Due(self._journal)
        self._here = Path.cwd()
        command = notify if notify is not None else table.get("notify")
        self._more = [] if notify is None else ["--notify", notify]
        self._notifier = (
            Notifier(command, self._journal, place.artifacts, answers=True) if command else None
        )
        self._timetable = Timetable(schedules, place.folder, time.time())
        self._sweeps = Sweeps(self._journal)
        self._next_at = 0.0
        """When to sweep at the latest: then a scheduled run is to begin."""
        self._at_work: dict[str, _DriverProcess] = {}
        self._ends = threading.Event()
        self._last_error = ""

    def work(self) -> None:
        """Poll until a signal ends the worker; then suspend the runs at work."""
        for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(name, self._end)
        tell(f"resumes runs that are due in {self._place.file}, until Ctrl-C")
        for schedule in self._timetable.schedules:
            following = _utc_text(schedule.following(time.time()))
            tell(f"schedule {schedule.name}: {schedule.cron} {schedule.timezone}, next {following}")
        for why in self._broken:
            tell(f"{why} Until that is repaired, runs of this schedule cannot start.")
        while not self._ends.is_set():
            try:
                self._poll()
                self._last_error = ""
            except (HandrailError, OSError) as error:  # a journal that is busy, or a full disk
                if str(error) != self._last_error:
                    tell(str(error))
                self._last_error = str(error)
            self._ends.wait(EVERY_S)
        self._suspend_all()

    def _end(self, number: int, frame: FrameType | None) -> None:
        """The first signal ends the worker in order, the next makes runs still at work leave."""
        del number, frame
        if self._ends.is_set():
            for one in self._at_work.values():
                one.process.terminate()
        self._ends.set()

    def _poll(self) -> None:
        for run_id, one in list(self._at_work.items()):
            if one.process.poll() is not None:
                del self._at_work[run_id]
                self._report_end(run_id, one)
                self._next_at = 0.0  # another run may have its place
        now = time.time()
        if self._sweeps.is_due(by_timer=now >= min(self._due.next_at, self._next_at)):
            with self._sweeps.measured():
                self._sweep(now)

    def _sweep(self, now: float) -> None:
        schedules = self._timetable.schedules
        self._next_at = min((schedule.following(now) for schedule in schedules), default=math.inf)
        infos = runs_of(self._journal)
        for instant in self._timetable.due(infos, now, self._at_work):
            self._begin(instant)
        due = self._due.select_due(infos, now)
        room = self._max_runs - len(self._at_work)
        for info in [one for one in due if one.run_id not in self._at_work][: max(0, room)]:
            self._due.note_begun(info, now)
            process, log = spawn_resume(self._place, info, self._here, self._more)
            self._at_work[info.run_id] = _DriverProcess(process, log, info.events)
            tell(f"run {info.run_id}: resumed in process {process.pid}")

    def _begin(self, instant: Instant) -> None:
        """Begin the run of an instant, if there is room; else the next poll tries again."""
        schedule = instant.schedule
        if instant.skipped:
            self._timetable.mark_done(instant)
            tell(f"schedule {schedule.name}: {_utc_text(instant.at)} is skipped, {instant.skipped}")
        elif len(self._at_work) < self._max_runs:
            words = ["--run-id", instant.run_id, "--new", *self._more]
            words += ["--label", f"{SCHEDULE_LABEL}={schedule.name}", schedule.workflow]
            process, log = spawn_run(self._place, words, schedule.inputs, self._here)
            self._timetable.mark_done(instant)
            self._at_work[instant.run_id] = _DriverProcess(process, log, 0)
            at = _utc_text(instant.at)
            tell(f"run {instant.run_id}: started for {at}, in process {process.pid}")

    def _report_end(self, run_id: str, one: _DriverProcess) -> None:
        """Print how a process ended; notify a person if it could do nothing with its run."""
        code = one.process.returncode
        info = next((info for info in self._journal.runs() if info.run_id == run_id), None)
        events = 0 if info is None else info.events
        status = None if info is None else info.status
        if info is not None and info.holder is not None:
            tell(f"run {run_id}: another process is running it")
        elif code in _FAILURE_CODES and events == one.events:
            why = one.last_line()
            tell(f"run {run_id}: could not be resumed: {why}")
            if self._notifier is not None:
                self._notifier.tell_stuck(run_id, stuck_wait(run_id, why))
        elif code == Exit.USAGE and not one.events:
            tell(f"run {run_id}: another worker took it first")
        elif code in _FAILURE_CODES and status != "failed":
            tell(f"run {run_id}: process {one.process.pid} could not continue: {one.last_line()}")
        elif status == "suspended" and code in _SIGNAL_CODES:
            tell(f"run {run_id}: suspended, to be resumed later")
        elif status is not None and code >= 0:
            tell(f"run {run_id}: {status}{self._error_suffix(run_id)}")
        else:
            how = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
            tell(f"run {run_id}: process {one.process.pid} {how}")
        one.log.close()

    def _error_suffix(self, run_id: str) -> str:
        """``: `` and the error that a run ended with, or nothing."""
        last = ended(self._journal.events(run_id))
        return f": {clean(last.error, _TAIL_BYTES)}" if last is not None and last.error else ""

    def _suspend_all(self) -> None:
        for one in self._at_work.values():
            one.process.terminate()
        for run_id, one in self._at_work.items():
            one.process.wait()
            self._report_end(run_id, one)
        if self._notifier is not None:
            self._notifier.close()


def _utc_text(instant: float) -> str:
    return f"{datetime.fromtimestamp(instant, UTC):%Y-%m-%d %H:%M:%S} UTC"


_FAILURE_CODES = frozenset({int(Exit.FAILED), int(Exit.USAGE)})
_SIGNAL_CODES = frozenset({int(Exit.TERMINATED), int(Exit.INTERRUPTED)})
