"""Looks for messages to the live runs of a journal, once for all drives of one event loop; and for
events, once for all that follow runs.

One of those that wait looks for all of them; when it stops, the next one goes on. Where the journal
can say whether it was written (``ports.journal.Version``), nothing else is asked until it was; then
only those are woken that have something to read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable
from typing import Protocol, TypeAlias

import anyio
from anyio.lowlevel import RunVar

from handrail.ports.journal import Journal, LastNumbers, last_events, last_letters, version_of

LOOK_EVERY_S = 0.1
"""How often to look for what other processes wrote."""
UNREADABLE = 50
"""How many looks may fail in a row before a drive ends. A journal that cannot be read can hardly
be written: work would be done in vain, and no message could cancel the run any more."""


class Reader(Protocol):
    """Who reads the messages, or the events, of a run."""

    @property
    def run_id(self) -> str:
        """The run."""
        ...

    @property
    def last_read(self) -> int:
        """The number of the last one that it read."""
        ...


class Follower:
    """A reader of a run's events. Mutable."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.last_read = 0


class Drive(Reader, Protocol):
    """A drive that reads its messages."""

    def read_messages(self) -> None:
        """Read the new messages."""

    def cannot_read(self, error: Exception) -> None:
        """End, since this was raised at each of many looks."""


Kind: TypeAlias = Callable[[Journal], LastNumbers]


class Watch:
    """The readers of one kind in one event loop, on one journal. Mutable."""

    def __init__(self, journal: Journal, kind: Kind) -> None:
        self._version, self._last_numbers = version_of(journal), kind(journal)
        self._seen: object = None
        self._is_watched = self._tells_all = False
        self._waiting: dict[Reader, anyio.Event] = {}
        self._told: dict[Reader, Exception | None] = {}
        """Those that may have more to read, or the error of the look."""
        self.readers = set[Reader]()

    def add(self, reader: Reader) -> None:
        """Look for this one, too."""
        self.readers.add(reader)
        self._seen = None  # nothing is known of its run yet

    def remove(self, reader: Reader) -> None:
        """Look for this one no more."""
        self.readers.discard(reader)
        self._told.pop(reader, None)

    async def more(self, reader: Reader) -> None:
        """Wait until there may be more to read for this one.

        Raises:
            Exception: a look failed.
        """
        try:
            while reader not in self._told:
                if self._is_watched:
                    woken = self._waiting[reader] = anyio.Event()
                    await woken.wait()
                else:
                    await self._look_for_all(reader)
            error = self._told.pop(reader)
        finally:
            self._waiting.pop(reader, None)
            if not self._is_watched:
                for woken in self._waiting.values():  # the next one looks
                    woken.set()
                    break
        if error is not None:
            raise error

    async def _look_for_all(self, reader: Reader) -> None:
        """Look until there may be more for this one."""
        self._is_watched = True
        try:
            while reader not in self._told:
                await anyio.sleep(LOOK_EVERY_S)
                self._look()
        finally:
            self._is_watched = False

    def _look(self) -> None:
        try:
            version = None if self._version is None else self._version()
            if version is not None and version == self._seen:
                return
            last = self._last_numbers({reader.run_id for reader in self.readers})
        except Exception as error:  # noqa: BLE001  # of any journal
            self.look_again()
            self._tell(self.readers, error)
            return
        all_, self._tells_all, self._seen = self._tells_all, False, version
        self._tell(
            [one for one in self.readers if all_ or last.get(one.run_id, 0) != one.last_read]
        )

    def look_again(self) -> None:
        """Tell all at the next look: something could not be read."""
        self._seen, self._tells_all = None, True

    def tell_all(self) -> None:
        """Have all read on, though nothing was written."""
        self._tell(self.readers)

    def _tell(self, readers: Iterable[Reader], error: Exception | None = None) -> None:
        for reader in readers:
            self._told[reader] = error
            if reader in self._waiting:
                self._waiting[reader].set()


_watches: RunVar[dict[tuple[Journal, Kind], Watch]] = RunVar("handrail watches")


def _watches_here() -> dict[tuple[Journal, Kind], Watch]:
    try:
        return _watches.get()
    except LookupError:
        _watches.set(here := dict[tuple[Journal, Kind], Watch]())
        return here


@contextlib.contextmanager
def _watching(journal: Journal, kind: Kind, reader: Reader) -> Generator[Watch]:
    here, key = _watches_here(), (journal, kind)
    watch = here.get(key) or here.setdefault(key, Watch(journal, kind))
    watch.add(reader)
    try:
        yield watch
    finally:
        watch.remove(reader)
        if not watch.readers:
            del here[key]


async def watch_messages(journal: Journal, drive: Drive) -> None:
    """Have the messages to a run read until this is cancelled."""
    failed = 0
    with _watching(journal, last_letters, drive) as watch:
        while True:
            try:
                await watch.more(drive)
                drive.read_messages()
                failed = 0
            except Exception as error:  # noqa: BLE001  # of any journal; counted
                watch.look_again()
                failed += 1
                if failed == UNREADABLE:
                    drive.cannot_read(error)


@contextlib.contextmanager
def watch_events(journal: Journal, follower: Follower) -> Generator[Watch]:
    """The watch of a journal's events, for a follower of one of its runs."""
    with _watching(journal, last_events, follower) as watch:
        yield watch


def wake_followers(journal: Journal) -> None:
    """Have all that follow runs of a journal look again, though nothing was written."""
    watch = _watches_here().get((journal, last_events))
    if watch is not None:
        watch.tell_all()
