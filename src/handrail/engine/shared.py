"""Limits over all runs of an executor, in whatever thread or event loop each is driven."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial

from handrail.core.admission import Admission
from handrail.errors import WrongUse
from handrail.model.policy import Limits

Soon = Callable[[Callable[[], object]], None]
"""Has a function called by an event loop, from any thread."""


class SharedAdmission:
    """One ``Admission`` for many runs. Mutable; calls from several threads take turns."""

    def __init__(self, limits: Limits) -> None:
        self._admission = Admission(limits)
        self._lock = threading.Lock()
        self._waiting: dict[str, tuple[Seat, str]] = {}

    def request(self, seat: Seat, path: str, uses: Iterable[tuple[str, int]]) -> None:
        """Queue an attempt of the run that has this seat.

        Raises:
            DefinitionError: it uses more units of a tag than there are.
        """
        with self._lock:
            self._admission.request(seat.key(path), uses)
            self._waiting[seat.key(path)] = (seat, path)

    def look(self, now: float) -> float | None:
        """Let those begin whose turn has come, in their own loops; when the next one may."""
        with self._lock:
            begun = [self._waiting.pop(key) for key in self._admission.grants(now)]
            following = self._admission.next_time(now)
        for seat, path in begun:
            seat.soon(partial(seat.granted, path))
        return following

    def leave(self, seat: Seat, path: str) -> None:
        """End what was granted, or take back the request; nothing, if there is neither."""
        key = seat.key(path)
        with self._lock:
            self._waiting.pop(key, None)
            if not self._admission.withdraw(key):
                self._admission.release(key)


class Seat:
    """Where one run waits; ``granted`` is called in its own event loop."""

    def __init__(self, soon: Soon, granted: Callable[[str], None]) -> None:
        self.soon = soon
        self.granted = granted

    def key(self, path: str) -> str:
        """What a path of this run is known by among those of all."""
        return f"{id(self)}:{path}"


def shared_admission(limits: Limits | None) -> SharedAdmission | None:
    """What holds over all runs; None for nothing.

    Raises:
        WrongUse: it bounds what only one run has.
    """
    if limits is None:
        return None
    only = Limits(max_concurrency=limits.max_concurrency, tags=limits.tags, rates=limits.rates)
    if limits != only:
        raise WrongUse(
            "shared_limits of an Executor takes Limits of max_concurrency, tags and rates; what "
            "bounds one run, such as max_steps or a budget, belongs in limits="
        )
    return SharedAdmission(limits)
