"""What client, workflow and steps say to one another: JSON, or a run's record in pieces.

A run's record is its events as rows (``record.rows``), the very lines of an export, packed into
*chunks*. A new execution of a run is begun with the chunks of those before it, and adds to them.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
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
"""The signal and the update by which a message comes: an answer, a cancellation, a steering."""
DRIVE = "handrail_drive"
"""The signal by which a run that is held goes on."""
REFUSE = "handrail_refuse"
"""The signal by which whoever was to answer a question says that it could not."""
RECORD = "handrail_record"
"""The query for what is recorded behind a number."""
STATE = "handrail_state"
"""The query for what a run waits for."""
LOCAL = "handrail_local"
"""The activity for what is performed where the workflow's code runs."""
LABELS, SINCE, HELD, WAITS, STATUS = "labels", "since", "held", "waits", "status"
"""What is said in lists of runs (their memo): labels; when a run began of which this is not the
first execution; how it stood, if it is not driven; for whom it waits; how it ended, if not well."""
LISTED = 20
"""So many things at most that a run waits for are said."""
DEAD = "dead"
"""That a run which is not driven has no end and was not suspended."""
CHUNK_BYTES = 512 << 10
"""So much text at most is packed into one chunk."""
MOST_BYTES = (2 << 20) - (64 << 10)
"""What a server takes in one value, with room for what is around it."""

ATTEMPT_FAILED = "AttemptFailed"
"""The type of failure by which an activity says that the user's code failed."""
FAILED = "RunFailed"
CANCELLED = "RunCancelled"
"""The types of failure by which an execution of a run ends that did not succeed."""
TOO_LARGE = "RecordTooLarge"
"""The type of failure of an execution whose record is too large to go on in another."""


class Bounds(msgspec.Struct):
    """How an execution keeps within what a server takes. They are written where a run begins, and
    hold for all of it, so that a later version of this code decides as the one did that began it.

    ``window``: so many attempts at most are in flight, of 2,000 that a server takes. ``pump``: so
    many commands are carried out in one go, for a task has two seconds. ``task_bytes``: so many
    bytes of arguments are sent in the answer to one task, of four million. From ``soft_events`` or
    ``soft_bytes`` of history on, the run goes on in a new execution as soon as nothing is in
    flight; from ``hard_events`` or ``hard_bytes`` on nothing begins until it does, for a server
    ends an execution at 51,200 events. Each execution goes through the run's record first, so one
    of a long run is longer: ``share`` of the events on record, if that is more than
    ``soft_events``. For ``gone_s`` a step waits for the machine where its session is, before it is
    begun elsewhere.
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
        """From so many events of history on, an execution of a run is long that has so many on
        record; there is always room up to ``hard_events`` for what is in flight.
        """
        return max(self.soft_events, min(self.share * recorded, self.hard_events * 0.75))


BOUNDS = Bounds(share=0.1)


class Start(msgspec.Struct, omit_defaults=True):
    """How a run is to be driven. ``workflow`` is where its code is; ``inputs`` are the codec's.

    ``limits`` and ``gates`` are those of who began it. ``resumed``: chunks follow, and the run goes
    on from there; ``reuse``, ``rerun`` and ``cancel`` as a resume has them. ``held``: it does so
    only when somebody says so. ``homes``: on which queue each session of an agent is at home.
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


class Drive(msgspec.Struct, omit_defaults=True):
    """How a run that is held goes on; ``workflow`` is where its code is, if that was not known."""

    reuse: tuple[str, ...] = ()
    rerun: tuple[str, ...] = ()
    cancel: str | None = None
    workflow: str = ""


class Refusal(msgspec.Struct):
    """Whoever was to answer the question at ``path`` could not; ``error`` as data."""

    path: str
    error: dict[str, Any]


class Row(msgspec.Struct, array_like=True):
    """An event as a record has it."""

    seq: int
    at: float
    kind: str
    path: str
    body: str
    value: str | None = None

    @property
    def record(self) -> Record:
        """The same without its number."""
        return Record(self.kind, self.path, self.body, self.value)

    @property
    def line(self) -> Line:
        """The same as a line of an export."""
        return Line(self.seq, self.at, self.record)


class End(msgspec.Struct, omit_defaults=True):
    """How an attempt ended, or a rollback, or a launch of an agent.

    ``event`` is its row. ``fault`` is why a launch failed, in ``took_s``. ``overdue``: its time was
    over. ``stopped``: as it was told to; ``abandoned``: its thread was left behind; ``launch`` what
    is known of a launch that was stopped. ``notices`` are to be recorded before. ``queue``: where
    it was performed.
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
    """What an attempt says of itself while it is at work, for the one that follows a crash.

    ``missing``: how often a worker had not its code; ``stopped``: how often one was to end.
    ``notices`` are those so far, ``queue`` that of the machine it is on.
    """

    missing: int = 0
    stopped: int = 0
    notices: list[Row] = []
    queue: str = ""


class Settings(msgspec.Struct, omit_defaults=True):
    """What an attempt is to know of its run. ``once``: it must not run again after a crash.
    ``blobs``: large values lie in a store.
    """

    max_crashes: int = 5
    once: bool = False
    blobs: bool = False


class State(msgspec.Struct, omit_defaults=True):
    """How a run stands. ``suspended`` is the event by which it would be suspended now, if nothing
    happens before somebody does something; ``held``: it waits to be driven.
    """

    suspended: Row | None = None
    paused: bool = False
    held: bool = False
    events: int = 0
    updated_at: float = 0.0


class Ended(msgspec.Struct, omit_defaults=True):
    """What an execution gives, or fails with: how the run stands, and its whole record."""

    status: str
    value: Any = None
    error: str | None = None
    events: int = 0
    record: list[str] = []


# -- payloads --------------------------------------------------------------------------------------

_encode = msgspec.json.Encoder().encode


def raw(value: Any) -> RawValue:
    """A value as a payload that people can read."""
    return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=_encode(value)))


def raw_json(text: str | bytes) -> RawValue:
    """The same of JSON text."""
    data = text.encode() if isinstance(text, str) else text
    return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=data))


def raw_bytes(data: bytes) -> RawValue:
    """Bytes as a payload."""
    return RawValue(Payload(metadata={"encoding": b"binary/plain"}, data=data))


def text_of(tree: Any) -> str:
    """JSON that was read, as text again."""
    return _encode(tree).decode()


def read(raw_value: RawValue, kind: Any) -> Any:
    """The value of a payload."""
    return msgspec.json.decode(raw_value.payload.data, type=kind)


# -- records ---------------------------------------------------------------------------------------


def row_of(event: ev.Event, codec: Codec, secrets: Mapping[str, str]) -> Row:
    """The row of an event.

    Raises:
        OutputNotSerializable: its value could not come back.
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
    """The same rows, in chunks of which all but the last are at least so large."""
    found: list[bytes] = []
    small: list[bytes] = []
    for chunk in chunks:
        if len(chunk) >= large and not small:
            found.append(chunk)
            continue
        small.append(chunk)
        if sum(map(len, small)) >= large * 5 // 4:  # together they are a little smaller
            found.append(_chunk(map(zlib.decompress, small)))
            small = []
    return [*found, *small]


def encode_chunk(chunk: bytes) -> str:
    """A chunk as base64 text, for JSON."""
    return b64encode(chunk).decode()


def decode_chunk(text: str) -> bytes:
    """The chunk of such a text."""
    return b64decode(text)
