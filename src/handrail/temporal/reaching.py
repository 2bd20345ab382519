"""Messages to runs of a cluster: answers, signals, steering."""

from __future__ import annotations

from typing import Any

from handrail.core.steering import guidance
from handrail.engine.outside import sync_twin
from handrail.engine.parts import check_paths
from handrail.errors import CannotSteer, RunNotFound
from handrail.model import events as ev
from handrail.record.inbox import gate_in
from handrail.record.reading import ended
from handrail.temporal.caller import Caller


class ReachesRuns:
    """Reaches runs that are driven, wait, or are held, from any process."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def answer(self, run_id: str, gate: str, answer: Any, *, by: str | None = None) -> Any:
        """Answer an open gate, named by its path; the answer as converted.

        Raises:
            GateClosed, GateNotFound, InvalidAnswer, RunNotFound: see those. NoWorker: nobody
                answers for the run; nothing was sent.
        """
        event = await self.ask(run_id, ev.GateAnswered(gate, answer, by))
        assert isinstance(event, ev.GateAnswered)
        return event.answer

    async def signal(
        self, run_id: str, name: str, payload: Any = None, *, by: str | None = None
    ) -> None:
        """Deliver a signal to a run; it is kept until taken.

        Raises:
            InvalidSignal, RunNotFound, OutputNotSerializable: as ``Executor.signal``. NoWorker:
                nobody answers for the run; nothing was sent.
        """
        await self.ask(run_id, ev.SignalReceived(name, payload, by))

    async def pause(self, run_id: str, *, by: str | None = None) -> None:
        """Let no step of a run begin any more, until ``unpause``.

        Raises:
            RunNotFound: there is no such run. CannotSteer: it has ended.
        """
        await self.tell(run_id, ev.RunSteered("pause", by=by))

    async def unpause(self, run_id: str, *, by: str | None = None) -> None:
        """Let a paused run go on.

        Raises:
            RunNotFound: there is no such run. CannotSteer: it has ended.
        """
        await self.tell(run_id, ev.RunSteered("unpause", by=by))

    async def stop(self, run_id: str, *, by: str | None = None) -> None:
        """End the drive of a run: what is at work is interrupted, and ``resume`` goes on.

        Raises:
            RunNotFound: there is no such run. CannotSteer: it has ended.
        """
        await self.tell(run_id, ev.RunSteered("stop", by=by))

    async def complete(self, run_id: str, path: str, output: Any, *, by: str | None = None) -> None:
        """End a step as succeeded, with this output; see ``Executor.complete``.

        Raises:
            RunNotFound, InvalidInput, CannotSteer: see those. NoWorker: nobody answers for it.
        """
        await self._steer(run_id, ev.RunSteered("complete", path, output, by))

    async def skip(self, run_id: str, path: str, *, by: str | None = None) -> None:
        """End a step with its ``.default()``, or as ``.skip_on_error()`` says.

        Raises:
            RunNotFound, CannotSteer: see those. NoWorker: nobody answers for it.
        """
        await self._steer(run_id, ev.RunSteered("skip", path, None, by))

    async def retry(self, run_id: str, path: str, *, by: str | None = None) -> None:
        """Stop the attempt of a step, and begin it again, uncounted.

        Raises:
            RunNotFound, CannotSteer: see those. NoWorker: nobody answers for it.
        """
        await self._steer(run_id, ev.RunSteered("retry", path, None, by))

    async def guide(
        self, run_id: str, text: str, *, path: str | None = None, by: str | None = None
    ) -> None:
        """Say something to the agents that are at work in a run, or at ``path``; see ``Executor``.

        Raises:
            RunNotFound, WrongUse, CannotSteer: as of ``Executor``. NoWorker: nobody answers for it.
        """
        await self.ask(run_id, guidance(run_id, text, path, by))

    async def _steer(self, run_id: str, event: ev.RunSteered) -> None:
        check_paths(path=(event.path,))
        await self.ask(run_id, event)

    async def ask(self, run_id: str, event: ev.Event) -> ev.Event:
        """Send a message that may be refused; it as it counts."""
        cluster = await self._caller.cluster()
        try:
            row = await cluster.ask(run_id, self._caller.row(run_id, event))
        except RunNotFound:
            await self._refuse_ended(run_id, event)
            raise
        (found,) = self._caller.events(run_id, [row])
        return found

    async def tell(self, run_id: str, event: ev.Event) -> None:
        """Send a message that is taken as it is."""
        cluster = await self._caller.cluster()
        try:
            await cluster.tell(run_id, self._caller.row(run_id, event))
        except RunNotFound:
            await self._refuse_ended(run_id, event)
            raise

    async def _refuse_ended(self, run_id: str, event: ev.Event) -> None:
        """Raise what is to be said of a run that has ended; nothing if there is none.

        Raises:
            CannotSteer, GateClosed, GateNotFound: as for a run of a journal.
        """
        history = await self._caller.history(run_id)
        if isinstance(event, ev.GateAnswered):
            gate_in(run_id, history, event.path)
        last = ended(history)
        what = "has ended" if last is None else f"has {last.status}"
        raise CannotSteer(
            run_id, f"it {what}, nothing of it is at work", "resume() goes on with it."
        )

    answer_sync = sync_twin(answer)
    signal_sync = sync_twin(signal)
    pause_sync = sync_twin(pause)
    unpause_sync = sync_twin(unpause)
    stop_sync = sync_twin(stop)
    complete_sync = sync_twin(complete)
    skip_sync = sync_twin(skip)
    retry_sync = sync_twin(retry)
    guide_sync = sync_twin(guide)
