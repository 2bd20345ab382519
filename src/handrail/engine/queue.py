"""Who waits for a place where an executor's limits are for all of its runs together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from handrail.core import commands as cmd
from handrail.core.admission import Admission
from handrail.core.attempt_ends import failed
from handrail.core.line import Line
from handrail.engine.shared import Seat, SharedAdmission
from handrail.errors import DefinitionError
from handrail.system.running_loop import running_loop

if TYPE_CHECKING:
    from handrail.engine.loop import Loop


class SharedLine(Line):
    """A line whose places are places of all runs, too. Mutable."""

    def __init__(
        self,
        loop: Loop,
        admission: Admission,
        shared: SharedAdmission,
        start: Callable[[cmd.Perform], None],
    ) -> None:
        super().__init__(loop, admission, start)
        self.free = False
        self._post = loop.post
        self._shared = shared
        self._seat: Seat | None = None
        self._look_at_shared = 0.0
        self._held: list[str] = []
        """Who was let in by what all runs share, and may not begin now."""

    def hold(self, *, on: bool) -> None:
        """Let nobody begin, or again those whose turn has come."""
        self._is_held = on
        if not on:
            held, self._held = self._held, []
            for path in held:
                self._begin_granted(path)
            self.admit()

    def admit(self) -> None:
        """Let those begin whose turn has come."""
        super().admit()
        if not self._is_held:
            self._look()

    def _admitted(self, path: str) -> None:
        """Ask for a place of all runs, too."""
        if self._seat is None:
            self._seat = Seat(running_loop().soon_from_anywhere, self._granted_by_all)
        command = self.waiting[path]
        try:
            self._shared.request(self._seat, path, command.step.modifiers.uses)
        except DefinitionError as error:
            self.leave(path)
            self._loop.record(failed(command, error))

    def _granted_by_all(self, path: str) -> None:
        """Begin what is still there, in the turn of the run's own loop."""
        if path in self.waiting and path in self.holders:
            self._post(partial(self._begin_granted, path))

    def _begin_granted(self, path: str) -> None:
        if self._is_held:
            self._held.append(path)
        elif path in self.waiting and path in self.holders:
            self._begin(path)

    def _look(self) -> None:
        """Let those begin whose turn has come, of all runs; look again when a rate opens."""
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
        """Give back what the drive holds of what all runs share."""
        if self._seat is not None:
            for path in self.holders:
                self._shared.leave(self._seat, path)
            self.holders.clear()
            self._look()
