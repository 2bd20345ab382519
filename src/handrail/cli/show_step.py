"""``handrail show RUN PATH``: all that is recorded of one step."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TextIO, cast

from handrail.cli.channels import write_json
from handrail.cli.exits import Exit
from handrail.cli.masking import mask_text
from handrail.cli.report import value_text
from handrail.codec.unresolved import Unresolved
from handrail.errors import NotRecorded
from handrail.model import events as ev
from handrail.model.results import AgentResult, StepResult
from handrail.record.guidance import given_guidance
from handrail.record.outputs import derive
from handrail.record.reading import closest_paths
from handrail.record.run_record import Recorded
from handrail.record.state import RecordedRun
from handrail.record.view import StepView, end_in
from handrail.sinks.console_text import local_text, path_text
from handrail.sinks.console_words import error_lines, handled_text, printable
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
    end = end_in(events, step)
    if end is not None and end.success and end.output is None:
        end = replace(end, output=_derived_output(history, step.path))
    if data is not None:
        write_json(_step_data(step, end, events), data)
        return Exit.SUCCEEDED
    by = "" if step.given_by is None else f"given by {step.given_by}"
    how = by or handled_text(step)
    parts = (f"{path}, {step.step_type} of run {run_id}: {step.state}", how)
    print(mask_text(", ".join(filter(None, parts))))
    for line in _lines(end, events):
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
    attempts = [event for event in events if isinstance(event, (ev.AttemptFailed, ev.LadderStep))]
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


def _lines(end: StepResult[Any] | None, events: Sequence[ev.Event]) -> Iterator[str]:
    attempts = {one.error for one in events if isinstance(one, ev.AttemptFailed)}
    for event in events:
        yield f"  {local_text(event.at)}  {event_text(event)}"
        match event:
            case ev.AttemptFailed():
                yield from _error(event.error, event.error_type, event.traceback)
            case _ if isinstance(event, ev.Ended):
                result = event.result
                if result.error not in attempts:  # else that of the last attempt
                    yield from _error(result.error, result.error_type, result.traceback)
            case ev.AgentGuided():
                texts = "\n".join(note.text for note in given_guidance(event))
                yield from (f"    {printable(line)}" for line in texts.splitlines())
            case _:
                pass
    if end is not None and end.success:
        yield ""
        yield from _output(end.output)


def _error(error: str | None, error_type: str | None, traceback: str | None) -> Iterator[str]:
    """What the line of a failure lacks: its traceback, or the other lines of its error."""
    lines = (traceback or "").splitlines() or error_lines(error, error_type, most=100)[1:]
    yield from (f"    {printable(line)}" for line in lines)


def _output(value: Any) -> Iterator[str]:
    yield "output:"
    held: Any = value.data if isinstance(value, Unresolved) else value
    if _is_of_agent(value):
        names = (*_OF_AGENT, "output")
        is_data = isinstance(value, Unresolved)
        parts: dict[str, Any] = held if is_data else {name: getattr(held, name) for name in names}
        yield from (f"  {name:8} {parts[name]}" for name in _OF_AGENT if parts.get(name))
        held = parts["output"]
    yield from (f"  {printable(line)}" for line in value_text(held).splitlines())


_OF_AGENT = ("model", "session", "backend")


def _is_of_agent(value: object) -> bool:
    if isinstance(value, Unresolved):
        return value.text.startswith('{"$":"handrail:AgentResult"')
    return isinstance(value, AgentResult)
