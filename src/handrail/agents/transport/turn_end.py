"""Which of a program's results is the outcome of its turn: one rule for all programs.

Some programs print a result, stay alive, and work on: a command that they left in the background
ends, and they turn to what it printed. So a turn ends when its work has, which only a result of
that work says. A result is interim while something runs in the background, if the program announces
more, and if no work came before it. What a program does after a result needs a result of its own.
Without one the turn has failed, whatever was said before, whether it crashed, hung or was killed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class TurnEnd(Generic[T]):
    """The outcome of a turn, as far as it has one. Mutable.

    ``outcome`` is None while work is open. ``background`` has the ids of what runs in the
    background; True for what the program lists as such.
    """

    def __init__(self) -> None:
        self.outcome: T | None = None
        self.background: dict[str, bool] = {}
        self._was_interim = False

    @property
    def is_reached(self) -> bool:
        """True once nothing but the program's exit is awaited."""
        return self.outcome is not None and not self.background

    def resulted(self, outcome: T, *, is_interim: bool = False) -> None:
        """Note a result, which is the outcome unless it is interim."""
        self._was_interim = is_interim
        self.outcome = None if is_interim else outcome

    def went_on(self) -> None:
        """Note work, which needs a result of its own."""
        self._was_interim = self._was_interim or self.outcome is not None
        self.outcome = None

    def task_started(self, task: str, *, is_listed: bool = False) -> None:
        """Note that a task runs in the background."""
        self.background.setdefault(task, is_listed)
        self.went_on()

    def tasks_are(self, tasks: Iterable[str]) -> None:
        """Note the program's list of what runs in the background; ``background`` keeps others."""
        others = {task: False for task, is_listed in self.background.items() if not is_listed}
        self.background = others | dict.fromkeys(tasks, True)
        if self.background:
            self.went_on()

    @property
    def missing(self) -> str:
        """What the turn lacks for its end, in words that follow those on how the program ended."""
        if self.background:
            return f"; in the background {len(self.background)} of its tasks had not ended"
        return "; the result that it had printed was not of its last work" * self._was_interim
