"""What this process does around a fork of its own: locks first, and what a child starts anew.

A fork copies one thread. A lock that another thread holds stays locked in the child for ever, and
an open database believes there in locks that it does not have. So what has either takes part: it
locks itself and closes before the fork, and goes on after it, or is reset in the child.

Meanwhile this thread holds those locks, and the garbage collector may run in it: a finalizer that
needs one of them would wait for itself. One in another thread would wait for this one, with locks
that this one waits for. So ``finalize`` makes no call while a thread forks; it makes it afterwards.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Protocol


class LocksToFork(Protocol):
    """What must not be in use while the process forks."""

    def before_fork(self) -> None:
        """Take every lock, and close what must not be carried across."""

    def after_fork_in_parent(self) -> None:
        """Release the locks."""

    def after_fork_in_child(self) -> None:
        """Begin anew: with other locks, without threads, and with nothing that is the parent's."""


_locking: weakref.WeakSet[LocksToFork] = weakref.WeakSet()
_resets: list[Callable[[], None]] = []
_locked: list[LocksToFork] = []
_turn = threading.Lock()
"""Who forks has it, so that two never wait for each other's locks, and who makes late calls."""
_late: list[Callable[[], None]] = []


def locks_to_fork(part: LocksToFork) -> None:
    """Have the object take part in every fork, as long as it lives."""
    _locking.add(part)


def reset_in_child(reset: Callable[[], None]) -> Callable[[], None]:
    """Call the function in each forked child. It must wait for no lock."""
    _resets.append(reset)
    return reset


def finalize(call: Callable[[], None]) -> None:
    """Make the call of a finalizer: now or, while any thread forks, once it has forked."""
    _late.append(call)
    _make_late_calls()


def _make_late_calls() -> None:
    while _late and _turn.acquire(blocking=False):
        try:
            while _late:
                _late.pop()()
        finally:
            _turn.release()


def _before() -> None:
    _turn.acquire()
    for part in list(_locking):
        part.before_fork()
        _locked.append(part)


def _after_in_parent() -> None:
    while _locked:
        _locked.pop().after_fork_in_parent()
    _turn.release()
    _make_late_calls()


def _after_in_child() -> None:
    while _locked:
        _locked.pop().after_fork_in_child()
    for reset in _resets:
        reset()
    _turn.release()
    _make_late_calls()


os.register_at_fork(
    before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)
