"""``handrail pause``, ``complete`` and the like: a hand on a run, wherever it is driven."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import anyio

from handrail import Executor
from handrail.cli.answer import taken_in, tell_who_goes_on, whoever, write_said
from handrail.cli.channels import json_channel, tell
from handrail.cli.exits import Exit, Refused
from handrail.cli.journal import Place, picked
from handrail.cli.masking import shown
from handrail.cli.run import once_over
from handrail.cli.target import workflow_of
from handrail.ports.journal import Journal, RunInfo
from handrail.record.inbox import heard_by, runs_of
from handrail.record.view import state_of

PATIENCE_S = 12.0
"""How long to wait for a drive to end: what ignores that it is to end is left behind after ten."""

Action: TypeAlias = Literal["pause", "unpause"]
_ASKED = {"pause": "paused", "unpause": "unpaused"}


def steer(name: str, action: Action, place: Place, *, by: str | None, as_json: bool) -> int:
    """Pause a run, or let it go on.

    Raises:
        HandrailError: there is no such run, or it has ended.
    """
    with json_channel(wanted=as_json) as data:
        journal = place.find()
        info = picked(journal, name)
        who = by or whoever()
        executor = Executor(journal=journal)
        do: Callable[..., None] = (
            executor.pause_sync if action == "pause" else executor.unpause_sync
        )
        do(info.run_id, by=who)
        write_said(data, {"run_id": info.run_id, "done": action}, by=who)
        if data is None:
            print(f"{_ASKED[action]} run {info.run_id}, by {who}")
        if action == "unpause":
            tell_who_goes_on(journal, info, place)
    return Exit.SUCCEEDED


def complete(
    name: str,
    path: str,
    output: str,
    place: Place,
    target: str | None,
    *,
    by: str | None,
    as_json: bool,
) -> int:
    """End a step with this output.

    Raises:
        HandrailError: there is no such run or step, it has ended, or it gives nothing of this type.
    """
    return _steer_step(
        name, path, place, target, by, as_json=as_json, done="completed", output=output
    )


def skip(
    name: str, path: str, place: Place, target: str | None, *, by: str | None, as_json: bool
) -> int:
    """End a step as its default says.

    Raises:
        HandrailError: there is no such run or step, it has ended, or cannot be skipped.
    """
    return _steer_step(name, path, place, target, by, as_json=as_json, done="skipped")


def retry(
    name: str, path: str, place: Place, target: str | None, *, by: str | None, as_json: bool
) -> int:
    """Begin the attempt of a step again.

    Raises:
        HandrailError: there is no such run, or no such step at work.
    """
    return _steer_step(name, path, place, target, by, as_json=as_json, done="begun again")


def _steer_step(
    name: str,
    path: str,
    place: Place,
    target: str | None,
    by: str | None,
    *,
    as_json: bool,
    done: Literal["completed", "skipped", "begun again"],
    output: Any = None,
) -> int:
    with json_channel(wanted=as_json) as data:
        journal = place.find()
        info = picked(journal, name)
        who = by or whoever()
        workflow, _ = workflow_of(info, place, target)
        executor = Executor(journal=journal, workflows=[workflow])
        match done:
            case "completed":
                executor.complete_sync(info.run_id, path, output, by=who)
            case "skipped":
                executor.skip_sync(info.run_id, path, by=who)
            case "begun again":
                executor.retry_sync(info.run_id, path, by=who)
        write_said(data, {"run_id": info.run_id, "path": path, "done": done}, by=who)
        if data is None:
            print(shown(f"{path!r} is {done}, by {who}"))
        tell_who_goes_on(journal, info, place)
    return Exit.SUCCEEDED


def guide(
    name: str,
    text: str,
    path: str | None,
    place: Place,
    target: str | None,
    *,
    by: str | None,
    as_json: bool,
) -> int:
    """Say something to the agents of a run, and tell which of them were given it.

    Raises:
        HandrailError: there is no such run or step, it has ended, or the text is empty.
    """
    with json_channel(wanted=as_json) as data:
        journal = place.find()
        info = picked(journal, name)
        who = by or whoever()
        known = [] if path is None else [workflow_of(info, place, target)[0]]
        Executor(journal=journal, workflows=known).guide_sync(info.run_id, text, path=path, by=who)
        anyio.run(taken_in, journal, info)
        to = heard_by(journal.events(info.run_id), text, who)
        write_said(data, {"run_id": info.run_id, "text": text, "path": path}, by=who, agents=to)
        if data is None:
            named = ", ".join(map(repr, to))
            where = "" if path is None else f" in {path!r}"
            said = f"said to {named}" if to else f"kept for the next agent{where}"
            print(shown(f"{said}, by {who}"))
        tell_who_goes_on(journal, info, place)
    return Exit.SUCCEEDED


def stop(name: str | None, place: Place, *, every: bool, by: str | None, as_json: bool) -> int:
    """End the drive of a run, or of all that are driven, and wait until they have ended.

    Raises:
        HandrailError: there is no such run, or it has ended.
        Refused: neither a run nor all are named, or both.
    """
    if every == (name is not None):
        raise Refused("stop", "takes a run, or --all")
    with json_channel(wanted=as_json) as data:
        journal = place.find()
        driven = [info for info in runs_of(journal) if info.holder is not None]
        chosen = driven if name is None else [picked(journal, name)]
        who = by or whoever()
        executor = Executor(journal=journal)
        for info in chosen:
            executor.stop_sync(info.run_id, by=who)
        left = [info for info in chosen if _still_driven(journal, info)]
        stopped = [info.run_id for info in chosen if info.holder and info not in left]
        write_said(data, {"stopped": stopped, "still_driven": [one.run_id for one in left]}, by=who)
        if data is None:
            for info in chosen:
                if info not in left:
                    print(_how_it_stopped(info, place))
            if not chosen:
                print("no run is driven now")
        for info in left:
            tell(f"run {info.run_id} was asked to stop, and what is at work has not ended yet")
    return Exit.FAILED if left else Exit.SUCCEEDED


def _how_it_stopped(info: RunInfo, place: Place) -> str:
    again = place.command("resume", info.run_id)
    if info.holder is None:
        return f"run {info.run_id} is {state_of(info)}: no process drives it; go on with: {again}"
    return f"stopped run {info.run_id}; go on with: {again}"


def _still_driven(journal: Journal, info: RunInfo) -> bool:
    """True if it is after ``PATIENCE_S``: what is at work may take its time to end."""
    return anyio.run(once_over, journal, info, PATIENCE_S).holder is not None
