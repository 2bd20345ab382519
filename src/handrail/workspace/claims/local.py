"""The claims of one machine, as the port: a file for each repository, and a thread that waits.

Theory of operation. A file of claims is read and written in threads, since another process may
have it locked. Who waits is no thread: one of them looks for all that wait in a file whether
somebody wrote it, every 20 ms, and now and then whether who is in the way still lives. The same
thread renews what is held. It begins with the first thing to be kept, and ends when nothing is.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import anyio

from handrail.errors import ClaimsFailed, ClaimTimeout
from handrail.model.policy import positive_seconds
from handrail.ports.claims import Claim, ClaimList, ClaimRequest, Waiting, text_of
from handrail.workspace.claims.store import Store
from handrail.workspace.claims.waiting import Awaited, in_thread
from handrail.workspace.places import state_home

T = TypeVar("T")

_POLL_S = 0.02
_LOOK_S = 0.1
"""How often it is looked whether who is in the way lives."""
_FAILS_S = 10.0
"""So long a file may fail before those who wait in it fail, too."""


def claims_file(repository: str) -> Path:
    """Where claims of a repository are kept: in its git directory; empty: those of no repository,
    with what programs keep for this user.
    """
    home = Path(repository) if repository else state_home()
    return home / "handrail" / "claims.db"


class LocalClaims:
    """Claims that all processes of this machine see; see the port.

    They are kept in ``handrail/claims.db`` of the git directory that all working trees of a
    repository share; those of no repository in ``handrail/claims.db`` of ``XDG_STATE_HOME``
    (``~/.local/state``). ``lease_s``: a process that lives, and does not stir for so long, loses
    what somebody waits for; one that died loses it at once. ``repositories`` are git directories
    that ``listed`` looks at besides those in which something was claimed.
    """

    def __init__(self, *repositories: str | os.PathLike[str], lease_s: float = 30.0) -> None:
        self._lease_s = positive_seconds(lease_s, "lease_s of LocalClaims")
        self._lock = threading.Lock()
        self._queues: dict[str, _ClaimQueue] = {}
        for repository in repositories:
            self._queue_of(os.fspath(repository))

    async def acquire(self, request: ClaimRequest, /, *, waiting: Waiting | None = None) -> Claim:
        """The claim, as soon as it is granted; see the port."""
        queue = self._queue_of(_repository(request))
        waiter = _Waiter(request)
        try:
            with anyio.move_on_after(request.wait_s or None):
                await in_thread(lambda: queue.ask(waiter))
                await waiter.until(lambda: waiter.claim is not None, waiting)
            return waiter.claim_in_time()
        except BaseException:
            queue.abandon(waiter)
            raise

    async def release(self, claim: Claim, /) -> None:
        """End it; see the port."""
        queue = self._queue_of(claim.resources[0].repository)
        await in_thread(lambda: queue.end(claim))

    async def is_held(self, claim: Claim, /) -> bool:
        """True if it did not end; see the port."""
        store = self._queue_of(claim.resources[0].repository).store
        return await in_thread(lambda: store.is_held(claim))

    async def others_since(self, claim: Claim, since: int | None = None, /) -> Sequence[Claim]:
        """What others held since then; see the port."""
        store = self._queue_of(claim.resources[0].repository).store
        return await in_thread(lambda: store.others_since(claim, since))

    async def listed(self) -> ClaimList:
        """All that is held, and all who wait, in the files that are looked at."""
        queues = list(self._queues.values())
        lists = [await in_thread(queue.listed) for queue in queues]
        return ClaimList(
            tuple(claim for one in lists for claim in one.held),
            tuple(wait for one in lists for wait in one.waiting),
        )

    async def close(self) -> None:
        """Give back what was acquired here, and let go of the files; see the port."""
        for queue in list(self._queues.values()):
            await in_thread(queue.close)

    def _queue_of(self, repository: str) -> _ClaimQueue:
        with self._lock:
            found = self._queues.get(repository)
            if found is None:
                path = claims_file(repository)
                found = self._queues[repository] = _ClaimQueue(path, self._lease_s)
            return found


def _repository(request: ClaimRequest) -> str:
    found = {resource.repository for resource in request.resources}
    if len(found) != 1:
        raise ValueError(f"a request is for resources of one repository, got {sorted(found)}")
    return found.pop()


class _Waiter(Awaited):
    """A request that was made here, and what became of it. Mutable."""

    def __init__(self, request: ClaimRequest) -> None:
        super().__init__()
        self.request = request
        self.number = 0
        """Its place in line; 0 if it has none."""
        self.claim: Claim | None = None
        self.abandoned = False

    def claim_in_time(self) -> Claim:
        """The claim.

        Raises:
            ClaimTimeout: it was not granted.
        """
        if self.claim is not None:
            return self.claim
        request, holders = self.request, [*map(str, self.behind)]
        what, seconds = text_of(request.resources), request.wait_s or 0.0
        raise ClaimTimeout(str(request.claimant), what, seconds, holders)


class _ClaimQueue:
    """The line of one claims file: who waits and what is held here. Mutable; any thread."""

    def __init__(self, path: Path, lease_s: float) -> None:
        self.store = Store(path, lease_s)
        self._renew_s = lease_s / 3
        self.begin()
        _queues.add(self)

    def begin(self) -> None:
        """Begin with nothing, in a child process, too: there the threads are gone."""
        self._lock = threading.RLock()
        self._waiters: dict[int, _Waiter] = {}
        self._abandoned: deque[_Waiter] = deque()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._failing_since: float | None = None
        self._closed = False

    def ask(self, waiter: _Waiter) -> None:
        """Have it granted, or put into the line."""
        with self._lock:
            self._drop_abandoned()
            self._closed = False
            asked = self.store.ask(waiter.request)
            if isinstance(asked, Claim):
                waiter.claim = asked
            else:
                waiter.number, waiter.behind = asked.number, asked.behind
                self._waiters[asked.number] = waiter
            if waiter.abandoned:
                self._drop(waiter)
            if self.store.busy and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(
                    target=self._run, name="handrail claims", daemon=True
                )
                self._thread.start()
            self._wake.set()

    def abandon(self, waiter: _Waiter) -> None:
        """Have it leave the line, or give back what it got too late; soon, for this does not wait.

        Whatever is asked of the queue later comes after that.
        """
        waiter.abandoned = True
        self._abandoned.append(waiter)
        self._wake.set()

    def end(self, claim: Claim) -> None:
        """End a claim; who is next in line for it here has it when this returns."""
        with self._lock:
            self._drop_abandoned()
            self.store.end(claim)
            if self._waiters:
                with suppress(ClaimsFailed):  # the thread looks again
                    self._look()
            if self._closed:  # it was on its way: nobody lets go of the file after this
                self.store.disconnect()
            self._wake.set()

    def listed(self) -> ClaimList:
        """All that is held, and all who wait."""
        with self._lock:
            self._drop_abandoned()
            return self.store.listed()

    def close(self) -> None:
        """End all that is kept here, let who waits here fail, and let go of the file."""
        with self._lock:
            for waiter in self._waiters.values():
                doing = f"waiting for {text_of(waiter.request.resources)}"
                waiter.error = ClaimsFailed(str(self.store.path), doing, "it was closed")
                waiter.wake()
            self._waiters.clear()
            self._closed = True
            self.store.close()
            self._wake.set()

    # -- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        renew_at, look_at = time.monotonic() + self._renew_s, 0.0
        while True:
            waits_s = _POLL_S if self._waiters else max(0.0, renew_at - time.monotonic())
            poked = self._wake.wait(waits_s)
            self._wake.clear()
            with self._lock:
                now = time.monotonic()
                self._drop_abandoned()
                if not self.store.busy:
                    self._thread = None
                    return
                try:
                    if self._waiters and (poked or now >= look_at or self.store.changed()):
                        look_at = now + _LOOK_S
                        self._look()
                    if now >= renew_at:
                        renew_at = now + self._renew_s
                        self.store.renew()
                except ClaimsFailed as error:
                    self._failed(error, now)
                else:
                    self._failing_since = None

    def _look(self) -> None:
        for number, found in self.store.look(set(self._waiters)).items():
            waiter = self._waiters[number]
            if isinstance(found, Claim):
                del self._waiters[number]
                waiter.claim = found
                waiter.wake()
            elif found.behind != waiter.behind:
                waiter.behind = found.behind
                waiter.wake()

    def _failed(self, error: ClaimsFailed, now: float) -> None:
        """Have who waits fail, if this lasts."""
        if self._failing_since is None:
            self._failing_since = now
        elif now - self._failing_since > _FAILS_S:
            for waiter in self._waiters.values():
                waiter.error = error
                waiter.wake()

    def _drop_abandoned(self) -> None:
        while self._abandoned:
            self._drop(self._abandoned.popleft())

    def _drop(self, waiter: _Waiter) -> None:
        self._waiters.pop(waiter.number, None)
        try:
            if waiter.claim is not None:
                self.store.end(waiter.claim)
            elif waiter.number:
                self.store.leave(waiter.number)
        except ClaimsFailed:
            return  # it goes with its process


_queues: weakref.WeakSet[_ClaimQueue] = weakref.WeakSet()


def _after_in_child() -> None:
    for queue in list(_queues):
        queue.begin()


os.register_at_fork(after_in_child=_after_in_child)
