"""``fork``, ``diff``, ``export``, ``import``, ``replay``, ``verify``, ``prune``: recorded runs."""

from __future__ import annotations

import difflib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from handrail import Executor
from handrail.cli.bounds import option_of
from handrail.cli.channels import json_channel, tell, write_json
from handrail.cli.exits import Exit, Refused
from handrail.cli.inputs import given_inputs, pair
from handrail.cli.journal import choose_run, pick_run
from handrail.cli.masking import mask_text, mask_value
from handrail.cli.options import (
    CHANGED_STEPS,
    DRIVING,
    KEPT,
    WHERE,
    Dir,
    Driving,
    Json,
    Kept,
    RerunFailed,
    RunId,
    RunTarget,
    Where,
    Words,
    seconds,
)
from handrail.cli.report import readable
from handrail.cli.run import Session, as_recorded, drive_again
from handrail.cli.target import load_with_executor, place_of, workflow_of
from handrail.cli.who import refuse_in_step
from handrail.journals.sqlite.care import PruneStatus
from handrail.model.folders import run_folder
from handrail.model.history import RunDiff, StepDiff
from handrail.record.view import plain
from handrail.replay_checks import replay as replay_of
from handrail.shortening import without_codes
from handrail.sinks.console_text import counted
from handrail.typed.jsonsafe import json_safe

_VALUE_LINES = 20


def fork(
    run: RunId,
    /,
    *,
    at: str | None = None,
    set_output: Annotated[list[str] | None, Parameter(name="--set")] = None,
    inputs: Annotated[list[str] | None, Parameter(name="--input")] = None,
    rerun: Words = None,
    rerun_failed: RerunFailed = False,
    run_id: str | None = None,
    no_run: bool = False,
    target: RunTarget = None,
    driving: Driving = DRIVING,
    where: Where = WHERE,
) -> int:
    """Fork a run: make a new run from its record and run it. The original does not change.

    Parameters
    ----------
    at
        Keep only the steps that had ended when this step started.
    set_output
        PATH=VALUE: give the step at PATH this output. Steps that started after it ended run again.
        Repeatable.
    inputs
        NAME=VALUE: use another input. Steps that change because of it run again. Repeatable.
    rerun
        The path of a step to run again, or a pattern such as 'items/*'; repeatable.
    rerun_failed
        Run the failed members of this group again. Without a name, and behind the run's id: those
        of all groups that collect failures.
    run_id
        The id of the new run.
    no_run
        Only make the run and print its id.
    """
    driving.refuse_labels()
    place, options = driving.place(where), driving.options()
    if no_run and options.bounds:
        typed = " and ".join(map(option_of, options.bounds))
        raise Refused(typed, "bounds a drive, and --no-run begins none", "Type it at `resume`.")
    with json_channel(wanted=options.as_json) as data:
        journal = place.find()
        info = choose_run(journal.runs(), run)
        workflow, place = workflow_of(info, place, target)
        fork_id = Executor(journal=journal, workflows=[workflow]).fork_sync(
            info.run_id,
            at=at,
            outputs=dict(pair(one, f"--set {one!r}", "PATH=VALUE") for one in set_output or ()),
            inputs=given_inputs(workflow.definition, inputs or (), {}),
            rerun=rerun or (),
            rerun_failed=rerun_failed,
            fork_id=run_id,
        )
        if no_run:
            if data is not None:
                write_json({"run_id": fork_id, "forked_from": [info.run_id, at]}, data)
            else:
                print(fork_id)
            return Exit.SUCCEEDED
        tell(f"run {fork_id} is a fork of {info.run_id}")
        made = pick_run(journal, fork_id)
        options = as_recorded(options, info.labels)
        return drive_again(made, workflow, CHANGED_STEPS, Session(options, data, place, journal))


# -- diff ------------------------------------------------------------------------------------------


def diff(
    a: RunId,
    b: RunId,
    /,
    *,
    whole: Annotated[bool, Parameter(name="--all")] = False,
    as_json: Json = False,
    kept: Kept = KEPT,
) -> int:
    """Show what differs between two runs, step by step. Exit code 1 if anything does.

    Parameters
    ----------
    whole
        Also show the steps that are the same.
    as_json
        Print the comparison as JSON.
    """
    place = kept.place()
    with json_channel(wanted=as_json) as data:
        journal = place.find()
        known = journal.runs()
        ids = [choose_run(known, name).run_id for name in (a, b)]
        found = Executor(journal=journal).diff_sync(*ids)
        if data is not None:
            write_json(found.to_dict(), data)
        else:
            for line in _diff_lines(found, whole=whole):
                print(without_codes(mask_text(line)))
    return Exit.SUCCEEDED if found.same else Exit.FAILED


_MARKS = {"same": " ", "changed": "~", "only_a": "-", "only_b": "+"}


def _diff_lines(found: RunDiff, *, whole: bool) -> Iterator[str]:
    yield f"- {found.a}"
    yield f"+ {found.b}"
    steps = [step for step in found.steps if whole or step.state != "same"]
    width = max((len(step.path) for step in steps), default=0)
    for step in steps:
        yield f"{_MARKS[step.state]} {step.path:{width}}  {_diff_text(step)}".rstrip()
        if step.state == "changed" and "output" in step.fields:
            yield from _values(step)
    alike = sum(step.state == "same" for step in found.steps)
    if found.fields:
        yield f"the runs differ in {', '.join(found.fields)}"
    yield f"{len(found.steps) - alike} of {len(found.steps)} steps differ"


def _diff_text(one: StepDiff) -> str:
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
    if before == after:  # they differ in other fields of results than their values
        before, after = _text(one.a.output), _text(one.b.output)
    lines = list(difflib.unified_diff(before, after, lineterm="", n=1))[2:]
    yield from (f"      {line}" for line in lines[:_VALUE_LINES])
    if len(lines) > _VALUE_LINES:
        yield f"      ... {len(lines) - _VALUE_LINES} lines more; --json has all"


def _text(value: Any) -> list[str]:
    value = mask_value(value)
    if isinstance(value, str):
        return value.splitlines()
    data = json_safe(plain(value, tagged=False))
    return json.dumps(data, ensure_ascii=False, indent=2).splitlines()


# -- export, import, replay ------------------------------------------------------------------------


def export(
    run: RunId,
    /,
    *,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    kept: Kept = KEPT,
) -> int:
    """Write a run to a file of JSON lines, masked as in the journal.

    Parameters
    ----------
    output
        The file to write; by default RUN.jsonl in this folder.
    """
    journal = kept.place().find()
    run_id = pick_run(journal, run).run_id
    file = output or Path(f"{run_id}.jsonl")
    try:
        Executor(journal=journal).export_sync(run_id, file)
    except OSError as error:
        raise Refused(str(file), f"cannot be written: {error.strerror}") from None
    tell(f"run {run_id} is in {file}")
    return Exit.SUCCEEDED


def import_(file: Path, /, *, run_id: str | None = None, kept: Kept = KEPT) -> int:
    """Put an exported run into the journal, and print its id.

    Parameters
    ----------
    file
        A file that `handrail export` wrote.
    run_id
        Import the run under another id.
    """
    place = kept.place()
    try:
        print(Executor(journal=place.make()).import_run_sync(file, run_id=run_id))
    except OSError as error:
        raise Refused(str(file), f"cannot be read: {error.strerror}") from None
    return Exit.SUCCEEDED


def replay(file: Path, target: str, /, *, run_id: str | None = None) -> int:
    """Check whether the workflow at TARGET still replays a recorded run. Exit code 1 if not.

    No step runs. Prints the first step that differs from the record, and its line in the code.

    Parameters
    ----------
    file
        An exported run, or a journal's file.
    target
        FILE.py, FILE.py:NAME or MODULE:NAME.
    run_id
        Which run, if the file has several.
    """
    workflow, _ = load_with_executor(target)
    try:
        report = replay_of(file, workflow, run_id=run_id)
    except OSError as error:
        raise Refused(str(file), f"cannot be read: {error.strerror}") from None
    if report.divergence is None:
        tell(f"run {report.run_id} is replayed by {target}")
        return Exit.SUCCEEDED
    print(mask_text(str(report.divergence)))
    return Exit.FAILED


# -- verify and prune ------------------------------------------------------------------------------


def verify(run: RunId | None = None, /, *, as_json: Json = False, folder: Dir = None) -> int:
    """Check the journal, or one run in it, for damage. Exit code 1 if there is any.

    Parameters
    ----------
    as_json
        Print the faults as JSON.
    """
    place = place_of(folder, reads=True)
    with json_channel(wanted=as_json) as data:
        journal = place.find_file()
        run_id = None if run is None else choose_run(journal.runs(), run).run_id
        found = journal.verify(run_id)
        if data is not None:
            write_json(json_safe(found), data)
        else:
            for fault in found:
                print(mask_text(str(fault)))
            if not found:
                tell(f"{run_id or place.file} is undamaged")
    return Exit.FAILED if found else Exit.SUCCEEDED


def prune(
    *,
    older_than: str | None = None,
    keep_last: int | None = None,
    status: Annotated[list[PruneStatus] | None, Parameter()] = None,
    artifacts: bool = False,
    dry_run: bool = False,
    folder: Dir = None,
) -> int:
    """Remove finished runs from the journal, and print how much space that freed.

    Parameters
    ----------
    older_than
        Only runs whose last event is at least this old: 30d, 12h, 2w.
    keep_last
        Keep this many of the newest runs.
    status
        Only runs with this status; repeatable. Suspended and dead runs are kept unless named here.
    artifacts
        Also remove the runs' artifact folders.
    dry_run
        Only print what would be removed.
    """
    if older_than is None and keep_last is None and not status:
        why = "needs to know which runs may go"
        raise Refused("prune", why, "Add --older-than, --keep-last or --status.")
    place = place_of(folder, reads=True)
    journal = place.find_file()
    refuse_in_step("prune", journal)
    names = {info.run_id: info.workflow_name for info in journal.runs()}
    pruned = journal.prune(
        older_than=seconds(older_than, "--older-than"),
        keep_last=keep_last,
        statuses=status or (),
        dry_run=dry_run,
    )
    freed = pruned.bytes
    for run_id in pruned.runs if artifacts else ():
        freed += _remove_folder(place.artifacts / run_folder(names[run_id], run_id), dry=dry_run)
    for run_id in pruned.runs if dry_run else ():
        print(run_id)
    would = "would be removed" if dry_run else "gone"
    tell(f"{counted(len(pruned.runs), 'run')}, {pruned.events} events, {_size(freed)}: {would}")
    return Exit.SUCCEEDED


def _remove_folder(folder: Path, *, dry: bool) -> int:
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    if not dry:
        shutil.rmtree(folder, ignore_errors=True)
    return size


def _size(count: int) -> str:
    size, unit = float(count), "bytes"
    for name in ("KiB", "MiB", "GiB"):
        if size < 1024:
            break
        size, unit = size / 1024, name
    return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
