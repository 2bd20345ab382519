"""Runs a workflow in processes that it kills as planned, and notes what they perform."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn, Protocol, TypeAlias, cast

import anyio
import attrs

from handrail.core import commands as cmd
from handrail.engine import engine
from handrail.engine.attempt_tasks import Attempts
from handrail.engine.checking import JournalWrapper
from handrail.engine.driver import Driver
from handrail.engine.engine import Engine
from handrail.engine.tasks import Flight
from handrail.errors import WrongUse, did_you_mean
from handrail.journals.sqlite.journal import SqliteJournal
from handrail.model import events as ev
from handrail.model.events import Event
from handrail.model.results import WorkflowResult
from handrail.model.shapes import WorkflowLike
from handrail.ports.journal import Journal, Letter, group_append
from handrail.record.reading import ended, recorded_result
from handrail.testing.clock import JumpClock
from handrail.testing.crash_verdict import Verdict, interrupted_steps, verdict_of

Kind: TypeAlias = Literal["attempt", "rollback"]


class Note(Protocol):
    """A callback for each attempt and rollback that begins."""

    def __call__(self, kind: Kind, path: str, attempt: int, /, *, once: bool) -> None:
        """``once``: the step must not run twice."""


@contextlib.contextmanager
def counted(note: Note) -> Generator[None]:
    """Call ``note`` for each attempt and rollback that executors of this process perform meanwhile.

    The journal is no source for that: a crash test questions it. Sinks see when a step starts, not
    when an attempt does. So a driver that reports replaces the usual one.
    """

    class CountingAttempts(Attempts):
        """Reports each attempt that begins in the driver's own task."""

        async def perform_here(self, command: cmd.Perform) -> ev.Event | None:
            note("attempt", command.path, command.attempt, once=command.step.modifiers.once)
            return await super().perform_here(command)

    class Counting(Driver):
        """A driver that reports what it performs in other tasks."""

        make_attempts = CountingAttempts

        def start(self, flight: Flight, work: Callable[[], Any], context: Context) -> None:
            super().start(flight, _with_note(flight, work, note), context)

    names = engine.__dict__
    usual = names["Driver"]
    names["Driver"] = Counting
    try:
        yield
    finally:
        names["Driver"] = usual


def _with_note(flight: Flight, work: Callable[[], Any], note: Note) -> Callable[[], Any]:
    """The work, which reports when it really begins: some flights end before that."""
    if flight.kind not in ("attempt", "rollback"):
        return work

    def begun() -> Any:
        if flight.kind == "attempt":
            command: cmd.Perform = flight.command
            note("attempt", flight.path, command.attempt, once=command.step.modifiers.once)
        else:
            note("rollback", flight.path, 1, once=False)
        return work()

    return begun


# The notes that the processes of one run write: a file of JSON lines.
#
# The notes are apart from the journal, because the test questions the journal. Each line is one
# write to the file, which a SIGKILL cannot take back.


class Notebook:
    """Writes the lines of one process; the first line says that the process began."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.write("begins")

    def write(self, what: str, *said: Any) -> None:
        """Add a line."""
        os.write(self._fd, json.dumps([what, *said]).encode() + b"\n")

    def note_history(self, history: Iterable[ev.Event]) -> None:
        """Note the events that were recorded when the process began."""
        self.write("found", [line for event in history for line in _notes_of(event)])

    def record(self, number: int, name: str) -> None:
        """Note that the process is about to write this record."""
        self.write("record", number, name)

    def performs(self, kind: Kind, path: str, attempt: int, /, *, once: bool) -> None:
        """Note that the process now performs this attempt or rollback."""
        self.write("performs", kind, path, attempt, once)


def _notes_of(event: ev.Event) -> list[tuple[str, str, int]]:
    match event:
        case ev.StepStarted():
            return [("started", event.path, 0)]
        case ev.StepCompleted():
            return [("attempt", event.path, 0)]
        case ev.AttemptFailed():
            return [("attempt", event.path, event.attempt)]
        case ev.RollbackCompleted():
            return [("rollback", event.path, 0)]
        case _:
            return []


@dataclass
class ProcessLog:
    """What one process did. Mutable while the notes are read."""

    found: set[tuple[str, str, int]] = field(default_factory=set[tuple[str, str, int]])
    """Kind, path and attempt of what was recorded when it began; attempt 0: the whole step."""
    records: list[str] = field(default_factory=list[str])
    performed: list[tuple[Kind, str, int]] = field(default_factory=list[tuple[Kind, str, int]])
    once: set[str] = field(default_factory=set[str])
    """Steps that must not run twice."""
    verdict: Verdict | None = None
    interrupted: list[str] = field(default_factory=list[str])
    raised: str | None = None


def read_logs(path: Path) -> list[ProcessLog]:
    """The logs of all processes that wrote into this file, in order.

    One empty log if no process wrote.
    """
    logs: list[ProcessLog] = []
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        what, *said = json.loads(line)
        if what == "begins":
            logs.append(ProcessLog())
            continue
        log = logs[-1]
        match what:
            case "found":
                log.found = {(kind, at, attempt) for kind, at, attempt in said[0]}
            case "record":
                log.records.append(said[1])
            case "performs":
                kind, at, attempt, once = said
                log.performed.append((kind, at, attempt))
                if once:
                    log.once.add(at)
            case "ends":
                log.verdict, log.interrupted = said
            case _:
                log.raised = said[0]
    return logs or [ProcessLog()]


def times_performed(logs: Iterable[ProcessLog]) -> Counter[str]:
    """How often each step, and each rollback, was performed by all processes together."""
    return Counter(
        path if kind == "attempt" else f"rollback of {path}"
        for log in logs
        for kind, path, _ in log.performed
    )


def repeated(logs: Iterable[ProcessLog]) -> list[str]:
    """What a process performed although its end was recorded when that process began."""
    found: list[str] = []
    for log in logs:
        for kind, path, attempt in log.performed:
            whole, this = (kind, path, 0), (kind, path, attempt)
            if whole in log.found or this in log.found:
                what = "the rollback of " if kind == "rollback" else ""
                found.append(f"{what}{path!r} was performed again although its end was recorded")
    return found


class CrashingJournal(JournalWrapper):
    """Kills the process at ``point``, before or after it writes that record to the inner journal.

    It counts records from 1 as they are written; messages are records too. Before each write it
    calls ``tell`` with the record's number and name. Mutable.
    """

    def __init__(
        self, inner: Journal, point: Point | None, tell: Callable[[int, str], None]
    ) -> None:
        super().__init__(inner)
        self._dies_before = point[0] if point is not None and point[1] == "before" else 0
        self._dies_after = point[0] if point is not None and point[1] == "after" else 0
        self._tell = tell
        self._records = 0

    def append(self, event: Event, /, *, sync: bool = False) -> Awaitable[None] | None:
        """Store the event, or die."""
        dies = self._begin(record_name(event))
        stored = self._behind.append(event, sync=sync)
        if not dies:
            return stored
        if stored is None:
            die()
        return _die_after(stored)

    def append_all(
        self, events: Sequence[Event], /, *, sync: bool = False
    ) -> Awaitable[None] | None:
        """Store the events, or die: before all or after all of them, because they are one write."""
        dies = False
        for event in events:
            dies = self._begin(record_name(event)) or dies
        together = group_append(self._behind)
        assert together is not None, "the journal of a trial stores several events as one"
        stored = together(events, sync=sync)
        if not dies:
            return stored
        if stored is None:
            die()
        return _die_after(stored)

    def post(self, letter: Letter, /, *, secrets: Mapping[str, str] | None = None) -> Letter:
        """Store the message, or die."""
        dies = self._begin(f"letter {record_name(letter.event)}")
        kept = self._behind.post(letter, secrets=secrets)
        if dies:
            die()
        return kept

    def append_run(
        self,
        events: Sequence[Event],
        /,
        *,
        letters: Sequence[Letter] = (),
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        """Store the run, or die."""
        dies = self._begin(f"run {events[0].run_id}")
        self._behind.append_run(events, letters=letters, secrets=secrets)
        if dies:
            die()

    def _begin(self, name: str) -> bool:
        """Count a record; True if the process dies once it is written."""
        self._records += 1
        self._tell(self._records, name)
        if self._records == self._dies_before:
            die()
        return self._records == self._dies_after


def record_name(event: Event) -> str:
    """A record's name in a report: its kind and its path, or a signal's name."""
    place = getattr(event, "path", "") or getattr(event, "name", "")
    return f"{type(event).__name__} of {place!r}" if place else type(event).__name__


async def _die_after(stored: Awaitable[None]) -> None:
    await stored
    die()


def die() -> NoReturn:
    """End this process as a power cut would: nothing is flushed, no ``finally`` runs."""
    while True:
        os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()


MOST_RESUMES = 10_000


@attrs.frozen
class RunScenario:
    """One run of a workflow: its id, its inputs, and what to do when it waits.

    ``answers`` are keyed by the path of the gate, ``signals`` by name. The payloads of a signal are
    sent one by one, each time the run waits for it.
    """

    workflow: WorkflowLike[..., Any]
    run_id: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    answers: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    signals: Mapping[str, Sequence[Any]] = attrs.field(factory=dict[str, Sequence[Any]])

    async def finish(self, executor: Engine, journal: Journal) -> WorkflowResult[Any]:
        """Begin the run, or resume it if the journal has it, and return its result.

        While the run waits for an answer or a signal that the scenario has, send it and resume. A
        run that has ended is not resumed.
        """
        history = journal.events(self.run_id)
        if ended(history) is not None:
            definition = self.workflow.definition
            return recorded_result(self.run_id, definition, history, journal.codec)
        if history:
            result = await executor.resume(self.run_id, self.workflow)
        else:
            begun = executor.options(run_id=self.run_id)
            result = await begun.run(self.workflow, *self.args, **self.kwargs)
        for _ in range(MOST_RESUMES):
            if result.status != "suspended" or not await self._help(executor, journal, result):
                return result
            result = await executor.resume(self.run_id, self.workflow)
        raise AssertionError(f"run {self.run_id} was suspended {MOST_RESUMES} times")

    async def _help(self, executor: Engine, journal: Journal, result: WorkflowResult[Any]) -> bool:
        """Send one answer or signal that the run waits for; False if the scenario has none."""
        for gate in result.waiting:
            if gate.path in self.answers:
                answer = self.answers[gate.path]
                await executor.answer(self.run_id, gate.path, answer, by="test")
                return True
        for name in result.waiting_signals:
            sent = sum(
                isinstance(letter.event, ev.SignalReceived) and letter.event.name == name
                for letter in journal.letters(self.run_id, 0)
            )
            payloads = self.signals.get(name, ())
            if sent < len(payloads):
                await executor.signal(self.run_id, name, payloads[sent], by="test")
                return True
        return False


_LOOK_EVERY_S = 0.5


def in_child(work: Callable[[], None], timeout_s: float) -> int | None:
    """Call ``work`` in a fork of this process; its wait status, or None if it had to be killed.

    A fork has what the test made, closures and fake agents too, and costs milliseconds. It never
    returns into the test: it exits after ``work``, silently, whatever that raises.
    """
    read, write = os.pipe()
    with warnings.catch_warnings():
        # Other threads of this process (pytest-xdist's, a journal's) are not in the fork, and a
        # lock of theirs can hang it: the timeout is for that.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        _work_and_end(work, read)
    try:
        os.close(write)
        return _status(pid, read, time.monotonic() + timeout_s)
    finally:
        os.close(read)


def _work_and_end(work: Callable[[], None], read: int) -> None:
    code = 1
    try:
        os.close(read)
        work()
        code = 0
    finally:
        os._exit(code)


def _status(pid: int, read: int, deadline: float) -> int | None:
    """The child's wait status. When the child ends, its end of the pipe closes, and wakes us."""
    ended = False
    try:
        while not ended and time.monotonic() < deadline:
            left = max(0.0, deadline - time.monotonic())
            gone, _, _ = select.select([read], [], [], min(left, _LOOK_EVERY_S))
            found, status = os.waitpid(pid, 0 if gone else os.WNOHANG)
            ended = found == pid
            if ended:
                return status
        return None
    finally:
        if not ended:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


_EMPTY = "empty.db"
MakeExecutor: TypeAlias = Callable[[Journal], Engine]


@attrs.frozen
class Allowed:
    """How often a step may be performed, by path or name; ``default`` is for all other steps."""

    executions: Mapping[str, int]
    default: int | None

    def exceeded(self, logs: Sequence[ProcessLog], usual: Counter[str]) -> list[str]:
        """Sentences on what was performed too often; ``usual`` has the counts without a crash."""
        once = set[str]().union(*(log.once for log in logs))
        kills = len(logs) - 1
        found: list[str] = []
        for what, times in times_performed(logs).items():
            most = 1 if what in once else self._most(what, usual[what] + kills)
            if times > most:
                by = "1 process" if len(logs) == 1 else f"{len(logs)} processes"
                found.append(f"{what!r} was performed {times} times by {by}, {most} allowed")
        return found

    def misspelt(self, performed: Iterable[str]) -> str:
        """A message on names that no step had but that resemble a step's; empty if there are none.

        A name that resembles no other may be that of a step that a run need not reach.
        """
        known = {name for path in performed for name in (path, path.rpartition("/")[2])}
        unknown = [name for name, most in self.executions.items() if most and name not in known]
        near = did_you_mean(unknown, sorted(known))
        if not near:
            return ""
        listed = ", ".join(map(repr, unknown))
        return f"executions= names {listed}, and no step of that path or name was performed.{near}"

    def _most(self, what: str, otherwise: int) -> int:
        by_name = self.executions.get(what.rpartition("/")[2], self.default)
        declared = self.executions.get(what, by_name)
        return otherwise if declared is None else declared


@attrs.frozen
class Trial:
    """A run that can be repeated; each repetition has its own files in ``home``."""

    scenario: RunScenario
    executor: MakeExecutor
    home: Path
    timeout_s: float

    def prepare(self) -> None:
        """Make an empty journal to copy, and import what each child would import by itself."""
        journal = SqliteJournal(self.home / _EMPTY)
        journal.runs()
        journal.close()
        anyio.run(anyio.sleep, 0)

    def run(self, plan: Plan = (), name: str = "") -> list[ProcessLog]:
        """Run once: the logs of the processes killed as planned, and of the last process."""
        name = name or name_of(plan)
        logs: list[ProcessLog] = []
        shutil.copy(self.home / _EMPTY, self.home / f"{name}.db")
        for point in (*plan, None):
            status = in_child(lambda p=point: self._live(name, p), self.timeout_s)  # type: ignore[misc]  # bound now
            logs = read_logs(self.home / f"{name}.jsonl")
            last = logs[-1]
            if status is None:
                last.raised = f"it did not end within {self.timeout_s:g} s and was killed"
            elif point is None and last.verdict is None and last.raised is None:
                last.raised = f"its process died by itself, with {_died_of(status)}"
            if last.verdict is not None or last.raised is not None:
                break
        return logs

    def _live(self, name: str, point: Point | None) -> None:
        """Everything that a child process does."""
        notes = Notebook(self.home / f"{name}.jsonl")
        try:
            inner = SqliteJournal(self.home / f"{name}.db")
            history = inner.events(self.scenario.run_id)
            notes.note_history(history)
            journal = CrashingJournal(inner, point, notes.record)
            executor = self._executor(journal, history[-1].at if history else None)
            with counted(notes.performs):
                result = anyio.run(self.scenario.finish, executor, journal)
            verdict = verdict_of(result, journal.codec)
            notes.write("ends", dict(verdict), interrupted_steps(result))
        except BaseException:  # noqa: BLE001  # the parent reports it
            notes.write("raises", traceback.format_exc())

    def _executor(self, journal: Journal, since: float | None) -> Engine:
        """The executor; a ``JumpClock`` of it begins no earlier than the last recorded event."""
        executor = self.executor(journal)
        parts = executor._parts  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # the kit knows the engine
        if parts.journal is not journal:
            raise WrongUse(
                "the executor of crash_everywhere must use the journal that it is given: "
                "executor=lambda journal: Executor(journal=journal, ...)"
            )
        if since is not None and isinstance(parts.clock, JumpClock):
            parts.clock.set(max(since, parts.clock.now()))
        return executor


def name_of(plan: Plan) -> str:
    """The name of a plan's files, without suffix."""
    return "-".join(f"{number}-{when}" for number, when in plan) or "whole"


def _died_of(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    return f"exit code {os.waitstatus_to_exitcode(status)}"


When: TypeAlias = Literal["before", "after"]
Point: TypeAlias = tuple[int, When]
"""The number of a record, from 1 in each process, and on which side of its write."""
Plan: TypeAlias = tuple[Point, ...]
"""The points at which one process after the other is killed; the process after them is not."""


def all_points(records: int) -> list[Plan]:
    """A plan for each side of each record."""
    return [((number, when),) for number in range(1, records + 1) for when in _SIDES]


def spread(plans: Sequence[Plan], limit: int | None) -> list[Plan]:
    """At most ``limit`` of the plans, evenly spread, the first and the last included."""
    if limit is None or limit >= len(plans):
        return list(plans)
    if limit == 1:
        return [plans[len(plans) // 2]]
    last = len(plans) - 1
    return [plans[round(index * last / (limit - 1))] for index in range(limit)]


def second_point(index: int, records: int) -> Point:
    """The point at which the process that resumes is killed, too; it varies with ``index``."""
    return 1 + (_STRIDE * index) % max(records, 1), _SIDES[index % 2]


def chosen(only: Iterable[Any]) -> list[Plan]:
    """The plans that the user listed: each a point, or a sequence of points.

    Raises:
        WrongUse: an item is neither.
    """
    return [_plan(one) for one in only]


def _plan(given: Any) -> Plan:
    if _is_point(given):
        return (cast("Point", tuple(given)),)
    if isinstance(given, (list, tuple)):
        points = cast("Sequence[Any]", given)
        if points and all(map(_is_point, points)):
            return tuple(cast("Point", tuple(point)) for point in points)
    raise WrongUse(
        f"only= lists points like (7, 'before') or (7, 'after'), or lists of such for one crash "
        f"after the other, got {given!r}"
    )


def _is_point(given: Any) -> bool:
    if not isinstance(given, (list, tuple)):
        return False
    parts = cast("Sequence[Any]", given)
    return len(parts) == 2 and type(parts[0]) is int and parts[0] > 0 and parts[1] in _SIDES


_SIDES: tuple[When, When] = ("before", "after")
_STRIDE = 7
