"""The hub's clients: their sockets and names, when each was last seen, tokens, rate limits."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from fnmatch import fnmatchcase

from handrail.model.dataclass import dataclass

COOLDOWN_S = 2.0
"""How long after a takeover a name cannot be taken over again."""
MOST_SEEN = 1_000
"""How many disconnected agents the hub remembers."""


@dataclass(slots=True)
class Session:
    """A socket. It listens to broadcasts once admitted, and gets its name by its first message."""

    socket: int
    name: str = ""
    listens: bool = False


class Roster:
    """The connected sockets and the agents seen. Mutable."""

    def __init__(self) -> None:
        self.seen: dict[str, float] = {}
        self._sessions: dict[int, Session] = {}
        self._names: dict[str, int] = {}
        self._taken: dict[str, float] = {}
        self._listeners: tuple[int, ...] | None = None

    def get(self, socket: int) -> Session | None:
        """The session of a socket, or None if it is gone."""
        return self._sessions.get(socket)

    def count(self) -> int:
        """How many sockets there are."""
        return len(self._sessions)

    def nameless(self) -> Iterable[int]:
        """Sockets that have sent nothing yet, the oldest first."""
        return (session.socket for session in self._sessions.values() if not session.name)

    def has(self, name: str) -> bool:
        """True if an agent of this name is online."""
        return name in self._names

    def holder(self, name: str) -> int | None:
        """The socket of the agent of this name, or None."""
        return self._names.get(name)

    def online(self) -> list[str]:
        """The names of all that are online."""
        return sorted(self._names)

    def listeners(self) -> tuple[int, ...]:
        """The sockets that get broadcasts."""
        if self._listeners is None:
            self._listeners = tuple(
                session.socket for session in self._sessions.values() if session.listens
            )
        return self._listeners

    def add(self, socket: int) -> Session:
        """Add a socket."""
        session = self._sessions[socket] = Session(socket)
        return session

    def listen(self, session: Session) -> None:
        """Have a socket get broadcasts."""
        session.listens = True
        self._listeners = None

    def bind(self, session: Session, name: str) -> None:
        """Give a socket its name."""
        session.name = name
        self._names[name] = session.socket

    def remove(self, socket: int) -> Session | None:
        """Remove a socket; its session, or None if it was removed already."""
        session = self._sessions.pop(socket, None)
        if session is not None:
            self._listeners = None
            if self._names.get(session.name) == socket:
                del self._names[session.name]
        return session

    def mark_seen(self, name: str, now: float) -> None:
        """Note that an agent sent a message now."""
        self.seen[name] = now

    def forget_some(self) -> None:
        """Drop the longest unseen of the disconnected agents beyond ``MOST_SEEN``."""
        gone = [name for name in self.seen if name not in self._names]
        if len(gone) > MOST_SEEN:
            gone.sort(key=self.seen.__getitem__)
            for name in gone[: len(gone) - MOST_SEEN]:
                del self.seen[name]

    def is_cooling(self, name: str, now: float) -> bool:
        """True within ``COOLDOWN_S`` of the name's last takeover; otherwise notes one now."""
        for known in [one for one, at in self._taken.items() if now - at >= COOLDOWN_S]:
            del self._taken[known]
        if name in self._taken:
            return True
        self._taken[name] = now
        return False


LEAST_RATE = 0.01
LEAST_BURST = 1.0
_MANY = 1_000


@dataclass(frozen=True, slots=True)
class Tokens:
    """The valid tokens, hashed, each with patterns of the names that may use it."""

    known: tuple[tuple[bytes, tuple[str, ...]], ...]

    @classmethod
    def of(cls, lines: Iterable[str]) -> Tokens:
        """The tokens of a file: a token a line, then the names that may use it (default: all).

        Blank lines, and lines that begin with ``#``, are ignored.
        """
        found = (line.split() for line in lines if not line.lstrip().startswith("#"))
        return cls(tuple((_hash(words[0]), tuple(words[1:])) for words in found if words))

    def refusal(self, token: object, name: str) -> str | None:
        """Why an agent is not admitted, or None; compares tokens in constant time."""
        if not isinstance(token, str) or not token:
            return "Authentication token required."
        given = _hash(token)
        names = [found for digest, found in self.known if hmac.compare_digest(digest, given)]
        if not names:
            return "Invalid authentication token."
        for patterns in names:
            if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns):
                return None
        return f"Token is not authorised for agent '{name}'."


class Rate:
    """A token bucket for each agent's messages, filled at a steady rate. Mutable.

    A bucket outlives the agent's connection, so reconnecting does not refill it.
    """

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = max(per_s, LEAST_RATE) if per_s > 0 else 0.0
        self._burst = max(burst, LEAST_BURST)
        self._buckets: dict[str, tuple[float, float]] = {}

    def allows(self, name: str, now: float) -> bool:
        """True if the agent may send one more message; counts that message."""
        if not self._per_s:
            return True
        if name not in self._buckets and len(self._buckets) >= _MANY:
            self._forget_full(now)
        room, at = self._buckets.get(name, (self._burst, now))
        room = min(self._burst, room + max(0.0, now - at) * self._per_s)
        allowed = room >= 1.0
        self._buckets[name] = (room - 1.0 if allowed else room, now)
        return allowed

    def _forget_full(self, now: float) -> None:
        for name, (room, at) in list(self._buckets.items()):
            if room + (now - at) * self._per_s >= self._burst:
                del self._buckets[name]


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
