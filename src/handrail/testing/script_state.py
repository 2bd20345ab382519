"""What a scripted run waits for, in tree order, and that as text for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from handrail.model import commands as cmd
from handrail.model.results import WorkflowResult
from handrail.testing.script_drive import Drive
from handrail.testing.script_pending import Holder, Pending, Waits

_SHOWN = 20


def pending_of(script: Holder, drive: Drive) -> dict[str, Pending]:
    """All that the run waits for, by path: parents before children, children as they were yielded."""
    if drive.result is not None:
        return {}
    found = {entry.path: entry for entry in _waits(script, drive)}
    return {path: found[path] for path in _tree_order(drive.machine.tree) if path in found}


def _waits(script: Holder, drive: Drive) -> Iterator[Pending]:
    machine, steps = drive.machine, drive.steps
    for path, due in drive.pauses().items():
        yield Pending(path, steps[path], "pause", script, due=due)
    for path, flight in drive.flights.items():
        waits: Waits = "attempt" if isinstance(flight.command, cmd.Perform) else "rollback"
        yield Pending(path, steps[path], waits, script, flight=flight)
    for path, gate in machine.gates.items():
        yield Pending(path, steps[path], "gate", script, gate=gate, due=gate.deadline)
    for listening in machine.listeners.values():
        for path in listening:
            yield Pending(path, steps[path], "signal", script)


def _tree_order(tree: Mapping[str, Iterable[str] | str]) -> Iterator[str]:
    """Every path; ``tree`` maps a path to its children, or to the only one."""
    stack = [""]
    while stack:
        path = stack.pop()
        yield path
        below = tree.get(path, ())
        stack.extend([below] if isinstance(below, str) else reversed([*below]))


def told(result: WorkflowResult[Any] | None, pending: Mapping[str, Pending]) -> str:
    """Where the run stands: how it ended, or what it waits for and what to write to go on."""
    if result is not None:
        why = f": {result.error}" if result.error else ""
        return f"The run {_ended(result.status)}{why}"
    if not pending:
        return "It waits for nothing that a script could give."
    width = min(40, max(len(path) for path in pending))
    lines = [
        f"  {path:<{width}}  {entry.description}  ->  {entry.hint}"
        for path, entry in list(pending.items())[:_SHOWN]
    ]
    if len(pending) > _SHOWN:
        lines.append(f"  ... and {len(pending) - _SHOWN} more")
    return "Pending:\n" + "\n".join(lines)


def _ended(status: str) -> str:
    return f"was {status}" if status in {"suspended", "cancelled"} else f"has {status}"
