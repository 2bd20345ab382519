"""A hand on a run that is at work, or is to be: pause, let go on, stop.

All of it is a message through the journal. So it reaches a run that another process drives, and one
that nobody drives now; it counts once, also over a crash, and the record says who it was.
"""

from __future__ import annotations

from handrail.engine.executor import Engine
from handrail.engine.outside import sync_twin
from handrail.errors import CannotSteer
from handrail.model import events as ev
from handrail.record.reading import ended, history_of


class SteeredEngine(Engine):
    """Drives runs, and steers them."""

    async def pause(self, run_id: str, *, by: str | None = None) -> None:
        """Let no step of a run begin any more. What is at work goes on to its end, timers go on.

        It lasts until ``unpause``, also over the end of the process. A drive in which nothing is at
        work any more suspends a little later.

        Raises:
            RunNotFound: there is no such run. CannotSteer: it has ended.
        """
        self._steer(run_id, ev.RunSteered("pause", by))

    async def unpause(self, run_id: str, *, by: str | None = None) -> None:
        """Let a paused run go on; one that is suspended meanwhile goes on when it is resumed.

        Raises:
            RunNotFound: there is no such run. CannotSteer: it has ended.
        """
        self._steer(run_id, ev.RunSteered("unpause", by))

    async def stop(self, run_id: str, *, by: str | None = None) -> None:
        """End the drive of a run, as Ctrl-C does in its process: what is at work is interrupted,
        the run is suspended, and a resume goes on. One that nobody drives stays as it is.

        Raises:
            RunNotFound: there is no such run. CannotSteer: it has ended.
        """
        self._steer(run_id, ev.RunSteered("stop", by))

    def _steer(self, run_id: str, event: ev.RunSteered) -> None:
        driver = self._users.drivers.get(run_id)
        if driver is not None:
            driver.steer(event)
            return
        with self._users.using():
            last = ended(history_of(self._journal, run_id, self._secrets()))
            if last is not None:
                raise CannotSteer(run_id, *_over(last))
            self._post(run_id, event)

    pause_sync = sync_twin(pause)
    unpause_sync = sync_twin(unpause)
    stop_sync = sync_twin(stop)


def _over(last: ev.WorkflowCompleted) -> tuple[str, str]:
    if last.status == "succeeded":
        return "it has succeeded, nothing of it is at work", "fork() tries something else from it."
    what = "was cancelled" if last.status == "cancelled" else "has failed"
    return f"it {what}, nothing of it is at work", "resume() goes on with it."
