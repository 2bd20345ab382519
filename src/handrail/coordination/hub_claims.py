"""Claims kept by a hub, for runs on any machine, and visible to everyone who uses the hub.

Theory of operation. One thread owns the connection and reads from it. Each request has an id. If
the connection breaks, the thread connects again and repeats every unanswered request. The hub
knows the ids, so it does nothing twice. Meanwhile the hub keeps this process's claims for its
grace period. The thread starts with the first request, and ends when this process has neither
claims nor open requests.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, TypeVar

import anyio
import msgspec

from handrail.errors import ClaimDeadlock, ClaimsFailed, ClaimTimeout, MissingExtra
from handrail.ports.claims import (
    Claim,
    Claimant,
    ClaimList,
    ClaimRequest,
    ClaimWait,
    Waiting,
    text_of,
)
from handrail.system.forks import reset_in_child
from handrail.system.owners import host
from handrail.workspace.claims.waiting import Awaited, in_thread

T = TypeVar("T")

FAILS_S = 10.0
"""How long the hub may be out of reach before open requests fail."""
IDLE_S = 10.0
"""How long an unused connection stays open."""
_AGAIN_S = 0.25
_OPEN_S = 5.0
_UNREACHED = "`handrail hub` starts a hub; once it can be reached, try again."


class HubClaims:
    """Claims that a hub keeps; see the port.

    ``url`` is that of ``handrail hub``, ``token`` one of its tokens. A name or a file is the same
    for all who use the hub: runs on any machine, and outsiders, agents that no run started. Runs
    wait for outsiders' claims, and outsiders see those of runs. The claims of a dead process end
    after the hub's grace period.

    Raises:
        MissingExtra: websockets is not installed.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        if find_spec("websockets") is None:
            raise MissingExtra("HubClaims", "websockets", "hub")
        self._link = _Link(url, token)

    async def acquire(self, request: ClaimRequest, /, *, waiting: Waiting | None = None) -> Claim:
        """Wait for the claim; see the port."""
        link = self._link
        what = text_of(request.resources)
        if request.pid not in {None, os.getpid()}:
            why = f"it cannot see whether process {request.pid} lives"
            raise ClaimsFailed(link.url, f"claiming {what}", why, "Give a time (ttl_s) instead.")
        asked = _Question("handrail.acquire", _fields_of(request))
        try:
            with anyio.move_on_after(request.wait_s or None):
                await in_thread(lambda: link.ask(asked))
                await asked.wait_answer(waiting)
            return link.hold(request, asked)
        except BaseException:
            link.abandon(asked)
            raise

    async def release(self, claim: Claim, /) -> None:
        """End the claim; see the port."""
        doing = f"releasing {text_of(claim.resources)}"
        await self._answer("handrail.give_back", doing, **_of(claim))
        self._link.forget(claim)

    async def is_held(self, claim: Claim, /) -> bool:
        """True if the claim has not ended; see the port."""
        doing = f"looking at {text_of(claim.resources)}"
        answer = await self._answer("handrail.is_held", doing, **_of(claim))
        return bool(answer["held"])

    async def others_since(self, claim: Claim, since: int | None = None, /) -> Sequence[Claim]:
        """The claims that others had at any time since an epoch; see the port."""
        found: list[Claim] = []
        fields = {**_of(claim), "resources": claim.resources}
        fields["since"] = claim.epoch if since is None else since
        after: int | None = -1
        while after is not None:
            answer = await self._answer(
                "handrail.others_since", "looking at what others held", **fields, after=after
            )
            found += msgspec.convert(answer["claims"], list[Claim])
            after = answer["more"]
        return found

    async def listed(self) -> ClaimList:
        """All live claims, and all requests that wait."""
        answer = await self._answer("handrail.claims_request", "listing")
        held = msgspec.convert(answer["held"], tuple[Claim, ...])
        return ClaimList(held, msgspec.convert(answer["waiting"], tuple[ClaimWait, ...]))

    async def close(self) -> None:
        """Release the claims acquired here, and end the connection; see the port."""
        with contextlib.suppress(ClaimsFailed):  # they end with the connection
            for claim in self._link.held():
                await self.release(claim)
        await in_thread(self._link.close)

    async def _answer(self, kind: str, doing: str, **fields: Any) -> dict[str, Any]:
        """The hub's answer to a question.

        Raises:
            ClaimsFailed: the hub cannot be reached, does not answer, or refuses.
        """
        asked, link = _Question(kind, fields), self._link
        try:
            await in_thread(lambda: link.ask(asked))
            answer = await asked.wait_answer()
        finally:
            link.drop(asked)
        if answer["type"] == "error":
            raise ClaimsFailed(link.url, doing, str(answer["payload"]).rstrip("."))
        return answer


def _fields_of(request: ClaimRequest) -> dict[str, Any]:
    return {
        "claimant": request.claimant,
        "resources": request.resources,
        "ttl_seconds": request.ttl_s,
        "wait": request.wait_s is None or request.wait_s > 0,
        "host": host(),
        "pid": 0 if request.ttl_s is not None and request.pid is None else os.getpid(),
    }


def _of(claim: Claim) -> dict[str, Any]:
    return {"epoch": claim.epoch, "claimant": claim.claimant}


def _refused(
    url: str, request: ClaimRequest, asked: _Question
) -> ClaimDeadlock | ClaimTimeout | ClaimsFailed:
    """The error for a request that was refused, or not granted in time."""
    who, what = str(request.claimant), text_of(request.resources)
    answer = asked.answer or {"reason": "busy", "behind": asked.behind}
    if answer.get("reason") == "deadlock":
        return ClaimDeadlock(who, what, answer["circle"])
    if answer.get("reason") == "busy":
        behind = msgspec.convert(answer["behind"], tuple[Claimant, ...])
        return ClaimTimeout(who, what, request.wait_s or 0.0, [*map(str, behind)])
    return ClaimsFailed(url, f"claiming {what}", str(answer["payload"]).rstrip("."))


class _Question(Awaited):
    """A question to the hub, and its answer. Mutable."""

    _words = itertools.count(1)

    def __init__(self, kind: str, fields: dict[str, Any]) -> None:
        super().__init__()
        self.word = f"{next(self._words)}-{secrets.token_hex(4)}"
        self.text = _text(kind, request=self.word, **fields)
        self.answer: dict[str, Any] | None = None

    async def wait_answer(self, waiting: Waiting | None = None) -> dict[str, Any]:
        """The answer; until then calls ``waiting`` with the claimants that are in the way.

        Raises:
            ClaimsFailed: there will be no answer.
        """
        await self.until(lambda: self.answer is not None, waiting)
        assert self.answer is not None
        return self.answer

    def hear(self, message: dict[str, Any]) -> None:
        """Take a message from the hub about this question."""
        if message["type"] == "handrail.waits":
            self.behind = msgspec.convert(message["behind"], tuple[Claimant, ...])
        else:
            self.answer = message
        self.wake()


class _Link:
    """The connection, with its open questions and claims. Mutable; for any thread."""

    def __init__(self, url: str, token: str | None) -> None:
        self.url = url
        self._token = token
        self.begin()
        _links.add(self)

    def begin(self) -> None:
        """Start empty; also in a forked child, which has neither the thread nor the claims."""
        self._lock = threading.RLock()
        self._name = f"handrail/{host()}/{os.getpid()}-{secrets.token_hex(4)}"
        self._asked: dict[str, _Question] = {}
        self._held: dict[int, Claim] = {}
        self._abandoned: deque[_Question] = deque()
        self._again: deque[tuple[float, _Question]] = deque()
        self._withdrawn: dict[str, str] = {}
        """Withdrawals that the hub has not confirmed, as texts by request id."""
        self._socket: Any = None
        self._thread: threading.Thread | None = None
        self._ends = threading.Event()
        self._failing_since: float | None = None
        self._used = time.monotonic()

    # -- asking ------------------------------------------------------------------------------------

    def ask(self, asked: _Question) -> None:
        """Send a question to the hub, now or when it can be reached."""
        with self._lock:
            self._withdraw()
            self._asked[asked.word] = asked
            self._used = time.monotonic()
            self._say(asked.text)
            if self._thread is None:
                self._ends = threading.Event()
                self._thread = threading.Thread(target=self._run, name="handrail hub", daemon=True)
                self._thread.start()

    def drop(self, asked: _Question) -> None:
        """Stop waiting for the question's answer."""
        with self._lock:
            self._asked.pop(asked.word, None)

    def abandon(self, asked: _Question) -> None:
        """Have a thread withdraw the question; does not wait for that."""
        self._abandoned.append(asked)
        threading.Thread(target=self._withdraw, daemon=True).start()

    def hold(self, request: ClaimRequest, asked: _Question) -> Claim:
        """The claim that the hub granted.

        Raises:
            ClaimTimeout, ClaimDeadlock, ClaimsFailed: it granted none.
        """
        answer = asked.answer
        if answer is None or answer["type"] != "handrail.acquired":
            raise _refused(self.url, request, asked)
        pid = 0 if request.ttl_s is not None and request.pid is None else os.getpid()
        claim = Claim(
            request.claimant,
            request.resources,
            answer["epoch"],
            answer["since"],
            answer["until"],
            host(),
            pid,
        )
        with self._lock:
            self._asked.pop(asked.word, None)
            if claim.until is None:
                self._held[claim.epoch] = claim
        return claim

    def held(self) -> list[Claim]:
        """The claims acquired here that last as long as this process."""
        with self._lock:
            return list(self._held.values())

    def forget(self, claim: Claim) -> None:
        """Drop a claim that has ended."""
        with self._lock:
            self._held.pop(claim.epoch, None)

    def close(self) -> None:
        """Fail all open questions, and end the connection."""
        with self._lock:
            self._fail("it was closed")
            self._withdrawn.clear()
            thread, self._thread = self._thread, None
            self._ends.set()
            socket = self._socket
        if socket is not None:
            socket.close()
        if thread is not None:
            thread.join()

    def _withdraw(self) -> None:
        with self._lock:
            while self._abandoned:
                asked = self._abandoned.popleft()
                if self._asked.pop(asked.word, None) is not None:
                    text = _text("handrail.withdraw", request=asked.word)
                    self._withdrawn[asked.word] = text
                    self._say(text)

    def _say(self, text: str) -> None:
        """Send the text if connected; after a reconnect the thread sends what is unanswered."""
        if self._socket is None:
            return
        try:
            self._socket.send(text)
        except Exception:  # noqa: BLE001  # the reading thread notices, and connects again
            self._socket = None

    def _texts(self) -> list[str]:
        return [asked.text for asked in self._asked.values() if asked.answer is None]

    def _fail(self, why: str, hint: str = "") -> None:
        for asked in self._asked.values():
            asked.error = ClaimsFailed(self.url, "asking the hub", why, hint)
            asked.wake()
        self._asked.clear()

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        ends = self._ends
        while not ends.is_set():
            with self._lock:
                if self._is_idle():
                    self._thread = None
                    return
            try:
                self._converse(ends)
            except Exception as error:  # noqa: BLE001  # any error: the hub is out of reach
                self._broken(error)
            ends.wait(_AGAIN_S)

    def _converse(self, ends: threading.Event) -> None:
        """Connect, and read until the connection ends or is idle."""
        from websockets.sync.client import connect

        with connect(
            self.url, compression=None, open_timeout=_OPEN_S, close_timeout=1, max_size=None
        ) as socket:
            hello = {"token": self._token} if self._token is not None else {}
            socket.send(_text("heartbeat", sender=self._name, takeover=True, **hello))
            self._welcomed(json.loads(socket.recv(timeout=_OPEN_S)))
            with self._lock:
                self._socket, self._failing_since = socket, None
                for text in [*self._withdrawn.values(), *self._texts()]:
                    self._say(text)
            try:
                while not ends.is_set() and not self._is_idle():
                    with contextlib.suppress(TimeoutError):
                        self._hear(json.loads(socket.recv(timeout=_AGAIN_S)))
                    self._say_again()
            finally:
                with self._lock:
                    self._socket = None

    def _welcomed(self, message: dict[str, Any]) -> None:
        if message["type"] == "auth_denied":
            raise PermissionError(message["payload"])
        if message["type"] != "welcome":
            raise ConnectionError(message.get("payload", "it does not say welcome"))

    def _hear(self, message: dict[str, Any]) -> None:
        word = message.get("request")
        if not isinstance(word, str):
            return  # a broadcast
        with self._lock:
            self._withdrawn.pop(word, None)
            asked = self._asked.get(word)
            if asked is not None and message.get("reason") == "rate":
                self._again.append((time.monotonic() + _AGAIN_S, asked))
            elif asked is not None:
                self._used = time.monotonic()
                asked.hear(message)

    def _say_again(self) -> None:
        """Repeat the questions that the hub refused because of its rate limit."""
        with self._lock:
            while self._again and self._again[0][0] <= time.monotonic():
                _, asked = self._again.popleft()
                if asked.word in self._asked:
                    self._say(asked.text)

    def _is_idle(self) -> bool:
        busy = self._asked or self._held or self._abandoned or self._withdrawn
        return not busy and time.monotonic() - self._used > IDLE_S

    def _broken(self, error: Exception) -> None:
        """Fail all open questions if the outage lasts, or if the hub refused the token."""
        with self._lock:
            now = time.monotonic()
            if self._failing_since is None:
                self._failing_since = now
            if isinstance(error, PermissionError) or now - self._failing_since > FAILS_S:
                hint = "" if isinstance(error, PermissionError) else _UNREACHED
                self._fail(str(error).rstrip(".") or type(error).__name__, hint)


def _text(kind: str, **fields: Any) -> str:
    return msgspec.json.encode({"type": kind, **fields}).decode()


_links: weakref.WeakSet[_Link] = weakref.WeakSet()


@reset_in_child
def _begin_anew() -> None:
    for link in list(_links):
        link.begin()
