"""Reads the runs of a cluster: their states, events, plans, forks, exports and differences."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import attrs

from handrail.cluster_errors import NoWorker
from handrail.engine.outside import sync_twin
from handrail.engine.parts import check_paths
from handrail.executor import Executor
from handrail.model import events as ev
from handrail.model.definition import WorkflowDefinition
from handrail.model.history import RunDiff
from handrail.model.plan import Plan
from handrail.model.shapes import WorkflowLike
from handrail.ports.journal import RunInfo
from handrail.record.inbox import stuck_in, unread
from handrail.record.reading import ended, with_failed, workflow_named
from handrail.record.state import RunState
from handrail.record.status import shown_status
from handrail.record.view import view_of
from handrail.temporal.cluster import info_of
from handrail.temporal.reaching import ReachesRuns
from handrail.temporal.record import scratch

LOOK_S = (0.05, 1.0)
"""The pause before the next poll of a run: at first, and at most."""


class ReadsRuns(ReachesRuns):
    """Reads runs, and creates runs from records."""

    async def get(self, run_id: str) -> RunState:
        """The state of a run.

        Raises:
            RunNotFound: there is no such run.
        """
        cluster = await self._caller.cluster()
        execution = await cluster.execution_info(run_id)
        history = await self._caller.history(run_id, secrets={})  # people see it: no secrets
        state = None
        if execution.is_open:
            with contextlib.suppress(NoWorker):
                state = await cluster.state(run_id)
        info = info_of(execution, cluster.address, state)
        alive, stuck = info.holder is not None, stuck_in(info)
        view = view_of(history, alive=alive, now=time.time(), stuck=stuck)
        end, waits = view.end, view.waits_for
        if state is not None and state.suspended is not None:
            (event,) = self._caller.events(run_id, [state.suspended])
            assert isinstance(event, ev.RunSuspended)
            waits = event.waits_for
        elif state is not None and state.paused:
            waits = info.waits_for
        return RunState(
            run_id,
            info.workflow_name,
            shown_status(info) if end is None else end.status,
            view.steps,
            waits,
            None if end is None else end.value,
            None if end is None else end.error,
            history[0].at,
            history[-1].at,
        )

    async def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[ev.Event, None]:
        """The events of a run after number ``after``, as they come, until the run has ended.

        Raises:
            RunNotFound: there is no such run.
        """
        pause, most = LOOK_S
        while True:
            events = await self._caller.history(run_id, after, {})
            for event in events:
                yield event
            if events:
                after = events[-1].seq
                pause = LOOK_S[0]
            if ended(events) is not None:
                return
            await asyncio.sleep(pause)
            pause = min(pause * 2, most)

    async def runs(self) -> list[RunInfo]:
        """The runs of the task queue, oldest first."""
        cluster = await self._caller.cluster()
        return await cluster.infos()

    async def _edit_work(self, run_id: str, event: ev.WorkEdited) -> None:
        """Check the edit against the record, as an executor on the cluster's journal does."""
        engine = await self._engine(await self._caller.history(run_id))
        path, add, drop, priority = event.path or None, event.add, event.drop, event.priority
        await engine.edit_work(run_id, path, add=add, drop=drop, priority=priority, by=event.by)
        for letter in engine.journal.letters(run_id, 0):
            await self.tell(run_id, letter.event)

    # -- plans ----------------------------------------------------------------------------------

    async def plan(
        self,
        run_id: str,
        workflow: WorkflowLike[..., Any] | None = None,
        *,
        reuse: Sequence[str] = (),
        rerun: Sequence[str] = (),
        rerun_failed: bool | str = False,
    ) -> Plan:
        """What ``resume`` would do: compares this process's workflow code with the record.

        Raises:
            RunNotFound, NotRecorded, WorkflowNotFound, WrongUse: as ``resume``.
        """
        check_paths(reuse=reuse, rerun=rerun)
        rerun = with_failed(rerun, rerun_failed)
        execution = await (await self._caller.cluster()).execution_info(run_id)
        definition = self._caller.definition(execution, workflow)
        plan, _ = await self._planned(definition, await self._caller.history(run_id), reuse, rerun)
        return plan

    async def _planned(
        self,
        definition: WorkflowDefinition,
        history: Sequence[ev.Event],
        reuse: Sequence[str],
        rerun: Sequence[str],
    ) -> tuple[Plan, Sequence[str]]:
        """The plan, and ``rerun`` with what a fork runs again."""
        engine = await self._engine(history)
        return await engine.plan_with_rerun(
            history[0].run_id, _WorkflowRef(definition), reuse=reuse, rerun=rerun
        )

    async def _engine(self, *histories: Sequence[ev.Event]) -> Executor:
        """An executor over a scratch journal of these records, for operations on records."""
        identity = await (await self._caller.cluster()).identity()
        return Executor(
            journal=scratch(self._caller.codec, identity, *histories),
            workflows=[_WorkflowRef(one) for one in self._caller.known.values()],
            limits=self._caller.limits,
            secrets=self._caller.secrets,
            durable=True,
        )

    # -- new runs, and files --------------------------------------------------------------------

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
        """A new run from the record of another, as ``Executor.fork``; ``resume`` drives it."""
        history = await self._caller.history(run_id)
        execution = await (await self._caller.cluster()).execution_info(run_id)
        engine = await self._engine(history)
        again = with_failed(rerun, rerun_failed)
        made = await engine.fork(
            run_id, at=at, outputs=outputs, inputs=inputs, rerun=again, fork_id=fork_id
        )
        await self._caller.hold(made, execution.workflow, engine.journal.events(made))
        return made

    async def import_run(self, file: str | os.PathLike[str], *, run_id: str | None = None) -> str:
        """Put an exported run onto the cluster, where ``resume`` drives it; returns the run's id.

        Raises:
            DamagedExport, RunIdTaken, OSError: as ``Executor.import_run``.
        """
        engine = await self._engine()
        made = await engine.import_run(file, run_id=run_id)
        history = engine.journal.events(made)
        await self._caller.hold(made, workflow_named(history), history)
        for letter in unread(engine.journal, made, history):
            await self.tell(made, letter)
        return made

    async def export(self, run_id: str, file: str | os.PathLike[str]) -> None:
        """Write a run to a file of JSON lines, as ``Executor.export`` does.

        Raises:
            RunNotFound: there is no such run. OSError: the file cannot be written.
        """
        await (await self._engine(await self._caller.history(run_id))).export(run_id, file)

    async def diff(self, a: str, b: str) -> RunDiff:
        """Compare two runs step by step; see ``Executor.diff``."""
        histories = [await self._caller.history(run_id) for run_id in dict.fromkeys((a, b))]
        return await (await self._engine(*histories)).diff(a, b)

    plan_sync = sync_twin(plan)
    fork_sync = sync_twin(fork)
    diff_sync = sync_twin(diff)
    export_sync = sync_twin(export)
    import_run_sync = sync_twin(import_run)


@attrs.frozen
class _WorkflowRef:
    """Wraps a definition as the workflow that an executor's methods take."""

    definition: WorkflowDefinition

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError
