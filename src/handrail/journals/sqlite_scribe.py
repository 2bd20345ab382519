"""A thread that does what would stall an event loop: writes that must wait, and syncs to disk.

Whoever asks while a sync is under way shares the next one. A write that found the database locked
is retried here; those that come while it waits queue up behind it, so that all keep their order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeAlias

from handrail.journals.waking import Pending

Job: TypeAlias = tuple[Callable[[], None] | None, bool, Pending]


class Scribe:
    """The thread, started when it is first asked; ``sync`` makes all that was written so far
    survive a loss of power.
    """

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self.starting = threading.Lock()
        self.waiting = 0
        """How many writes are queued; while there are any, no other may overtake them."""
        self.unfinished = 0
        """How many of those who asked wait still."""

    def ask(self, write: Callable[[], None] | None, pending: Pending, *, sync: bool) -> Pending:
        """Write, if there is something to, then sync, if asked to; ``pending`` is done then."""
        with self.starting:
            self.unfinished += 1
            if write is not None:
                self.waiting += 1
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="handrail journal scribe", daemon=True
                )
                self._thread.start()
            self._queue.put((write, sync, pending))
        return pending

    def stop(self) -> None:
        """Finish what was asked for, and end the thread."""
        with self.starting:
            thread, self._thread = self._thread, None
            if thread is None:
                return
            self._queue.put(None)
        if thread is not threading.current_thread():
            thread.join()

    def _work(self) -> None:
        queue = self._queue
        while True:
            job = queue.get()
            batch: list[Job] = []
            while job is not None:
                batch.append(job)
                try:
                    job = queue.get_nowait()
                except Empty:
                    break
            self._do(batch)
            if job is None:
                return

    def _do(self, batch: list[Job]) -> None:
        unsynced: list[Pending] = []
        for write, sync, pending in batch:
            if write is not None:
                self._write(write, pending)
            if sync and pending.error is None:
                unsynced.append(pending)
            else:
                self._finish(pending)
        if not unsynced:
            return
        try:
            self._sync()
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            for pending in unsynced:
                pending.error = error
        for pending in unsynced:
            self._finish(pending)

    def _finish(self, pending: Pending) -> None:
        with self.starting:
            self.unfinished -= 1
        pending.finish()

    def _write(self, write: Callable[[], None], pending: Pending) -> None:
        try:
            write()
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            pending.error = error
        finally:
            with self.starting:
                self.waiting -= 1
