"""The messages between client, workflow and steps: JSON, or chunks of a run's record.

A run's record is its events as rows (``record.rows``), the same lines as in an export, packed into
*chunks*. A new execution of a run starts with the chunks of earlier ones, and adds its own. A
*held* run is on the cluster with its record, and waits for a ``Drive`` message.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from handrail.codec.codec import Codec
from handrail.model import events as ev
from handrail.record.exports import Line
from handrail.record.rows import Record, from_record, to_record

MESSAGE = "handrail_message"
"""The signal and the update that carry a message: an answer, a cancellation, steering."""
DRIVE = "handrail_drive"
"""The signal that has a held run driven."""
REFUSE = "handrail_refuse"
"""The signal that a gate could not be answered."""
RECORD = "handrail_record"
"""The query for the rows after a number."""
STATE = "handrail_state"
"""The query for a run's ``State``."""
LOCAL = "handrail_local"
"""The local activity for work on the worker that runs the workflow's code."""
ROWS = "handrail_rows"
"""The local activity by which the cluster records rows: it returns the chunk that it is given."""
END = "="
"""The kind of a row that stands for the one in the last end of the activity that it names."""
LABELS, SINCE, FORKED, HELD, WAITS = "labels", "since", "forked_from", "held", "waits"
STATUS, EVENTS = "status", "events"
"""Keys of the memo, which lists of runs show. Labels; when the run began, unless this is its first
execution; of which run it is a fork; a held run's status; what the run waits for; how it ended, if
not well; how many events it had recorded when it began to wait, or ended."""
LISTED = 20
"""The most waits of a run that its memo lists."""
DEAD = "dead"
"""The status of a held run that has no end and was not suspended."""
CHUNK_BYTES = 512 << 10
"""The most bytes of rows that one chunk packs, before compression."""
MOST_BYTES = (2 << 20) - (64 << 10)
"""What a server takes in one value (2 MiB), less room for its envelope."""

AGAIN = "the worker makes the run anew: "
"""How an error begins after which the cluster soon has a worker try again with success."""
ATTEMPT_FAILED = "AttemptFailed"
"""The failure type of an activity in which the user's code failed."""
FAILED = "RunFailed"
CANCELLED = "RunCancelled"
"""The failure types of an execution whose run failed or was cancelled."""
TOO_LARGE = "RecordTooLarge"
"""The failure type of an execution whose record is too large to continue in another."""


class Bounds(msgspec.Struct):
    """How an execution stays within a server's limits.

    The run's first ``Start`` fixes them for all of the run, so that later versions of this code
    decide as the version that started the run. Per field:

    - ``window``: the most attempts in flight; a server takes 2,000.
    - ``pump``: the most commands carried out in one task, which has two seconds.
    - ``task_bytes``: the most bytes of arguments in one task's answer, which takes four million.
    - ``soft_events``, ``soft_bytes``: beyond this history the run continues in a new execution as
      soon as nothing is in flight. ``hard_events``, ``hard_bytes``: beyond these nothing begins
      until it does. A server ends an execution at 51,200 events.
    - ``share``: an execution begins by replaying the run's record, so that of a long run may be
      longer: this share of the recorded events, if that is more than ``soft_events``.
    - ``gone_s``: how long a step waits for its session's machine before it begins elsewhere.
    """

    window: int = 500
    pump: int = 3_000
    task_bytes: int = 2 << 20
    soft_events: int = 4_000
    soft_bytes: int = 10 << 20
    hard_events: int = 16_000
    hard_bytes: int = 32 << 20
    gone_s: float = 60.0
    share: float = 0.0

    def long_from(self, recorded: int) -> float:
        """The soft limit on history, in events, of an execution with ``recorded`` events.

        It is at most 75 % of ``hard_events``, to leave room for attempts in flight.
        """
        return max(self.soft_events, min(self.share * recorded, self.hard_events * 0.75))


BOUNDS = Bounds(share=0.1)


class Start(msgspec.Struct, omit_defaults=True):
    """How to drive a run. ``workflow`` names its code; the codec wrote ``inputs``.

    ``limits`` and ``gates`` are those of the client that started the run. ``resumed``: chunks of
    its record follow, and the drive continues from them, with ``reuse``, ``rerun`` and ``cancel``
    as for a resume. ``held``: it first waits for a ``Drive`` message. ``homes``: the queue of the
    machine that has each agent session. ``on_change``: what to do with steps that changed, unless
    as the worker's executor says; ``told``: those for which it was done.
    """

    workflow: str
    inputs: dict[str, msgspec.Raw] = {}
    labels: dict[str, str] = {}
    limits: Any = None
    gates: str | None = None
    cleanup_timeout_s: float = 30.0
    max_crashes: int = 5
    heartbeat_s: float = 10.0
    local: bool = False
    blobs: bool = False
    resumed: bool = False
    held: bool = False
    reuse: tuple[str, ...] = ()
    rerun: tuple[str, ...] = ()
    cancel: str | None = None
    homes: dict[str, str] = {}
    bounds: Bounds | None = None
    on_change: str = ""
    told: tuple[str, ...] = ()


class Drive(msgspec.Struct, omit_defaults=True):
    """How to drive a held run; ``workflow``, if set, names its code in place of ``Start``'s."""

    reuse: tuple[str, ...] = ()
    rerun: tuple[str, ...] = ()
    cancel: str | None = None
    workflow: str = ""
    on_change: str = ""
    told: tuple[str, ...] = ()


class Refusal(msgspec.Struct):
    """The gate at ``path`` could not be answered; ``error`` as data."""

    path: str
    error: dict[str, Any]


class Row(msgspec.Struct, array_like=True):
    """An event as a row of a record."""

    seq: int
    at: float
    kind: str
    path: str
    body: str
    value: str | None = None

    @property
    def record(self) -> Record:
        """The row without its number and time."""
        return Record(self.kind, self.path, self.body, self.value)

    @property
    def line(self) -> Line:
        """The row as a line of an export."""
        return Line(self.seq, self.at, self.record)


class End(msgspec.Struct, omit_defaults=True):
    """The end of an attempt, of a rollback, or of an agent's launch.

    ``event``: the row of the end. ``fault``: why a launch failed, after ``took_s``. ``overdue``: it
    timed out. ``stopped``: it was cancelled. ``abandoned``: its thread was left running.
    ``launch``: a stopped launch's usage and session. ``notices``: rows to record before
    ``event``. ``queue``: the home queue of the machine that performed it.
    """

    event: Row | None = None
    fault: Any = None
    took_s: float = 0.0
    overdue: bool = False
    stopped: bool = False
    abandoned: bool = False
    launch: Any = None
    notices: list[Row] = []
    queue: str = ""


class Beat(msgspec.Struct, omit_defaults=True):
    """The details of an activity's heartbeat, for the try that follows a crash.

    ``missing``: how many workers lacked the step's code. ``stopped``: how many shut down during the
    attempt. ``notices``: the rows noticed so far. ``queue``: the home queue of its machine.
    """

    missing: int = 0
    stopped: int = 0
    notices: list[Row] = []
    queue: str = ""


class Settings(msgspec.Struct, omit_defaults=True):
    """What an attempt needs to know of its run.

    ``once``: it must not run again after a crash. ``blobs``: large values go to a store.
    """

    max_crashes: int = 5
    once: bool = False
    blobs: bool = False


class State(msgspec.Struct, omit_defaults=True):
    """A run's state. ``held``: it waits for a ``Drive`` message.

    ``suspended``: if the run can only wait for people now, the row that says what it waits for.
    ``stuck``: why workers cannot go on with its code.
    """

    suspended: Row | None = None
    paused: bool = False
    held: bool = False
    events: int = 0
    updated_at: float = 0.0
    stuck: str = ""


class Ended(msgspec.Struct, omit_defaults=True):
    """What an execution returns, or fails with: how the run ended."""

    status: str
    value: Any = None
    error: str | None = None
    events: int = 0


def with_drive(start: Start, go: Drive, **more: Any) -> Start:
    """``start`` with what a ``Drive`` message asks for."""
    return msgspec.structs.replace(
        start,
        workflow=go.workflow or start.workflow,
        reuse=go.reuse,
        rerun=go.rerun,
        cancel=go.cancel,
        on_change=go.on_change or start.on_change,
        told=go.told,
        **more,
    )


def origin_of(first: ev.Event) -> dict[str, Any]:
    """What the memo says of a run that has a record: when it began, of which run it is a fork."""
    forked = first.forked_from if isinstance(first, ev.WorkflowStarted) else None
    return {SINCE: first.at} if forked is None else {SINCE: first.at, FORKED: list(forked)}


# -- payloads --------------------------------------------------------------------------------------

_encode = msgspec.json.Encoder().encode


def raw(value: Any) -> RawValue:
    """A value as a payload of plain JSON."""
    return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=_encode(value)))


def raw_json(text: str | bytes) -> RawValue:
    """JSON text as a payload."""
    data = text.encode() if isinstance(text, str) else text
    return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=data))


def raw_bytes(data: bytes) -> RawValue:
    """Bytes as a payload."""
    return RawValue(Payload(metadata={"encoding": b"binary/plain"}, data=data))


def text_of(tree: Any) -> str:
    """Decoded JSON as text again."""
    return _encode(tree).decode()


def read(raw_value: RawValue, kind: Any) -> Any:
    """The value of a payload."""
    return msgspec.json.decode(raw_value.payload.data, type=kind)


# -- records ---------------------------------------------------------------------------------------


def row_of(event: ev.Event, codec: Codec, secrets: Mapping[str, str]) -> Row:
    """The row of an event.

    Raises:
        OutputNotSerializable: the event's value could not be read back.
    """
    return Row(event.seq, event.at, *to_record(event, codec, secrets))


def event_of(row: Row, run_id: str, codec: Codec, secrets: Mapping[str, str]) -> ev.Event:
    """The event of a row."""
    return from_record(run_id, row.seq, row.at, row.record, codec, secrets)


def pack_rows(rows: Sequence[Row]) -> list[bytes]:
    """The rows as chunks."""
    chunks: list[bytes] = []
    lines: list[bytes] = []
    size = 0
    for row in rows:
        line = _encode(row)
        if lines and size + len(line) > CHUNK_BYTES:
            chunks.append(_chunk(lines))
            lines, size = [], 0
        lines.append(line)
        size += len(line) + 1
    if lines:
        chunks.append(_chunk(lines))
    return chunks


def _chunk(lines: Iterable[bytes]) -> bytes:
    return zlib.compress(b"\n".join(lines), 1)


_row = msgspec.json.Decoder(Row)


def unpack_rows(chunks: Iterable[bytes]) -> Iterator[Row]:
    """The rows of chunks."""
    for chunk in chunks:
        yield from _row.decode_lines(zlib.decompress(chunk))


def merge_chunks(chunks: Sequence[bytes], large: int) -> list[bytes]:
    """The same rows in fewer chunks, most of at least ``large`` bytes; the last may be small."""
    found: list[bytes] = []
    small: list[bytes] = []
    for chunk in chunks:
        if len(chunk) >= large and not small:
            found.append(chunk)
            continue
        small.append(chunk)
        if sum(map(len, small)) >= large * 5 // 4:  # compressed together they shrink a little
            found.append(_chunk(map(zlib.decompress, small)))
            small = []
    return [*found, *small]
