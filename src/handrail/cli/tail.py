"""``handrail tail``: what happens in a run of another process, as it happens."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TextIO, TypeAlias

import anyio

from handrail.cli.channels import json_channel, tell
from handrail.cli.exits import EXIT_OF, Exit
from handrail.cli.journal import Place, exactly, picked
from handrail.model import events as ev
from handrail.ports.journal import Journal, RunInfo

Show: TypeAlias = Callable[[ev.Event], None]

EVERY_S = 0.1
_SPARE = 3
"""Reading a long run takes time: so many times that is left to others."""


def tail(name: str, place: Place, *, as_json: bool) -> int:
    """Print a run's events from the first on, until its drive has ended; the run's exit code.

    Raises:
        HandrailError: there is no such run, or its record cannot be read.
    """
    with json_channel(wanted=as_json) as data:
        journal = place.find()
        info = picked(journal, name)
        last = anyio.run(_follow, journal, info, _printer(data))
    match last:
        case ev.WorkflowCompleted():
            return EXIT_OF[last.status]
        case ev.RunSuspended():
            return Exit.SUSPENDED
        case _:
            resume = place.command("resume", info.run_id)
            tell(f"its process ended without a word; go on with: {resume}")
            return Exit.FAILED


async def _follow(journal: Journal, info: RunInfo, show: Show) -> ev.Event | None:
    """Show every event; the last one, once nobody drives the run any more."""
    seen: Sequence[ev.Event] = ()
    while True:
        began = time.monotonic()
        if info.events > len(seen):
            known = journal.events(info.run_id)
            for event in known[len(seen) :]:
                show(event)
            seen = known
        elif info.holder is None:
            return seen[-1] if seen else None
        if info.holder is not None:
            await anyio.sleep(max(EVERY_S, _SPARE * (time.monotonic() - began)))
        info = exactly(journal.runs(), info.run_id) or info


def _printer(data: TextIO | None) -> Show:
    sink: Any
    if data is not None:
        from handrail.sinks.jsonl import JsonlSink

        sink = JsonlSink(data)
    else:
        from rich.console import Console

        from handrail.sinks.console import ConsoleSink

        sink = ConsoleSink(Console(soft_wrap=True), live=False)
    emit: Show = sink.emit
    return emit
