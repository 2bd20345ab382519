"""A step: a frozen, typed description of one unit of work, and the verbs it can have.

A step does nothing by itself. ``step(name)`` in ``handrail.steps.step`` makes steps; the core reads
their verb and modifiers. Verbs are plain data; ``kind`` is a verb's name in results and events.
"""

from __future__ import annotations

import dis
import inspect
import re
import sys
import warnings
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from functools import lru_cache
from inspect import CO_VARARGS
from pathlib import Path
from types import CodeType, FrameType, FunctionType, MethodType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
)

import attrs
import msgspec

from handrail.errors import DefinitionError, WrongUse
from handrail.model import outcome
from handrail.model.agent_options import NO_SETTINGS, AgentSettings
from handrail.model.context import WorkflowContext
from handrail.model.dataclass import dataclass
from handrail.model.policy import (
    Backoff,
    Budget,
    Retry,
    RetryOn,
    backoff_of,
    count_of,
    positive_seconds,
    seconds_of,
)
from handrail.model.results import (
    AgentResult,
    BranchResult,
    CommandResult,
    Skipped,
    StepResult,
    Usage,
    ValidationResult,
    WorkflowResult,
)
from handrail.model.sandbox import Boundary, InheritEnv, boundary_of, inherited_of
from handrail.model.shapes import AgentLike, OwnTree
from handrail.model.work import Work

if TYPE_CHECKING:
    from handrail.steps.identity import Identity


T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")
V = TypeVar("V")
R = TypeVar("R")

TreeAction: TypeAlias = Literal["make", "merge", "remove", "leave"]
"""What the core does to a worktree; ``leave``: remove it if nothing was done in it."""
Predicate: TypeAlias = "Callable[[WorkflowContext], bool | Awaitable[bool]]"
ContextBuilder: TypeAlias = (
    "Callable[[WorkflowContext], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]"
)
Context: TypeAlias = "Mapping[str, Any] | ContextBuilder"
RollbackAction: TypeAlias = Callable[[WorkflowContext], Any]


class Missing:
    """The default of an argument for which None would be a value."""

    def __repr__(self) -> str:
        return "..."


MISSING: Any = Missing()


def _inherited(given: Any) -> Any:
    return inherited_of(given, "inherit_env of a Stage")


@attrs.frozen
class Stage:
    """One named check of ``validate``: a command (text or argv), a callable, or an agent.

    A command passes with exit code 0. A callable passes unless it returns False or raises; it may
    be async, and may take the ``WorkflowContext``. An agent answers with a bool, or with ``passed``
    and ``reason``. ``sandbox`` and ``inherit_env`` are those of ``.command``, for a command alone.
    """

    name: str
    check: str | Sequence[str] | Callable[..., Any] | AgentLike[Any]
    timeout: float | None = None
    sandbox: Boundary = None
    inherit_env: InheritEnv | None = attrs.field(default=None, converter=_inherited)

    def __attrs_post_init__(self) -> None:
        from handrail.model.paths import check_name

        check_name(self.name, "stage")
        if not self.check or not (
            callable(self.check) or isinstance(self.check, Sequence) or hasattr(self.check, "run")
        ):
            raise DefinitionError(
                f"stage {self.name!r} needs a command (text or a list) or a callable, "
                f"got {self.check!r}"
            )
        if self.timeout is not None:
            positive_seconds(self.timeout, f"timeout of stage {self.name!r}")
        boundary_of(self.sandbox, f"sandbox of stage {self.name!r}")
        is_command = isinstance(self.check, Sequence)
        if not is_command and (self.sandbox or self.inherit_env is not None):
            raise DefinitionError(
                f"stage {self.name!r}: sandbox= and inherit_env= are for a command. A function "
                f"runs in this process; an agent has its own, in its options."
            )


@dataclass(frozen=True, slots=True)
class Wanted:
    """The claims that a step needs while it runs.

    ``names``; ``patterns`` of files, relative to the repository; ``worktree``: one of its own.
    ``wait_s``: how long the step waits for them (None: as long as it takes).
    """

    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] | None = None
    wait_s: float | None = None
    worktree: bool = False


class Verb:
    """All that handrail knows of one kind of step: a frozen class, with a row in ``steps.table``.

    A verb that the engine performs derives from ``Leaf``, and one whose steps run side by side from
    ``steps.groups.Group``. Any other has a node class of its own, with a row in ``core.machine``.
    """

    __slots__ = ()
    kind: ClassVar[str] = ""
    """Its name in results and events."""
    leaf: ClassVar[bool] = False
    """True if the engine performs it by itself, without steps below."""
    viewed: ClassVar[bool] = False
    """True if its attempt has a ``Performing.workflow``."""
    waits: ClassVar[bool] = False
    """True if it waits for an answer, a signal or a time."""
    launches: ClassVar[bool] = False
    """True if it can launch an agent."""
    grouped: ClassVar[bool] = False
    """True if its members run side by side."""
    reported_later: ClassVar[bool] = False
    """True if an event after its start has more to log than the start."""
    needs_one: ClassVar[bool] = False
    """True if one member's success is enough, so that the failures of others are handled."""
    inlines: ClassVar[bool] = False
    """True if ``.inline()`` can follow it."""
    runs_once: ClassVar[str] = ""
    """Why ``.retry()`` cannot follow it; empty if it can."""

    @abstractmethod
    def fingerprint(self, identity: Identity) -> str:
        """All its arguments that decide its output, with the kind before them."""

    def output_type(self) -> Any:
        """The declared type of its output; ``Any`` if it declares none."""
        return Any

    def held(self) -> Sequence[Step[Any]]:
        """The steps that it contains as data, just below it."""
        return ()

    def launches_agent(self) -> bool:
        """True if this one launches an agent."""
        return self.launch_count() > 0

    def launch_count(self) -> int:
        """How many agents one launch of it calls: its own, and one that judges the answer."""
        return 0

    def starts_process(self) -> bool:
        """True if it is likely to start a process, or to keep one busy elsewhere."""
        return self.launches_agent()

    def wanted(self) -> Wanted | None:
        """The claims that it needs by itself while it runs."""
        return None

    def answering(self) -> Verb | None:
        """The same verb with the agent's answer as its output; None if it has no agent."""
        return None

    def portable(self) -> bool:
        """True if another process could perform it: its callables are importable by name."""
        return False

    def subject(self) -> Any:
        """The program or agent that it runs, to be shown; None if it has none."""
        return None

    def label(self) -> str:
        """What it is called in lists of other systems: the action, program, stage or agent."""
        return self.kind


class Leaf(Verb):
    """A verb that the engine performs, in this process or another one."""

    __slots__ = ()
    leaf = True
    viewed = True

    @abstractmethod
    async def perform(self, at: Performing) -> tuple[Any, Usage | None]:
        """Its output, and what its agents used.

        Raises:
            BaseException: its attempt fails with this.
        """

    travels: ClassVar[bool] = True
    """False if it can be performed on the run's own machine alone."""

    def sees_results(self) -> bool:
        """True if its attempt reads the results of earlier steps."""
        return False


class Performing(Protocol):
    """What the engine can do for a verb during one attempt. Its contract: ``engine.perform``."""

    @property
    def path(self) -> str:
        """The step's path."""
        ...

    @property
    def workflow(self) -> WorkflowContext:
        """What the functions of the step may see."""
        ...

    async def act(self, action: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What the step's own action returns; it is watched for outputs that it changes."""

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """What any other function of the user's returns, sync or async."""

    async def run(  # the bounds are no option of the program's
        self,
        argv: Any,
        sandbox: Boundary = None,
        inherit_env: InheritEnv | None = None,
        *,
        cwd: Any = None,
        env: Any = None,
        stdin: Any = None,
    ) -> CommandResult[Any]:
        """How a program ended, within these bounds; its output is shown while it runs.

        Raises:
            SandboxUnavailable: this machine cannot enforce them.
        """
        ...

    async def built(self, context: Context) -> Mapping[str, Any]:
        """The context of an agent, built if it is a function."""
        ...

    async def launch(
        self,
        agent: Any,
        context: Context,
        settings: AgentSettings = NO_SETTINGS,
        *,
        claims: bool = False,
    ) -> AgentResult[Any]:
        """The result of the attempt's launch of an agent, if the check in ``settings`` accepts it.

        With ``claims`` the launch works under those of its own.
        """
        ...

    async def worktree(
        self, action: TreeAction, owner: str, base: str | None, merge: Any, tree: OwnTree | None
    ) -> OwnTree | bool | None:
        """The worktree that was made, or whether it was left."""


@dataclass(frozen=True, slots=True)
class Default:
    """The value of ``.default(value)``; wrapped, because None is a value too."""

    value: Any


@dataclass(frozen=True, slots=True)
class Rollback:
    """How to undo a step that succeeded."""

    action: RollbackAction
    timeout_s: float = 60.0


_set = msgspec.structs.force_setattr


class Modifiers(msgspec.Struct, frozen=True):
    """A step's modifiers; they take effect in a fixed order, in whatever order they are written."""

    when: Predicate | None = None
    timeout_s: float | None = None
    retry: Retry | None = None
    on_error: Callable[..., Step[Any]] | None = None
    default: Default | None = None
    skip_on_error: bool = False
    rollback: Rollback | None = None
    checkpoint: bool = False
    once: bool = False
    inline: bool = False
    uses: tuple[tuple[str, int], ...] = ()
    budget: Budget | None = None
    holds: tuple[str, ...] = ()
    wait_s: float | None = None
    """How long the step waits for the claims in ``holds``."""
    simple: bool = True
    """True if a leaf, once it may begin, needs nothing but attempts: the core takes a shortcut.
    It follows from the others.
    """

    def __post_init__(self) -> None:
        falls_back = self.on_error is not None
        is_simple = not (falls_back or self.rollback or self.holds)
        _set(self, "simple", is_simple)


PLAIN = Modifiers()
INLINE = Modifiers(inline=True)
CHECKPOINT = Modifiers(checkpoint=True)
ONCE = Modifiers(once=True)


@lru_cache(maxsize=64)
def _retried(max_attempts: int) -> Modifiers:
    return Modifiers(retry=Retry(max_attempts))


@lru_cache(maxsize=64)
def _timed(timeout_s: float) -> Modifiers:
    return Modifiers(timeout_s=timeout_s)


_NAMES = tuple(name for name in Modifiers.__struct_fields__ if name != "simple")
_OUTPUTS = (AgentResult, BranchResult, CommandResult, ValidationResult, Work, WorkflowResult)
_CALLED = {"rollback": "with_rollback", "timeout_s": "timeout", "wait_s": "holds"}
MODIFIERS = frozenset({*(_CALLED.get(str(name), str(name)) for name in _NAMES), "answer"})
"""The words that follow a verb."""
_OF_RESULTS = frozenset(
    {
        *(field.name for cls in _OUTPUTS for field in fields(cls)),
        *("value", "success", "degraded", "unwrap", "failed", "stages", "passed"),
    }
)
"""Attributes of outputs, which people look for on a step that they take for its output."""


def _near_modifier(name: str) -> str:
    """The modifier that a misspelt name resembles, or ""."""
    if name.startswith("_") or name in _OF_RESULTS:
        return ""
    from difflib import get_close_matches  # 1 ms that only a mistake should cost

    return next(iter(get_close_matches(name, sorted(MODIFIERS), n=1)), "")


_NOT_ITS_OUTPUT = (
    "{step!r} is a step, not its output, and it has not run: write `yield from step(...)...`, and "
    "use what that gives"
)


def take(step: Step[Any]) -> None:
    """Mark the step as used: it is yielded to run, or becomes part of another step."""
    _set(step, "_taken", True)  # noqa: FBT003  # it takes no keywords


class Step(msgspec.Struct, Generic[T_co], frozen=True, eq=False, weakref=True):
    """One unit of work that has a verb; ``yield from`` it inside a workflow to get its output."""

    name: str
    verb: Verb
    modifiers: Modifiers = PLAIN
    _taken: bool = False
    """True once the step was yielded, or became part of another one: the author did not forget it.
    """

    def __iter__(self) -> Generator[Step[Any], Any, T_co]:
        result: T_co = yield self
        return result

    def __repr__(self) -> str:
        return f"<step {self.name!r} {self.verb.kind}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raise an error that names a similar modifier, or the forgotten ``yield from``."""
            meant = _near_modifier(name)
            raise AttributeError(
                f"{self!r} has no {name!r}. Did you mean .{meant}()?"
                if meant
                else f"{self!r} has no {name!r}: it is a step, not its output. "
                f"Did you forget `yield from`?"
            )

        def __bool__(self) -> bool:
            """Raise, because the author takes the step for its output."""
            raise WrongUse(_NOT_ITS_OUTPUT.format(step=self))

        def __eq__(self, other: object) -> bool:
            """True for the same step; raises if it is compared with anything but a step."""
            if isinstance(other, Step):
                return self is other
            raise WrongUse(_NOT_ITS_OUTPUT.format(step=self))

        def __ne__(self, other: object) -> bool:
            """As ``__eq__``."""
            return not self == other

        __hash__ = object.__hash__

        def __del__(self) -> None:
            """Warn of a step that a body made and dropped."""
            if not self._taken and warn_if_forgotten is not None:  # as Python ends, names are gone
                warn_if_forgotten(self.name)

    @property
    def kind(self) -> str:
        """The verb's name in results and events: ``python``, ``command``, ``agent``, ..."""
        return self.verb.kind

    # -- modifiers ---------------------------------------------------------------------------

    def _with(self, alone: Modifiers | None = None, **changes: Any) -> Step[Any]:
        """The step with these changes; ``alone`` has them and nothing else, to save time."""
        take(self)
        if self.modifiers is PLAIN:
            alone = alone or Modifiers(**changes)
        else:
            alone = msgspec.structs.replace(self.modifiers, **changes)
            alone.__post_init__()  # not every version of msgspec calls it
        return Step(self.name, self.verb, alone)

    def when(self, predicate: Predicate) -> Step[T_co | Skipped]:
        """Run only if ``predicate(ctx)`` is true; else the output is a falsy ``Skipped``."""
        _callable(predicate, ".when()", self.name, "ctx")
        return self._with(when=predicate)

    def timeout(self, seconds: float | timedelta) -> Step[T_co]:
        """Fail an attempt that takes longer than this."""
        timeout_s = positive_seconds(seconds, "timeout")
        return self._with(_timed(timeout_s), timeout_s=timeout_s)

    def retry(
        self,
        max_attempts: int,
        *,
        backoff: Backoff | float | timedelta | None = None,
        on: RetryOn | None = None,
    ) -> Step[T_co]:
        """Try up to ``max_attempts`` times in all; ``on``: exception types, or a predicate."""
        count_of(max_attempts, "retry(max_attempts)")
        if self.verb.runs_once:
            raise DefinitionError(f"step {self.name!r}: {self.verb.runs_once}")
        _check_retry_on(on, self.name)
        alone = _retried(max_attempts) if backoff is None and on is None else None
        retry = Retry(max_attempts, backoff_of(backoff), on) if alone is None else alone.retry
        _once_or_retry(self.name, retry, once=self.modifiers.once)
        return self._with(alone, retry=retry)

    def on_error(
        self, handler: Callable[[WorkflowContext, StepResult[Any]], Step[U]]
    ) -> Step[T_co | U]:
        """Run the step that ``handler(ctx, failed)`` returns instead, once all attempts failed."""
        _callable(handler, ".on_error()", self.name, "ctx", "failed")
        return self._with(on_error=handler)

    def default(self, value: V) -> Step[T_co | V]:
        """Use this value if the step fails; its status is then ``defaulted``."""
        if self.modifiers.skip_on_error:
            raise DefinitionError(_TWO_FALLBACKS.format(name=self.name))
        return self._with(default=Default(value))

    def answer(self: Step[AgentResult[U]]) -> Step[U]:
        """Make the agent's answer itself the output, without its usage and session.

        Raises:
            WrongUse: this is no ``.agent()`` step.
        """
        verb, default = self.verb.answering(), self.modifiers.default
        if verb is None:
            raise WrongUse(
                f"step {self.name!r}: .answer() is for .agent(), this is a {self.kind} step"
            )
        modifiers = self.modifiers
        if default is not None:
            answer: Any = getattr(default.value, "output", default.value)
            modifiers = msgspec.structs.replace(modifiers, default=Default(answer))
        take(self)
        return Step(self.name, verb, modifiers)

    def skip_on_error(self) -> Step[T_co | Skipped]:
        """Continue with a falsy ``Skipped`` if the step fails; its status is then ``skipped``."""
        if self.modifiers.default is not None:
            raise DefinitionError(_TWO_FALLBACKS.format(name=self.name))
        return self._with(skip_on_error=True)

    def with_rollback(
        self, action: RollbackAction, *, timeout: float | timedelta = 60.0
    ) -> Step[T_co]:
        """Undo this step with ``action(ctx)`` if it succeeded and the run does not."""
        _callable(action, ".with_rollback()", self.name, "ctx")
        rollback = Rollback(action, positive_seconds(timeout, "timeout of a rollback"))
        return self._with(rollback=rollback)

    def checkpoint(self) -> Step[T_co]:
        """Write the record of this step to disk, with fsync, before the run continues."""
        return self._with(CHECKPOINT, checkpoint=True)

    def once(self) -> Step[T_co]:
        """Run at most once: if it was interrupted, it fails and is never run again."""
        _once_or_retry(self.name, self.modifiers.retry, once=True)
        return self._with(ONCE, once=True)

    def inline(self) -> Step[T_co]:
        """Run a sync action on the event loop itself; only for one that returns at once.

        It has no effect outside of the run, which may go on before the record of it is on disk.
        """
        if not self.verb.inlines:
            raise DefinitionError(
                f"step {self.name!r}: .inline() is for .python() and .call(), "
                f"this is a {self.verb.kind} step"
            )
        return self._with(INLINE, inline=True)

    def uses(self, tag: str, amount: int = 1) -> Step[T_co]:
        """Take ``amount`` units of ``Limits(tags={tag: ...})`` while the step runs."""
        if not isinstance(tag, str) or not tag:
            raise DefinitionError(f"step {self.name!r}: a tag must be a name, got {tag!r}")
        count_of(amount, f"uses({tag!r}) of step {self.name!r}")
        kept = tuple(pair for pair in self.modifiers.uses if pair[0] != tag)
        return self._with(uses=(*kept, (tag, amount)))

    def holds(self, name: str, *, wait: float | timedelta | None = None) -> Step[T_co]:
        """Claim this name while the step runs.

        Only one step, run or program of the repository can have the claim at a time. ``wait``: how
        long to wait for it, else the step fails.
        """
        from handrail.model.paths import check_name

        kept = tuple(one for one in self.modifiers.holds if one != name)
        wait_s = self.modifiers.wait_s if wait is None else seconds_of(wait, "wait of .holds()")
        held = (*kept, check_name(name, "claim"))
        return self._with(holds=held, wait_s=wait_s)

    def budget(self, budget: Budget) -> Step[T_co]:
        """Bound what the agents of this step, or of all steps below it, consume."""
        if not isinstance(budget, Budget):
            raise WrongUse(f"step {self.name!r}: .budget() takes a Budget(...), got {budget!r}")
        verb = self.verb
        if (verb.leaf or verb.waits) and not verb.launches:
            raise DefinitionError(
                f"step {self.name!r}: .budget() is for agents and for steps that hold others, "
                f"this is a {self.verb.kind} step"
            )
        return self._with(budget=budget)

    # -- for engines that perform steps elsewhere ------------------------------------------------

    @property
    def portable(self) -> bool:
        """True if another process could perform this step: its callables are importable by name."""
        return self.verb.portable()


Steps: TypeAlias = Generator[Step[Any], Any, R]


def alone(one: Step[R]) -> Generator[Step[Any], Any, R]:
    """A body that yields this step alone, and returns its output."""
    return (yield from one)


def wanted_by(step: Step[Any]) -> Wanted | None:
    """The claims that a step needs while it runs; None if it needs none, as most steps.

    The patterns of an agent are relative to the repository that it works in.
    """
    verb, modifiers = step.verb, step.modifiers
    wanted = verb.wanted()
    if modifiers is PLAIN or not modifiers.holds:
        return wanted
    if wanted is None:
        return Wanted(modifiers.holds, wait_s=modifiers.wait_s)
    waits = [one for one in (wanted.wait_s, modifiers.wait_s) if one is not None]
    names = tuple(dict.fromkeys((*wanted.names, *modifiers.holds)))
    return replace(wanted, names=names, wait_s=min(waits, default=None))


_TWO_FALLBACKS = (
    "step {name!r}: .default() and .skip_on_error() both say what to do after a failure; keep one"
)


def _callable(value: object, where: str, name: str, *given: str) -> None:
    """Raise if a value is no function of the arguments ``given``, as far as its code shows.

    handrail checks this early, because it calls a handler or rollback only after a failure.
    """
    if type(value) is FunctionType and value.__code__.co_argcount == len(given):
        return
    if not callable(value):
        raise WrongUse(f"step {name!r}: {where} takes a function, got {value!r}")
    code = getattr(value, "__code__", None)
    if not isinstance(code, CodeType):
        return
    most = code.co_argcount - isinstance(value, MethodType)
    least = most - len(getattr(value, "__defaults__", None) or ())
    if least > len(given) or (most < len(given) and not code.co_flags & CO_VARARGS):
        words = ", ".join(given)
        raise WrongUse(
            f"step {name!r}: {where} takes a function of ({words}), and {code.co_name} takes "
            f"{most} {'argument' if most == 1 else 'arguments'}. Write: def f({words})."
        )


def _check_retry_on(on: object, name: str) -> None:
    if on is None or (callable(on) and not isinstance(on, type)):
        return
    kinds = cast("tuple[object, ...]", on if isinstance(on, tuple) else (on,))
    if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
        raise WrongUse(
            f"step {name!r}: retry(on=) takes exception types or a predicate of one, got {on!r}"
        )


def _once_or_retry(name: str, retry: Retry | None, *, once: bool) -> None:
    if once and retry is not None and retry.max_attempts > 1:
        raise DefinitionError(
            f"step {name!r}: .once() means at most one execution, "
            f".retry({retry.max_attempts}) asks for more; keep one of them"
        )


_PACKAGE = str(Path(__file__).parents[1])


class StepNotYielded(UserWarning):
    """A workflow's body made a step and never yielded it, so it never ran."""


def warn_if_forgotten(name: str) -> None:
    """Warn of a step that is just being dropped, if a body that runs in this thread forgot it.

    A body may make steps and choose among them. So only what cannot be meant is warned of: a step
    that is a statement of its own, and one in a variable that nothing reads.
    """
    if sys.is_finalizing():
        return
    user: FrameType | None = None
    frame: FrameType | None = inspect.currentframe()  # then outward, to the code that dropped it
    while frame is not None:
        code = frame.f_code
        if code is outcome.resume.__code__:
            break
        if user is None and not code.co_filename.startswith(_PACKAGE):
            user = frame
        frame = frame.f_back
    else:
        return  # no body runs: other code made the step
    if user is None:  # the body has ended, and its local variables are dropped
        code = frame.f_locals["generator"].gi_code
        line = code.co_firstlineno if _is_in_unread_variable(name, code) else None
    else:
        code = user.f_code
        line = user.f_lineno if _is_forgotten_at(user.f_lasti, code) else None
    if line is not None:
        text = (
            f"step {name!r} was made and never yielded, so it never ran: "
            "write `yield from step(...)`"
        )
        warnings.warn_explicit(text, StepNotYielded, code.co_filename, line)


_USE = re.compile("(LOAD|STORE|DELETE)_(?:FAST|DEREF|NAME|GLOBAL|CLOSURE)")


def _uses(instruction: dis.Instruction) -> list[tuple[str, str]]:
    """How an instruction uses variables: LOAD, STORE or DELETE, and which; some use two."""
    names: Any = instruction.argval
    named = cast("tuple[str, ...]", names if isinstance(names, tuple) else (names,))
    return list(zip(_USE.findall(instruction.opname), named, strict=False))


def _read_in(code: CodeType) -> set[str]:
    uses = (use for instruction in dis.get_instructions(code) for use in _uses(instruction))
    return {name for how, name in uses if how == "LOAD"}


def _is_forgotten_at(offset: int, code: CodeType) -> bool:
    """True if the instruction ends a statement that drops its value, or an unread variable."""
    for at in dis.get_instructions(code):
        if at.offset == offset:
            read = _read_in(code)
            return at.opname == "POP_TOP" or any(
                how != "LOAD" and name not in read for how, name in _uses(at)
            )
    return False


def _is_in_unread_variable(step_name: str, code: CodeType) -> bool:
    """True if code puts a step of this name into a variable that nothing reads."""
    read, is_in_step = _read_in(code), False
    for at in dis.get_instructions(code):
        if at.opname == "LOAD_CONST":
            is_in_step = is_in_step or at.argval == step_name
        elif at.opname == "POP_TOP" or at.opname.startswith(("BUILD_", "STORE_")):
            stored = [name for how, name in _uses(at) if how == "STORE"]
            if is_in_step and stored and not read.intersection(stored):
                return True
            is_in_step = False
    return False
