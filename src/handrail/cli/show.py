"""``handrail show``, ``runs`` and ``tail``: workflows and runs on the terminal."""

from __future__ import annotations

import json
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
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
from handrail.cli.queues import counts_text
from handrail.cli.report import (
    answer_command,
    columns,
    first_lines,
    format_time,
    indented_lines,
    one_line,
    orphaned_text,
    readable,
    signal_command,
)
from handrail.cli.show_step import show_step
from handrail.cli.target import is_file, is_module, load, reaching, target_of
from handrail.model import events as ev
from handrail.model.definition import REQUIRED
from handrail.model.paths import decode_key
from handrail.model.results import A_PERSON, WaitsFor
from handrail.ports.journal import Journal, RunInfo
from handrail.record.dropped import stuck_step
from handrail.record.inbox import runs_of, with_messages
from handrail.record.live_view import GROUPS
from handrail.record.members import member_counts
from handrail.record.status import ShownStatus, shown_status
from handrail.record.view import (
    FailureCause,
    IncidentKind,
    IncidentView,
    RunView,
    Spent,
    StepView,
    exit_code_of,
)
from handrail.shortening import clean, without_codes
from handrail.sinks.console_text import ASCII, UNICODE, Glyphs, duration, error_text, path_text
from handrail.sinks.console_words import (
    at_line,
    cause_in_short,
    error_lines,
    handled_text,
    origin_from,
    printable,
    spent_text,
)
from handrail.sinks.event_words import event_text
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


MOST_MEMBERS = 40
"""The latest successful steps side by side that have a line; other steps always have one."""

MOST_OF_A_VALUE = 12
"""Lines that are shown of a text that a run returned."""


def _show_run(info: RunInfo, journal: Journal, place: Place, data: TextIO | None, step: str) -> int:
    """Print what is recorded of a run, for people or as JSON into ``data``; the exit code."""
    found = read(journal, info)
    view = found.view
    if step:
        return show_step(step, found, data)
    info = with_messages(journal, info)
    if data is not None:
        write_json({**info_data(info), **view.to_dict()}, data)
        return Exit.SUCCEEDED
    _print_head(info, view)
    print()
    for line in _tree(view.steps):
        print(mask_text(line))
    print()
    for line in _work_lines(view):
        print(mask_text(line))
    _print_end(view, alive=info.holder is not None)
    _print_waits(info, view, reaching(place, info))
    sys.stdout.flush()
    return Exit.SUCCEEDED


def _print_head(info: RunInfo, view: RunView) -> None:
    target = target_of(info.labels)
    print(f"{info.workflow_name}, run {info.run_id}: {describe_status(info)}")
    ago = duration(time.time() - info.updated_at)
    rows = [("target", target)] if target else []
    if info.forked_from is not None:
        run_id, at = info.forked_from
        rows.append(("fork of", f"{run_id} at {at}" if at else run_id))
    rows.append(("started", format_time(info.started_at)))
    rows.append(("updated", f"{format_time(info.updated_at)}, {ago} ago, {info.events} events"))
    if view.inputs:
        inputs = mask_value(view.inputs)
        typed = ", ".join(f"{name}={short_repr(value, 60)}" for name, value in inputs.items())
        rows.append(("inputs", typed))
    if view.spent.launches:
        rows.append(("agents", format_spending(view.spent)))
    for name, text in rows:
        print(mask_text(f"  {name:8} {text}"))


def _tree(steps: Sequence[StepView]) -> list[str]:
    """One or more lines for each step; of many successful ones side by side only the latest."""
    glyphs = _glyphs()
    groups = _members(steps)
    left = Counter(_above(step) for step in steps if step.state == "succeeded")
    lines: list[str] = []
    hidden: dict[str, int] = {}
    folded = ""
    for step in steps:
        if folded and step.path.startswith(f"{folded}/"):
            continue
        above = _above(step)
        if step.state == "succeeded" and left[above] > MOST_MEMBERS:
            left[above] -= 1
            hidden[above] = hidden.get(above, 0) + 1
            folded = step.path
            continue
        lines += _hidden_line(hidden.pop(above, 0), step.depth, glyphs)
        lines += _step_lines(step, glyphs, groups.get(step.path, ()))
    return lines or ["  (no step has started)"]


def _members(steps: Sequence[StepView]) -> dict[str, list[StepView]]:
    """The members of each group, by its path."""
    found: dict[str, list[StepView]] = {}
    above: list[StepView] = []
    for step in steps:
        del above[step.depth :]
        if above and above[-1].step_type in GROUPS:
            found[above[-1].path].append(step)
        if step.step_type in GROUPS:
            found[step.path] = []
        above.append(step)
    return found


def _counts(group: StepView, members: Sequence[StepView], glyphs: Glyphs) -> str:
    """How the members of a group did, and why they failed if its own error does not tell."""
    over = group.state not in {"running", "waiting", "open", "interrupted"}
    failed = (one.cause for one in members if one.state == "failed")
    reasons = Counter(None if cause is None else cause.error_type for cause in failed)
    told = reasons if over and group.cause is None else None
    states = Counter[str](one.state for one in members)
    counts = member_counts(states, group.size, over=over, reasons=told)
    return f" {glyphs.dot} ".join(text for text, _ in counts)


def _work_lines(view: RunView) -> Iterator[str]:
    """The counts of queues that are open, stopped early, or refused tasks."""
    for work in view.works:
        if not work.over or work.why_stopped is not None or work.refused:
            yield f"queue of {clean(work.path)}: {counts_text(work)}"


def _above(step: StepView) -> str:
    return step.path.rpartition("/")[0]


def _hidden_line(count: int, depth: int, glyphs: Glyphs) -> list[str]:
    margin = "  " * (depth + 1)
    return [f"{margin}{glyphs.more} {count} that succeeded (--json lists all)"] if count else []


def _step_lines(step: StepView, glyphs: Glyphs, members: Sequence[StepView] = ()) -> list[str]:
    margin = "  " * (step.depth + 1)
    sign = glyphs.started if step.state in {"open", "running"} else glyphs.of(step.state)
    name = clean(decode_key(step.path.rpartition("/")[2]), 80)
    parts = [f"{margin}{sign} {name}", step.step_type]
    if step.state != "succeeded":
        parts.append(step.state)
    if members:
        parts.append(_counts(step, members, glyphs))
    if step.attempts > 1:
        parts.append(f"{glyphs.times}{step.attempts}")
    if step.duration_ms is not None and step.state != "skipped":
        parts.append(duration(step.duration_ms / 1000))
    if step.answer is not None:
        parts.append(_answer_text(step.answer))
    if step.undone is not None:
        failed = step.undone.error
        why = "" if failed is None else error_text(failed, step.undone.error_type)
        parts.append("undone" if failed is None else f"rollback failed: {why}")
    if step.spent is not None and step.spent.launches:
        parts.append(spent_text(step.spent).removeprefix("1 launch, "))
    if step.given_by is not None:
        parts.append(f"given by {mask_text(step.given_by)}")
    if step.told:
        people = ", ".join(clean(one, 80) for one in dict.fromkeys(o.by for o in step.told))
        times = f" {glyphs.times}{len(step.told)}" if len(step.told) > 1 else ""
        parts.append(mask_text(f"guided by {people}{times}"))
    handled = mask_text(handled_text(step.state, step.handled, exit_code_of(step.output)))
    handled_parts = [handled] if handled else []
    if step.cause is None:
        return ["  ".join([*parts, *handled_parts])]
    cause = _masked(step.cause)
    if cause.inner is not None:
        return ["  ".join([*parts, origin_from(cause, step.path), *handled_parts])]
    first, *others = error_lines(cause.error, cause.error_type) or [""]
    said = [first + at_line(cause), *handled_parts] if first else handled_parts
    return ["  ".join([*parts, *said]), *(f"{margin}{one}" for one in others)]


def _answer_text(answer: ev.GateAnswered) -> str:
    by = f" by {clean(answer.by, 80)}" if answer.by else ""
    return f"answered {short_repr(mask_value(answer.answer), 60)}{by}"


def _masked(cause: FailureCause) -> FailureCause:
    """The failure, with its errors masked."""
    inner = None if cause.inner is None else _masked(cause.inner)
    return replace(cause, error=mask_text(cause.error), inner=inner)


def _print_end(view: RunView, *, alive: bool) -> None:
    end = view.end
    if end is not None and end.error:
        failed = next((one.cause for one in view.steps if one.path == end.failed_step), None)
        if failed is not None and failed.place_in(end.error) is not None:
            print(mask_text(f"failed: {cause_in_short(_masked(failed))}"))
        else:
            print("\n".join(map(printable, indented_lines(f"error: {mask_text(end.error)}"))))
    if end is not None and end.status == "succeeded":
        _print_value(end.value)
        if end.orphaned:
            print(mask_text(one_line(orphaned_text(end.orphaned))))
    for line in incident_lines(view.incidents, _glyphs(), alive=alive):
        print(mask_text(line))
    for line in denied_lines(view.denied):
        print(mask_text(line))
    for need in view.needs:
        print(mask_text(f"needs a person: {one_line(need)}"))


def _print_value(value: Any) -> None:
    held = readable(value)
    if not isinstance(held, str):
        print(mask_text(f"value: {short_repr(mask_value(held))}"))
        return
    lines = first_lines(mask_text(held), MOST_OF_A_VALUE)
    if len(lines) > 1:
        print("value:", *(f"  {printable(line)}".rstrip() for line in lines), sep="\n")
    else:
        print(f"value: {short_repr(lines[0], 500)}" if lines else "value: ''")


def _print_why_it_stands(info: RunInfo, view: RunView, place: Place) -> None:
    if view.suspended_for and view.suspended_for != "waiting" and not view.needs:
        print(mask_text(f"suspended: {one_line(view.suspended_for)}"))
    for need in info.waits_for:
        if need.kind == "person" and not need.path:
            print(mask_text(f"waits for {one_line(str(need))}"))
    if view.paused is not None:
        who = view.paused.by or A_PERSON
        print(mask_text(f"paused by {clean(who)} at {format_time(view.paused.at)}"))
        print(f"  {place.command('unpause', info.run_id)}")


def _print_waits(info: RunInfo, view: RunView, place: Place) -> None:
    when = "when it is resumed" if info.holder is None else "when the current step ends"
    for message in view.inbox:
        _print_line(f"in its inbox, read {when}: {_message_text(message)}")
    for said in view.untold:
        if said not in view.inbox:
            to = f", for {said.path!r}" if said.path else ""
            by = clean(said.by or A_PERSON)
            text = one_line(said.value)
            print(mask_text(f"guidance by {by}, not yet given to an agent{to}: {text}"))
    _print_why_it_stands(info, view, place)
    for gate in view.gates:
        until = f"   (until {format_time(gate.deadline)})" if gate.deadline is not None else ""
        print(mask_text(f"waits for an answer: {clean(gate.question)}{until}"))
        _print_line(f"  {answer_command(info.run_id, gate, place)}")
    for wait in view.signals:
        payload = " PAYLOAD" if wait.accepts is not None else ""
        print("waits for a signal:")
        _print_line(f"  {signal_command(info.run_id, wait.name, place)}{payload}")
    for time_ in view.times[:MOST_MEMBERS]:
        until = "" if time_.until is None else f" until {format_time(time_.until)}"
        claim = f"{path_text(time_.path)} waits for {time_}"
        print(mask_text(f"waits{until}: {time_text(time_)}" if until else claim))
    if len(view.times) > MOST_MEMBERS:
        print(f"  {_glyphs().more} {len(view.times) - MOST_MEMBERS} more wait for a time")
    if info.holder is None and shown_status(info) in {"dead", "suspended", "paused", "failed"}:
        end = view.end
        stuck = None if end is None else stuck_step(end.error_type, end.failed_step)
        words = () if stuck is None else ("--rerun", stuck)
        print(f"{'what a resume would do:':24}{place.command('plan', info.run_id)}")
        print(f"{'to continue:':24}{place.command('resume', info.run_id, *words)}")
    elif info.holder is not None:
        print(f"{'watch it:':24}{place.command('tail', info.run_id)}")


def _print_line(text: str) -> None:
    """Print what others wrote, without secrets and terminal codes."""
    print(without_codes(mask_text(text)))


def _message_text(message: ev.Event) -> str:
    by = getattr(message, "by", None)
    who = f" by {by}" if by else ""
    match message:
        case ev.GateAnswered():
            return f"{message.path!r} was answered with {short_repr(message.answer)}{who}"
        case ev.SignalReceived():
            return f"the signal {message.name!r}{who}"
        case ev.CancelRequested():
            return f"a request to cancel it ({message.reason})"
        case ev.RunSteered(action="guide"):
            to = f" to {message.path!r}" if message.path else ""
            return f"guidance{to}{who}: {one_line(message.value)}"
        case ev.RunSteered():
            return f"{message.action}{f' {message.path!r}' if message.path else ''}{who}"
        case ev.WorkEdited():
            return f"changes to the queue of {message.path!r}{who}"
        case _:
            return type(message).__name__


def _glyphs() -> Glyphs:
    encoding = (sys.stdout.encoding or "").lower()
    return UNICODE if encoding.startswith("utf") else ASCII


# -- status ----------------------------------------------------------------------------------------


def describe_status(info: RunInfo) -> str:
    """The status of the run, with the process that drives it."""
    holder = info.holder
    if holder is None or info.damaged:
        return shown_status(info)
    if not holder.pid:  # a cluster does not say which process
        return shown_status(info)
    where = "" if holder.host == platform.node() else f" on {holder.host}"
    return f"{shown_status(info)} (pid {holder.pid}{where})"


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


# -- spending --------------------------------------------------------------------------------------


def format_spending(spent: Spent) -> str:
    """What a run spent, and of how many launches it is unknown."""
    text = spent_text(spent)
    tokens, cost = spent.unknown_tokens, spent.unknown_cost
    if tokens and tokens == cost:
        return f"{text} ({tokens} did not report usage)"
    silent = [f"{tokens} did not report tokens"] if tokens else []
    silent += [f"{cost} did not report costs"] if cost else []
    return f"{text} ({', '.join(silent)})" if silent else text


def denied_lines(denied: Sequence[ev.SandboxDenied]) -> Iterator[str]:
    """A line for each refusal of a sandbox, of very many the latest."""
    if denied:
        yield f"refused by sandboxes: {len(denied)}"
    for event in denied[-MOST_INCIDENTS:]:
        yield f"  {clean(event.path)}  {event_text(event)}"


# -- incidents -------------------------------------------------------------------------------------


MOST_INCIDENTS = 40
SAME_CAP_S = 1800.0
"""A cap that an agent meets this soon after a wait counts as the same cap."""

_DONE: Mapping[str, str] = {
    "retry": "tried again",
    "wait": "tried again",
    "resume": "continued its session",
    "reask": "asked again in its session",
    "compact": "compacted its session and continued",
    "summarise": "continued in a new session from a summary",
    "reframe": "asked again in a new session",
    "fallback": "continued with the next backend or model",
}
_NOUNS: Mapping[IncidentKind, tuple[str, str]] = {
    "cap": ("usage cap", "usage caps"),
    "retry": ("retry", "retries"),
    "overflow": ("overflow", "overflows"),
    "re-ask": ("re-ask", "re-asks"),
    "fallback": ("fallback", "fallbacks"),
    "suspension": ("suspension", "suspensions"),
}


def incident_lines(
    incidents: Sequence[IncidentView], glyphs: Glyphs, *, alive: bool
) -> Iterator[str]:
    """A line for each incident, of very many the latest, and a summary at the end.

    ``alive``: a process drives the run.
    """
    if not incidents:
        return
    yield f"agent failures that the run recovered from: {len(incidents)}"
    if len(incidents) > MOST_INCIDENTS:
        yield f"  {glyphs.more} {len(incidents) - MOST_INCIDENTS} earlier (--json lists all)"
    latest = incidents[-MOST_INCIDENTS:]
    width = max(len(clean(one.step.path)) for one in latest)
    days = {_day(at) for one in latest for at in (one.step.at, one.over_at or one.step.due) if at}
    for one in latest:
        at = format_time(one.step.at) if len(days) > 1 else _clock(one.step.at)
        yield f"  {at}  {clean(one.step.path):{width}}  {_incident_text(one, alive=alive)}"
    yield f"in all: {incident_summary(incidents)}"


def _incident_text(one: IncidentView, *, alive: bool) -> str:
    step = one.step
    whose = f" ({clean(step.backend, 80)})" if step.backend else ""
    said = clean(mask_text(step.error), 160).removeprefix(
        f"{step.backend}: " if step.backend else ""
    )
    kind = clean(step.kind.replace("_", " "), 80)
    return f"{kind}{whose}: {said.rstrip('.')}; {_outcome_text(one, alive=alive)}"


def _outcome_text(one: IncidentView, *, alive: bool) -> str:
    step = one.step
    if step.parked:
        if one.over_at is None:
            return "suspended the run"
        waited = duration(one.over_at - step.at)
        return f"suspended the run, resumed at {_time(one.over_at, step.at)} (after {waited})"
    done = _DONE.get(step.next.rung, "tried again")
    if one.over_at is None:
        waits = "checks again at" if alive and step.kind == "usage_cap" else "waits until"
        return f"{waits} {_time(step.due, step.at)} ({duration(step.due - step.at)})"
    pause = one.over_at - step.at
    if pause >= 60:
        return f"waited until {_time(one.over_at, step.at)} ({duration(pause)}), then {done}"
    return f"{done} after {duration(pause)}" if pause >= 0.001 else done


def incident_summary(incidents: Sequence[IncidentView]) -> str:
    """``3 usage caps waited 14 h 20 min, 2 retries, 1 overflow``."""
    counts: dict[IncidentKind, int] = {}
    waits: list[tuple[float, float]] = []
    last: dict[str, IncidentView] = {}
    for one in incidents:
        before = last.get(one.step.path)
        last[one.step.path] = one
        if one.kind == "cap":
            waits.append((one.step.at, one.over_at or one.step.at))
            if before is not None and _same_cap(before, one):
                continue
        counts[one.kind] = counts.get(one.kind, 0) + 1
    waited = _seconds_covered(waits)
    parts: list[str] = []
    for kind, (one_of_it, several) in _NOUNS.items():
        count = counts.get(kind, 0)
        if count:
            said = f"{count} {one_of_it if count == 1 else several}"
            parts.append(f"{said} waited {duration(waited)}" if kind == "cap" and waited else said)
    return ", ".join(parts)


def _seconds_covered(waits: Iterable[tuple[float, float]]) -> float:
    """The total time of the waits, with time in several of them counted once."""
    total = until = 0.0
    for begun, over in sorted(waits):
        total += max(0.0, over - max(begun, until))
        until = max(until, over)
    return total


def _same_cap(before: IncidentView, one: IncidentView) -> bool:
    over = before.over_at
    return before.kind == "cap" and over is not None and one.step.at - over <= SAME_CAP_S


def _day(at: float) -> str:
    return format_time(at, "%Y-%m-%d")


def _clock(at: float) -> str:
    return format_time(at, "%H:%M:%S")


def _time(at: float, seen_from: float) -> str:
    """A time of day, with its date if ``seen_from`` is on another day."""
    if _day(at) == _day(seen_from):
        return format_time(at, "%H:%M")
    return format_time(at, "%a %d %b %H:%M")


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
        journal = place.find() if place.is_there() else None
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
    times = [format_time(at) if at else "" for at in (info.started_at, info.updated_at)]
    status = describe_status(info)
    counted = f"{info.events:>{len('EVENTS')}}"
    return (info.run_id, info.workflow_name, status, *times, counted, mask_text(_waits_text(info)))


def _waits_text(info: RunInfo) -> str:
    """The first wait of a run, and the number of its other waits."""
    if not info.waits_for:
        return ""
    first, *others = info.waits_for
    until = "" if first.until is None else f" until {format_time(first.until)}"
    match first.kind:
        case "time":
            text = f"{time_text(first)}{until}"
        case "claim":
            text = shortened_line(str(first))
        case "answer":
            text = f"an answer: {shortened_line(first.what)}{until}"
        case "signal":
            text = f"signal {clean(first.what, _WAIT_CHARS)}{until}"
        case "person":
            text = f"a person: {shortened_line(first.what)}"
        case "unpause":
            text = f"an unpause (paused by {clean(first.what, _WAIT_CHARS)})"
    return f"{text} (and {len(others)} more)" if others else text


def shortened_line(text: str) -> str:
    """The beginning of a text, in one line of a table."""
    return clean(one_line(text), _WAIT_CHARS)


def time_text(wait: WaitsFor) -> str:
    """The step that waits for a time, and why."""
    return f"{clean(wait.path, 80)} ({wait.what.replace('_', ' ')})"


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
