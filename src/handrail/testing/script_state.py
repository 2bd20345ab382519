"""What a scripted run waits for, in tree order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from handrail.core import commands as cmd
from handrail.testing.script_drive import Drive
from handrail.testing.script_pending import Holder, Pending, Waits


def pending_of(script: Holder, drive: Drive) -> dict[str, Pending]:
    """All that the run waits for, by path: parents first, children as they were yielded."""
    if drive.result is not None:
        return {}
    found = {entry.path: entry for entry in _waits(script, drive)}
    return {path: found[path] for path in _tree_order(drive.machine.tree) if path in found}


def in_flight(script: Holder, drive: Drive, path: str) -> Pending | None:
    """The attempt or rollback that is in flight at this path; asks for no more than that one."""
    flight = drive.flights.get(path)
    if flight is None:
        return None
    waits: Waits = "attempt" if isinstance(flight.command, cmd.Perform) else "rollback"
    return Pending(path, drive.steps[path], waits, script, flight=flight)


def _waits(script: Holder, drive: Drive) -> Iterator[Pending]:
    machine, steps = drive.machine, drive.steps
    for path, due in drive.pauses().items():
        yield Pending(path, steps[path], "pause", script, due=due)
    for path in drive.flights:
        entry = in_flight(script, drive, path)
        assert entry is not None
        yield entry
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
