"""Exports runs from a journal to files, and imports them."""

from __future__ import annotations

import fcntl
import os
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Literal, Union, cast, get_args, get_origin

from handrail.codec.codec import Codec
from handrail.errors import DamagedExport, OutputNotSerializable
from handrail.model import events as ev
from handrail.model.results import StepResult
from handrail.ports.journal import IMPORTED, Journal, Letter, Message
from handrail.record.exports import Line, export_lines, read_export
from handrail.record.inbox import without_message_number
from handrail.record.outputs import steps_of
from handrail.record.reading import workflow_named
from handrail.record.results import tree_order
from handrail.record.rows import UnreadableRecord, from_record, missing_secrets, to_record
from handrail.record.run_record import Recorded
from handrail.secrets.values import SecretValues
from handrail.system.own_files import open_private
from handrail.system.sqlite import file_identity
from handrail.typed.schema import hints_of


def with_placeholders(secrets: SecretValues, missing: Sequence[str]) -> SecretValues:
    """The secrets, with a unique value for each missing variable: so a history that is written
    again has the same references to secrets.
    """
    unset = {name: f"{name} is not set: {os.urandom(8).hex()}" for name in missing}
    return SecretValues({**secrets, **unset}) if unset else secrets


def export_to(
    file: Path, journal: Journal, history: Sequence[ev.Event], secrets: Mapping[str, str]
) -> None:
    """Write a run to a file, which appears only once it is complete; a link or a pipe stays one."""
    name = workflow_named(history)
    lines = export_lines(history[0].run_id, name, _lines(journal, history, secrets))
    if file.exists() and not file.is_file():
        with file.open("wb") as stream:
            stream.writelines(lines)
        return
    file = file.resolve()
    beside = file.with_name(f".{file.name}.part")
    with _locked(beside) as stream:
        try:
            stream.writelines(lines)
            stream.flush()
            beside.replace(file)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise


def _locked(file: Path) -> BinaryIO:
    """The file, empty, for this writer alone until it is closed. It may be there already: a writer
    that was killed left it.
    """
    while True:
        stream = cast("BinaryIO", open_private(file, "ab"))
        fcntl.flock(stream, fcntl.LOCK_EX)
        status = os.fstat(stream.fileno())
        if file_identity(file) == (status.st_dev, status.st_ino):
            stream.truncate(0)
            return stream
        stream.close()  # whoever had the lock has renamed or removed it


def _lines(
    journal: Journal, history: Sequence[ev.Event], secrets: Mapping[str, str]
) -> Iterator[Line]:
    for event in history:
        if isinstance(event, ev.WorkflowStarted) and IMPORTED in event.labels:
            labels = {name: text for name, text in event.labels.items() if name != IMPORTED}
            event = replace(event, labels=labels)  # noqa: PLW2901  # whoever reads it notes it
        yield Line(event.seq, event.at, to_record(event, journal.codec, secrets))
    recorded = Recorded(history)
    for letter in journal.letters(recorded.run_id, recorded.last_message):
        record = to_record(letter.event, journal.codec, secrets)
        yield Line(letter.number, letter.event.at, record, letter.key)


def import_from(file: Path, journal: Journal, run_id: str | None, secrets: SecretValues) -> str:
    """Put the run of a file into a journal, all or nothing; returns its id.

    Raises:
        DamagedExport: the file is not as it was written. RunIdTaken: the journal has such a run.
    """
    with file.open("rb") as stream:
        exported = read_export(str(file), stream)
    run_id = run_id or exported.run_id
    missing = {name for line in exported.lines for name in missing_secrets(line.record, secrets)}
    secrets = with_placeholders(secrets, sorted(missing))
    events = [_event(str(file), run_id, line, journal.codec, secrets) for line in exported.lines]
    run = [event for event, line in zip(events, exported.lines, strict=True) if line.letter is None]
    if not run or not isinstance(run[0], ev.WorkflowStarted):
        raise DamagedExport(str(file), 2, "it holds no run")
    run[0] = replace(run[0], labels={**run[0].labels, IMPORTED: file.name})
    wrong = find_unsound(run)
    if wrong is not None:
        lines = [line.line for line in exported.lines if line.letter is None]
        raise DamagedExport(str(file), lines[wrong[0]], wrong[1])
    letters = [
        _letter(str(file), line, event, journal.codec, secrets)
        for event, line in zip(events, exported.lines, strict=True)
        if line.letter is not None
    ]
    try:
        journal.append_run(run, letters=letters, secrets=secrets)
    except OutputNotSerializable as error:
        raise DamagedExport(str(file), exported.lines[-1].line, _unrecordable_text(error)) from None
    return run_id


def _event(
    file: str, run_id: str, line: Line, codec: Codec, secrets: Mapping[str, str]
) -> ev.Event:
    try:
        return without_message_number(
            from_record(run_id, line.seq, line.at, line.record, codec, secrets)
        )
    except (UnreadableRecord, RecursionError) as error:
        raise DamagedExport(file, line.line, str(error)) from None


def _letter(
    file: str, line: Line, event: ev.Event, codec: Codec, secrets: Mapping[str, str]
) -> Letter:
    if not isinstance(event, get_args(Message)) or find_unsound([event]) is not None:
        raise DamagedExport(file, line.line, "it is no message to a run")
    try:
        to_record(event, codec, secrets)
    except OutputNotSerializable as error:
        raise DamagedExport(file, line.line, _unrecordable_text(error)) from None
    return Letter(cast("Message", event), line.letter or "")


def _unrecordable_text(error: OutputNotSerializable) -> str:
    return f"a value up to here was never recorded so: {error.why}"


_OF_THE_RUN = (ev.LimitReached, ev.RunSteered)
"""Events that may have an empty path: they concern the run itself."""


def find_unsound(history: Sequence[ev.Event]) -> tuple[int, str] | None:
    """The index of an event that no run can have recorded, and why; None if all are sound.

    A journal trusts its own records by their checksums. For a file anybody can compute checksums.
    """
    for place, event in enumerate(history):
        wrong = _misfit(event) or _uncounted(event, len(history))
        if wrong is None and place and isinstance(event, ev.WorkflowStarted):
            wrong = "the run begins a second time"
        if not getattr(event, "path", "run") and not isinstance(event, _OF_THE_RUN):
            wrong = "it is of no step"
        if wrong is not None:
            return place, wrong
    try:
        tree_order(*steps_of(Recorded(history)))
    except Exception as error:  # noqa: BLE001  # a missing event may raise anywhere
        return len(history) - 1, f"what it says of its steps does not go together ({error!r})"
    return None


def _misfit(event: Any) -> str | None:
    for name, wanted in _plain_fields(event.__class__):
        value = getattr(event, name)
        if not isinstance(value, wanted):
            return f"its {name} is {type(value).__name__}"
    result = getattr(event, "result", None)
    return _misfit(result) if isinstance(result, StepResult) else None


def _uncounted(event: Any, count: int) -> str | None:
    """Why an attempt number is impossible, or None: each attempt but the last has an event."""
    of = getattr(event, "result", event)
    attempts = max(getattr(of, "attempts", 0), getattr(of, "attempt", 0))
    return f"{attempts} attempts are more than the run has events" if attempts > count else None


@cache
def _plain_fields(kind: Any, /) -> tuple[tuple[str, tuple[type, ...]], ...]:
    """The plain-data fields of an event or result class, each with the classes of its values."""
    hints = hints_of(kind)
    members = ((field.name, tuple(_classes(hints.get(field.name)))) for field in fields(kind))
    return tuple((name, classes) for name, classes in members if classes)


def _classes(hint: Any) -> Iterator[type]:
    """The classes that values of a plain-data type have; none for any other type."""
    if hint in {str, int, bool, type(None)}:
        yield hint
    elif hint is float:
        yield from (float, int)
    elif get_origin(hint) is Literal:
        yield from {type(value) for value in get_args(hint)}
    elif get_origin(hint) is tuple:
        yield tuple
    elif get_origin(hint) in {Union, types.UnionType}:
        parts = [list(_classes(part)) for part in get_args(hint)]
        yield from (cls for classes in parts for cls in classes if all(parts))
