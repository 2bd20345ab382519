"""What has happened in a run.

Two closed unions. ``Event``: facts, journaled and numbered without a gap (``seq`` from 1 in a
run); they are all that a replay needs. ``Progress``: what a person may like to see meanwhile
(deltas, output lines); it reaches sinks only, and carries the ``seq`` of the last event before it.

An event is drafted without number and time; the engine stamps it once, before anyone sees it.
``at`` is unix seconds. ``path`` is the step's, where there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal, TypeAlias, TypeVar, cast

from handrail.model.dataclass import dataclass
from handrail.model.launch import Launch
from handrail.model.results import (
    OpenGate,
    RollbackError,
    RunStatus,
    StepResult,
    StepStatus,
    Usage,
    ValidationRoundResult,
    WaitsFor,
    own_usage,
)
from handrail.model.work import Task
from handrail.typed.reference import OWN_STRICT_VALUE, OWN_VALUE, STRICT_VALUE, VALUE

TimerReason: TypeAlias = Literal["sleep", "retry", "timeout", "gate", "cap", "backoff", "run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamped:
    """The fields that every event has; see the module's text."""

    run_id: str = ""
    seq: int = 0
    at: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """``type`` (the name of the class) and all fields, as JSON-safe data."""
        from handrail.typed.jsonsafe import json_safe

        return {"type": type(self).__name__, **cast("dict[str, Any]", json_safe(self))}


E = TypeVar("E", bound=Stamped)

_set = object.__setattr__


def stamp(event: E, run_id: str, seq: int, at: float) -> E:
    """Number an event in place; only the engine may, once, before others have the event."""
    _set(event, "run_id", run_id)
    _set(event, "seq", seq)
    _set(event, "at", at)
    if type(event) in ENDS:
        end: Any = event
        _set(end.result, "at", at)
    return event


# -- the run -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkflowStarted(Stamped):
    """A run began; ``inputs`` are bound by parameter name.

    ``forked_from`` is the run that this one was forked from, and the step (or None). Then the next
    events are copied from that run, up to a ``RunSuspended`` with the reason ``"forked"``.
    """

    workflow_name: str
    inputs: Mapping[str, Any] = field(default_factory=dict[str, Any], metadata=OWN_STRICT_VALUE)
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    forked_from: tuple[str, str | None] | None = None


@dataclass(frozen=True, slots=True)
class WorkflowCompleted(Stamped):
    """A run ended; always the last event of its drive.

    ``orphaned`` are paths of recorded steps that the code, changed since, did not reach.
    """

    status: RunStatus
    value: Any = field(default=None, metadata=STRICT_VALUE)
    error: str | None = None
    error_type: str | None = None
    traceback: str | None = None
    failed_step: str | None = None
    rollback_errors: tuple[RollbackError, ...] = ()
    duration_ms: float = 0.0
    orphaned: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunSuspended(Stamped):
    """A drive ended while the run waits; always the last event of its drive.

    ``notes`` say what bodies did when they were closed: raised, or yielded steps that did not run.
    """

    waiting: tuple[OpenGate, ...] = field(default=(), metadata=OWN_VALUE)
    signals: tuple[str, ...] = ()
    reason: str = "waiting"
    notes: tuple[str, ...] = ()
    waits_for: tuple[WaitsFor, ...] = ()


@dataclass(frozen=True, slots=True)
class RunResumed(Stamped):
    """A new drive of the run began; records of ``superseded`` paths no longer count.

    ``letter`` is the number of the last message that this drive skips: it was for an earlier drive.
    ``labels`` are those that changed: a person typed other bounds.
    """

    superseded: tuple[str, ...] = ()
    reused: tuple[str, ...] = ()
    rerun: tuple[str, ...] = ()
    workflow_name: str = ""
    letter: int = 0
    labels: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class CancelRequested(Stamped):
    """Somebody asked for the run to be cancelled; ``letter`` is its message's number, if any."""

    reason: str = "cancelled"
    letter: int = 0


SteeringAction: TypeAlias = Literal[
    "pause", "unpause", "stop", "complete", "skip", "retry", "guide"
]
"""What a person can do to a run that is at work, or to a step of it."""


@dataclass(frozen=True, slots=True)
class RunSteered(Stamped):
    """Somebody (``by``) steered the run, or its step at ``path``.

    ``value`` is the output for ``complete``, or the text of ``guide``. ``letter`` is the number of
    the message.
    """

    action: SteeringAction
    path: str = ""
    value: Any = field(default=None, metadata=VALUE)
    by: str | None = None
    letter: int = 0


@dataclass(frozen=True, slots=True)
class LimitReached(Stamped):
    """A limit ends the run; ``name`` is the field of ``Limits``."""

    name: str
    value: float
    path: str = ""


# -- steps ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StepStarted(Stamped):
    """A step is about to make its first attempt, or to be skipped by its predicate.

    ``fingerprint`` describes the step as the code did (empty in a run that is not durable).
    ``verdict`` is the predicate's. ``index`` is the step's place (from 0) among the members of its
    group, or among the steps that its body yielded. ``signal`` is the signal that a ``wait_for``
    waits for, ``accepts`` the type of its payload (None: any, or a type that cannot be recorded).
    ``rollback``: it has a rollback. ``once``: it must not run again. ``cleanup``: the body that
    yielded it was being cancelled. ``agents_may_answer``: its ``wait_for`` takes a signal from what
    steps of its journal's runs started.
    """

    path: str
    step_type: str
    fingerprint: str = ""
    verdict: bool | None = None
    signal: str = ""
    index: int = 0
    rollback: bool = False
    once: bool = False
    accepts: Any = field(default=None, metadata=VALUE)
    cleanup: bool = False
    agents_may_answer: bool = False


@dataclass(frozen=True, slots=True)
class AttemptFailed(Stamped):
    """An attempt failed; ``retryable`` is the verdict of ``retry(on=)`` on the live exception.

    ``took`` is the number of a signal that a ``wait_for`` took, and whose payload did not fit.
    ``left_out`` and ``composed`` are as in ``StepCompleted``, ``abandoned`` as in ``StepResult``.
    ``cause``: the step whose failure ended the attempt's body; empty if the body raised an error of
    its own, None if the step has no body.
    """

    path: str
    attempt: int
    error: str
    error_type: str
    error_bases: tuple[str, ...] = ()
    traceback: str | None = None
    retryable: bool = True
    output: Any = field(default=None, metadata=VALUE)
    usage: Usage | None = None
    took: int = 0
    left_out: tuple[str, ...] = ()
    composed: str = ""
    abandoned: bool = False
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class StepMoved(Stamped):
    """A step or member with a recorded end is now at another place in its body or group.

    The code changed, or it took another course. ``index`` as in ``StepStarted``.
    """

    path: str
    index: int


@dataclass(frozen=True, slots=True)
class StepInterrupted(Stamped):
    """A step was stopped because the process must end; it has no end and will run again.

    ``usage`` is what its agent reported for this launch until then.
    """

    path: str
    reason: str = ""
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class StepCompleted(Stamped):
    """A step ended; ``result`` says how.

    ``composed`` says how the output can be composed from the records below the path, so that a
    journal need not store it again; empty if it cannot. See ``record.outputs``. ``took`` is the
    number of the signal that a ``wait_for`` took. ``left_out`` are recorded paths directly below
    this one that the step did not reach now: the code, or its course, was different before.
    ``used_before`` is what its failed attempts used; ``result.usage`` includes it. ``overdue`` is
    the step around a cancelled one whose timeout stopped it.
    """

    path: str
    result: StepResult[Any]
    composed: str = ""
    took: int = 0
    left_out: tuple[str, ...] = ()
    used_before: Usage | None = None
    overdue: str = ""

    @property
    def status(self) -> StepStatus:
        """How it ended."""
        return self.result.status

    @property
    def used(self) -> Usage | None:
        """What the last attempt used."""
        total, before = self.result.usage, self.used_before
        if total is None or before is None:
            return total
        return own_usage(total, before) if total != before else None


@dataclass(frozen=True, slots=True)
class ValidationRound(Stamped):
    """One round of a ``validate`` step ended: what each stage said, before any fix."""

    path: str
    number: int
    passed: bool
    round: ValidationRoundResult = field(metadata=OWN_VALUE)


# -- groups and children -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupStarted(Stamped):
    """A group opened; ``size`` is None where the number of items is not known."""

    path: str
    kind: str
    size: int | None = None
    on_error: str = "fail_fast"
    max_concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class GroupCompleted(Stamped):
    """A group closed, with how its members ended.

    For ``work``, ``order`` has the keys of the tasks in tree order, if they began in another order,
    and ``why_stopped`` says why tasks were left.
    """

    path: str
    kind: str
    total: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    skipped: int = 0
    order: tuple[str, ...] = ()
    why_stopped: str | None = None


@dataclass(frozen=True, slots=True)
class MemberStarted(Stamped):
    """A member of a ``for_each``, or a task of ``work``, began.

    ``index`` counts from 0; ``digest`` is a digest of the item, or of the payload.
    """

    path: str
    index: int
    key: str
    digest: str = ""


@dataclass(frozen=True, slots=True)
class MemberCompleted(Stamped):
    """A member of a ``for_each``, or a task of ``work``, ended.

    ``composed``, ``left_out`` and ``overdue`` are as in ``StepCompleted``. ``found`` has the id and
    priority of each task that a task brought. ``cause`` is as in ``AttemptFailed``.
    """

    path: str
    index: int
    result: StepResult[Any]
    composed: str = ""
    left_out: tuple[str, ...] = ()
    found: tuple[tuple[str, float], ...] = ()
    cause: str | None = None
    overdue: str = ""

    @property
    def status(self) -> StepStatus:
        """How it ended."""
        return self.result.status


@dataclass(frozen=True, slots=True)
class TasksQueued(Stamped):
    """The tasks with which a ``work`` step begins, as the code lists them now."""

    path: str
    tasks: tuple[Task, ...] = field(default=(), metadata=OWN_VALUE)


@dataclass(frozen=True, slots=True)
class WorkEdited(Stamped):
    """Somebody (``by``) changed the queue of ``work``.

    ``add`` has new tasks, ``drop`` the ids of tasks to drop, ``priority`` new priorities by id.
    ``letter`` is the number of the message.
    """

    path: str
    add: tuple[Task, ...] = field(default=(), metadata=OWN_VALUE)
    drop: tuple[str, ...] = ()
    priority: Mapping[str, float] = field(default_factory=dict[str, float])
    by: str | None = None
    letter: int = 0


@dataclass(frozen=True, slots=True)
class WorkStopped(Stamped):
    """The ``stop`` rule of ``work`` returned a reason, so no further task begins.

    ``ended`` is how many tasks had ended in this ``attempt`` by then.
    """

    path: str
    attempt: int
    reason: str
    ended: int = 0


@dataclass(frozen=True, slots=True)
class SubworkflowStarted(Stamped):
    """A child workflow began."""

    path: str
    workflow_name: str
    inputs: Mapping[str, Any] = field(default_factory=dict[str, Any], metadata=OWN_VALUE)


@dataclass(frozen=True, slots=True)
class SubworkflowEnded(Stamped):
    """A child workflow ended; ``value`` is what it returned."""

    path: str
    workflow_name: str
    status: RunStatus
    error: str | None = None
    value: Any = field(default=None, metadata=STRICT_VALUE)


# -- waiting -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GateOpened(Stamped):
    """A question waits for a person."""

    path: str
    gate: OpenGate = field(metadata=OWN_VALUE)


@dataclass(frozen=True, slots=True)
class GateAnswered(Stamped):
    """A gate got the one answer that counts; ``letter`` is its number if it came as a message."""

    path: str
    answer: Any = field(metadata=VALUE)
    by: str | None = None
    letter: int = 0


@dataclass(frozen=True, slots=True)
class TimerSet(Stamped):
    """A timer was set, which fires at ``due`` (unix seconds)."""

    path: str
    due: float
    reason: TimerReason
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class SignalReceived(Stamped):
    """A signal arrived; the run keeps it until a ``wait_for`` takes it.

    ``letter`` is its number if it came as a message.
    """

    name: str
    payload: Any = field(default=None, metadata=VALUE)
    by: str | None = None
    letter: int = 0


# -- undoing -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RollbackStarted(Stamped):
    """The rollback of the step at ``path`` began."""

    path: str


@dataclass(frozen=True, slots=True)
class RollbackCompleted(Stamped):
    """The rollback of the step at ``path`` ended, with its error if it failed."""

    path: str
    error: str | None = None
    error_type: str | None = None


# -- agents --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AgentSessionStarted(Stamped):
    """A backend named its session, which an interrupted step can continue.

    ``launch`` is the number of the launch, ``backend`` the backend's name, ``model`` the model that
    answers, if known.
    """

    path: str
    session: str
    backend: str = ""
    model: str | None = None
    launch: int = 1


@dataclass(frozen=True, slots=True)
class ClaimWaiting(Stamped):
    """A step waits for a claim of ``what``: files, or a name.

    ``holder`` (another step, a person, a program) has the claim now, or waits before the step.
    """

    path: str
    what: str
    holder: str = ""


@dataclass(frozen=True, slots=True)
class ClaimGranted(Stamped):
    """A step got a claim of ``what``; the claim's ``epoch`` is greater than all earlier ones."""

    path: str
    what: str
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class ClaimLost(Stamped):
    """A step lost its claim before it was done; ``holder`` has the claim now (empty: nobody)."""

    path: str
    what: str
    epoch: int = 0
    holder: str = ""


DenialSource: TypeAlias = Literal["proxy", "output"]
"""How a refusal is known: exactly, from the proxy; or as the program's output tells of it."""


@dataclass(frozen=True, slots=True)
class SandboxDenied(Stamped):
    """A step's sandbox refused ``what``: a host, a path, a call.

    ``source="proxy"`` is exact. The kernel tells nobody of what it refuses, so ``"output"`` is read
    from what the program printed: some refusals are missing there, and some are of other causes.
    """

    path: str
    what: str
    source: DenialSource


@dataclass(frozen=True, slots=True)
class LadderStep(Stamped):
    """A launch of an agent failed, and another launch follows instead of the attempt's end.

    ``kind`` and ``error`` say why it failed. The launch ``next`` is due at ``due`` (unix seconds;
    0: at once). ``backend`` and ``session`` are those of the failed launch. ``parked``: the run
    suspends before the next launch, and ``error`` says what a person must do. ``margin_s``: the
    part of the wait that follows the end of a usage cap, as its backend told it.
    """

    path: str
    attempt: int
    kind: str
    error: str
    next: Launch
    due: float = 0.0
    backend: str = ""
    session: str | None = None
    parked: bool = False
    margin_s: float = 0.0


@dataclass(frozen=True, slots=True)
class AgentGuided(Stamped):
    """The launch ``next`` is about to begin; it passes guidance from people on to the agent.

    All guidance of a run is numbered from 1; ``numbers`` says which of it this launch passes on,
    ``said_by`` from whom, in the same order. If a launch was stopped for it, that is no failure.
    """

    path: str
    attempt: int
    next: Launch
    numbers: tuple[int, ...] = ()
    said_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BudgetReserved(Stamped):
    """A launch is about to begin; this much of each budget above ``path`` is reserved for it.

    ``launches``: for it, and for that of the agent that will judge its answer.
    """

    path: str
    launch: int
    tokens: int | None = None
    cost_usd: float | None = None
    launches: int = 1


@dataclass(frozen=True, slots=True)
class BudgetSettled(Stamped):
    """A launch ended; ``usage`` replaces its reserve (None: the reserve stays).

    ``unmade``: how many launches were reserved and not made: nobody was asked, or no answer judged.
    """

    path: str
    launch: int
    usage: Usage | None = None
    duration_s: float = 0.0
    unmade: int = 0


@dataclass(frozen=True, slots=True)
class BudgetWarning(Stamped):
    """The budget of ``scope`` passed its soft bound: ``used`` of ``limit`` of ``name``."""

    path: str
    scope: str
    name: str
    used: float
    limit: float


@dataclass(frozen=True, slots=True)
class BudgetRaised(Stamped):
    """Somebody allowed as much again of the budget of ``scope``, or of its bound ``name`` alone."""

    path: str
    scope: str
    name: str = ""


ENDS: frozenset[type] = frozenset({StepCompleted, MemberCompleted})
"""The events with a result; ``stamp`` also sets the time ``at`` of that result."""

Event: TypeAlias = (
    WorkflowStarted
    | WorkflowCompleted
    | RunSuspended
    | RunResumed
    | CancelRequested
    | RunSteered
    | LimitReached
    | StepStarted
    | AttemptFailed
    | StepMoved
    | StepInterrupted
    | StepCompleted
    | ValidationRound
    | GroupStarted
    | GroupCompleted
    | MemberStarted
    | MemberCompleted
    | TasksQueued
    | WorkEdited
    | WorkStopped
    | SubworkflowStarted
    | SubworkflowEnded
    | GateOpened
    | GateAnswered
    | TimerSet
    | SignalReceived
    | RollbackStarted
    | RollbackCompleted
    | AgentSessionStarted
    | ClaimWaiting
    | ClaimGranted
    | ClaimLost
    | SandboxDenied
    | LadderStep
    | AgentGuided
    | BudgetReserved
    | BudgetSettled
    | BudgetWarning
    | BudgetRaised
)

DriveBegan: TypeAlias = WorkflowStarted | RunResumed
DriveEnded: TypeAlias = WorkflowCompleted | RunSuspended
Began: TypeAlias = StepStarted | MemberStarted
Ended: TypeAlias = StepCompleted | MemberCompleted
Posted: TypeAlias = GateAnswered | SignalReceived | CancelRequested | RunSteered | WorkEdited
"""What reaches a run from outside of its drive."""


# -- progress ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StepOutput(Stamped):
    """A piece of what a step's program printed, as it came; decoded text, not cut at lines."""

    path: str
    stream: Literal["stdout", "stderr"]
    text: str


@dataclass(frozen=True, slots=True)
class StepReplayed(Stamped):
    """A step's result was taken from the record; the steps below it have no event of their own."""

    path: str
    result: StepResult[Any] | None = None
    steps_below: int = 0
    usage_below: Usage | None = None


@dataclass(frozen=True, slots=True)
class WorkGrew(Stamped):
    """How many tasks of ``work`` are known now.

    ``total`` counts tasks that wait, are at work or have ended; ``refused`` those that do not run.
    """

    path: str
    total: int
    refused: int = 0


@dataclass(frozen=True, slots=True)
class AgentMessage(Stamped):
    """A piece of an agent's answer."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class AgentTurnStarted(Stamped):
    """A backend was sent a prompt; ``turn`` counts the launches of an attempt."""

    path: str
    turn: int
    prompt: str
    backend: str = ""


@dataclass(frozen=True, slots=True)
class AgentTurnCompleted(Stamped):
    """An agent answered; ``problem`` says why the answer is not accepted, if it is not."""

    path: str
    turn: int
    problem: str | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class AgentReasoning(Stamped):
    """A piece of an agent's reasoning."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class AgentToolStarted(Stamped):
    """An agent began to use a tool; ``id`` ties it to its end, ``input`` is JSON data."""

    path: str
    id: str
    name: str
    input: Any = None


@dataclass(frozen=True, slots=True)
class AgentToolCompleted(Stamped):
    """A tool of an agent ended.

    ``ok`` is False if it failed or was denied; ``exit_code`` is set if it was a command.
    """

    path: str
    id: str
    name: str = ""
    ok: bool = True
    output: str = ""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class AgentRetry(Stamped):
    """A backend retries a request by itself, after ``delay_s`` if that is known."""

    path: str
    attempt: int | None = None
    delay_s: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class AgentCompaction(Stamped):
    """A session is being made smaller, or has been; token counts where they are known."""

    path: str
    phase: Literal["started", "completed", "failed"]
    before_tokens: int | None = None
    after_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class AgentLimit(Stamped):
    """How much of a plan's window is used: ``used`` from 0 to 1, ``reset_at`` in unix seconds."""

    path: str
    status: Literal["allowed", "warning", "reached"]
    window: str = ""
    used: float | None = None
    reset_at: float | None = None


@dataclass(frozen=True, slots=True)
class AgentPermission(Stamped):
    """An agent asked for permission to use a tool."""

    path: str
    tool: str
    decision: Literal["allowed", "denied"]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class AgentUsage(Stamped):
    """An agent's model answered: what was used for the agent's answer so far.

    ``call`` counts the answers of ``model``, where the program tells of each. Programs tell of more
    as they go on, so ``usage`` may leave open what the last one has.
    """

    path: str
    usage: Usage
    model: str | None = None
    call: int | None = None


@dataclass(frozen=True, slots=True)
class AgentFinished(Stamped):
    """A backend is done with one prompt; always its last notice. ``error`` if it gave no answer.

    ``files_changed`` are the paths that the backend says it changed, as it names them.
    """

    path: str
    status: Literal["completed", "failed", "interrupted"]
    kind: str = ""
    error: str = ""
    usage: Usage | None = None
    model: str | None = None
    session: str | None = None
    files_changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentTranscript(Stamped):
    """One line that was sent to an agent's program or received from it, as it was."""

    path: str
    line: str
    direction: Literal["received", "sent"] = "received"


@dataclass(frozen=True, slots=True)
class SinkDropped(Stamped):
    """A sink raised and gets no more events."""

    sink: str
    error: str


Progress: TypeAlias = (
    StepOutput
    | StepReplayed
    | WorkGrew
    | AgentMessage
    | AgentReasoning
    | AgentToolStarted
    | AgentToolCompleted
    | AgentTurnStarted
    | AgentTurnCompleted
    | AgentRetry
    | AgentCompaction
    | AgentLimit
    | AgentPermission
    | AgentUsage
    | AgentFinished
    | AgentTranscript
    | SinkDropped
)

OfClaims: TypeAlias = ClaimWaiting | ClaimGranted | ClaimLost
Notice: TypeAlias = Progress | AgentSessionStarted | OfClaims | SandboxDenied
"""What an agent or its backend reports while it works; all but ``Progress`` is journaled."""
JOURNALED_NOTICES = (AgentSessionStarted, ClaimWaiting, ClaimGranted, ClaimLost, SandboxDenied)
