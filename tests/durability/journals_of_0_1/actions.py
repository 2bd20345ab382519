"""What the steps of these workflows do: they leave traces, give values, fail and die."""

from __future__ import annotations

import os
import signal as signals
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from handrail import (
    Step,
    StepResult,
    WorkflowContext,
    current,
    step,
)


@dataclass
class World:
    """What the actions see of the world: the how-manieth life of the run this is, and a file to
    leave traces in. Mutable.
    """

    life: int = 1
    effects: Path | None = None


WORLD = World()


# -- what steps do ---------------------------------------------------------------------------------


class Broken(Exception):
    """What these steps fail with."""


class VeryBroken(Broken):
    """The same, by a name of its own."""


def trace(*words: object) -> None:
    """Add a line to the file of effects, which outlives a SIGKILL."""
    assert WORLD.effects is not None
    with WORLD.effects.open("a") as file:
        file.write(" ".join(map(str, words)) + "\n")


def did() -> None:
    """Leave a trace of the attempt that is running."""
    trace(current().path, current().attempt)


async def act(value: Any = None) -> Any:
    """An effect, and the value that was given."""
    did()
    return value


def act_in_thread(value: Any = None) -> Any:
    """The same in a thread."""
    did()
    return value


async def breaks(text: str = "no") -> None:
    """An effect and a failure."""
    did()
    raise VeryBroken(text)


async def fails_until(life: int, value: Any = None) -> Any:
    """A failure in the lives before that one."""
    did()
    if life > WORLD.life:
        raise Broken(f"not before life {life}")
    return value


async def dies_until(life: int, value: Any = None) -> Any:
    """An effect, and the end of the process in the lives before that one."""
    did()
    if life > WORLD.life:
        os.kill(os.getpid(), signals.SIGKILL)
    return value


async def interrupted_until(life: int) -> str:
    """What Ctrl-C does to an action, in the lives before that one."""
    did()
    if life > WORLD.life:
        raise KeyboardInterrupt
    return f"interrupted before: {current().interrupted}"


async def flaky(failures: int) -> str:
    """A failure at each of the first attempts."""
    did()
    if current().attempt <= failures:
        raise Broken(f"attempt {current().attempt}")
    return f"attempt {current().attempt}"


async def in_second_attempt_of_group() -> str:
    """A failure in the first attempt of the group that it stands in."""
    did()
    if "~2/" not in current().path:
        raise Broken("not yet")
    return "done"


def undo(context: WorkflowContext) -> None:
    """Rolls back."""
    trace("undo", context.path)


def undo_in_vain(context: WorkflowContext) -> None:
    """Cannot roll back."""
    trace("undo", context.path)
    raise Broken(f"{context.path} stays")


def dies_undoing(context: WorkflowContext) -> None:
    """Rolls back, and its process ends in the midst of it in the first life."""
    trace("undo", context.path)
    if WORLD.life == 1:
        os.kill(os.getpid(), signals.SIGKILL)


def yes(context: WorkflowContext) -> bool:
    """A predicate that is true."""
    return True


def no(context: WorkflowContext) -> bool:
    """A predicate that is false."""
    return False


def failure_for_unserializable(context: WorkflowContext, failed: StepResult[Any]) -> Step[Any]:
    """A fallback."""
    return step("instead").call(act, f"instead of {failed.name}")
