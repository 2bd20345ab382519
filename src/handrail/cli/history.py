"""``fork``, ``diff``, ``export``, ``import``, ``replay``, ``verify`` and ``prune``: what was."""

from __future__ import annotations

import difflib
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from handrail import Executor
from handrail.cli.channels import json_channel, tell, write_json
from handrail.cli.driving import Options
from handrail.cli.exits import Exit, Refused
from handrail.cli.inputs import given_inputs
from handrail.cli.journal import Place, chosen, picked
from handrail.cli.masking import shown, shown_value
from handrail.cli.report import readable
from handrail.cli.run import Choices, Session, as_recorded, drive_again
from handrail.cli.target import load_with_executor, workflow_of
from handrail.journals.sqlite.care import PruneStatus
from handrail.model.folders import run_folder
from handrail.model.history import Fault, RunDiff, StepDiff
from handrail.record.view import plain
from handrail.replays import replay as replay_of
from handrail.typed.jsonsafe import json_safe

_VALUE_LINES = 20
_UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}


@attrs.frozen
class ForkWanted:
    """What a fork is to keep, and what is to be otherwise in it."""

    at: str | None = None
    outputs: Sequence[str] = ()
    inputs: Sequence[str] = ()
    rerun: Sequence[str] = ()
    run_id: str | None = None


def fork(
    name: str,
    wanted: ForkWanted,
    options: Options,
    place: Place,
    *,
    target: str | None,
    drives: bool,
) -> int:
    """Make a new run of another, and drive it unless it is only to be made; the exit code.

    Raises:
        HandrailError: something is wrong with what is wanted; nothing was made.
    """
    with json_channel(wanted=options.as_json) as data:
        journal = place.find()
        info = chosen(journal.runs(), name)
        workflow, place = workflow_of(info, place, target)
        place = attrs.evolve(place, target=target)
        fork_id = Executor(journal=journal, workflows=[workflow]).fork_sync(
            info.run_id,
            at=wanted.at,
            outputs=dict(_pair(word) for word in wanted.outputs),
            inputs=given_inputs(workflow.definition, wanted.inputs, None),
            rerun=wanted.rerun,
            fork_id=wanted.run_id,
        )
        if not drives:
            if data is not None:
                write_json({"run_id": fork_id, "forked_from": [info.run_id, wanted.at]}, data)
            else:
                print(fork_id)
            return Exit.SUCCEEDED
        tell(f"run {fork_id} is forked from {info.run_id}")
        made = picked(journal, fork_id)
        options = as_recorded(options, info.labels)
        return drive_again(made, workflow, Choices(), Session(options, data, place, journal))


def _pair(word: str) -> tuple[str, str]:
    path, equals, text = word.partition("=")
    if not equals or not path:
        raise Refused(f"--set {word!r}", "is not PATH=VALUE")
    return path, text


# -- diff ------------------------------------------------------------------------------------------


def diff(names: Sequence[str], place: Place, *, whole: bool, as_json: bool) -> int:
    """Print what differs between two runs; exit code 1 if anything does."""
    with json_channel(wanted=as_json) as data:
        journal = place.find()
        known = journal.runs()
        a, b = (chosen(known, name).run_id for name in names)
        found = Executor(journal=journal).diff_sync(a, b)
        if data is not None:
            write_json(found.to_dict(), data)
        else:
            for line in _diff_lines(found, whole=whole):
                print(shown(line))
    return Exit.SUCCEEDED if found.same else Exit.FAILED


_MARKS = {"same": " ", "changed": "~", "only_a": "-", "only_b": "+"}


def _diff_lines(found: RunDiff, *, whole: bool) -> Iterator[str]:
    yield f"- {found.a}"
    yield f"+ {found.b}"
    steps = [one for one in found.steps if whole or one.state != "same"]
    width = max((len(one.path) for one in steps), default=0)
    for one in steps:
        yield f"{_MARKS[one.state]} {one.path:{width}}  {_said(one)}".rstrip()
        if one.state == "changed" and "output" in one.fields:
            yield from _values(one)
    alike = sum(one.state == "same" for one in found.steps)
    if found.fields:
        yield f"the runs differ in {', '.join(found.fields)}"
    yield f"{len(found.steps) - alike} of {len(found.steps)} steps differ"


def _said(one: StepDiff) -> str:
    if one.a is None or one.b is None:
        result = one.a or one.b
        assert result is not None
        return f"{result.step_type}  {result.status}"
    parts = [
        name
        if name == "output"
        else f"{name}: {getattr(one.a, name)} -> {getattr(one.b, name)}".replace("\n", " ")[:120]
        for name in one.fields
    ]
    took = f"{one.a.duration_ms:.0f} ms, {one.b.duration_ms:.0f} ms"
    return f"{', '.join(parts) or one.a.status}  ({took})"


def _values(one: StepDiff) -> Iterator[str]:
    """The outputs, line by line, where they differ."""
    assert one.a is not None
    assert one.b is not None
    before, after = _text(readable(one.a.output)), _text(readable(one.b.output))
    if before == after:  # they differ in what results hold beside their values
        before, after = _text(one.a.output), _text(one.b.output)
    lines = list(difflib.unified_diff(before, after, lineterm="", n=1))[2:]
    yield from (f"      {line}" for line in lines[:_VALUE_LINES])
    if len(lines) > _VALUE_LINES:
        yield f"      ... {len(lines) - _VALUE_LINES} lines more; --json has all"


def _text(value: Any) -> list[str]:
    value = shown_value(value)
    if isinstance(value, str):
        return value.splitlines()
    data = json_safe(plain(value, tagged=False))
    return json.dumps(data, ensure_ascii=False, indent=2).splitlines()


# -- files -----------------------------------------------------------------------------------------


def export(name: str, file: Path | None, place: Place) -> int:
    """Write a run to a file."""
    journal = place.find()
    run_id = picked(journal, name).run_id
    file = file or Path(f"{run_id}.jsonl")
    try:
        Executor(journal=journal).export_sync(run_id, file)
    except OSError as error:
        raise Refused(str(file), f"cannot be written: {error.strerror}") from None
    tell(f"run {run_id} is in {file}")
    return Exit.SUCCEEDED


def import_run(file: Path, run_id: str | None, place: Place) -> int:
    """Put the run of a file into the journal, and print its id."""
    try:
        print(Executor(journal=place.make()).import_run_sync(file, run_id=run_id))
    except OSError as error:
        raise Refused(str(file), f"cannot be read: {error.strerror}") from None
    return Exit.SUCCEEDED


def replay(file: Path, target: str, run_id: str | None) -> int:
    """Print whether the code of a TARGET still replays a recorded run; exit code 1 if not."""
    workflow, _ = load_with_executor(target)
    try:
        report = replay_of(file, workflow, run_id=run_id)
    except OSError as error:
        raise Refused(str(file), f"cannot be read: {error.strerror}") from None
    if report.divergence is None:
        tell(f"run {report.run_id} is replayed by {target}")
        return Exit.SUCCEEDED
    print(shown(str(report.divergence)))
    return Exit.FAILED


# -- care ------------------------------------------------------------------------------------------


def verify(name: str | None, place: Place, *, as_json: bool) -> int:
    """Print what in the journal is not as it was written; exit code 1 if anything is."""
    with json_channel(wanted=as_json) as data:
        journal = place.find_file()
        run_id = None if name is None else chosen(journal.runs(), name).run_id
        found = journal.verify(run_id)
        if data is not None:
            write_json([attrs_of(one) for one in found], data)
        else:
            for fault in found:
                print(shown(str(fault)))
            if not found:
                tell(f"{run_id or place.file} is as it was written")
    return Exit.FAILED if found else Exit.SUCCEEDED


def attrs_of(fault: Fault) -> dict[str, Any]:
    """A fault as data."""
    return {"run_id": fault.run_id, "number": fault.number, "what": fault.what}


@attrs.frozen
class PruneWanted:
    """Which runs may go, and what with them."""

    older_than: str | None = None
    keep_last: int | None = None
    statuses: Sequence[PruneStatus] = ()
    artifacts: bool = False
    dry_run: bool = False


def prune(wanted: PruneWanted, place: Place) -> int:
    """Remove runs from the journal, and say what was won."""
    journal = place.find_file()
    names = {info.run_id: info.workflow_name for info in journal.runs()}
    pruned = journal.prune(
        older_than=None if wanted.older_than is None else _age(wanted.older_than),
        keep_last=wanted.keep_last,
        statuses=wanted.statuses,
        dry_run=wanted.dry_run,
    )
    freed = pruned.bytes
    for run_id in pruned.runs if wanted.artifacts else ():
        freed += _removed(place.artifacts / run_folder(names[run_id], run_id), dry=wanted.dry_run)
    for run_id in pruned.runs if wanted.dry_run else ():
        print(run_id)
    would = "would go" if wanted.dry_run else "gone"
    runs = f"{len(pruned.runs)} run{'' if len(pruned.runs) == 1 else 's'}"
    tell(f"{runs}, {pruned.events} events, {_size(freed)}: {would}")
    return Exit.SUCCEEDED


def _removed(folder: Path, *, dry: bool) -> int:
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    if not dry:
        shutil.rmtree(folder, ignore_errors=True)
    return size


def _age(text: str) -> float:
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([smhdw])", text)
    if found is None:
        raise Refused(f"--older-than {text}", "is no age", "Write 30d, 12h or 2w.")
    return float(found[1]) * _UNITS[found[2]]


def _size(count: int) -> str:
    size, unit = float(count), "bytes"
    for name in ("KiB", "MiB", "GiB"):
        if size < 1024:
            break
        size, unit = size / 1024, name
    return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
