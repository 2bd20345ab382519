"""What a client does while it waits for a run: show events, answer gates, log troubles."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from temporalio.service import RPCError

from handrail.engine.bus import bus_for
from handrail.engine.callbacks import ask_on_stdin
from handrail.errors import HandrailError
from handrail.model import events as ev
from handrail.model.results import OpenGate
from handrail.temporal.caller import Caller
from handrail.temporal.cluster import PATIENCE_S, Cluster, person_for
from handrail.temporal.errors_as_data import error_as_data
from handrail.temporal.wire import Refusal, State

TROUBLE_S = 10.0
"""How long a run may record nothing before the client asks the cluster why, and logs it."""
ANSWER_S = 3.0
"""How long a worker may take to answer for the run before the client logs that none does. The
cluster itself still lists one that was killed for a minute.
"""

Show = Callable[[ev.Event], None]
Answer = Callable[..., Awaitable[Any]]


class Watch:
    """Polls a run for a client that waits for it. Mutable.

    Shows the run's events, has its gates answered, and logs why the run does not advance.
    """

    def __init__(
        self,
        caller: Caller,
        cluster: Cluster,
        run_id: str,
        *,
        after: int,
        answer: Answer,
        show: Show | None,
    ) -> None:
        self._caller = caller
        self._cluster = cluster
        self._answers = answer
        self._run_id = run_id
        self._shown = after
        self._show = show
        self._bus = bus_for(run_id, caller.sinks, caller.values())
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._logged: set[str] = set()
        self._quiet_since = time.monotonic()
        self._events = -1
        self.is_stuck = False
        """True if workers could not go on with the run's code when it was last looked at."""

    @property
    def _watches(self) -> bool:
        return self._show is not None or bool(self._caller.sinks)

    async def look(self) -> ev.RunSuspended | None:
        """The suspension, if the run waits for a person and nothing in this process answers it."""
        try:
            return await self._look()
        except (HandrailError, OSError, RuntimeError, RPCError) as error:
            await self._say_trouble(str(error))
            return None

    async def _look(self) -> ev.RunSuspended | None:
        asked: asyncio.Future[State] = asyncio.ensure_future(self._cluster.state(self._run_id))
        try:
            if not (await asyncio.wait({asked}, timeout=ANSWER_S))[0]:
                await self._say_trouble("no worker answers for it")
            state = await asked
        finally:
            asked.cancel()
        if state.events != self._events:
            self._events, self._quiet_since = state.events, time.monotonic()
        elif time.monotonic() - self._quiet_since > TROUBLE_S and state.suspended is None:
            await self._say_trouble()
        if self._watches and state.events > self._shown:
            self._show_events(await self._caller.history(self._run_id, self._shown))
        self.is_stuck = bool(state.stuck)
        if state.stuck:
            return ev.RunSuspended(reason=state.stuck, waits_for=(person_for(state.stuck),))
        if state.suspended is None and not state.held:
            return None
        if state.suspended is None:
            event: ev.Event = (await self._caller.history(self._run_id))[-1]
        else:
            (event,) = self._caller.events(self._run_id, [state.suspended])
        assert isinstance(event, ev.RunSuspended)
        return None if self._has_answers(event) else event

    def _show_events(self, events: Sequence[ev.Event]) -> None:
        for event in events:
            self._shown = event.seq
            self._bus.emit(event)
            if self._show is not None:
                self._show(event)

    def _has_answers(self, event: ev.RunSuspended) -> bool:
        """True while this process is answering any of the run's gates."""
        if self._caller.gates_here is None:
            return False
        for gate in event.waiting:
            key = f"{gate.path}#{gate.opening}"
            if key not in self._asked:
                self._asked[key] = asyncio.ensure_future(self._answer(gate))
        return any(not one.done() for one in self._asked.values())

    async def _answer(self, gate: OpenGate) -> None:
        gates = self._caller.gates_here
        try:
            if gates == "ask":
                value, by = await ask_on_stdin(gate), "console"
            else:
                value = gates(gate)
                if hasattr(value, "__await__"):
                    value = await value
                by = getattr(gates, "__name__", type(gates).__name__)
            await self._answers(self._run_id, gate.path, value, by=by)
        except Exception as error:  # noqa: BLE001  # ``gates`` raised, or its answer was invalid
            with contextlib.suppress(HandrailError):
                data = error_as_data(error, self._caller.values())
                await self._cluster.refuse(self._run_id, Refusal(gate.path, data))

    async def _say_trouble(self, first: str = "") -> None:
        """Log what keeps the run from advancing, each trouble once."""
        try:
            troubles = await asyncio.wait_for(self._cluster.troubles(self._run_id), PATIENCE_S)
            troubles = troubles or [first] * bool(first)
        except (TimeoutError, HandrailError, OSError, RuntimeError, RPCError) as error:
            troubles = [first or str(error) or "the cluster does not answer"]
        for trouble in troubles:
            key = trouble.partition(" (attempt")[0]
            if key not in self._logged:
                self._logged.add(key)
                _warn(self._run_id, trouble)

    async def all_events(self) -> list[ev.Event]:
        """The whole record; shows the events that were not shown yet."""
        history = await self._caller.history(self._run_id)
        if self._watches:
            self._show_events(history[self._shown :])
        return history

    async def close(self) -> None:
        """Cancel the answers still in progress."""
        for task in self._asked.values():
            task.cancel()


def _warn(run_id: str, trouble: str) -> None:
    import structlog

    with contextlib.suppress(Exception):  # a log that cannot be written must not end a run
        structlog.get_logger("handrail").warning(
            "a run does not go on", run_id=run_id, trouble=trouble
        )
