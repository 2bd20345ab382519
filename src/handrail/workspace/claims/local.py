"""Claims on one machine, as the port: a file for each repository, and a thread that polls it.

Theory of operation. Threads read and write the claims file, since another process may have it
locked. A waiting request needs no thread of its own: one thread for each file checks, for all of
them, every 20 ms whether another process wrote the file, and every 100 ms whether the claimants in
the way are alive. The same thread renews this process's claims. It starts with the first claim or
request, and ends when there are none.
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
from handrail.system.forks import reset_in_child
from handrail.workspace.claims.store import Store
from handrail.workspace.claims.waiting import Awaited, in_thread
from handrail.workspace.places import state_home

T = TypeVar("T")

_POLL_S = 0.02
_LOOK_S = 0.1
"""How often the thread checks whether the claimants in the way are alive."""
_FAILS_S = 10.0
"""How long a file may fail before the requests that wait in it fail, too."""


def claims_file(repository: str) -> Path:
    """The claims file in a repository's git directory; for "", the one in the user's state home."""
    home = Path(repository) if repository else state_home()
    return home / "handrail" / "claims.db"


class LocalClaims:
    """Claims that all processes of this machine see; see the port.

    They are kept in ``handrail/claims.db`` of the git directory that all working trees of a
    repository share; those of no repository in ``handrail/claims.db`` of ``XDG_STATE_HOME``
    (``~/.local/state``). ``lease_s``: a live process that does not renew its claims for so long
    loses those that others wait for; a dead process loses them at once. ``repositories`` are git
    directories that ``listed`` reads besides those in which this object was used.
    """

    def __init__(self, *repositories: str | os.PathLike[str], lease_s: float = 30.0) -> None:
        self._lease_s = positive_seconds(lease_s, "lease_s of LocalClaims")
        self._lock = threading.Lock()
        self._queues: dict[str, _ClaimQueue] = {}
        for repository in repositories:
            self._queue_of(os.fspath(repository))

    async def acquire(self, request: ClaimRequest, /, *, waiting: Waiting | None = None) -> Claim:
        """Wait for the claim; see the port."""
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
        """End the claim; see the port."""
        queue = self._queue_of(claim.resources[0].repository)
        await in_thread(lambda: queue.end(claim))

    async def is_held(self, claim: Claim, /) -> bool:
        """True if the claim has not ended; see the port."""
        store = self._queue_of(claim.resources[0].repository).store
        return await in_thread(lambda: store.is_held(claim))

    async def others_since(self, claim: Claim, since: int | None = None, /) -> Sequence[Claim]:
        """The claims that others had at any time since an epoch; see the port."""
        store = self._queue_of(claim.resources[0].repository).store
        return await in_thread(lambda: store.others_since(claim, since))

    async def listed(self) -> ClaimList:
        """All live claims, and all requests in line, of the files that this object reads."""
        queues = list(self._queues.values())
        lists = [await in_thread(queue.listed) for queue in queues]
        return ClaimList(
            tuple(claim for one in lists for claim in one.held),
            tuple(wait for one in lists for wait in one.waiting),
        )

    async def close(self) -> None:
        """Release the claims acquired here, and close the files; see the port."""
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
    """A request of this process, and its claim once granted. Mutable."""

    def __init__(self, request: ClaimRequest) -> None:
        super().__init__()
        self.request = request
        self.number = 0
        """The request's number in line; 0 if it is not in line."""
        self.claim: Claim | None = None
        self.abandoned = False

    def claim_in_time(self) -> Claim:
        """The claim.

        Raises:
            ClaimTimeout: the request was not granted.
        """
        if self.claim is not None:
            return self.claim
        request, holders = self.request, [*map(str, self.behind)]
        what, seconds = text_of(request.resources), request.wait_s or 0.0
        raise ClaimTimeout(str(request.claimant), what, seconds, holders)


class _ClaimQueue:
    """This process's requests and claims in one claims file. Mutable; for any thread."""

    def __init__(self, path: Path, lease_s: float) -> None:
        self.store = Store(path, lease_s)
        self._renew_s = lease_s / 3
        self.begin()
        _queues.add(self)

    def begin(self) -> None:
        """Start empty; also in a forked child, which lacks the thread."""
        self._lock = threading.RLock()
        self._waiters: dict[int, _Waiter] = {}
        self._abandoned: deque[_Waiter] = deque()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._failing_since: float | None = None
        self._closed = False

    def ask(self, waiter: _Waiter) -> None:
        """Have the request granted, or put into the line."""
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
        """Have the request leave the line, or its late claim released; does not wait for that.

        Later calls of this queue's methods come after it.
        """
        waiter.abandoned = True
        self._abandoned.append(waiter)
        self._wake.set()

    def end(self, claim: Claim) -> None:
        """End a claim; this process's next request in line for it is granted on return."""
        with self._lock:
            self._drop_abandoned()
            self.store.end(claim)
            if self._waiters:
                with suppress(ClaimsFailed):  # the thread tries again
                    self._look()
            if self._closed:  # ``close`` came first, so nothing else would close the file
                self.store.disconnect()
            self._wake.set()

    def listed(self) -> ClaimList:
        """All live claims, and all requests in line."""
        with self._lock:
            self._drop_abandoned()
            return self.store.listed()

    def close(self) -> None:
        """End this process's claims, fail its waiting requests, and close the file."""
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
        """Fail the waiting requests, if the file has failed for too long."""
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
            return  # the row goes when this process ends


_queues: weakref.WeakSet[_ClaimQueue] = weakref.WeakSet()


@reset_in_child
def _begin_anew() -> None:
    for queue in list(_queues):
        queue.begin()
