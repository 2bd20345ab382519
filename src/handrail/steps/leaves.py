"""The verbs that the engine performs: a call, a program, an agent, a stage, git."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, cast

from handrail.errors import CommandFailed, WrongUse
from handrail.later import later
from handrail.model.agent_options import NO_SETTINGS, AgentSettings
from handrail.model.dataclass import dataclass
from handrail.model.described import facts_of_error, with_type
from handrail.model.results import (
    AgentResult,
    CommandResult,
    StageFailed,
    StageResult,
    UnparsedCommandResult,
    Usage,
)
from handrail.model.sandbox import Boundary, InheritEnv
from handrail.model.shapes import AgentLike, OwnTree, is_agent
from handrail.shortening import shortened
from handrail.steps.verbs import (
    Context,
    Leaf,
    Performing,
    Stage,
    TreeAction,
    Wanted,
)
from handrail.typed.reference import importable, reference

if TYPE_CHECKING:
    from handrail.steps import declared, judging
    from handrail.steps import identity as identities
    from handrail.steps.identity import Identity
    from handrail.typed import convert
else:
    later(globals(), "steps.declared steps.identity:identities steps.judging typed.convert")


_STAGE_OUTPUT = 20_000
_EXPLICIT = "explicit"


@dataclass(frozen=True, slots=True)
class PythonCall(Leaf):
    """Call a sync or async callable."""

    kind: ClassVar[str] = "python"
    inlines: ClassVar[bool] = True
    viewed: ClassVar[bool] = False
    action: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None

    def fingerprint(self, identity: Identity) -> str:
        action, args = self.action, self.args
        is_plain = type(action) is FunctionType  # most are: the same text, but faster
        named = reference(action) if is_plain else identities.callable_text(action, identity)
        text = f"python {named} {identity(list(args)) if args else '[]'}"
        return f"{text} {identity(dict(self.kwargs))}" if self.kwargs else text

    def output_type(self) -> Any:
        return declared.returned_type(self.action)

    async def perform(self, at: Performing) -> tuple[Any, Usage | None]:
        return await at.act(self.action, self.args, self.kwargs or {}), None

    def portable(self) -> bool:
        return importable(self.action)

    def label(self) -> str:
        return reference(self.action)


@dataclass(frozen=True, slots=True)
class ShellCommand(Leaf):
    """Run a program; ``argv`` as one text goes through the shell."""

    kind: ClassVar[str] = "command"
    viewed: ClassVar[bool] = False
    argv: str | tuple[str, ...]
    cwd: Any = None
    env: Mapping[str, str] | None = None
    stdin: str | bytes | None = None
    check: bool = True
    parse: Any = None
    sandbox: Boundary = None
    inherit_env: InheritEnv | None = None

    def fingerprint(self, identity: Identity) -> str:
        place = "" if self.cwd is None else f" in {self.cwd}"
        parsed = "" if self.parse is None else f" as {identities.type_text(self.parse)}"
        argv = self.argv if isinstance(self.argv, str) else list(self.argv)
        return f"command {identity(argv)}{place}{parsed}"

    def output_type(self) -> Any:
        return declared.of_type(CommandResult, self.parse)

    async def perform(self, at: Performing) -> tuple[Any, Usage | None]:
        done = await at.run(
            self.argv, self.sandbox, self.inherit_env, cwd=self.cwd, env=self.env, stdin=self.stdin
        )
        if self.check and done.exit_code != 0:
            raise CommandFailed(_argv_text(self.argv), done.exit_code, done.stdout, done.stderr)
        if self.parse is None:
            return done, None
        try:
            data = _parsed(done.stdout, self.parse)
        except convert.DoesNotFit as error:
            found = UnparsedCommandResult(done.exit_code, done.stdout, done.stderr)
            if done.exit_code == 0:
                raise NotParsed(error, found) from None
            return found, None
        return CommandResult(done.exit_code, done.stdout, done.stderr, data), None

    def portable(self) -> bool:
        return True

    def starts_process(self) -> bool:
        return True

    def subject(self) -> str | list[str]:
        return self.argv if isinstance(self.argv, str) else list(self.argv)

    def label(self) -> str:
        words = self.argv.split() if isinstance(self.argv, str) else self.argv
        return f"command {words[0] if words else ''}"[:100]


class NotParsed(Exception):
    """A command's stdout does not fit ``parse=``. ``result`` is the command's."""

    def __init__(self, error: Exception, result: UnparsedCommandResult) -> None:
        super().__init__(error, result)
        self.error = error
        self.result = result


def _parsed(text: str, type_: Any) -> Any:
    from handrail.typed.jsonsafe import short_repr
    from handrail.typed.schema import describe_type

    try:
        return convert.fit_json(text, type_)
    except convert.DoesNotFit as error:
        wanted = describe_type(type_)
        said = f"parse= expects JSON of type {wanted} on stdout, got {short_repr(text)}: {error}"
        raise convert.DoesNotFit(said) from None


def _argv_text(argv: str | tuple[str, ...]) -> str:
    if isinstance(argv, str):
        return repr(argv)
    import shlex

    return repr(shlex.join(argv))


class Launching(Leaf):
    """A verb that can launch an agent, which gets a context."""

    __slots__ = ()
    launches = True
    context: Context
    settings: AgentSettings

    @property
    def performer(self) -> Any:
        """The agent, or the function in its place."""
        raise NotImplementedError

    def with_settings(self, settings: AgentSettings) -> Launching:
        """The same verb with other settings."""
        return cast("Launching", replace(cast("Any", self), settings=settings))

    @property
    def builds_context(self) -> bool:
        """True if a function builds the context before the step is performed."""
        return callable(self.context) and not isinstance(self.context, Mapping)

    def portable(self) -> bool:
        """True if the agent has a name, and the builder of its context is importable."""
        is_named = isinstance(getattr(self.performer, "name", None), str)
        return is_named and (not callable(self.context) or importable(self.context))

    def sees_results(self) -> bool:
        """False for an agent whose prompt is a text that uses its explicit context alone."""
        prompt = getattr(self.performer, "prompt", None)
        mode = getattr(self.performer, "context_mode", None)
        return not (isinstance(prompt, str) and mode in (None, _EXPLICIT) and "ctx" not in prompt)

    def subject(self) -> Any:
        """The agent's name."""
        performer = self.performer
        return getattr(performer, "name", None) or getattr(performer, "__name__", performer)

    def label(self) -> str:
        """The agent's name, behind the kind."""
        performer = self.performer
        name = getattr(performer, "name", None) or getattr(performer, "__name__", "")
        return f"{self.kind} {name}"[:100]


@dataclass(frozen=True, slots=True)
class AgentCall(Launching):
    """Give an agent its context and take its answer."""

    kind: ClassVar[str] = "agent"
    agent: AgentLike[Any]
    context: Context
    settings: AgentSettings = NO_SETTINGS
    answers: bool = False
    """True if the output is the answer itself, and not the ``AgentResult`` around it."""

    @property
    def performer(self) -> Any:
        return self.agent

    def fingerprint(self, identity: Identity) -> str:
        what = "answer" if self.answers else "agent"
        who = identities.agent_text(self.agent, identity)
        text = f"{what} {who} {identities.context_text(self.context, identity)}"
        judge = self.settings.check
        return (
            text if judge is None else f"{text} check {identities.performer_text(judge, identity)}"
        )

    def output_type(self) -> Any:
        if self.answers:
            return getattr(self.agent, "output", Any)
        return declared.of_type(AgentResult, getattr(self.agent, "output", None))

    def launch_count(self) -> int:
        return 1 + is_agent(self.settings.check)

    def answering(self) -> AgentCall:
        return replace(self, answers=True)

    def wanted(self) -> Wanted | None:
        if self.settings.writes is None or self.settings.worktree:
            return None
        return Wanted(patterns=self.settings.writes)

    async def perform(self, at: Performing) -> tuple[Any, Usage | None]:
        result = await at.launch(self.agent, self.context, self.settings, claims=True)
        return (result.output if self.answers else result), result.usage


@dataclass(frozen=True, slots=True)
class Generation(Launching):
    """Have an agent, or a callable of the context, write a text."""

    kind: ClassVar[str] = "generate"
    generator: AgentLike[Any] | Callable[..., Any]
    context: Context
    settings: AgentSettings = NO_SETTINGS

    @property
    def performer(self) -> Any:
        return self.generator

    def launch_count(self) -> int:
        return int(is_agent(self.generator))

    def fingerprint(self, identity: Identity) -> str:
        who = identities.performer_text(self.generator, identity)
        return f"generate {who} {identities.context_text(self.context, identity)}"

    def output_type(self) -> Any:
        return str

    async def perform(self, at: Performing) -> tuple[Any, Usage | None]:
        generator: Any = self.generator
        usage: Usage | None = None
        if self.launches_agent():
            result = await at.launch(generator, self.context, self.settings)
            text, usage = result.output, result.usage
        else:
            text = await at.call(generator, await at.built(self.context))
        if not isinstance(text, str):
            raise WrongUse(
                f"step {at.path!r}: a generator must return text, got {type(text).__name__}"
            )
        return text, usage


@dataclass(frozen=True, slots=True)
class StageCheck(Leaf):
    """Run one stage of a validation; the core makes these."""

    kind: ClassVar[str] = "stage"
    stage: Stage

    def fingerprint(self, identity: Identity) -> str:
        return f"stage {stage_text(self.stage, identity)}"

    def output_type(self) -> Any:
        return StageResult

    async def perform(self, at: Performing) -> tuple[Any, Usage | None]:
        """The result of the stage.

        Raises:
            StageFailed: it did not pass.
        """
        stage, used = self.stage, None
        check: Any = stage.check
        if is_agent(check):
            verdict = await at.launch(check, {})
            error, used = judging.refusal(verdict.output), verdict.usage
            result = StageResult(stage.name, error is None, str(verdict.output), error)
        elif callable(check):
            result = await self._called(check, at)
        else:
            done = await at.run(
                check if isinstance(check, str) else tuple(check), stage.sandbox, stage.inherit_env
            )
            printed = shortened((done.stdout + done.stderr).strip(), _STAGE_OUTPUT, keep="tail")
            error = None if done.exit_code == 0 else judging.exit_text(done.exit_code, printed)
            result = StageResult(stage.name, done.exit_code == 0, printed, error)
        if not result.passed:
            raise StageFailed(result, used)
        return result, used

    async def _called(self, check: Callable[..., Any], at: Performing) -> StageResult:
        name = self.stage.name
        try:
            value = await at.call(check, *([at.workflow] if judging.takes_one(check) else []))
        except Exception as error:  # noqa: BLE001  # a check that raises did not pass
            text, error_type, _, trace = facts_of_error(error)
            why = with_type(text, error_type.rpartition(".")[2])
            return StageResult(name, passed=False, output=trace, error=why)
        return judging.stage_result(name, value)

    def starts_process(self) -> bool:
        return not callable(self.stage.check)

    def launch_count(self) -> int:
        return int(is_agent(self.stage.check))

    def sees_results(self) -> bool:
        return callable(self.stage.check) and judging.takes_one(self.stage.check)

    def portable(self) -> bool:
        return not callable(self.stage.check) or importable(self.stage.check)

    def label(self) -> str:
        return f"stage {self.stage.name}"


def stage_text(stage: str | Stage, identity: Identity) -> str:
    """A stage for a fingerprint."""
    if isinstance(stage, str):
        return stage
    check = stage.check
    is_text = isinstance(check, (str, list, tuple))
    text = identity(check) if is_text else identities.performer_text(check, identity)
    return f"{stage.name}: {text}"


@dataclass(frozen=True, slots=True)
class TreeWork(Leaf):
    """Make a worktree of a step's own, merge it, or remove it; the core makes these."""

    kind: ClassVar[str] = "git"
    travels: ClassVar[bool] = False
    viewed: ClassVar[bool] = False
    action: TreeAction
    owner: str
    """The path of the step that owns the worktree, in its attempt."""
    base: str | None = None
    merge: str | Callable[..., Any] = "ff"
    tree: OwnTree | None = None

    def fingerprint(self, identity: Identity) -> str:
        return f"git {self.action} {self.base or 'HEAD'} {merge_text(self.merge, identity)}"

    async def perform(self, at: Performing) -> tuple[Any, Usage | None]:
        made = at.worktree(self.action, self.owner, self.base, self.merge, self.tree)
        return await made, None


def merge_text(merge: str | Callable[..., Any], identity: Identity) -> str:
    """How a worktree is merged, for a fingerprint."""
    return merge if isinstance(merge, str) else identities.callable_text(merge, identity)
