"""Performs leaf steps: one attempt at a call, a command, an agent, a stage.

An attempt ends in an event, ``StepCompleted`` or ``AttemptFailed``. Cancellation is raised on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs
import msgspec

from handrail.core.attempt_ends import failure_event, success_event
from handrail.core.commands import BrokenOff, LaunchFailed, Perform, Queue
from handrail.engine.bus import warn
from handrail.engine.calls import Abandoned, ActionRaised, call
from handrail.engine.current import Contexts, Current, built_context, idempotency_key
from handrail.errors import ClaimLost, WrongUse
from handrail.model import events as ev
from handrail.model.agent_options import NO_SETTINGS, AgentSettings
from handrail.model.context import WorkflowContext
from handrail.model.dataclass import dataclass
from handrail.model.events import Notice
from handrail.model.launch import AgentError, Launch, fault_of
from handrail.model.outcome import INTERRUPTIONS
from handrail.model.results import (
    UNREPORTED,
    AgentResult,
    CommandResult,
    Usage,
    add_launch,
    add_usage,
)
from handrail.model.sandbox import Boundary, InheritEnv, chosen_sandbox
from handrail.model.shapes import AgentRequest, OwnTree, is_agent
from handrail.ports.clock import Clock
from handrail.record.run_record import Recorded
from handrail.steps.leaves import AgentCall, Launching, NotParsed, PythonCall
from handrail.steps.verbs import Context, Leaf, TreeAction, take

if TYPE_CHECKING:
    from handrail.engine.in_place import InPlace
    from handrail.engine.portable import PortableFormat
    from handrail.ports.claims import LaunchClaims

Around: TypeAlias = Callable[[Current], AbstractAsyncContextManager[Any]]
"""Makes the async context manager that surrounds an attempt, in the attempt's context."""


ClaimsOf: TypeAlias = "Callable[[str], LaunchClaims]"
"""Gives the claims for a launch of the agent at a path."""
FolderOf: TypeAlias = Callable[[Any, AgentSettings, AgentSettings, Launch], Path | None]
"""The folder that a launch of an agent works in; None for an agent that heeds no ``writes=``."""
_SIGNS_OF_LIFE = (ev.AgentMessage, ev.AgentReasoning, ev.AgentToolStarted, ev.AgentUsage)
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
    sandbox: Callable[[], Boundary] = lambda: None
    """The run's sandbox, for commands and stages that have none of their own."""
    hidden: tuple[Path, ...] = ()
    """The run's own files, which no sandbox shows."""
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
        # long road of attempt_tasks.Attempts.perform_here
        import anyio

        began, since = self.clock.now(), self.elapsed()
        try:
            if self.portable_format is not None:
                command = await self._as_portable(command, self.portable_format)
            attempt = _Attempt(self, command, current, claims_of)
            ended = self._run_in_contexts(attempt, current) if self.around else attempt.output()
            output, usage = await ended
        except (*INTERRUPTIONS, Abandoned, anyio.get_cancelled_exc_class()):
            raise
        except BaseException as error:  # noqa: BLE001  # whatever an action raises fails its step
            return self._failed(command, error, self.elapsed() - since)
        return success_event(command, output, usage, began + self.elapsed() - since)

    def elapsed(self) -> float:
        """Elapsed running time, which no setting of the clock changes, if the clock has that."""
        return float(getattr(self.clock, "elapsed", self.clock.now)())

    async def _as_portable(self, command: Perform, portable_format: PortableFormat) -> Perform:
        """The attempt written and read again, as another process would get it.

        Raises:
            NotPortable: a part of it is neither data nor has a name.
        """
        context: Mapping[str, Any] | None = None
        verb = command.step.verb
        if isinstance(verb, Launching) and verb.builds_context and command.view is not None:
            context = await built_context(verb.context, self.contexts.of(command.view))
        text = portable_format.write_attempt(command, self.clock.now(), context)
        read = portable_format.read_attempt(text, command.started_at)
        modifiers = msgspec.structs.replace(command.step.modifiers, retry=read.step.modifiers.retry)
        step = msgspec.structs.replace(read.step, modifiers=modifiers)
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
        self, attempt: _Attempt, current: Current
    ) -> tuple[Any, Usage | None]:
        """The output, with the executor's context managers around the attempt."""
        from contextlib import AsyncExitStack

        raised: BaseException | None = None
        async with AsyncExitStack() as stack:
            for factory in self.around:
                await stack.enter_async_context(factory(current))
            try:
                return await attempt.output()
            except BaseException as error:
                raised = error
                raise
        assert raised is not None
        raise raised  # a failure stays one, though a context manager swallowed it

    # -- agents and programs --------------------------------------------------------------------

    def marker(self, command: Perform) -> str:
        """The mark by which the programs of an attempt are found."""
        return f"{self.contexts.mark or self.contexts.run_id}/{command.path}#{command.attempt}"

    def folder_of(self, command: Perform | Queue) -> Path | None:
        """The folder that a launch of an agent works in; None if it heeds no ``writes=``."""
        verb = command.step.verb
        if not isinstance(verb, AgentCall) or self.folder_of_agent is None:
            return None
        agent = self.agents.replacement_for(verb.agent)
        return self.folder_of_agent(agent, verb.settings, self.defaults(), command.launch)

    def total_of(self, session: str | None) -> Usage | None:
        """The latest total usage of a session, which other steps may have continued since."""
        if session is None:
            return None
        return self.session_totals.get(session) or self.recorded().session_totals.get(session)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What the engine does for a verb in one attempt: see ``steps.verbs.Performing``."""

    _performer: Performer
    _command: Perform
    _current: Current
    _claims_of: ClaimsOf | None

    async def output(self) -> tuple[Any, Usage | None]:
        """The output of the step's verb, and what it used."""
        verb = self._command.step.verb
        assert isinstance(verb, Leaf)
        return await verb.perform(self)

    @property
    def path(self) -> str:
        return self._command.path

    @property
    def workflow(self) -> WorkflowContext:
        assert self._command.view is not None  # the verb is ``viewed``
        return self._performer.contexts.of(self._command.view)

    async def act(self, action: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What the step's own action returns.

        Raises:
            OutputChanged: it changed an earlier output in place. BaseException: what it raised.
        """
        watch, verb = self._performer.in_place, self._command.step.verb
        inline = self._command.step.modifiers.inline
        before = watch.before(verb) if watch is not None and isinstance(verb, PythonCall) else []
        if not before or watch is None:
            return await call(action, args, kwargs, inline=inline, current=self._current)
        try:
            value = await call(action, args, kwargs, inline=inline, current=self._current)
        except Exception as raised:
            error = watch.changed(self.path, before)
            if error is not None:
                raise error from raised
            raise
        error = watch.changed(self.path, before)
        if error is not None:
            raise error
        return value

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return await call(function, args, {}, inline=False, current=self._current)

    async def run(  # as the verbs have it
        self,
        argv: Any,
        sandbox: Boundary = None,
        inherit_env: InheritEnv | None = None,
        *,
        cwd: Any = None,
        env: Any = None,
        stdin: Any = None,
    ) -> CommandResult[Any]:
        from handrail.system.run import run_process

        command, performer = self._command, self._performer
        tree, path, marker = command.tree, command.path, performer.marker(command)
        if tree is not None:  # inside the step's worktree
            cwd = tree.inside(os.getcwd() if cwd is None else os.fspath(cwd))  # noqa: PTH109  # as it is
        run = partial(
            run_process,
            argv,
            cwd=cwd,
            env=env,
            stdin=stdin,
            marker=marker,
            on_output=lambda stream, text: performer.emit_notice(ev.StepOutput(path, stream, text)),
        )
        chosen = chosen_sandbox(sandbox, performer.sandbox())
        if chosen is None and inherit_env is None:
            done = await run()
        else:
            from handrail.sandbox.environment import inherited
            from handrail.sandbox.mounts import Scene
            from handrail.workspace import sandboxed

            around = inherited(inherit_env, chosen, "all")
            folder, own = Path(os.getcwd(), cwd or ""), sandboxed.own_branch_of(tree)  # noqa: PTH109  # as it is
            scene = Scene(folder, own=own, hidden=performer.hidden)
            async with sandboxed.within_sandbox(
                chosen, scene, path, performer.emit_notice, f"{marker}/git"
            ) as boundary:
                done = await run(around=around, boundary=boundary)
        return CommandResult(done.exit_code, done.stdout, done.stderr)

    async def built(self, context: Context) -> Mapping[str, Any]:
        return await built_context(context, self.workflow)

    async def launch(
        self,
        agent: Any,
        context: Context,
        settings: AgentSettings = NO_SETTINGS,
        *,
        claims: bool = False,
    ) -> AgentResult[Any]:
        own = self._claims_of(self.path) if claims and self._claims_of is not None else None
        result = await self._launched(agent, context, settings, own)
        if settings.check is None:
            return result
        return await self._judged(result, agent, settings.check)

    async def _launched(
        self, agent: Any, context: Context, settings: AgentSettings, claims: LaunchClaims | None
    ) -> AgentResult[Any]:
        """The result of one launch of an agent, which nobody has judged yet."""
        performer, command = self._performer, self._command
        contexts, clock, launch = performer.contexts, performer.clock, command.launch
        workflow, path = self.workflow, command.path
        chosen = performer.agents.replacement_for(agent)
        report = _LaunchReport(launch, performer.elapsed())
        if launch.session is not None and launch.session_usage is None:
            launch = replace(launch, session_usage=performer.total_of(launch.session))
        if settings.session is not None:
            settings = attrs.evolve(
                settings,
                lent=settings.lent or settings.session in performer.recorded().lent_sessions,
                session_usage=performer.total_of(settings.session) or settings.session_usage,
            )

        def on_notice(notice: Notice) -> None:
            report.take(notice)
            performer.emit_notice(notice)

        uncalled = getattr(chosen, "ended_uncalled", None) or (lambda *_: None)
        try:
            given = await built_context(context, workflow)
        except Exception as error:
            uncalled(path, error)
            raise
        request = AgentRequest(
            contexts.run_id,
            path,
            command.attempt,
            given,
            workflow,
            idempotency_key(contexts.run_id, path),
            self._current.interrupted,
            on_notice,
            clock.sleep,
            launch,
            settings,
            performer.defaults(),
            clock.now,
            contexts.mark,
            getattr(agent, "output", Any),
            tree=command.tree,
            claims=claims,
            hidden=performer.hidden,
        )
        if chosen is not agent and hasattr(agent, "prompt_for"):
            try:
                request = replace(request, prompt=await agent.prompt_for(request))
            except Exception as error:
                uncalled(path, error)
                raise
        try:
            result: AgentResult[Any] = await chosen.run(request)
        except AgentError:
            raise
        except BaseException:
            performer.broken_off[path] = report.broken_off(performer.elapsed())
            raise
        if not isinstance(result, AgentResult):
            raise WrongUse(
                f"agent {chosen.name!r}: run() must return an AgentResult, got {result!r}"
            )
        if result.session is not None and result.session_usage is not None:
            performer.session_totals[result.session] = result.session_usage
        return result

    async def _judged(self, result: AgentResult[Any], agent: Any, check: Any) -> AgentResult[Any]:
        """The result, if the step's check accepts it; its judge works unseen, in the same step."""
        from handrail.steps.judging import judged, own

        launch = self._command.launch
        if not is_agent(check):
            verdict = await self.call(check, result.output)
            return judged(agent.name, result, launch, verdict, None)
        unseen = replace(
            self,
            _performer=replace(self._performer, emit_notice=lambda _: None),
            _command=msgspec.structs.replace(self._command, launch=Launch()),
        )
        try:
            problem = await unseen.launch(check, {"answer": result.output})
        except AgentError as error:
            why = f"its check gave no verdict: {error}"
            used = add_usage(own(result, launch), error.usage)
            kind = error.kind if error.not_ready else None
            raise AgentError(agent.name, why, kind=kind, usage=used) from error
        return judged(agent.name, result, launch, problem.output, problem.usage)

    async def worktree(
        self, action: TreeAction, owner: str, base: str | None, merge: Any, tree: OwnTree | None
    ) -> OwnTree | bool | None:
        from handrail.workspace.worktree import OwnTrees

        performer, command = self._performer, self._command
        trees = OwnTrees(performer.contexts.run_id, owner, f"{performer.marker(command)}/git")
        if action == "make":
            return await trees.make(Path(self._current.cwd), base)
        assert tree is not None  # it was made
        if action == "merge":
            assert self._claims_of is not None
            await trees.merge(tree, merge, self._claims_of(self.path), self.call)
        elif action == "remove":
            await trees.remove(tree)
        else:
            return await trees.leave(tree)
        return None


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


# -- how attempts end ------------------------------------------------------------------------------


def raised_event(command: Perform, error: BaseException) -> ev.AttemptFailed:
    """The event of an attempt that raised, while the exception is alive; see ``failure_event``."""
    if isinstance(error, ActionRaised):
        return failure_event(command, error.error)
    if isinstance(error, NotParsed):
        return failure_event(command, error.error, output=error.result)
    return failure_event(command, error)


class Replacements:
    """The agents of ``Executor(agents=)`` in one drive. Mutable: it notes which are used."""

    def __init__(self, agents: Mapping[str, Any]) -> None:
        self._agents = agents
        self._used: set[str] = set()
        self._launched: set[str] = set()

    def replacement_for(self, agent: Any) -> Any:
        """The agent to launch: the replacement of that name, else the agent itself."""
        name: str = agent.name
        replaced = name in self._agents
        (self._used if replaced else self._launched).add(name)
        return self._agents[name] if replaced else agent

    def warning_text(self) -> str:
        """A warning of names that no step used, or nothing.

        Unused names alone are no reason to warn, for a run need not reach every step. It warns only
        if an agent was launched without a replacement, too.
        """
        unused = [name for name in self._agents if name not in self._used]
        if not unused or not self._launched:
            return ""
        import difflib

        launched = sorted(self._launched)
        near = {name: difflib.get_close_matches(name, launched, n=1) for name in unused}
        text = ", ".join(
            f"{name!r} (did you mean {near[name][0]!r}?)" if near[name] else repr(name)
            for name in unused
        )
        return (
            f"agents= has names that no step of this run used: {text}. "
            f"Launched as they are: {', '.join(map(repr, launched))}."
        )

    def warn_of_unused(self, run_id: str) -> None:
        """Log that warning, if there is one."""
        notice = self.warning_text()
        if notice:
            warn("agents not replaced", run_id=run_id, notice=notice)
