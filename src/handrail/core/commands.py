"""What the core asks the engine to do (imperatives), and the reports that answer.

The engine carries out a batch in order. ``Record`` is the rule behind all others: its event is in
the journal before the engine looks at the next command, and before the core acts on the event.

They are msgspec structs, which are made five times as fast as frozen dataclasses: each step needs
two.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
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
    """Journal this event, then give it back to ``receive``; ``sync``: it must be on disk first."""

    event: Event
    sync: bool = False


class Deadline(msgspec.Struct, frozen=True):
    """The time until which an attempt may run (unix seconds), and the error it fails with then."""

    due: float
    error: Exception


class Perform(msgspec.Struct, frozen=True):
    """Make one attempt at a leaf step; ``view`` is set only where it is needed.

    For an agent step, ``launch`` says which launch of the attempt this is, ``spent_s`` how many
    seconds its earlier launches ran, and ``deadline`` when a budget ends it. ``used`` is the usage
    of earlier attempts, ``wanted`` the claims that the step holds while it runs, ``tree`` the
    worktree that it works in, if it has one. Answered by ``StepCompleted`` or ``AttemptFailed``
    (events), ``LaunchFailed`` or ``Stopped``.
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
    """Report ``Granted`` with this launch once the limits on concurrency and rates let it start.

    From then on the launch has its place, until its ``Perform`` ends, or until ``Release``. Used
    only for launches under a budget, which is checked when the place is granted. Answered by
    ``Stopped`` if the launch is cancelled while it waits.
    """

    path: str
    step: Step[Any]
    attempt: int
    launch: Launch
    interrupted: bool = False
    wanted: Wanted | None = None


class Release(msgspec.Struct, frozen=True):
    """Give back the place of a granted launch, which is not made now."""

    path: str


class Claim(msgspec.Struct, frozen=True):
    """Acquire claims for a step that the core carries out itself, and keep them until ``Unclaim``.

    Answered by ``Evaluated`` once they are granted.
    """

    path: str
    wanted: Wanted


class Unclaim(msgspec.Struct, frozen=True):
    """Give back the claims of a ``Claim``, or withdraw the request; nothing answers."""

    path: str


class PauseAdmission(msgspec.Struct, frozen=True):
    """Start no queued attempt; with ``on`` false, start them again."""

    on: bool


class EndDrive(msgspec.Struct, frozen=True):
    """End the drive as if the process were ending: attempts in flight are interrupted."""

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
    """Look up stages by name (None: all); answered by ``Evaluated`` with a tuple of ``Stage``."""

    path: str
    stages: tuple[str | Stage, ...] | None


class Wait(msgspec.Struct, frozen=True):
    """Report ``TimerFired(path, token)`` at ``due`` (unix seconds)."""

    path: str
    due: float
    token: int


class Ask(msgspec.Struct, frozen=True):
    """Show a gate to those who answer gates; answered by ``GateAnswered``, or ``GateRefused``."""

    path: str
    gate: OpenGate


class Cancel(msgspec.Struct, frozen=True):
    """Stop the attempt in flight at this path; answered by its end or by ``Stopped``."""

    path: str
    reason: str


class BreakOff(msgspec.Struct, frozen=True):
    """Stop the launch at this path, because another one replaces it at once.

    Its place, granted or in line, is kept for the other. Answered by ``Stopped``; ``Release`` gives
    the place back if the other launch is not made.
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
    """A recorded step has changed, and nobody accepted its record: the drive must end."""

    path: str

    @property
    def reason(self) -> str:
        """Why the drive ends."""
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
    """The answer to a predicate, a handler, ``FindStages`` or ``Claim``: a value or an error."""

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
    """Answering a gate raised an error, or gave an invalid answer."""

    path: str
    error: BaseException
    at: float = 0.0


class BrokenOff(msgspec.Struct, frozen=True):
    """What is known of a launch that was stopped.

    ``own`` is its usage as its agent reported it, ``total`` the usage of the whole attempt.
    ``session`` belongs to ``backend``. ``answered``: the agent had said or done something.
    ``took_s`` is how many seconds the launch ran.
    """

    own: Usage | None = None
    total: Usage | None = None
    session: str | None = None
    backend: str = ""
    answered: bool = False
    took_s: float = 0.0


NOTHING_KNOWN = BrokenOff()


class Stopped(msgspec.Struct, frozen=True):
    """An attempt was stopped and has ended; ``abandoned``: its thread did not end, and was left."""

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
    """A launch failed after ``took_s`` seconds; ``failed`` would fail its attempt."""

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
    """The rehearsal is over: the commands beyond the record may be carried out."""

    at: float


class CloseRun(msgspec.Struct, frozen=True):
    """The drive is ending: only waits are left, or the process is to end."""

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


class VisibleResults(Mapping[str, StepResult[Any]]):
    """The results by full path that the step at ``viewer`` may see, live: those of its own
    generator and of the enclosing ones.

    The rule depends on paths alone, so it does not depend on which step finished first. Let ``a``
    be the longest common part of the viewer's path and a result's path. If ``a`` is a group whose
    members run side by side, the result belongs to a sibling and is not shown; else everything
    recorded below ``a`` came before the viewer's own yield.
    """

    __slots__ = ("_concurrent", "_results", "_viewer")

    def __init__(
        self,
        results: Mapping[str, StepResult[Any]],
        concurrent: Container[str],
        viewer: str,
    ) -> None:
        self._results = results
        self._concurrent = concurrent
        self._viewer = viewer

    def __getitem__(self, path: str) -> StepResult[Any]:
        result = self._results[path]
        if not self._is_visible(path):
            raise KeyError(path)
        return result

    def __iter__(self) -> Iterator[str]:
        return (path for path in list(self._results) if self._is_visible(path))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def find(self, path: str) -> StepResult[Any] | None:
        """The result by name, searched from the viewer outward, or by ``/path`` from the root."""
        if path.startswith("/"):
            return self.get(path[1:])
        scope = self._viewer
        while scope:
            scope = scope.rpartition("/")[0]
            result = self.get(f"{scope}/{path}" if scope else path)
            if result is not None:
                return result
        return None

    def _is_visible(self, path: str) -> bool:
        scope = common_scope(self._viewer, path)
        return scope == self._viewer or scope not in self._concurrent


def common_scope(one: str, other: str) -> str:
    """The longest path that both paths lie below, or at; empty for the root."""
    end = 0
    for a, b in zip(one.split("/"), other.split("/"), strict=False):
        if a != b:
            break
        end += len(a) + 1
    return one[: max(0, end - 1)]
