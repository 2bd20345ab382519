"""Runs workflows, given every port."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

import anyio

from handrail.core.machine import Machine
from handrail.core.run_state import RunState, StepNode
from handrail.core.setting import Setting
from handrail.engine.bus import bus_for
from handrail.engine.callbacks import Evaluator
from handrail.engine.current import Contexts
from handrail.engine.driver import Driver
from handrail.engine.inbox import post_answer, sender
from handrail.engine.journal_users import users_of
from handrail.engine.outside import run_outside, sync_twin
from handrail.engine.parts import (
    DriveStart,
    Leased,
    Parts,
    check_parts,
    check_paths,
    definition_of,
    files_of_journal,
    new_run_id,
    start_after,
)
from handrail.engine.perform import Performer, Replacements
from handrail.engine.preflight import warn_of_agents
from handrail.engine.requests import (
    Options,
    RunRequest,
    TakesOptions,
    check_new_id,
    result_given,
    with_inputs,
)
from handrail.errors import (
    HandrailError,
    InvalidInput,
    JournalDamaged,
    JournalFailed,
    ReplayMismatch,
    RunIdTaken,
    RunLocked,
    RunNotFound,
)
from handrail.later import later
from handrail.model import events as ev
from handrail.model.definition import WorkflowDefinition
from handrail.model.results import OpenGate, StepResult, WorkflowResult
from handrail.model.shapes import WorkflowLike
from handrail.ports.journal import Journal, Lease, Letter, Message, when_free
from handrail.record.run_record import Recorded
from handrail.secrets.values import SecretValues, secret_values
from handrail.steps.verbs import Step

if TYPE_CHECKING:
    from handrail.engine import rehearsal_io, step_names
    from handrail.engine import stream as streaming
    from handrail.engine.stream import Run
    from handrail.model.history import RunDiff
    from handrail.model.plan import Plan, PlannedStep
    from handrail.record import answers, reading
    from handrail.record import inbox as messages
else:
    later(
        globals(),
        "engine.rehearsal_io engine.step_names engine.stream:streaming record.answers "
        "record.inbox:messages record.reading",
    )


P = ParamSpec("P")
R = TypeVar("R")


class Engine(TakesOptions):
    """Begins and resumes runs, and sends them messages."""

    def __init__(self, parts: Parts) -> None:
        check_parts(parts)
        self._parts = parts
        self._journal = parts.journal
        if parts.durable and not parts.journal.durable:
            from handrail.engine.checking import CheckingJournal

            self._journal = CheckingJournal(parts.journal)
        self._listed = {flow.definition.name: flow.definition for flow in parts.workflows}
        self._known = dict(self._listed)
        """The workflows of runs, by name: those listed, and those that were given since to begin or
        resume a run, for calls that take no workflow. Copies share it."""
        self._users = users_of(parts.journal)
        self._when_free = when_free(self._journal)

    @property
    def parts(self) -> Parts:
        """The ports and settings that it was made with."""
        return self._parts

    @property
    def journal(self) -> Journal:
        """Where its runs are recorded."""
        return self._parts.journal

    @property
    def workflows(self) -> tuple[WorkflowLike[..., Any], ...]:
        """The workflows that it finds by name."""
        return self._parts.workflows

    async def __aenter__(self) -> Self:
        self._users.register()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._users.release()

    # -- running --------------------------------------------------------------------------------

    async def run(
        self, workflow: WorkflowLike[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> WorkflowResult[R]:
        """Run a workflow until it ends or is suspended.

        Raises:
            TypeError: the arguments do not fit the workflow's signature.
            InvalidInput: an argument is not of the type that its parameter declares.
            RunIdTaken, InputsDiffer: see ``options``.
            WrongUse: another workflow of its name is among ``workflows``.
            DefinitionError: a backend cannot honour a step's options; nothing was run.
        """
        return await self._begin(self._prepare(workflow, args, kwargs), None)

    def run_sync(
        self, workflow: WorkflowLike[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> WorkflowResult[R]:
        """``run`` for callers without an event loop.

        Raises:
            InsideEventLoop: there is one in this thread; the text says what to write instead.
        """
        request = self._prepare(workflow, args, kwargs)
        return run_outside("run_sync()", "await executor.run(...)", self._begin, request, None)

    def stream(
        self, workflow: WorkflowLike[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> streaming.Run[R]:
        """The run as an async context manager that gives its events; see ``Run``."""
        request = self._prepare(workflow, args, kwargs)

        async def drive(run: streaming.Run[Any]) -> WorkflowResult[Any]:
            return await self._begin(request, run)

        return streaming.Run(request.run_id, drive)

    def _prepare(
        self,
        workflow: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        options: Options | None = None,
    ) -> RunRequest:
        options, known = options or self._options, self._parts.workflows
        try:
            request = RunRequest.of(workflow, args, kwargs, options, known)
        except (InvalidInput, TypeError) as error:  # only the caller's own line is of interest
            raise error.with_traceback(None) from None
        definition, run_id, events = request.definition, request.run_id, self._journal.events
        is_named = bool(run_id)
        run_id = run_id or new_run_id(definition.name, self._parts.clock.now(), events)
        warn_of_agents(definition, self._parts, run_id)
        if self._parts.portable:
            from handrail.engine.preflight import refuse_unportable

            refuse_unportable(definition)
        if is_named and options.existing == "refuse" and events(run_id):
            raise RunIdTaken(run_id)
        self._known[definition.name] = definition
        return replace(request, run_id=run_id)

    async def _begin(
        self,
        request: RunRequest,
        run: Run[Any] | None,
        on_accepted: Callable[[], None] = lambda: None,
    ) -> WorkflowResult[Any]:
        """Drive the run of a request; ``on_accepted`` is called when nothing refuses it."""
        definition, run_id, options = request.definition, request.run_id, request.options
        async with self._leased(run_id) as leased:
            if options.run_id is not None and await self._is_recorded(run_id):
                if options.existing == "refuse":
                    raise RunIdTaken(run_id)  # taken since the call, by another process
                return await self._go_on(request, leased, run, on_accepted)
            on_accepted()
            first = ev.WorkflowStarted(definition.name, request.inputs, options.labels)
            return await self._drive_from(
                DriveStart(definition, run_id, request.inputs, first), run
            )

    async def _go_on(
        self,
        request: RunRequest,
        leased: Leased,
        run: Run[Any] | None,
        on_accepted: Callable[[], None],
    ) -> WorkflowResult[Any]:
        """The recorded result of a run that has ended; else the result of resuming it."""
        definition, run_id = request.definition, request.run_id
        self._sender(run_id)
        history = await self._history(run_id, leased.secrets)
        request.refuse_other(history, self._journal.codec)
        on_accepted()
        if reading.ended(history) is not None:
            return await self._recorded_result(definition, history)
        return await self._resume_from(history, definition, (), (), leased, run)

    @contextlib.asynccontextmanager
    async def _leased(self, run_id: str) -> AsyncGenerator[Leased]:
        """Hold the run's lease: while it lasts, only this engine drives the run.

        Raises:
            RunLocked: another driver has it.
        """
        leased = Leased(self._secrets(), self._parts.clock.now())
        with self._users.using():
            held: list[Lease] = []

            def acquire() -> None:
                held.append(self._journal.acquire(run_id, secrets=leased.secrets))

            try:
                await self._when_free(acquire)
                yield leased
            finally:
                for lease in held:
                    with anyio.CancelScope(shield=True), contextlib.suppress(JournalFailed):
                        await self._when_free(lease.release)  # or the journal does it later

    async def _is_recorded(self, run_id: str) -> bool:
        return bool(await self._users.read(partial(self._journal.events, run_id), run_id))

    async def _history(
        self, run_id: str, secrets: Mapping[str, str] | None = None
    ) -> list[ev.Event]:
        """All events of a run, read beside the event loop; see ``history_of``."""
        secrets = self._secrets() if secrets is None else secrets
        return await self._users.read(
            partial(reading.history_of, self._journal, run_id, secrets), run_id
        )

    async def _recorded_result(
        self, definition: WorkflowDefinition, history: Sequence[ev.Event]
    ) -> WorkflowResult[Any]:
        run_id, codec = history[0].run_id, self._journal.codec
        result = partial(reading.recorded_result, run_id, definition, history, codec)
        return await self._users.read(result, run_id)

    def _secrets(self) -> SecretValues:
        return secret_values(self._parts.secrets, os.environ)

    async def _drive_from(self, start: DriveStart, run: Run[Any] | None) -> WorkflowResult[Any]:
        parts, run_id = self._parts, start.run_id
        machine = self._machine(start)
        sinks = parts.sinks if run is None else (*parts.sinks, run.queue)
        contexts = self._contexts(run_id, start.definition)
        bus = bus_for(run_id, sinks, self._secrets())
        agents = Replacements(parts.agents)
        codec = machine.run.codec
        portable_format = None
        if parts.portable:
            from handrail.engine.portable import PortableFormat

            function = start.definition.function
            portable_format = PortableFormat(self._journal.codec, function.__module__)
        in_place = None
        if codec is not None:  # only a run that is recorded needs it
            from handrail.engine.in_place import InPlace

            in_place = InPlace(machine.run, codec)
        driver: Driver

        def emit_notice(notice: ev.Notice) -> None:
            driver.emit_notice(notice)

        performer = Performer(
            contexts,
            agents,
            parts.clock,
            emit_notice,
            parts.agent_defaults,
            in_place,
            parts.around,
            parts.folder_of_agent,
            lambda: machine.run.recorded,
            parts.sandbox,
            files_of_journal(self._journal),
            portable_format,
        )
        driver = Driver(
            machine,
            parts,
            start.seq,
            journal=self._journal,
            bus=bus,
            performer=performer,
            evaluator=Evaluator(contexts, parts.stages, parts.gates, portable_format),
            last_at=start.last_at,
        )
        if run is not None:
            run.attach(driver)
        drivers = self._users.drivers
        drivers[run_id] = driver
        try:
            return await driver.drive(start.first, start.letters, start.cancel)
        finally:
            del drivers[run_id]
            agents.warn_of_unused(run_id)

    def _contexts(self, run_id: str, definition: WorkflowDefinition) -> Contexts:
        parts, names = self._parts, step_names.StepNames(definition)
        return Contexts(run_id, parts.services, parts.config, self._mark(run_id), names.check)

    def _machine(self, start: DriveStart) -> Machine:
        parts = self._parts
        codec = self._journal.codec if self._journal.durable or parts.durable else None
        setting = Setting(
            start.run_id,
            parts.limits.over(start.definition.limits),
            parts.cleanup_timeout_s,
            start.recorded,
            codec,
            parts.max_crashes,
            None if codec is None else self._secrets(),
            start.cancel is not None,
        )
        return Machine(start.definition, start.inputs, setting)

    # -- resuming -------------------------------------------------------------------------------

    async def resume(
        self,
        run_id: str,
        workflow: WorkflowLike[..., Any] | None = None,
        *,
        reuse: Sequence[str] = (),
        rerun: Sequence[str] = (),
        rerun_failed: bool | str = False,
    ) -> WorkflowResult[Any]:
        """Continue a run that was killed, interrupted or suspended, that failed or was cancelled.

        Recorded steps are not performed again, except those that the end of the last drive
        superseded (see the explanation of resuming). ``rerun`` names paths to run again, or
        patterns of paths (``items/*``), ``reuse`` recorded steps that count although their code has
        changed. ``rerun_failed`` names a group whose failed members run again; True: all groups
        with ``on_error="continue"``. A run that has succeeded returns its recorded result, unless
        something runs again.

        Raises:
            ReplayMismatch: recorded steps changed, and nothing says whether they still count;
                nothing was run.
            RunLocked: another process drives the run. RunNotFound: the journal has no such run.
            NotRecorded: the run has no such step. WorkflowNotFound: its workflow is not known.
            WrongUse: ``rerun`` names a step in something that is being rolled back, or
                ``workflows`` has one of the same name from another module.
            Unresolvable: the class of a recorded value is not known here.
            DefinitionError: a backend cannot honour a step's options, or the run was begun without
                an input that the workflow requires now; nothing was run.
        """
        given = self._resolve_workflow(workflow)
        check_paths(reuse=reuse, rerun=rerun)
        return await self._resume(
            run_id, given, reuse, reading.with_failed(rerun, rerun_failed), None
        )

    def stream_resume(
        self,
        run_id: str,
        workflow: WorkflowLike[..., Any] | None = None,
        *,
        reuse: Sequence[str] = (),
        rerun: Sequence[str] = (),
        rerun_failed: bool | str = False,
    ) -> streaming.Run[Any]:
        """``resume`` as ``stream``: an async context manager that gives the drive's events."""
        given = self._resolve_workflow(workflow)

        async def drive(run: streaming.Run[Any]) -> WorkflowResult[Any]:
            check_paths(reuse=reuse, rerun=rerun)
            return await self._resume(
                run_id, given, reuse, reading.with_failed(rerun, rerun_failed), run
            )

        return streaming.Run(run_id, drive)

    resume_sync = sync_twin(resume)

    def _resolve_workflow(
        self, workflow: WorkflowLike[..., Any] | None
    ) -> WorkflowDefinition | None:
        return None if workflow is None else definition_of(workflow, self._parts.workflows)

    def _workflow_to_drive(
        self, history: Sequence[ev.Event], given: WorkflowDefinition | None
    ) -> WorkflowDefinition:
        """The workflow that drives a run; from then on it is known by the run's name for it."""
        definition = reading.workflow_for(history, given, self._listed)
        self._known[reading.workflow_named(history)] = definition
        return definition

    async def _resume(
        self,
        run_id: str,
        given: WorkflowDefinition | None,
        reuse: Sequence[str],
        rerun: Sequence[str],
        run: Run[Any] | None,
    ) -> WorkflowResult[Any]:
        self._sender(run_id)
        named = rerun
        try:
            async with self._leased(run_id) as leased:
                history = await self._history(run_id, leased.secrets)
                rerun = reading.paths_named(history, named)
                definition = self._workflow_to_drive(history, given)
                if _has_succeeded(history) and not rerun:
                    self._sweep(run_id)
                    self._warn_of_missing_secrets(run_id, leased.secrets)
                    return await self._recorded_result(definition, history)
                return await self._resume_from(history, definition, reuse, rerun, leased, run)
        except JournalFailed:  # the result is there even if the journal cannot be written
            with contextlib.suppress(JournalFailed, RunNotFound):
                history = await self._history(run_id)
                if _has_succeeded(history) and not reading.paths_named(history, named):
                    definition = self._workflow_to_drive(history, given)
                    return await self._recorded_result(definition, history)
            raise
        except HandrailError as error:  # only the caller's line is of interest
            raise error.with_traceback(None) from error.__cause__

    async def _resume_from(  # noqa: PLR0917  # the arguments of one resume
        self,
        history: Sequence[ev.Event],
        definition: WorkflowDefinition,
        reuse: Sequence[str],
        rerun: Sequence[str],
        leased: Leased,
        run: Run[Any] | None,
    ) -> WorkflowResult[Any]:
        run_id, named = history[0].run_id, {*reuse, *rerun}
        self._sweep(run_id)
        rerun = await self._narrowed(history, definition, reuse, rerun)
        while True:
            start = self._start_again(history, definition, leased.since, reuse, rerun)
            self._warn_of_missing_secrets(run_id, leased.secrets)
            try:
                return await self._drive_from(start, run)
            except ReplayMismatch as mismatch:
                if mismatch.late:
                    history = await self._history(run_id, leased.secrets)
                mismatch.hint = step_names.reason_of(definition, mismatch, history)
                on_change = self._parts.on_change
                reuse, rerun = reading.accept_changes(
                    history, mismatch, reuse, rerun, told=named, on_change=on_change
                )
                named.update(change.path for change in mismatch.changes)

    def _warn_of_missing_secrets(self, run_id: str, secrets: SecretValues) -> None:
        if secrets.missing:
            self._missing(run_id, sorted(secrets.missing))

    def _missing(self, run_id: str, variables: Sequence[str]) -> None:
        """Warn of unset variables that a record refers to; the command prints a text of its own."""
        rehearsal_io.warn_of_missing(run_id, variables)

    def _mark(self, run_id: str) -> str:
        """The mark of a run's processes. Two journals on one machine may have runs of one id."""
        return f"{run_id}@{getattr(self._parts.journal, 'identity', self._parts.identity)}"

    def _sweep(self, run_id: str) -> None:
        """Kill processes that a killed driver left: they would work beside the resumed steps."""
        if self._journal.durable:
            from handrail.system.marker import kill_marked

            kill_marked(self._mark(run_id))

    def _start_again(  # noqa: PLR0917  # the arguments of one resume
        self,
        history: Sequence[ev.Event],
        definition: WorkflowDefinition,
        since: float,
        reuse: Sequence[str] = (),
        rerun: Sequence[str] = (),
        cancel: str | None = None,
    ) -> DriveStart:
        """Where a drive of this history begins."""
        recorded = Recorded(history)
        letters, late = messages.sort_messages(self._journal, recorded, since)
        return start_after(
            history,
            definition,
            self._journal.codec,
            letters=letters,
            late=late,
            reuse=reuse,
            rerun=rerun,
            cancel=cancel,
            recorded=recorded,
        )

    # -- forking --------------------------------------------------------------------------------

    async def fork(
        self,
        run_id: str,
        *,
        at: str | None = None,
        outputs: Mapping[str, Any] | None = None,
        inputs: Mapping[str, Any] | None = None,
        rerun: Sequence[str] = (),
        rerun_failed: bool | str = False,
        fork_id: str | None = None,
    ) -> str:
        """Make a new run from the record of another, which does not change; the new run's id.

        ``resume`` drives it. It keeps the steps that had ended when the step ``at`` began; without
        ``at``, all of them. ``outputs`` replaces outputs of steps, by path: what began after such a
        step had ended is not kept. ``inputs`` replaces inputs of the run, by name: a step that
        differs for them runs again, with all that followed it. So does a step whose code has
        changed since. ``rerun`` and ``rerun_failed`` say what runs again, as in ``resume``.

        Raises:
            RunNotFound, NotRecorded: there is no such run, or step of it. WrongUse: an output
                cannot be given, or the workflow has no such input. InvalidInput: a value is not of
                its type. WorkflowNotFound: with ``outputs`` or ``inputs``, if its workflow is not
                known. RunIdTaken: ``fork_id`` is taken. In each case no run is made.
        """
        from handrail.record.forking import (
            cut_of,
            fork_events,
            gone_in_fork,
            labels_changed,
            without_free_signals,
        )

        check_paths(rerun=rerun)
        check_new_id(fork_id, "fork_id")
        self._sender(run_id)
        now, journal = self._parts.clock.now(), self._journal
        with self._users.using():
            as_written = partial(self._history_as_written, run_id, at)
            history, secrets = await self._users.read(as_written, run_id)
            kept, recorded = cut_of(history, at, tuple(outputs or ()))
            rerun = reading.paths_named(kept, reading.with_failed(rerun, rerun_failed))
            reading.refuse_unknown(recorded, rerun)
            if inputs and not any(getattr(event, "fingerprint", "") for event in kept):
                kept = kept[:1]  # without fingerprints nothing shows what used the old inputs
                recorded = Recorded(kept)
            name = fork_id or new_run_id(reading.workflow_named(history), now, journal.events)
            changed: dict[str, Any] | None = None
            given: dict[str, StepResult[Any]] = {}
            if inputs:
                definition = reading.workflow_for(history, None, self._known)
                before = reading.inputs_of(recorded, definition, journal.codec)
                changed = with_inputs(definition, before, inputs)
            if outputs:
                definition = reading.workflow_for(history, None, self._known)
                run = without_free_signals(kept)
                run = fork_events(run, Recorded(run), name, at, {}, changed, (), now)
                steps = await self._steps_in(run, definition, now)
                for path, value in outputs.items():
                    given[path] = result_given(path, steps.get(path), value)
            gone = gone_in_fork(history, kept, recorded, at, given, rerun)
            labels = labels_changed(history)
            made = fork_events(kept, recorded, name, at, given, changed, rerun, now, gone, labels)
            await self._when_free(partial(journal.append_run, made, secrets=secrets))
        return name

    fork_sync = sync_twin(fork)

    def _history_as_written(
        self, run_id: str, at: str | None
    ) -> tuple[Sequence[ev.Event], SecretValues]:
        """A history, and the secrets to write it again with (``exporting.with_placeholders``).

        Of a damaged history it gives the readable beginning, if that has the step ``at``.
        """
        from handrail.engine.exporting import with_placeholders

        secrets = self._secrets()
        try:
            history = reading.history_of(self._journal, run_id, secrets)
        except JournalDamaged as damaged:
            readable = damaged.readable
            if at is None or not any(getattr(event, "path", None) == at for event in readable):
                raise
            return readable, secrets
        if not secrets.missing:
            return history, secrets
        secrets = with_placeholders(secrets, sorted(secrets.missing))
        return reading.history_of(self._journal, run_id, secrets), secrets

    async def _steps_in(
        self, history: Sequence[ev.Event], definition: WorkflowDefinition, now: float
    ) -> dict[str, Step[Any]]:
        """The steps without an end that the code reaches, by path."""
        nodes = (await self._retrace(history, definition, now)).nodes.items()
        return {path: node.step for path, node in nodes if isinstance(node, StepNode)}

    async def _retrace(
        self, history: Sequence[ev.Event], definition: WorkflowDefinition, now: float
    ) -> RunState:
        """A run's state after today's code has replayed its record; nothing is performed."""
        from handrail.engine.planning import retrace

        start = self._start_again(history, definition, now)
        machine = self._machine(start)
        evaluator = Evaluator(self._contexts(start.run_id, definition), self._parts.stages, None)
        await retrace(machine, start.first, now, evaluator=evaluator)
        return machine.run

    # -- comparing, exporting and importing -----------------------------------------------------

    async def diff(self, a: str, b: str) -> RunDiff:
        """Two recorded runs, step by step: what differs between them.

        Raises:
            RunNotFound: the journal lacks one.
        """
        from handrail.record.diff import diff_of

        def compare() -> RunDiff:
            one, other = (
                reading.history_of(self._journal, run_id, self._secrets()) for run_id in (a, b)
            )
            return diff_of(one, other, self._journal.codec.identity)

        return await self._users.read(compare, a, b)

    async def export(self, run_id: str, file: str | os.PathLike[str]) -> None:
        """Write a run to a file of JSON lines, masked as in the journal.

        Raises:
            RunNotFound: there is no such run. OSError: the file cannot be written; none is left.
        """
        from handrail.engine.exporting import export_to

        def write() -> None:
            history, secrets = self._history_as_written(run_id, None)
            export_to(Path(file), self._journal, history, secrets)

        await self._users.read(write, run_id)

    async def import_run(self, file: str | os.PathLike[str], *, run_id: str | None = None) -> str:
        """Put an exported run into the journal, under its own id or ``run_id``; returns the id.

        Raises:
            DamagedExport: the file is not as it was written. RunIdTaken: there is such a run.
                Nothing was imported. OSError: it cannot be read.
        """
        from handrail.engine.exporting import import_from

        check_new_id(run_id, "run_id")
        self._sender(run_id or os.fspath(file))
        with self._users.using():
            read = partial(import_from, Path(file), self._journal, run_id, self._secrets())
            return await self._when_free(read)

    diff_sync = sync_twin(diff)
    export_sync = sync_twin(export)
    import_run_sync = sync_twin(import_run)

    # -- planning -------------------------------------------------------------------------------

    async def plan(
        self,
        run_id: str,
        workflow: WorkflowLike[..., Any] | None = None,
        *,
        reuse: Sequence[str] = (),
        rerun: Sequence[str] = (),
        rerun_failed: bool | str = False,
    ) -> Plan:
        """What ``resume`` with the same arguments would do.

        The workflow's own code runs against the record, as far as each branch is recorded. No
        action runs.

        Raises:
            RunNotFound, NotRecorded, WorkflowNotFound, WrongUse, Unresolvable, DefinitionError: as
                ``resume``.
        """
        check_paths(rerun=rerun)
        rerun = reading.with_failed(rerun, rerun_failed)
        plan, _ = await self.plan_with_rerun(run_id, workflow, reuse=reuse, rerun=rerun)
        return plan

    async def plan_with_rerun(
        self,
        run_id: str,
        workflow: WorkflowLike[..., Any] | None = None,
        *,
        reuse: Sequence[str] = (),
        rerun: Sequence[str] = (),
    ) -> tuple[Plan, Sequence[str]]:
        """``plan``, and ``rerun`` with what a fork runs again: changed steps, and what followed."""
        check_paths(reuse=reuse, rerun=rerun)
        given = self._resolve_workflow(workflow)
        with self._users.using():
            history = await self._history(run_id)
            definition = reading.workflow_for(history, given, self._listed)
            rerun = reading.paths_named(history, rerun)
            rerun = await self._narrowed(history, definition, reuse, rerun)
            changed: dict[str, PlannedStep] = {}
            while True:
                plan, run = await self._rehearsed(history, definition, reuse, rerun)
                more = [change.rerun_path for change in run.changes]
                if not reading.is_fork(history) or set(rerun).issuperset(more):
                    break
                changed.update((step.path, step) for step in plan.steps if step.state == "changed")
                mismatch = ReplayMismatch(run_id, run.changes, passed=run.passed)
                rerun = reading.rerun_after(Recorded(history), history, mismatch, rerun)
        steps = tuple(changed.get(step.path, step) for step in plan.steps)
        return replace(plan, steps=steps), rerun

    async def _narrowed(
        self,
        history: Sequence[ev.Event],
        definition: WorkflowDefinition,
        reuse: Sequence[str],
        rerun: Sequence[str],
    ) -> Sequence[str]:
        """``rerun``, in which groups whose items have changed are only entered again."""
        groups = reading.groups_in(Recorded(history), rerun) if rerun else ()
        if not groups:
            return rerun
        others = [path for path in rerun if path not in groups]
        _, run = await self._rehearsed(history, definition, reuse, others)
        again = reading.narrowed(run.changes, [path for path in rerun if path in groups])
        return [*others, *again]

    async def _rehearsed(
        self,
        history: Sequence[ev.Event],
        definition: WorkflowDefinition,
        reuse: Sequence[str],
        rerun: Sequence[str],
    ) -> tuple[Plan, RunState]:
        """A plan, and the state of the rehearsal, with what has changed."""
        from handrail.engine.planning import plan_of

        now, parts = self._parts.clock.now(), self._parts
        start = self._start_again(history, definition, now, reuse, rerun)
        machine = self._machine(start)
        evaluator = Evaluator(self._contexts(start.run_id, definition), parts.stages, parts.gates)
        plan = await plan_of(
            machine, start.first, history, now, evaluator=evaluator, cancel=start.cancel
        )
        return plan, machine.run

    def as_recorded(
        self, history: Sequence[ev.Event], definition: WorkflowDefinition
    ) -> tuple[RunState, Evaluator]:
        """A run's state with its history to replay, and its evaluator; not for a driver.

        Raises:
            DefinitionError: the run was begun without an input that the workflow requires now.
        """
        recorded, run_id = Recorded(history), history[0].run_id
        recorded.close()
        inputs = reading.inputs_of(recorded, definition, self._journal.codec)
        reading.refuse_without_inputs(run_id, definition, inputs)
        start = DriveStart(definition, run_id, inputs, history[0], recorded)
        evaluator = Evaluator(self._contexts(run_id, definition), self._parts.stages, None)
        return self._machine(start).run, evaluator

    plan_sync = sync_twin(plan)

    # -- reaching runs --------------------------------------------------------------------------

    async def answer(self, run_id: str, gate: str, answer: Any, *, by: str | None = None) -> Any:
        """Answer an open gate, named by its path; the answer as converted.

        The run may be live here or in another process, suspended, or dead. A run that is not live
        reads the answer when it is resumed.

        Raises:
            GateClosed: it was answered before, or its deadline has passed; the error has who, when
                and what. InvalidAnswer: it is no answer to this gate, which stays open.
                GateNotFound, RunNotFound: see those.
        """
        driver = self._users.drivers.get(run_id)
        if driver is not None:
            return await self._when_free(partial(driver.answer, gate, answer, by))
        journal, now = self._journal, self._parts.clock.now()

        def find_gate() -> OpenGate:
            recorded = Recorded(reading.history_of(journal, run_id, self._secrets()))
            recorded.take(messages.unread(journal, recorded))
            return messages.gate_in(recorded, gate, now)

        with self._users.using():
            opened = await self._users.read(find_gate, run_id)
            by = self._sender(run_id, by, may=opened.agents_may_answer)
            value = answers.accept_answer(opened, answer)
            event = ev.stamp(ev.GateAnswered(gate, value, by), run_id, 0, now)
            await self._when_free(partial(post_answer, journal, opened, event, self._secrets()))
        return value

    async def signal(
        self, run_id: str, name: str, payload: Any = None, *, by: str | None = None
    ) -> None:
        """Deliver a signal to a run, driven or not; it is kept until a ``wait_for`` takes it.

        Raises:
            RunNotFound: there is no such run.
            InvalidSignal: an open ``wait_for`` would fail with this payload; it is not sent.
            OutputNotSerializable: the payload cannot be recorded.
        """
        driver = self._users.drivers.get(run_id)
        if driver is not None:
            await self._when_free(partial(driver.signal, name, payload, by))
            return
        with self._users.using():
            history = await self._history(run_id)
            recorded = Recorded(history)
            by = self._sender(run_id, by, may=messages.agents_may_signal(recorded, name))
            messages.check_signal(self._journal, recorded, name, payload)
            await self._post(run_id, ev.SignalReceived(name, payload, by))

    async def cancel(
        self,
        run_id: str,
        reason: str = "cancelled",
        workflow: WorkflowLike[..., Any] | None = None,
    ) -> WorkflowResult[Any] | None:
        """Cancel a run. A run that is driven, here or elsewhere, is asked to unwind; returns None
        at once. Any other run is resumed only to unwind; returns its result.

        Raises:
            RunNotFound: there is no such run. WorkflowNotFound: its workflow is not known.
            DefinitionError: as ``resume``. ReplayMismatch: a recorded step is of another kind now.
        """
        driver = self._users.drivers.get(run_id)
        if driver is not None:
            driver.cancel(reason)
            return None
        self._sender(run_id)
        given = self._resolve_workflow(workflow)
        try:
            async with self._leased(run_id) as leased:
                history = await self._history(run_id, leased.secrets)
                definition = self._workflow_to_drive(history, given)
                if reading.ended(history) is not None:
                    return await self._recorded_result(definition, history)
                self._sweep(run_id)
                start = self._start_again(history, definition, leased.since, cancel=reason)
                self._warn_of_missing_secrets(run_id, leased.secrets)
                return await self._drive_from(start, None)
        except RunLocked:
            with self._users.using():
                await self._history(run_id)
                await self._post(run_id, ev.CancelRequested(reason))
            return None

    def _sender(self, run_id: str, by: str | None = None, *, may: bool = False) -> str | None:
        """Who sends a message to a run; refuses what a step must not do. See ``inbox``."""
        return sender(run_id, self._mark("").removeprefix("@"), by, may=may)

    async def _post(self, run_id: str, event: Message) -> None:
        letter = Letter(ev.stamp(event, run_id, 0, self._parts.clock.now()))
        await self._when_free(partial(self._journal.post, letter, secrets=self._secrets()))

    answer_sync = sync_twin(answer)
    signal_sync = sync_twin(signal)
    cancel_sync = sync_twin(cancel)


def _has_succeeded(history: Sequence[ev.Event]) -> bool:
    last = reading.ended(history)
    return last is not None and last.status == "succeeded"
