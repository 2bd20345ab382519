"""``handrail runs``: what the journal has, one run a line, the newest last."""

from __future__ import annotations

from collections.abc import Sequence

from handrail.cli.channels import json_channel, tell, write_json
from handrail.cli.exits import Exit
from handrail.cli.journal import Place
from handrail.cli.run_state import RunState, as_data, moment, state_of, told
from handrail.ports.journal import RunInfo

_HEADINGS = ("RUN", "WORKFLOW", "STATUS", "STARTED", "UPDATED", "EVENTS")


def runs(
    place: Place,
    *,
    statuses: Sequence[RunState] = (),
    workflows: Sequence[str] = (),
    as_json: bool,
) -> int:
    """Print the runs that have one of the statuses and workflows, if any are named."""
    with json_channel(wanted=as_json) as data:
        known = place.find().runs() if place.is_there() else ()
        found = [
            info
            for info in known
            if (not statuses or state_of(info) in statuses)
            and (not workflows or info.workflow_name in workflows)
        ]
        if data is not None:
            write_json([as_data(info) for info in found], data)
    if found and not as_json:
        _print_table([_HEADINGS, *map(_row, found)])
        for info in found:
            if info.damaged:
                tell(f"run {info.run_id} is damaged: {info.damaged}. Nothing in it is believed.")
    elif not found:
        tell(f"none of its {len(known)} runs" if known else f"no runs in {place.file}")
    return Exit.SUCCEEDED


def _row(info: RunInfo) -> tuple[str, ...]:
    times = [moment(at) if at else "" for at in (info.started_at, info.updated_at)]
    return (info.run_id, info.workflow_name, told(info), *times, str(info.events))


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [f"{text:{width}}" for text, width in zip(row[:-1], widths, strict=False)]
        print("  ".join([*cells, f"{row[-1]:>{widths[-1]}}"]))
