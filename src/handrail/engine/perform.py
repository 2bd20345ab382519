"""Performs leaf steps: one attempt at a call, a command, an agent, a stage.

An attempt ends in an event, ``StepCompleted`` or ``AttemptFailed``. Cancellation is raised on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never

import attrs
import msgspec

from handrail.core.attempt_ends import failure_event, success_event
from handrail.core.commands import BrokenOff, LaunchFailed, Perform, Queue
from handrail.engine.calls import Abandoned, ActionRaised, call
from handrail.engine.current import Contexts, Current, built_context, idempotency_key
from handrail.engine.judging import judged, own, refusal
from handrail.engine.replacements import Replacements
from handrail.engine.stage_calls import exit_text, stage_result, takes_one
from handrail.errors import ClaimLost, CommandFailed, WrongUse
from handrail.model import events as ev
from handrail.model.agent_options import NO_SETTINGS, AgentSettings
from handrail.model.dataclass import dataclass
from handrail.model.described import facts_of_error
from handrail.model.events import Notice
from handrail.model.launch import AgentError, Launch, fault_of
from handrail.model.outcome import INTERRUPTIONS
from handrail.model.results import (
    UNREPORTED,
    AgentResult,
    CommandResult,
    StageFailed,
    StageResult,
    UnparsedCommandResult,
    Usage,
    add_launch,
    add_usage,
)
from handrail.model.shapes import AgentRequest, OwnTree
from handrail.ports.clock import Clock
from handrail.record.run_record import Recorded
from handrail.shortening import shortened
from handrail.steps.verbs import (
    AgentCall,
    Generation,
    PythonCall,
    ShellCommand,
    StageCheck,
    TreeWork,
    is_agent,
    take,
)
from handrail.typed.convert import DoesNotFit

if TYPE_CHECKING:
    from handrail.engine.in_place import InPlace
    from handrail.engine.portable import PortableFormat
    from handrail.ports.claims import LaunchClaims

_STAGE_OUTPUT = 20_000

Around: TypeAlias = Callable[[Current], AbstractAsyncContextManager[Any]]
"""Makes the async context manager that surrounds an attempt, in the attempt's context."""


ClaimsOf: TypeAlias = "Callable[[str], LaunchClaims]"
"""Gives the claims for a launch of the agent at a path."""
FolderOf: TypeAlias = Callable[[Any, AgentSettings, AgentSettings, Launch], Path | None]
"""The folder that a launch of an agent works in; None for an agent that heeds no ``writes=``."""
_SIGNS_OF_LIFE = (
    ev.AgentMessage,
    ev.AgentReasoning,
    ev.AgentToolStarted,
    ev.AgentUsage,
)
"""Notices that show that an agent has read its prompt."""


@dataclass(frozen=True, slots=True)
class Performer:
    """Performs the leaf steps of one run."""

    contexts: Contexts
    agents: Replacements
    clock: Clock
    emit_notice: Callable[[Notice], None]
    defaults: Callable[[], AgentSettings] = lambda: NO_SETTINGS
    in_place: InPlace | None = None
    around: tuple[Around, ...] = ()
    folder_of_agent: FolderOf | None = None
    recorded: Callable[[], Recorded] = lambda: Recorded(())
    """Gives the record of earlier drives."""
    portable_format: PortableFormat | None = None
    """Writes and reads each attempt, as if another process performed it; None: it runs as is."""
    session_totals: dict[str, Usage] = field(default_factory=dict[str, Usage], init=False)
    """The latest total usage of each session in this drive, whichever step continued it."""
    broken_off: dict[str, BrokenOff] = field(default_factory=dict[str, BrokenOff], init=False)
    """What is known of launches that were stopped, by path; the reader removes it."""

    async def perform(
        self, command: Perform, current: Current, claims_of: ClaimsOf | None = None
    ) -> ev.StepCompleted | ev.AttemptFailed | LaunchFailed:
        """Perform an attempt, or one launch of its agent, which may claim more; how it ended.

        Raises:
            BaseException: cancellation, KeyboardInterrupt and SystemExit.
        """
        import anyio

        began, since = self.clock.now(), self._elapsed()
        try:
            if self.portable_format is not None:
                command = await self._as_portable(command, self.portable_format)
            if self.around:
                output, usage = await self._run_in_contexts(command, current, claims_of)
            else:
                output, usage = await self._output(command, current, claims_of)
        except (*INTERRUPTIONS, Abandoned, anyio.get_cancelled_exc_class()):
            raise
        except BaseException as error:  # noqa: BLE001  # whatever an action raises fails its step
            return self._failed(command, error, self._elapsed() - since)
        return success_event(command, output, usage, began + self._elapsed() - since)

    def _elapsed(self) -> float:
        """Elapsed running time, which no setting of the clock changes, if the clock has that."""
        return float(getattr(self.clock, "elapsed", self.clock.now)())

    async def _as_portable(self, command: Perform, portable_format: PortableFormat) -> Perform:
        """The attempt written and read again, as another process would get it.

        Raises:
            NotPortable: a part of it is neither data nor has a name.
        """
        context: Mapping[str, Any] | None = None
        from handrail.engine.portable import builds_context

        if builds_context(command) and command.view is not None:
            verb: Any = command.step.verb
            context = await built_context(verb.context, self.contexts.of(command.view))
        text = portable_format.write_attempt(command, self.clock.now(), context)
        read = portable_format.read_attempt(text, command.started_at)
        modifiers = attrs.evolve(command.step.modifiers, retry=read.step.modifiers.retry)
        step = attrs.evolve(read.step, modifiers=modifiers)
        take(step)
        return msgspec.structs.replace(command, step=step, view=read.view, launch=read.launch)

    def _failed(
        self, command: Perform, error: BaseException, took_s: float
    ) -> ev.AttemptFailed | LaunchFailed:
        """The end of a failed attempt; the core decides first about a known failure of a launch."""
        if isinstance(error, ClaimLost):
            self.emit_notice(ev.ClaimLost(command.path, error.what, error.epoch, error.holder))
        ended = raised_event(command, error)
        if not isinstance(error, AgentError):
            return ended
        fault = error.fault or fault_of(error, command.launch)
        if fault is None:
            return ended
        return LaunchFailed(command.path, fault, ended, max(0.0, took_s), self.clock.now())

    async def _run_in_contexts(
        self, command: Perform, current: Current, claims_of: ClaimsOf | None
    ) -> tuple[Any, Usage | None]:
        """The output, with the executor's context managers around the attempt."""
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
                if verb.settings.check is not None:
                    result = await self._judged(result, verb, command, current)
                return (result.output if verb.answers else result), result.usage
            case Generation():
                return await self._generate(verb, command, current)
            case StageCheck():
                return await self._stage(verb, command, current)
            case TreeWork():
                return await self._git(verb, command, current, claims_of), None
            case _:
                assert_never(verb)

    async def _call(self, verb: PythonCall, command: Perform, current: Current) -> Any:
        """The return value of the action.

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
    ) -> OwnTree | bool | None:
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
            return await trees.leave(tree)
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
            raise CommandFailed(_format_argv(verb.argv), done.exit_code, done.stdout, done.stderr)
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
        emit_notice, path = self.emit_notice, command.path

        def on_output(stream: Any, text: str) -> None:
            emit_notice(ev.StepOutput(path, stream, text))

        return on_output

    # -- agents ---------------------------------------------------------------------------------

    def folder_of(self, command: Perform | Queue) -> Path | None:
        """The folder that a launch of an agent works in; None if it heeds no ``writes=``."""
        verb = command.step.verb
        if not isinstance(verb, AgentCall) or self.folder_of_agent is None:
            return None
        agent = self.agents.replacement_for(verb.agent)
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
        chosen = self.agents.replacement_for(agent)
        report = _LaunchReport(command.launch, self._elapsed())

        def on_notice(notice: Notice) -> None:
            report.take(notice)
            self.emit_notice(notice)

        request = AgentRequest(
            self.contexts.run_id,
            command.path,
            command.attempt,
            await built_context(verb.context, workflow),
            workflow,
            idempotency_key(self.contexts.run_id, command.path),
            current.interrupted,
            on_notice,
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
            self.broken_off[command.path] = report.broken_off(self._elapsed())
            raise
        if not isinstance(result, AgentResult):
            raise WrongUse(
                f"agent {chosen.name!r}: run() must return an AgentResult, got {result!r}"
            )
        if result.session is not None and result.session_usage is not None:
            self.session_totals[result.session] = result.session_usage
        return result

    async def _judged(
        self, result: AgentResult[Any], verb: AgentCall, command: Perform, current: Current
    ) -> AgentResult[Any]:
        """The result, if the step's check accepts it; its judge works unseen, in the same step."""
        check: Any = verb.settings.check
        if not is_agent(check):
            said = await call(check, (result.output,), {}, inline=False, current=current)
            return judged(verb.agent.name, result, command.launch, said, None)
        silent = replace(self, emit_notice=lambda _: None)
        given = AgentCall(check, {"answer": result.output})
        first = msgspec.structs.replace(command, launch=Launch())
        try:
            found = await Performer._agent(silent, check, given, first, current)
        except AgentError as error:
            why = f"its check gave no verdict: {error}"
            used = add_usage(own(result, command.launch), error.usage)
            kind = error.kind if error.not_ready else None
            raise AgentError(verb.agent.name, why, kind=kind, usage=used) from error
        return judged(verb.agent.name, result, command.launch, found.output, found.usage)

    def _total_of(self, session: str | None) -> Usage | None:
        if session is None:
            return None
        return self.session_totals.get(session) or self.recorded().session_totals.get(session)

    def _with_total(self, settings: AgentSettings) -> AgentSettings:
        """The settings with the latest total usage of their session, which other steps may have
        continued since; and marked as ``lent`` if the session belongs to another run.
        """
        session, total = settings.session, self._total_of(settings.session)
        if session and session in self.recorded().lent_sessions:
            settings = attrs.evolve(settings, lent=True)
        return settings if total is None else attrs.evolve(settings, session_usage=total)

    def _launch(self, launch: Launch) -> Launch:
        """The launch with the total usage of the session that it continues, if it lacks that."""
        if launch.session is None or launch.session_usage is not None:
            return launch
        return replace(launch, session_usage=self._total_of(launch.session))

    async def _generate(
        self, verb: Generation, command: Perform, current: Current
    ) -> tuple[str, Usage | None]:
        generator: Any = verb.generator
        usage: Usage | None = None
        if is_agent(generator):
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

    async def _stage(
        self, verb: StageCheck, command: Perform, current: Current
    ) -> tuple[StageResult, Usage | None]:
        stage, used = verb.stage, None
        check: Any = stage.check
        if is_agent(check):
            said = await self._agent(check, AgentCall(check, {}), command, current)
            error, used = refusal(said.output), said.usage
            result = StageResult(stage.name, error is None, str(said.output), error)
        elif callable(check):
            result = await self._check(stage.name, check, command, current)
        else:
            from handrail.system.run import run_process

            done = await run_process(
                check if isinstance(check, str) else tuple(check),
                cwd=_folder(None, command),
                marker=self._marker(command),
                on_output=self._listener(command),
            )
            printed = shortened((done.stdout + done.stderr).strip(), _STAGE_OUTPUT, keep="tail")
            error = None if done.exit_code == 0 else exit_text(done.exit_code, printed)
            result = StageResult(stage.name, done.exit_code == 0, printed, error)
        if not result.passed:
            raise StageFailed(result, used)
        return result, used

    async def _check(
        self, name: str, check: Callable[..., Any], command: Perform, current: Current
    ) -> StageResult:
        assert command.view is not None
        args = (self.contexts.of(command.view),) if takes_one(check) else ()
        try:
            value = await call(check, args, {}, inline=False, current=current)
        except Exception as error:  # noqa: BLE001  # a check that raises did not pass
            text, error_type, _, trace = facts_of_error(error)
            kind = error_type.rpartition(".")[2]
            said = text if text.startswith(f"{kind}: ") else f"{kind}: {text}"
            return StageResult(name, passed=False, output=trace, error=said)
        return stage_result(name, value)


class _LaunchReport:
    """Collects what an agent's notices say of one launch. Mutable."""

    def __init__(self, launch: Launch, since: float) -> None:
        self._launch = launch
        self._since = since
        self._used: Usage | None = None
        self._session: ev.AgentSessionStarted | None = None
        self._answered = False

    def take(self, notice: Notice) -> None:
        """Take the usage, the session or a sign of life from a notice."""
        match notice:
            case ev.AgentFinished():
                self._used = notice.usage or self._used
            case ev.AgentSessionStarted():
                self._session = notice
            case _:
                self._answered = self._answered or isinstance(notice, _SIGNS_OF_LIFE)

    def broken_off(self, now: float) -> BrokenOff:
        """What is known of the launch, which was stopped at ``now``."""
        own, session = self._used, self._session
        return BrokenOff(
            own,
            add_launch(self._launch.spent, own) or UNREPORTED,
            None if session is None else session.session,
            "" if session is None else session.backend,
            self._answered,
            max(0.0, now - self._since),
        )


def _folder(cwd: str | os.PathLike[str] | None, command: Perform) -> str | os.PathLike[str] | None:
    """The folder for a program: inside the step's worktree, if it has one."""
    tree = command.tree
    if tree is None:
        return cwd
    return tree.inside(os.getcwd() if cwd is None else os.fspath(cwd))  # noqa: PTH109  # as it is


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


def _format_argv(argv: str | tuple[str, ...]) -> str:
    if isinstance(argv, str):
        return repr(argv)
    import shlex

    return repr(shlex.join(argv))


# -- how attempts end ------------------------------------------------------------------------------


class _NotParsed(Exception):
    """A command's stdout does not fit ``parse=``. ``result`` is the command's."""

    def __init__(self, error: Exception, result: UnparsedCommandResult) -> None:
        super().__init__(error, result)
        self.error = error
        self.result = result


def raised_event(command: Perform, error: BaseException) -> ev.AttemptFailed:
    """The event of an attempt that raised, while the exception is alive; see ``failure_event``."""
    if isinstance(error, ActionRaised):
        return failure_event(command, error.error)
    if isinstance(error, _NotParsed):
        return failure_event(command, error.error, output=error.result)
    return failure_event(command, error)
