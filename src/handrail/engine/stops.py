"""What stops an attempt or a drive and is no failure of the workflow: how it is told, and named."""

from __future__ import annotations

import contextlib

from handrail.core.run_state import RunState
from handrail.errors import HandrailError


class CoreStalled(HandrailError):
    """The core waits for nothing and has not ended; a defect in handrail."""

    def __str__(self) -> str:
        return "the run can neither go on nor end. This is a defect in handrail, please report it."


class CancelledFromWithin(HandrailError):
    """An attempt was cancelled by somebody else than the run."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"step {self.path!r} was cancelled from within: something it awaited was cancelled"


def cancelled_itself() -> bool:
    """True if a cancellation came out of the action, and nobody asked this task to stop."""
    with contextlib.suppress(RuntimeError):
        import asyncio

        task = asyncio.current_task()
        return task is not None and task.cancelling() == 0
    return False


def interruption(error: BaseException) -> str:
    """Why a drive is interrupted, in words."""
    match error:
        case KeyboardInterrupt():
            return "keyboard interrupt"
        case SystemExit():
            return f"exit {error.code}"
        case _:
            return "the task that ran it was cancelled"


PAUSED_S = 5.0
"""How long a drive with nothing at work stays, at least, for somebody to unpause its run."""


def stays_s(linger_s: float, run: RunState) -> float:
    """How long a drive in which nothing is at work stays before it suspends its run: for somebody
    who answers it, sends it something, or lets it go on.
    """
    if run.paused is not None:
        return max(linger_s, PAUSED_S)
    return linger_s if run.gates or run.listeners else 0.0
