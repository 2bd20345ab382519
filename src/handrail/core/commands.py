"""What the core asks the engine to do (imperatives), and the reports that answer.

The engine carries out a batch in order. ``Record`` is the rule behind all others: the event is in
the journal before the next command is looked at, and before the core goes on from it.

They are msgspec structs, which are made five times as fast as frozen dataclasses: two are made for
each step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from handrail.model.events import AttemptFailed, Event, Progress
from handrail.model.launch import FIRST, Fault, Launch
from handrail.model.results import (
    OpenGate,
    StepResult,
    Usage,
    ValidationResult,
    WorkflowResult,
)
from handrail.model.shapes import OwnTree
from handrail.steps.verbs import Rollback, Stage, Step, Wanted


class View(msgspec.Struct, frozen=True):
    """What a step's functions may see: the inputs of its workflow, and results by path."""

    path: str
    inputs: Mapping[str, Any]
    results: Mapping[str, StepResult[Any]]
    validation: ValidationResult | None = None


class Record(msgspec.Struct, frozen=True):
    """Journal this event, then give it back to ``receive``; ``sync``: on disk before going on."""

    event: Event
    sync: bool = False


class Deadline(msgspec.Struct, frozen=True):
    """An attempt may go on until then (unix seconds), and fails with this."""

    due: float
    error: Exception


class Perform(msgspec.Struct, frozen=True):
    """Make one attempt at a leaf step; ``view`` only where it is needed.

    Of an agent step, ``launch`` says which of the attempt's launches it is, ``spent_s`` how long
    those before it were at work, and ``deadline`` when a budget ends it. ``used`` is the usage of
    the attempts before. Answered by ``StepCompleted`` or ``AttemptFailed`` (events),
    ``LaunchFailed`` or ``Stopped``. ``wanted`` is what it holds meanwhile, ``tree`` the worktree
    that it works in, if it has one.
    """

    path: str
    step: Step[Any]
    attempt: int
    started_at: float
    view: View | None
    interrupted: bool = False
    launch: Launch = FIRST
    spent_s: float = 0.0
    deadline: Deadline | None = None
    used: Any = None
    wanted: Wanted | None = None
    tree: OwnTree | None = None


class Queue(msgspec.Struct, frozen=True):
    """Report ``Granted`` with this launch once the step may start, within what a run may do at once
    and in a minute. It holds its place from then on: until its ``Perform`` ends, or ``Release``.

    Asked for only where there is something to decide at that moment: what a budget has left.
    Answered by ``Stopped`` if it is cancelled while it waits.
    """

    path: str
    step: Step[Any]
    attempt: int
    launch: Launch
    interrupted: bool = False
    wanted: Wanted | None = None


class Release(msgspec.Struct, frozen=True):
    """Give the place of a granted launch back: it is not to be made now."""

    path: str


class Claim(msgspec.Struct, frozen=True):
    """Acquire claims for a step that the core carries out itself, and keep them until ``Unclaim``.

    Answered by ``Evaluated`` once they are granted.
    """

    path: str
    wanted: Wanted


class Unclaim(msgspec.Struct, frozen=True):
    """Give back what ``Claim`` asked for, or ask for it no longer; nothing answers."""

    path: str


class PauseAdmission(msgspec.Struct, frozen=True):
    """Start no queued attempt; with ``on`` false, start them again."""

    on: bool


class EndDrive(msgspec.Struct, frozen=True):
    """End the drive as if the process was to end: what is at work is interrupted."""

    reason: str


class AskPredicate(msgspec.Struct, frozen=True):
    """Evaluate a predicate of ``when`` or ``branch``; answered by ``Evaluated`` with a bool."""

    path: str
    predicate: Callable[..., Any]
    view: View
    index: int = 0


class AskFallback(msgspec.Struct, frozen=True):
    """Call an ``on_error`` handler; answered by ``Evaluated`` with the step it returned."""

    path: str
    handler: Callable[..., Any]
    failed: StepResult[Any]
    view: View


class FindStages(msgspec.Struct, frozen=True):
    """Look up stages by name (None: all that are configured); answered by ``Evaluated`` with a
    tuple of ``Stage``.
    """

    path: str
    stages: tuple[str | Stage, ...] | None


class Wait(msgspec.Struct, frozen=True):
    """Report ``TimerFired(path, token)`` at ``due`` (unix seconds)."""

    path: str
    due: float
    token: int


class Ask(msgspec.Struct, frozen=True):
    """Show a gate to whoever answers gates; answered by ``GateAnswered``, or ``GateRefused``."""

    path: str
    gate: OpenGate


class Cancel(msgspec.Struct, frozen=True):
    """Stop the attempt in flight at this path; answered by its end or by ``Stopped``."""

    path: str
    reason: str


class BreakOff(msgspec.Struct, frozen=True):
    """Stop the launch at this path, which is to be made again at once: it keeps its place, or its
    place in line. Answered by ``Stopped``; ``Release`` gives the place back if it is not made.
    """

    path: str


class Undo(msgspec.Struct, frozen=True):
    """Run the rollback of the step at this path; answered by ``RollbackCompleted``."""

    path: str
    rollback: Rollback
    view: View


class Pull(msgspec.Struct, frozen=True):
    """Give the event loop a turn, then answer ``Pulled``: a group has more members to start."""

    path: str


class Tell(msgspec.Struct, frozen=True):
    """Show this to the sinks; it is not journaled."""

    progress: Progress


class Changed(msgspec.Struct, frozen=True):
    """A recorded step is another one now, and nobody said what counts: the drive must end."""

    path: str

    @property
    def reason(self) -> str:
        """Why it ends."""
        return f"the code no longer matches the record of {self.path!r}"


class Finish(msgspec.Struct, frozen=True):
    """The drive is over; this is its result."""

    result: WorkflowResult[Any]


Command: TypeAlias = (
    Record
    | Perform
    | Queue
    | Release
    | Claim
    | Unclaim
    | PauseAdmission
    | EndDrive
    | AskPredicate
    | AskFallback
    | FindStages
    | Wait
    | Ask
    | Cancel
    | BreakOff
    | Undo
    | Pull
    | Tell
    | Changed
    | Finish
)


# -- reports: inputs that need no record, because what follows from them is recorded --------------


class Evaluated(msgspec.Struct, frozen=True):
    """The answer to ``AskPredicate``, ``AskFallback``, ``FindStages`` or ``Claim``: a value or an
    error.
    """

    path: str
    value: Any = None
    error: BaseException | None = None
    at: float = 0.0


class TimerFired(msgspec.Struct, frozen=True):
    """A ``Wait`` is due."""

    path: str
    token: int
    at: float = 0.0


class GateRefused(msgspec.Struct, frozen=True):
    """Whoever was to answer a gate raised, or answered wrongly."""

    path: str
    error: BaseException
    at: float = 0.0


class BrokenOff(msgspec.Struct, frozen=True):
    """What is known of a launch that was stopped: what its agent said it had used (``own``) and had
    used in all of the attempt (``total``), the ``session`` and whose it is, whether the agent had
    said or done anything by then, and how long it was at work.
    """

    own: Usage | None = None
    total: Usage | None = None
    session: str | None = None
    backend: str = ""
    answered: bool = False
    took_s: float = 0.0


NOTHING_KNOWN = BrokenOff()


class Stopped(msgspec.Struct, frozen=True):
    """An attempt ended because it was told to; ``abandoned``: its thread was left behind."""

    path: str
    attempt: int
    abandoned: bool = False
    launch: BrokenOff = NOTHING_KNOWN
    at: float = 0.0


class Granted(msgspec.Struct, frozen=True):
    """The answer to ``Queue``: its launch may start now."""

    path: str
    launch: Launch
    interrupted: bool = False
    at: float = 0.0


class LaunchFailed(msgspec.Struct, frozen=True):
    """A launch of an agent failed after ``took_s``; ``failed`` ends the attempt."""

    path: str
    fault: Fault
    failed: AttemptFailed
    took_s: float = 0.0
    at: float = 0.0


class Pulled(msgspec.Struct, frozen=True):
    """A turn of the loop has passed since ``Pull``."""

    path: str
    at: float = 0.0


class Rehearsed(msgspec.Struct, frozen=True):
    """All that is on record has been gone through: what is beyond it may be carried out."""

    at: float


class CloseRun(msgspec.Struct, frozen=True):
    """The engine can do no more in this drive: nothing but open waits, or the process is to end."""

    reason: str
    at: float = 0.0


Report: TypeAlias = (
    Evaluated
    | TimerFired
    | GateRefused
    | Stopped
    | Granted
    | LaunchFailed
    | Pulled
    | Rehearsed
    | CloseRun
)
