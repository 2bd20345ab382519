"""A fork: a new run that begins with what was recorded of another, up to a place in it.

What a fork keeps is the beginning of the other's history, as if its process had ended there: so all
that holds for a run that is resumed holds for a fork. Only what nobody may go on with is left out:
actions that were at work, for their sessions and places in line are the other run's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, cast

from handrail.errors import NotRecorded, WrongUse
from handrail.model import events as ev
from handrail.model.paths import is_budget_gate
from handrail.model.results import StepResult
from handrail.record.assemble import copier
from handrail.record.dropped import begun
from handrail.record.inbox import WITH_LETTER, without_message_number
from handrail.record.reading import closest_paths, dropped, ended
from handrail.record.run_record import FORKED, Recorded
from handrail.steps.verbs import LEAF_KINDS

_GIVEN_KINDS = LEAF_KINDS | {"ask", "wait_for", "sleep"}


def cut_of(history: Sequence[ev.Event], at: str | None, given: Collection[str]) -> list[ev.Event]:
    """The beginning of a history that a fork keeps: up to where the step ``at`` began, and to where
    the first of the steps ended whose outputs are ``given``; of the latter no more than the start.

    Raises:
        NotRecorded: one of them never began. WrongUse: one began after another had ended, so that
            nothing of it is kept; or it has no output of its own.
    """
    ends = [_unwinding_from(history)] if at is None else [_began(history, at)]
    ends += [_ended(history, path) for path in given]
    end = min(ends)
    for path in given:
        if _began(history, path) >= end:
            raise WrongUse(
                f"the output of step {path!r} of run {history[0].run_id} cannot be given: it began "
                f"after what the fork keeps. Fork the fork for it, once it has come so far."
            )
    kept = list(history[:end])
    if at is None and given:
        kept += _ends_of_others(history, end, given)
    at_work = _at_work(kept)
    return list(_without(kept, at_work, given)) if at_work or given else kept


def _began(history: Sequence[ev.Event], path: str) -> int:
    """Where a step or member began, for the first time since a resume dropped it."""
    found = None
    for index, event in enumerate(history):
        if isinstance(event, (ev.StepStarted, ev.MemberStarted)) and event.path == path:
            found = index if found is None else found
        elif isinstance(event, ev.RunResumed) and path in event.superseded:
            found = None
    if found is None:
        known = begun(history)
        raise NotRecorded(history[0].run_id, path, closest_paths(path, known))
    return found


def _ended(history: Sequence[ev.Event], path: str) -> int:
    """Where a step ended that performs something; the end of the history if it has not."""
    began = history[_began(history, path)]
    kind = began.step_type if isinstance(began, ev.StepStarted) else "member"
    if kind not in _GIVEN_KINDS:
        raise WrongUse(
            f"the output of step {path!r} of run {history[0].run_id} cannot be given: it is a "
            f"{kind}, whose output follows from the steps in it. Give theirs."
        )
    ends = [
        index
        for index, event in enumerate(history)
        if isinstance(event, ev.StepCompleted) and event.path == path
    ]
    return ends[-1] if ends and ends[-1] > _began(history, path) else len(history)


def _unwinding_from(history: Sequence[ev.Event]) -> int:
    """Where the end of a run begins that succeeded, or that is on its way to a bad end."""
    last = ended(history)
    if last is not None:
        return len(history) if last.status != "succeeded" else _place(history, last)
    since = Recorded(history).ends_since
    return next((i for i, one in enumerate(history) if one.seq == since), len(history))


def died_by(history: Sequence[ev.Event], kept: Sequence[ev.Event]) -> ev.WorkflowCompleted | None:
    """The end that a run was on its way to whose first rollback is not kept; else None."""
    if len(kept) == len(history) or not isinstance(history[len(kept)], ev.RollbackStarted):
        return None
    last = next((one for one in reversed(kept) if isinstance(one, ev.StepCompleted)), None)
    failed = last.path if last is not None and last.status == "failed" else None
    return ev.WorkflowCompleted("failed", failed_step=failed)


def _place(history: Sequence[ev.Event], wanted: ev.Event) -> int:
    return next(index for index, event in enumerate(history) if event is wanted)


def _ends_of_others(
    history: Sequence[ev.Event], end: int, given: Collection[str]
) -> Iterator[ev.Event]:
    """What actions recorded that were at work at this place, and came to an end."""
    at_work = _at_work(history[:end]).difference(given)
    later = history[end:]
    finished = {
        event.path
        for event in later
        if isinstance(event, ev.StepCompleted) and event.path in at_work
    }
    for event in later:
        if isinstance(event, (ev.RunResumed, ev.CancelRequested)):
            return
        if getattr(event, "path", None) in finished:
            yield event


def _at_work(history: Iterable[ev.Event]) -> set[str]:
    """The actions that began and have no end."""
    open_: set[str] = set()
    for event in history:
        if isinstance(event, ev.StepStarted) and event.step_type in LEAF_KINDS:
            open_.add(event.path)
        elif isinstance(event, ev.StepCompleted):
            open_.discard(event.path)
        elif isinstance(event, ev.RunResumed):
            open_.difference_update(event.superseded)
    return open_


def _without(
    kept: Sequence[ev.Event], at_work: Collection[str], given: Collection[str]
) -> Iterator[ev.Event]:
    for event in kept:
        path = getattr(event, "path", None)
        if path in given and not isinstance(event, ev.StepStarted):
            continue
        if (
            path is None
            or path in given
            or (path not in at_work and not any(is_budget_gate(one, path) for one in at_work))
        ):
            yield event


def fork_events(  # noqa: PLR0917  # what one fork is told
    kept: Sequence[ev.Event],
    fork_id: str,
    at: str | None,
    outputs: Mapping[str, StepResult[Any]],
    inputs: Mapping[str, Any] | None,
    rerun: Sequence[str],
    now: float,
    died: ev.WorkflowCompleted | None = None,
) -> list[ev.Event]:
    """The events of a fork that begins with these, in its order: what is the same in both runs has
    the other's id. With the ``outputs`` of steps, by path, and with
    ``inputs`` if they are other ones; ``rerun`` runs again, and what the other run ``died`` by.

    Of its time it has used what the other run had by then.

    Raises:
        NotRecorded: ``rerun`` names what is not kept.
    """
    first = kept[0]
    assert isinstance(first, ev.WorkflowStarted)
    begun_at = now - max(0.0, kept[-1].at - first.at)
    start = replace(first, forked_from=(first.run_id, at))
    if inputs is not None:
        start = replace(start, inputs=inputs)
    made: list[ev.Event] = [ev.stamp(start, fork_id, 1, begun_at)]
    signals: dict[int, int] = {}
    for number, event in enumerate(kept[1:], 2):
        kind = type(event)
        if kind is ev.SignalReceived:
            signals[event.seq] = number
        is_other = event.seq != number or (kind in _NUMBERED and _names_a_number(event))
        made.append(_copied(event, fork_id, number, signals) if is_other else event)
    for path, result in outputs.items():
        made.append(ev.stamp(ev.StepCompleted(path, result), fork_id, len(made) + 1, now))
    if rerun or died is not None or ended(made) is not None:
        gone = dropped(made if died is None else [*made, died], (), rerun)
        resumed = ev.RunResumed(gone, (), tuple(rerun), first.workflow_name)
        made.append(ev.stamp(resumed, fork_id, len(made) + 1, now))
    suspended = ev.RunSuspended(reason=FORKED)
    made.append(ev.stamp(suspended, fork_id, len(made) + 1, now))
    return made


@cache
def _copier(kind: type[Any]) -> Callable[[Any], Any]:
    return copier(kind)


_TAKERS = (ev.StepCompleted, ev.AttemptFailed)
_NUMBERED = frozenset({*_TAKERS, *WITH_LETTER})


def _names_a_number(event: Any) -> bool:
    """True if it names a message, or a signal, by its number."""
    return bool(event.took if type(event) in _TAKERS else event.letter)


def _copied(event: ev.Event, fork_id: str, seq: int, signals: Mapping[int, int]) -> ev.Event:
    kind: Any = type(event)
    made: Any = without_message_number(_copier(kind)(event))
    if kind in _TAKERS and made.took:
        made = replace(made, took=signals.get(made.took, 0))
    return cast("ev.Event", ev.stamp(made, fork_id, seq, event.at))
