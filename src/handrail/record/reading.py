"""Reads a run's history for a resume or a query: its workflow, its inputs and its result."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from handrail.codec.unresolved import Unresolvable, Unresolved
from handrail.errors import (
    DefinitionError,
    NotRecorded,
    ReplayMismatch,
    RunNotFound,
    StepChange,
    WorkflowNotFound,
    WrongUse,
)
from handrail.model import events as ev
from handrail.model.definition import WorkflowDefinition
from handrail.model.described import defined_at
from handrail.model.paths import ancestors_of, decode_key, is_within, member_of
from handrail.model.results import WorkflowResult
from handrail.model.shapes import WorkflowLike
from handrail.ports.journal import Journal
from handrail.record.dropped import failed_members, groups_of, run_again, superseded
from handrail.record.outputs import as_listed, steps_of
from handrail.record.results import workflow_result
from handrail.record.run_record import FORKED, Recorded
from handrail.record.status import drive_end
from handrail.steps.declared import returned_by
from handrail.steps.groups import Bodied
from handrail.steps.table import verb_of
from handrail.typed.schema import hints_of

if TYPE_CHECKING:
    from handrail.codec.codec import Codec


def history_of(
    journal: Journal, run_id: str, secrets: Mapping[str, str] | None = None
) -> list[ev.Event]:
    """All events of a run, the first of which is its start.

    Raises:
        RunNotFound: the journal has no such run.
    """
    history = list(journal.events(run_id, secrets=secrets))
    if not history or not isinstance(history[0], ev.WorkflowStarted):
        raise RunNotFound(run_id, [info.run_id for info in journal.runs()])
    return history


def began_since(history: Sequence[ev.Event], path: str, passed: Collection[str] = ()) -> list[str]:
    """A recorded step, and all steps that began after it, except steps inside one of these.

    Of the steps that a fork has begun itself, those in ``passed`` are left out: today's code
    reaches them before ``path``, and they began after it only because its record was copied.

    Raises:
        NotRecorded: it is not recorded.
    """
    return _began_since(Recorded(history), history, path, passed)


def _began_since(
    recorded: Recorded, history: Sequence[ev.Event], path: str, passed: Collection[str]
) -> list[str]:
    refuse_unknown(recorded, (path,))
    began = next(event.seq for event in history if _begins(event) and event.path == path)
    return _begun_after(history, began, path, passed)


def rerun_after(
    recorded: Recorded,
    history: Sequence[ev.Event],
    mismatch: ReplayMismatch,
    rerun: Sequence[str],
) -> list[str]:
    """What the next drive runs again: what is left of ``rerun``, and each changed step. A fork also
    runs all steps again that began after one of these; what followed something that is entered
    again is what began after its end. Members of a group that have items do not follow each other:
    one whose item is the same keeps its result. A worktree runs again as a whole.
    """
    # After a late change, what the drive has passed has run again by now.
    paths = [
        path for path in rerun if not (mismatch.late and path.removesuffix("/") in mismatch.passed)
    ]
    trees, known = worktrees_of(recorded), recorded.begun()
    groups = groups_in(recorded, groups_of(recorded))
    for change in mismatch.changes:
        tree = next((tree for tree in trees if is_within(change.path, tree)), None)
        path = tree or change.rerun_path
        if not recorded.is_fork:
            paths.append(path)
            continue
        if path.endswith("/"):
            ended_seq = known[change.path].ended_seq if change.path in known else 0
            since = _begun_after(history, ended_seq, path, mismatch.passed)
        else:
            since = _began_since(recorded, history, path, mismatch.passed)
        paths += [other for other in since if not _are_beside(other, path, groups)]
    return list(dict.fromkeys(paths))


def _are_beside(a: str, b: str, groups: Iterable[str]) -> bool:
    """True if two paths are in different members of one of the groups."""
    members = ({member_of(a, group), member_of(b, group)} for group in groups)
    return any(len(both) > 1 and "" not in both for both in members)


def accept_changes(
    history: Sequence[ev.Event],
    mismatch: ReplayMismatch,
    reuse: Sequence[str],
    rerun: Sequence[str],
    *,
    told: Collection[str],
    on_change: str,
) -> tuple[Sequence[str], Sequence[str]]:
    """``reuse`` and ``rerun`` of the drive that goes on over changed steps, as ``on_change`` says;
    a fork runs them again, and so does a drive what is in a group that runs again by name.

    Raises:
        ReplayMismatch: nothing says what to do, or it was done before (``told``) for one of them.
    """
    changed = [change.path for change in mismatch.changes]
    recorded = Recorded(history)
    groups = groups_in(recorded, told)
    named = all(any(is_within(path, group) for group in groups) for path in changed)
    decides = "rerun" if named or recorded.is_fork else on_change
    if decides == "refuse" or not set(told).isdisjoint(changed):
        raise mismatch
    again = rerun_after(recorded, history, mismatch, rerun)
    if decides == "rerun":
        return reuse, again
    return [*reuse, *changed], [path for path in again if path in rerun]


def narrowed(changes: Sequence[StepChange], rerun: Iterable[str]) -> list[str]:
    """``rerun``, in which a group of bodies whose items have ``changes`` is only entered again: its
    members whose item is the same keep their results.
    """
    paths: list[str] = []
    for path in rerun:
        inside = [change for change in changes if is_within(change.path, path)]
        if inside and all(change.enters for change in inside if change.path == path):
            paths += [f"{path}/", *(change.rerun_path for change in inside)]
        else:
            paths.append(path)
    return list(dict.fromkeys(paths))


def groups_in(recorded: Recorded, paths: Collection[str]) -> set[str]:
    """Those of the paths that are groups whose members have items."""
    known = recorded.begun() if paths else {}
    kinds = {path: known[path].kind for path in paths if path in known}
    return {path for path, kind in kinds.items() if issubclass(verb_of(kind), Bodied)}


_FAILED = "*failed*/"


def with_failed(rerun: Sequence[str], rerun_failed: bool | str) -> Sequence[str]:  # noqa: FBT001  # as people say it
    """``rerun`` as ``paths_named`` takes it, with the failed members of all groups that collect
    failures, or of the groups that ``rerun_failed`` names.
    """
    if rerun_failed is False:
        return rerun
    return [*rerun, _FAILED if rerun_failed is True else f"{_FAILED}{rerun_failed}"]


def paths_named(history: Sequence[ev.Event], rerun: Sequence[str]) -> list[str]:
    """The recorded paths that people named: a pattern, such as ``items/*``, stands for all that it
    matches, part by part.

    Raises:
        NotRecorded: a pattern, or a name of ``with_failed``, matches nothing that is recorded.
    """
    if not any(set(name) & {*"*?"} for name in rerun):
        return list(dict.fromkeys(rerun))
    paths: list[str] = []
    recorded = Recorded(history)
    for name in rerun:
        if name.startswith(_FAILED):
            group = name.removeprefix(_FAILED)
            groups = _matching(history, group, groups_of(recorded)) if group else None
            paths += failed_members(recorded, groups)
        elif set(name) & {*"*?"}:
            paths += _matching(history, name, recorded.begun())
        else:
            paths.append(name)
    return list(dict.fromkeys(paths))


def _matching(history: Sequence[ev.Event], pattern: str, known: Collection[str]) -> list[str]:
    if pattern in known:
        return [pattern]
    parts = pattern.replace("[", "[[]").split("/")
    paths = [
        path
        for path in sorted(known)
        if len(own := path.split("/")) == len(parts) and all(map(fnmatchcase, own, parts))
    ]
    if not paths:
        raise NotRecorded(history[0].run_id, pattern, closest_paths(pattern, known))
    return paths


def worktrees_of(recorded: Recorded) -> list[str]:
    """The steps that have a worktree of their own, outer ones first."""
    return sorted(path for path, state in recorded.begun().items() if state.kind == "worktree")


def _begins(event: ev.Event) -> TypeGuard[ev.Began]:
    return isinstance(event, ev.Began)


def _begun_after(
    history: Sequence[ev.Event], seq: int, path: str, passed: Collection[str]
) -> list[str]:
    """``path``, and what began after an event; without what is inside, or ``passed`` in a fork."""
    began = [event for event in history if _begins(event)]
    ends = (one for one in history if isinstance(one, ev.RunSuspended) and one.reason == FORKED)
    copied = max((event.seq for event in ends), default=0)
    own = {event.path for event in began if event.seq > copied}
    paths = [path]
    for begun in dict.fromkeys(event.path for event in began if event.seq > seq):
        if begun in own and begun in passed:
            continue
        if begun != path and not any(begun.startswith(f"{above}/") for above in paths):
            paths.append(begun)
    return paths


def ended(history: Sequence[ev.Event]) -> ev.WorkflowCompleted | None:
    """The end of the run; None if it has none, or a later drive followed it."""
    end = drive_end(history)
    return end if isinstance(end, ev.WorkflowCompleted) else None


def is_fork(history: Sequence[ev.Event]) -> bool:
    """True if the run was made from the record of another one."""
    return isinstance(history[0], ev.WorkflowStarted) and history[0].forked_from is not None


def workflow_named(history: Sequence[ev.Event]) -> str:
    """The name of a run's workflow."""
    started = history[0]
    assert isinstance(started, ev.WorkflowStarted)
    return started.workflow_name


def by_name(workflows: Iterable[WorkflowLike[..., Any]]) -> dict[str, WorkflowDefinition]:
    """The definitions of workflows, by name."""
    return {workflow.definition.name: workflow.definition for workflow in workflows}


def workflow_for(
    history: Sequence[ev.Event],
    given: WorkflowDefinition | None,
    known: Mapping[str, WorkflowDefinition],
) -> WorkflowDefinition:
    """The workflow of a run: the given one, else the known one of its name.

    Raises:
        WorkflowNotFound: no known workflow has its name.
    """
    if given is not None:
        return given
    name = workflow_named(history)
    if name not in known:
        raise WorkflowNotFound(name, tuple(known))
    return known[name]


def refuse_other_workflow(history: Sequence[ev.Event], definition: WorkflowDefinition) -> None:
    """Refuse to continue a run of another workflow.

    Raises:
        WrongUse: the run is one.
    """
    name = workflow_named(history)
    if name != definition.name:
        raise WrongUse(
            f"run {history[0].run_id} is one of workflow {name!r}, not of {definition.name!r}"
        )


def dropped(recorded: Recorded, reuse: Iterable[str], rerun: Iterable[str]) -> tuple[str, ...]:
    """The paths whose records a resume supersedes.

    Raises:
        NotRecorded: ``reuse`` or ``rerun`` names a path that the run has no record of. In a fork,
            ``rerun`` may name a new step inside of a recorded one, which is entered for it.
    """
    rerun = tuple(rerun)
    known = recorded.begun() if recorded.is_fork and rerun else {}
    new = {path for path in rerun if not known.keys().isdisjoint(ancestors_of(path, known))}
    refuse_unknown(recorded, [*reuse, *(path for path in rerun if path not in new)])
    return tuple(sorted({*superseded(recorded), *run_again(rerun, recorded)}))


def refuse_unknown(recorded: Recorded, paths: Collection[str]) -> None:
    """Refuse paths that the run has no record of.

    Raises:
        NotRecorded: a path is not recorded.
    """
    known = recorded.begun() if paths else {}
    for path in (path.removesuffix("/") for path in paths):
        if path not in known:
            raise NotRecorded(recorded.run_id, path, closest_paths(path, known))


def refuse_partially_compensated(recorded: Recorded, run_id: str, rerun: Sequence[str]) -> None:
    """Refuse to run again a step inside a step, or a run, that is being rolled back.

    Raises:
        WrongUse: ``rerun`` names one.
    """
    undoing = recorded.undoing_above(rerun) if rerun else None
    if undoing is not None:
        what = f"step {undoing!r} of run {run_id}" if undoing else f"run {run_id}"
        raise WrongUse(
            f"{what} had failed, and its rollbacks had begun. Resume the run without rerun for "
            f"them to end; then rerun what is to run again. Nothing was run."
        )


def closest_paths(path: str, known: Iterable[str]) -> tuple[str, ...]:
    """The known paths that read the same as this one; without any, the ones most like it."""
    import difflib

    listed = sorted(known)
    if as_read := [known for known in listed if decode_key(known) == path]:
        return tuple(as_read)
    same_name = [one for one in listed if one.rpartition("/")[2] == path.rpartition("/")[2]]
    return tuple((same_name or difflib.get_close_matches(path, listed))[:3])


def inputs_of(recorded: Recorded, definition: WorkflowDefinition, codec: Codec) -> dict[str, Any]:
    """The recorded inputs, with the types that the workflow's parameters declare.

    Raises:
        Unresolvable: a class of theirs is not known here.
    """
    hints, inputs = hints_of(definition.function), dict(recorded.inputs)
    for name, value in inputs.items():
        if type(value) is Unresolved:
            try:
                inputs[name] = codec.load(value.text, hints.get(name, Any))
            except Unresolvable as error:
                raise Unresolvable(
                    error.tag, error.why, misfit=error.misfit, parameter=name
                ) from error.__cause__
    return inputs


def refuse_without_inputs(
    run_id: str, definition: WorkflowDefinition, inputs: Mapping[str, Any]
) -> None:
    """Refuse a workflow that requires an input which the run was begun without.

    Raises:
        DefinitionError: it requires one.
    """
    known = (parameter.name for parameter in definition.parameters if parameter.required)
    if missing := [name for name in known if name not in inputs]:
        names, them = ", ".join(missing), "it a default" if len(missing) == 1 else "them defaults"
        raise DefinitionError(
            f"run {run_id} was begun without {names}, which workflow {definition.name!r} "
            f"({defined_at(definition.function)}) requires now. Give {them} to go on with the run; "
            f"nothing was run."
        )


def recorded_result(
    run_id: str,
    definition: WorkflowDefinition,
    history: Sequence[ev.Event],
    codec: Codec,
    suspended: ev.RunSuspended | None = None,
) -> WorkflowResult[Any]:
    """The result of a run that has ended, or else is ``suspended``, from its record alone."""
    recorded = Recorded(history)
    tree, results = steps_of(recorded)
    last = recorded.completed
    if last is None:
        assert suspended is not None
        duration_ms = max(0.0, (suspended.at - recorded.started_at) * 1000)
    else:
        duration_ms, orphaned = last.duration_ms, set(last.orphaned)
        if isinstance(last.value, Unresolved):
            last = replace(last, value=codec.load(last.value.text, returned_by(definition)))
        if last.status == "succeeded":
            results = {path: end for path, end in results.items() if path not in orphaned}
        elif orphaned:  # the last drive may just have ended before it reached them
            tree = as_listed(tree, results, orphaned)
    return workflow_result(
        definition.name,
        run_id,
        last or cast("ev.RunSuspended", suspended),
        tree,
        results,
        duration_ms=duration_ms,
        incidents=recorded.incidents,
    )
