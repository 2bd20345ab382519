"""``handrail pause``, ``complete`` and the like: steer a run, whichever process drives it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import anyio
from cyclopts import Parameter

from handrail import Executor
from handrail.cli.channels import json_channel, tell, write_json
from handrail.cli.exits import Exit, Refused
from handrail.cli.journal import Place, pick_run
from handrail.cli.options import HAND, Hand, RunId, RunTarget
from handrail.cli.reaching import ReachedRun, reach_run
from handrail.cli.run import wait_until_free
from handrail.cli.who import current_user
from handrail.ports.journal import Journal, RunInfo
from handrail.record.inbox import guided_agents, runs_of
from handrail.record.view import state_of

PATIENCE_S = 12.0
"""How long to wait for a drive to end; after 10 s it leaves attempts behind that do not end."""


def pause(run: RunId, /, *, hand: Hand = HAND) -> int:
    """Let no step of a run begin any more; what is at work goes on to its end."""
    with reach_run(run, hand) as it:
        it.executor().pause_sync(it.run_id, by=it.who)
        it.tell(f"paused run {it.run_id}, by {it.who}", done="pause", by=it.who)
    return Exit.SUCCEEDED


def unpause(run: RunId, /, *, hand: Hand = HAND) -> int:
    """Let a paused run go on."""
    with reach_run(run, hand) as it:
        it.executor().unpause_sync(it.run_id, by=it.who)
        it.tell(f"unpaused run {it.run_id}, by {it.who}", done="unpause", by=it.who)
        it.tell_who_goes_on()
    return Exit.SUCCEEDED


def complete(
    run: RunId,
    path: str,
    output: Annotated[str, Parameter(name="OUTPUT", allow_leading_hyphen=True)],
    /,
    *,
    target: RunTarget = None,
    hand: Hand = HAND,
) -> int:
    """End a step with this output: one at work, that waits, has failed, or has not begun.

    Parameters
    ----------
    path
        The path of the step.
    output
        What the step's type takes: text, or JSON.
    """

    def act(executor: Executor, it: ReachedRun) -> None:
        executor.complete_sync(it.run_id, path, output, by=it.who)

    return _steer_step(run, path, target, hand, "completed", act)


def skip(run: RunId, path: str, /, *, target: RunTarget = None, hand: Hand = HAND) -> int:
    """End a step with its default, or as one that is skipped, without its failing."""

    def act(executor: Executor, it: ReachedRun) -> None:
        executor.skip_sync(it.run_id, path, by=it.who)

    return _steer_step(run, path, target, hand, "skipped", act)


def retry(run: RunId, path: str, /, *, target: RunTarget = None, hand: Hand = HAND) -> int:
    """Stop the attempt of a step and begin it again, uncounted; a wait before it is over."""

    def act(executor: Executor, it: ReachedRun) -> None:
        executor.retry_sync(it.run_id, path, by=it.who)

    return _steer_step(run, path, target, hand, "begun again", act)


def _steer_step(  # noqa: PLR0917  # all that its callers differ in
    run: str,
    path: str,
    target: str | None,
    hand: Hand,
    done: str,
    act: Callable[[Executor, ReachedRun], None],
) -> int:
    with reach_run(run, hand) as it:
        act(it.executor(it.workflow(target)), it)
        it.tell(f"{path!r} is {done}, by {it.who}", path=path, done=done, by=it.who)
        it.tell_who_goes_on()
    return Exit.SUCCEEDED


def guide(
    run: RunId,
    text: Annotated[str, Parameter(name="TEXT", allow_leading_hyphen=True)],
    /,
    *,
    path: str | None = None,
    target: RunTarget = None,
    hand: Hand = HAND,
) -> int:
    """Say something to the agents at work, whose sessions go on with it; or to the next agent.

    Parameters
    ----------
    text
        What is said.
    path
        Only to the agent of this step, or to those of the steps that it holds.
    """
    with reach_run(run, hand) as it:
        known = [] if path is None else [it.workflow(target)]
        it.executor(*known).guide_sync(it.run_id, text, path=path, by=it.who)
        anyio.run(it.wait_until_read)
        to = guided_agents(it.journal.events(it.run_id), text, it.who)
        named = ", ".join(map(repr, to))
        where = "" if path is None else f" in {path!r}"
        said = f"said to {named}" if to else f"kept for the next agent{where}"
        it.tell(f"{said}, by {it.who}", text=text, path=path, by=it.who, agents=to)
        it.tell_who_goes_on()
    return Exit.SUCCEEDED


def stop(
    run: RunId | None = None,
    /,
    *,
    every: Annotated[bool, Parameter(name="--all")] = False,
    hand: Hand = HAND,
) -> int:
    """End the drive of a run as Ctrl-C does in its process: it is suspended, and can be resumed.

    Parameters
    ----------
    every
        All runs of the journal that a process drives now.
    """
    place = hand.where.place()
    if every == (run is not None):
        raise Refused("stop", "takes a run, or --all")
    with json_channel(wanted=hand.as_json) as data:
        journal = place.find()
        driven = [info for info in runs_of(journal) if info.holder is not None]
        chosen = driven if run is None else [pick_run(journal, run)]
        who = hand.by or current_user()
        executor = Executor(journal=journal)
        for info in chosen:
            executor.stop_sync(info.run_id, by=who)
        left = [info for info in chosen if _still_driven(journal, info)]
        stopped = [info.run_id for info in chosen if info.holder and info not in left]
        if data is not None:
            still = [one.run_id for one in left]
            write_json({"stopped": stopped, "still_driven": still, "by": who}, data)
        else:
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
    """True if a process still drives the run after ``PATIENCE_S``: some attempts end slowly."""
    return anyio.run(wait_until_free, journal, info, PATIENCE_S).holder is not None
