"""``handrail plan``: what a resume would do, step by step; nothing is run to find out."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from handrail import Executor
from handrail.cli.channels import json_channel, write_json
from handrail.cli.driving import DrivingExecutor
from handrail.cli.exits import Exit
from handrail.cli.journal import Place, pick_run
from handrail.cli.masking import mask_text, mask_value
from handrail.cli.options import CHANGED_STEPS, WHERE, ChangedSteps, Json, RunId, RunTarget, Where
from handrail.cli.report import change_lines, resume_commands, width_of
from handrail.cli.run_text import describe_status
from handrail.cli.target import workflow_of
from handrail.engine.parts import OnChange
from handrail.errors import StepChange
from handrail.model.plan import Plan, PlannedStep
from handrail.ports.journal import RunInfo
from handrail.sinks.console_text import path_text
from handrail.sinks.console_words import wait_text


def plan(
    run: RunId,
    /,
    *,
    changed: ChangedSteps = CHANGED_STEPS,
    target: RunTarget = None,
    as_json: Json = False,
    where: Where = WHERE,
) -> int:
    """Show what a resume would do, step by step. Runs nothing.

    Parameters
    ----------
    as_json
        Print the plan as JSON.
    """
    place, on_change = where.place(), changed.on_change
    with json_channel(wanted=as_json) as data:
        journal = place.find()
        info = pick_run(journal, run)
        workflow, place = workflow_of(info, place, target)
        executor = DrivingExecutor.of(place.executor or Executor(), journal=journal)
        reuse, rerun = changed.paths(journal, info.run_id)
        found = executor.plan_sync(info.run_id, workflow, reuse=reuse, rerun=rerun)
        if on_change is not None and found.changes:
            counted = reuse if on_change == "reuse" else rerun
            counted += [change.path for change in found.changes]
            found = executor.plan_sync(info.run_id, workflow, reuse=reuse, rerun=rerun)
        if data is None:
            _show(found, info, changed, place, on_change or executor.parts.on_change)
        else:
            write_json(found.to_dict(), data)
    return Exit.SUCCEEDED


def _show(
    found: Plan, info: RunInfo, changed: ChangedSteps, place: Place, on_change: OnChange
) -> None:
    print(f"{found.workflow_name}, run {found.run_id}: {describe_status(info)}\n")
    width = max((width_of(path_text(step.path)) for step in found.steps), default=0)
    kinds = max((len(step.step_type) for step in found.steps), default=0)
    alive = info.holder is not None
    late = _LATE["rerun" if info.forked_from is not None else on_change]
    for step, count in _fold(found.steps):
        state, remark = _state(step, alive=alive), _remark(step, late, alive=alive)
        if count > 1:
            print(f"  {state:11}  ... {count} more (--json lists all)")
            continue
        path = path_text(step.path)
        path += " " * (width - width_of(path))
        row = f"{state:11}  {path}  {step.step_type:{kinds}}  {remark}"
        print(f"  {row.rstrip()}")
        if step.state == "changed":
            for line in change_lines(StepChange(step.path, step.was, step.now)):
                print(f"  {'':11}    {line}")
    if found.waits_for:
        print()
    for wait in found.waits_for:
        print(mask_text(f"waits for {wait_text(mask_value(wait))}"))
    if alive:
        print(f"\nIt is running now. To watch it: {place.command('tail', found.run_id)}")
    else:
        fork = info.forked_from is not None
        print(f"\n{_next_text(found, changed, place, fork=fork)}")
    sys.stdout.flush()


_SHOWN = 10
"""Steps shown at the beginning, and at the end, of a long row of steps in one state."""
_LATE: Mapping[OnChange, str] = {
    "refuse": "kept if it is the same when the run reaches it, else the resume asks",
    "rerun": "kept if it is the same when the run reaches it, else it runs again",
    "reuse": "kept when the run reaches it",
}
"""What becomes of a recorded step after others that must run first."""


def _fold(steps: Sequence[PlannedStep]) -> Iterator[tuple[PlannedStep, int]]:
    """The steps, each with 1; the middle of a long row that is recorded, or that will run, is one
    of them, with how many they are.
    """
    for state, group in groupby(steps, lambda step: not step.interrupted and step.state):
        row = list(group)
        hidden = len(row) - 2 * _SHOWN
        if state not in {"recorded", "will run"} or hidden < 2:
            yield from ((step, 1) for step in row)
            continue
        yield from ((step, 1) for step in row[:_SHOWN])
        yield row[_SHOWN], hidden
        yield from ((step, 1) for step in row[-_SHOWN:])


def _state(step: PlannedStep, *, alive: bool) -> str:
    if step.interrupted:
        return "running" if alive else "interrupted"
    return step.state


def _remark(step: PlannedStep, late: str, *, alive: bool) -> str:
    if step.interrupted and alive:
        return "is running"
    if step.interrupted and step.status == "failed":
        return "was running when its process ended; it must not run twice, so it fails"
    if step.interrupted:
        return "was running when its process ended; will run again"
    if not step.reached:
        return f"{step.status}; not yet compared with the code: {late}"
    if step.state == "orphaned":
        return "recorded, but the code no longer reaches it"
    if step.state == "will run" and step.status is not None:
        return f"ends as {step.status} without running anything"
    return step.status or ""


def _next_text(found: Plan, changed: ChangedSteps, place: Place, *, fork: bool) -> str:
    run_id = found.run_id
    if found.status == "succeeded" and not changed.rerun_any:
        but = ". Changed steps make no difference" if found.changes else ""
        return f"It has succeeded. A resume returns its recorded result{but}."
    if found.changes:
        commands = resume_commands(run_id, found.changes, place, changed.words, fork=fork)
        first = "Some recorded steps have changed. "
        first += (
            "In a fork they run again, with what followed them:"
            if fork
            else "Choose what to do with them:"
        )
        return "\n  ".join([first, *commands])
    again = place.command("resume", run_id, *changed.words)
    if found.unwinds is not None:
        undone = f"rolls back {', '.join(found.undoes)} and " if found.undoes else ""
        return f"It is being cancelled ({found.unwinds}). This {undone}ends it:\n  {again}"
    if found.undoes and any(step.state == "will run" and not step.status for step in found.steps):
        return f"To continue: {again}   (it rolls back {', '.join(found.undoes)} first)"
    stopped = [step.path for step in found.steps if step.interrupted and step.status == "failed"]
    if stopped and found.ends in {None, "failed"}:
        undone = f"rolls back {', '.join(found.undoes)} and " if found.undoes else ""
        words = [word for path in stopped for word in ("--rerun", path)]
        once_more = place.command("resume", run_id, *changed.words, *words)
        fails = f"That fails the run. This {undone}ends it:\n  {again}"
        return f"{fails}\nThis runs the step once more:\n  {once_more}"
    if found.stuck is not None:
        once_more = place.command("resume", run_id, *changed.words, "--rerun", found.stuck)
        why = f"Step {found.stuck!r} failed the run, and a resume does not run it again."
        return f"{why} This does:\n  {once_more}"
    if found.undoes:
        return f"It has failed. This rolls back {', '.join(found.undoes)} and ends it:\n  {again}"
    ends = "" if found.ends is None else f"   (no step is left to run: {found.ends})"
    return f"To continue: {again}{ends}"
