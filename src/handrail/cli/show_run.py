"""``handrail show RUN``: how a recorded run stands, step by step, and what to type next."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from handrail.cli.channels import write_json
from handrail.cli.exits import Exit
from handrail.cli.journal import Place
from handrail.cli.masking import shown, shown_value
from handrail.cli.report import in_lines, left_behind, one_line, readable, shortened
from handrail.cli.run_incidents import lines_of, lived_through
from handrail.cli.run_spending import Spent, in_full, in_short, launches, spent_by, total_of
from handrail.cli.run_state import moment, state_of, told
from handrail.cli.run_steps import RecordedStep, steps_of
from handrail.cli.run_waits import Waits, waits_of
from handrail.cli.show_data import inputs_of, plain, run_data
from handrail.cli.target import target_of
from handrail.cli.waiting import answers_to, signals_to
from handrail.engine.history import ended, history_of, needs_of, waited_for
from handrail.model import events as ev
from handrail.ports.journal import Journal, RunInfo
from handrail.sinks.console_text import ASCII, UNICODE, Glyphs, clean, duration
from handrail.sinks.console_words import Cause, error_lines, printable
from handrail.typed.jsonsafe import short_repr

MOST = 40
"""Members of one group that have a line each; of the others those that did not succeed."""

MOST_OF_A_VALUE = 12
"""Lines of a text that a run returned."""


def show_run(info: RunInfo, journal: Journal, place: Place, data: TextIO | None) -> int:
    """Print what is recorded of a run, for people or as JSON into ``data``; the exit code."""
    history = history_of(journal, info.run_id)
    steps = list(steps_of(history, alive=info.holder is not None))
    waits = waits_of(journal, info.run_id, history)
    spent = spent_by(history, alive=info.holder is not None)
    if data is not None:
        write_json(run_data(info, history, steps, waits, spent), data)
        return Exit.SUCCEEDED
    _head(info, history, total_of(spent))
    print()
    causes = _causes(steps)
    for line in _tree(steps, causes, spent):
        print(shown(line))
    print()
    _end(history, causes)
    _waits(info, history, waits, place)
    sys.stdout.flush()
    return Exit.SUCCEEDED


# -- for people ------------------------------------------------------------------------------------


def _head(info: RunInfo, history: Sequence[ev.Event], spent: Spent) -> None:
    target = target_of(info.labels)
    print(f"{info.workflow_name}, run {info.run_id}: {told(info)}")
    ago = duration(max(0.0, time.time() - info.updated_at))
    rows = [("target", target)] if target else []
    rows.append(("started", moment(info.started_at)))
    rows.append(("updated", f"{moment(info.updated_at)}, {ago} ago, {info.events} events"))
    inputs = inputs_of(history)
    if inputs:
        typed = ", ".join(f"{name}={short_repr(value, 60)}" for name, value in inputs.items())
        rows.append(("inputs", typed))
    if spent.launches:
        rows.append(("agents", in_full(spent)))
    for name, said in rows:
        print(shown(f"  {name:8} {said}"))


def _causes(steps: Sequence[RecordedStep]) -> dict[str, Cause]:
    """The errors of a run's steps by path, each with that of the step below that it comes from."""
    causes: dict[str, Cause] = {}
    below: dict[int, list[Cause]] = {}
    for step in reversed(steps):  # what is below before what is above it
        failed = below.pop(step.depth + 1, [])
        if step.error:
            error = shown(step.error)
            inner = next((one for one in failed if one.brings(error)), None)
            cause = Cause(step.path, step.name, error, step.error_type, inner)
            causes[step.path] = cause
            if step.status == "failed":
                below.setdefault(step.depth, []).append(cause)
    return causes


def _tree(
    steps: Sequence[RecordedStep], causes: Mapping[str, Cause], spent: Mapping[str, Spent]
) -> list[str]:
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
        lines += _rows(step, causes.get(step.path), spent.get(step.path), glyphs)
    if hidden:
        lines.append(f"  {glyphs.more} {len(hidden)} more succeeded (--json lists all)")
    return lines or ["  (no step has begun)"]


def _rows(
    step: RecordedStep, cause: Cause | None, spent: Spent | None, glyphs: Glyphs
) -> list[str]:
    margin = "  " * (step.depth + 1)
    sign = glyphs.started if step.status in {"open", "running"} else glyphs.of(step.status)
    parts = [f"{margin}{sign} {clean(step.path.rpartition('/')[2], 80)}", step.step_type]
    if step.status != "succeeded":
        parts.append(step.status)
    if step.attempts > 1:
        parts.append(f"{glyphs.times}{step.attempts}")
    if step.duration_ms is not None and step.status != "skipped":
        parts.append(duration(step.duration_ms / 1000))
    if step.answer is not None:
        parts.append(_answered(step.answer))
    if step.undone is not None:
        failed = step.undone.error
        parts.append("undone" if failed is None else f"rollback failed: {one_line(failed)}")
    if spent is not None and spent.launches:
        parts.append(_used(spent))
    if cause is not None and cause.inner is not None:
        return ["  ".join([*parts, cause.named(step.path)])]
    first, *others = error_lines(shown(step.error or ""), step.error_type) or [""]
    return ["  ".join([*parts, first] if first else parts), *(f"{margin}{one}" for one in others)]


def _used(spent: Spent) -> str:
    said = in_short(spent)
    return said if spent.launches == 1 else f"{launches(spent)}, {said}"


def _answered(answer: ev.GateAnswered) -> str:
    by = f" by {clean(answer.by, 80)}" if answer.by else ""
    return f"answered {short_repr(shown_value(plain(answer.answer)), 60)}{by}"


def _end(history: Sequence[ev.Event], causes: Mapping[str, Cause]) -> None:
    end = ended(history)
    if end is not None and end.error:
        failed = causes.get(end.failed_step or "")
        if failed is not None and failed.brings(shown(end.error)):
            print(shown(f"failed: {failed.in_short()}"))
        else:
            print("\n".join(map(printable, in_lines(f"error: {shown(end.error)}"))))
    if end is not None and end.status == "succeeded":
        _value(plain(end.value))
        if end.orphaned:
            print(shown(one_line(left_behind(end.orphaned))))
    lived = lived_through(history, time.time())
    for line in lines_of(lived, _glyphs()):
        print(shown(line))
    for said in needs_of(history):
        print(shown(f"needs a person: {one_line(said)}"))


def _value(value: Any) -> None:
    said = readable(value)
    if not isinstance(said, str):
        print(shown(f"value: {short_repr(shown_value(said))}"))
        return
    lines = shortened(shown(said), MOST_OF_A_VALUE)
    if len(lines) > 1:
        print("value:", *(f"  {printable(line)}".rstrip() for line in lines), sep="\n")
    else:
        print(f"value: {short_repr(lines[0], 500)}" if lines else "value: ''")


def _stopped_because(history: Sequence[ev.Event]) -> str:
    """Why the last drive was suspended, if it was."""
    last = next((one for one in reversed(history) if isinstance(one, _OF_DRIVES)), None)
    return last.reason if isinstance(last, ev.RunSuspended) else ""


_OF_DRIVES = (ev.WorkflowStarted, ev.RunResumed, ev.RunSuspended, ev.WorkflowCompleted)


def _waits(info: RunInfo, history: Sequence[ev.Event], waits: Waits, place: Place) -> None:
    for letter in waits.letters:
        print(shown(f"has come, and is taken when it goes on: {_letter(letter)}"))
    reason = _stopped_because(history)
    if reason and not (waits.gates or waits.signals):
        print(shown(f"suspended: {one_line(reason)}"))
    for gate in waits.gates:
        print(shown(f"waits for an answer: {clean(gate.question)}"))
        print(f"  {answers_to(info.run_id, gate, place)}")
    for name in waits.signals:
        typed = any(one is not None for one in waited_for(history, name))
        payload = " PAYLOAD" if typed else ""
        print(f"waits for a signal:\n  {signals_to(info.run_id, name, place)}{payload}")
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
