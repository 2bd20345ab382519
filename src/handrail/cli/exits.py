"""The command's exit codes, and the error that it raises for what it cannot do."""

from __future__ import annotations

import os
from enum import IntEnum
from typing import TYPE_CHECKING

from handrail.errors import (
    ClaimDeadlock,
    ClaimLost,
    ClaimsFailed,
    ClaimTimeout,
    GateClosed,
    HandrailError,
    HubFailed,
    JournalFailed,
    LeaseLost,
    RunLocked,
)

if TYPE_CHECKING:  # `handrail --version` does not need it
    from handrail.model.results import RunStatus


LEFT_AT_ONCE: set[str] = set()
"""Libraries whose own threads call into Python, and abort the process while Python shuts down; who
loads one adds it.
"""


class Exit(IntEnum):
    """Exit codes of every command; those above 128 are 128 plus the signal's number."""

    SUCCEEDED = 0
    FAILED = 1
    USAGE = 2
    SUSPENDED = 3
    CANCELLED = 4
    HUNG_UP = 129
    INTERRUPTED = 130
    READER_GONE = 141
    TERMINATED = 143


EXIT_OF: dict[RunStatus, Exit] = {
    "succeeded": Exit.SUCCEEDED,
    "failed": Exit.FAILED,
    "suspended": Exit.SUSPENDED,
    "cancelled": Exit.CANCELLED,
}

_OF_CLAIMS = (ClaimDeadlock, ClaimLost, ClaimTimeout, ClaimsFailed)
_NOT_MISTAKES = (*_OF_CLAIMS, GateClosed, HubFailed, JournalFailed, LeaseLost, RunLocked)
"""Errors of a command that was typed correctly, and still could not do its work."""


def exit_for(error: HandrailError) -> Exit:
    """The exit code of a command that an error ended."""
    return Exit.FAILED if isinstance(error, _NOT_MISTAKES) else Exit.USAGE


DEBUG = "HANDRAIL_DEBUG"
_OFF = frozenset({"", "0", "false", "no"})


def debugging() -> bool:
    """True if errors are printed with their tracebacks."""
    return os.environ.get(DEBUG, "").lower() not in _OFF


EXIT_CODES = """\
Exit codes: 0 succeeded, 1 failed (`check`: found mistakes), 2 wrong usage or definition,
3 suspended (for example, waiting for an answer), 4 cancelled, 130 interrupted (Ctrl-C),
143 terminated (SIGTERM), 129 its terminal was closed, 141 the reader of its output has gone."""


class Refused(HandrailError):
    """The command cannot do what it was asked; the text says why, and what to type instead."""

    def __init__(self, what: str, why: str, hint: str = "") -> None:
        super().__init__(what, why, hint)
        self.what = what
        self.why = why
        self.hint = hint

    def __str__(self) -> str:
        hint = f" {self.hint}" if self.hint else ""
        return f"{self.what}: {self.why}.{hint}"
