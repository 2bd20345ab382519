"""A run as people name it: its id, or the beginning of it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from handrail.cli.exits import Refused
from handrail.ports.journal import Journal, RunInfo

MOST = 8
"""Candidates that are listed."""


def picked(journal: Journal, name: str | None) -> RunInfo:
    """The run that ``chosen`` gives for a name, or the ``newest``; one whose record can be read.

    Raises:
        Refused: there is none, or more than one.
        JournalDamaged: its record is not as it was written.
    """
    runs = journal.runs()
    return whole(journal, newest(runs) if name is None else chosen(runs, name))


def whole(journal: Journal, info: RunInfo) -> RunInfo:
    """The run itself, if nothing is known to be wrong with its record.

    Raises:
        JournalDamaged: something is.
    """
    if info.damaged:
        journal.events(info.run_id)
        raise Refused(f"run {info.run_id!r}", f"cannot be read: {info.damaged}")
    return info


def of_this_id(journal: Journal, run_id: str) -> RunInfo | None:
    """The run of this very id, if there is one; its record can be read.

    Raises:
        Refused: it may be one whose entry is damaged, so that nothing is certain of it.
        JournalDamaged: its record is not as it was written.
    """
    runs = journal.runs()
    info = exactly(runs, run_id)
    if info is not None:
        return whole(journal, info)
    _refuse_if_hidden(runs, run_id)
    return None


def _refuse_if_hidden(runs: Sequence[RunInfo], name: str) -> None:
    hidden = [run.run_id for run in runs if run.damaged and not run.workflow_name]
    if hidden:
        why = f"is not known, but may be one whose entry is damaged: {', '.join(hidden)}"
        raise Refused(f"run {name!r}", why, "Put back a copy of the journal, or name another.")


def chosen(runs: Sequence[RunInfo], name: str) -> RunInfo:
    """The run of this id, or the only one whose id, or whose id's last part, begins so.

    Raises:
        Refused: there is none, or more than one.
    """
    exact = exactly(runs, name)
    if exact is not None:
        return exact
    found = matching(runs, name)
    if len(found) == 1:
        return found[0]
    if found:
        why = f"may be any of {len(found)}: {_listed(found)}"
        raise Refused(f"run {name!r}", why, "Type more of it.")
    _refuse_if_hidden(runs, name)
    raise Refused(f"run {name!r}", "there is none", _hint(runs, name))


def matching(runs: Sequence[RunInfo], name: str) -> list[RunInfo]:
    """The runs whose ids begin so; if there are none, those whose ids' last parts do."""
    if not name:
        return []
    found = [run for run in runs if run.run_id.startswith(name)]
    return found or [run for run in runs if run.run_id.rpartition("-")[2].startswith(name)]


def newest(runs: Sequence[RunInfo]) -> RunInfo:
    """The run that was started last.

    Raises:
        Refused: there is none.
    """
    if not runs:
        raise Refused("--latest", "the journal has no runs yet")
    return runs[-1]


def exactly(runs: Sequence[RunInfo], run_id: str) -> RunInfo | None:
    """The run of this very id, if there is one."""
    return next((run for run in runs if run.run_id == run_id), None)


def _hint(runs: Sequence[RunInfo], name: str) -> str:
    if not runs:
        return "The journal has no runs yet."
    near = difflib.get_close_matches(name, [run.run_id for run in runs], n=3, cutoff=0.5)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    return f"The newest: {_listed(runs[-3:])}."


def _listed(runs: Sequence[RunInfo]) -> str:
    """The newest of them."""
    names = [run.run_id for run in runs[-MOST:]]
    return ", ".join(["...", *names] if len(runs) > len(names) else names)
