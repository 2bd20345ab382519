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
from handrail.cli.options import STEERING, RunId, RunTarget, SteeringOptions
from handrail.cli.reaching import reach_run
from handrail.cli.run import wait_until_free
from handrail.cli.target import reaching
from handrail.cli.who import acting_user
from handrail.ports.journal import Journal, RunInfo
from handrail.record.inbox import guided_agents, runs_of
from handrail.record.run_record import Recorded
from handrail.record.status import shown_status

PATIENCE_S = 12.0
"""How long to wait for a drive to end; after 10 s it leaves attempts behind that do not end."""


_TEXTS = {"begun again": "restarted"}
"""The text for people where it differs from the value in the JSON."""


def pause(run: RunId, /, *, steering: SteeringOptions = STEERING) -> int:
    """Pause a run: no new step starts, and steps already running finish."""
    with reach_run(run, steering) as it:
        it.executor().pause_sync(it.run_id, by=it.who)
        it.print_done(f"paused run {it.run_id}, by {it.who}", done="pause", by=it.who)
    return Exit.SUCCEEDED


def unpause(run: RunId, /, *, steering: SteeringOptions = STEERING) -> int:
    """Let a paused run start steps again."""
    with reach_run(run, steering) as it:
        it.executor().unpause_sync(it.run_id, by=it.who)
        it.print_done(f"unpaused run {it.run_id}, by {it.who}", done="unpause", by=it.who)
        it.print_resume_hint()
    return Exit.SUCCEEDED


def complete(
    run: RunId,
    path: str,
    output: Annotated[str, Parameter(name="OUTPUT", allow_leading_hyphen=True)],
    /,
    *,
    target: RunTarget = None,
    steering: SteeringOptions = STEERING,
) -> int:
    """End a step as succeeded with this output: a running, waiting, failed or unstarted one.

    Parameters
    ----------
    path
        The path of the step.
    output
        The output, as text or JSON of the step's type.
    """

    def end(executor: Executor, run_id: str, path: str, *, by: str) -> None:
        executor.complete_sync(run_id, path, output, by=by)

    return _steer_step(run, path, target, steering, "completed", end)


def skip(
    run: RunId,
    path: str,
    /,
    *,
    value: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    target: RunTarget = None,
    steering: SteeringOptions = STEERING,
) -> int:
    """Skip a step: it ends with its default, or as skipped. Refused if the step allows neither.

    Parameters
    ----------
    value
        End it with this output instead, whatever it allows; the same as `complete`.
    """
    if value is not None:
        return complete(run, path, value, target=target, steering=steering)
    return _steer_step(run, path, target, steering, "skipped", Executor.skip_sync)


def retry(
    run: RunId, path: str, /, *, target: RunTarget = None, steering: SteeringOptions = STEERING
) -> int:
    """Restart a step's current attempt now, without using up a retry."""
    return _steer_step(run, path, target, steering, "begun again", Executor.retry_sync)


def _steer_step(  # noqa: PLR0917  # all that its callers differ in
    run: str,
    path: str,
    target: str | None,
    steering: SteeringOptions,
    done: str,
    act: Callable[..., None],
) -> int:
    with reach_run(run, steering) as it:
        act(it.executor(it.workflow(target)), it.run_id, path, by=it.who)
        has_begun = path in Recorded(it.journal.events(it.run_id)).begun()
        what = _TEXTS.get(done, done) if has_begun else f"{done} when it begins"
        it.print_done(f"{path!r} is {what}, by {it.who}", path=path, done=done, by=it.who)
        if not has_begun:
            tell("what its code does not accept then counts for nothing, and it runs")
        it.print_resume_hint()
    return Exit.SUCCEEDED


def guide(
    run: RunId,
    text: Annotated[str, Parameter(name="TEXT", allow_leading_hyphen=True)],
    /,
    *,
    path: str | None = None,
    target: RunTarget = None,
    steering: SteeringOptions = STEERING,
) -> int:
    """Send guidance to the running agents of a run, or to its next agent if none is running.

    Parameters
    ----------
    text
        The guidance.
    path
        Only for the agent at this step, or for agents below this step.
    """
    with reach_run(run, steering) as it:
        known = [] if path is None else [it.workflow(target)]
        it.executor(*known).guide_sync(it.run_id, text, path=path, by=it.who)
        anyio.run(it.wait_until_read)
        to = guided_agents(it.journal.events(it.run_id), text, it.who)
        named = ", ".join(map(repr, to))
        where = "" if path is None else f" in {path!r}"
        said = f"sent to {named}" if to else f"kept for the next agent{where}"
        it.print_done(f"{said}, by {it.who}", text=text, path=path, by=it.who, agents=to)
        it.print_resume_hint()
    return Exit.SUCCEEDED


def stop(
    run: RunId | None = None,
    /,
    *,
    every: Annotated[bool, Parameter(name="--all")] = False,
    steering: SteeringOptions = STEERING,
) -> int:
    """Suspend a running run, as Ctrl-C in its process does. It can be resumed.

    Without a run, the only one that is running.

    Parameters
    ----------
    every
        Every run of the journal that is running now.
    """
    place = steering.where.place()
    if every and run is not None:
        raise Refused("stop --all", f"stops every run, so it does not go with {run}")
    with json_channel(wanted=steering.as_json) as data:
        journal = place.find()
        driven = [info for info in runs_of(journal) if info.holder is not None]
        if run is None and not every and len(driven) > 1:
            ids = ", ".join(info.run_id for info in driven)
            raise Refused("stop", f"{len(driven)} runs are running: {ids}", "Name one, or --all.")
        chosen = driven if run is None else [pick_run(journal, run)]
        who = acting_user(steering.by)
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
                print("no run is running now")
        for info in left:
            tell(f"run {info.run_id} was asked to stop, but its current steps have not ended yet")
    return Exit.FAILED if left else Exit.SUCCEEDED


def _how_it_stopped(info: RunInfo, place: Place) -> str:
    again = reaching(place, info).command("resume", info.run_id)
    if info.holder is None:
        state = shown_status(info)
        return f"run {info.run_id} is {state}; no process is running it. To continue: {again}"
    return f"stopped run {info.run_id}; to continue: {again}"


def _still_driven(journal: Journal, info: RunInfo) -> bool:
    """True if a process still drives the run after ``PATIENCE_S``: some attempts end slowly."""
    return anyio.run(wait_until_free, journal, info, PATIENCE_S).holder is not None
