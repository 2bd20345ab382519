"""What stops an attempt or a drive and is no failure of the workflow: how it is known and named."""

from __future__ import annotations

import contextlib

from handrail.core.run_state import RunState


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
