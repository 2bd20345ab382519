"""A run's record as the cluster holds it: read from the history, without the run's code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import msgspec
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.common import RawValue

from handrail.codec.codec import Codec
from handrail.model import events as ev
from handrail.temporal import wire

_MARKER = "core_local_activity"


@attrs.define
class RecordedRun:
    """The rows of a run, and what came since they were recorded. Mutable while it is read.

    ``ends``: of steps; ``letters``: messages. Nobody has acted on them yet.
    """

    start: wire.Start
    rows: list[wire.Row]
    ends: list[wire.Row] = attrs.field(factory=list)
    letters: list[wire.Row] = attrs.field(factory=list)

    def with_ends(self, *, letters: bool = False) -> list[wire.Row]:
        """The rows, then the ends, and with ``letters`` the messages, numbered as they follow."""
        more = [*self.ends, *(self.letters if letters else ())]
        for seq, row in enumerate(more, len(self.rows) + 1):
            row.seq = seq
        return [*self.rows, *more]


async def recorded_run(client: Client, run_id: str) -> RecordedRun:
    """What the history of the run's last execution records.

    Raises:
        RPCError: the cluster does not know the run, or does not answer.
    """
    reader = _Reader(client)
    async for event in client.get_workflow_handle(run_id).fetch_history_events():
        await reader.take(event)
    return reader.run


class _Reader:
    """Reads a history, event by event. Mutable."""

    def __init__(self, client: Client) -> None:
        self.run = RecordedRun(wire.Start(""), [])
        self._converter = client.data_converter
        self._names: dict[int, str] = {}
        """The id of each activity, by the number of the event that scheduled it."""
        self._last: dict[str, wire.Row] = {}
        """The last end of each activity."""

    async def take(self, event: HistoryEvent) -> None:
        """Read one event."""
        at = event.event_time.ToNanoseconds() / 1e9
        match event.event_type:
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
                args = event.workflow_execution_started_event_attributes.input.payloads
                first, *chunks = await self._values(args)
                rows = list(wire.unpack_rows(bytes(one.payload.data) for one in chunks))
                self.run = RecordedRun(wire.read(first, wire.Start), rows)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                scheduled = event.activity_task_scheduled_event_attributes
                self._names[event.event_id] = scheduled.activity_id
            case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
                ended = event.activity_task_completed_event_attributes
                name = self._names[ended.scheduled_event_id]
                await self._end(name, ended.result.payloads, at)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED:
                failed = event.activity_task_failed_event_attributes
                info = failed.failure.application_failure_info
                if info.type == wire.ATTEMPT_FAILED:
                    name = self._names[failed.scheduled_event_id]
                    await self._end(name, info.details.payloads, at)
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
                signal = event.workflow_execution_signaled_event_attributes
                values = await self._values(signal.input.payloads)
                self.run.letters += _letters(signal.signal_name, values, at)
            case EventType.EVENT_TYPE_MARKER_RECORDED:
                marker = event.marker_recorded_event_attributes
                if marker.marker_name == _MARKER and "result" in marker.details:
                    did = msgspec.json.decode(marker.details["data"].payloads[0].data)
                    await self._did_locally(did, marker.details["result"].payloads, at)
            case _:
                pass

    async def _did_locally(
        self, did: Mapping[str, Any], results: Iterable[Payload], at: float
    ) -> None:
        if did["activity_type"] != wire.ROWS:
            # An attempt; or the verdict of a predicate, which has no event.
            await self._end(did["activity_id"], results, at)
            return
        (chunk,) = await self._values(results)
        for row in wire.unpack_rows([bytes(chunk.payload.data)]):
            is_whole = row.kind != wire.END
            known = row if is_whole else self._last[row.path]
            self.run.rows.append(msgspec.structs.replace(known, seq=row.seq, at=row.at))
        self.run.ends, self.run.letters = [], []

    async def _end(self, name: str, results: Iterable[Payload], at: float) -> None:
        (value,) = await self._values(results)
        end = msgspec.convert(wire.read(value, Any), wire.End)
        if end.event is None or end.fault is not None:
            return  # an attempt without an end of its own is interrupted
        self._last[name] = end.event
        ends = (*end.notices, end.event)
        self.run.ends += [msgspec.structs.replace(one, at=at) for one in ends]

    async def _values(self, payloads: Iterable[Payload]) -> list[RawValue]:
        given = list(payloads)
        return await self._converter.decode(given, [RawValue] * len(given))


def _letters(name: str, values: list[RawValue], at: float) -> list[wire.Row]:
    if name == wire.MESSAGE:
        return [wire.read(one, wire.Row) for one in values]
    if name in {wire.DRIVE, wire.REFUSE}:
        return []
    payload = msgspec.json.decode(values[0].payload.data) if values else None
    signal = ev.stamp(ev.SignalReceived(name, payload, "the cluster"), "", 0, at)
    return [wire.row_of(signal, Codec(), {})]
