"""The results of steps and runs: frozen, slotted records."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import field, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeAlias, TypeVar, cast

from handrail.errors import HandrailError, NotClean, WrongUse
from handrail.model.dataclass import dataclass
from handrail.shortening import failed_test_in, reason_of, shortened
from handrail.typed.reference import ELSEWHERE, IN_VALUE, OF_RECORD

if TYPE_CHECKING:
    from handrail.secrets.values import Secrets

T_co = TypeVar("T_co", covariant=True)
R_co = TypeVar("R_co", covariant=True)

StepStatus: TypeAlias = Literal["succeeded", "failed", "skipped", "defaulted", "cancelled"]
RunStatus: TypeAlias = Literal["succeeded", "failed", "cancelled", "suspended"]
OVER: frozenset[str] = frozenset({"succeeded", "failed", "cancelled"})
"""The statuses of a run that is over; a suspended one goes on."""

_SUCCESS: frozenset[str] = frozenset({"succeeded", "skipped", "defaulted"})


@dataclass(frozen=True, slots=True)
class Usage:
    """What models consumed. ``None`` is unknown, which is never zero.

    ``input_tokens`` are all tokens sent: ``cached_tokens`` of them came from a cache,
    ``cache_write_tokens`` were put into one. ``output_tokens`` are all tokens received,
    ``reasoning_tokens`` of them thoughts. ``turns`` are the model's own. ``cost_source`` says where
    the cost is from: the ``"reply"`` (set by the backend), or a ``"table"`` of prices. ``unpriced``
    counts launches whose cost is unknown, and so not part of ``cost_usd``; ``unknown`` counts
    launches whose tokens are unknown.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    turns: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_source: Literal["reply", "table"] | None = None
    unpriced: int = field(default=0, compare=False)
    unknown: int = field(default=0, compare=False)

    def __add__(self, other: Usage) -> Usage:
        by_table = "table" in (self.cost_source, other.cost_source)
        return Usage(
            **_counts(self, other, _plus),
            cost_source="table" if by_table else self.cost_source or other.cost_source,
            unpriced=self._without_price + other._without_price,
            unknown=self._without_tokens + other._without_tokens,
        )

    @property
    def _without_price(self) -> int:
        """How many of the launches in this sum have an unknown cost."""
        return self.unpriced or int(self.cost_usd is None and self != Usage())

    @property
    def _without_tokens(self) -> int:
        """How many of the launches in this sum have an unknown number of tokens."""
        return self.unknown or int(self.tokens is None and self != Usage())

    @property
    def tokens(self) -> int | None:
        """Input and output together; None if neither is known."""
        return _plus(self.input_tokens, self.output_tokens)

    def since(self, before: Usage) -> Usage:
        """What was used after ``before``, if both are counts of the same session."""
        return Usage(**_counts(self, before, _minus), cost_source=self.cost_source)


COUNTED = tuple(
    f.name for f in fields(Usage) if f.name not in {"cost_source", "unpriced", "unknown"}
)
"""The fields that count what a model used."""


def _counts(a: Usage, b: Usage, made: Callable[[Any, Any], Any]) -> dict[str, Any]:
    """``made(count of a, count of b)`` for each counted field, by name."""
    return {name: made(getattr(a, name), getattr(b, name)) for name in COUNTED}


def add_usage(a: Usage | None, b: Usage | None) -> Usage | None:
    """The sum of both; None if neither is known."""
    return a or b if a is None or b is None else a + b


UNREPORTED = Usage(unpriced=1, unknown=1)
"""The usage of a launch that does not report what it used."""


def add_launch(before: Usage | None, own: Usage | None) -> Usage | None:
    """The sum of ``before``, if known, and one launch more; no report counts as ``UNREPORTED``."""
    return before + UNREPORTED if own is None and before is not None else add_usage(before, own)


def own_usage(total: Usage, before: Usage) -> Usage:
    """What one launch used: the sum after it less the sum before; None for an unchanged count."""
    return Usage(**_counts(total, before, _changed), cost_source=total.cost_source)


N = TypeVar("N", int, float)


def _plus(a: N | None, b: N | None) -> N | None:
    if a is None:
        return b
    return a if b is None else a + b


def _minus(a: N | None, b: N | None) -> N | None:
    """``a - b``; a count that went down was restarted, so all of ``a`` is new."""
    if a is None or b is None:
        return a
    return a - b if a >= b else a


def _changed(a: N | None, b: N | None) -> N | None:
    """As ``_minus``; but a count that did not change is unknown, so None."""
    return None if a == b else _minus(a, b)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed: the recorded facts of an exception.

    ``error`` is its text, ``error_type`` its ``module.Qualname``, ``error_bases`` the same for its
    base classes, ``traceback`` text.
    """

    error: str
    error_type: str
    error_bases: tuple[str, ...] = ()
    traceback: str | None = None

    def is_a(self, error: type[BaseException] | str) -> bool:
        """True if the error is of this class or derived from it; compares full names."""
        wanted = error if isinstance(error, str) else qualified(error)
        return wanted == self.error_type or wanted in self.error_bases


@dataclass(frozen=True, slots=True)
class Skipped:
    """The output of a step that did not run, or whose failure was skipped. It is falsy."""

    reason: str = ""

    def __bool__(self) -> Literal[False]:
        return False


@dataclass(frozen=True, slots=True)
class StepResult(Generic[T_co]):
    """The record of one finished step.

    ``duration_ms`` is wall time from the start of the first attempt to the end of the last one.
    ``error_type`` is ``module.Qualname``, ``error_bases`` the same for its base classes,
    ``traceback`` text. ``replayed``: taken from the record of an earlier drive. ``abandoned``: a
    thread that could not be stopped was left behind. ``masked``: a secret was cut from the output.
    ``handled`` are failures for which the step's fallback, default or skip made up, in order; if
    a fallback failed too, ``error`` tells both. ``at`` is when the step ended, in unix
    seconds; 0.0 if it has just ended and is not recorded yet. ``given_by``: the person who gave the
    output in place of the step; None: the step's own output.
    """

    name: str
    path: str
    step_type: str
    status: StepStatus
    output: T_co | None = None
    error: str | None = None
    error_type: str | None = None
    error_bases: tuple[str, ...] = ()
    traceback: str | None = None
    duration_ms: float = 0.0
    attempts: int = 1
    replayed: bool = field(default=False, metadata=OF_RECORD)
    abandoned: bool = False
    masked: bool = False
    usage: Usage | None = None
    handled: tuple[Failure, ...] = ()
    at: float = field(default=0.0, metadata=OF_RECORD)
    given_by: str | None = None

    def __post_init__(self) -> None:
        if self.duration_ms < 0:
            raise ValueError(f"duration_ms must not be negative, got {self.duration_ms}")
        if self.status == "failed" and not self.error:
            raise ValueError(f"step {self.path!r} failed, so its result needs an error")

    @property
    def success(self) -> bool:
        """True if succeeded, skipped or defaulted."""
        return self.status in _SUCCESS

    @property
    def reason(self) -> str | None:
        """The error on one line, as it began: without the steps around it, and without a traceback.

        None without an error.
        """
        has_error = self.error is not None or self.error_type is not None
        return reason_of(self.error or "", self.error_type) if has_error else None

    @property
    def started_at(self) -> datetime:
        """When the first attempt began, in UTC."""
        return _utc(self.at - self.duration_ms / 1000)

    @property
    def ended_at(self) -> datetime:
        """When the step ended, in UTC."""
        return _utc(self.at)

    @property
    def degraded(self) -> bool:
        """True if the output is a default, or a child workflow's result that used a default."""
        if self.status == "defaulted":
            return True
        output: object = self.output
        return (
            isinstance(output, WorkflowResult) and cast("WorkflowResult[object]", output).degraded
        )

    def unwrap(self) -> T_co:
        """The output.

        Raises:
            StepFailed: the step failed or was cancelled.
        """
        if self.status not in _SUCCESS:
            raise StepFailed(self)
        return cast("T_co", self.output)

    def to_dict(self, *, secrets: Secrets | None = None) -> dict[str, Any]:
        """All fields as JSON-safe data, ``success`` included; see ``WorkflowResult.to_dict``."""
        return _as_data(self, secrets)

    def is_a(self, error: type[BaseException] | str) -> bool:
        """True if the step's error is of this class or derived from it; compares full names."""
        wanted = error if isinstance(error, str) else qualified(error)
        return wanted == self.error_type or wanted in self.error_bases


def _utc(at: float) -> datetime:
    try:
        return datetime.fromtimestamp(at, UTC)
    except (OverflowError, ValueError, OSError):  # no calendar has it
        return datetime.min.replace(tzinfo=UTC) if at < 0 else datetime.max.replace(tzinfo=UTC)


def qualified(cls: type) -> str:
    """``module.Qualname`` of a class, the form in which error types are recorded."""
    return f"{cls.__module__}.{cls.__qualname__}"


_UNSET: Any = None


@dataclass(frozen=True, slots=True)
class CommandResult(Generic[T_co]):
    """What a command did: exit code, decoded output, and stdout parsed as JSON if asked.

    With ``parse=T``, ``data`` is a ``T``. If a command failed, was allowed to (``check=False``),
    and its output does not parse, ``data`` is not set: reading it raises ``WrongUse``.
    """

    exit_code: int
    stdout: str
    stderr: str
    data: T_co = _UNSET


class _DataNotSet(WrongUse, AttributeError):
    """The ``data`` of a command's result was read, but the output did not parse."""


class UnparsedCommandResult(CommandResult[Any]):
    """The result of a command that failed, was allowed to, and whose output did not parse."""

    __slots__ = ()

    def __init__(self, exit_code: int, stdout: str, stderr: str) -> None:
        for name, item in (("exit_code", exit_code), ("stdout", stdout), ("stderr", stderr)):
            object.__setattr__(self, name, item)

    if not TYPE_CHECKING:

        @property
        def data(self) -> Any:
            """Not set.

            Raises:
                _DataNotSet: always.
            """
            said = _tail(self.stderr) or _tail(self.stdout) or "nothing"
            raise _DataNotSet(
                f"this command's result has no data: it exited with {self.exit_code}, and its "
                f"output does not parse. It said: {said}. Look at .exit_code first."
            )

    def _parts(self) -> tuple[int, str, str]:
        return (self.exit_code, self.stdout, self.stderr)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._parts() == self._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def __repr__(self) -> str:
        return f"UnparsedCommandResult{self._parts()!r}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (UnparsedCommandResult, self._parts())


@dataclass(frozen=True, slots=True)
class AgentResult(Generic[T_co]):
    """An agent's answer; ``attempts`` counts the turns it took, re-asks included.

    ``usage`` is what all turns used, ``session_usage`` what the session has used since it began,
    as its backend counts it. ``backend`` is the name of the backend that answered.
    """

    output: T_co
    usage: Usage | None = None
    model: str | None = None
    session: str | None = None
    attempts: int = 1
    backend: str | None = field(default=None, compare=False)
    session_usage: Usage | None = field(default=None, compare=False)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raise an error that points to ``output``, if that has the attribute or key."""
            raise AttributeError(_not_of_result(self, name))


def _not_of_result(result: AgentResult[Any], name: str) -> str:
    said = f"'AgentResult' object has no attribute {name!r}"
    if name.startswith("_") or name == "output":  # copy and pickle read these before they are set
        return said
    output = result.output
    if _has_key(output, name):
        return f"{said}. Its output has such a key: write .output[{name!r}]."
    with suppress(Exception):  # it is the user's class
        if hasattr(output, name):
            return f"{said}. Its output has it: write .output.{name}."
    return said


def _has_key(output: object, name: str) -> bool:
    return isinstance(output, Mapping) and name in output


@dataclass(frozen=True, slots=True)
class BranchResult(Generic[T_co]):
    """Which arm of a branch ran (from 0), its step's name, and its output."""

    index: int
    name: str
    output: T_co


@dataclass(frozen=True, slots=True)
class StageResult:
    """One check of one validation round; ``output`` is what it printed or returned, as text."""

    name: str
    passed: bool
    output: str = ""
    error: str | None = None
    duration_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class ValidationRoundResult:
    """One pass over all stages, ``number`` from 1, with the fix that followed it, if any."""

    number: int
    stages: tuple[StageResult, ...]
    fix: StepResult[Any] | None = None

    @property
    def passed(self) -> bool:
        """True if every stage passed."""
        return all(stage.passed for stage in self.stages)


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """What ``validate`` found, round by round."""

    passed: bool
    rounds: tuple[ValidationRoundResult, ...]

    @property
    def stages(self) -> tuple[StageResult, ...]:
        """The stages of the last round."""
        return self.rounds[-1].stages if self.rounds else ()

    @property
    def failed(self) -> tuple[StageResult, ...]:
        """The stages of the last round that did not pass."""
        return tuple(stage for stage in self.stages if not stage.passed)


@dataclass(frozen=True, slots=True)
class Choice(Generic[T_co]):
    """What a label of ``.ask(choices={label: ...})`` stands for, if a text may belong to it.

    Whoever chooses the label is asked for ``prompt_for``, and gives that as ``text``; a label that
    nobody chose, such as a default, has none.
    """

    value: T_co
    prompt_for: str = ""
    text: str = ""


def prompts_of(choices: Iterable[Any], values: Iterable[Any]) -> dict[str, str]:
    """By label, the text that a choice asks for; without choices that ask for none."""
    pairs = zip(choices, values, strict=False)
    return {one: of.prompt_for for one, of in pairs if isinstance(of, Choice) and of.prompt_for}


def answer_words(choices: Iterable[Any], values: Iterable[Any]) -> list[str]:
    """What may be typed to choose each: ``reject: YOUR TEXT`` where a text is asked for."""
    prompts = prompts_of(choices, values)
    labels = map(str, choices)
    return [f"{label}: YOUR TEXT" if label in prompts else label for label in labels]


@dataclass(frozen=True, slots=True)
class OpenGate:
    """A question that waits for a person; ``since`` and ``deadline`` are unix seconds.

    ``deadline`` is the nearest of its own and those of the steps around it.
    ``opening`` counts, from 1, how often this step has asked: an answer counts for one opening.
    ``values``: what each choice stands for, if not for itself; an answer is recorded as the choice,
    or as ``{choice: text}`` where the choice asks for a text.
    ``agents_may_answer``: it takes an answer from what steps of its journal's runs started.
    """

    path: str
    question: str
    choices: tuple[Any, ...] = ()
    type: Any = str
    since: float = 0.0
    deadline: float | None = None
    default: Any = None
    has_default: bool = False
    opening: int = 1
    values: tuple[Any, ...] = ()
    agents_may_answer: bool = False


A_PERSON, A_SENDER = "a person", "a sender"


@dataclass(frozen=True, slots=True)
class WaitsFor:
    """What a run waits for: ``what``, at ``path``, from ``whom``, ``until`` when (unix seconds).

    ``kind`` says what ``what`` is: ``answer``: the question. ``signal``: its name. ``person``: what
    somebody must do before a resume. ``time``: ``sleep``, ``retry``, or the kind of the failure
    that an agent waits out. ``claim``: what it is to hold, in line behind the step or run ``whom``.
    ``unpause``: who paused the run. An empty ``whom``: nobody needs to act. ``until`` is the
    deadline of an answer or a signal, and the time at which a wait for ``time`` ends; None: no end.
    """

    kind: Literal["answer", "signal", "person", "time", "claim", "unpause"]
    path: str = ""
    what: str = ""
    whom: str = ""
    until: float | None = None

    def __str__(self) -> str:
        match self.kind:
            case "answer":
                text = f"an answer to {self.path!r}"
            case "signal":
                text = f"the signal {self.what!r}"
            case "person":
                text = f"a person: {self.what}"
            case "time":
                text = f"{self.path!r} ({self.what})"
            case "claim":
                text = f"{self.what}, behind {self.whom or 'another step'}"
            case "unpause":
                text = f"an unpause (paused by {self.what})"
        if self.until is None:
            return text
        return f"{text} until {_utc(self.until):%Y-%m-%d %H:%M:%S} UTC"


@dataclass(frozen=True, slots=True)
class Conflict:
    """Work in a worktree that conflicts with the working tree, which was left unchanged.

    The worktree at ``path`` is kept, its work is committed on ``branch``; ``files`` are those that
    both have changed, ``reason`` is what git says.
    """

    path: str
    branch: str
    files: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RollbackError:
    """A rollback that failed, or that the code of a resumed run no longer leads to.

    ``path`` is the step's. The error is the one that the rollback raised, or a ``WorkflowError`` if
    the code does not lead to the rollback.
    """

    path: str
    error: str
    error_type: str


@dataclass(frozen=True, slots=True)
class Incident:
    """A failed launch of an agent that did not end the attempt, and what followed it.

    ``kind`` and ``error`` say why it failed, ``rung`` what was launched next, after ``waited_s``
    seconds. ``parked``: the run was suspended until a person had done something.
    """

    path: str
    at: float
    kind: str
    error: str
    rung: str
    waited_s: float = 0.0
    parked: bool = False
    backend: str = ""


@dataclass(frozen=True, slots=True)
class WorkflowResult(Generic[R_co]):
    """How a run ended, or where it waits.

    ``step_results`` has every finished step, nested ones included, in tree order. ``value`` is
    exactly what the workflow returned (None unless it succeeded); ``final_output`` falls back to
    the output of the last top-level step that was not skipped. ``orphaned`` are paths of recorded
    steps that the code, changed since, did not reach. ``incidents`` are failures of agents that
    the run survived, in all its drives. ``waits_for`` says what a suspended run waits for,
    ``waiting`` has its open questions alone, ``waiting_signals`` its signals. ``at`` is when the
    run ended, or was suspended, in unix seconds.
    """

    workflow_name: str
    run_id: str
    status: RunStatus
    step_results: tuple[StepResult[Any], ...] = field(default=(), metadata=ELSEWHERE)
    total_duration_ms: float = 0.0
    value: R_co = _UNSET
    final_output: Any = field(default=None, metadata=IN_VALUE)
    error: str | None = None
    failed_step: str | None = None
    rollback_errors: tuple[RollbackError, ...] = ()
    waiting: tuple[OpenGate, ...] = ()
    degraded: bool = False
    usage: Usage | None = None
    error_type: str | None = None
    traceback: str | None = None
    waiting_signals: tuple[str, ...] = ()
    orphaned: tuple[str, ...] = ()
    incidents: tuple[Incident, ...] = ()
    at: float = field(default=0.0, metadata=OF_RECORD)
    waits_for: tuple[WaitsFor, ...] = ()

    @property
    def started_at(self) -> datetime:
        """When the first drive began, in UTC."""
        return _utc(self.at - self.total_duration_ms / 1000)

    @property
    def ended_at(self) -> datetime:
        """When the run ended, or was suspended, in UTC."""
        return _utc(self.at)

    def __repr__(self) -> str:
        return f"<WorkflowResult {self}>"

    def __str__(self) -> str:
        """One line for people; ``to_dict`` has every field."""
        took = f"{self.total_duration_ms / 1000:.3g} s"
        steps = f"{len(self.step_results)} step{'s' * (len(self.step_results) != 1)}"
        said = f": {self.value!r}" if self.success else f": {self.error}" if self.error else ""
        waits = "" if not self.waits_for else f", waits for {'; '.join(map(str, self.waits_for))}"
        head = f"{self.workflow_name} {self.status} in {took} ({steps}, run {self.run_id})"
        return f"{head}{waits}{shortened(said, 500)}"

    @property
    def success(self) -> bool:
        """True if the run succeeded; a failure that the workflow handled does not spoil it."""
        return self.status == "succeeded"

    def unwrap(self) -> R_co:
        """The value.

        Raises:
            WorkflowFailed: the run failed, was cancelled, or is suspended.
        """
        if self.status != "succeeded":
            raise WorkflowFailed(self)
        return self.value

    def require_clean(self) -> Self:
        """This result, if no default took part in it.

        Raises:
            NotClean: a default did; the error lists the steps.
        """
        defaulted = tuple(
            result.path for result in self.step_results if result.status == "defaulted"
        )
        if defaulted:
            raise NotClean(self.workflow_name, defaulted)
        return self

    def step(self, path: str) -> StepResult[Any]:
        """The result of the step at this path.

        Raises:
            KeyError: no step of this path finished; the text lists those that did.
        """
        for result in self.step_results:
            if result.path == path:
                return result
        raise KeyError(
            f"no finished step {path!r}; finished: {[r.path for r in self.step_results]}"
        )

    def to_dict(self, *, secrets: Secrets | None = None) -> dict[str, Any]:
        """All fields as JSON-safe data, ``success`` included; values of other types become text.

        It is for reports, so the values of secret environment variables, as ``secrets`` names them
        (by default as ``Secrets()`` does), and known tokens are masked.
        """
        return _as_data(self, secrets)


def _as_data(result: StepResult[Any] | WorkflowResult[Any], secrets: Any) -> dict[str, Any]:
    from handrail.secrets.masking import Mask
    from handrail.secrets.values import Secrets, secret_values
    from handrail.typed.jsonsafe import json_safe

    mask = Mask(secret_values(secrets or Secrets(), os.environ))
    shown = mask.value(result)
    data = _with_success(shown)
    if isinstance(shown, WorkflowResult):
        data["step_results"] = [_with_success(one) for one in shown.step_results]
    return cast("dict[str, Any]", mask.plain(json_safe(data)))


def _with_success(result: StepResult[Any] | WorkflowResult[Any]) -> dict[str, Any]:
    """The fields of a result, and whether it is a success."""
    known = {field.name: getattr(result, field.name) for field in fields(result)}
    return {**known, "success": result.success}


# -- errors that carry a result -------------------------------------------------------------------


class StepFailed(HandrailError):
    """Thrown at the ``yield`` of a step that failed; ``result`` is its whole record.

    It is built from the recorded result alone (no ``__cause__``; the traceback is the text in
    ``result.traceback``), so a workflow sees the same exception in the first run and on replay.
    """

    __module__ = "handrail.errors"

    def __init__(self, result: StepResult[Any]) -> None:
        super().__init__(result)
        self.result = result

    def is_a(self, error: type[BaseException] | str) -> bool:
        """True if the step's error is of this class or of one derived from it."""
        return self.result.is_a(error)

    def __str__(self) -> str:
        result = self.result
        kind = f"{result.error_type.rpartition('.')[2]}: " if result.error_type else ""
        kind = "" if (result.error or "").startswith(kind) else kind
        tried = f" after {result.attempts} attempts" if result.attempts > 1 else ""
        return f"step {result.path!r} {result.status}{tried}: {kind}{result.error}"


class WorkflowFailed(HandrailError):
    """Raised by ``WorkflowResult.unwrap()`` if the run did not succeed; ``result`` is the run's."""

    __module__ = "handrail.errors"

    def __init__(self, result: WorkflowResult[Any]) -> None:
        super().__init__(result)
        self.result = result

    def __str__(self) -> str:
        result = self.result
        if result.status == "suspended":
            found = result.waits_for or (
                *(WaitsFor("answer", gate.path, whom=A_PERSON) for gate in result.waiting),
                *(WaitsFor("signal", "", name, A_SENDER) for name in result.waiting_signals),
            )
            waits = "; ".join(map(str, found))
            needed = any(wait.whom for wait in found)
            then = "Give it that, then resume the run." if needed else "Resume the run then."
            return (
                f"run {result.run_id} of workflow {result.workflow_name!r} is suspended, waiting "
                f"for {waits or 'a resume'}. {then if waits else ''}".rstrip()
            )
        reason = result.error or "no reason given"
        return f"run {result.run_id} of workflow {result.workflow_name!r} {result.status}: {reason}"


class StageFailed(HandrailError):
    """A stage of a ``validate`` step did not pass; ``result`` says what it printed, ``usage`` what
    an agent that judged it used.
    """

    __module__ = "handrail.errors"

    def __init__(self, result: StageResult, usage: Usage | None = None) -> None:
        super().__init__(result, usage)
        self.result = result
        self.usage = usage

    def __str__(self) -> str:
        return self.result.error or f"stage {self.result.name!r} did not pass"


class ValidationFailed(HandrailError):
    """A ``validate`` step used up its rounds; ``result`` has every round."""

    __module__ = "handrail.errors"

    def __init__(self, path: str, result: ValidationResult) -> None:
        super().__init__(path, result)
        self.path = path
        self.result = result

    def __str__(self) -> str:
        rounds = len(self.result.rounds)
        failed = "; ".join(f"{stage.name}: {_tail(stage.error)}" for stage in self.result.failed)
        return f"validation did not pass in {rounds} round{'s' * (rounds != 1)}: {failed}"


def _tail(text: str | None) -> str:
    """The end of what a program printed, behind the test that failed, if it names one before."""
    tail, test = shortened((text or "").strip(), 300, keep="tail"), failed_test_in(text or "")
    return tail if test in tail else f"{test}\n{tail}"
