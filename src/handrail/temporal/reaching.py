"""Messages to runs of a cluster: answers, signals, steering."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from handrail.engine.inbox import sender
from handrail.engine.outside import sync_twin
from handrail.engine.parts import check_paths
from handrail.engine.steering import Steering
from handrail.errors import CannotSteer, RunNotFound
from handrail.model import events as ev
from handrail.record.inbox import gate_in
from handrail.record.reading import ended
from handrail.record.run_record import Recorded
from handrail.system.marker import enclosing_step
from handrail.temporal.caller import Caller
from handrail.temporal.cluster import StandsStill
from handrail.temporal.record import accepted_by


class ReachesRuns(Steering):
    """Sends messages to open runs, from any process.

    A worker decides whether to refuse a message. ``NoWorker``: no worker answered for the run.
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def answer(self, run_id: str, gate: str, answer: Any, *, by: str | None = None) -> Any:
        """Answer an open gate, named by its path; returns the answer as the gate's type.

        Raises:
            GateClosed, GateNotFound, InvalidAnswer, RunNotFound: see those. NoWorker: no worker
                answers for the run; the answer may still reach it.
        """
        by = await self._sender(run_id, by, gate)
        event = await self.ask(run_id, ev.GateAnswered(gate, answer, by))
        assert isinstance(event, ev.GateAnswered)
        return event.answer

    async def signal(
        self, run_id: str, name: str, payload: Any = None, *, by: str | None = None
    ) -> None:
        """Deliver a signal to a run, which keeps the signal until a step takes it.

        Raises:
            InvalidSignal, RunNotFound, OutputNotSerializable: as ``Executor.signal``. NoWorker: no
                worker answers for the run; the signal may still reach it.
        """
        by = await self._sender(run_id, by)
        await self.ask(run_id, ev.SignalReceived(name, payload, by))

    async def _sender(self, run_id: str, by: str | None = None, gate: str = "") -> str | None:
        """Who sends a message to a run, as for a run of a journal; ``gate``: it is an answer to it.

        Raises:
            CannotSteer, GateClosed, GateNotFound, RunNotFound: as ``Executor.answer``.
        """
        identity = await (await self._caller.cluster()).identity()
        may = False
        if gate and enclosing_step(run_id, identity) is not None:
            history = await self._caller.history(run_id)
            may = gate_in(Recorded(history), gate, time.time()).agents_may_answer
        return sender(run_id, identity, by, may=may)

    async def _steer(self, run_id: str, event: ev.RunSteered) -> None:
        event = replace(event, by=await self._sender(run_id, event.by))
        send = self.ask if event.action == "guide" else self.tell
        await send(run_id, event)

    async def _steer_step(self, run_id: str, event: ev.RunSteered) -> None:
        check_paths(path=(event.path,))
        event = replace(event, by=await self._sender(run_id, event.by))
        await self.ask(run_id, event)

    async def ask(self, run_id: str, event: ev.Event) -> ev.Event:
        """Send a message that the run may refuse; returns it as the run accepted it."""
        cluster = await self._caller.cluster()
        try:
            row = await cluster.ask(run_id, self._caller.row(run_id, event), self._caller.values())
        except StandsStill:
            return await self._leave(run_id, event)
        except RunNotFound:
            await self._refuse_ended(run_id, event)
            raise
        (found,) = self._caller.events(run_id, [row])
        return found

    async def _leave(self, run_id: str, event: ev.Event) -> ev.Event:
        """Send a message to a run whose code stands still: it gets the message once it goes on."""
        caller = self._caller
        known = await (await caller.cluster()).recorded(run_id)
        history = caller.events(run_id, known.with_ends(letters=True))
        accepted = accepted_by(history, event, time.time())
        await self.tell(run_id, accepted)
        return accepted

    async def tell(self, run_id: str, event: ev.Event) -> None:
        """Send a message that the run cannot refuse, and wait for no reply."""
        cluster = await self._caller.cluster()
        try:
            await cluster.tell(run_id, self._caller.row(run_id, event))
        except RunNotFound:
            await self._refuse_ended(run_id, event)
            raise

    async def _refuse_ended(self, run_id: str, event: ev.Event) -> None:
        """Raise why an ended run takes no message.

        Raises:
            CannotSteer, GateClosed, GateNotFound: as for a run of a journal.
            RunNotFound: there is no such run.
        """
        history = await self._caller.history(run_id)
        if isinstance(event, ev.GateAnswered):
            gate_in(Recorded(history), event.path, history[-1].at)
        last = ended(history)
        what = "has ended" if last is None else f"has {last.status}"
        raise CannotSteer(run_id, f"it {what}, so no step is running", "resume() continues it.")

    answer_sync = sync_twin(answer)
    signal_sync = sync_twin(signal)
