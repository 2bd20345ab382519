"""Who may take part: tokens, and how many messages in a while."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

LEAST_RATE = 0.01
LEAST_BURST = 1.0
_MANY = 1_000


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens that are known, hashed, each with patterns of the names that it is for."""

    known: tuple[tuple[bytes, tuple[str, ...]], ...]

    @classmethod
    def of(cls, lines: Iterable[str]) -> Tokens:
        """Those of a file: a token a line, then the names that may use it; without any: all.

        Blank lines, and those that begin with ``#``, say nothing.
        """
        found = (line.split() for line in lines if not line.lstrip().startswith("#"))
        return cls(tuple((_hash(words[0]), tuple(words[1:])) for words in found if words))

    def refusal(self, token: object, name: str) -> str | None:
        """Why an agent is not let in, or None. It takes the same time whatever the token is."""
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
    """A bucket of permissions for each agent, filled at a steady rate. Mutable.

    It outlives the agent's connection: who comes again finds it as it was left.
    """

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = max(per_s, LEAST_RATE) if per_s > 0 else 0.0
        self._burst = max(burst, LEAST_BURST)
        self._buckets: dict[str, tuple[float, float]] = {}

    def allows(self, name: str, now: float) -> bool:
        """True if the agent may send one more message, which then counts."""
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
