"""``handrail work summary``: what a protocol says of the folder that an Orchestrator works in."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

from handrail.cli.channels import tell
from handrail.cli.exits import Exit, Refused
from handrail.cli.journal import FILE, FOLDER, Place, read
from handrail.cli.queues import queue_lines
from handrail.cli.target import load_object
from handrail.model.events import WorkflowStarted
from handrail.ports.journal import Journal, RunInfo
from handrail.record.reading import history_of
from handrail.work.board import WORK


def summary(workdir: Path, target: str | None = None, /) -> int:
    """Print the summary that an Orchestrator's protocol gives of its folder, at any time.

    Parameters
    ----------
    workdir
        The folder.
    target
        The protocol, as file.py:name or module:name: the object, or a function of the folder that
        returns it. By default the one that is recorded there.
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
    mine = [one for one in runs.runs() if one.workflow_name == WORK]
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
        made = maker(workdir) if inspect.signature(maker).parameters else maker()
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
