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
    if last.failed_step is not None:
        causes, whole = _causes(history, last.failed_step)
    kinds = set(map(type, history))  # a pass is saved where there is nothing to find
    cancelled = _cancelled(history)
    undone = _undone(history) if ev.RollbackCompleted in kinds else {}
    own = set[str]()
    if cancelled or undone:
        known, settled = begun(history), _settled(history, causes)
        own = _outside(cancelled, settled, known)
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
    """What is dropped for paths to run again, and what was cancelled in the composites that are
    entered for it: they may come to another end now.
    """
    dropped = _expanded(own, whole, history)
    if not dropped:
        return ()
    counts, known = counting(history), begun(history)
    ended = {path: when for path, when in _settled(counts, set()).items() if path not in dropped}
    stopped = {
        path
        for path in _outside(_cancelled(counts), ended, known)
        if not dropped.isdisjoint(all_above(path, known))
    }
    return tuple(sorted(dropped | _expanded(stopped, (), history)))


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
    """Where the end of the run began: what was yielded after it was clean-up."""
    for index in range(len(history) - 1, -1, -1):
        event = history[index]
        if failed_step is not None:
            if isinstance(event, ev.StepCompleted) and event.path == failed_step:
                return index
        elif isinstance(event, _ENDING_IT):
            return index
        elif isinstance(event, ev.RunSuspended):
            break
    return len(history)


def _cancelled(history: Iterable[ev.Event]) -> dict[str, int]:
    return {
        event.path: index
        for index, event in enumerate(history)
        if isinstance(event, (ev.StepCompleted, ev.MemberCompleted)) and event.status == "cancelled"
    }


def _begun_at(history: Iterable[ev.Event]) -> dict[str, int]:
    """When each step began that counts, for the first time: later drives may enter it again."""
    begun_at: dict[str, int] = {}
    for index, event in enumerate(history):
        if isinstance(event, ev.StepStarted):
            begun_at.setdefault(event.path, index)
        elif isinstance(event, ev.RunResumed):
            _drop(begun_at, event.superseded)
    return begun_at


def _causes(history: Sequence[ev.Event], path: str) -> tuple[set[str], set[str]]:
    """The failed step and, below it, the failures that it passed on, in each of its attempts; and
    what the bodies of those yielded after them, to clean up.

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
    said, begun_at = _said(history), _begun_at(history)
    yielded_last: dict[str, int] = {}
    for one, index in begun_at.items():
        yielded_last[_attempt(one)] = max(index, yielded_last.get(_attempt(one), 0))
    causes, passed_on, stack = set[str](), dict[str, int](), [path]
    while stack:
        here = stack.pop()
        causes.add(here)
        below = failed_in.get(here, [])
        if here in bodies:
            last = {_attempt(one): one for one in sorted(below, key=failed.__getitem__)}
            below = list[str]()
            for attempt, one in last.items():
                texts = [text.removeprefix(bodies[here]) for text in said.get(here, ())]
                if any(text.startswith(f"step {one!r} ") for text in texts):
                    passed_on[attempt] = failed[one]
                elif yielded_last.get(attempt, 0) > failed[one]:
                    continue
                below.append(one)
        stack.extend(below)
    after = {one for one, at in begun_at.items() if at > passed_on.get(_attempt(one), at)}
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
