"""``handrail show RUN``: how a recorded run stands, step by step, and what to type next."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from handrail.cli.channels import write_json
from handrail.cli.exits import Exit
from handrail.cli.journal import Place
from handrail.cli.masking import shown
from handrail.cli.origin import target_of
from handrail.cli.report import one_line
from handrail.cli.run_state import as_data, moment, state_of, told
from handrail.cli.run_steps import RecordedStep, steps_of
from handrail.cli.run_waits import Waits, waits_of
from handrail.cli.waiting import answers_to, signals_to
from handrail.engine.history import ended, history_of, incidents_of, needs_of
from handrail.model import events as ev
from handrail.model.jsonsafe import json_safe, short_repr
from handrail.model.results import Incident
from handrail.model.unresolved import Unresolved
from handrail.ports.journal import Journal, RunInfo
from handrail.sinks.console_text import ASCII, UNICODE, Glyphs, clean, duration, error_text

MOST = 40
"""Members of one group that have a line each; of the others those that did not succeed."""


def show_run(info: RunInfo, journal: Journal, place: Place, data: TextIO | None) -> int:
    """Print what is recorded of a run, for people or as JSON into ``data``; the exit code."""
    history = history_of(journal, info.run_id)
    steps = list(steps_of(history, alive=info.holder is not None))
    waits = waits_of(journal, info.run_id, history)
    if data is not None:
        write_json(_data(info, history, steps, waits), data)
        return Exit.SUCCEEDED
    _head(info, history)
    print()
    for line in _tree(steps):
        print(shown(line))
    print()
    _end(history)
    _waits(info, waits, place)
    sys.stdout.flush()
    return Exit.SUCCEEDED


def _data(
    info: RunInfo, history: Sequence[ev.Event], steps: Sequence[RecordedStep], waits: Waits
) -> dict[str, Any]:
    end = ended(history)
    letters = [{"type": type(letter).__name__, **_fields(letter)} for letter in waits.letters]
    found = json_safe({
        **as_data(info),
        "inputs": _inputs(history),
        "value": None if end is None else _plain(end.value),
        "error": None if end is None else end.error,
        "failed_step": None if end is None else end.failed_step,
        "steps": [_step_data(step) for step in steps],
        "waiting": waits.gates,
        "waiting_signals": waits.signals,
        "needs": needs_of(history),
        "incidents": incidents_of(history),
        "unread": letters,
    })  # fmt: skip
    assert isinstance(found, dict)
    return found


def _step_data(step: RecordedStep) -> dict[str, Any]:
    return {
        "path": step.path,
        "step_type": step.step_type,
        "status": step.status,
        "attempts": step.attempts,
        "duration_ms": step.duration_ms,
        "error": step.error,
        "error_type": step.error_type,
        "output": _plain(step.output),
    }


def _fields(event: ev.Event) -> Mapping[str, Any]:
    fields = json_safe(event)
    assert isinstance(fields, dict)
    return fields


def _plain(value: Any) -> Any:
    """A value whose class is not known here as it is written."""
    if isinstance(value, Unresolved):
        import json

        return json.loads(value.text)
    return value


def _inputs(history: Sequence[ev.Event]) -> Any:
    started = history[0]
    assert isinstance(started, ev.WorkflowStarted)
    return _plain(started.inputs)


# -- for people ------------------------------------------------------------------------------------


def _head(info: RunInfo, history: Sequence[ev.Event]) -> None:
    target = target_of(info.labels)
    print(f"{info.workflow_name}, run {info.run_id}: {told(info)}")
    ago = duration(max(0.0, time.time() - info.updated_at))
    rows = [("target", target)] if target else []
    rows.append(("started", moment(info.started_at)))
    rows.append(("updated", f"{moment(info.updated_at)}, {ago} ago, {info.events} events"))
    inputs = _inputs(history)
    if inputs:
        typed = ", ".join(f"{name}={short_repr(value, 60)}" for name, value in inputs.items())
        rows.append(("inputs", typed))
    for name, said in rows:
        print(shown(f"  {name:8} {said}"))


def _tree(steps: Sequence[RecordedStep]) -> list[str]:
    glyphs = _glyphs()
    lines: list[str] = []
    count: dict[str, int] = {}
    hidden: list[str] = []
    for step in steps:
        if any(step.path.startswith(f"{path}/") for path in hidden[-1:]):
            continue
        above = step.path.rpartition("/")[0]
        count[above] = count.get(above, 0) + 1
        if count[above] > MOST and step.status == "succeeded":
            hidden.append(step.path)
            continue
        lines.append(_row(step, glyphs))
    if hidden:
        lines.append(f"  {glyphs.more} {len(hidden)} more succeeded (--json lists all)")
    return lines or ["  (no step has begun)"]


def _row(step: RecordedStep, glyphs: Glyphs) -> str:
    sign = glyphs.started if step.status in {"open", "running"} else glyphs.of(step.status)
    parts = [f"{'  ' * (step.depth + 1)}{sign} {clean(step.path.rpartition('/')[2], 80)}"]
    parts.append(step.step_type)
    if step.status != "succeeded":
        parts.append(step.status)
    if step.attempts > 1:
        parts.append(f"{glyphs.times}{step.attempts}")
    if step.duration_ms is not None and step.status != "skipped":
        parts.append(duration(step.duration_ms / 1000))
    error = error_text(step.error, step.error_type)
    return "  ".join([*parts, error] if error else parts)


def _end(history: Sequence[ev.Event]) -> None:
    end = ended(history)
    if end is not None and end.error:
        print(shown(f"error: {one_line(end.error)}"))
    if end is not None and end.status == "succeeded":
        print(shown(f"value: {short_repr(_plain(end.value))}"))
    lived_through = incidents_of(history)
    if lived_through:
        print(f"failures of agents that it lived through: {len(lived_through)}")
        for incident in lived_through[-MOST:]:
            print(shown(f"  {moment(incident.at)}  {clean(incident.path)}  {_incident(incident)}"))
    for said in needs_of(history):
        print(shown(f"needs a person: {one_line(said)}"))


def _incident(incident: Incident) -> str:
    whose = f", {incident.backend}" if incident.backend else ""
    pause = f" after {duration(incident.waited_s)}" if incident.waited_s else ""
    kind = incident.kind.replace("_", " ")
    return f"{kind}{whose}; then {incident.rung}{pause}"


def _waits(info: RunInfo, waits: Waits, place: Place) -> None:
    for letter in waits.letters:
        print(shown(f"has come, and is taken when it goes on: {_letter(letter)}"))
    for gate in waits.gates:
        print(shown(f"waits for an answer: {clean(gate.question)}"))
        print(f"  {answers_to(info.run_id, gate, place)}")
    for name in waits.signals:
        print(f"waits for a signal:\n  {signals_to(info.run_id, name, place)}")
    if state_of(info) in {"dead", "suspended", "failed"}:
        for command, why in (("plan", "what a resume would do"), ("resume", "go on")):
            print(f"{f'{why}:':24}{place.command(command, info.run_id)}")
    elif info.holder is not None:
        print(f"{'watch it:':24}{place.command('tail', info.run_id)}")


def _letter(letter: ev.Event) -> str:
    by = getattr(letter, "by", None)
    who = f" by {by}" if by else ""
    match letter:
        case ev.GateAnswered():
            return f"{letter.path!r} was answered with {short_repr(letter.answer)}{who}"
        case ev.SignalReceived():
            return f"the signal {letter.name!r}{who}"
        case ev.CancelRequested():
            return f"a request to cancel it ({letter.reason})"
        case _:
            return type(letter).__name__


def _glyphs() -> Glyphs:
    encoding = (sys.stdout.encoding or "").lower()
    return UNICODE if encoding.startswith("utf") else ASCII
