"""A thread that moves pages from the write-ahead log into the database, and renews leases.

It also looks whether the file is still where it was, so that a run does not go on without one.

SQLite's own checkpoints run inside the commit that makes the log long, and stall it by the time of
two syncs and all the writes between. Here a connection of its own moves what it can while others
write. A log that is written without a pause is never moved to its end that way and grows for ever;
so when it is long, the last few pages are moved while this journal's own writes are held back:
they wait as awaitables, and the loop goes on.
"""

from __future__ import annotations

import sqlite3  # noqa: TID253 - loaded with SqliteJournal, on its first use
import threading
import time
from collections.abc import Callable

from handrail.journals.sqlite_open import connect, retry_busy
from handrail.journals.sqlite_watch import LOOK_EVERY_S

AFTER_PAGES = 1000
"""How many pages may be written before they are moved."""
LONG_PAGES = 2000
"""A log of more pages is begun anew, for which the writers must wait."""
_WAIT_S = 0.05


class Keeper:
    """The thread, started when it is first needed.

    ``renew`` renews every lease that is held, on the connection that it is given, and gives back
    those that could not be given back before; ``held`` says whether there are any, ``lost`` whether
    the file is gone. ``writing`` is the lock of the connection whose writes are held back.
    """

    def __init__(
        self,
        path: str,
        writing: threading.Lock,
        renew: Callable[[sqlite3.Connection], None],
        *,
        held: Callable[[], bool],
        lost: Callable[[], bool],
        every_s: float,
    ) -> None:
        self.lock = threading.Lock()
        self.written = 0
        """Pages written since the last checkpoint, about."""
        self.stale = False
        """True if its connection is to a file that is gone, and there may be another."""
        self._path = path
        self._writing = writing
        self._renew = renew
        self._held = held
        self._lost = lost
        self._every_s = every_s
        self._due = threading.Event()
        self._starting = threading.Lock()
        self._ending = False
        self._thread: threading.Thread | None = None
        self._connection: sqlite3.Connection | None = None

    def wake(self) -> None:
        """Have it look at once whether there is something to do."""
        if self._thread is None:
            with self._starting:
                self._start()
        self._due.set()

    def _start(self) -> None:
        if self._thread is None:
            self._ending = False
            self._thread = threading.Thread(
                target=self._work, name="handrail journal keeper", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._ending = True
            self._due.set()
            if thread is not threading.current_thread():
                thread.join()
        with self.lock:
            self.disconnect()

    def disconnect(self) -> None:
        """Close its connection, to be opened again; the caller holds the lock."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _work(self) -> None:
        next_renewal = time.monotonic() + self._every_s
        while True:
            wait_s = max(0.0, min(LOOK_EVERY_S, next_renewal - time.monotonic()))
            self._due.wait(wait_s if self._held() else None)
            self._due.clear()
            if self._ending:
                return
            with self.lock:
                due = time.monotonic() >= next_renewal
                if due:
                    next_renewal = time.monotonic() + self._every_s
                lost = self._lost()
                if lost or self.stale:
                    self.stale = False
                    self.disconnect()
                if lost:  # nothing is to be opened, and so made, in its place
                    continue
                try:
                    if due:
                        retry_busy(lambda: self._renew(self._connected()), self._every_s)
                    if self.written >= AFTER_PAGES:
                        self.written = 0
                        self._checkpoint(self._connected())
                except sqlite3.Error:  # whoever writes will meet it too, and say so
                    self.disconnect()

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = connect(self._path, _WAIT_S)
        return self._connection

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        passive = "PRAGMA wal_checkpoint(PASSIVE)"
        connection.execute(passive).fetchone()
        _, pages, _ = connection.execute(passive).fetchone()  # what came in during the first
        if pages < LONG_PAGES:
            return
        with self._writing:
            connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
            # The first write to the new log syncs its header; better here than on the loop.
            self._renew(connection)
