"""Looks for messages to the live runs of a journal, once for all drives of one event loop; and for
events, once for all that follow runs.

Each drive has a task that wants to look, and one of these looks for all: the one that has the lock.
When its drive ends, the next one goes on. Where the journal can say whether it was written
(``ports.journal.Version``), nothing else is read until it was. Followers take turns likewise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from typing import Protocol

import anyio
from anyio.lowlevel import RunVar

from handrail.ports.journal import Journal, last_letters, version_of

LOOK_EVERY_S = 0.1
"""How often to look for messages from other processes."""
UNREADABLE = 50
"""How many looks may fail in a row before a drive ends. A journal that cannot be read can hardly
be written: work would be done in vain, and no message could cancel the run any more."""


class Reader(Protocol):
    """A drive that reads its messages."""

    @property
    def run_id(self) -> str:
        """The run."""
        ...

    @property
    def last_read(self) -> int:
        """The number of the last message that it read."""
        ...

    def read_messages(self) -> None:
        """Read the new messages."""

    def cannot_read(self, error: Exception) -> None:
        """End, since this was raised at each of many looks."""


class MessageWatch:
    """The drives of one journal in one event loop, and how many of their looks failed in a row."""

    def __init__(self, journal: Journal) -> None:
        self._version, self._last_letters = version_of(journal), last_letters(journal)
        self._looks = anyio.Lock()
        self._seen: object = None
        self._last: Mapping[str, float] = {}
        self._behind: list[Reader] = []
        """The drives that may have messages to read."""
        self.readers: dict[Reader, int] = {}

    async def watch(self, reader: Reader) -> None:
        """Have the messages to a run read until this is cancelled."""
        self.readers[reader] = 0
        self._seen = None  # nothing is known of this run yet
        try:
            async with self._looks:
                while True:
                    await anyio.sleep(LOOK_EVERY_S)
                    self._look()
        finally:
            del self.readers[reader]

    def _look(self) -> None:
        wrong = self._ask()
        behind, self._behind = self._behind, []
        for reader in behind:
            if reader in self.readers:
                error = wrong or self._read(reader)
                failed = self.readers[reader] = 0 if error is None else self.readers[reader] + 1
                if error is not None and failed == UNREADABLE:
                    reader.cannot_read(error)

    def _ask(self) -> Exception | None:
        """Ask which runs have messages, if the journal was written since the last look."""
        try:
            version = None if self._version is None else self._version()
            if version is None or version != self._seen:
                self._last = self._last_letters([one.run_id for one in self.readers])
                self._seen, self._behind = version, list(self.readers)
        except Exception as error:  # noqa: BLE001  # of any journal; counted
            self._seen, self._behind = None, list(self.readers)
            return error
        return None

    def _read(self, reader: Reader) -> Exception | None:
        """Have a drive read its messages; one that leaves some is asked again at the next look."""
        try:
            if self._last.get(reader.run_id, 0) > reader.last_read:
                self._behind.append(reader)
                reader.read_messages()
        except Exception as error:  # noqa: BLE001  # it must not end the looks of other drives
            return error
        return None


_watches: RunVar[dict[Journal, MessageWatch]] = RunVar("handrail message watches")


async def watch_messages(journal: Journal, reader: Reader) -> None:
    """Have the messages to a run read until this is cancelled."""
    try:
        here = _watches.get()
    except LookupError:
        here = dict[Journal, MessageWatch]()
        _watches.set(here)
    if journal not in here:
        here[journal] = MessageWatch(journal)
    watch = here[journal]
    try:
        await watch.watch(reader)
    finally:
        if not watch.readers and here.get(journal) is watch:
            del here[journal]


class WriteWatch:
    """Those that follow runs of one journal in one event loop, and what they know of it. Mutable.

    The first of them to wait looks for all; each that is woken may be the next.
    """

    def __init__(self, journal: Journal) -> None:
        self._version = version_of(journal)
        self._waiting = set[anyio.Event]()
        self._is_watched = False
        self.followers = 0
        self.seen: object = None
        """What the last look saw. A follower takes it before it reads its run."""

    async def changed(self, seen: object) -> None:
        """Wait until there may be more to read than when this was seen."""
        if self.seen is not seen:
            return
        if self._is_watched:
            mine = anyio.Event()
            self._waiting.add(mine)
            try:
                await mine.wait()
            finally:
                self._waiting.discard(mine)
            return
        self._is_watched = True
        try:
            while self.seen is seen:
                await anyio.sleep(LOOK_EVERY_S)
                version = None if self._version is None else self._version()
                if version is None:
                    break
                if version != self.seen:
                    self.wake(version)
        finally:
            self._is_watched = False
            self.wake(self.seen)

    def wake(self, seen: object) -> None:
        """Have all followers read on."""
        self.seen = seen
        for one in self._waiting:
            one.set()


_write_watches: RunVar[dict[Journal, WriteWatch]] = RunVar("handrail write watches")


def _watches_of_writes() -> dict[Journal, WriteWatch]:
    try:
        return _write_watches.get()
    except LookupError:
        _write_watches.set(here := dict[Journal, WriteWatch]())
        return here


@contextlib.contextmanager
def watch_writes(journal: Journal) -> Generator[WriteWatch]:
    """The watch of a journal, for a follower of one of its runs."""
    here = _watches_of_writes()
    watch = here.setdefault(journal, WriteWatch(journal))
    watch.followers += 1
    try:
        yield watch
    finally:
        watch.followers -= 1
        if not watch.followers:
            del here[journal]


def wake_followers(journal: Journal) -> None:
    """Have all that follow runs of a journal look again, though nothing was written."""
    watch = _watches_of_writes().get(journal)
    if watch is not None:
        watch.wake(object())
