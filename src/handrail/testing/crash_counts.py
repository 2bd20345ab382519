"""Counts what is really performed: every attempt and every rollback, as its code begins to run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any, Literal, Protocol, TypeAlias

from handrail.core import commands as cmd
from handrail.engine import executor
from handrail.engine.driver import Driver
from handrail.engine.tasks import Flight
from handrail.model import events as ev

Kind: TypeAlias = Literal["attempt", "rollback"]


class Note(Protocol):
    """Is told of each attempt and rollback that begins."""

    def __call__(self, kind: Kind, path: str, attempt: int, /, *, once: bool) -> None:
        """``once``: the step must not run twice."""


@contextlib.contextmanager
def counted(note: Note) -> Generator[None]:
    """Tell ``note`` of all that executors of this process perform meanwhile.

    The journal cannot be asked: it is what a crash test puts in question. Sinks see when a step
    starts, not when an attempt does. So the driver is replaced by one that speaks.
    """

    class Counting(Driver):
        """A driver that says what it performs."""

        async def _perform_here(self, command: cmd.Perform) -> ev.Event | None:
            note("attempt", command.path, command.attempt, once=command.step.modifiers.once)
            return await super()._perform_here(command)

        def start(self, flight: Flight, work: Callable[[], Any], context: Context) -> None:
            super().start(flight, _noted(flight, work, note), context)

    names = executor.__dict__
    usual = names["Driver"]
    names["Driver"] = Counting
    try:
        yield
    finally:
        names["Driver"] = usual


def _noted(flight: Flight, work: Callable[[], Any], note: Note) -> Callable[[], Any]:
    """The work, which says so when it really begins: not all that is started gets that far."""
    if flight.kind not in ("attempt", "rollback"):
        return work

    def begun() -> Any:
        if flight.kind == "attempt":
            command: cmd.Perform = flight.command
            note("attempt", flight.path, command.attempt, once=command.step.modifiers.once)
        else:
            note("rollback", flight.path, 1, once=False)
        return work()

    return begun
