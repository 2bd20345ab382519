"""Runs workflows, given every port."""

from __future__ import annotations

import copy
import inspect
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, cast

import anyio
import attrs

from handrail.core.admission import Admission
from handrail.core.answers import accepted
from handrail.core.behaviours import behaviours
from handrail.core.machine import Machine, Setting
from handrail.core.replay import Recorded
from handrail.core.report import children_of, tree_order, workflow_result
from handrail.core.supersede import expanded, superseded
from handrail.engine.bus import bus_for
from handrail.engine.contexts import Contexts
from handrail.engine.driver import Driver, Wiring
from handrail.engine.evaluate import Evaluator
from handrail.engine.perform import Performer
from handrail.engine.run import Run
from handrail.errors import (
    DefinitionError,
    GateClosed,
    GateNotFound,
    InsideEventLoop,
    RunIdTaken,
    RunNotFound,
    WorkflowNotFound,
    WrongUse,
)
from handrail.model import events as ev
from handrail.model.definition import WorkflowDefinition
from handrail.model.policy import Limits, Secrets
from handrail.model.results import OpenGate, WorkflowResult
from handrail.model.shapes import WorkflowLike
from handrail.ports.clock import Clock
from handrail.ports.journal import Journal
from handrail.ports.sink import Sink

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

GATE_POLICIES = ("approve", "default", "fail")


@attrs.frozen
class Parts:
    """Everything an engine is made of."""

    journal: Journal
    clock: Clock
    sinks: tuple[Sink, ...] = ()
    agents: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    stages: Callable[[], Mapping[str, Any]] = dict
    services: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    config: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    workflows: tuple[WorkflowLike[..., Any], ...] = ()
    limits: Limits = Limits()
    gates: Any = None
    linger_s: float = 0.0
    suspend_timers_after_s: float | None = None
    cleanup_timeout_s: float = 30.0
    max_crashes: int = 5
    secrets: Secrets = Secrets()
    durable: bool = False


@attrs.frozen
class Options:
    """What ``executor.options`` sets for the runs that follow."""

    run_id: str | None = None
    labels: Mapping[str, str] = attrs.field(factory=dict[str, str])


@attrs.frozen
class _Start:
    """Where a drive begins: with nothing, or after what is recorded (``seq`` events)."""

    definition: WorkflowDefinition
    run_id: str
    inputs: dict[str, Any]
    first: ev.Event
    recorded: Recorded | None = None
    seq: int = 0


class Engine:
    """Runs, resumes and reaches runs. Mutable only in which runs are live in this process."""

    def __init__(self, parts: Parts) -> None:
        check_parts(parts)
        self._parts = parts
        self._options = Options()
        self._live: dict[str, Driver] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._parts.journal.close()

    def options(
        self, *, run_id: str | None = None, labels: Mapping[str, str] | None = None
    ) -> Self:
        """The same executor, whose next run has this id and these labels."""
        changed = copy.copy(self)
        changed._options = Options(run_id, dict(labels or {}))  # noqa: SLF001  # a copy of our own
        return changed

    # -- running --------------------------------------------------------------------------------

    async def run(
        self, workflow: WorkflowLike[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> WorkflowResult[R]:
        """Run a workflow to its end, or until it waits for somebody.

        Raises:
            TypeError: the arguments do not fit the workflow's signature.
        """
        prepared = self._prepare(workflow, args, kwargs)
        return await self._drive(*prepared, None)

    def run_sync(
        self, workflow: WorkflowLike[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> WorkflowResult[R]:
        """``run`` for callers without an event loop.

        Raises:
            InsideEventLoop: there is one in this thread; the text says what to write instead.
        """
        prepared = self._prepare(workflow, args, kwargs)
        return self._sync("run_sync()", "await executor.run(...)", self._drive, *prepared, None)

    def stream(self, workflow: WorkflowLike[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """The run as an async context manager that gives its events; see ``Run``."""
        prepared = self._prepare(workflow, args, kwargs)

        async def drive(run: Run[Any]) -> WorkflowResult[Any]:
            return await self._drive(*prepared, run)

        return Run(prepared[1], drive)

    def _prepare(
        self, workflow: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[WorkflowDefinition, str, dict[str, Any]]:
        definition = definition_of(workflow)
        inputs = definition.bind(args, kwargs)
        run_id = self._options.run_id
        if run_id is None:
            return definition, new_run_id(definition.name), inputs
        if self._parts.journal.events(run_id):
            raise RunIdTaken(run_id)
        return definition, run_id, inputs

    async def _drive(
        self,
        definition: WorkflowDefinition,
        run_id: str,
        inputs: dict[str, Any],
        run: Run[Any] | None,
    ) -> WorkflowResult[Any]:
        first = ev.WorkflowStarted(definition.name, inputs, self._options.labels)
        return await self._drive_from(_Start(definition, run_id, inputs, first), run)

    async def _drive_from(self, start: _Start, run: Run[Any] | None) -> WorkflowResult[Any]:
        parts, run_id = self._parts, start.run_id
        setting = Setting(run_id, parts.limits, parts.cleanup_timeout_s, start.recorded)
        machine = Machine(start.definition, start.inputs, setting, behaviours())
        sinks = parts.sinks if run is None else (*parts.sinks, run.queue)
        contexts = Contexts(run_id, parts.services, parts.config)
        bus = bus_for(run_id, sinks)
        teller = _Teller()
        wiring = Wiring(
            parts.journal,
            bus,
            parts.clock,
            Performer(contexts, parts.agents, parts.clock, teller),
            Evaluator(contexts, parts.stages, parts.gates),
            Admission(parts.limits),
            parts.gates is not None,
            parts.linger_s,
            parts.suspend_timers_after_s,
        )
        driver = Driver(machine, wiring, start.seq)
        teller.tell = driver.tell
        if run is not None:
            run.attach(driver)
        self._live[run_id] = driver
        try:
            return await driver.drive(start.first)
        finally:
            del self._live[run_id]

    # -- resuming -------------------------------------------------------------------------------

    async def resume(
        self,
        run_id: str,
        workflow: WorkflowLike[..., Any] | None = None,
        *,
        reuse: Sequence[str] = (),
        rerun: Sequence[str] = (),
    ) -> WorkflowResult[Any]:
        """Go on with a run that was interrupted, suspended, failed or cancelled.

        Recorded steps are not performed again; ``rerun`` names paths that are. A run that
        succeeded gives its recorded result.

        Raises:
            RunNotFound: the journal has no such run. WorkflowNotFound: nobody knows its workflow.
        """
        history = list(self._parts.journal.events(run_id))
        started = self._started(run_id, history)
        definition = self._workflow_of(started, workflow)
        last = history[-1]
        if isinstance(last, ev.WorkflowCompleted) and last.status == "succeeded" and not rerun:
            return recorded_result(run_id, definition.name, history, last)
        dropped = tuple(sorted({*superseded(history), *expanded((), rerun, history)}))
        first = ev.RunResumed(dropped, tuple(reuse), tuple(rerun))
        recorded = Recorded(history, dropped)
        inputs = dict(recorded.inputs)
        start = _Start(definition, run_id, inputs, first, recorded, len(history))
        return await self._drive_from(start, None)

    def resume_sync(
        self,
        run_id: str,
        workflow: WorkflowLike[..., Any] | None = None,
        *,
        reuse: Sequence[str] = (),
        rerun: Sequence[str] = (),
    ) -> WorkflowResult[Any]:
        """``resume`` for callers without an event loop."""

        async def resumed() -> WorkflowResult[Any]:
            return await self.resume(run_id, workflow, reuse=reuse, rerun=rerun)

        return self._sync("resume_sync()", "await executor.resume(...)", resumed)

    def _started(self, run_id: str, history: list[ev.Event]) -> ev.WorkflowStarted:
        if not history or not isinstance(history[0], ev.WorkflowStarted):
            known = [info.run_id for info in self._parts.journal.runs()]
            raise RunNotFound(run_id, known)
        return history[0]

    def _workflow_of(
        self, started: ev.WorkflowStarted, workflow: WorkflowLike[..., Any] | None
    ) -> WorkflowDefinition:
        if workflow is not None:
            return definition_of(workflow)
        known = {one.definition.name: one.definition for one in self._parts.workflows}
        if started.workflow_name not in known:
            raise WorkflowNotFound(started.workflow_name, tuple(known))
        return known[started.workflow_name]

    # -- reaching runs --------------------------------------------------------------------------

    async def answer(self, run_id: str, gate: str, answer: Any, *, by: str | None = None) -> Any:
        """Answer a gate of a run that is live here, or suspended; the answer as converted.

        Raises:
            GateClosed: it was answered before, by whom and how. InvalidAnswer: it is no answer,
                the gate stays open. GateNotFound, RunNotFound: see those.
        """
        driver = self._live.get(run_id)
        if driver is not None:
            return driver.answer(gate, answer, by)
        history = list(self._parts.journal.events(run_id))
        self._started(run_id, history)
        value = accepted(_gate_in(run_id, history, gate), answer)
        await self._append(run_id, len(history), ev.GateAnswered(gate, value, by))
        return value

    async def signal(
        self, run_id: str, name: str, payload: Any = None, *, by: str | None = None
    ) -> None:
        """Deliver a signal to a run that is live here, or suspended; it is kept until taken."""
        driver = self._live.get(run_id)
        if driver is not None:
            driver.signal(name, payload, by)
            return
        history = self._parts.journal.events(run_id)
        self._started(run_id, list(history))
        await self._append(run_id, len(history), ev.SignalReceived(name, payload, by))

    async def cancel(
        self,
        run_id: str,
        reason: str = "cancelled",
        workflow: WorkflowLike[..., Any] | None = None,
    ) -> WorkflowResult[Any] | None:
        """Cancel a run. One that is live here is asked to unwind (None comes back at once); one
        that is suspended is resumed only to unwind, and its result comes back.
        """
        driver = self._live.get(run_id)
        if driver is not None:
            driver.cancel(reason)
            return None
        history = list(self._parts.journal.events(run_id))
        definition = self._workflow_of(self._started(run_id, history), workflow)
        if isinstance(history[-1], ev.WorkflowCompleted):
            return recorded_result(run_id, definition.name, history, history[-1])
        recorded = Recorded(history)

        async def drive(run: Run[Any]) -> WorkflowResult[Any]:
            inputs, first = dict(recorded.inputs), ev.RunResumed()
            start = _Start(definition, run_id, inputs, first, recorded, len(history))
            return await self._drive_from(start, run)

        run: Run[Any] = Run(run_id, drive)
        run.cancel(reason)
        async with run:
            async for _ in run:
                pass
        return run.result

    async def _append(self, run_id: str, count: int, event: ev.Event) -> None:
        ev.stamp(event, run_id, count + 1, self._parts.clock.now())
        pending = self._parts.journal.append(event)
        if pending is not None:
            await pending

    def answer_sync(self, run_id: str, gate: str, answer: Any, *, by: str | None = None) -> Any:
        """``answer`` for callers without an event loop."""

        async def answered() -> Any:
            return await self.answer(run_id, gate, answer, by=by)

        return self._sync("answer_sync()", "await executor.answer(...)", answered)

    def signal_sync(
        self, run_id: str, name: str, payload: Any = None, *, by: str | None = None
    ) -> None:
        """``signal`` for callers without an event loop."""

        async def signalled() -> None:
            await self.signal(run_id, name, payload, by=by)

        self._sync("signal_sync()", "await executor.signal(...)", signalled)

    def cancel_sync(
        self,
        run_id: str,
        reason: str = "cancelled",
        workflow: WorkflowLike[..., Any] | None = None,
    ) -> WorkflowResult[Any] | None:
        """``cancel`` for callers without an event loop."""

        async def cancelled() -> WorkflowResult[Any] | None:
            return await self.cancel(run_id, reason, workflow)

        return self._sync("cancel_sync()", "await executor.cancel(...)", cancelled)

    @staticmethod
    def _sync(name: str, instead: str, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        refuse_inside_loop(name, f"Write: {instead}.")
        return anyio.run(function, *args)


class _Teller:
    """Passes progress on to a driver that is made later. Mutable."""

    def __init__(self) -> None:
        self.tell: Callable[[ev.Progress], None] = lambda _: None

    def __call__(self, progress: ev.Progress) -> None:
        self.tell(progress)


def check_parts(parts: Parts) -> None:
    """Do nothing, or raise what is wrong with an executor's arguments."""
    gates = parts.gates
    if gates is not None and not callable(gates) and gates not in GATE_POLICIES:
        raise DefinitionError(
            f"gates is a callable that is given an OpenGate, or one of "
            f"{', '.join(GATE_POLICIES)}, got {gates!r}"
        )
    for sink in parts.sinks:
        if not callable(getattr(sink, "emit", None)):
            raise WrongUse(f"a sink has a method emit(event), got {sink!r}")
    for name, agent in parts.agents.items():
        if not callable(getattr(agent, "run", None)):
            raise WrongUse(f"agents[{name!r}] must be an agent, got {agent!r}")


def definition_of(workflow: Any) -> WorkflowDefinition:
    """The definition of a workflow.

    Raises:
        WrongUse: it is none; the text says what to write.
    """
    definition = getattr(workflow, "definition", None)
    if isinstance(definition, WorkflowDefinition):
        return definition
    name = getattr(workflow, "__name__", repr(workflow))
    raise WrongUse(
        f"{name} is not a workflow: decorate the generator function with @workflow, and pass the "
        f"function itself, without calling it"
    )


def new_run_id(name: str) -> str:
    """A run id for people: the workflow's name and eight random hex digits."""
    return f"{name}-{os.urandom(4).hex()}"


def recorded_result(
    run_id: str, name: str, history: Sequence[ev.Event], last: ev.WorkflowCompleted
) -> WorkflowResult[Any]:
    """The result of a run that has ended, from its record alone."""
    recorded = Recorded(history)
    tree = recorded.tree_below("")
    results = dict(recorded.ends())
    return workflow_result(
        name,
        run_id,
        last.status,
        ordered=tree_order(tree, results),
        top=children_of(tree, ""),
        duration_ms=last.duration_ms,
        completed=last,
    )


def _gate_in(run_id: str, history: Sequence[ev.Event], path: str) -> OpenGate:
    opened = {event.path: event.gate for event in history if isinstance(event, ev.GateOpened)}
    for event in history:
        if isinstance(event, ev.GateAnswered) and event.path == path:
            raise GateClosed(path, event.answer, event.by, event.at)
    if path not in opened:
        raise GateNotFound(run_id, path, tuple(opened))
    return opened[path]


def refuse_inside_loop(name: str, instead: str) -> None:
    """Raise ``InsideEventLoop`` if an event loop runs in this thread.

    Raises:
        InsideEventLoop: as said; from a workflow's body it names ``.subworkflow``.
    """
    if not _loop_runs_here():
        return
    if _in_a_body():
        instead = (
            'In a workflow\'s body write: yield from step("name").subworkflow(workflow, {...}).'
        )
    raise InsideEventLoop(name, instead)


def _loop_runs_here() -> bool:
    asyncio = cast("Any", sys.modules.get("asyncio"))
    if asyncio is not None and asyncio._get_running_loop() is not None:  # noqa: SLF001  # documented for this use
        return True
    trio = cast("Any", sys.modules.get("trio"))
    return trio is not None and bool(trio.lowlevel.in_trio_run())


def _in_a_body() -> bool:
    from handrail.model import outcome

    here = inspect.currentframe()
    while here is not None:
        if here.f_code is outcome.resume.__code__:
            return True
        here = here.f_back
    return False
