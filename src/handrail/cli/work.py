"""``handrail work``: the queues of a run, seen and changed, wherever it is driven."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from handrail import Executor
from handrail.cli.answer import payload_of, tell_who_goes_on, whoever, write_said
from handrail.cli.channels import json_channel, write_json
from handrail.cli.exits import Exit, Refused
from handrail.cli.journal import Place, picked
from handrail.cli.masking import shown
from handrail.cli.target import workflow_of
from handrail.model.events import Event, WorkEdited
from handrail.model.results import A_PERSON
from handrail.model.work import Task
from handrail.ports.journal import Journal, RunInfo
from handrail.record.reading import history_of
from handrail.record.standing import read_run
from handrail.record.work_view import WorkView
from handrail.shortening import clean
from handrail.work.orchestrator import recorded_flow

_MOST = 8
"""So many ids are told of each sort."""


@dataclass(frozen=True)
class Edits:
    """What was typed."""

    add: Sequence[str]
    drop: Sequence[str]
    priority: Sequence[str]

    def __bool__(self) -> bool:
        return bool(self.add or self.drop or self.priority)

    def tasks(self) -> tuple[list[Task], dict[str, float]]:
        """The tasks to add, and the new priorities of others.

        Raises:
            HandrailError: it cannot be read.
        """
        moved = dict(map(_priority, self.priority))
        tasks: list[Task] = []
        for typed in self.add:
            name, given, text = typed.partition("=")
            payload = payload_of(text) if given else None
            tasks.append(Task(name, payload, moved.pop(name, 0.0)))
        return tasks, moved


def _priority(typed: str) -> tuple[str, float]:
    name, _, number = typed.rpartition("=")
    try:
        return name, float(number)
    except ValueError:
        raise Refused(f"--priority {typed}", "takes ID=N, with a number") from None


def work(
    name: str,
    edits: Edits,
    step: str | None,
    place: Place,
    target: str | None,
    *,
    by: str | None,
    as_json: bool,
) -> int:
    """Show the queues of a run, or change one.

    Raises:
        HandrailError: there is no such run, step or task, or it does not take this.
    """
    with json_channel(wanted=as_json) as data:
        journal = place.find()
        info = picked(journal, name)
        if not edits:
            view = read_run(journal, info, time.time()).view
            works = [one for one in view.works if step in {None, one.path}]
            if data is not None:
                write_json([one.to_dict() for one in works], data)
            else:
                lines = [*told(works), *_not_read_yet(view.inbox, step)]
                print("\n".join(lines) or f"run {info.run_id} has no queue")
            sys.stdout.flush()
            return Exit.SUCCEEDED
        who, (add, priority) = by or whoever(), edits.tasks()
        flow = recorded_flow(history_of(journal, info.run_id)) if target is None else None
        if flow is None:
            flow, _ = workflow_of(info, place, target)
        executor = Executor(journal=journal, workflows=[flow])
        executor.edit_work_sync(
            info.run_id, step, add=add, drop=edits.drop, priority=priority, by=who
        )
        done = {
            "added": [one.id for one in add],
            "dropped": list(edits.drop),
            "priority": {**priority, **{one.id: one.priority for one in add if one.priority}},
        }
        write_said(data, {"run_id": info.run_id, **done}, by=who)
        if data is None:
            for line in _done(add, edits.drop, priority):
                print(shown(f"{line}, by {who}"))
        tell_who_goes_on(journal, info, place)
    return Exit.SUCCEEDED


def works_in(journal: Journal, info: RunInfo) -> tuple[WorkView, ...]:
    """The queues of a run, by its record."""
    return read_run(journal, info, time.time()).view.works


def _not_read_yet(inbox: Sequence[Event], step: str | None) -> Iterator[str]:
    """The edits that the run has not read: its queue does not show them."""
    for event in inbox:
        if isinstance(event, WorkEdited) and step in {None, event.path}:
            for line in _done(event.add, event.drop, event.priority):
                yield shown(f"  not read yet by the run: {line}, by {clean(event.by or A_PERSON)}")


def _done(add: Sequence[Task], drop: Sequence[str], priority: Mapping[str, float]) -> Iterator[str]:
    for task in add:
        urgency = f" with the priority {task.priority:g}" if task.priority else ""
        yield f"added task {task.id!r}{urgency}"
    for one in drop:
        yield f"dropped task {one!r}"
    for one, number in priority.items():
        yield f"gave task {one!r} the priority {number:g}"


def told(works: Sequence[WorkView]) -> Iterator[str]:
    """The lines that say how queues stand."""
    for work_ in works:
        yield shown(f"{clean(work_.path)}: {counts_text(work_)}")
        rows = {
            "at work": list(map(clean, work_.running)),
            "left" if work_.over else "next": [_queued_text(*one) for one in work_.queued],
            "refused": list(map(clean, dict.fromkeys(work_.refused))),
        }
        for title, texts in rows.items():
            if texts:
                more = len(texts) - _MOST
                listed = ", ".join(texts[:_MOST]) + (f" and {more} more" if more > 0 else "")
                yield shown(f"  {title:8} {listed}")


def _queued_text(task_id: str, priority: float) -> str:
    return f"{clean(task_id)} (priority {priority:g})" if priority else clean(task_id)


def counts_text(work_: WorkView) -> str:
    """``3 at work, 12 queued, 40 done, 1 failed``, and why no more begin."""
    what = "left" if work_.over else "queued"
    counts = {
        "at work": len(work_.running),
        what: len(work_.queued),
        "done": work_.done,
        "failed": work_.failed,
        "refused": len(work_.refused),
    }
    listed = ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "no tasks"
    why = work_.why_stopped
    return listed if why is None else f"{listed}; begins no more: {clean(why)}"
