"""What an action can learn about the step it runs in."""

from __future__ import annotations

import hashlib
from collections.abc import MutableMapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import msgspec

from handrail.errors import HandrailError

if TYPE_CHECKING:
    from handrail.secrets.masking import Mask  # noqa: TC004  # msgspec keeps the annotation as text


class OutsideStep(HandrailError, LookupError):
    """``current()`` was called where no step runs."""

    def __str__(self) -> str:
        return (
            "handrail.current() is for actions: functions that a step calls while it runs. "
            "A workflow's own body, predicates and context builders are given a context instead."
        )


class Current(msgspec.Struct):
    """The running attempt: ``run_id``, ``path``, ``attempt`` (from 1), ``interrupted`` (an earlier
    process died, or was stopped, while this step ran), and ``cancelled``, which turns true when the
    step is asked to stop: a thread cannot be killed, it can look. ``mask`` keeps secrets out of
    its log.
    """

    run_id: str
    path: str
    attempt: int
    interrupted: bool = False
    cancelled: bool = False
    mask: Mask | None = None

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at this step of this run, and after a crash."""
        return idempotency_key(self.run_id, self.path)

    @property
    def log(self) -> Any:
        """A structlog logger bound to run, path and attempt; it writes no secrets."""
        import structlog

        configured = structlog.get_config()["processors"]
        logger: Any = structlog.wrap_logger(
            None, processors=[self._without_secrets, *configured], logger_factory_args=("handrail",)
        )
        return logger.bind(run_id=self.run_id, path=self.path, attempt=self.attempt)

    def _without_secrets(
        self, _logger: Any, _method: str, said: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        if self.mask is None:
            return said
        return {name: self.mask.value(value) for name, value in said.items()}

    def __repr__(self) -> str:
        return f"<step {self.path!r} of run {self.run_id}, attempt {self.attempt}>"


CURRENT: ContextVar[Current] = ContextVar("handrail_current")


def current() -> Current:
    """The attempt that this code runs in; from an action, in whatever thread or task.

    Raises:
        OutsideStep: no step is running here.
    """
    found = CURRENT.get(None)
    if found is None:
        raise OutsideStep
    return found


def idempotency_key(run_id: str, path: str) -> str:
    """A hash of run id and path, 32 hex digits."""
    text = f"{run_id}\n{path}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).hexdigest()
