"""Counts the users of a journal in this process, and closes it when the last one has gone. Through
it an executor also finds the drivers of the others, and reads the journal beside the event loop.
"""

from __future__ import annotations

import contextlib
import math
import threading
import weakref
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, TypeVar

import anyio.to_thread

from handrail.ports.journal import Journal, last_events
from handrail.system.forks import reset_in_child

if TYPE_CHECKING:
    from handrail.engine.driver import Driver

T = TypeVar("T")
LONG_RUN = 1_000
"""How many events take longer to read than an event loop may wait: about 10 ms."""


class JournalUsers:
    """The runs, calls and ``async with`` blocks of all executors on one journal. Mutable; from any
    thread.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = weakref.ref(journal)
        self.forget_all()

    def forget_all(self) -> None:
        """Start again at zero: a forked child process has no users yet."""
        self._lock = threading.Lock()
        self._count = 0
        self.drivers: dict[str, Driver] = {}
        """The drivers of this process, by run id; each takes calls from any thread."""

    @contextlib.contextmanager
    def using(self) -> Generator[None]:
        """Keep the journal open while the block lasts."""
        self.register()
        try:
            yield
        finally:
            self.release()

    async def read(self, reading: Callable[[], T], *run_ids: str) -> T:
        """The result of ``reading``, which reads these runs; the journal stays open meanwhile.

        If the journal says that one of them is long, a thread calls it, outside of the shared
        thread limit, and the event loop goes on. A caller that is cancelled does not wait for the
        thread.
        """

        def read() -> T:
            with self.using():
                return reading()

        with self.using():
            journal = self._journal()
            last = last_events(journal)(run_ids).values() if journal is not None else ()
            if not any(LONG_RUN <= number < math.inf for number in last):
                return reading()
            return await anyio.to_thread.run_sync(
                read, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
            )

    def register(self) -> None:
        """Count one more."""
        with self._lock:
            self._count += 1

    def release(self) -> None:
        """Count one less; the last one closes the journal, before another registers."""
        with self._lock:
            self._count -= 1
            journal = self._journal()
            if not self._count and journal is not None:
                journal.close()


_users: weakref.WeakKeyDictionary[Journal, JournalUsers] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def users_of(journal: Journal) -> JournalUsers:
    """The users of this journal; one object for all executors on it."""
    with _lock:
        users = _users.get(journal)
        if users is None:
            users = _users[journal] = JournalUsers(journal)
        return users


@reset_in_child
def _forget_all() -> None:
    global _lock  # noqa: PLW0603  # a thread that the child lacks may have locked it
    _lock = threading.Lock()
    for users in list(_users.values()):
        users.forget_all()
