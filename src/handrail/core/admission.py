"""Which attempts may start now, within a run's limits on concurrency and on starts per minute.

Theory of operation
===================

A request waits in the queue of each limited tag that it uses, and is *cleared* once it is first in
all of them, their units are free and their rates have room. Cleared requests take the slots of
``max_concurrency`` by age. So:

- a request that waits for a scarce tag takes no slot, and delays no request without that tag;
- within a tag no request overtakes another, so none starves: the oldest request is first in all its
  queues, what it lacks comes with releases and time, and no later one can take it away;
- a request takes all it needs in one go, so no two can wait for one another.

A cleared request cannot lose its units or its rates' room: only the first in a queue takes from its
tag. So a request is checked only when it becomes first or units come back, never in a scan. A
request, a grant and a release cost the logarithm of the number of waiting ones, times the tags of
one step; a tick of the clock costs one look at each tag with a rate.

*Rates* are spaced: with N per minute, each start comes more than 60/N s after the one before it. So
no window of 60 s, both ends included, has more than N starts, and they never come as a burst.
``last_start`` is when an earlier drive of the run was last at work: the spacing holds over drives.
``uses("claude", 3)`` takes three units of ``tags``, and is one start for ``rates``.

*Processes* (agents and commands) share a tag without a name, unless ``max_concurrency`` or one of
their own tags bounds them: 80 members of a group are not to be 80 programs at once.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from itertools import count

from handrail.errors import DefinitionError
from handrail.model.policy import Limits

WINDOW_S = 60.0
_MORE = 1 + 1e-9
"""Makes N gaps longer than the window in spite of rounding."""
_STALE_ALLOWED = 16


class Admission:
    """Decides which attempts of a run may start. Mutable; child workflows share their run's.

    The engine calls ``request`` for each attempt, and ``grants`` after requests, after releases and
    when ``next_time`` has come. A granted path runs until ``release``. Times are unix seconds; if
    the clock is set back, no time counts as passed.
    """

    def __init__(
        self, limits: Limits, last_start: float = -math.inf, *, processes: int | None = None
    ) -> None:
        names = {**limits.tags, **limits.rates}
        self.trivial = limits.max_concurrency is None and not names
        """True if the run's limits delay no attempt; then only the bound on processes may."""
        self._slots = math.inf if limits.max_concurrency is None else limits.max_concurrency
        self._tags = {
            name: _Tag(name, limits.tags.get(name), limits.rates.get(name), last_start)
            for name in names
        }
        bounded = processes is not None and limits.max_concurrency is None
        self._processes = _Tag("", processes, None, last_start) if bounded else None
        self._waiting: dict[str, _Request] = {}
        self._running: dict[str, _Request] = {}
        self._cleared: list[tuple[int, _Request]] = []  # a heap by age; withdrawn ones are left in
        self._timed: dict[_Request, float] = {}  # cleared but for a rate: at most one for each tag
        self._numbers = count()
        self._now = -math.inf

    # -- asking ---------------------------------------------------------------------------------

    def check(self, path: str, uses: Iterable[tuple[str, int]]) -> None:
        """Check that the step at ``path`` can ever be granted.

        Raises:
            DefinitionError: it uses more units of a tag than there are.
        """
        self._needs(path, uses)

    def request(self, path: str, uses: Iterable[tuple[str, int]], *, process: bool = False) -> None:
        """Queue an attempt that uses these amounts of tags; a tag without a limit does not count.
        ``process``: it is an agent or a command.

        Raises:
            DefinitionError: as ``check``.
            ValueError: this path waits or runs already.
        """
        # long road of line.Line.begin
        if path in self._waiting or path in self._running:
            raise ValueError(f"{path!r} was requested already, and neither withdrawn nor released")
        needs = self._needs(path, uses)
        bound = self._processes if process else None
        if bound is not None and not any(tag.units < math.inf for tag, _ in needs):
            needs = (*needs, (bound, 1))
        request = _Request(next(self._numbers), path, needs)
        self._waiting[path] = request
        for tag, _ in needs:
            request.not_first += bool(tag.queue)
            tag.queue[request] = None
        self._clear(request)

    def withdraw(self, path: str) -> bool:
        """Take back a request that was not granted; False, and nothing done, if there is none."""
        request = self._waiting.pop(path, None)
        if request is None:
            return False
        self._timed.pop(request, None)
        self._leave_queues(request)
        self._drop_stale()
        return True

    def release(self, path: str) -> None:
        """Give back the units of a granted path; does nothing if the path does not run."""
        request = self._running.pop(path, None)
        if request is None:
            return
        for tag, amount in request.needs:
            tag.free += amount
        for tag, _ in request.needs:
            if tag.queue:
                self._clear(tag.first)

    # -- granting -------------------------------------------------------------------------------

    def grants(self, now: float) -> list[str]:
        """The paths that start now, oldest request first; their units are taken."""
        self._set_time(now)
        for request in [request for request, due in self._timed.items() if due <= now]:
            del self._timed[request]
            heappush(self._cleared, (request.number, request))
        granted: list[str] = []
        while self._cleared and len(self._running) < self._slots:
            _, request = heappop(self._cleared)
            if self._waiting.get(request.path) is request:
                self._start(request, now)
                granted.append(request.path)
        return granted

    def next_time(self, now: float) -> float | None:
        """When the next request that waits only for a rate may start.

        None if time alone changes nothing: no request waits for a rate, or every slot is taken.
        Right after ``grants(now)`` it is later than ``now``.
        """
        self._set_time(now)
        if not self._timed or len(self._running) >= self._slots:
            return None
        return min(self._timed.values())

    # -- inside ---------------------------------------------------------------------------------

    def _needs(self, path: str, uses: Iterable[tuple[str, int]]) -> tuple[tuple[_Tag, int], ...]:
        amounts: dict[_Tag, int] = {}
        for name, amount in uses:
            tag = self._tags.get(name)
            if tag is not None:
                amounts[tag] = amounts.get(tag, 0) + amount
        for tag, amount in amounts.items():
            if amount > tag.units:
                raise DefinitionError(
                    f"step {path!r} uses {amount} of {tag.name!r} and could never start: "
                    f"the run has {tag.units:g} in all. Lower .uses({tag.name!r}, {amount}) or "
                    f"raise Limits(tags={{{tag.name!r}: {tag.units:g}}})."
                )
        return tuple(amounts.items())

    def _clear(self, request: _Request) -> None:
        """Let a request wait only for a slot or its rate, if nothing else is in its way."""
        if request.cleared or request.not_first:
            return
        if any(tag.free < amount for tag, amount in request.needs):
            return
        request.cleared = True
        due = request.due()
        if due <= self._now:
            heappush(self._cleared, (request.number, request))
        else:
            self._timed[request] = due

    def _start(self, request: _Request, now: float) -> None:
        del self._waiting[request.path]
        self._running[request.path] = request
        for tag, amount in request.needs:
            tag.free -= amount
            tag.last_start = now
        self._leave_queues(request)

    def _leave_queues(self, request: _Request) -> None:
        for tag, _ in request.needs:
            was_first = tag.first is request
            del tag.queue[request]
            if was_first and tag.queue:
                successor = tag.first
                successor.not_first -= 1
                self._clear(successor)

    def _drop_stale(self) -> None:
        """Rebuild the heap once most of it is withdrawn: too seldom to cost much on average."""
        if len(self._cleared) > 2 * len(self._waiting) + _STALE_ALLOWED:
            self._cleared = [
                entry for entry in self._cleared if self._waiting.get(entry[1].path) is entry[1]
            ]
            heapify(self._cleared)

    def _set_time(self, now: float) -> None:
        if now < self._now:  # the machine's clock was set back: shift the remembered times
            for tag in self._tags.values():
                tag.last_start += now - self._now
            self._timed = {request: request.due() for request in self._timed}
        self._now = now


class _Tag:
    """A limited tag: its free units, its last start, and the requests that wait for it. Mutable."""

    __slots__ = ("free", "gap_s", "last_start", "name", "queue", "units")

    def __init__(
        self, name: str, units: int | None, per_minute: int | None, last_start: float
    ) -> None:
        self.name = name
        self.units = math.inf if units is None else units
        self.free = self.units
        self.gap_s = None if per_minute is None else WINDOW_S / per_minute * _MORE
        self.last_start = last_start
        # An OrderedDict, because it finds its first and drops any in constant time. A dict looks
        # for its first among all that were dropped before it.
        self.queue: OrderedDict[_Request, None] = OrderedDict()

    @property
    def first(self) -> _Request:
        """The request that is served next."""
        return next(iter(self.queue))

    def opens(self) -> float:
        """When the rate has room for one more start; minus infinity if it always had."""
        if self.gap_s is None:
            return -math.inf
        return math.nextafter(self.last_start + self.gap_s, math.inf)


class _Request:
    """One attempt that waits or runs. Mutable."""

    __slots__ = ("cleared", "needs", "not_first", "number", "path")

    def __init__(self, number: int, path: str, needs: tuple[tuple[_Tag, int], ...]) -> None:
        self.number = number
        self.path = path
        self.needs = needs
        self.not_first = 0  # in how many queues another request is before it
        self.cleared = False

    def due(self) -> float:
        """When every rate has room; minus infinity if there was room from the start."""
        return max((tag.opens() for tag, _ in self.needs), default=-math.inf)
