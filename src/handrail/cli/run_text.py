"""A recorded run as text for people: titled sections of lines, in the order of ``show``.

``show`` prints the lines, ``report`` quotes them as Markdown. No line has a secret.
"""

from __future__ import annotations

import platform
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from handrail.cli.journal import Place
from handrail.cli.masking import mask_text, mask_value
from handrail.cli.queues import counts_text
from handrail.cli.report import (
    answer_command,
    first_lines,
    indented_lines,
    orphaned_text,
    signal_command,
    value_text,
)
from handrail.cli.target import target_of
from handrail.model import events as ev
from handrail.model.results import A_PERSON
from handrail.ports.journal import RunInfo
from handrail.record.dropped import stuck_step
from handrail.record.members import member_counts
from handrail.record.spending import Spent
from handrail.record.status import shown_status
from handrail.record.view import (
    FailureCause,
    IncidentKind,
    IncidentView,
    RunView,
    StepView,
)
from handrail.shortening import clean
from handrail.sinks.console_text import (
    ASCII,
    UNICODE,
    Glyphs,
    duration,
    local_text,
    path_text,
)
from handrail.sinks.console_words import (
    cause_in_short,
    printable,
    spent_text,
    step_words,
    wait_text,
)
from handrail.sinks.event_words import event_text, pause_text, rung_text, unrolled_texts
from handrail.steps.table import verb_of
from handrail.typed.jsonsafe import short_repr

MOST_MEMBERS = 40
"""The latest successful steps side by side that have a line; other steps always have one."""
MOST_OF_A_VALUE = 12
"""Lines that ``show`` prints of what a run returned."""


_MOST_OF_A_REASON = 2_000


class Section(NamedTuple):
    """Lines of one kind, with a title for forms that print one."""

    title: str
    lines: list[str]


def run_sections(
    info: RunInfo, view: RunView, place: Place, *, most_of_a_value: int = MOST_OF_A_VALUE
) -> list[Section]:
    """All that is told of a run, without its status; a section may be empty."""
    alive = info.holder is not None
    found: dict[str, Iterable[str]] = {
        "The run": _head(info, view),
        "Steps": _tree(view.steps),
        "Queues": _queues(view),
        "Failed": _failure(view),
        "Value": _value(view, most_of_a_value),
        "Incidents": incident_lines(view.incidents, _glyphs(), alive=alive),
        "Refused by sandboxes": denied_lines(view.denied),
        "Messages": _messages(view, alive=alive),
        "Needs a person": _needs(info, view, place),
        "Waits for": _times(view),
        "To continue": _commands(info, view, place),
    }
    return [Section(title, [mask_text(line) for line in lines]) for title, lines in found.items()]


def describe_status(info: RunInfo) -> str:
    """The status of the run, with the process that drives it."""
    holder = info.holder
    if holder is None or info.damaged or not holder.pid:  # a cluster does not say which process
        return shown_status(info)
    where = "" if holder.host == platform.node() else f" on {holder.host}"
    return f"{shown_status(info)} (pid {holder.pid}{where})"


def _head(info: RunInfo, view: RunView) -> Iterator[str]:
    target = target_of(info.labels)
    ago = duration(time.time() - info.updated_at)
    run_id, at = info.forked_from or ("", None)
    inputs = mask_value(view.inputs or {})
    rows = {
        "target": target,
        "fork of": f"{run_id} at {at}" if at else run_id,
        "started": local_text(info.started_at),
        "updated": f"{local_text(info.updated_at)}, {ago} ago, {info.events} events",
        "inputs": ", ".join(f"{name}={short_repr(value, 60)}" for name, value in inputs.items()),
        "agents": format_spending(view.spent) if view.spent.launches else "",
    }
    return (f"  {name:8} {clean(text, 2_000)}" for name, text in rows.items() if text)


def reason_lines(view: RunView) -> list[str]:
    """A line for each step that failed by itself."""
    causes = (step.cause for step in view.steps if step.state == "failed")
    return [
        cause_in_short(_masked(cause), _MOST_OF_A_REASON)
        for cause in causes
        if cause is not None and not cause.inner
    ]


# -- steps -----------------------------------------------------------------------------------------


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
        margin, count = "  " * (step.depth + 1), hidden.pop(above, 0)
        if count:
            lines.append(f"{margin}{glyphs.more} {count} that succeeded (--json lists all)")
        lines += _step_lines(step, margin, glyphs, groups.get(step.path, ()))
    return lines or ["  (no step has started)"]


def _members(steps: Sequence[StepView]) -> dict[str, list[StepView]]:
    """The members of each group, by its path."""
    found: dict[str, list[StepView]] = {}
    above: list[StepView] = []
    for step in steps:
        del above[step.depth :]
        if above and verb_of(above[-1].step_type).grouped:
            found[above[-1].path].append(step)
        if verb_of(step.step_type).grouped:
            found[step.path] = []
        above.append(step)
    return found


def _counts(group: StepView, members: Sequence[StepView], glyphs: Glyphs) -> str:
    """How the members of a group did, and why they failed if its own error does not tell."""
    over = group.state not in {"running", "waiting", "open", "interrupted"}
    failed = (member.cause for member in members if member.state == "failed")
    reasons = Counter(None if cause is None else cause.error_type for cause in failed)
    told = reasons if over and group.cause is None else None
    states = Counter[str](member.state for member in members)
    counts = member_counts(states, group.size, over=over, reasons=told)
    return f" {glyphs.dot} ".join(text for text, _ in counts)


def _above(step: StepView) -> str:
    return step.path.rpartition("/")[0]


def _step_lines(
    step: StepView, margin: str, glyphs: Glyphs, members: Sequence[StepView]
) -> list[str]:
    sign = glyphs.started if step.state in {"open", "running"} else glyphs.of(step.state)
    name = path_text(step.path.rpartition("/")[2])
    counts = _counts(step, members, glyphs) if members else ""
    cause = None if step.cause is None else _masked(step.cause)
    words, others = step_words(
        replace(step, cause=cause, answer=mask_value(step.answer)), glyphs, counts=counts
    )
    head = "  ".join([f"{margin}{sign} {clean(name, 80)}", step.step_type, *words])
    return [head, *(f"{margin}{line}" for line in others)]


def _masked(cause: FailureCause) -> FailureCause:
    """The failure, with its errors masked."""
    inner = None if cause.inner is None else _masked(cause.inner)
    return replace(cause, error=mask_text(cause.error), inner=inner)


def _queues(view: RunView) -> Iterator[str]:
    """The counts of queues that are open, stopped early, or refused tasks."""
    for work in view.works:
        if not work.over or work.why_stopped is not None or work.refused:
            yield f"queue of {clean(work.path)}: {counts_text(work)}"


# -- the end ---------------------------------------------------------------------------------------


def _failure(view: RunView) -> Iterator[str]:
    end = view.end
    if end is None or not end.error:
        return
    failed = next((step.cause for step in view.steps if step.path == end.failed_step), None)
    if failed is not None and failed.place_in(end.error) is not None:
        yield f"failed: {cause_in_short(_masked(failed))}"
    else:
        yield from map(printable, indented_lines(f"error: {mask_text(end.error)}"))
    yield from unrolled_texts(mask_value(end.rollback_errors))


def _value(view: RunView, most: int) -> Iterator[str]:
    end = view.end
    if end is None or end.status != "succeeded":
        return
    lines = [printable(line).rstrip() for line in first_lines(value_text(end.value), most)]
    yield "value:" if len(lines) > 1 else f"value: {''.join(lines) or repr('')}"
    yield from (f"  {line}".rstrip() for line in lines if len(lines) > 1)
    if end.orphaned:
        yield orphaned_text(end.orphaned)


# -- what it waits for -----------------------------------------------------------------------------


def _messages(view: RunView, *, alive: bool) -> Iterator[str]:
    when = "when the current step ends" if alive else "when it is resumed"
    for message in view.inbox:
        path = getattr(message, "path", "")
        about = f"{path_text(path)}: " if path else ""
        yield f"in its inbox, read {when}: {about}{event_text(mask_value(message))}"
    for guidance in view.untold:
        if guidance not in view.inbox:
            to = f", for {guidance.path!r}" if guidance.path else ""
            by, text = clean(guidance.by or A_PERSON), clean(mask_text(guidance.value), 2_000)
            yield f"guidance by {by}, not yet given to an agent{to}: {text}"


def _needs(info: RunInfo, view: RunView, place: Place) -> Iterator[str]:
    for need in view.needs:
        yield f"needs a person: {clean(mask_text(need), 2_000)}"
    if view.suspended_for and view.suspended_for != "waiting" and not view.needs:
        yield f"suspended: {clean(mask_text(view.suspended_for), 2_000)}"
    if view.paused is not None:
        by = clean(view.paused.by or A_PERSON)
        yield f"paused by {by} at {local_text(view.paused.at)}"
        yield f"  {place.command('unpause', info.run_id)}"
    gates = {gate.path: gate for gate in view.gates}
    accepts = {signal.name: signal.accepts for signal in view.signals}
    for wait in view.waits_for:
        match wait.kind:
            case "answer":
                yield f"waits for {wait_text(mask_value(wait))}"
                yield f"  {answer_command(info.run_id, gates[wait.path], place)}"
            case "signal":
                payload = "" if accepts[wait.what] is None else " PAYLOAD"
                yield f"waits for {wait_text(mask_value(wait))}"
                yield f"  {signal_command(info.run_id, wait.what, place)}{payload}"
            case _:
                pass


def _times(view: RunView) -> Iterator[str]:
    for wait in view.times[:MOST_MEMBERS]:
        who = f"{path_text(wait.path)} " if wait.kind == "claim" else ""
        yield f"{who}waits for {wait_text(mask_value(wait))}"
    if len(view.times) > MOST_MEMBERS:
        yield f"  {_glyphs().more} {len(view.times) - MOST_MEMBERS} more wait for a time"


def _commands(info: RunInfo, view: RunView, place: Place) -> Iterator[str]:
    if info.holder is not None:
        yield f"{'watch it:':24}{place.command('tail', info.run_id)}"
    elif shown_status(info) in {"dead", "suspended", "paused", "failed"}:
        end = view.end
        stuck = None if end is None else stuck_step(end.error_type, end.failed_step)
        words = () if stuck is None else ("--rerun", stuck)
        yield f"{'what a resume would do:':24}{place.command('plan', info.run_id)}"
        yield f"{'to continue:':24}{place.command('resume', info.run_id, *words)}"


def _glyphs() -> Glyphs:
    encoding = (sys.stdout.encoding or "").lower()
    return UNICODE if encoding.startswith("utf") else ASCII


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
    width = max(len(path_text(one.step.path)) for one in latest)
    days = {_day(at) for one in latest for at in (one.step.at, one.over_at or one.step.due) if at}
    for one in latest:
        at = local_text(one.step.at, "%Y-%m-%d %H:%M:%S" if len(days) > 1 else "%H:%M:%S")
        yield f"  {at}  {path_text(one.step.path):{width}}  {_incident_text(one, alive=alive)}"
    yield f"in all: {incident_summary(incidents)}"


def _incident_text(one: IncidentView, *, alive: bool) -> str:
    step = one.step
    whose = f" ({clean(step.backend, 80)})" if step.backend else ""
    error = clean(mask_text(step.error).removeprefix(f"{step.backend}: "), 160).rstrip(".")
    return f"{clean(step.kind.replace('_', ' '), 80)}{whose}: {error}; {_outcome(one, alive=alive)}"


def _outcome(one: IncidentView, *, alive: bool) -> str:
    step = one.step
    pause = (step.due if one.over_at is None else one.over_at) - step.at
    when = f"{_time(step.at + pause, step.at)} ({duration(pause)})"
    if step.parked:
        resumed = "" if one.over_at is None else f", resumed at {when.replace('(', '(after ')}"
        return f"suspended the run{resumed}"
    if one.over_at is None:
        is_tested = alive and step.kind == "usage_cap"
        return pause_text(step, f"{'at' if is_tested else 'until'} {when}", alive=alive)
    done = rung_text(step.next.rung, over=True)
    if pause >= 60:
        return f"waited until {when}, then {done}"
    return f"{done} after {duration(pause)}" if pause >= 0.001 else done


def incident_summary(incidents: Sequence[IncidentView]) -> str:
    """``3 usage caps waited 14 h 20 min, 2 retries, 1 overflow``."""
    counts = Counter[IncidentKind]()
    waits: list[tuple[float, float]] = []
    last: dict[str, IncidentView] = {}
    for incident in incidents:
        before = last.get(incident.step.path)
        last[incident.step.path] = incident
        if incident.kind == "cap":
            waits.append((incident.step.at, incident.over_at or incident.step.at))
            if before is not None and _same_cap(before, incident):
                continue
        counts[incident.kind] += 1
    waited = _seconds_covered(waits)
    parts: list[str] = []
    for kind, nouns in _NOUNS.items():
        if count := counts[kind]:
            took = f" waited {duration(waited)}" if kind == "cap" and waited else ""
            parts.append(f"{count} {nouns[count > 1]}{took}")
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
    return local_text(at, "%Y-%m-%d")


def _time(at: float, seen_from: float) -> str:
    """A time of day, with its date if ``seen_from`` is on another day."""
    return local_text(at, "%H:%M" if _day(at) == _day(seen_from) else "%a %d %b %H:%M")
