"""``handrail run``, ``resume``, ``cancel``: from a TARGET, or a run, to an exit code."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TextIO

import anyio
import attrs
from cyclopts import Parameter

from handrail import Executor
from handrail.cli.channels import json_channel, tell, write_json
from handrail.cli.driving import Begin, Options, drive
from handrail.cli.exits import Exit, Refused
from handrail.cli.inputs import arguments_for, given_inputs, read_file
from handrail.cli.journal import Place, find_exact, find_info, pick_run, with_executor
from handrail.cli.options import (
    CHANGED_STEPS,
    DRIVING,
    WHERE,
    ChangedSteps,
    Driving,
    Json,
    Quiet,
    RunId,
    RunTarget,
    Where,
)
from handrail.cli.run_text import describe_status
from handrail.cli.show import info_data
from handrail.cli.target import (
    TARGET,
    labels_of,
    load_with_executor,
    reaching,
    reaching_labels,
    workflow_of,
)
from handrail.engine.requests import Existing, refuse_other_inputs
from handrail.errors import HandrailError, InputsDiffer, RunIdTaken, WorkflowNotFound
from handrail.executor import agent_defaults
from handrail.model.agent_options import NO_OPTIONS
from handrail.model.definition import WorkflowDefinition
from handrail.model.paths import is_run_id
from handrail.model.results import OVER
from handrail.ports.journal import Journal, RunInfo
from handrail.record.reading import ended, history_of, inputs_of
from handrail.record.run_record import Recorded
from handrail.record.status import shown_status

BACKEND, MODEL = "backend", "model"


def agent_labels(options: Options) -> dict[str, str]:
    """Labels of the backend and model: as typed, of the environment, or the project's.

    Raises:
        DefinitionError: there is no such backend.
    """
    _check(options)
    said = agent_defaults(options.backend, options.model, NO_OPTIONS)
    found = {BACKEND: said.backend, MODEL: said.options.model}
    return {name: value for name, value in found.items() if isinstance(value, str)}


def as_recorded(options: Options, labels: Mapping[str, str]) -> Options:
    """The options, with the run's backend and model unless they or the environment name others.

    Raises:
        DefinitionError: there is no such backend.
    """
    _check(options)
    backend = options.backend or os.environ.get("HANDRAIL_BACKEND") or None
    if backend is not None:
        return options
    return attrs.evolve(
        options,
        backend=labels.get(BACKEND),
        model=options.model or os.environ.get("HANDRAIL_MODEL") or labels.get(MODEL),
    )


def _check(options: Options) -> None:
    """Check the typed backend first, so that an error names the option."""
    if options.backend is not None:
        from handrail.agents.routes import check_backend

        check_backend(options.backend, "--backend")


def resume(
    run: RunId | None = None,
    /,
    *,
    latest: bool = False,
    all_runs: Annotated[bool, Parameter(name="--all")] = False,
    changed: ChangedSteps = CHANGED_STEPS,
    target: RunTarget = None,
    driving: Driving = DRIVING,
    where: Where = WHERE,
) -> int:
    """Continue a run that was killed, interrupted or suspended, or that failed.

    Bounds typed for the run, such as --budget-usd, hold until others are typed here.

    Parameters
    ----------
    latest
        The run that was started most recently.
    all_runs
        Every suspended or dead run, one after the other. Exit code 1 if one fails, 3 if one is
        suspended again.
    """
    driving.refuse_labels()
    options, place = driving.options(), driving.place(where)
    options = attrs.evolve(options, on_change=changed.on_change)
    if not all_runs:
        return _resume(run, options, place, latest=latest, changed=changed, target=target)
    if run is not None or latest or changed.reuse or changed.rerun_any:
        typed = [*([run] if run else []), *(["--latest"] if latest else []), *changed.words]
        why = f"resumes every run, so it does not go with {' '.join(typed)}"
        raise Refused("resume --all", why, "Leave out one of them.")
    return _resume_all(options, place, changed, target)


def _resume(
    name: str | None,
    options: Options,
    place: Place,
    *,
    latest: bool = False,
    changed: ChangedSteps,
    target: str | None = None,
) -> int:
    with json_channel(wanted=options.as_json) as data:
        journal = place.find()
        info = _pick_run(journal, name, latest=latest)
        workflow, place = workflow_of(info, place, target)
        options = as_recorded(options, info.labels)
        return drive_again(info, workflow, changed, Session(options, data, place, journal))


def drive_again(info: RunInfo, workflow: Any, changed: ChangedSteps, session: Session) -> int:
    """Resume a run whose workflow is loaded; the exit code."""
    reuse, rerun = changed.paths(session.journal, info.run_id)
    if shown_status(info) == "succeeded" and not rerun:
        tell(f"run {info.run_id} has already succeeded; this is its recorded result")
    return session.drive(
        lambda executor: executor.as_run(
            info.run_id,
            lambda: executor.resume(info.run_id, workflow, reuse=reuse, rerun=rerun),
        ),
        workflow,
    )


def _resume_all(options: Options, place: Place, changed: ChangedSteps, target: str | None) -> int:
    """Resume every run that is suspended or dead, oldest first; the worst of the exit codes.

    ``target`` counts for runs of the workflows that it names; others have their recorded one.
    """
    waiting = [one for one in place.find().runs() if shown_status(one) in {"suspended", "dead"}]
    if not waiting:
        tell("no run is suspended or dead")
    codes: list[int] = []
    here = Path.cwd()
    for one in waiting:
        try:
            os.chdir(here)  # a run continues in the folder that it was started in
            chosen = target
            if target is not None and TARGET in one.labels:
                workflow, _ = load_with_executor(target)
                chosen = target if workflow.definition.name == one.workflow_name else None
            codes.append(_resume(one.run_id, options, place, changed=changed, target=chosen))
        except HandrailError as error:
            said = str(error)
            tell(said if said.startswith(f"run {one.run_id}") else f"run {one.run_id}: {said}")
            codes.append(Exit.USAGE)
        if codes[-1] in _STOPS:
            break
    worst = (code for code in (*_STOPS, Exit.USAGE, Exit.FAILED, Exit.SUSPENDED) if code in codes)
    return next(worst, max(codes, default=Exit.SUCCEEDED))


_STOPS = (Exit.INTERRUPTED, Exit.TERMINATED, Exit.HUNG_UP)


def _pick_run(journal: Journal, name: str | None, *, latest: bool) -> RunInfo:
    if latest == (name is not None):
        why = "needs either a run's id or --latest" + (", not both" if latest else "")
        raise Refused("resume", why, "`handrail runs` lists runs.")
    return pick_run(journal, name)


def resume_run(info: RunInfo, workflow: Any, given: Mapping[str, Any], session: Session) -> int:
    """Resume the run of a given id with its recorded inputs; the exit code.

    Raises:
        Refused: the run is of another workflow, has other inputs, or was cancelled.
    """
    definition: WorkflowDefinition = workflow.definition
    another = "Leave out --run-id to start another run."
    if info.workflow_name != definition.name:
        why = f"is a run of workflow {info.workflow_name!r}, not of {definition.name!r}"
        raise Refused(f"run {info.run_id}", why, another)
    if info.status == "cancelled" and info.holder is None:
        resume = session.place.command("resume", info.run_id)
        raise Refused(f"run {info.run_id}", "was cancelled", f"To continue: {resume}. {another}")
    journal = session.journal
    recorded = inputs_of(Recorded(history_of(journal, info.run_id)), definition, journal.codec)
    try:
        refuse_other_inputs(info.run_id, definition, given, recorded, journal.codec)
    except InputsDiffer as error:
        why = f"it was started with {error.name}={error.recorded}, not {error.given}"
        hint = "Leave out the inputs to continue it, or leave out --run-id to start another run."
        raise Refused(f"run {info.run_id}", why, hint) from None
    return drive_again(info, workflow, CHANGED_STEPS, session)


def run(
    target: str,
    /,
    *,
    input: Annotated[list[str] | None, Parameter(name="--input")] = None,  # noqa: A002
    inputs: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    run_id: str | None = None,
    new: bool = False,
    driving: Driving = DRIVING,
    where: Where = WHERE,
) -> int:
    """Run a workflow.

    Parameters
    ----------
    target
        `file.py:name` or `module:name`. Leave out the name if there is only one workflow.
    input
        An input as `name=value`, converted by its annotation (lists and objects are JSON);
        repeatable.
    inputs
        A JSON or TOML file of inputs (`-`: JSON on stdin), or JSON: '{"a": 1}'. --input overrides
        it.
    run_id
        The run's id. If this run exists and is unfinished, it is resumed; if it has succeeded, its
        recorded result is printed. Inputs must then be the same, or left out.
    new
        Start a new run; refuse if a run with this id exists.
    """
    options, place, typed = driving.options(), driving.place(where), input or ()
    with json_channel(wanted=options.as_json) as data:
        workflow, executor = load_with_executor(target)
        if executor is not None:
            place = with_executor(place, executor, target)
        lint_workflow(workflow)
        known = None if run_id is None else _find_run(run_id, place)
        if known is not None and new:
            raise RunIdTaken(known.run_id)
        if known is not None:
            driving.refuse_labels()
            given = given_inputs(workflow.definition, typed, read_file(inputs))
            options, place = as_recorded(options, known.labels), reaching(place, known)
            return resume_run(known, workflow, given, Session(options, data, place, place.find()))
        args, kwargs = arguments_for(workflow.definition, typed, read_file(inputs))
        labels = {**options.labels, **labels_of(target, workflow, place), **agent_labels(options)}
        session = Session(options, data, reaching_labels(place, labels), place.make())
        # another process may have begun the run since it was looked for
        existing: Existing = "refuse" if new or run_id is None else "go_on"
        return session.drive(
            lambda executor: executor.options(
                run_id=run_id, labels=labels, existing=existing
            ).stream(workflow, *args, **kwargs),
            workflow,
        )


def lint_workflow(workflow: Any) -> None:
    """Print the lint's warnings about a workflow before it runs.

    Raises:
        Refused: the lint found a mistake (HR1..), by which the run would go wrong.
    """
    from handrail.static.lint import check
    from handrail.static.source import SourceUnavailable, source_of

    try:
        found = check(source_of(workflow.definition.function))
    except SourceUnavailable:
        return
    for finding in found:
        if finding.code.startswith("HR2"):
            tell(f"warning: {finding}")
    mistakes = [finding for finding in found if finding.code.startswith("HR1")]
    if mistakes:
        listed = "; ".join(str(finding).rstrip(".") for finding in mistakes)
        hint = "If it is intended, end its line with: # handrail: ignore[CODE]."
        name = workflow.definition.name
        raise Refused(f"workflow {name!r} has mistakes and was not run", listed, hint)


def _find_run(run_id: str, place: Place) -> RunInfo | None:
    if not is_run_id(run_id):
        why = "is not a run id: 1 to 120 printable characters, without spaces at its ends"
        raise Refused(f"--run-id {run_id!r}", why)
    return find_exact(place.find(), run_id) if place.is_there() else None


EVERY_S = 0.05


def cancel(
    run: RunId,
    /,
    *,
    reason: str = "cancelled by hand",
    timeout: float = 60,
    target: RunTarget = None,
    as_json: Json = False,
    quiet: Quiet = False,
    where: Where = WHERE,
) -> int:
    """Cancel a run and roll it back, in the process that runs it, or else in this one.

    Parameters
    ----------
    reason
        The reason, which is recorded.
    timeout
        How many seconds to wait for a run in another process to end.
    as_json
        Print the run's state as JSON.
    """
    options, place = Driving(as_json=as_json, quiet=quiet).options(), where.place()
    with json_channel(wanted=options.as_json) as data:
        journal = place.find()
        session = Session(options, data, place, journal)
        info = pick_run(journal, run)
        if shown_status(info) in OVER:
            return _print_outcome(
                info, f"run {info.run_id} has already {_ending_text(info)}", session
            )
        if info.holder is None or not _request_cancel(journal, info, reason):
            code = _unwind(info, reason, session, target)
            return Exit.SUCCEEDED if code == Exit.CANCELLED else code
        if not options.quiet:
            who = f"process {info.holder.pid}" if info.holder.pid else info.holder.host
            tell(f"run {info.run_id}: asked {who} to cancel it")
        return _wait(info, session, timeout)


def _request_cancel(journal: Journal, info: RunInfo, reason: str) -> bool:
    """Ask the driver to cancel the run; False if no process drives it any more."""
    try:
        Executor(journal=journal).cancel_sync(info.run_id, reason)
    except WorkflowNotFound:
        return False
    return True


def _unwind(info: RunInfo, reason: str, session: Session, target: str | None) -> int:
    """Resume the run in this process, only to unwind it."""
    run_id = info.run_id
    workflow, place = workflow_of(info, session.place, target)
    return attrs.evolve(session, place=place).drive(
        lambda executor: executor.as_run(run_id, lambda: executor.cancel(run_id, reason, workflow)),
        workflow,
    )


def _wait(info: RunInfo, session: Session, timeout_s: float) -> int:
    """Wait for the driver to cancel the run; the exit code."""
    info = anyio.run(wait_until_free, session.journal, info, timeout_s)
    if info.holder is None:
        return _print_outcome(info, f"run {info.run_id} has {_ending_text(info)}", session)
    status = describe_status(info)
    what = f"run {info.run_id} was told to cancel, but did not within {timeout_s:g} s: {status}"
    return _print_outcome(info, what, session)


async def wait_until_free(journal: Journal, info: RunInfo, timeout_s: float) -> RunInfo:
    """The run's entry once no process drives it, or after ``timeout_s``."""
    with anyio.move_on_after(timeout_s):
        while info.holder is not None:
            await anyio.sleep(EVERY_S)
            info = find_info(journal, info.run_id) or info
    return info


def _print_outcome(info: RunInfo, what: str, session: Session) -> int:
    if session.data is not None:
        write_json(info_data(info), session.data)
    if not session.options.quiet:
        tell(what)
    if shown_status(info) != "cancelled":
        return Exit.FAILED
    last = ended(history_of(session.journal, info.run_id))
    failed = () if last is None else last.rollback_errors
    if failed:
        paths = ", ".join(one.path for one in failed)
        tell(f"run {info.run_id}: these steps were not rolled back: {paths}")
    return Exit.FAILED if failed else Exit.SUCCEEDED


def _ending_text(info: RunInfo) -> str:
    """How the run ended, to follow "has": it may have succeeded meanwhile, or failed to unwind."""
    state = shown_status(info)
    return f"been {state}" if state == "cancelled" else state


@attrs.frozen
class Session:
    """What a run of a place is driven with; ``data``: the stream for JSON, if asked for."""

    options: Options
    data: TextIO | None
    place: Place
    journal: Journal

    def drive(self, begin: Begin, workflow: Any) -> int:
        """Drive the run of the workflow that ``begin`` returns to its end; the exit code."""
        options, place = self.options, self.place
        if place.elsewhere is not None:
            return place.elsewhere.drive(begin, options, self.data, workflow.definition)
        return drive(begin, options, self.data, place, journal=self.journal)
