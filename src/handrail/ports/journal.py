"""The port through which a run's events are stored, and messages reach it."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar, cast

from handrail.model.dataclass import dataclass
from handrail.model.events import Event, Posted, RunSuspended
from handrail.model.results import RunStatus, WaitsFor

if TYPE_CHECKING:
    from handrail.codec.codec import Codec

T = TypeVar("T")
Message: TypeAlias = Posted | RunSuspended
"""``RunSuspended`` is no message to a drive: it says why none could go on from this record."""
SCHEDULE_LABEL = "schedule"
"""The label of a run that a schedule began: the schedule's name. A fork of it has none."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that drives a run, since when (unix seconds), and whether it still lives."""

    pid: int
    host: str
    since: float
    alive: bool = True


IMPORTED = "imported"
"""The label of a run that did not begin in its journal: the file that it is from."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """One run as a journal lists it; ``status`` is None while it has no end.

    ``updated_at`` is the time of its last event, ``holder`` the process that drives it now, if any.
    ``damaged`` describes damage to its record, as far as a list shows it; reading the events then
    raises. If the workflow's name is missing, even the run's id is uncertain. ``waits_for`` is what
    a suspended run waits for; for a run without an end it is derived from its last event.
    ``forked_from`` is the run that it was forked from, and the step (or None).
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
    waits_for: tuple[WaitsFor, ...] = ()
    forked_from: tuple[str, str | None] | None = None


@dataclass(frozen=True, slots=True)
class Letter:
    """A message to a run from outside its drive: an answer, a signal, a cancellation.

    ``event`` has run id and time, but no ``seq`` in the run yet. Of a run's messages with the same
    ``key`` the journal keeps only the first; an empty key never matches. The journal sets
    ``number``, which counts the messages of a run from 1.
    """

    event: Message
    key: str = ""
    number: int = 0


class Lease(Protocol):
    """The right to write a run, until it is released or lost."""

    def release(self) -> None:
        """Release the lease; a second time, or after the lease was lost, does nothing."""
        ...


class GroupAppend(Protocol):
    """``append_all`` of a journal: it stores events of one run in order, all of them or none.

    Optional. Callers use it to store several events at once: a transaction may cost more than
    the rows in it. ``sync`` and errors are those of ``append``; after an error nothing was stored.
    """

    def __call__(
        self, events: Sequence[Event], /, *, sync: bool = False
    ) -> Awaitable[None] | None: ...


def group_append(journal: Journal) -> GroupAppend | None:
    """The journal's ``append_all``, or None. Also None if a subclass overrides only ``append``: its
    override would be bypassed.
    """
    return cast("GroupAppend | None", _besides(journal, "append_all", "append"))


class SyncLater(Protocol):
    """``sync_later`` of a journal that syncs each end of a step before the run continues, but can
    store several with ``append(event, sync=None)`` and sync them together. Optional.

    The driver stores so the ends of steps without effects outside, if only such steps follow.
    """

    def __call__(self) -> Awaitable[None] | None:
        """Have all that was stored on disk; as ``append`` with ``sync``."""
        ...


def sync_later(journal: Journal) -> SyncLater | None:
    """The journal's ``sync_later``; None if it has none, or does not sync each end anyway."""
    return cast("SyncLater | None", _besides(journal, "sync_later", "append"))


class ReadAfter(Protocol):
    """``events_after`` of a journal: the events of a run whose number is greater than ``after``.

    Optional. It is called where a run is followed, so that events already read are not read again.
    ``secrets`` as in ``events``.
    """

    def __call__(
        self, run_id: str, after: int, /, *, secrets: Mapping[str, str] | None = None
    ) -> Sequence[Event] | None:
        """These events, in order; None if the run has fewer than ``after`` events."""
        ...


def read_after(journal: Journal) -> ReadAfter:
    """The journal's ``events_after``, or a fallback that reads all events."""
    own = cast("ReadAfter | None", _besides(journal, "events_after", "events"))
    if own is not None:
        return own

    def of_all(
        run_id: str, after: int, /, *, secrets: Mapping[str, str] | None = None
    ) -> Sequence[Event] | None:
        found = journal.events(run_id, secrets=secrets)
        return found[after:] if len(found) >= after else None

    return of_all


class Version(Protocol):
    """``version`` of a journal: a value that is another once any process has written to it.

    Optional. It is called ten times a second, to read nothing else while nothing was written. It
    may differ without a reason, but must not stay the same after a write that has returned.
    """

    def __call__(self) -> object: ...


def version_of(journal: Journal) -> Version | None:
    """The journal's ``version``, or None. Also None if a subclass overrides only ``letters``."""
    return cast("Version | None", _besides(journal, "version", "letters"))


class LastNumbers(Protocol):
    """``last_letters`` and ``last_events`` of a journal: by run, the number of its last message, or
    event; without those of none.

    Optional. They answer for all live runs of a process, or all that it follows, in one call. An
    executor reads a run in a thread if ``last_events`` says that it is long.
    """

    def __call__(self, run_ids: Collection[str], /) -> Mapping[str, float]: ...


def last_letters(journal: Journal) -> LastNumbers:
    """The journal's ``last_letters``, or a fallback by which each run may have new messages."""
    own = cast("LastNumbers | None", _besides(journal, "last_letters", "letters"))
    return own or _unknown


def last_events(journal: Journal) -> LastNumbers:
    """The journal's ``last_events``, or a fallback by which each run may have new events."""
    own = cast("LastNumbers | None", _besides(journal, "last_events", "events"))
    return own or _unknown


def _unknown(run_ids: Collection[str], /) -> Mapping[str, float]:
    return dict.fromkeys(run_ids, math.inf)


class WhenFree(Protocol):
    """``when_free`` of a journal: the result of a function that calls the journal.

    Optional. It is awaited on event loops for ``acquire``, ``post``, ``append_run`` and the release
    of a lease, where these may have to wait for another process. Then another thread calls the
    function again, until it need not wait. Once ``when_free`` has returned or raised, nothing calls
    it any more, also if the task was cancelled.
    """

    async def __call__(self, action: Callable[[], T], /) -> T: ...


def when_free(journal: Journal) -> WhenFree:
    """The journal's ``when_free``, or a fallback that calls the function at once."""
    own: WhenFree | None = getattr(journal, "when_free", None)
    return own or _at_once


async def _at_once(action: Callable[[], T], /) -> T:
    return action()


def _besides(journal: Journal, name: str, plain: str) -> object:
    """An optional method; None if a subclass overrides only the plain one."""
    for kind in type(journal).__mro__:
        if name in vars(kind):
            return getattr(journal, name)
        if plain in vars(kind):
            return None
    return None


class Journal(Protocol):
    """The append-only store of the events of runs, and the messages to them.

    Events of a run are numbered by ``seq`` from 1 without a gap; ``append`` refuses any other
    number. Once ``append`` has returned (or its awaitable completed), the event survives whatever
    the journal promises to survive. ``events`` returns them in order, equal to those appended; a
    value whose class cannot be found comes back as ``Unresolved``. A durable journal is read from
    several threads at once, so that no event loop waits. It may also have ``append_all``,
    ``sync_later``, ``events_after``, ``version``, ``last_letters``, ``last_events`` and
    ``when_free``: see ``GroupAppend``, ``SyncLater``, ``ReadAfter``, ``Version``, ``LastNumbers``
    and ``WhenFree``.

    Contract suite: ``handrail.testing.contracts.JournalContract``.
    """

    @property
    def durable(self) -> bool:
        """True if its runs outlive the process."""
        ...

    @property
    def codec(self) -> Codec:
        """The codec that writes its values."""
        ...

    def append(self, event: Event, /, *, sync: bool = False) -> Awaitable[None] | None:
        """Store the event; if an awaitable comes back, it is stored once that completes.

        ``sync``: flush to disk, not only out of the process. If this journal has the lease of the
        event's run, ``append`` first checks that no other process took the lease over. Without a
        lease it checks nothing.

        Raises:
            OutputNotSerializable: a value in it could not come back equal; nothing was stored, and
                the same number can be used for another event.
            LeaseLost: another process drives the run now; nothing was stored.
            Exception: it was not stored; the run cannot continue.
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
        """Store all events of a run that has none yet, or nothing.

        The first event names the run; the others may come from another stored run, which does not
        change. The journal numbers them from 1 in the given order. It stores ``letters`` as
        messages to the run, as ``post`` does: of one key only the first. ``secrets`` as in
        ``acquire``. Once ``append_run`` returns, all of them survive what the journal promises.

        Raises:
            RunIdTaken: the run exists. OutputNotSerializable: see ``append``.
        """
        ...

    def events(
        self, run_id: str, /, *, secrets: Mapping[str, str] | None = None
    ) -> Sequence[Event]:
        """All events of a run, in order; empty for an unknown run.

        References to secrets are resolved with ``secrets``, or else with those of its lease.
        """
        ...

    def runs(self) -> Sequence[RunInfo]:
        """Every run, oldest first."""
        ...

    def acquire(self, run_id: str, /, *, secrets: Mapping[str, str] | None = None) -> Lease:
        """Become the driver of a run, whether it has events already or not.

        ``secrets`` are values by the name of their environment variable: while the lease lasts, the
        journal writes a reference to the variable instead of the value.

        Raises:
            RunLocked: a process that may still live drives it.
        """
        ...

    def post(self, letter: Letter, /, *, secrets: Mapping[str, str] | None = None) -> Letter:
        """Store a message for its run; returns it numbered, or the earlier message with its key.

        If this message was stored, the returned letter has the same event object. ``secrets`` as in
        ``acquire``, for callers without a lease. Once ``post`` returns, the message survives what
        the journal promises. Any process may post, to a run that is alive, suspended or dead.
        """
        ...

    def letters(self, run_id: str, after: int, /) -> Sequence[Letter]:
        """The messages of a run whose number is greater than ``after``, in order."""
        ...

    def close(self) -> None:
        """Release files and leases; the journal can be used again afterwards."""
        ...
