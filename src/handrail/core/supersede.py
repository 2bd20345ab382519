"""Which records no longer count when a run that did not succeed is resumed.

A run that was killed or suspended has no end, so nothing of it is superseded: what has an end is
kept, what has none is entered again. A run that failed or was cancelled has ended, and resuming it
is to try again what ended it:

recorded                                    failed       cancelled    its own rollback ran
a step that succeeded, skipped, defaulted   kept         kept         again
a failure that the workflow went on from    kept (it is raised again)
the failure that ended the run              again, and the failures below it that it passed on;
                                            not that a step must not run again
a validation that ended the run             again, all its rounds
a step that was cancelled                   again        again
a step yielded after what ended it          again        again        again
whatever encloses a step that runs again    entered again
an answer                                   kept, unless its step is superseded
a signal                                    kept; taken again if its step is superseded, but for one
                                            that did not fit

The whole table, for users and with all other records, begins docs/explanation/replay.md.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence

from handrail.errors import StepIsPoisonous, StepWasInterrupted
from handrail.model import events as ev
from handrail.model.paths import all_above, home_of
from handrail.model.results import qualified

_LETTERS = (ev.GateAnswered, ev.SignalReceived)
"""What may come when the run has ended."""
_ENDING_IT = (ev.CancelRequested, ev.LimitReached)
_ENDS = (ev.StepCompleted, ev.MemberCompleted, ev.AttemptFailed)
_FINAL = frozenset({qualified(StepWasInterrupted), qualified(StepIsPoisonous)})


def superseded(history: Sequence[ev.Event]) -> tuple[str, ...]:
    """The paths whose own records a resume drops; children that go too are listed themselves."""
    last = next((one for one in reversed(history) if not isinstance(one, _LETTERS)), None)
    if not isinstance(last, ev.WorkflowCompleted) or last.status == "succeeded":
        return ()
    history = counting(history)
    causes, whole = set[str](), set[str]()
    kinds = set(map(type, history))  # a pass is saved where there is nothing to find
    cancelled = _cancelled(history)
    ended_by = [] if last.failed_step is None else [last.failed_step]
    if cancelled:
        ended_by += _failing(history, cancelled)
    if ended_by:
        causes, whole = _causes(history, ended_by)
    undone = _undone(history) if ev.RollbackCompleted in kinds else {}
    own = set[str]()
    if cancelled or undone:
        known, settled = begun(history), _settled(history, causes)
        own = _outside(cancelled, settled, known)
        whole |= _outside(_cleaning_up(history), settled, known)
        whole |= _outside(undone, settled, known)
    if causes:
        own |= causes - _never_again(history)
        whole |= causes & _validations(history)
    if last.failed_step is not None or not kinds.isdisjoint(_ENDING_IT):
        ended_at = _what_ended_it(history, last.failed_step)
        whole |= {path for path, index in _begun_at(history).items() if index > ended_at}
    return run_again(own, whole, history)


def run_again(
    own: Iterable[str], whole: Iterable[str], history: Sequence[ev.Event]
) -> tuple[str, ...]:
    """What is dropped for paths to run again; and, in the composites that are entered for it, what
    was cancelled, cleaned up or was undone: they may come to another end now.
    """
    dropped = _expanded(own, whole, history)
    if not dropped:
        return ()
    counts, known = counting(history), begun(history)
    ended = {path: when for path, when in _settled(counts, set()).items() if path not in dropped}
    inside = functools.partial(_inside, dropped, ended, known)
    stopped = inside(_cancelled(counts))
    whole = inside(_cleaning_up(counts)) | inside(_undone(counts))
    return tuple(sorted(dropped | _expanded(stopped, whole, history)))


def _inside(
    dropped: set[str], ended: Mapping[str, int], known: set[str], found: Mapping[str, int]
) -> set[str]:
    """Those that stand in something that is dropped, and not in anything that is not and ended."""
    return {
        path
        for path in _outside(found, ended, known)
        if not dropped.isdisjoint(all_above(path, known))
    }


def _expanded(own: Iterable[str], whole: Iterable[str], history: Sequence[ev.Event]) -> set[str]:
    """``own`` paths, ``whole`` ones with all that is below them, and whatever encloses any of them:
    a composite whose child runs again has not ended either.
    """
    own, roots = set(own), set(whole)
    if not own and not roots:
        return set()
    known = begun(history)
    # By the text first, which is quick; a member's key may look like a later attempt.
    prefixes = tuple(prefix for root in roots for prefix in (f"{root}/", f"{root}~"))
    dropped = {*own, *roots}
    dropped.update(
        path
        for path in known
        if path.startswith(prefixes) and not roots.isdisjoint(all_above(path, known))
    )
    for path in tuple(dropped):
        dropped.update(above for above in all_above(path, known) if above in known)
    return dropped


def counting(history: Sequence[ev.Event]) -> Sequence[ev.Event]:
    """All but the ends of steps and members, and their failed attempts, that earlier resumes
    dropped: what failed or was cancelled then, and runs again since, ended nothing.
    """
    dropped_at: dict[str, int] = {}
    for index, event in enumerate(history):
        if isinstance(event, ev.RunResumed):
            dropped_at.update(dict.fromkeys(event.superseded, index))
    if not dropped_at:
        return history
    return [
        event
        for index, event in enumerate(history)
        if not (isinstance(event, _ENDS) and dropped_at.get(event.path, -1) > index)
    ]


def begun(history: Iterable[ev.Event]) -> set[str]:
    """The paths of all steps and members that ever began."""
    kinds = (ev.StepStarted, ev.MemberStarted)
    return {event.path for event in history if isinstance(event, kinds)}


def _validations(history: Iterable[ev.Event]) -> set[str]:
    """Validations begin anew as a whole: their rounds count from one again."""
    return {
        event.path
        for event in history
        if isinstance(event, ev.StepStarted) and event.step_type == "validate"
    }


def cancelled_half_way(history: Sequence[ev.Event]) -> tuple[str, ...]:
    """What was cancelled in a drive that died while it unwound: it is entered again as far as it
    had come, and cancelled again; what the bodies did to clean up is kept.
    """
    for index in range(len(history) - 1, -1, -1):
        if isinstance(history[index], ev.WorkflowCompleted):
            break
        if isinstance(history[index], ev.CancelRequested):
            since = counting(history[index:])
            cancelled = _outside(_cancelled(since), _settled(since, set()), begun(history))
            return tuple(sorted(_expanded(cancelled, (), history)))
    return ()


def _undone(history: Sequence[ev.Event]) -> dict[str, int]:
    """The steps whose rollback ran, in any drive, and that did not run again since; and when."""
    undone: dict[str, int] = {}
    for index, event in enumerate(history):
        if isinstance(event, ev.RollbackCompleted):
            undone[event.path] = index
        elif isinstance(event, ev.RunResumed):
            _drop(undone, event.superseded)
    return undone


def _settled(history: Sequence[ev.Event], causes: set[str]) -> dict[str, int]:
    """What has an end that the run went on from: a success, or a failure that was handled; and when
    it came to it.
    """
    settled: dict[str, int] = {}
    for index, event in enumerate(history):
        if isinstance(event, (ev.StepCompleted, ev.MemberCompleted)):
            if event.status == "cancelled":
                settled.pop(event.path, None)
            elif event.path not in causes:
                settled[event.path] = index
        elif isinstance(event, ev.RunResumed):
            _drop(settled, event.superseded)
    return settled


def _drop(found: dict[str, int], paths: Iterable[str]) -> None:
    for path in paths:
        found.pop(path, None)


def _outside(paths: Mapping[str, int], settled: Mapping[str, int], known: set[str]) -> set[str]:
    """Those that did not happen inside something settled: the loser of a race that was won did.

    What is undone because the run failed is undone after all that it stands in has ended.
    """
    return {
        path
        for path, when in paths.items()
        if not any(settled.get(above, -1) > when for above in all_above(path, known))
    }


def _never_again(history: Iterable[ev.Event]) -> set[str]:
    """Steps that failed because they must not run again: only ``rerun`` may say otherwise."""
    return {
        event.path
        for event in history
        if isinstance(event, ev.StepCompleted) and event.result.error_type in _FINAL
    }


def _what_ended_it(history: Sequence[ev.Event], failed_step: str | None) -> int:
    """Where the end of the run began: what was yielded after it was clean-up.

    A failure that a group collected ended the run after the group had ended. A limit, or a request,
    is recorded by each drive that goes on unwinding: the first one counts.
    """
    if failed_step is not None:
        known = begun(history)
        outermost = (failed_step, *all_above(failed_step, known))[-1]
        at = _ends(history).get(outermost)
        return len(history) if at is None else at
    ended_at, ends = len(history), 0
    for index in range(len(history) - 1, -1, -1):
        event = history[index]
        if isinstance(event, _ENDING_IT):
            ended_at = index
        elif isinstance(event, ev.WorkflowCompleted):
            ends += 1
            if ends > 1:  # what ended the run before was done with when it was resumed
                break
        elif isinstance(event, ev.RunSuspended):
            break
    return ended_at


def _ends(history: Iterable[ev.Event]) -> dict[str, int]:
    """When each step and member ended, for the last time."""
    ends = (ev.StepCompleted, ev.MemberCompleted)
    return {event.path: index for index, event in enumerate(history) if isinstance(event, ends)}


def _cancelled(history: Iterable[ev.Event]) -> dict[str, int]:
    return {
        event.path: index
        for index, event in enumerate(history)
        if isinstance(event, (ev.StepCompleted, ev.MemberCompleted)) and event.status == "cancelled"
    }


def _cleaning_up(history: Iterable[ev.Event]) -> dict[str, int]:
    """The steps that bodies yielded while they were cancelled, and when they began."""
    found: dict[str, int] = {}
    for index, event in enumerate(history):
        if isinstance(event, ev.StepStarted) and event.cleanup:
            found[event.path] = index
        elif isinstance(event, ev.RunResumed):
            _drop(found, event.superseded)
    return found


def _failing(history: Iterable[ev.Event], cancelled: Mapping[str, int]) -> list[str]:
    """What was cancelled and may have been failing by then: a failure in it that it did not go on
    from ended nothing else. A race, and a group that collects failures, goes on from each.
    """
    bodies = (ev.MemberStarted, ev.SubworkflowStarted)
    return sorted(
        {
            event.path
            for event in history
            if (isinstance(event, bodies) or (isinstance(event, ev.GroupStarted) and _fails(event)))
            and event.path in cancelled
        }
    )


def _fails(event: ev.GroupStarted) -> bool:
    return event.kind in {"parallel", "for_each"} and event.on_error != "continue"


def _places(history: Iterable[ev.Event]) -> dict[str, int]:
    """The place of each step that counts, among those that its body yielded."""
    places: dict[str, int] = {}
    for event in history:
        if isinstance(event, ev.StepStarted):
            places[event.path] = event.index
        elif isinstance(event, ev.RunResumed):
            for path in event.superseded:
                places.pop(path, None)
    return places


def _begun_at(history: Iterable[ev.Event]) -> dict[str, int]:
    """When each step began that counts, for the first time: later drives may enter it again."""
    begun_at: dict[str, int] = {}
    for index, event in enumerate(history):
        if isinstance(event, ev.StepStarted):
            begun_at.setdefault(event.path, index)
        elif isinstance(event, ev.RunResumed):
            _drop(begun_at, event.superseded)
    return begun_at


def _causes(history: Sequence[ev.Event], paths: Iterable[str]) -> tuple[set[str], set[str]]:
    """The failed steps and, below them, the failures that they passed on, in each attempt; and what
    the bodies of those yielded after them, to clean up.

    In a body that handled one failure and ended by another, the last one is the cause. So it is in
    one that ended by an error of its own, unless it went on from there: it yielded something else.
    """
    failed = {
        event.path: index
        for index, event in enumerate(history)
        if isinstance(event, (ev.StepCompleted, ev.MemberCompleted)) and event.status == "failed"
    }
    bodies = {event.path: "" for event in history if isinstance(event, ev.MemberStarted)}
    for event in history:
        if isinstance(event, ev.SubworkflowStarted):
            bodies[event.path] = f"workflow {event.workflow_name!r} failed: "
    known = begun(history)
    failed_in: dict[str, list[str]] = {}
    for one in failed:
        failed_in.setdefault(home_of(one, known), []).append(one)
    said, places = _said(history), _places(history)
    yielded_last: dict[str, int] = {}
    for one, place in places.items():
        yielded_last[_attempt(one)] = max(place, yielded_last.get(_attempt(one), 0))
    causes, passed_on, stack = set[str](), dict[str, int](), list(paths)
    while stack:
        here = stack.pop()
        causes.add(here)
        below = failed_in.get(here, [])
        if here in bodies:
            texts = [text.removeprefix(bodies[here]) for text in said.get(here, ())]
            last = {_attempt(one): one for one in sorted(below, key=failed.__getitem__)}
            named = [
                one for one in below if any(text.startswith(f"step {one!r} ") for text in texts)
            ]
            passed_on.update((_attempt(one), places.get(one, 0)) for one in named)
            below = [
                *named,
                *(
                    one
                    for attempt, one in last.items()
                    if one not in named and yielded_last.get(attempt, 0) <= places.get(one, 0)
                ),
            ]
        stack.extend(below)
    after = {one for one, at in places.items() if at > passed_on.get(_attempt(one), at)}
    return causes, after


def _attempt(path: str) -> str:
    """What the paths of one attempt of a body begin with."""
    return path.rpartition("/")[0]


def _said(history: Iterable[ev.Event]) -> dict[str, list[str]]:
    """What each path said of its failures: first which step's, if a body passed it on; a child
    workflow says its own name before.
    """
    said: dict[str, list[str]] = {}
    for event in history:
        if isinstance(event, ev.AttemptFailed):
            said.setdefault(event.path, []).append(event.error)
        elif isinstance(event, (ev.StepCompleted, ev.MemberCompleted)) and event.result.error:
            said.setdefault(event.path, []).append(event.result.error)
    return said
