"""Claims that are kept by a hub, for runs on any machine, and seen by all others who use it.

Theory of operation. One thread has the connection, and reads from it. Each request has a word of
its own. When the connection breaks it is made again, and all that was not answered is said once
more: the hub knows the words, so it does nothing twice. Meanwhile the hub keeps what is held, for
as long as its grace. The thread begins with the first request, and ends when nothing is held or
asked for.
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
from handrail.system.owners import host
from handrail.workspace.claims.waiting import Awaited, in_thread

T = TypeVar("T")

FAILS_S = 10.0
"""So long the hub may be out of reach before those who ask it something fail."""
IDLE_S = 10.0
"""So long the connection is kept when it is not needed."""
_AGAIN_S = 0.25
_OPEN_S = 5.0


class HubClaims:
    """Claims that a hub keeps; see the port.

    ``url`` is that of ``handrail hub``, ``token`` one of its tokens. A name or a file is the same
    for all who use the hub: runs on any machine, and outsiders, whose claims are waited for, and
    who see those of runs. What a process held that died is free when the hub's grace is over.

    Raises:
        MissingExtra: websockets is not installed.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        if find_spec("websockets") is None:
            raise MissingExtra("HubClaims", "websockets", "hub")
        self._link = _Link(url, token)

    async def acquire(self, request: ClaimRequest, /, *, waiting: Waiting | None = None) -> Claim:
        """The claim, as soon as it is granted; see the port."""
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
        """End it; see the port."""
        doing = f"releasing {text_of(claim.resources)}"
        await self._answer("handrail.give_back", doing, **_of(claim))
        self._link.forget(claim)

    async def is_held(self, claim: Claim, /) -> bool:
        """True if it did not end; see the port."""
        doing = f"looking at {text_of(claim.resources)}"
        answer = await self._answer("handrail.is_held", doing, **_of(claim))
        return bool(answer["held"])

    async def others_since(self, claim: Claim, since: int | None = None, /) -> Sequence[Claim]:
        """What others held since then; see the port."""
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
        """All that is held, and all who wait."""
        answer = await self._answer("handrail.claims_request", "listing")
        held = msgspec.convert(answer["held"], tuple[Claim, ...])
        return ClaimList(held, msgspec.convert(answer["waiting"], tuple[ClaimWait, ...]))

    async def close(self) -> None:
        """Give back what was acquired here, and end the connection; see the port."""
        with contextlib.suppress(ClaimsFailed):  # it ends with the connection
            for claim in self._link.held():
                await self.release(claim)
        await in_thread(self._link.close)

    async def _answer(self, kind: str, doing: str, **fields: Any) -> dict[str, Any]:
        """What the hub says to a question.

        Raises:
            ClaimsFailed: it cannot be asked, or does not answer, or refuses.
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
    """What became of a request that was not granted in time, or not at all."""
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
        """The answer; ``waiting`` is called with who is in the way until then.

        Raises:
            ClaimsFailed: there will be none.
        """
        await self.until(lambda: self.answer is not None, waiting)
        assert self.answer is not None
        return self.answer

    def hear(self, message: dict[str, Any]) -> None:
        """Take what the hub says of it."""
        if message["type"] == "handrail.waits":
            self.behind = msgspec.convert(message["behind"], tuple[Claimant, ...])
        else:
            self.answer = message
        self.wake()


class _Link:
    """The connection, and all that is asked and held over it. Mutable; any thread."""

    def __init__(self, url: str, token: str | None) -> None:
        self.url = url
        self._token = token
        self.begin()
        _links.add(self)

    def begin(self) -> None:
        """Begin with nothing, in a child process, too: there the thread is gone."""
        self._lock = threading.RLock()
        self._name = f"handrail/{host()}/{os.getpid()}-{secrets.token_hex(4)}"
        self._asked: dict[str, _Question] = {}
        self._held: dict[int, Claim] = {}
        self._abandoned: deque[_Question] = deque()
        self._again: deque[tuple[float, _Question]] = deque()
        self._withdrawn: dict[str, str] = {}
        """What the hub is to forget, and has not said yet that it has."""
        self._socket: Any = None
        self._thread: threading.Thread | None = None
        self._ends = threading.Event()
        self._failing_since: float | None = None
        self._used = time.monotonic()

    # -- asking ------------------------------------------------------------------------------------

    def ask(self, asked: _Question) -> None:
        """Say it to the hub, now or when it can be reached."""
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
        """Wait for its answer no more."""
        with self._lock:
            self._asked.pop(asked.word, None)

    def abandon(self, asked: _Question) -> None:
        """Have the hub forget it, soon, for this does not wait."""
        self._abandoned.append(asked)
        threading.Thread(target=self._withdraw, daemon=True).start()

    def hold(self, request: ClaimRequest, asked: _Question) -> Claim:
        """The claim that was granted.

        Raises:
            ClaimTimeout, ClaimDeadlock, ClaimsFailed: none was.
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
        """What was acquired here, and lasts as long as this process."""
        with self._lock:
            return list(self._held.values())

    def forget(self, claim: Claim) -> None:
        """It is not held any more."""
        with self._lock:
            self._held.pop(claim.epoch, None)

    def close(self) -> None:
        """Let who waits here fail, and end the connection."""
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
        """Send it, if there is a connection; else it is sent when there is one."""
        if self._socket is None:
            return
        try:
            self._socket.send(text)
        except Exception:  # noqa: BLE001  # the reader sees to it
            self._socket = None

    def _texts(self) -> list[str]:
        return [asked.text for asked in self._asked.values() if asked.answer is None]

    def _fail(self, why: str) -> None:
        for asked in self._asked.values():
            asked.error = ClaimsFailed(self.url, "asking the hub", why)
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
            except Exception as error:  # noqa: BLE001  # whatever it is, the hub is out of reach
                self._broken(error)
            ends.wait(_AGAIN_S)

    def _converse(self, ends: threading.Event) -> None:
        """Connect, and read until the connection ends, or is needed no more."""
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
            return  # what all hear
        with self._lock:
            self._withdrawn.pop(word, None)
            asked = self._asked.get(word)
            if asked is not None and message.get("reason") == "rate":
                self._again.append((time.monotonic() + _AGAIN_S, asked))
            elif asked is not None:
                self._used = time.monotonic()
                asked.hear(message)

    def _say_again(self) -> None:
        """Ask once more what the hub did not take because it was asked too much."""
        with self._lock:
            while self._again and self._again[0][0] <= time.monotonic():
                _, asked = self._again.popleft()
                if asked.word in self._asked:
                    self._say(asked.text)

    def _is_idle(self) -> bool:
        busy = self._asked or self._held or self._abandoned or self._withdrawn
        return not busy and time.monotonic() - self._used > IDLE_S

    def _broken(self, error: Exception) -> None:
        """Have who waits for an answer fail, if this lasts or cannot get better."""
        with self._lock:
            now = time.monotonic()
            if self._failing_since is None:
                self._failing_since = now
            if isinstance(error, PermissionError) or now - self._failing_since > FAILS_S:
                self._fail(str(error) or type(error).__name__)


def _text(kind: str, **fields: Any) -> str:
    return msgspec.json.encode({"type": kind, **fields}).decode()


_links: weakref.WeakSet[_Link] = weakref.WeakSet()


def _reset_in_child() -> None:
    for link in list(_links):
        link.begin()


os.register_at_fork(after_in_child=_reset_in_child)
