"""A run as a file of JSON lines, from which it can be put into any journal.

The first line says what the file is. Then comes a line for each event, and for each message that
the run has not read. A large value has a line of its own, once, before the first line that refers
to it. Every line ends in a checksum over itself and the one before; the last line has the number of
events and the SHA-256 of everything before it::

    {"handrail": "run", "version": 1, "run_id": "ship-1", "workflow": "ship", "crc": 1}
    {"blob": "9f86d081", "data": "...", "crc": 2}
    {"seq": 1, "at": 0.5, "kind": "WorkflowStarted", "path": "", "body": {}, "crc": 3}
    {"events": 1, "sha256": "...", "crc": 4}
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple
from zlib import crc32

import msgspec

from handrail.errors import DamagedExport
from handrail.record.rows import Record

VERSION = 1
LARGE = 16 << 10
"""Values of more characters get a line of their own, once each."""
_END = b',"crc":'
_MAKE_ONE = "`handrail export RUN` writes one"


class Line(NamedTuple):
    """An event or a message: its number and time, its record, and ``letter``, a message's key.

    ``line`` is its line number in the file.
    """

    seq: int
    at: float
    record: Record
    letter: str | None = None
    line: int = 0


class Exported(NamedTuple):
    """The content of an export."""

    run_id: str
    workflow: str
    lines: list[Line]


def export_lines(run_id: str, workflow: str, lines: Iterable[Line]) -> Iterator[bytes]:
    """The lines of the file of an exported run."""
    crc, whole, count = 0, hashlib.sha256(), 0
    for fields in _objects(run_id, workflow, lines):
        if fields is None:
            count += 1
            continue
        crc, line = _closed(fields, crc)
        whole.update(line)
        yield line
    yield _closed({"events": count, "sha256": whole.hexdigest()}, crc)[1]


def _objects(run_id: str, workflow: str, lines: Iterable[Line]) -> Iterator[dict[str, Any] | None]:
    yield {"handrail": "run", "version": VERSION, "run_id": run_id, "workflow": workflow}
    known: set[str] = set()
    for line in lines:
        kind, path, body, value = line.record
        fields: dict[str, Any] = {"seq": line.seq, "at": line.at, "kind": kind, "path": path}
        if line.letter is not None:
            fields = {"letter": line.letter, **fields}
        fields["body"] = msgspec.Raw(body.encode())
        if value is not None and len(value) > LARGE:
            name = hashlib.sha256(value.encode()).hexdigest()[:32]
            if name not in known:
                known.add(name)
                yield {"blob": name, "data": msgspec.Raw(value.encode())}
            fields["value_blob"] = name
        elif value is not None:
            fields["value"] = msgspec.Raw(value.encode())
        yield fields
        if line.letter is None:
            yield None


def _closed(fields: dict[str, Any], crc: int) -> tuple[int, bytes]:
    body = msgspec.json.encode(fields)[:-1]
    crc = crc32(body, crc)
    return crc, body + _END + str(crc).encode() + b"}\n"


class _Fields(msgspec.Struct):
    """All fields that a line may have."""

    crc: int
    handrail: str = ""
    version: int = 0
    run_id: str = ""
    workflow: str = ""
    blob: str = ""
    data: msgspec.Raw = msgspec.Raw(b"")  # it does not change
    letter: str | None = None
    seq: int = 0
    at: float = 0.0
    kind: str = ""
    path: str = ""
    body: msgspec.Raw = msgspec.Raw(b"{}")
    value: msgspec.Raw = msgspec.Raw(b"")
    value_blob: str = ""
    events: int = -1
    sha256: str = ""


_decoder = msgspec.json.Decoder(_Fields)


def read_export(file: str, stream: BinaryIO) -> Exported:
    """The content of a file, after its checksums are verified.

    The first line that is no line of an export is the last one that is read.

    Raises:
        DamagedExport: a line is not as it was written, or the file is of another format; with the
            number of the line.
    """
    crc, whole, blobs = 0, hashlib.sha256(), dict[str, str]()
    exported: Exported | None = None
    number, count = 0, 0
    for number, line in enumerate(_lines_of(stream), 1):
        fields = _fields(file, number, line, crc)
        crc = fields.crc
        if number == 1:
            exported = _begun(file, fields)
        elif exported is None or fields.handrail:
            raise DamagedExport(file, number, "another file begins here")
        elif fields.events >= 0:
            if fields.events != count or fields.sha256 != whole.hexdigest():
                raise DamagedExport(file, number, "lines before it are missing")
            if stream.read(1):
                raise DamagedExport(file, number + 1, "something stands behind its end")
            return exported
        elif fields.blob:
            blobs[fields.blob] = _text(fields.data)
        else:
            count += fields.letter is None
            if fields.letter is None and fields.seq != count:
                raise DamagedExport(file, number, f"event {count} is missing")
            exported.lines.append(_line(file, number, fields, blobs))
        whole.update(line)
    raise DamagedExport(file, number + 1, "it ends before its end")


def _lines_of(stream: BinaryIO) -> Iterator[bytes]:
    """Its lines; of a first one that is too long only the beginning, so that another file than an
    export is not read as one line without an end.
    """
    if first := stream.readline(LARGE):
        yield first
        yield from stream


def _fields(file: str, number: int, line: bytes, before: int) -> _Fields:
    body, _, _ = line.rpartition(_END)
    try:
        fields = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedExport(file, number, f"it is no line of an export ({error})") from None
    if crc32(body, before) != fields.crc:
        raise DamagedExport(file, number, "it is not as it was written, or not in its place")
    return fields


def _begun(file: str, fields: _Fields) -> Exported:
    if fields.handrail != "run":
        raise DamagedExport(file, 1, "it is no export of a run", _MAKE_ONE)
    if fields.version != VERSION:
        made = f"its format is version {fields.version}, this handrail knows version {VERSION}"
        raise DamagedExport(file, 1, made, "Read it with the handrail that wrote it")
    return Exported(fields.run_id, fields.workflow, [])


def _line(file: str, number: int, fields: _Fields, blobs: dict[str, str]) -> Line:
    value: str | None = _text(fields.value) or None
    if fields.value_blob:
        value = blobs.get(fields.value_blob)
        if value is None:
            raise DamagedExport(file, number, f"the value {fields.value_blob} is missing")
    record = Record(fields.kind, fields.path, _text(fields.body), value)
    return Line(fields.seq, fields.at, record, fields.letter, number)


def _text(raw: msgspec.Raw) -> str:
    return bytes(raw).decode()
