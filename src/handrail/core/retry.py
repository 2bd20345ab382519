"""Whether a failed attempt is followed by another, and after how long."""

from __future__ import annotations

from typing import TypeAlias

from handrail.model.dataclass import dataclass
from handrail.model.policy import Backoff, Retry


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """Try again after this many seconds."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No further attempt."""


NextAttempt: TypeAlias = RetryAfter | GiveUp
_GIVE_UP = GiveUp()


def next_attempt(attempt: int, *, retryable: bool, retry: Retry | None, seed: str) -> NextAttempt:
    """What follows failed attempt number ``attempt`` (from 1).

    ``seed`` names run and path: the same seed and attempt give the same jitter.
    """
    if retry is None or not retryable or attempt >= retry.max_attempts:
        return _GIVE_UP
    return RetryAfter(delay_s(retry.backoff, attempt, seed))


def delay_s(backoff: Backoff, attempt: int, seed: str) -> float:
    """The pause after failed attempt ``attempt``, jitter taken off, in seconds."""
    try:
        pause = min(backoff.initial_s * backoff.factor ** (attempt - 1), backoff.max_s)
    except OverflowError:
        pause = backoff.max_s if backoff.initial_s else 0.0
    if backoff.jitter == 0 or pause == 0:
        return pause
    return pause * (1 - backoff.jitter * _fraction(f"{seed}#{attempt}"))


def _fraction(seed: str) -> float:
    """A number from 0 to below 1 that depends on the text alone."""
    import hashlib  # 2 ms that most processes need not pay

    digest = hashlib.blake2b(seed.encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return int.from_bytes(digest, "big") / (1 << 48)
