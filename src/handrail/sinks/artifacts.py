"""A sink that writes what happens in each run and step into files for people."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, cast

import msgspec

from handrail.errors import WrongUse
from handrail.model import events as ev
from handrail.model.folders import numbered, run_folder, step_folder
from handrail.model.results import StepResult, WorkflowResult
from handrail.secrets.masking import Mask
from handrail.shortening import shortened
from handrail.sinks.background import BackgroundWriter, append, overwrite, replace
from handrail.sinks.jsonl import line_of
from handrail.sinks.masks import Masks
from handrail.system.forks import finalize
from handrail.typed.jsonsafe import Json, json_safe

FINISH_S = 2.0
"""Seconds that the end of a drive waits for pending writes."""

_AT_EXIT_S = 10.0
_LONG_TEXT = 2_000
"""Characters of a text in a tool's input or output; ``events.jsonl`` has it whole."""
_MANY = 50
_IN_THEIR_OWN_FILES = frozenset({
    ev.StepOutput, ev.AgentMessage, ev.AgentReasoning, ev.AgentTranscript,
})  # fmt: skip


class ArtifactsSink:
    """Writes each run, while it happens, into files below ``folder`` for people to read.

    ::

        <workflow>-<run id>/
            run.json            its inputs, status and end
            events.jsonl        every event, one a line; streamed texts are in the files below
            <step path>/        a folder for each part of the path
                prompt.md       the first prompt of an agent; prompt-2.md, ... the later ones
                answer.md       its answer to the first prompt; answer-2.md, ...
                reasoning.md    its reasoning
                activity.jsonl  its tool calls, changed files and retries
                transcript.jsonl    each line that its program wrote or was sent
                stdout, stderr      the output of a program
                output.json     the step's output
                error.txt       the step's error

    A file is created with its first content. A thread writes the files, so a killed process loses
    the last moment of them. A resumed run adds to them. No run depends on them; the page shows
    them. If the disk is too slow, some contents are left out; a file of lines or output says how
    many bytes it lacks. If the disk cannot be written, ``emit`` raises.

    Before the folder of a run exceeds ``max_mb`` megabytes, or when the disk is nearly full, the
    files that were written longest ago are removed. Of ``events.jsonl`` the last lines stay, behind
    one that says so.

    Raises:
        WrongUse: ``folder`` is no path, or ``max_mb`` is not more than 0.
    """

    def __init__(self, folder: str | PathLike[str], *, max_mb: float = 1_000) -> None:
        if not max_mb > 0:
            raise WrongUse(f"max_mb of an ArtifactsSink must be more than 0, got {max_mb!r}")
        self._most_bytes = int(max_mb * 1_000_000)
        if not isinstance(cast("object", folder), (str, PathLike)):
            raise WrongUse(f"ArtifactsSink takes the path of a folder, got {folder!r}")
        self._folder = str(Path(folder).absolute())
        self._runs: dict[str, _Run] = {}
        self._masks = Masks()
        self._writer = BackgroundWriter()
        weakref.finalize(self, finalize, partial(_finish, self._writer))

    def mask_with(self, run_id: str, mask: Mask) -> None:
        """Mask the secrets of this run in its files."""
        self._masks.take(run_id, mask)

    def emit(self, event: ev.Event | ev.Progress, /) -> None:
        """Queue the event for its files.

        Raises:
            OSError: an earlier event could not be written.
        """
        mask = self._masks.of(event)
        run = self._runs.get(event.run_id)
        if run is None:
            name = getattr(event, "workflow_name", "") if _is_start_of_drive(event) else ""
            folder = f"{self._folder}/{run_folder(name, event.run_id)}"
            run = _Run(folder, BoundedFolder(folder, self._writer, self._most_bytes), mask)
            if _is_start_of_drive(event):
                self._runs[event.run_id] = run
        run.take(event)
        if isinstance(event, ev.DriveEnded):
            self._runs.pop(event.run_id, None)
            self._writer.finish(FINISH_S)

    def close(self) -> None:
        """Wait until everything is written, at most 10 s."""
        self._writer.finish(_AT_EXIT_S)


_Activity: TypeAlias = (
    ev.AgentToolStarted
    | ev.AgentToolCompleted
    | ev.AgentFinished
    | ev.AgentRetry
    | ev.AgentCompaction
    | ev.AgentPermission
)
"""What an agent did, for ``activity.jsonl``; its texts have other files."""


def _is_start_of_drive(event: ev.Event | ev.Progress) -> bool:
    return isinstance(event, ev.DriveBegan)


def _finish(writer: BackgroundWriter) -> None:
    try:
        writer.finish(_AT_EXIT_S)
    except OSError:
        return  # the sink is gone: nobody is left to raise to


class _Run:
    """The artifacts of one run. Mutable."""

    def __init__(self, folder: str, writer: BoundedFolder, mask: Mask | None) -> None:
        self._folder = folder
        self._writer = writer
        self._mask = mask
        self._turns: dict[str, _Turns] = {}

    def take(self, event: ev.Event | ev.Progress) -> None:
        """Queue the event for its files."""
        kind = type(event)
        if kind not in _IN_THEIR_OWN_FILES:
            self._writer.append(f"{self._folder}/events.jsonl", self._line(event))
        tell = self._WRITERS.get(kind)
        if tell is not None:
            tell(self, event)

    # -- texts -----------------------------------------------------------------------------------

    def _line(self, event: ev.Event | ev.Progress) -> bytes:
        """The event's line as in ``JsonlSink``, but ten times as fast if its values are plain."""
        event = _without_derived(event)
        if isinstance(event, (ev.WorkflowCompleted, ev.SubworkflowEnded)):
            event = dataclasses.replace(event, value=_as_data(event.value))
        try:
            text = _encode(event)
        except Exception:  # noqa: BLE001  # a value that JSON cannot express
            text = line_of(event, self._mask).encode()
        else:
            text = b'{"type":"%b",%b' % (type(event).__name__.encode(), text[1:])
            if self._is_not_to_be_shown(text):
                text = line_of(event, self._mask).encode()
        return text + b"\n"

    def _json(self, value: object) -> bytes:
        """The value as indented JSON."""
        try:
            text = _encode(value)
        except Exception:  # noqa: BLE001  # as above
            return self._slow_json(value)
        if self._is_not_to_be_shown(text):
            return self._slow_json(value)
        return msgspec.json.format(text, indent=2) + b"\n"

    def _is_not_to_be_shown(self, text: bytes) -> bool:
        """True if there may be a secret in it, or a field that ``json_safe`` leaves out."""
        return _ELSEWHERE in text or (self._mask is not None and self._mask.may_be_in(text))

    def _slow_json(self, value: object) -> bytes:
        data = json_safe(value)
        if self._mask is not None:
            data = self._mask.plain(data)
        return json.dumps(data, ensure_ascii=False, indent=2).encode() + b"\n"

    def _step(self, path: str, name: str) -> str:
        return f"{self._folder}/{step_folder(path)}/{name}"

    def _overwrite(self, file: str, data: bytes) -> None:
        self._writer.do(lambda: overwrite(file, data), len(data))

    # -- the run ---------------------------------------------------------------------------------

    def _started(self, event: ev.WorkflowStarted) -> None:
        self._note(
            workflow=event.workflow_name,
            run_id=event.run_id,
            status="running",
            inputs=event.inputs,
            labels=event.labels,
            started_at=event.at,
        )

    def _resumed(self, event: ev.RunResumed) -> None:
        self._note(
            workflow=event.workflow_name,
            run_id=event.run_id,
            status="running",
            resumed_at=event.at,
            ended_at=None,
            error=None,
            waiting=None,
        )

    def _suspended(self, event: ev.RunSuspended) -> None:
        waiting = [{"gate": gate.path, "question": gate.question} for gate in event.waiting]
        waiting += [{"signal": name} for name in event.signals]
        self._note(status="suspended", ended_at=event.at, waiting=waiting, reason=event.reason)

    def _completed(self, event: ev.WorkflowCompleted) -> None:
        self._note(
            status=event.status,
            ended_at=event.at,
            value=_as_data(event.value),
            error=event.error,
            failed_step=event.failed_step,
            rollback_errors=event.rollback_errors or None,
        )

    def _note(self, **facts: Any) -> None:
        """Set these fields in ``run.json``; None removes a field."""
        data = self._json(facts)
        file = f"{self._folder}/run.json"
        self._writer.do(lambda: _update(file, data), len(data))

    # -- steps -----------------------------------------------------------------------------------

    def _ended(self, event: ev.Ended) -> None:
        result: StepResult[Any] = event.result
        self._turns.pop(event.path, None)
        if isinstance(event, ev.MemberCompleted) and event.composed:
            return  # the steps inside it have written their outputs and errors
        if result.output is not None:
            data = self._json(_as_data(result.output))
            self._overwrite(self._step(event.path, "output.json"), data)
        if result.error:
            self._error(event.path, result.error, result.error_type, result.traceback)

    def _attempt_failed(self, event: ev.AttemptFailed) -> None:
        self._error(event.path, event.error, event.error_type, event.traceback)

    def _error(self, path: str, error: str, kind: str | None, traceback: str | None) -> None:
        text = f"{kind}: {error}\n" if kind else f"{error}\n"
        if traceback:
            text += f"\n{traceback.rstrip()}\n"
        self._overwrite(self._step(path, "error.txt"), _utf8(text))

    def _step_output(self, event: ev.StepOutput) -> None:
        self._writer.append(self._step(event.path, event.stream), _utf8(event.text))

    # -- agents ----------------------------------------------------------------------------------

    def _turn_started(self, event: ev.AgentTurnStarted) -> None:
        data = _utf8(event.prompt)
        turns = self._turns_of(event.path)
        self._writer.do(lambda: turns.ask(data), len(data))

    def _agent_message(self, event: ev.AgentMessage) -> None:
        data = _utf8(event.text)
        turns = self._turns_of(event.path)
        self._writer.do(lambda: turns.answer(data), len(data))

    def _tool_started(self, event: ev.AgentToolStarted) -> None:
        turns = self._turns.get(event.path)
        if turns is not None:
            self._writer.do(turns.pause, 0)
        self._append_activity(dataclasses.replace(event, input=_brief(json_safe(event.input))))

    def _tool_completed(self, event: ev.AgentToolCompleted) -> None:
        self._append_activity(dataclasses.replace(event, output=_brief(event.output)))

    def _agent_finished(self, event: ev.AgentFinished) -> None:
        if event.files_changed:
            self._append_activity(event)

    def _append_activity(self, event: _Activity) -> None:
        self._writer.append(self._step(event.path, "activity.jsonl"), self._line(event))

    def _agent_reasoning(self, event: ev.AgentReasoning) -> None:
        self._writer.append(self._step(event.path, "reasoning.md"), _utf8(event.text))

    def _turns_of(self, path: str) -> _Turns:
        turns = self._turns.get(path)
        if turns is None:
            turns = self._turns[path] = _Turns(self._step(path, ""))
        return turns

    def _transcript(self, event: ev.AgentTranscript) -> None:
        data = _utf8(event.line.rstrip("\r\n")) + b"\n"
        self._writer.append(self._step(event.path, "transcript.jsonl"), data)

    _WRITERS: ClassVar[Mapping[type, Callable[[Any, Any], None]]] = {
        ev.WorkflowStarted: _started,
        ev.RunResumed: _resumed,
        ev.RunSuspended: _suspended,
        ev.WorkflowCompleted: _completed,
        ev.StepCompleted: _ended,
        ev.MemberCompleted: _ended,
        ev.AttemptFailed: _attempt_failed,
        ev.StepOutput: _step_output,
        ev.AgentTurnStarted: _turn_started,
        ev.AgentMessage: _agent_message,
        ev.AgentReasoning: _agent_reasoning,
        ev.AgentToolStarted: _tool_started,
        ev.AgentToolCompleted: _tool_completed,
        ev.AgentFinished: _agent_finished,
        ev.AgentRetry: _append_activity,
        ev.AgentCompaction: _append_activity,
        ev.AgentPermission: _append_activity,
        ev.AgentTranscript: _transcript,
    }


class _Turns:
    """The prompts and answers of one step; only the writer's thread calls it. Mutable."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._number = 0
        self._agent_message = self._paused = False

    def ask(self, prompt: bytes) -> None:
        """Write the next prompt to a new file; files of earlier drives stay."""
        self._number += 1
        while Path(self._file("prompt.md")).exists():
            self._number += 1
        self._agent_message = False
        append(self._file("prompt.md"), prompt if prompt.endswith(b"\n") else prompt + b"\n")

    def answer(self, text: bytes) -> None:
        """Append a piece of the answer to the current prompt."""
        if self._agent_message and self._paused:
            text = b"\n\n" + text
        self._agent_message, self._paused = True, False
        append(self._file("answer.md"), text)

    def pause(self) -> None:
        """Begin a new paragraph with the next piece of the answer."""
        self._paused = True

    def _file(self, name: str) -> str:
        return f"{self._folder}{numbered(name, self._number)}"


def _update(file: str, data: bytes) -> None:
    """Merge the fields in ``data`` into the file's JSON object; a null removes a field."""
    try:
        known: dict[str, Any] = json.loads(Path(file).read_bytes())
    except (OSError, ValueError):
        known = {}
    known = {**known, **json.loads(data)}
    known = {name: fact for name, fact in known.items() if fact is not None}
    replace(file, json.dumps(known, ensure_ascii=False, indent=2).encode() + b"\n")


def _without_derived(event: ev.Event | ev.Progress) -> ev.Event | ev.Progress:
    """The event without a derived output: the steps inside have written the parts of it."""
    if isinstance(event, ev.Ended) and event.composed:
        result = dataclasses.replace(event.result, output=None)
        return dataclasses.replace(event, result=result)
    return event


def _as_data(value: object) -> object:
    """The value; of a child's result its data: it holds those of the children below many times."""
    if isinstance(value, WorkflowResult):
        return json_safe(cast("object", value))
    return value


def _brief(value: Json) -> Any:
    """The value with long texts and collections cut; ``events.jsonl`` has it whole."""
    match value:
        case str():
            return shortened(value, _LONG_TEXT)
        case list():
            return [_brief(one) for one in value[:_MANY]]
        case dict():
            return {name: _brief(one) for name, one in islice(value.items(), _MANY)}
        case _:
            return value


_encode = msgspec.json.Encoder(enc_hook=json_safe).encode
_ELSEWHERE = b'"step_results":'


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


LEAST_FREE_BYTES = 256 * 1024 * 1024
"""If the disk has less free space than this, the oldest files are removed, too."""
_OFTEN = 8
"""How often the size of a folder is checked while as much as its limit is written."""
_KEPT = 0.75
"""Fraction of the limit that stays of a folder that had grown too large."""
_CUT_BYTES = 16 * 1024 * 1024
"""How much of ``events.jsonl`` stays at most when it is cut."""


class BoundedFolder:
    """Writes files below a folder, and removes the oldest before it grows too large. Mutable.

    If a file that still grows is removed, the next append creates it again.
    """

    def __init__(self, folder: str, writer: BackgroundWriter, most_bytes: int) -> None:
        self._folder = folder
        self._writer = writer
        self._often = most_bytes // _OFTEN
        self._most = most_bytes - self._often  # what is written until the next check fits, too
        self._since = self._often  # an earlier drive may have left much

    def append(self, file: str, data: bytes) -> None:
        """Queue data to be appended to a file.

        Raises:
            OSError: an earlier write failed.
        """
        self._writer.append(file, data)
        self._note(len(data))

    def do(self, write: Callable[[], None], size_bytes: int) -> None:
        """Queue a call that writes ``size_bytes``.

        Raises:
            OSError: an earlier write failed.
        """
        self._writer.do(write, size_bytes)
        self._note(size_bytes)

    def _note(self, size: int) -> None:
        self._since += size
        if self._since >= self._often:
            self._since = 0
            self._writer.afterwards(self._folder, lambda: remove_oldest(self._folder, self._most))


def remove_oldest(folder: str, most_bytes: int) -> None:
    """Remove the files written to longest ago, if the folder is too large or the disk nearly full.

    A folder above ``most_bytes`` shrinks to three quarters of that; on a nearly full disk, to half
    of its present size if that is less. ``run.json`` always stays; ``events.jsonl`` is cut.
    """
    found: list[tuple[float, int, str]] = []
    for parent, _, names in os.walk(folder):
        for name in names:
            if name != "run.json":
                with contextlib.suppress(OSError):
                    stat = os.stat(f"{parent}/{name}")  # noqa: PTH116  # fast: there may be many
                    found.append((stat.st_mtime, stat.st_size, f"{parent}/{name}"))
    size = sum(one[1] for one in found)
    wanted = int(most_bytes * _KEPT) if size > most_bytes else size
    if found and shutil.disk_usage(folder).free < LEAST_FREE_BYTES:
        wanted = min(wanted, size // 2)
    gone = 0
    for _, bytes_, file in sorted(found):
        if size - gone <= wanted:
            break
        with contextlib.suppress(OSError):
            if file == f"{folder}/events.jsonl":
                _cut(file, bytes_ - (size - gone - wanted))
            else:
                Path(file).unlink()
            gone += bytes_


def _cut(file: str, most_bytes: int) -> None:
    """Keep the last lines of a file of events, behind one that says so."""
    with Path(file).open("rb") as lines:
        end = lines.seek(0, os.SEEK_END)
        lines.seek(max(end - max(0, min(most_bytes, _CUT_BYTES)) - 1, 0))
        lines.readline()  # its beginning is lost
        rest = lines.read()
    replace(file, _CUT + rest)


_CUT = b'{"type":"EventsRemoved","why":"the folder of the run had grown to its limit"}\n'
