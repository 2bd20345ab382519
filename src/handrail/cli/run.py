"""``handrail run``: a workflow, from a TARGET and inputs to an exit code."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import anyio
import attrs

from handrail import Executor
from handrail.cli.channels import json_channel, tell, write_json
from handrail.cli.cluster import ClusterPlace
from handrail.cli.driving import Begin, Options, drive
from handrail.cli.exits import Exit, Refused
from handrail.cli.inputs import arguments_for, given_inputs
from handrail.cli.journal import Place, line_of, of_this_id, picked, with_executor
from handrail.cli.show import describe_status, info_data
from handrail.cli.target import labels_of, load_with_executor, workflow_of
from handrail.engine.inputs import refuse_other_inputs
from handrail.engine.parts import OnChange
from handrail.errors import HandrailError, InputsDiffer, RunIdTaken, WorkflowNotFound
from handrail.executor import agent_defaults
from handrail.model.agent_options import NO_OPTIONS
from handrail.model.definition import WorkflowDefinition
from handrail.ports.journal import Journal, RunInfo
from handrail.record.reading import began_since, ended, history_of, inputs_of
from handrail.record.run_record import Recorded
from handrail.record.view import state_of

if TYPE_CHECKING:
    from handrail.agents.cassette.cassette import Cassette


BACKEND, MODEL = "backend", "model"


def agent_labels(options: Options) -> dict[str, str]:
    """What to record: of the command line, the environment, or the project.

    Raises:
        DefinitionError: there is no such backend.
    """
    _check(options)
    said = agent_defaults(options.backend, options.model, NO_OPTIONS)
    found = {BACKEND: said.backend, MODEL: said.options.model}
    return {name: value for name, value in found.items() if isinstance(value, str)}


def as_recorded(options: Options, labels: Mapping[str, str]) -> Options:
    """The options with the backend and model of the run, unless they, or the environment, say
    others.

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
    """Speak of what was typed, before anything else speaks of what it became."""
    if options.backend is not None:
        from handrail.agents.routes import check_backend

        check_backend(options.backend, "--backend")


@attrs.frozen
class Choices:
    """What counts of steps that changed: paths whose record is kept, and paths that run again."""

    reuse: Sequence[str] = ()
    rerun: Sequence[str] = ()
    rerun_from: str | None = None
    on_change: OnChange | None = None

    @property
    def words(self) -> list[str]:
        """What to type for them."""
        reuse = [word for path in self.reuse for word in ("--reuse", path)]
        rerun = [word for path in self.rerun for word in ("--rerun", path)]
        since = [] if self.rerun_from is None else ["--rerun-from", self.rerun_from]
        changed = [] if self.on_change is None else [f"--{self.on_change}-changed"]
        return [*reuse, *rerun, *since, *changed]

    def all_rerun(self, journal: Journal, run_id: str) -> Sequence[str]:
        """The paths that run again, with all that began after the one that was named so.

        Raises:
            NotRecorded: it is not recorded.
        """
        if self.rerun_from is None:
            return self.rerun
        return [*self.rerun, *began_since(history_of(journal, run_id), self.rerun_from)]


def choices_of(
    reuse: Sequence[str] | None,
    rerun: Sequence[str] | None,
    rerun_from: str | None,
    *,
    reuse_changed: bool,
    rerun_changed: bool,
) -> Choices:
    """The choices that were typed.

    Raises:
        Refused: both of the last two were.
    """
    if reuse_changed and rerun_changed:
        raise Refused("--reuse-changed and --rerun-changed", "say two things of each changed step")
    on_change: OnChange | None = "reuse" if reuse_changed else "rerun" if rerun_changed else None
    return Choices(reuse or (), rerun or (), rerun_from, on_change)


def resume(
    name: str | None,
    options: Options,
    place: Place,
    *,
    latest: bool = False,
    choices: Choices,
    target: str | None = None,
) -> int:
    """Go on with a run; the exit code.

    Raises:
        HandrailError: there is no such run, or its workflow is not to be had; nothing was run.
    """
    with json_channel(wanted=options.as_json) as data:
        journal = place.find()
        info = _picked(journal, name, latest=latest)
        workflow, place = workflow_of(info, place, target)
        place = attrs.evolve(place, target=target)
        options = as_recorded(options, info.labels)
        options = attrs.evolve(options, on_change=choices.on_change)
        return drive_again(info, workflow, choices, Session(options, data, place, journal))


def drive_again(info: RunInfo, workflow: Any, choices: Choices, session: Session) -> int:
    """Resume a run whose workflow is loaded; the exit code."""
    reuse, rerun = choices.reuse, choices.all_rerun(session.journal, info.run_id)
    if state_of(info) == "succeeded" and not rerun:
        tell(f"run {info.run_id} has succeeded already; this is its recorded result")
    return session.drive(
        lambda executor: executor.held(
            info.run_id,
            lambda: executor.resume(info.run_id, workflow, reuse=reuse, rerun=rerun),
        ),
        workflow,
    )


def resume_all(
    name: str | None, options: Options, place: Place, *, latest: bool, choices: Choices
) -> int:
    """Go on with every run that is suspended or dead, oldest first; the worst of the exit codes.

    Raises:
        Refused: a run was named, too, or steps of one.
    """
    if name is not None or latest or choices.reuse or choices.rerun or choices.rerun_from:
        raise Refused("resume --all", "goes on with every run, so no run and no step is named")
    waiting = [one for one in place.find().runs() if state_of(one) in {"suspended", "dead"}]
    if not waiting:
        tell("no run is suspended or dead")
    codes: list[int] = []
    for one in waiting:
        try:
            codes.append(resume(one.run_id, options, place, choices=choices))
        except HandrailError as error:
            tell(f"run {one.run_id}: {error}")
            codes.append(Exit.USAGE)
        if codes[-1] in _STOPS:
            break
    worst = (code for code in (*_STOPS, Exit.USAGE, Exit.FAILED, Exit.SUSPENDED) if code in codes)
    return next(worst, max(codes, default=Exit.SUCCEEDED))


_STOPS = (Exit.INTERRUPTED, Exit.TERMINATED, Exit.HUNG_UP)


def _picked(journal: Journal, name: str | None, *, latest: bool) -> RunInfo:
    if latest == (name is not None):
        why = "takes either a run's id or --latest" + ("" if latest else ", and has neither")
        raise Refused("resume", why, "handrail runs lists them.")
    return picked(journal, name)


def go_on(info: RunInfo, workflow: Any, given: Mapping[str, Any], session: Session) -> int:
    """Resume the run with what was recorded; the exit code.

    Raises:
        Refused: it is another workflow's, it was given other inputs, or it was cancelled.
    """
    definition: WorkflowDefinition = workflow.definition
    another = "Leave out --run-id to start another run."
    if info.workflow_name != definition.name:
        why = f"is one of workflow {info.workflow_name!r}, not of {definition.name!r}"
        raise Refused(f"run {info.run_id}", why, another)
    if info.status == "cancelled" and info.holder is None:
        resume = session.place.command("resume", info.run_id)
        raise Refused(f"run {info.run_id}", "was cancelled", f"{resume} goes on with it. {another}")
    journal = session.journal
    recorded = inputs_of(Recorded(history_of(journal, info.run_id)), definition, journal.codec)
    try:
        refuse_other_inputs(info.run_id, definition, given, recorded, journal.codec)
    except InputsDiffer as error:
        why = f"it was started with {error.name}={error.recorded}, not {error.given}"
        hint = "Leave the inputs out to go on with it; leave out --run-id to start another run."
        raise Refused(f"run {info.run_id}", why, hint) from None
    return drive_again(info, workflow, Choices(), session)


@attrs.frozen
class Wanted:
    """Which run: a TARGET, its inputs as they were typed and a file of more, and perhaps an id."""

    target: str
    typed: Sequence[str] = ()
    file: Path | None = None
    run_id: str | None = None
    new: bool = False


def run(wanted: Wanted, options: Options, place: Place) -> int:
    """Run a workflow to its end, or go on with the run of that id; the exit code.

    Raises:
        HandrailError: the target or the inputs are wrong, and nothing was run.
    """
    with json_channel(wanted=options.as_json) as data:
        workflow, executor = load_with_executor(wanted.target)
        if executor is not None:
            place = with_executor(place, executor, wanted.target)
        look_at(workflow)
        known = None if wanted.run_id is None else _known(wanted.run_id, place)
        if known is not None and wanted.new:
            raise RunIdTaken(known.run_id)
        if known is not None:
            given = given_inputs(workflow.definition, wanted.typed, wanted.file)
            options = as_recorded(options, known.labels)
            return go_on(known, workflow, given, Session(options, data, place, place.find()))
        args, kwargs = arguments_for(workflow.definition, wanted.typed, wanted.file)
        labels = {
            **options.labels,
            **labels_of(wanted.target, workflow, place),
            **agent_labels(options),
        }
        session = Session(options, data, place, place.make())
        return session.drive(
            lambda executor: executor.options(run_id=wanted.run_id, labels=labels).stream(
                workflow, *args, **kwargs
            ),
            workflow,
        )


def look_at(workflow: Any) -> None:
    """Print what the lint warns of in a workflow, before it is run.

    Raises:
        Refused: it found a mistake by which the run could not go as it is meant to.
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
        hint = "Where it is meant so, say it on its line: # handrail: ignore[CODE]."
        name = workflow.definition.name
        raise Refused(f"workflow {name!r} has mistakes, and is not run", listed, hint)


def _known(run_id: str, place: Place) -> RunInfo | None:
    _check_id(run_id)
    return of_this_id(place.find(), run_id) if place.is_there() else None


def _check_id(run_id: str) -> None:
    if not run_id or run_id != run_id.strip() or not run_id.isprintable() or len(run_id) > 120:
        why = "is no run id: 1 to 120 printable characters, without blanks at its edges"
        raise Refused(f"--run-id {run_id!r}", why)


EVERY_S = 0.05
_OVER = frozenset({"succeeded", "failed", "cancelled"})


def cancel(
    name: str,
    reason: str,
    place: Place,
    options: Options,
    *,
    timeout_s: float,
    target: str | None = None,
) -> int:
    """Cancel a run, and wait until it has ended; 0 if it was cancelled, by whomever.

    Raises:
        HandrailError: there is no such run, or its workflow is not to be had.
    """
    with json_channel(wanted=options.as_json) as data:
        journal = place.find()
        session = Session(options, data, place, journal)
        info = picked(journal, name)
        if state_of(info) in _OVER:
            return _print_outcome(info, f"run {info.run_id} has {_ended(info)} before", session)
        if info.holder is None or not _asked(journal, info, reason):
            code = _unwind(info, reason, session, target)
            return Exit.SUCCEEDED if code == Exit.CANCELLED else code
        if not options.quiet:
            who = f"process {info.holder.pid}" if info.holder.pid else info.holder.host
            tell(f"run {info.run_id}: asked {who} to cancel it")
        return _wait(info, session, timeout_s)


def _asked(journal: Journal, info: RunInfo, reason: str) -> bool:
    """True if whoever drives the run was asked; False if nobody does any more."""
    try:
        Executor(journal=journal).cancel_sync(info.run_id, reason)
    except WorkflowNotFound:
        return False
    return True


def _unwind(info: RunInfo, reason: str, session: Session, target: str | None) -> int:
    """Resume it only to unwind it, here."""
    run_id = info.run_id
    workflow, place = workflow_of(info, session.place, target)
    return attrs.evolve(session, place=place).drive(
        lambda executor: executor.held(run_id, lambda: executor.cancel(run_id, reason, workflow)),
        workflow,
    )


def _wait(info: RunInfo, session: Session, timeout_s: float) -> int:
    """Wait for the process that was asked."""
    info = anyio.run(once_over, session.journal, info, timeout_s)
    if info.holder is None:
        return _print_outcome(info, f"run {info.run_id} has {_ended(info)}", session)
    status = describe_status(info)
    what = f"run {info.run_id} was asked, and is not done after {timeout_s:g} s: {status}"
    return _print_outcome(info, what, session)


async def once_over(journal: Journal, info: RunInfo, timeout_s: float) -> RunInfo:
    """The run as it stands when nobody drives it any more, or after that time."""
    with anyio.move_on_after(timeout_s):
        while info.holder is not None:
            await anyio.sleep(EVERY_S)
            info = line_of(journal, info.run_id) or info
    return info


def _print_outcome(info: RunInfo, what: str, session: Session) -> int:
    if session.data is not None:
        write_json(info_data(info), session.data)
    if not session.options.quiet:
        tell(what)
    if state_of(info) != "cancelled":
        return Exit.FAILED
    last = ended(history_of(session.journal, info.run_id))
    failed = () if last is None else last.rollback_errors
    if failed:
        paths = ", ".join(one.path for one in failed)
        tell(f"run {info.run_id}: what these steps did was not undone: {paths}")
    return Exit.FAILED if failed else Exit.SUCCEEDED


def _ended(info: RunInfo) -> str:
    """How it ended, to go with "has": a run may have succeeded meanwhile, or failed to unwind."""
    state = state_of(info)
    return f"been {state}" if state == "cancelled" else state


def cassette_of(record: Path | None, replay: Path | None) -> Cassette | None:
    """The cassette that the options ask for, if they do.

    Raises:
        Refused: they ask for two, or for one that is not there.
    """
    if record is None and replay is None:
        return None
    if record is not None and replay is not None:
        raise Refused("--record and --replay", "cannot be given together", "Leave one out.")
    from handrail.agents.cassette.cassette import Cassette

    if record is not None:
        return Cassette(record, "record")
    assert replay is not None
    if not replay.is_dir():
        raise Refused(f"--replay {replay}", "there is no such folder", "--record makes one.")
    return Cassette(replay, "replay")


@attrs.frozen
class Session:
    """What runs of a journal on disk are driven with; ``data`` is where JSON goes, if it does."""

    options: Options
    data: TextIO | None
    place: Place
    journal: Journal

    def drive(self, begin: Begin, workflow: Any) -> int:
        """Drive what ``begin`` gives, a run of the workflow, to its end; the exit code."""
        definition = workflow.definition
        options, place = self.options, self.place
        if isinstance(place, ClusterPlace):
            from handrail.cli.cluster_drive import drive as watch

            return watch(begin, options, self.data, place, definition)
        return drive(begin, options, self.data, place, journal=self.journal, workflow=definition)
