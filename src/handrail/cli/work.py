"""``handrail work``: shows and edits the queues of a run, whichever process drives it.

``handrail work summary``: what a protocol says of the folder that an Orchestrator works in.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from handrail.cli.answer import payload_of
from handrail.cli.channels import tell, write_json
from handrail.cli.exits import Exit, Refused
from handrail.cli.journal import FILE, Place, read
from handrail.cli.masking import mask_text
from handrail.cli.options import STEERING, RunId, RunTarget, SteeringOptions, Words
from handrail.cli.queues import queue_lines
from handrail.cli.reaching import ReachedRun, reach_run
from handrail.cli.target import load_object
from handrail.model.events import Event, WorkEdited, WorkflowStarted
from handrail.model.results import A_PERSON
from handrail.model.work import Task
from handrail.ports.journal import Journal, RunInfo
from handrail.record.reading import history_of
from handrail.shortening import clean
from handrail.system.own_files import FOLDER
from handrail.work.board import WORK
from handrail.work.orchestrator import recorded_flow


def _priority(typed: str) -> tuple[str, float]:
    name, _, number = typed.rpartition("=")
    try:
        return name, float(number)
    except ValueError:
        raise Refused(f"--priority {typed}", "takes ID=N, with a number") from None


def work(
    run: RunId,
    /,
    *,
    add: Annotated[Words, Parameter(allow_leading_hyphen=True)] = None,
    drop: Annotated[Words, Parameter(allow_leading_hyphen=True)] = None,
    priority: Annotated[Words, Parameter(allow_leading_hyphen=True)] = None,
    step: str | None = None,
    target: RunTarget = None,
    steering: SteeringOptions = STEERING,
) -> int:
    """Show the task queues of a run, or change one: add, drop or reprioritise tasks.

    Parameters
    ----------
    add
        A task to add, as ID or ID=PAYLOAD, with a payload of JSON or text; repeatable.
    drop
        The id of a waiting task to remove; repeatable.
    priority
        ID=N: a task with a lower number starts sooner; repeatable.
    step
        The path of the `work` step, if the run has several.
    """
    with reach_run(run, steering) as it:
        if add or drop or priority:
            _edit_queue(it, add or (), drop or (), priority or (), step, target)
        else:
            _print_queues(it, step)
    return Exit.SUCCEEDED


def _print_queues(it: ReachedRun, step: str | None) -> None:
    view = read(it.journal, it.info).view
    works = [work for work in view.works if step in {None, work.path}]
    if it.data is not None:
        write_json([work.to_dict() for work in works], it.data)
    else:
        lines = [*queue_lines(works), *_pending_edit_lines(view.inbox, step)]
        print("\n".join(lines) or f"run {it.run_id} has no queue")
    sys.stdout.flush()


def _edit_queue(  # noqa: PLR0917  # what was typed
    it: ReachedRun,
    add: Sequence[str],
    drop: Sequence[str],
    priority: Sequence[str],
    step: str | None,
    target: str | None,
) -> None:
    moved = dict(map(_priority, priority))
    tasks = [_parse_task(typed, moved) for typed in add]
    flow = recorded_flow(history_of(it.journal, it.run_id)) if target is None else None
    if flow is None:
        flow = it.workflow(target)
    it.executor(flow).edit_work_sync(
        it.run_id, step, add=tasks, drop=drop, priority=moved, by=it.who
    )
    lines = [f"{line}, by {it.who}" for line in _edit_lines(tasks, drop, moved)]
    it.print_done(
        "\n".join(lines),
        added=[task.id for task in tasks],
        dropped=drop,
        priority={**moved, **{task.id: task.priority for task in tasks if task.priority}},
        by=it.who,
    )
    it.print_resume_hint()


def _parse_task(typed: str, moved: dict[str, float]) -> Task:
    """A task that was typed as ID or ID=PAYLOAD; its priority is taken out of ``moved``."""
    name, given, text = typed.partition("=")
    return Task(name, payload_of(text) if given else None, moved.pop(name, 0.0))


def _pending_edit_lines(inbox: Sequence[Event], step: str | None) -> Iterator[str]:
    """Lines for the edits that the run has not read: its queue does not show them yet."""
    for event in inbox:
        if isinstance(event, WorkEdited) and step in {None, event.path}:
            for line in _edit_lines(event.add, event.drop, event.priority):
                yield mask_text(
                    f"  not yet read by the run: {line}, by {clean(event.by or A_PERSON)}"
                )


def _edit_lines(
    add: Sequence[Task], drop: Sequence[str], priority: Mapping[str, float]
) -> Iterator[str]:
    for task in add:
        urgency = f" with the priority {task.priority:g}" if task.priority else ""
        yield f"added task {task.id!r}{urgency}"
    for one in drop:
        yield f"dropped task {one!r}"
    for one, number in priority.items():
        yield f"gave task {one!r} the priority {number:g}"


# -- the folder of an Orchestrator -----------------------------------------------------------------


def summary(workdir: Path, target: str | None = None, /) -> int:
    """Print the summary that an Orchestrator's protocol gives of its folder, at any time.

    Parameters
    ----------
    workdir
        The folder.
    target
        The protocol, as file.py:name or module:name: the object, or a function of the folder that
        returns it, or of ([], folder). By default the one that is recorded there.
    """
    journal = Place((workdir / FOLDER).resolve(), named=True)
    if target is not None:
        return _print(_summarize(_protocol(target, workdir), target, workdir))
    if not journal.is_there():
        why = f"no Orchestrator has worked there: there is no {FOLDER}/{FILE}"
        raise Refused(str(workdir), why, "Name the protocol: WORKDIR file.py:name.")
    runs = journal.find()
    info = _last_work_run(runs, workdir)
    started = history_of(runs, info.run_id)[0]
    reference = str(started.inputs["protocol"]) if isinstance(started, WorkflowStarted) else ""
    try:
        protocol = _protocol(reference, workdir)
    except Refused as refused:
        tell(f"{refused} So this is what the journal says. Name the protocol: file.py:name.")
        return _print("\n".join(queue_lines(read(runs, info).view.works)))
    return _print(_summarize(protocol, reference, workdir))


def _last_work_run(runs: Journal, workdir: Path) -> RunInfo:
    mine = [run for run in runs.runs() if run.workflow_name == WORK]
    if not mine:
        raise Refused(str(workdir), "no Orchestrator has worked there")
    return max(mine, key=lambda one: one.started_at)


def _protocol(target: str, workdir: Path) -> Any:
    """The protocol that a TARGET names, or that the class or function there makes.

    Raises:
        Refused: there is none.
    """
    found: Any = load_object(target, "protocol")
    if not inspect.isclass(found) and callable(getattr(found, "summarize", None)):
        return found
    maker: Any = found
    try:
        parameters = inspect.signature(maker).parameters.values()
        needed = sum(parameter.default is parameter.empty for parameter in parameters) or len(
            parameters
        )
        made = maker(*([], workdir)[2 - min(needed, 2) :])
        if callable(getattr(made, "build_workflow", None)):
            made = made.build_workflow(workdir)
    except Exception as error:
        why = f"cannot be made of the folder alone: {type(error).__name__}: {error}"
        raise Refused(f"protocol {target!r}", why) from error
    if not callable(getattr(made, "summarize", None)):
        raise Refused(f"protocol {target!r}", "has no summarize()")
    return made


def _summarize(protocol: Any, target: str, workdir: Path) -> str:
    try:
        return str(protocol.summarize(workdir))
    except Exception as error:
        why = f"raised {type(error).__name__}: {error}"
        raise Refused(f"summarize() of {target}", why) from error


def _print(text: str) -> int:
    print(text.rstrip("\n"))
    sys.stdout.flush()
    return Exit.SUCCEEDED


work_app = App(name="work")
work_app.default(work)
work_app.command(summary)
