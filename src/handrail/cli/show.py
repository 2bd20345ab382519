"""``handrail show``, ``runs`` and ``tail``: workflows and runs on the terminal."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TextIO, TypeAlias

import anyio
from cyclopts import Parameter

from handrail.cli.channels import json_channel, tell, write_json
from handrail.cli.exits import EXIT_OF, Exit, Refused
from handrail.cli.inputs import type_name
from handrail.cli.journal import (
    Place,
    choose_run,
    find_info,
    matching_runs,
    pick_run,
    read,
    require_undamaged,
)
from handrail.cli.masking import mask, mask_text, mask_value
from handrail.cli.options import WHERE, Json, RunId, Where, Words
from handrail.cli.report import columns
from handrail.cli.run_text import describe_status, run_sections
from handrail.cli.show_step import show_step
from handrail.cli.target import is_file, is_module, load, reaching, target_of
from handrail.model import events as ev
from handrail.model.definition import REQUIRED
from handrail.ports.journal import Journal, RunInfo
from handrail.record.inbox import runs_of
from handrail.record.status import ShownStatus, shown_status
from handrail.sinks.console_text import local_text
from handrail.sinks.console_words import wait_text
from handrail.typed.jsonsafe import json_safe, short_repr


def show(what: str, path: str = "", /, *, as_json: Json = False, where: Where = WHERE) -> int:
    """Show a workflow's inputs and steps, the state of a run, or one step of a run.

    Parameters
    ----------
    what
        `file.py:name` or `module:name`; or a run's id, or the beginning of it.
    path
        The path of one step of the run, to show in full: attempts, tracebacks, output.
    as_json
        Print JSON; for a workflow its `describe()`.
    """
    place = where.place(reads=True)
    if place.is_there() or not _may_be_workflow(what):
        with json_channel(wanted=as_json) as data:
            journal = place.find()
            run = _find_run(journal, what)
            if run is not None:
                return _show_run(run, journal, place, data, path)
    if path:
        raise Refused(what, "there is no such run", f"See them with: {place.command('runs')}")
    return _show_workflow(what, place, as_json=as_json)


def _may_be_workflow(what: str) -> bool:
    return _is_target(what) or is_module(what)


def _is_target(what: str) -> bool:
    return ":" in what or is_file(what)


def _find_run(journal: Journal, what: str) -> RunInfo | None:
    """The run that ``what`` names; None if it names a workflow.

    An exact id is always a run's. A text with a colon, or the name of a file, is a workflow's. Else
    it is a run's if an id begins with it, or if there is no module of this name.
    """
    run = find_info(journal, what)
    if run is not None:
        return require_undamaged(journal, run)
    runs = journal.runs()
    if _is_target(what):
        return None
    if not matching_runs(runs, what) and is_module(what):
        return None
    return require_undamaged(journal, choose_run(runs, what))


# -- a workflow ------------------------------------------------------------------------------------


def _show_workflow(target: str, place: Place, *, as_json: bool) -> int:
    """Print ``describe()`` of a workflow, for people or as JSON; the exit code."""
    workflow = load(target)
    described: Mapping[str, Any] = workflow.describe()
    if as_json:
        print(json.dumps(described, ensure_ascii=False, indent=2))
        return Exit.SUCCEEDED
    code = workflow.definition.function.__code__
    print(f"{described['name']}: {described['description'] or '(no description)'}")
    print(f"  {code.co_filename}:{code.co_firstlineno}")
    _print_section("Inputs", _input_rows(workflow.definition.parameters))
    _print_section("Steps", [(step["path"], step["kind"]) for step in described["steps"]])
    required = [one["name"] for one in described["parameters"] if one["required"]]
    typed = "".join(f" --input {name}=VALUE" for name in required)
    print(f"\n{place.command('run', target)}{typed}")
    return Exit.SUCCEEDED


def _input_rows(parameters: Sequence[Any]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for parameter in parameters:
        kind = "" if parameter.annotation is REQUIRED else type_name(parameter.annotation)
        if parameter.required:
            kind += " (required)"
        elif parameter.default is not REQUIRED:
            kind += f" = {short_repr(parameter.default)}"
        rows.append(
            (parameter.name, "  ".join(filter(None, (kind.strip(), parameter.description))))
        )
    return rows


def _print_section(title: str, rows: Sequence[tuple[str, str]]) -> None:
    if not rows:
        return
    print(f"\n{title}")
    for line in columns(rows):
        print(f"  {line}")


# -- a run -----------------------------------------------------------------------------------------


def _show_run(info: RunInfo, journal: Journal, place: Place, data: TextIO | None, step: str) -> int:
    """Print what is recorded of a run, for people or as JSON into ``data``; the exit code."""
    found = read(journal, info)
    info, view = found.info, found.view
    if step:
        return show_step(step, found, data)
    if data is not None:
        write_json({**info_data(info), **view.to_dict()}, data)
        return Exit.SUCCEEDED
    head, steps, *others = run_sections(info, view, reaching(place, info))
    print(f"{info.workflow_name}, run {info.run_id}: {describe_status(info)}")
    print(*head.lines, "", *steps.lines, "", sep="\n")
    for section in others:
        print(*section.lines, sep="\n", end="\n" * bool(section.lines))
    sys.stdout.flush()
    return Exit.SUCCEEDED


# -- a run as data ---------------------------------------------------------------------------------


def info_data(info: RunInfo) -> dict[str, Any]:
    """The run's entry as JSON data; times are unix seconds."""
    holder = info.holder
    return {
        "run_id": info.run_id,
        "workflow": info.workflow_name,
        "status": shown_status(info),
        "started_at": info.started_at,
        "updated_at": info.updated_at,
        "events": info.events,
        "target": target_of(info.labels) or None,
        "labels": dict(info.labels),
        "damaged": info.damaged or None,
        "waits_for": json_safe(info.waits_for),
        "forked_from": json_safe(info.forked_from),
        "holder": None
        if holder is None
        else {"pid": holder.pid, "host": holder.host, "since": holder.since},
    }


# -- runs and tail ---------------------------------------------------------------------------------


_HEADINGS = ("RUN", "WORKFLOW", "STATUS", "STARTED", "UPDATED", "EVENTS", "WAITS FOR")
_WAIT_CHARS = 60


def runs(
    *,
    status: Annotated[list[ShownStatus] | None, Parameter()] = None,
    workflow: Words = None,
    as_json: Json = False,
    where: Where = WHERE,
) -> int:
    """List the runs, the newest last.

    Parameters
    ----------
    status
        Only runs in this state; repeatable. `dead`: unfinished, and its process is gone.
    workflow
        Only runs of this workflow; repeatable.
    as_json
        Print a JSON list.
    """
    place = where.place(reads=True)
    with json_channel(wanted=as_json) as data:
        journal = place.find() if place.named or place.is_there() else None
        known = () if journal is None else runs_of(journal)
        found = [
            info
            for info in known
            if (not status or shown_status(info) in status)
            and (not workflow or info.workflow_name in workflow)
        ]
        if data is not None:
            write_json([info_data(info) for info in found], data)
    if found and not as_json:
        print(*columns([_HEADINGS, *map(_row, found)]), sep="\n")
        for info in found:
            if info.damaged:
                tell(f"run {info.run_id} is damaged: {info.damaged}. Its record is not used.")
    elif not found:
        none = f"no runs in {place.file}" + ("" if journal else f". {place.where_else}")
        tell(f"none of the {len(known)} runs matches" if known else none)
    return Exit.SUCCEEDED


def _row(info: RunInfo) -> tuple[str, ...]:
    times = [local_text(at) if at else "" for at in (info.started_at, info.updated_at)]
    status = describe_status(info)
    counted = f"{info.events:>{len('EVENTS')}}"
    return (info.run_id, info.workflow_name, status, *times, counted, mask_text(_waits_text(info)))


def _waits_text(info: RunInfo) -> str:
    """The first wait of a run, and the number of its other waits."""
    if not info.waits_for:
        return ""
    first, *others = info.waits_for
    text = wait_text(mask_value(first), _WAIT_CHARS)
    return f"{text} (and {len(others)} more)" if others else text


Emit: TypeAlias = Callable[[ev.Event], None]

EVERY_S = 0.1
_PAUSE_FACTOR = 3
"""The pause after reading a long run, as a multiple of the time that reading took."""


def tail(run: RunId, /, *, as_json: Json = False, where: Where = WHERE) -> int:
    """Follow a run in another process until it ends. The exit code is the run's.

    Parameters
    ----------
    as_json
        Print each event as one line of JSON.
    """
    place = where.place(reads=True)
    with json_channel(wanted=as_json) as data:
        journal = place.find()
        info = pick_run(journal, run)
        place = reaching(place, info)
        last = anyio.run(_follow, journal, info, _event_printer(data))
    match last:
        case ev.WorkflowCompleted():
            return EXIT_OF[last.status]
        case ev.RunSuspended():
            return Exit.SUSPENDED
        case _:
            resume = place.command("resume", info.run_id)
            tell(f"its process ended without recording an end. To continue: {resume}")
            return Exit.FAILED


async def _follow(journal: Journal, info: RunInfo, emit: Emit) -> ev.Event | None:
    """Emit every event of the run; return the last one, once no process drives the run."""
    seen: Sequence[ev.Event] = ()
    while True:
        began = time.monotonic()
        if info.events > len(seen):
            known = journal.events(info.run_id)
            for event in known[len(seen) :]:
                emit(event)
            seen = known
        elif info.holder is None:  # a list of runs may be older than the record
            known = journal.events(info.run_id)
            for event in known[len(seen) :]:
                emit(event)
            return known[-1] if known else None
        if info.holder is not None:
            await anyio.sleep(max(EVERY_S, _PAUSE_FACTOR * (time.monotonic() - began)))
        info = find_info(journal, info.run_id) or info


def _event_printer(data: TextIO | None) -> Emit:
    sink: Any
    if data is not None:
        from handrail.sinks.jsonl import JsonlSink

        sink = JsonlSink(data)
    else:
        from rich.console import Console

        from handrail.sinks.console import ConsoleSink

        sink = ConsoleSink(Console(soft_wrap=True), live=False)
    hidden = mask()
    return lambda event: sink.emit(hidden.value(event))
