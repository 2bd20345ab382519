"""What a journal knows of a run, read for those who resume it, reach it or ask about it."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from handrail.codec.unresolved import Unresolved
from handrail.core.answers import check_payload
from handrail.engine.inbox import TIMEOUT, event_of, gate_key
from handrail.errors import (
    DefinitionError,
    GateClosed,
    GateNotFound,
    NotRecorded,
    RunNotFound,
    WorkflowNotFound,
    WrongUse,
)
from handrail.model import events as ev
from handrail.model.definition import WorkflowDefinition
from handrail.model.described import defined_at
from handrail.model.paths import is_budget_gate
from handrail.model.results import Incident, OpenGate, WorkflowResult
from handrail.model.shapes import WorkflowLike
from handrail.ports.journal import Journal
from handrail.record.dropped import begun, run_again, superseded
from handrail.record.outputs import Tree, as_listed, derive, returned_by
from handrail.record.results import children_of, incident_of, tree_order, workflow_result
from handrail.record.run_record import Recorded
from handrail.typed.schema import hints_of

if TYPE_CHECKING:
    from handrail.codec.codec import Codec

_BY_LETTER = (ev.GateAnswered, ev.SignalReceived, ev.CancelRequested)


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


def workflow_for(
    history: Sequence[ev.Event],
    given: WorkflowDefinition | None,
    known: Iterable[WorkflowLike[..., Any]],
) -> WorkflowDefinition:
    """The workflow of a run: the given one, else the known one of its name.

    Raises:
        WorkflowNotFound: nobody knows it.
    """
    if given is not None:
        return given
    started = history[0]
    assert isinstance(started, ev.WorkflowStarted)
    by_name = {one.definition.name: one.definition for one in known}
    if started.workflow_name not in by_name:
        raise WorkflowNotFound(started.workflow_name, tuple(by_name))
    return by_name[started.workflow_name]


def unread(journal: Journal, run_id: str, history: Sequence[ev.Event]) -> list[ev.Event]:
    """What came by letter since the run was last driven, and means something to it."""
    waiting = journal.letters(run_id, _last_message(history))
    if not waiting:
        return []
    recorded = Recorded(history)
    gates = {
        event.path: gate_key(event.gate) for event in history if isinstance(event, ev.GateOpened)
    }
    found: list[ev.Event] = []
    over = ended(history)
    for letter in waiting:
        event = letter.event
        if isinstance(event, ev.CancelRequested) and over is not None and event.at <= over.at:
            continue  # it came too late for that drive, and was not meant for another
        if isinstance(event, ev.GateAnswered) and (
            gates.get(event.path) != letter.key
            or event.by == TIMEOUT  # closed by its deadline: the step decides what that means
            or event.path in recorded.answers
            or recorded.at(event.path).ended()
        ):
            continue
        found.append(event_of(letter))
    return found


def _last_message(history: Sequence[ev.Event]) -> int:
    if set(map(type, history)).isdisjoint(_BY_LETTER):
        return 0  # nearly always, and quicker than to look at each
    return max((one.letter for one in history if isinstance(one, _BY_LETTER)), default=0)


def dropped(
    run_id: str, history: Sequence[ev.Event], reuse: Iterable[str], rerun: Iterable[str]
) -> tuple[str, ...]:
    """The paths whose records a resume supersedes.

    Raises:
        NotRecorded: ``reuse`` or ``rerun`` names a path that the run has no record of.
    """
    reuse, rerun = tuple(reuse), tuple(rerun)
    if reuse or rerun:
        known = begun(history)
        for path in (*reuse, *rerun):
            if path not in known:
                raise NotRecorded(run_id, path, near(path, known))
    return tuple(sorted({*superseded(history), *run_again(rerun, history)}))


def refuse_partially_compensated(recorded: Recorded, run_id: str, rerun: Sequence[str]) -> None:
    """Refuse to begin again what stands in something that is being undone.

    Raises:
        WrongUse: it does.
    """
    undoing = recorded.undoing_above(rerun) if rerun else None
    if undoing is not None:
        what = f"step {undoing!r} of run {run_id}" if undoing else f"run {run_id}"
        raise WrongUse(
            f"{what} had failed, and its rollbacks had begun. Resume the run without rerun for "
            f"them to end; then rerun what is to run again. Nothing was run."
        )


def near(path: str, known: Iterable[str]) -> tuple[str, ...]:
    """The known paths that look most like this one."""
    import difflib

    listed = sorted(known)
    same_name = [one for one in listed if one.rpartition("/")[2] == path.rpartition("/")[2]]
    return tuple((same_name or difflib.get_close_matches(path, listed))[:3])


def inputs_of(recorded: Recorded, definition: WorkflowDefinition, codec: Codec) -> dict[str, Any]:
    """The recorded inputs, with the types that the workflow's parameters declare.

    Raises:
        Unresolvable: a class of theirs is not known here.
    """
    hints = hints_of(definition.function)
    return {
        name: codec.load(value.text, hints.get(name, Any)) if type(value) is Unresolved else value
        for name, value in recorded.inputs.items()
    }


def refuse_without_inputs(
    run_id: str, definition: WorkflowDefinition, inputs: Mapping[str, Any]
) -> None:
    """Refuse a workflow that requires more than the run was begun with.

    Raises:
        DefinitionError: it does.
    """
    known = (one.name for one in definition.parameters if one.required)
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
) -> WorkflowResult[Any]:
    """The result of a run that has ended, from its record alone."""
    last = next(one for one in reversed(history) if isinstance(one, ev.WorkflowCompleted))
    recorded = Recorded(history)
    for path in recorded.children(""):
        derive(recorded, path, run_id)
    if isinstance(last.value, Unresolved):
        value = codec.load(last.value.text, returned_by(definition))
        last = ev.WorkflowCompleted(
            last.status,
            value,
            last.error,
            last.error_type,
            last.traceback,
            last.failed_step,
            last.rollback_errors,
            last.duration_ms,
            last.orphaned,
        )
    tree: Tree = recorded.tree_below("", whole=True)
    results = dict(recorded.ends())
    if last.orphaned and last.status == "succeeded":
        gone = set(last.orphaned)
        results = {path: end for path, end in results.items() if path not in gone}
    elif last.orphaned:  # they may just not have been come to again
        tree = as_listed(tree, results, set(last.orphaned))
    return workflow_result(
        definition.name,
        run_id,
        last.status,
        ordered=tree_order(tree, results),
        top=children_of(tree, ""),
        duration_ms=last.duration_ms,
        completed=last,
        orphaned=last.orphaned,
        incidents=tuple(recorded.incidents),
    )


def incidents_of(history: Sequence[ev.Event]) -> list[Incident]:
    """What the run lived through, in order."""
    return [incident_of(event) for event in history if isinstance(event, ev.LadderStep)]


def needs_of(history: Sequence[ev.Event]) -> list[str]:
    """What a person must do before the run can go on, if it is suspended for that."""
    needs: dict[str, str] = {}
    for event in history:
        match event:
            case ev.RunResumed() | ev.WorkflowCompleted():
                needs.clear()
            case ev.LadderStep(parked=True):
                needs[event.path] = event.error
            case ev.StepCompleted():
                needs.pop(event.path, None)
            case _:
                pass
    return list(dict.fromkeys(needs.values()))


def asked_to_cancel(events: Sequence[ev.Event]) -> str | None:
    """Why the run was being cancelled when it was last heard of, or None if it was not."""
    if ev.CancelRequested not in set(map(type, events)):
        return None
    for event in reversed(events):
        if isinstance(event, ev.WorkflowCompleted):
            return None
        if isinstance(event, ev.CancelRequested):
            return event.reason
    return None


def asked_by(step: str, gates: Iterable[str], steps: Container[str]) -> list[str]:
    """The gates that are a step's own question, or whether its agent may be launched; one that is
    among the ``steps`` is its own.
    """
    return [
        gate for gate in gates if gate == step or (is_budget_gate(step, gate) and gate not in steps)
    ]


def gate_in(run_id: str, history: Sequence[ev.Event], path: str) -> OpenGate:
    """The open gate at a path.

    Raises:
        GateClosed: it was answered. GateNotFound: there is none.
    """
    opened: dict[str, OpenGate] = {}
    answered: dict[str, ev.GateAnswered] = {}
    steps = begun(history)
    for event in history:
        match event:
            case ev.GateOpened():
                if opened.get(event.path) != event.gate:
                    answered.pop(event.path, None)
                opened[event.path] = event.gate
            case ev.GateAnswered():
                answered[event.path] = event
            case ev.StepCompleted():
                for gate in asked_by(event.path, opened, steps):
                    if gate not in answered:
                        del opened[gate]
            case ev.RunResumed():
                closed = [asked_by(gone, opened, steps) for gone in event.superseded]
                for gate in itertools.chain.from_iterable(closed):
                    opened.pop(gate, None)
                    answered.pop(gate, None)
            case _:
                pass
    if path in answered:
        event = answered[path]
        raise GateClosed(path, event.answer, event.by, event.at)
    if path not in opened:
        waiting = tuple(one for one in opened if one not in answered)
        raise GateNotFound(run_id, path, waiting)
    return opened[path]


def waited_for(history: Sequence[ev.Event], name: str) -> list[Any]:
    """The types of payload that the open ``wait_for`` steps of a signal take; None for one that is
    not known. Of a drive that has not come to its waits again there are none.
    """
    found: dict[str, Any] = {}
    for event in history:
        match event:
            case ev.StepStarted(signal=awaited) if awaited == name and event.verdict is not False:
                found[event.path] = event.accepts
            case ev.StepCompleted():
                found.pop(event.path, None)
            case ev.RunResumed() | ev.WorkflowCompleted():
                found.clear()
            case _:
                pass
    return list(found.values())


def check_signal(journal: Journal, history: Sequence[ev.Event], name: str, payload: Any) -> None:
    """Do nothing, or raise if a run would fail by this signal, as far as its record says.

    Raises:
        InvalidSignal: it would.
    """
    types = waited_for(history, name)
    if types:
        letters = unread(journal, history[0].run_id, history)
        left = Recorded([*history, *letters]).signals_left().get(name, ())
        check_payload(name, payload, types, len(left))


def ended(history: Sequence[ev.Event]) -> ev.WorkflowCompleted | None:
    """The end of the run, unless something was driven after it."""
    for event in reversed(history):
        if isinstance(event, ev.WorkflowCompleted):
            return event
        if isinstance(event, (ev.RunResumed, ev.WorkflowStarted, ev.RunSuspended)):
            return None
    return None
