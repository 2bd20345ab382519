"""``handrail show RUN PATH``: all that is recorded of one step."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TextIO, cast

from handrail.cli.channels import write_json
from handrail.cli.exits import Exit
from handrail.cli.masking import mask_text, mask_value
from handrail.cli.report import format_time, readable
from handrail.codec.unresolved import Unresolved
from handrail.errors import NotRecorded
from handrail.model import events as ev
from handrail.model.results import AgentResult, Failure, StepResult
from handrail.record.outputs import derive
from handrail.record.reading import closest_paths
from handrail.record.run_record import Recorded
from handrail.record.state import RecordedRun
from handrail.record.view import StepView, exit_code_of
from handrail.sinks.console_text import duration, error_text, path_text
from handrail.sinks.console_words import handled_text, printable
from handrail.sinks.event_words import event_text
from handrail.typed.jsonsafe import Json, json_safe


def show_step(path: str, run: RecordedRun, data: TextIO | None) -> int:
    """Print one step of a run whole: its attempts, tracebacks, output; the exit code.

    Raises:
        NotRecorded: nothing is recorded at this path.
    """
    run_id, history, steps = run.info.run_id, run.history, run.view.steps
    step = next((one for one in steps if path in {one.path, path_text(one.path)}), None)
    if step is None:
        raise NotRecorded(run_id, path, closest_paths(path, [one.path for one in steps]))
    events = [event for event in history if getattr(event, "path", None) == step.path]
    ends = [one.result for one in events if isinstance(one, (ev.StepCompleted, ev.MemberCompleted))]
    end = ends[-1] if ends and step.duration_ms is not None else None
    if end is not None and end.success and end.output is None:
        end = replace(end, output=_derived_output(history, step.path))
    if data is not None:
        write_json(_step_data(step, end, events), data)
        return Exit.SUCCEEDED
    by = "" if step.given_by is None else f"given by {step.given_by}"
    how = by or handled_text(step.state, step.handled, exit_code_of(step.output))
    parts = (f"{path}, {step.step_type} of run {run_id}: {step.state}", how)
    print(mask_text(", ".join(filter(None, parts))))
    for line in _lines(step, end, events):
        print(mask_text(line))
    sys.stdout.flush()
    return Exit.SUCCEEDED


def _derived_output(history: Sequence[ev.Event], path: str) -> Any:
    """The output of a group, a race, a branch or a member, derived from the steps below it."""
    recorded = Recorded(history)
    derive(recorded, path, history[0].run_id)
    record = recorded.at(path)
    return None if record.end is None else record.end.output


def _step_data(
    step: StepView, end: StepResult[Any] | None, events: Sequence[ev.Event]
) -> dict[str, Any]:
    attempts = [one for one in events if isinstance(one, (ev.AttemptFailed, ev.LadderStep))]
    return {
        **step.to_dict(),
        "output": _output_as_data(step, end),
        "started_at": None if end is None else end.started_at.isoformat(),
        "ended_at": None if end is None else end.ended_at.isoformat(),
        "traceback": None if end is None else end.traceback,
        "failed_attempts": [
            {"type": type(one).__name__, **cast("dict[str, Any]", json_safe(one))}
            for one in attempts
        ],
    }


def _output_as_data(step: StepView, end: StepResult[Any] | None) -> Json:
    data: Json = step.to_dict()["output"]
    return json_safe(end.output) if data is None and end is not None else data


def _lines(
    step: StepView, end: StepResult[Any] | None, events: Sequence[ev.Event]
) -> Iterator[str]:
    began = [one for one in events if isinstance(one, (ev.StepStarted, ev.MemberStarted))]
    if began:
        yield f"  started  {format_time(began[0].at)}"
    if end is not None:
        yield f"  ended    {format_time(end.at)}, after {duration(end.duration_ms / 1000)}"
    if step.attempts > 1:
        yield f"  attempts {step.attempts}"
    failed = [one for one in events if isinstance(one, (ev.AttemptFailed, ev.LadderStep))]
    for note in step.told:
        yield ""
        yield f"{format_time(note.at)}  {note.by} said, given with launch {note.launch}:"
        yield from (f"  {printable(line)}" for line in note.text.splitlines())
    for one in failed:
        yield ""
        if isinstance(one, ev.LadderStep):
            yield f"{format_time(one.at)}  a launch failed: {event_text(one)}"
        else:
            facts = Failure(one.error, one.error_type, one.error_bases, one.traceback)
            yield from _failure(f"{format_time(one.at)}  attempt {one.attempt} failed", facts)
    if end is not None and end.error and not _is_error_listed(end, failed):
        yield ""
        facts = Failure(end.error, end.error_type or "", end.error_bases, end.traceback)
        yield from _failure(end.status, facts)
    if end is not None and end.success:
        yield ""
        yield from _output(end.output)


def _is_error_listed(end: StepResult[Any], failed: Sequence[Any]) -> bool:
    """True if the step ended with the error of its last attempt."""
    return any(isinstance(one, ev.AttemptFailed) and one.error == end.error for one in failed)


def _failure(head: str, failure: Failure) -> Iterator[str]:
    yield f"{head}: {error_text(failure.error, failure.error_type, limit=2_000)}"
    for line in (failure.traceback or "").splitlines():
        yield f"    {printable(line)}"


def _output(value: Any) -> Iterator[str]:
    from rich.pretty import pretty_repr

    yield "output:"
    held: Any = value.data if isinstance(value, Unresolved) else value
    if _is_of_agent(value):
        names = (*_OF_AGENT, "output")
        is_data = isinstance(value, Unresolved)
        parts: dict[str, Any] = held if is_data else {name: getattr(held, name) for name in names}
        yield from (f"  {name:8} {parts[name]}" for name in _OF_AGENT if parts.get(name))
        held = parts["output"]
    held = readable(held)
    text = held if isinstance(held, str) else pretty_repr(mask_value(held))
    yield from (f"  {printable(line)}" for line in text.splitlines())


_OF_AGENT = ("model", "session", "backend")


def _is_of_agent(value: object) -> bool:
    if isinstance(value, Unresolved):
        return value.text.startswith('{"$":"handrail:AgentResult"')
    return isinstance(value, AgentResult)
