"""A fork: a new run that begins with the record of another run, up to a place in it.

A fork keeps the beginning of the other's history, as if its process had ended there. So a fork is
resumed like any other run. Only actions that were at work are left out, as no other run may
continue them: their sessions and places in line belong to the other run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import takewhile
from typing import Any, cast, get_args

from handrail.errors import NotRecorded, WrongUse
from handrail.model import events as ev
from handrail.model.dataclass import copier
from handrail.model.paths import is_budget_gate
from handrail.model.results import StepResult
from handrail.ports.journal import SCHEDULE_LABEL
from handrail.record.dropped import run_again, superseded
from handrail.record.inbox import WITH_MESSAGE_NUMBER, without_message_number
from handrail.record.path_tree import moved_gate
from handrail.record.reading import (
    closest_paths,
    dropped,
    worktrees_of,
)
from handrail.record.run_record import FORKED, Recorded
from handrail.steps.table import ends_by_itself, verb_of


def cut_of(
    history: Sequence[ev.Event], at: str | None, given: Collection[str]
) -> tuple[list[ev.Event], Recorded]:
    """The part of a history that a fork keeps, and the record of it: up to the start of the step
    ``at``, and up to the first end among the steps whose outputs are ``given``. Of those it keeps
    only the start. Without ``at``, other actions that were at work then and ended later keep their
    events.

    Raises:
        NotRecorded: one of the steps never began. WrongUse: a step began after another had ended,
            so that its start is not kept; or it has no output of its own.
    """
    cut = None if at is None or given else _before_only_start(history, at)
    kept, recorded = cut or _cut_anywhere(history, at, given)
    at_work = _at_work(recorded)
    if not at_work and not given:
        return kept, recorded
    kept = list(_without(history, kept, at_work, given))
    return kept, Recorded(kept)


def _before_only_start(
    history: Sequence[ev.Event], at: str
) -> tuple[list[ev.Event], Recorded] | None:
    """The same for one step ``at`` that began once, for sure: no drive follows that dropped it. So
    it folds only what is kept.
    """
    starts = (ev.StepStarted, ev.MemberStarted)
    for index, event in enumerate(history):
        if isinstance(event, starts) and event.path == at:
            if any(isinstance(later, ev.RunResumed) for later in history[index:]):
                return None
            return list(history[:index]), Recorded(history[:index])
    return None


def _cut_anywhere(
    history: Sequence[ev.Event], at: str | None, given: Collection[str]
) -> tuple[list[ev.Event], Recorded]:
    recorded = Recorded(history)
    ends = [_unwinding_from(recorded) if at is None else _began(recorded, at)]
    ends += [_ended(recorded, path) for path in given]
    end = min(ends)
    for path in given:
        if _began(recorded, path) >= end:
            raise WrongUse(
                f"the output of step {path!r} of run {recorded.run_id} cannot be given: it began "
                f"after what the fork keeps. Fork the fork for it, once it has come so far."
            )
    kept = list(history[:end])
    if at is None and given:
        kept += _ends_of_others(history, end, given)
    return kept, recorded if len(kept) == len(history) else Recorded(kept)


def without_free_signals(kept: Sequence[ev.Event]) -> list[ev.Event]:
    """The events of a fork in which no ``wait_for`` ends that has not ended yet."""
    taken = _taken_by(kept)
    return [one for one in kept if not isinstance(one, ev.SignalReceived) or one.seq in taken]


def _taken_by(events: Iterable[ev.Event], paths: Collection[str] | None = None) -> set[int]:
    """The numbers of the signals that these steps took; by default, all steps."""
    takers = (event for event in events if isinstance(event, _TAKERS))
    return {event.took for event in takers if paths is None or event.path in paths}


def _began(recorded: Recorded, path: str) -> int:
    """The index where a step or member began: the first time since a resume dropped it."""
    seq = recorded.at(path).first_seq
    if not seq:
        raise NotRecorded(recorded.run_id, path, closest_paths(path, recorded.begun()))
    return seq - 1


def _ended(recorded: Recorded, path: str) -> int:
    """The index where a step with an output of its own ended; the history's length if not yet."""
    _began(recorded, path)
    state = recorded.at(path)
    if not ends_by_itself(state.kind):
        raise WrongUse(
            f"the output of step {path!r} of run {recorded.run_id} cannot be given: it is a "
            f"{state.kind}, whose output follows from the steps in it. Give theirs."
        )
    return recorded.count if state.end is None else state.ended_seq - 1


def _unwinding_from(recorded: Recorded) -> int:
    """The index where a run succeeded, or, without an end, began to unwind; else the length."""
    last = recorded.completed
    if last is not None:
        return last.seq - 1 if last.status == "succeeded" else recorded.count
    return recorded.ends_since - 1 if recorded.ends_since else recorded.count


def died_by(history: Sequence[ev.Event], kept: Sequence[ev.Event]) -> ev.WorkflowCompleted | None:
    """The failure that was ending a run, if the fork is cut at its first rollback; else None."""
    if len(kept) == len(history) or not isinstance(history[len(kept)], ev.RollbackStarted):
        return None
    last = next((event for event in reversed(kept) if isinstance(event, ev.StepCompleted)), None)
    failed = last.path if last is not None and last.status == "failed" else None
    return ev.WorkflowCompleted("failed", failed_step=failed)


def _ends_of_others(
    history: Sequence[ev.Event], end: int, given: Collection[str]
) -> Iterator[ev.Event]:
    """The later events of actions that were at work at this place and ended afterwards in the same
    drive, if a resume of the other run would keep their ends: not a failure that ended it, say.
    """
    over = (ev.RunResumed, ev.CancelRequested)
    drive = list(takewhile(lambda event: not isinstance(event, over), history[end:]))
    at_work = _at_work(Recorded(history[:end])) - set(given) - _gone_since(history, end)
    left = {
        event.path
        for event in drive
        if isinstance(event, ev.StepCompleted)
        and event.path in at_work
        and event.status != "cancelled"
    }
    for event in drive:
        path = getattr(event, "path", None)
        if path in left:
            yield event
            if isinstance(event, ev.StepCompleted):
                left.discard(event.path)


def _gone_since(history: Sequence[ev.Event], end: int) -> set[str]:
    """The paths whose records later drives dropped behind this place, or the next resume would."""
    before = history[: _unwinding_from(Recorded(history))]
    died = died_by(history, before)
    gone = set(superseded(Recorded(history if died is None else [*before, died])))
    for event in history[end:]:
        if isinstance(event, ev.RunResumed):
            gone.update(event.superseded)
    return gone


def _at_work(recorded: Recorded) -> set[str]:
    """The actions that began and have no end."""
    return {path for path in _without_end(recorded) if verb_of(recorded.at(path).kind).leaf}


def _without_end(recorded: Recorded) -> set[str]:
    """The steps and members that began and have no end."""
    return {path for path, state in recorded.items() if state.first_seq and state.end is None}


def _without(
    history: Sequence[ev.Event],
    kept: Sequence[ev.Event],
    at_work: Collection[str],
    given: Collection[str],
) -> Iterator[ev.Event]:
    taken = _taken_by(history, given)
    for event in kept:
        if isinstance(event, ev.SignalReceived) and event.seq in taken:
            continue  # it ended a step that has another end now
        path = getattr(event, "path", None)
        if path in given and not isinstance(event, ev.StepStarted):
            continue
        if (
            path is None
            or path in given
            or (path not in at_work and not any(is_budget_gate(step, path) for step in at_work))
        ):
            yield event


def gone_in_fork(  # noqa: PLR0917  # the arguments of one fork
    history: Sequence[ev.Event],
    kept: Sequence[ev.Event],
    recorded: Recorded,
    at: str | None,
    given: Collection[str],
    rerun: Sequence[str],
) -> tuple[str, ...]:
    """The kept paths (``recorded``) whose records do not count in a fork: as in a resume of what is
    kept, of steps that were undone behind it, and of worktrees that the fork enters, for those are
    the other run's. A step whose output is ``given`` keeps that.

    Raises:
        NotRecorded: ``rerun`` names a path that is not kept.
    """
    died = None if at or given else died_by(history, kept)
    if died is not None:
        recorded = Recorded([*kept, died])
    gone = dropped(recorded, (), rerun)
    undone = _undone_behind(history, kept).difference(given) & recorded.begun().keys()
    # the steps with a worktree of their own that have not ended, or are entered again
    entered = {*_without_end(recorded), *gone, *run_again(undone, recorded)}
    trees = entered.intersection(worktrees_of(recorded))
    again = run_again(undone | trees, recorded)
    return tuple(sorted({*again}.difference(given).union(gone)))


def _undone_behind(history: Sequence[ev.Event], kept: Sequence[ev.Event]) -> set[str]:
    """The steps whose rollback began behind what is kept, and that did not run again since."""
    undone: set[str] = set()
    if ev.RollbackStarted not in set(map(type, history)):
        return undone  # nearly always, and quicker than to look at each
    numbers = {event.seq for event in kept}
    for event in history:
        if isinstance(event, ev.RollbackStarted) and event.seq not in numbers:
            undone.add(event.path)
        elif isinstance(event, ev.RunResumed):
            undone.difference_update(event.superseded)
    return undone


def fork_events(  # noqa: PLR0917  # the arguments of one fork
    kept: Sequence[ev.Event],
    recorded: Recorded,
    fork_id: str,
    at: str | None,
    outputs: Mapping[str, StepResult[Any]],
    inputs: Mapping[str, Any] | None,
    rerun: Sequence[str],
    now: float,
    gone: Sequence[str] = (),
    changed: Mapping[str, str] | None = None,
) -> list[ev.Event]:
    """The events of a fork that begins with the ``kept`` (and ``recorded``) ones. An event that is
    the same in both runs keeps the other run's id.

    ``outputs``: results of steps to add, by path. ``inputs`` replaces the inputs, if it is given.
    The records of ``gone`` paths do not count, and the steps in ``rerun`` may run again. The
    labels in ``changed`` are those that drives of the other run changed, also behind what is kept.

    The run, and all that has no end yet, is as old as it was behind the last of what is kept. So
    the fork has used as much of its time, and of each deadline, as the other run had by then. Its
    first drive moves them once more (``Recorded.begin_time``).
    """
    first = kept[0]
    assert isinstance(first, ev.WorkflowStarted)
    labels = {name: label for name, label in first.labels.items() if name != SCHEDULE_LABEL}
    start = replace(first, forked_from=(first.run_id, at), labels=labels)
    if inputs is not None:
        start = replace(start, inputs=inputs)
    later_s = now - max(event.at for event in kept)
    if isinstance(kept[-1], ev.RunSuspended) and kept[-1].reason == FORKED:
        kept = kept[:-1]  # the fork of a fork
    made: list[ev.Event] = [ev.stamp(start, fork_id, 1, first.at + later_s)]
    signals: dict[int, int] = {}
    open_ = _without_end(recorded)
    for number, event in enumerate(kept[1:], 2):
        kind = type(event)
        if kind is ev.SignalReceived:
            signals[event.seq] = number
        moved_s = later_s if open_ and getattr(event, "path", None) in open_ else 0.0
        is_other = event.seq != number or (kind in _NUMBERED and _names_a_number(event))
        is_other = is_other or moved_s != 0.0
        made.append(_copied(event, fork_id, number, signals, moved_s) if is_other else event)
    for path, result in outputs.items():
        made.append(ev.stamp(ev.StepCompleted(path, result), fork_id, len(made) + 1, now))
    changed = changed or {}
    is_relabelled = not changed.items() <= {**first.labels, **labels_changed(kept)}.items()
    if gone or rerun or recorded.completed is not None or is_relabelled:
        name = first.workflow_name
        resumed = ev.RunResumed(tuple(gone), (), tuple(rerun), name, labels=changed)
        made.append(ev.stamp(resumed, fork_id, len(made) + 1, now))
    suspended = ev.RunSuspended(reason=FORKED)
    made.append(ev.stamp(suspended, fork_id, len(made) + 1, now))
    return made


def labels_changed(history: Sequence[ev.Event]) -> dict[str, str]:
    """The labels that drives changed, as the last of them left them."""
    resumed = (event for event in history if isinstance(event, ev.RunResumed))
    return {name: label for event in resumed for name, label in event.labels.items()}


_copier = cache(copier)
_TAKERS = (ev.StepCompleted, ev.AttemptFailed)
_NUMBERED = frozenset({*_TAKERS, *get_args(WITH_MESSAGE_NUMBER)})


def _names_a_number(event: Any) -> bool:
    """True if the event refers to a message, or a signal, by its number."""
    return bool(event.took if type(event) in _TAKERS else event.letter)


def _copied(
    event: ev.Event, fork_id: str, seq: int, signals: Mapping[int, int], later_s: float
) -> ev.Event:
    kind: Any = type(event)
    made: Any = without_message_number(_copier(kind)(event))
    if kind in _TAKERS and made.took:
        made = replace(made, took=signals.get(made.took, 0))
    elif kind is ev.TimerSet:
        made = replace(made, due=made.due + later_s)
    elif kind is ev.GateOpened:
        made = replace(made, gate=moved_gate(made.gate, later_s))
    return cast("ev.Event", ev.stamp(made, fork_id, seq, event.at + later_s))
