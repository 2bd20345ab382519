"""A run's record as the cluster holds it: read from the history, without the run's code."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
import msgspec
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.common import RawValue

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
    found: RecordedRun | None = None
    names: dict[int, str] = {}
    last: dict[str, wire.Row] = {}
    async for event in client.get_workflow_handle(run_id).fetch_history_events():
        at = event.event_time.ToNanoseconds() / 1e9
        match event.event_type:
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
                args = event.workflow_execution_started_event_attributes.input.payloads
                first, *chunks = await _values(client, args)
                rows = list(wire.unpack_rows(bytes(one.payload.data) for one in chunks))
                found = RecordedRun(wire.read(first, wire.Start), rows)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                scheduled = event.activity_task_scheduled_event_attributes
                names[event.event_id] = scheduled.activity_id
            case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
                ended = event.activity_task_completed_event_attributes
                assert found is not None
                end = await _end(client, ended.result.payloads)
                _note_end(found, end, at, names[ended.scheduled_event_id], last)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED:
                failed = event.activity_task_failed_event_attributes
                info = failed.failure.application_failure_info
                if info.type == wire.ATTEMPT_FAILED:
                    assert found is not None
                    end = await _end(client, info.details.payloads)
                    _note_end(found, end, at, names[failed.scheduled_event_id], last)
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
                signal = event.workflow_execution_signaled_event_attributes
                assert found is not None
                values = await _values(client, signal.input.payloads)
                found.letters += _letters(signal.signal_name, values, at)
            case EventType.EVENT_TYPE_MARKER_RECORDED:
                marker = event.marker_recorded_event_attributes
                if marker.marker_name != _MARKER or "result" not in marker.details:
                    continue
                assert found is not None
                did = msgspec.json.decode(marker.details["data"].payloads[0].data)
                results = marker.details["result"].payloads
                if did["activity_type"] == wire.ROWS:
                    (chunk,) = await _values(client, results)
                    for row in wire.unpack_rows([bytes(chunk.payload.data)]):
                        found.rows.append(_whole(row, last))
                    found.ends, found.letters = [], []
                else:  # an attempt, or the verdict of a predicate, which has no event
                    _note_end(found, await _end(client, results), at, did["activity_id"], last)
            case _:
                pass
    assert found is not None
    return found


async def _values(client: Client, payloads: Iterable[Payload]) -> list[RawValue]:
    given = list(payloads)
    return await client.data_converter.decode(given, [RawValue] * len(given))


async def _end(client: Client, payloads: Iterable[Payload]) -> wire.End:
    (value,) = await _values(client, payloads)
    return msgspec.convert(wire.read(value, Any), wire.End)


def _note_end(
    found: RecordedRun, end: wire.End, at: float, name: str, last: dict[str, wire.Row]
) -> None:
    if end.event is None or end.fault is not None:
        return  # an attempt without an end of its own is interrupted
    last[name] = end.event
    found.ends += [msgspec.structs.replace(one, at=at) for one in (*end.notices, end.event)]


def _whole(row: wire.Row, last: dict[str, wire.Row]) -> wire.Row:
    if row.kind != wire.END:
        return row
    return msgspec.structs.replace(last[row.path], seq=row.seq, at=row.at)


def _letters(name: str, values: list[RawValue], at: float) -> list[wire.Row]:
    if name == wire.MESSAGE:
        return [wire.read(one, wire.Row) for one in values]
    if name in {wire.DRIVE, wire.REFUSE}:
        return []
    payload = msgspec.json.decode(values[0].payload.data) if values else None
    signal = ev.stamp(ev.SignalReceived(name, payload, "the cluster"), "", 0, at)
    from handrail.codec.codec import Codec

    return [wire.row_of(signal, Codec(), {})]
