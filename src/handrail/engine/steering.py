"""Steering of a run from outside: pause, stop, give a step's output, retry it, guide its agents,
edit the queue of ``work``.

Each request is a message through the journal. So it reaches a run that another process drives, or
that no process drives now. It counts once, also across a crash, and the record says who sent it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from handrail.core.run_state import RunState
from handrail.engine.engine import Engine
from handrail.engine.outside import sync_twin
from handrail.errors import CannotSteer
from handrail.later import later
from handrail.model import events as ev

if TYPE_CHECKING:
    from handrail.core import steering as live_steering
    from handrail.core import work_edits
    from handrail.engine import step_names
    from handrail.model.work import Task
    from handrail.record import reading
else:
    later(globals(), "core.steering:live_steering core.work_edits engine.step_names record.reading")


class Steering:
    """The methods that steer a run; a subclass defines how a message reaches the run."""

    async def pause(self, run_id: str, *, by: str | None = None) -> None:
        """Let no more steps of a run begin. Steps at work run to their end, and timers continue.

        The pause lasts until ``unpause``, also across the end of the process. A drive with no step
        at work any more suspends a little later.

        Raises:
            RunNotFound: there is no such run. CannotSteer: it has ended.
        """
        await self._steer(run_id, ev.RunSteered("pause", by=by))

    async def unpause(self, run_id: str, *, by: str | None = None) -> None:
        """End the pause of a run; if the run was suspended meanwhile, it continues on resume.

        Raises:
            RunNotFound: there is no such run. CannotSteer: it has ended.
        """
        await self._steer(run_id, ev.RunSteered("unpause", by=by))

    async def stop(self, run_id: str, *, by: str | None = None) -> None:
        """End the drive of a run, as Ctrl-C does in its process: steps at work are interrupted, the
        run is suspended, and a resume continues it. A run without a driver stays as it is.

        Raises:
            RunNotFound: there is no such run. CannotSteer: it has ended.
        """
        await self._steer(run_id, ev.RunSteered("stop", by=by))

    async def complete(self, run_id: str, path: str, output: Any, *, by: str | None = None) -> None:
        """End a step as succeeded, with this output. The step may be at work, wait, have failed, or
        not have begun. An attempt at work is stopped first; its own outcome no longer counts.

        ``output`` is of the step's declared type, or a text or JSON value of it. The result's
        ``given_by`` says who gave it.

        Raises:
            RunNotFound: there is no such run. InvalidInput: the output is not of the step's type.
            CannotSteer: there is no such step, or it has ended. WorkflowNotFound: the run is not
                driven here, and its workflow is not known.
        """
        await self._steer_step(run_id, ev.RunSteered("complete", path, output, by))

    async def skip(self, run_id: str, path: str, *, by: str | None = None) -> None:
        """End a step with its ``.default()``, or as ``.skip_on_error()`` says, without a failure.

        Raises:
            CannotSteer: it has neither, or there is no such step, or it has ended.
            RunNotFound, WorkflowNotFound: as ``complete``.
        """
        await self._steer_step(run_id, ev.RunSteered("skip", path, None, by))

    async def retry(self, run_id: str, path: str, *, by: str | None = None) -> None:
        """Stop the attempt of a step, and begin it again; the stopped one is not counted. Ends a
        wait before the next attempt, or for any limit of an agent (a usage cap, say), at once.

        Raises:
            CannotSteer: there is no such step at work, it has steps below it, or it is one of
                ``.once()``. RunNotFound, WorkflowNotFound: as ``complete``.
        """
        await self._steer_step(run_id, ev.RunSteered("retry", path, None, by))

    async def guide(
        self, run_id: str, text: str, *, path: str | None = None, by: str | None = None
    ) -> None:
        """Send a text to the agents at work in a run, or to those at or below ``path``.

        Each agent's turn is interrupted, and its session continues with the text. Where the backend
        has no sessions, the agent begins again with the text. If no agent is at work there, the
        next one that is launched there gets the text. An agent interrupted so has not failed, and
        what it used counts.

        Raises:
            RunNotFound: there is no such run. WrongUse: it is no text. CannotSteer: it is empty,
                the run has ended, there is no such step, it has ended, or it launches no agent.
                WorkflowNotFound: with a path, as ``complete``.
        """
        event = live_steering.guidance_event(run_id, text, path, by)
        if event.path:
            await self._steer_step(run_id, event)
        else:
            await self._steer(run_id, event)

    async def edit_work(
        self,
        run_id: str,
        path: str | None = None,
        *,
        add: Sequence[Task] = (),
        drop: Sequence[str] = (),
        priority: Mapping[str, float] | None = None,
        by: str | None = None,
    ) -> None:
        """Change the queue of a ``work`` step: tasks to add, ids of tasks to drop, new priorities
        by id. ``path`` may be left out where only one has begun.

        Only tasks that have not begun can be dropped or get another priority. A payload of plain
        data is converted to the class of the first task's payload.

        Raises:
            RunNotFound: there is no such run. CannotSteer: the run has succeeded, it has no such
                step or task, the task has begun, or one of this id exists. InvalidInput: a payload
                does not fit. WorkflowNotFound: the run is not driven here, and its workflow is not
                known.
        """
        await self._edit_work(run_id, work_edits.edit_of(path, add, drop, priority, by))

    async def _steer(self, run_id: str, event: ev.RunSteered) -> None:
        """Send a request that concerns the whole run."""
        raise NotImplementedError

    async def _steer_step(self, run_id: str, event: ev.RunSteered) -> None:
        """Send a request that concerns the step at its path."""
        raise NotImplementedError

    async def _edit_work(self, run_id: str, event: ev.WorkEdited) -> None:
        """Send an edit to a queue, once it is checked."""
        raise NotImplementedError

    pause_sync = sync_twin(pause)
    unpause_sync = sync_twin(unpause)
    stop_sync = sync_twin(stop)
    complete_sync = sync_twin(complete)
    skip_sync = sync_twin(skip)
    retry_sync = sync_twin(retry)
    guide_sync = sync_twin(guide)
    edit_work_sync = sync_twin(edit_work)


class SteeredEngine(Steering, Engine):
    """An engine that also steers runs."""

    async def _edit_work(self, run_id: str, event: ev.WorkEdited) -> None:
        driver = self._users.drivers.get(run_id)
        if driver is not None:
            await self._when_free(partial(driver.steer, event))
            return
        event = replace(event, by=self._sender(run_id, event.by, may=True))
        with self._users.using():
            history = await self._history(run_id)
            last = reading.ended(history)
            if last is not None and last.status == "succeeded":
                raise CannotSteer(run_id, *ended_run_hint(last))
            definition = reading.workflow_for(history, None, self._known)
            run = await self._retrace(history, definition, self._parts.clock.now())
            await self._post(run_id, work_edits.check_edit(run, event, driven=False))

    async def _steer(self, run_id: str, event: ev.RunSteered) -> None:
        driver = self._users.drivers.get(run_id)
        if driver is not None:
            await self._when_free(partial(driver.steer, event))
            return
        event = replace(event, by=self._sender(run_id, event.by))
        with self._users.using():
            last = reading.ended(await self._history(run_id))
            if last is not None:
                raise CannotSteer(run_id, *ended_run_hint(last))
            await self._post(run_id, event)

    async def _steer_step(self, run_id: str, event: ev.RunSteered) -> None:
        live_steering.check_path(event.path)
        driver = self._users.drivers.get(run_id)
        if driver is not None:
            refuse_unknown(driver.conductor.machine.run, event.path)
            await self._when_free(partial(driver.steer, event))
            return
        event = replace(event, by=self._sender(run_id, event.by))
        with self._users.using():
            history = await self._history(run_id)
            last = reading.ended(history)
            needs_work = event.action in {"retry", "guide"}
            if last is not None and (last.status != "failed" or needs_work):
                raise CannotSteer(run_id, *ended_run_hint(last))
            definition = reading.workflow_for(history, None, self._known)
            run = await self._retrace(history, definition, self._parts.clock.now())
            refuse_unknown(run, event.path)
            await self._post(run_id, live_steering.check_steering(run, event))


def ended_run_hint(last: ev.WorkflowCompleted) -> tuple[str, str]:
    """Why an ended run accepts no steering, and what can be done instead."""
    if last.status == "succeeded":
        return "it has succeeded, nothing of it is at work", "fork() tries something else from it."
    what = "was cancelled" if last.status == "cancelled" else "has failed"
    return f"it {what}, so no step is running", "resume() continues it."


def refuse_unknown(run: RunState, path: str) -> None:
    """Raise ``CannotSteer`` if no step of this path has begun, nor is in the workflow's source."""
    if path in run.nodes or path in run.results:
        return
    instead = step_names.no_step_at(run.definition, path)
    if instead is not None:
        run_id = run.setting.run_id
        raise CannotSteer(run_id, f"its workflow has no step {path!r}", instead)
