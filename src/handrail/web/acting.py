"""Actions on a run from the page: each verb, the body that it takes, and errors as responses.

Messages go through the journal's inbox, as from any process. So they reach a run that another
process drives, or that none does now. If several people act at once, the journal decides who was
first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from handrail.errors import (
    DefinitionError,
    GateClosed,
    GateNotFound,
    HandrailError,
    InvalidAnswer,
    InvalidInput,
    InvalidSignal,
    JournalFailed,
    NotRecorded,
    RunNotFound,
    WorkflowNotFound,
    WrongUse,
)
from handrail.executor import Executor
from handrail.model import events as ev
from handrail.model.work import Task
from handrail.ports.journal import Journal, Letter, RunInfo, when_free
from handrail.static.source import Source
from handrail.typed.jsonsafe import Json, json_safe


class _Body(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What is posted with a verb."""


class AnswerBody(_Body, frozen=True):
    """An answer to the question at a path."""

    path: str
    answer: Any


class SignalBody(_Body, frozen=True):
    """A signal by its name, with its payload."""

    name: str
    payload: Any = None


class CancelBody(_Body, frozen=True):
    """Why a run is cancelled."""

    reason: str = ""


class ForkBody(_Body, frozen=True):
    """The changes to make in a fork, as ``Executor.fork`` takes them, and the fork's ``run_id``."""

    at: str | None = None
    outputs: dict[str, Any] | None = None
    inputs: dict[str, Any] | None = None
    rerun: list[str] = []
    rerun_failed: bool | str = False
    run_id: str | None = None


class ResumeBody(_Body, frozen=True):
    """What a resume keeps or runs again, as ``Executor.resume`` takes it."""

    reuse: list[str] = []
    rerun: list[str] = []
    rerun_failed: bool | str = False

    @property
    def words(self) -> list[str]:
        """The same as options of ``handrail resume``."""
        failed = self.rerun_failed
        named = [f"--rerun-failed={failed}"] if isinstance(failed, str) else ["--rerun-failed"]
        given = (("--reuse", self.reuse), ("--rerun", self.rerun))
        return [f"{option}={path}" for option, paths in given for path in paths] + named * bool(
            failed
        )


class NoBody(_Body, frozen=True):
    """Nothing."""


class StepBody(_Body, frozen=True):
    """The path of a step."""

    path: str


class GuideBody(_Body, frozen=True):
    """Guidance for the agent of the step at ``path``, or without a path for all running agents."""

    text: str
    path: str | None = None


class CompleteBody(_Body, frozen=True):
    """The path of a step, and the output that it ends with."""

    path: str
    output: Any


class AddedTask(_Body, frozen=True):
    """A task for a queue, as ``Task`` takes it."""

    id: str
    payload: Any = None
    priority: float = 0.0


class WorkBody(_Body, frozen=True):
    """Changes to the queue of a ``work`` step, as ``Executor.edit_work`` takes them."""

    path: str | None = None
    add: list[AddedTask] = []
    drop: list[str] = []
    priority: dict[str, float] = {}


class PageError(Exception):
    """An error that the page turns into a response; users of the library never see it."""


class NotAllowed(PageError):
    """The page does not allow what a request asks for."""

    def __init__(self, text: str) -> None:
        super().__init__(text)


class BadRequest(PageError, ValueError):
    """The page does not take what a request sends."""

    def __init__(self, text: str) -> None:
        super().__init__(text)


class RunIsOver(PageError):
    """A run has ended, and takes nothing more."""

    def __init__(self, run_id: str, status: str) -> None:
        super().__init__(run_id, status)
        self.run_id = run_id
        self.status = status

    def __str__(self) -> str:
        return f"run {self.run_id!r} is over: it {_ENDED.get(self.status, self.status)}"


_ENDED = {"succeeded": "succeeded", "failed": "failed", "cancelled": "was cancelled"}


# -- refusals --------------------------------------------------------------------------------------

_STATUSES: tuple[tuple[type[BaseException], int], ...] = (
    (NotAllowed, 403),
    (RunNotFound, 404),
    (GateNotFound, 404),
    (NotRecorded, 404),
    (GateClosed, 409),
    (BadRequest, 400),
    (InvalidAnswer, 400),
    (InvalidSignal, 400),
    (InvalidInput, 400),
    (WrongUse, 400),
    (DefinitionError, 400),
    (JournalFailed, 503),
    (HandrailError, 409),
    (RunIsOver, 409),
)


def problem_of(error: Exception) -> tuple[int, dict[str, Json]]:
    """The response to an error: an HTTP status; the error's text, class and fields."""
    status = next(code for kind, code in _STATUSES if isinstance(error, kind))
    known = {name: json_safe(value) for name, value in vars(error).items() if name[0] != "_"}
    return status, {**known, "error": str(error), "type": type(error).__name__}


def body_of(verb: str, raw: bytes) -> _Body:
    """The parsed body of a verb.

    Raises:
        BadRequest: the verb takes another body.
    """
    try:
        return msgspec.json.decode(raw or b"{}", type=VERBS[verb].body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"{verb}: {error}") from None
    except RecursionError:
        raise BadRequest(f"{verb}: it is nested too deeply") from None


# -- verbs -----------------------------------------------------------------------------------------

_Told: TypeAlias = dict[str, Json] | None
"""What a verb adds to its response."""


@dataclass
class Acting:
    """Acts on the runs of one journal for the page. Mutable: it keeps the drives that it started.

    ``executor`` drives resumed runs, and has their workflows; without it and ``resume_elsewhere``
    the page only posts messages. ``load_executor`` returns an executor that has the workflow of a
    run, or raises. ``resume_elsewhere`` resumes a run in another process. ``find_source`` finds the
    source of a run's workflow without importing it.
    """

    journal: Journal
    executor: Executor | None = None
    load_executor: Callable[[RunInfo], Executor] | None = None
    resume_elsewhere: Callable[[RunInfo, Sequence[str]], object] | None = None
    find_source: Callable[[RunInfo], Source | None] | None = None
    _posting: Executor = field(init=False)
    _at_work: set[object] = field(default_factory=set[object], init=False)

    def __post_init__(self) -> None:
        self._posting = self.executor or Executor(journal=self.journal)

    @property
    def can_drive(self) -> bool:
        """True if a run that no process drives can be resumed from the page."""
        return self.resume_elsewhere is not None or bool(self.executor and self.executor.workflows)

    async def do(self, info: RunInfo, verb: str, body: _Body, by: str | None) -> dict[str, Json]:
        """Carry out a verb on a run, as ``by``; the data of the response.

        Raises:
            HandrailError, RunIsOver: the verb is refused, and nothing was done.
        """
        found = await VERBS[verb].do(self, info, body, by)
        return {"ok": True, "driven": info.holder is not None, **(found or {})}

    async def diff(self, a: str, b: str) -> dict[str, Json]:
        """The comparison of two runs of the journal."""
        return (await self._posting.diff(a, b)).to_dict()

    async def answer(self, info: RunInfo, body: AnswerBody, by: str | None) -> dict[str, Json]:
        """Answer a gate."""
        value = await self._executor_for(info).answer(info.run_id, body.path, body.answer, by=by)
        return {"answer": json_safe(value), "by": by}

    async def signal(self, info: RunInfo, body: SignalBody, by: str | None) -> None:
        """Send a signal."""
        if info.status == "succeeded" and info.holder is None:
            raise RunIsOver(info.run_id, "succeeded")
        await self._executor_for(info).signal(info.run_id, body.name, body.payload, by=by)

    async def cancel(self, info: RunInfo, body: CancelBody, by: str | None) -> None:
        """Cancel a run; if no process drives it, drive it to unwind where that is possible."""
        if info.holder is None and info.status in {"succeeded", "cancelled"}:
            raise RunIsOver(info.run_id, info.status)
        reason = f"cancelled by {by}" if by else "cancelled"
        if body.reason:
            reason = f"{body.reason} ({reason})" if by else body.reason
        executor = self._own_executor(info)
        if executor is not None and (info.holder is not None or self.resume_elsewhere is None):
            self._start(executor.cancel(info.run_id, reason))
            return
        if info.holder is None and info.status == "failed":
            raise RunIsOver(info.run_id, info.status)
        event = ev.stamp(ev.CancelRequested(reason), info.run_id, 0, self._now())
        await when_free(self.journal)(lambda: self.journal.post(Letter(event)))
        if info.holder is None and self.resume_elsewhere is not None:
            self.resume_elsewhere(info, ())

    async def pause(self, info: RunInfo, body: NoBody, by: str | None) -> None:
        """Let no step of a run begin."""
        del body
        await self._posting.pause(info.run_id, by=by)

    async def unpause(self, info: RunInfo, body: NoBody, by: str | None) -> _Told:
        """Unpause a run; if no process drives it, resume it where that is possible."""
        del body
        await self._posting.unpause(info.run_id, by=by)
        if info.holder is None and self.can_drive:
            return await self.resume(info, ResumeBody(), by)
        return None

    async def stop(self, info: RunInfo, body: NoBody, by: str | None) -> None:
        """End the drive of a run."""
        del body
        await self._posting.stop(info.run_id, by=by)

    async def guide(self, info: RunInfo, body: GuideBody, by: str | None) -> None:
        """Give guidance to the agents at work."""
        await self._executor_for(info).guide(info.run_id, body.text, path=body.path, by=by)

    async def complete(self, info: RunInfo, body: CompleteBody, by: str | None) -> None:
        """End a step with an output."""
        await self._executor_for(info).complete(info.run_id, body.path, body.output, by=by)

    async def skip(self, info: RunInfo, body: StepBody, by: str | None) -> None:
        """End a step with its default."""
        await self._executor_for(info).skip(info.run_id, body.path, by=by)

    async def retry(self, info: RunInfo, body: StepBody, by: str | None) -> None:
        """Begin a step again."""
        await self._executor_for(info).retry(info.run_id, body.path, by=by)

    async def work(self, info: RunInfo, body: WorkBody, by: str | None) -> None:
        """Change the queue of a step."""
        await self._executor_for(info).edit_work(
            info.run_id,
            body.path,
            add=[Task(one.id, one.payload, one.priority) for one in body.add],
            drop=body.drop,
            priority=body.priority,
            by=by,
        )

    async def resume(self, info: RunInfo, body: ResumeBody, by: str | None) -> dict[str, Json]:
        """Resume a run that no process drives."""
        del by
        if info.holder is not None:
            raise WrongUse(f"run {info.run_id!r} is already running in process {info.holder.pid}")
        if info.status == "succeeded" and not (body.rerun or body.rerun_failed):
            raise RunIsOver(info.run_id, "succeeded")
        executor = self._own_executor(info)
        if self.resume_elsewhere is not None:
            self.resume_elsewhere(info, body.words)
        elif executor is not None:
            resumed = executor.resume(
                info.run_id, reuse=body.reuse, rerun=body.rerun, rerun_failed=body.rerun_failed
            )
            self._start(resumed)
        else:
            raise WorkflowNotFound(info.workflow_name, ())
        return {"driven": True}

    async def plan(self, info: RunInfo, body: ResumeBody, by: str | None) -> dict[str, Json]:
        """Tell what a resume with this body would do."""
        del by
        found = await self._executor_for(info).plan(
            info.run_id, reuse=body.reuse, rerun=body.rerun, rerun_failed=body.rerun_failed
        )
        return {"plan": json_safe(found.to_dict())}

    async def fork(self, info: RunInfo, body: ForkBody, by: str | None) -> dict[str, Json]:
        """Fork a run."""
        del by
        executor = self._posting
        if (
            (body.inputs or body.outputs)
            and self._own_executor(info) is None
            and self.load_executor
        ):
            executor = self.load_executor(info)
        fork_id = await executor.fork(
            info.run_id,
            at=body.at,
            outputs=body.outputs,
            inputs=body.inputs,
            rerun=body.rerun,
            rerun_failed=body.rerun_failed,
            fork_id=body.run_id,
        )
        return {"run_id": fork_id, "driven": False}

    def code_of(self, info: RunInfo) -> Callable[..., Any] | Source | None:
        """The function of a run's workflow, or its source; None if neither is known.

        Nothing is imported for it: whoever opens the page asks.
        """
        executor = self._own_executor(info)
        for one in () if executor is None else executor.workflows:
            if one.definition.name == info.workflow_name:
                return one.definition.function
        with contextlib.suppress(HandrailError):
            return None if self.find_source is None else self.find_source(info)
        return None

    def _own_executor(self, info: RunInfo) -> Executor | None:
        """The executor, if it knows the workflow of the run."""
        known = () if self.executor is None else self.executor.workflows
        names = {one.definition.name for one in known}
        return self.executor if info.workflow_name in names else None

    def _executor_for(self, info: RunInfo) -> Executor:
        """The executor that posts a message, with the run's code, for the message's classes."""
        if self.load_executor is not None and self._own_executor(info) is None:
            return self.load_executor(info)
        return self._posting

    def _now(self) -> float:
        return self._posting.parts.clock.now()

    def _start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run the coroutine in the background; its outcome is in the record of the run."""
        import asyncio

        task = asyncio.get_running_loop().create_task(_log_errors_of(work))
        self._at_work.add(task)
        task.add_done_callback(self._at_work.discard)


async def _log_errors_of(work: Awaitable[Any]) -> None:
    import structlog

    try:
        await work
    except HandrailError as error:  # such as RunLocked: another process was first
        structlog.get_logger("handrail").warning("a run could not be resumed", error=str(error))


_Do = Callable[[Acting, RunInfo, Any, "str | None"], Awaitable[_Told]]


@dataclass(frozen=True, slots=True)
class Verb:
    """One action on a run: the class of its body, the method that does it, and a summary."""

    body: type[_Body]
    do: _Do
    summary: str


VERBS: Mapping[str, Verb] = {
    "answer": Verb(AnswerBody, Acting.answer, "Answer a question that the run waits for."),
    "signal": Verb(SignalBody, Acting.signal, "Send a signal; it is kept until a step takes it."),
    "pause": Verb(NoBody, Acting.pause, "Start no new step; running steps finish."),
    "unpause": Verb(NoBody, Acting.unpause, "Let a paused run start steps again."),
    "guide": Verb(GuideBody, Acting.guide, "Send guidance to running agents."),
    "complete": Verb(CompleteBody, Acting.complete, "End a step with a given output."),
    "skip": Verb(StepBody, Acting.skip, "End a step with its default, or as skipped."),
    "retry": Verb(StepBody, Acting.retry, "Stop a step's attempt and start it again."),
    "work": Verb(WorkBody, Acting.work, "Add, drop or reprioritise tasks of a queue."),
    "stop": Verb(NoBody, Acting.stop, "Suspend the run; it can be resumed."),
    "cancel": Verb(CancelBody, Acting.cancel, "Cancel the run and roll it back."),
    "resume": Verb(ResumeBody, Acting.resume, "Resume a run that no process is running."),
    "plan": Verb(ResumeBody, Acting.plan, "Say what a resume with this body would do."),
    "fork": Verb(ForkBody, Acting.fork, "Make a new run from the record of this one."),
}
