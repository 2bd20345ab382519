"""Performs leaf steps: one attempt at a call, a command, an agent, a stage.

An attempt ends in an event: ``StepCompleted`` or ``AttemptFailed``. Cancellation passes through.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import field, replace
from pathlib import Path
from typing import Any, TypeAlias, assert_never

import attrs

from handrail.core.commands import BrokenOff, LaunchFailed, Perform, Queue
from handrail.engine.calls import Abandoned, ActionRaised, call
from handrail.engine.current import Contexts, Current, built_context, idempotency_key
from handrail.engine.in_place import InPlace
from handrail.engine.replacements import Replacements
from handrail.errors import (
    BudgetExceeded,
    ClaimLost,
    CommandFailed,
    DefinitionError,
    OutputChanged,
    StepTimeout,
    WrongUse,
)
from handrail.model.agent_options import NO_SETTINGS, AgentSettings
from handrail.model.dataclass import dataclass
from handrail.model.described import bases_of, text_of, traceback_of
from handrail.model.events import (
    AgentFinished,
    AgentMessage,
    AgentReasoning,
    AgentSessionStarted,
    AgentToolStarted,
    AgentUsage,
    AttemptFailed,
    Notice,
    StepCompleted,
    StepOutput,
)
from handrail.model.launch import AgentError, Launch, PromptError, fault_of
from handrail.model.results import (
    SILENT,
    AgentResult,
    CommandResult,
    StageFailed,
    StageResult,
    StepResult,
    UnparsedCommandResult,
    Usage,
    add_launch,
    add_usage,
    qualified,
)
from handrail.model.shapes import AgentRequest, OwnTree
from handrail.ports.claims import LaunchClaims
from handrail.ports.clock import Clock
from handrail.record.assemble import assembler
from handrail.record.run_record import Recorded
from handrail.shortening import shortened
from handrail.steps.verbs import (
    AgentCall,
    Generation,
    PythonCall,
    ShellCommand,
    StageCheck,
    TreeWork,
)
from handrail.typed.convert import DoesNotFit

_STAGE_OUTPUT = 20_000
_EXIT_OUTPUT = 2_000
_step_result: Callable[..., StepResult[Any]] = assembler(StepResult)
_step_completed = assembler(StepCompleted)


Around: TypeAlias = Callable[[Current], AbstractAsyncContextManager[Any]]
"""Makes what is entered before an attempt and left behind it, in its context."""


ClaimsOf: TypeAlias = Callable[[str], LaunchClaims]
"""What the launch of an agent at a path has to do with claims."""
FolderOf: TypeAlias = Callable[[Any, AgentSettings, AgentSettings, Launch], Path | None]
"""The folder that a launch of an agent works in; None for an agent that heeds no ``writes=``."""
_SIGNS_OF_LIFE = (
    AgentMessage,
    AgentReasoning,
    AgentToolStarted,
    AgentUsage,
)
"""What an agent tells only when it has read its prompt."""


@dataclass(frozen=True, slots=True)
class Performer:
    """Performs the leaf steps of one run."""

    contexts: Contexts
    agents: Replacements
    clock: Clock
    tell: Callable[[Notice], None]
    defaults: Callable[[], AgentSettings] = lambda: NO_SETTINGS
    in_place: InPlace | None = None
    around: tuple[Around, ...] = ()
    folder_of_agent: FolderOf | None = None
    recorded: Callable[[], Recorded] = lambda: Recorded(())
    """What earlier drives recorded."""
    session_totals: dict[str, Usage] = field(default_factory=dict[str, Usage], init=False)
    """The same in this drive, whichever step went on in it."""
    broken_off: dict[str, BrokenOff] = field(default_factory=dict[str, BrokenOff], init=False)
    """What is known of launches that were stopped, by path, until it is taken."""

    async def perform(
        self, command: Perform, current: Current, claims_of: ClaimsOf | None = None
    ) -> StepCompleted | AttemptFailed | LaunchFailed:
        """The end of one attempt, or of a launch of its agent, which may claim more meanwhile.

        Raises:
            BaseException: cancellation, KeyboardInterrupt and SystemExit, as they come.
        """
        import anyio

        began, since = self.clock.now(), self._elapsed()
        try:
            if self.around:
                output, usage = await self._surrounded(command, current, claims_of)
            else:
                output, usage = await self._output(command, current, claims_of)
        except (KeyboardInterrupt, SystemExit, Abandoned, anyio.get_cancelled_exc_class()):
            raise
        except BaseException as error:  # noqa: BLE001  # whatever an action raises fails its step
            return self._failed(command, error, self._elapsed() - since)
        return succeeded(command, output, usage, began + self._elapsed() - since)

    def _elapsed(self) -> float:
        """The clock's time, as far as that is never set."""
        return float(getattr(self.clock, "elapsed", self.clock.now)())

    def _failed(
        self, command: Perform, error: BaseException, took_s: float
    ) -> AttemptFailed | LaunchFailed:
        """The attempt's end; for a launch that failed in a known way, the core has a say first."""
        ended = failed(command, error)
        if not isinstance(error, AgentError):
            return ended
        fault = error.fault or fault_of(error, command.launch)
        if fault is None:
            return ended
        return LaunchFailed(command.path, fault, ended, max(0.0, took_s), self.clock.now())

    async def _surrounded(
        self, command: Perform, current: Current, claims_of: ClaimsOf | None
    ) -> tuple[Any, Usage | None]:
        """The output, with the executor's context managers round the attempt."""
        from contextlib import AsyncExitStack

        raised: BaseException | None = None
        async with AsyncExitStack() as stack:
            for factory in self.around:
                await stack.enter_async_context(factory(current))
            try:
                return await self._output(command, current, claims_of)
            except BaseException as error:
                raised = error
                raise
        assert raised is not None
        raise raised  # a failure stays one, though a context manager swallowed it

    async def _output(
        self, command: Perform, current: Current, claims_of: ClaimsOf | None
    ) -> tuple[Any, Usage | None]:
        verb: Any = command.step.verb
        match verb:
            case PythonCall():
                return await self._call(verb, command, current), None
            case ShellCommand():
                return await self._command(verb, command), None
            case AgentCall():
                claims = None if claims_of is None else claims_of(command.path)
                result = await self._agent(verb.agent, verb, command, current, claims)
                return (result.output if verb.answers else result), result.usage
            case Generation():
                return await self._generate(verb, command, current)
            case StageCheck():
                return await self._stage(verb, command, current), None
            case TreeWork():
                return await self._git(verb, command, current, claims_of), None
            case _:
                assert_never(verb)

    async def _call(self, verb: PythonCall, command: Perform, current: Current) -> Any:
        """What the action returns.

        Raises:
            OutputChanged: it changed an earlier output in place. BaseException: what it raised.
        """
        action, args, kwargs = verb.action, verb.args, verb.kwargs or {}
        inline, watch = command.step.modifiers.inline, self.in_place
        before = [] if watch is None else watch.before(verb)
        if not before or watch is None:
            return await call(action, args, kwargs, inline=inline, current=current)
        try:
            value = await call(action, args, kwargs, inline=inline, current=current)
        except Exception as raised:
            error = watch.changed(command.path, before)
            if error is not None:
                raise error from raised
            raise
        error = watch.changed(command.path, before)
        if error is not None:
            raise error
        return value

    # -- worktrees ------------------------------------------------------------------------------

    async def _git(
        self, verb: TreeWork, command: Perform, current: Current, claims_of: ClaimsOf | None
    ) -> OwnTree | None:
        from handrail.workspace.own_tree import OwnTrees

        trees = OwnTrees(self.contexts.run_id, verb.owner, f"{self._marker(command)}/git")
        if verb.action == "make":
            return await trees.make(Path(current.cwd), verb.base)
        tree = verb.tree
        assert tree is not None  # it was made
        if verb.action == "merge":
            assert claims_of is not None

            async def called(function: Callable[..., Any], own: OwnTree) -> object:
                return await call(function, (own,), {}, inline=False, current=current)

            await trees.merge(tree, verb.merge, claims_of(command.path), called)
        elif verb.action == "remove":
            await trees.remove(tree)
        else:
            await trees.leave(tree)
        return None

    # -- commands -------------------------------------------------------------------------------

    async def _command(self, verb: ShellCommand, command: Perform) -> CommandResult[Any]:
        from handrail.system.run import run_process

        done = await run_process(
            verb.argv,
            cwd=_folder(verb.cwd, command),
            env=verb.env,
            stdin=verb.stdin,
            marker=self._marker(command),
            on_output=self._listener(command),
        )
        if verb.check and done.exit_code != 0:
            raise CommandFailed(_shown(verb.argv), done.exit_code, done.stdout, done.stderr)
        if verb.parse is None:
            return CommandResult(done.exit_code, done.stdout, done.stderr)
        try:
            data = _parsed(done.stdout, verb.parse)
        except DoesNotFit as error:
            found = UnparsedCommandResult(done.exit_code, done.stdout, done.stderr)
            if done.exit_code == 0:
                raise _NotParsed(error, found) from None
            return found
        return CommandResult(done.exit_code, done.stdout, done.stderr, data)

    def _marker(self, command: Perform) -> str:
        return f"{self.contexts.mark or self.contexts.run_id}/{command.path}#{command.attempt}"

    def _listener(self, command: Perform) -> Callable[[Any, str], None]:
        tell, path = self.tell, command.path

        def heard(stream: Any, text: str) -> None:
            tell(StepOutput(path, stream, text))

        return heard

    # -- agents ---------------------------------------------------------------------------------

    def folder_of(self, command: Perform | Queue) -> Path | None:
        """The folder that a launch of an agent works in; None if it heeds no ``writes=``."""
        verb = command.step.verb
        if not isinstance(verb, AgentCall) or self.folder_of_agent is None:
            return None
        agent = self.agents.instead_of(verb.agent)
        return self.folder_of_agent(agent, verb.settings, self.defaults(), command.launch)

    async def _agent(
        self,
        agent: Any,
        verb: AgentCall | Generation,
        command: Perform,
        current: Current,
        claims: LaunchClaims | None = None,
    ) -> AgentResult[Any]:
        assert command.view is not None
        workflow = self.contexts.of(command.view)
        chosen = self.agents.instead_of(agent)
        heard = _Heard(command.launch, self._elapsed())

        def hears(notice: Notice) -> None:
            heard.take(notice)
            self.tell(notice)

        request = AgentRequest(
            self.contexts.run_id,
            command.path,
            command.attempt,
            await built_context(verb.context, workflow),
            workflow,
            idempotency_key(self.contexts.run_id, command.path),
            current.interrupted,
            hears,
            self.clock.sleep,
            self._launch(command.launch),
            self._with_total(verb.settings),
            self.defaults(),
            self.clock.now,
            self.contexts.mark,
            getattr(agent, "output", Any),
            tree=command.tree,
            claims=claims,
        )
        if chosen is not agent and hasattr(agent, "prompt_for"):
            request = replace(request, prompt=await agent.prompt_for(request))
        try:
            result: AgentResult[Any] = await chosen.run(request)
        except AgentError:
            raise
        except BaseException:
            self.broken_off[command.path] = heard.broken_off(self._elapsed())
            raise
        if not isinstance(result, AgentResult):
            raise WrongUse(
                f"agent {chosen.name!r}: run() must return an AgentResult, got {result!r}"
            )
        if result.session is not None and result.session_usage is not None:
            self.session_totals[result.session] = result.session_usage
        return result

    def _total_of(self, session: str | None) -> Usage | None:
        if session is None:
            return None
        return self.session_totals.get(session) or self.recorded().session_totals.get(session)

    def _with_total(self, settings: AgentSettings) -> AgentSettings:
        """Of a session that others went on in since the step's own result of it was made; and
        whether it is that of another run.
        """
        session, total = settings.session, self._total_of(settings.session)
        if session and session in self.recorded().lent_sessions:
            settings = attrs.evolve(settings, lent=True)
        return settings if total is None else attrs.evolve(settings, session_usage=total)

    def _launch(self, launch: Launch) -> Launch:
        """The same of the session that a launch goes on in, where nothing is known of it."""
        if launch.session is None or launch.session_usage is not None:
            return launch
        return replace(launch, session_usage=self._total_of(launch.session))

    async def _generate(
        self, verb: Generation, command: Perform, current: Current
    ) -> tuple[str, Usage | None]:
        generator: Any = verb.generator
        usage: Usage | None = None
        if callable(getattr(generator, "run", None)):
            result = await self._agent(generator, verb, command, current)
            text, usage = result.output, result.usage
        else:
            assert command.view is not None
            context = await built_context(verb.context, self.contexts.of(command.view))
            text = await call(generator, (context,), {}, inline=False, current=current)
        if not isinstance(text, str):
            raise WrongUse(
                f"step {command.path!r}: a generator must return text, got {type(text).__name__}"
            )
        return text, usage

    # -- stages ---------------------------------------------------------------------------------

    async def _stage(self, verb: StageCheck, command: Perform, current: Current) -> StageResult:
        stage = verb.stage
        if callable(stage.check):
            result = await self._check(stage.name, stage.check, command, current)
        else:
            from handrail.system.run import run_process

            done = await run_process(
                stage.check if isinstance(stage.check, str) else tuple(stage.check),
                cwd=_folder(None, command),
                marker=self._marker(command),
                on_output=self._listener(command),
            )
            printed = shortened((done.stdout + done.stderr).strip(), _STAGE_OUTPUT, keep="tail")
            error = None if done.exit_code == 0 else _exit_text(done.exit_code, printed)
            result = StageResult(stage.name, done.exit_code == 0, printed, error)
        if not result.passed:
            raise StageFailed(result)
        return result

    async def _check(
        self, name: str, check: Callable[..., Any], command: Perform, current: Current
    ) -> StageResult:
        assert command.view is not None
        args = (self.contexts.of(command.view),) if takes_one(check) else ()
        try:
            value = await call(check, args, {}, inline=False, current=current)
        except Exception as error:  # noqa: BLE001  # a check that raises did not pass
            said = f"{type(error).__name__}: {text_of(error)}"
            return StageResult(name, passed=False, output=traceback_of(error), error=said)
        return stage_result(name, value)


class _Heard:
    """What an agent tells of itself in one launch. Mutable."""

    def __init__(self, launch: Launch, since: float) -> None:
        self._launch = launch
        self._since = since
        self._used: Usage | None = None
        self._session: AgentSessionStarted | None = None
        self._answered = False

    def take(self, notice: Notice) -> None:
        """Take note of it."""
        match notice:
            case AgentFinished():
                self._used = notice.usage or self._used
            case AgentSessionStarted():
                self._session = notice
            case _:
                self._answered = self._answered or isinstance(notice, _SIGNS_OF_LIFE)

    def broken_off(self, now: float) -> BrokenOff:
        """What is known of the launch, which was stopped now."""
        own, session = self._used, self._session
        return BrokenOff(
            own,
            add_launch(self._launch.spent, own) or SILENT,
            None if session is None else session.session,
            "" if session is None else session.backend,
            self._answered,
            max(0.0, now - self._since),
        )


def _folder(cwd: str | os.PathLike[str] | None, command: Perform) -> str | os.PathLike[str] | None:
    """Where a program is to work: in the step's worktree, if it has one."""
    tree = command.tree
    if tree is None:
        return cwd
    return tree.inside(os.getcwd() if cwd is None else os.fspath(cwd))  # noqa: PTH109  # as it is


def stage_result(name: str, value: Any) -> StageResult:
    """What a callable stage said: False fails it; a ``StageResult`` or ``CommandResult`` speaks."""
    match value:
        case StageResult():
            return value
        case CommandResult():
            printed = (value.stdout + value.stderr).strip()
            passed = value.exit_code == 0
            error = None if passed else _exit_text(value.exit_code, printed)
            return StageResult(name, passed, printed, error)
        case bool() | None:
            passed = value is not False
            return StageResult(name, passed, "", None if passed else "the check returned False")
        case _:
            return StageResult(name, passed=True, output=str(value))


def takes_one(check: Callable[..., Any]) -> bool:
    """True if a callable needs exactly one positional argument."""
    try:
        parameters = inspect.signature(check).parameters.values()
    except (TypeError, ValueError):
        return False
    needed = [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind in {parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD}
    ]
    return len(needed) == 1


def _parsed(text: str, type_: Any) -> Any:
    from handrail.typed.convert import fit_json
    from handrail.typed.jsonsafe import short_repr
    from handrail.typed.schema import describe_type

    try:
        return fit_json(text, type_)
    except DoesNotFit as error:
        wanted = describe_type(type_)
        said = f"parse= expects JSON of type {wanted} on stdout, got {short_repr(text)}: {error}"
        raise DoesNotFit(said) from None


def _shown(argv: str | tuple[str, ...]) -> str:
    if isinstance(argv, str):
        return repr(argv)
    import shlex

    return repr(shlex.join(argv))


def _exit_text(exit_code: int, printed: str) -> str:
    said = shortened(printed, _EXIT_OUTPUT, keep="tail")
    return f"exit code {exit_code}: {said}" if said else f"exit code {exit_code}"


# -- how attempts end ------------------------------------------------------------------------------


def bound(command: Perform, now: float) -> tuple[float, Exception]:
    """How long an attempt may go on that begins now and is bounded, by its step or a budget; and
    what it fails with then.
    """
    timeout_s, deadline = command.step.modifiers.timeout_s, command.deadline
    left_s = math.inf if timeout_s is None else timeout_s - command.spent_s
    if deadline is not None and deadline.due - now < left_s:
        return deadline.due - now, deadline.error
    return left_s, StepTimeout(command.path, timeout_s or 0.0)


def succeeded(command: Perform, output: Any, usage: Usage | None, now: float) -> StepCompleted:
    """The event of an attempt that gave an output."""
    step = command.step
    took_ms = (now - command.started_at) * 1000
    path = command.path
    result = _step_result(
        step.name,
        path,
        step.verb.kind,
        "succeeded",
        output,
        None,
        None,
        (),
        None,
        took_ms if took_ms > 0 else 0.0,
        command.attempt,
        False,  # noqa: FBT003  # by position, for speed: replayed, abandoned, masked
        False,  # noqa: FBT003
        False,  # noqa: FBT003
        usage if command.used is None else add_usage(command.used, usage),
        (),
        0.0,
        None,
    )
    return _step_completed("", 0, 0.0, path, result, "", 0, (), command.used)


class _NotParsed(Exception):
    """A command's output is not what was asked for. ``result`` is the command's."""

    def __init__(self, error: Exception, result: UnparsedCommandResult) -> None:
        super().__init__(error, result)
        self.error = error
        self.result = result


def _is_in_vain(command: Perform | Queue, error: BaseException) -> bool:
    """True if the same attempt again would fail in the same way, whatever happens meanwhile."""
    of_agent = isinstance(command.step.verb, (AgentCall, Generation))
    wrong = isinstance(error, (PromptError, DefinitionError)) and of_agent
    return wrong or isinstance(error, (BudgetExceeded, OutputChanged))


def failed(
    command: Perform | Queue, error: BaseException, spent: Usage | None = None
) -> AttemptFailed:
    """The event of an attempt that raised; ``on=`` is judged here, where the exception is alive.
    ``spent``: what an agent that was stopped had used in all.
    """
    output: Any = None
    if isinstance(error, ActionRaised):
        error = error.error
    elif isinstance(error, _NotParsed):
        output, error = error.result, error.error
    elif isinstance(error, CommandFailed):
        output = CommandResult[None](error.exit_code, error.stdout, error.stderr)
    elif isinstance(error, StageFailed):
        output = error.result
    elif isinstance(error, AgentError):
        output = getattr(error, "conflict", None)  # of a worktree
    retryable = isinstance(error, Exception) and not _is_in_vain(command, error)
    retry = command.step.modifiers.retry
    if retry is not None and retryable:
        try:
            retryable = retry.covers(error)
        except Exception as broken:  # noqa: BLE001  # the user's predicate
            error, retryable = broken, False
    usage = spent or command.launch.spent
    if isinstance(error, ClaimLost):
        usage = add_usage(usage, error.usage)
    if isinstance(error, AgentError):
        usage = error.fault.spent if error.fault is not None else add_usage(usage, error.usage)
    return AttemptFailed(
        command.path,
        command.attempt,
        text_of(error),
        qualified(type(error)),
        bases_of(error),
        traceback_of(error),
        retryable,
        output,
        usage,
    )
