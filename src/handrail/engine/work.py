"""Edits of the queue of ``work`` from outside: tasks to add or to drop, and priorities.

All of it is a message through the journal, as what steers a run is (``engine.steering``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from handrail.core.work_edits import check_edit, edit_of
from handrail.engine.outside import sync_twin
from handrail.engine.steering import SteeredEngine, over
from handrail.errors import CannotSteer
from handrail.model.work import Task
from handrail.record.reading import ended, history_of, workflow_for


class WorkEngine(SteeredEngine):
    """Drives runs, and changes what they have in their queues."""

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

        Only what waits can be dropped or be given another priority. A payload of plain data is
        taken for the class that the first task's payload has.

        Raises:
            RunNotFound: there is no such run. CannotSteer: it has succeeded, there is no such step
                or task, it has begun, or there is one of this id already. InvalidInput: a payload
                does not fit. WorkflowNotFound: the run is not driven here, and nobody knows its
                workflow.
        """
        event = edit_of(path, add, drop, priority, by)
        driver = self._users.drivers.get(run_id)
        if driver is not None:
            driver.steer(event)
            return
        with self._users.using():
            history = history_of(self._journal, run_id, self._secrets())
            last = ended(history)
            if last is not None and last.status == "succeeded":
                raise CannotSteer(run_id, *over(last))
            definition = workflow_for(history, None, self._parts.workflows)
            run = await self._gone_through(history, definition, self._parts.clock.now())
            self._post(run_id, check_edit(run, event, driven=False))

    edit_work_sync = sync_twin(edit_work)
