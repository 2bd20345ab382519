"""``handrail work`` and its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from handrail.cli.options import HAND, Hand, RunId, RunTarget, Words

work_app = App(name="work")


@work_app.default
def work(
    run: RunId,
    /,
    *,
    add: Annotated[Words, Parameter(allow_leading_hyphen=True)] = None,
    drop: Annotated[Words, Parameter(allow_leading_hyphen=True)] = None,
    priority: Annotated[Words, Parameter(allow_leading_hyphen=True)] = None,
    step: str | None = None,
    target: RunTarget = None,
    hand: Hand = HAND,
) -> int:
    """Show the queues of a run, or change one: tasks to add or to drop, and what is more urgent.

    Parameters
    ----------
    add
        A new task as ID or ID=PAYLOAD, its payload in JSON, or text; repeatable.
    drop
        The id of a task that waits, and is not to be done; repeatable.
    priority
        ID=N: the lower the number, the sooner the task begins; repeatable.
    step
        The path of the `work` step, if the run has several.
    """
    from handrail.cli.work import Edits
    from handrail.cli.work import work as queues_of

    edits = Edits(add or [], drop or [], priority or [])
    return queues_of(run, edits, step, hand.where.place(), target, by=hand.by, as_json=hand.as_json)


@work_app.command
def summary(workdir: Path, target: str | None = None, /) -> int:
    """Print what a protocol that an Orchestrator runs says of its folder, at any time.

    Parameters
    ----------
    workdir
        The folder.
    target
        The protocol, file.py:name or module:name: itself, or what makes it of the folder. By
        default what is recorded there.
    """
    from handrail.cli.work_summary import summary as print_summary

    return print_summary(workdir, target)
