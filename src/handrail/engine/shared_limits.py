"""Limits that all runs of an executor share: which attempts of which run may begin."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial

from handrail.core import commands as cmd
from handrail.core.admission import Admission
from handrail.core.attempt_ends import failure_event
from handrail.core.line import Line, LineDriver
from handrail.core.timers import Job
from handrail.errors import DefinitionError, WrongUse
from handrail.model.policy import Limits
from handrail.system.threads import running_loop


class SharedLine(Line):
    """A line whose attempts also need a place within the shared limits. Mutable."""

    def __init__(
        self,
        loop: LineDriver,
        admission: Admission,
        start: Callable[[cmd.Perform], None],
        *,
        shared: SharedAdmission,
        post: Callable[[Job], None],
    ) -> None:
        super().__init__(loop, admission, start)
        self.free = False
        self._post = post
        self._shared = shared
        self._seat: Seat | None = None
        self._look_at_shared = 0.0
        self._postponed: list[str] = []
        """Paths that the shared limits granted a place while the run was paused."""

    def pause(self, *, on: bool) -> None:
        """Pause admission; with ``on`` false, begin the attempts whose turn has come."""
        self._is_paused = on
        if not on:
            held, self._postponed = self._postponed, []
            for path in held:
                self._begin_granted(path)
            self.admit()

    def admit(self) -> None:
        """Begin the attempts whose turn has come."""
        super().admit()
        if not self._is_paused:
            self._look()

    def _admitted(self, path: str) -> None:
        """Ask for a place within the shared limits, too."""
        if self._seat is None:
            self._seat = Seat(running_loop().soon_from_anywhere, self._granted_by_all)
        command = self.waiting[path]
        try:
            self._shared.request(self._seat, path, command.step.modifiers.uses)
        except DefinitionError as error:
            self.leave(path)
            self._loop.record(failure_event(command, error))

    def _granted_by_all(self, path: str) -> None:
        """Begin the attempt, if it still waits, in a job of the run's own loop."""
        if path in self.waiting and path in self.holders:
            self._post(partial(self._begin_granted, path))

    def _begin_granted(self, path: str) -> None:
        if self._is_paused:
            self._postponed.append(path)
        elif path in self.waiting and path in self.holders:
            self._begin(path)

    def _look(self) -> None:
        """Begin attempts of all runs whose turn has come; look again when a rate allows more."""
        now = self._loop.now()
        following = self._shared.look(now)
        if following is not None and not now < self._look_at_shared <= following:
            self._look_at_shared = following
            self._loop.timers.at(following, self._look)

    def _give_back(self, path: str) -> None:
        super()._give_back(path)
        if self._seat is not None:
            self._shared.leave(self._seat, path)

    def close(self) -> None:
        """Give back the drive's places within the shared limits."""
        if self._seat is not None:
            for path in self.holders:
                self._shared.leave(self._seat, path)
            self.holders.clear()
            self._look()


Soon = Callable[[Callable[[], object]], None]
"""Makes an event loop call a function soon; may be called from any thread."""


class SharedAdmission:
    """One ``Admission`` for many runs. Mutable; calls from several threads take turns."""

    def __init__(self, limits: Limits) -> None:
        self._admission = Admission(limits)
        self._lock = threading.Lock()
        self._waiting: dict[str, tuple[Seat, str]] = {}

    def request(self, seat: Seat, path: str, uses: Iterable[tuple[str, int]]) -> None:
        """Queue an attempt of the run that has this seat.

        Raises:
            DefinitionError: the attempt uses more units of a tag than there are.
        """
        with self._lock:
            self._admission.request(seat.key(path), uses)
            self._waiting[seat.key(path)] = (seat, path)

    def look(self, now: float) -> float | None:
        """Grant places to attempts whose turn has come, in their own loops; when to look again."""
        with self._lock:
            begun = [self._waiting.pop(key) for key in self._admission.grants(now)]
            following = self._admission.next_time(now)
        for seat, path in begun:
            seat.soon(partial(seat.granted, path))
        return following

    def leave(self, seat: Seat, path: str) -> None:
        """Give back a granted place, or withdraw the request for one, if there is either."""
        key = seat.key(path)
        with self._lock:
            self._waiting.pop(key, None)
            if not self._admission.withdraw(key):
                self._admission.release(key)


class Seat:
    """One of the runs that share the limits; its event loop calls ``granted``."""

    def __init__(self, soon: Soon, granted: Callable[[str], None]) -> None:
        self.soon = soon
        self.granted = granted

    def key(self, path: str) -> str:
        """The key of this run's path among the paths of all runs."""
        return f"{id(self)}:{path}"


def shared_admission(limits: Limits) -> SharedAdmission:
    """The shared admission for these limits.

    Raises:
        WrongUse: they bound something that only a single run has.
    """
    only = Limits(max_concurrency=limits.max_concurrency, tags=limits.tags, rates=limits.rates)
    if limits != only:
        raise WrongUse(
            "shared_limits of an Executor takes Limits of max_concurrency, tags and rates; what "
            "bounds one run, such as max_steps or a budget, belongs in limits="
        )
    return SharedAdmission(limits)
