"""The port through which a run becomes a fact."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

from handrail.model.dataclass import dataclass
from handrail.model.events import (
    AgentGuided,
    AgentSessionStarted,
    AttemptFailed,
    CancelRequested,
    ClaimGranted,
    ClaimLost,
    ClaimWaiting,
    Event,
    GateAnswered,
    GateOpened,
    LadderStep,
    RunResumed,
    RunSteered,
    RunSuspended,
    SignalReceived,
    StepCompleted,
    StepStarted,
    TimerSet,
    WorkEdited,
    WorkflowCompleted,
    WorkflowStarted,
)
from handrail.model.results import A_PERSON, A_SENDER, RunStatus, WaitsFor
from handrail.typed.reference import NEWER

if TYPE_CHECKING:
    from handrail.codec.codec import Codec

Message: TypeAlias = GateAnswered | SignalReceived | CancelRequested | RunSteered | WorkEdited


@dataclass(frozen=True, slots=True)
class Holder:
    """Who drives a run: a process, since when (unix seconds), and whether it still lives."""

    pid: int
    host: str
    since: float
    alive: bool = True


@dataclass(frozen=True, slots=True)
class RunInfo:
    """One run as a journal lists it; ``status`` is None while it has no end.

    ``updated_at`` is when its last event happened, ``holder`` who drives it now, if anybody.
    ``damaged`` says what of its record is not as it was written, as far as that shows in a list: to
    read its events is an error then. Without a workflow's name not even its id is certain.
    ``waits_for`` is what a suspended run waits for; of one that has no end, what its last event
    says that it does. ``forked_from`` is the run, and the step or None, that it was forked from.
    """

    run_id: str
    workflow_name: str
    status: RunStatus | None
    started_at: float
    events: int
    updated_at: float = 0.0
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    holder: Holder | None = None
    damaged: str = ""
    waits_for: tuple[WaitsFor, ...] = field(default=(), metadata=NEWER)
    forked_from: tuple[str, str | None] | None = field(default=None, metadata=NEWER)


@dataclass(frozen=True, slots=True)
class Letter:
    """What somebody outside a drive has to say to a run: an answer, a signal, a cancellation.

    ``event`` carries run id and time, and no number of its own in the run yet. Of the messages of
    one run with the same ``key`` only the first is kept; an empty key is no key. ``number`` counts
    the messages of a run from 1, and is given by the journal.
    """

    event: Message
    key: str = ""
    number: int = 0


def waits_of(events: Sequence[Event], now: float) -> tuple[WaitsFor, ...]:
    """What a run waits for: as it was suspended, or by its last event, while it has no end."""
    for event in reversed(events):
        match event:
            case RunSuspended():
                return event.waits_for
            case WorkflowCompleted():
                return ()
            case WorkflowStarted() | RunResumed():
                break
            case _:
                pass
    return waits_since(events[-1], now) if events else ()


def waits_since(last: Event, now: float) -> tuple[WaitsFor, ...]:
    """What a run without an end waits for, by its last event: else something would have followed;
    nothing if that is over.
    """
    wait = wait_begun(last)
    is_over = wait is None or (wait.until is not None and wait.until <= now)
    return () if wait is None or is_over else (wait,)


_WHY = {"sleep": "sleep", "retry": "retry", "backoff": "retry", "cap": "usage_cap"}
"""What timers that hold up a step are called, by their reasons."""


def wait_begun(event: Event) -> WaitsFor | None:
    """What is waited for from this event on, if anything is."""
    match event:
        case GateOpened(path, gate):
            return WaitsFor("answer", path, gate.question, A_PERSON, gate.deadline)
        case StepStarted() if event.signal and event.verdict is not False:
            return WaitsFor("signal", event.path, event.signal, A_SENDER)
        case LadderStep(path) if event.parked:
            return WaitsFor("person", path, event.error, A_PERSON)
        case LadderStep(path) if event.due > event.at:
            return WaitsFor("time", path, event.kind, "", event.due)
        case TimerSet(path) if event.reason in _WHY:
            return WaitsFor("time", path, _WHY[event.reason], "", event.due)
        case ClaimWaiting(path):
            return WaitsFor("claim", path, event.what, event.holder)
        case _:
            return None


_ENDS_A_WAIT = (
    AgentGuided, AgentSessionStarted, AttemptFailed, ClaimGranted, ClaimLost, GateAnswered,
    LadderStep, StepCompleted,
)  # fmt: skip


def wait_after(event: Event, wait: WaitsFor | None) -> WaitsFor | None:
    """What a step waits for once this has happened to it, if it waited for ``wait`` before."""
    begun = wait_begun(event)
    if begun is None:
        return None if isinstance(event, _ENDS_A_WAIT) else wait
    is_known = wait is not None and (wait.kind, wait.until) == ("time", begun.until)
    return wait if is_known and isinstance(event, TimerSet) else begun  # its failure has said why


def status_of(events: Sequence[Event]) -> RunStatus | None:
    """How a run stands by its events; None while a drive has no end."""
    for event in reversed(events):
        match event:
            case WorkflowCompleted():
                return event.status
            case RunSuspended():
                return "suspended"
            case WorkflowStarted() | RunResumed():
                return None
            case _:
                pass  # an answer or a signal that came after the drive's last event
    return None


def info_of(run_id: str, events: Sequence[Event], holder: Holder | None, now: float) -> RunInfo:
    """A run as it is listed, by all of its events."""
    first, last = events[0], events[-1]
    started = first if isinstance(first, WorkflowStarted) else WorkflowStarted("")
    return RunInfo(
        run_id,
        started.workflow_name,
        status_of(events),
        first.at,
        len(events),
        last.at,
        dict(started.labels),
        holder,
        waits_for=waits_of(events, now),
        forked_from=started.forked_from,
    )


class Lease(Protocol):
    """The right to write a run, until it is released or lost."""

    def release(self) -> None:
        """Give it back; a second time, or after it was lost, does nothing."""
        ...


class GroupAppend(Protocol):
    """``append_all`` of a journal: it stores events of one run in order, all of them or none.

    A journal may have it, and is asked for it where several events are to be stored: a transaction
    may cost more than what is in it. ``sync`` and errors are those of ``append``; after an error
    nothing was stored.
    """

    def __call__(
        self, events: Sequence[Event], /, *, sync: bool = False
    ) -> Awaitable[None] | None: ...


def group_append(journal: Journal) -> GroupAppend | None:
    """What stores several events as one, if the journal has it; not where its class has an
    ``append`` of its own that this would go past.
    """
    return cast("GroupAppend | None", _besides(journal, "append_all", "append"))


class ReadAfter(Protocol):
    """``events_after`` of a journal: the events of a run behind the number of one that it has.

    A journal may have it, and is asked for it where a run is followed: what was read before need
    not be read again. ``secrets`` as in ``events``.
    """

    def __call__(
        self, run_id: str, after: int, /, *, secrets: Mapping[str, str] | None = None
    ) -> Sequence[Event] | None:
        """Them, in order; None if it has no event of that number."""
        ...


def read_after(journal: Journal) -> ReadAfter:
    """What reads the events behind a number; of a journal that has no such way, all are read."""
    own = cast("ReadAfter | None", _besides(journal, "events_after", "events"))
    if own is not None:
        return own

    def of_all(
        run_id: str, after: int, /, *, secrets: Mapping[str, str] | None = None
    ) -> Sequence[Event] | None:
        found = journal.events(run_id, secrets=secrets)
        return found[after:] if len(found) >= after else None

    return of_all


def _besides(journal: Journal, name: str, plain: str) -> object:
    """A method that a journal need not have; None where a class has only the plain one."""
    for kind in type(journal).__mro__:
        if name in vars(kind):
            return getattr(journal, name)
        if plain in vars(kind):
            return None
    return None


class Journal(Protocol):
    """The append-only store of the events of runs, and the messages to them.

    Events of a run are numbered by ``seq`` from 1 without a hole; ``append`` of any other number
    is refused. What ``append`` returned from (or whose awaitable completed) survives whatever the
    journal promises to survive. ``events`` gives them back in order, equal to what was appended;
    a value whose class cannot be found comes back as ``Unresolved``. It may have ``append_all`` and
    ``events_after`` as well: see ``GroupAppend`` and ``ReadAfter``.

    Contract suite: ``handrail.testing.contracts.JournalContract``.
    """

    @property
    def durable(self) -> bool:
        """True if its runs outlive the process."""
        ...

    @property
    def codec(self) -> Codec:
        """How it writes values."""
        ...

    def append(self, event: Event, /, *, sync: bool = False) -> Awaitable[None] | None:
        """Store the event; if an awaitable comes back, it is stored once that completes.

        ``sync``: on disk, not only out of the process. While this journal holds the lease of the
        event's run, nothing is stored once that was taken over; without a lease nothing is checked.

        Raises:
            OutputNotSerializable: a value in it could not come back equal; nothing was stored, and
                the same number can be used for another event.
            LeaseLost: another process drives the run now; nothing was stored.
            Exception: it was not stored; the run cannot go on.
        """
        ...

    def append_run(
        self,
        events: Sequence[Event],
        /,
        *,
        letters: Sequence[Letter] = (),
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        """Store all events of a run that has none yet, or nothing. The first one says which run it
        is; others may be events of another run that is stored here, which stays as it is. They are
        numbered from 1, by their places. With them come ``letters`` to it, none of the same key.

        ``secrets`` as in ``acquire``. When it returns, they survive what the journal promises.

        Raises:
            RunIdTaken: there is such a run. OutputNotSerializable: see ``append``.
        """
        ...

    def events(
        self, run_id: str, /, *, secrets: Mapping[str, str] | None = None
    ) -> Sequence[Event]:
        """All events of a run, in order; empty for a run that it does not know.

        References to ``secrets`` are resolved, by these or by those of the lease that is held.
        """
        ...

    def runs(self) -> Sequence[RunInfo]:
        """Every run, oldest first."""
        ...

    def acquire(self, run_id: str, /, *, secrets: Mapping[str, str] | None = None) -> Lease:
        """Become the one who drives a run, whether it has events already or not.

        ``secrets`` are values by the name of their environment variable: while the lease is held,
        they are written as a reference to the variable.

        Raises:
            RunLocked: somebody who may still live drives it.
        """
        ...

    def post(self, letter: Letter, /, *, secrets: Mapping[str, str] | None = None) -> Letter:
        """Keep a message for its run; the one that counts: itself numbered, or its key's first.

        What comes back for a message that counts holds the very event that was posted. ``secrets``
        as in ``acquire``, for who holds no lease.
        When it returns, the message survives what the journal promises. Any process may post, to a
        run that is alive, suspended or dead.
        """
        ...

    def letters(self, run_id: str, after: int, /) -> Sequence[Letter]:
        """The messages of a run whose number is greater than ``after``, in order."""
        ...

    def close(self) -> None:
        """Release what the journal holds; it can be used again afterwards."""
        ...
