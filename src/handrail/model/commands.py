"""What the core asks the engine to do (imperatives), and the reports that answer.

The engine carries out a batch in order. ``Record`` is the rule behind all others: the event is in
the journal before the next command is looked at, and before the core goes on from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from handrail.model.events import Event, Progress
from handrail.model.results import OpenGate, StepResult, ValidationResult, WorkflowResult
from handrail.model.steps import Rollback, Stage, Step



@dataclass(frozen=True, slots=True)
class View:
    """What a step's functions may see: the inputs of its workflow, and results by path."""

    path: str
    inputs: Mapping[str, Any]
    results: Mapping[str, StepResult[Any]]
    validation: ValidationResult | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """Journal this event, then give it back to ``receive``; ``sync``: on disk before going on."""

    event: Event
    sync: bool = False


@dataclass(frozen=True, slots=True)
class Perform:
    """Make one attempt at a leaf step. Answered by ``StepCompleted`` or ``AttemptFailed`` (events),
    or ``Stopped``."""

    path: str
    step: Step[Any]
    attempt: int
    started_at: float
    view: View
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class AskPredicate:
    """Evaluate a predicate of ``when`` or ``branch``; answered by ``Evaluated`` with a bool."""

    path: str
    predicate: Callable[..., Any]
    view: View
    index: int = 0


@dataclass(frozen=True, slots=True)
class AskFallback:
    """Call an ``on_error`` handler; answered by ``Evaluated`` with the step it returned."""

    path: str
    handler: Callable[..., Any]
    failed: StepResult[Any]
    view: View


@dataclass(frozen=True, slots=True)
class FindStages:
    """Look up stages by name (None: all that are configured); answered by ``Evaluated`` with a
    tuple of ``Stage``."""

    path: str
    stages: tuple[str | Stage, ...] | None


@dataclass(frozen=True, slots=True)
class Wait:
    """Report ``TimerFired(path, token)`` at ``due`` (unix seconds)."""

    path: str
    due: float
    token: int


@dataclass(frozen=True, slots=True)
class Ask:
    """Show a gate to whoever answers gates; answered by ``GateAnswered``, or ``GateRefused``."""

    path: str
    gate: OpenGate


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop the attempt in flight at this path; answered by its end or by ``Stopped``."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Undo:
    """Run the rollback of the step at this path; answered by ``RollbackCompleted``."""

    path: str
    rollback: Rollback
    view: View


@dataclass(frozen=True, slots=True)
class Pull:
    """Give the event loop a turn, then answer ``Pulled``: a group has more members to start."""

    path: str


@dataclass(frozen=True, slots=True)
class Tell:
    """Show this to the sinks; it is not journaled."""

    progress: Progress


@dataclass(frozen=True, slots=True)
class Finish:
    """The drive is over; this is its result."""

    result: WorkflowResult[Any]


Command: TypeAlias = (
    Record
    | Perform
    | AskPredicate
    | AskFallback
    | FindStages
    | Wait
    | Ask
    | Cancel
    | Undo
    | Pull
    | Tell
    | Finish
)


# -- reports: inputs that need no record, because what follows from them is recorded --------------


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The answer to ``AskPredicate``, ``AskFallback`` or ``FindStages``: a value or an error."""

    path: str
    value: Any = None
    error: BaseException | None = None
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A ``Wait`` is due."""

    path: str
    token: int
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class GateRefused:
    """Whoever was to answer a gate raised, or answered wrongly."""

    path: str
    error: BaseException
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Stopped:
    """An attempt ended because it was told to; ``abandoned``: its thread was left behind."""

    path: str
    attempt: int
    abandoned: bool = False
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Pulled:
    """A turn of the loop has passed since ``Pull``."""

    path: str
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class CloseRun:
    """The engine can do no more in this drive: nothing but open waits, or the process is to end."""

    reason: str
    at: float = 0.0


Report: TypeAlias = Evaluated | TimerFired | GateRefused | Stopped | Pulled | CloseRun
