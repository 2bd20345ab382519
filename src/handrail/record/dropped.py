"""Which records no longer count when a run that did not succeed is resumed.

A run that was killed or suspended has no end, so nothing of it is superseded: steps with an end are
kept, steps without one are entered again. A run that failed or was cancelled has ended, and a
resume tries again what ended it:

recorded                                    failed       cancelled    its own rollback ran
a step that succeeded, skipped, defaulted   kept         kept         again
a failure that the workflow handled         kept (it is raised again)
the failure that ended the run              again, and the failures below it that it passed on;
                                            not the failure of a step that must not run again
a validation that ended the run             again, all its rounds
a step that was cancelled                   again        again
a step yielded after what ended it          again        again        again
whatever encloses a step that runs again    entered again
an answer                                   kept, unless its step is superseded
a signal                                    kept; taken again if its step is superseded, unless it
                                            did not fit

The whole table, for users and with all other records, begins docs/explanation/replay.md.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Container, Iterable, Mapping, Sequence

from handrail.errors import LimitExceeded, StepIsPoisonous, StepWasInterrupted
from handrail.model import events as ev
from handrail.model.paths import ancestors_of, attempt_base, is_within, join, parent_of
from handrail.model.results import qualified
from handrail.steps.verbs import LEAF_KINDS, LEAVE, MAKE, MERGE, REMOVE, WAIT_KINDS

# The parts of a history that still count: when each step began and ended, and how.
#
# Records that a later drive dropped do not count. Of several records of a path, the last one does.


class HistoryIndex:
    """The records of a history that count, by path. Positions are indexes in it. Read-only."""

    def __init__(self, history: Iterable[ev.Event]) -> None:
        self.known: set[str] = set()
        """The paths of all steps and members that ever began."""
        self.begun_at: dict[str, int] = {}
        """The position where each step began, or where a later drive entered it again."""
        self.cleaning_up: dict[str, int] = {}
        """The steps that bodies yielded while they were cancelled, with the position of each start.
        """
        self.ends: dict[str, ev.StepCompleted | ev.MemberCompleted] = {}
        self.ended_at: dict[str, int] = {}
        self.undone: dict[str, int] = {}
        """The steps whose rollback ran, and that did not run again since, with its position."""
        self.causes: dict[str, dict[str, str]] = {}
        """Of each body that failed, the step whose failure ended each of its attempts, by the
        beginning of the paths in it; empty if the body raised an error of its own.
        """
        self.attempt_failed: dict[str, int] = {}
        """The position where the last failed attempt of each step ended."""
        self._unwinding = False
        begin, begun_at, ends, ended_at = self.known.add, self.begun_at, self.ends, self.ended_at
        for index, event in enumerate(history):
            if type(event) is ev.StepStarted:  # most are of the first two
                path = event.path
                begin(path)
                begun_at[path] = index
                if event.cleanup:
                    self.cleaning_up[path] = index
            elif type(event) is ev.StepCompleted or type(event) is ev.MemberCompleted:
                path = event.path
                ends[path], ended_at[path] = event, index
                if type(event) is ev.MemberCompleted and event.cause is not None:
                    self.causes[path] = {path: event.cause}
            else:
                self._other(event, index)

    def _other(self, event: ev.Event, index: int) -> None:
        match event:
            case ev.MemberStarted():
                self.known.add(event.path)
            case ev.AttemptFailed():
                path, number = event.path, event.attempt
                self.attempt_failed[path] = index
                if event.cause is not None:
                    self.causes.setdefault(path, {})[attempt_base(path, number)] = event.cause
            case ev.RollbackCompleted():
                self.undone[event.path] = index
            case ev.RunResumed():
                self._drop(event.superseded)
            case ev.CancelRequested() | ev.WorkflowCompleted():
                self._unwinding = isinstance(event, ev.CancelRequested)
            case _:
                pass

    def _drop(self, paths: Iterable[str]) -> None:
        """Drop what a resume superseded; while the run is being cancelled, keep the starts."""
        at = (self.ended_at, self.attempt_failed, self.undone, self.cleaning_up)
        for path in paths:
            for found in (self.ends, self.causes, *at):
                found.pop(path, None)
            if not self._unwinding:
                self.begun_at.pop(path, None)

    def ended_as(self, status: str) -> dict[str, int]:
        """The paths that ended with this status, each with the position of its end."""
        return {
            path: self.ended_at[path] for path, end in self.ends.items() if end.status == status
        }

    def outcomes(self, but: Container[str] = ()) -> dict[str, int]:
        """The paths with an end that the run continued from, each with the position of that end: a
        success, or a failure that was handled. Without the paths in ``but``.
        """
        return {
            path: self.ended_at[path]
            for path, end in self.ends.items()
            if end.status != "cancelled" and path not in but
        }


def begun(history: Iterable[ev.Event]) -> set[str]:
    """The paths of all steps and members that ever began."""
    kinds = (ev.StepStarted, ev.MemberStarted)
    return {event.path for event in history if isinstance(event, kinds)}


def failing(history: Iterable[ev.Event], among: Iterable[str]) -> list[str]:
    """The cancelled paths, ``among`` these, of composites that may have been failing by then: a
    failure below, which the composite did not handle, must be tried again, too.

    A race, and a group that collects failures, handles each failure.
    """
    composites = (ev.GroupStarted, ev.MemberStarted, ev.SubworkflowStarted)
    cancelled = set(among)
    return sorted(
        {
            event.path
            for event in history
            if isinstance(event, composites)
            and event.path in cancelled
            and not _continues_on_error(event)
        }
    )


def _continues_on_error(event: ev.Event) -> bool:
    if not isinstance(event, ev.GroupStarted):
        return False
    grouped = {"parallel", "for_each", "work"}
    return event.kind not in grouped or event.on_error == "continue"


def causes_of(
    index: HistoryIndex, history: Iterable[ev.Event], paths: Sequence[str]
) -> tuple[set[str], set[str]]:
    """The failed steps and, below them, the failures that they passed on, in each attempt; and the
    steps that a body yielded after such a failure, to clean up.

    If a body handled one failure and ended by another, the last one is the cause. If a body ended
    by an error of its own, its last failure is the cause, unless it yielded another step after it.
    A failure that a group collected may be the cause, too; the body yielded it with its group.
    """
    if not paths:
        return set(), set()
    known, begun_at, ended_at = index.known, index.begun_at, index.ended_at
    failed = index.ended_as("failed")
    failed_in: dict[str, list[str]] = {}
    for one in sorted(failed, key=failed.__getitem__):
        failed_in.setdefault(parent_of(one, known), []).append(one)
    bodies = _bodies(history)
    yielded_last: dict[str, int] = {}
    for one, at in begun_at.items() if bodies or index.causes else ():
        yielded_last[_attempt(one)] = max(at, yielded_last.get(_attempt(one), 0))
    causes, passed_on, stack = set[str](), dict[str, int](), list(paths)
    while stack:
        here = stack.pop()
        causes.add(here)
        below = failed_in.get(here, [])
        if here in bodies or here in index.causes:
            ends = index.causes.get(here, {})
            last = {_attempt(one): one for one in below}
            below = [
                one
                for base, one in last.items()
                if not ends.get(base) and failed[one] > yielded_last.get(base, 0)
            ]
            for cause in filter(failed.__contains__, ends.values()):
                yielded = _yielded_in(here, cause, known)
                if yielded is not None:
                    below.append(cause)
                    passed_on[_attempt(yielded)] = ended_at[yielded]
        stack.extend(below)
    if not passed_on:
        return causes, set()
    after = {one for one, at in begun_at.items() if at > passed_on.get(_attempt(one), at)}
    return causes, after


def _bodies(history: Iterable[ev.Event]) -> set[str]:
    """The paths of members and child workflows."""
    kinds = (ev.MemberStarted, ev.SubworkflowStarted)
    return {event.path for event in history if isinstance(event, kinds)}


def _yielded_in(body: str, path: str, known: set[str]) -> str | None:
    """The step yielded by ``body`` that is at this path, or encloses it; None if there is none."""
    for above in ancestors_of(path, known):
        if above == body:
            return path
        path = above
    return None


def _attempt(path: str) -> str:
    """The common beginning of the paths in one attempt of a body."""
    return path.rpartition("/")[0]


_LETTERS = (ev.GateAnswered, ev.SignalReceived)
"""Messages that may follow the end of a run."""
_LIMIT = qualified(LimitExceeded)
_FINAL = frozenset({qualified(StepWasInterrupted), qualified(StepIsPoisonous)})


def stuck_step(error_type: str | None, failed_step: str | None) -> str | None:
    """The step that ended the run and fails each resume, unless ``rerun`` names it; else None."""
    return failed_step if error_type in _FINAL else None


def superseded(history: Sequence[ev.Event]) -> tuple[str, ...]:
    """The paths whose records a resume drops; children whose records it drops, too, are listed."""
    last = next((one for one in reversed(history) if not isinstance(one, _LETTERS)), None)
    if not isinstance(last, ev.WorkflowCompleted) or last.status == "succeeded":
        return ()
    index = HistoryIndex(history)
    ended_by = [] if last.failed_step is None else [last.failed_step]
    causes, whole = causes_of(index, history, ended_by)
    own = _outside(index.ended_as("cancelled"), index.outcomes(but=causes), index)
    was_failing = failing(history, own)
    if was_failing:
        causes, whole = causes_of(index, history, [*ended_by, *was_failing])
    outcomes = index.outcomes(but=causes)
    whole |= _outside(index.cleaning_up, outcomes, index)
    whole |= _outside(index.undone, outcomes, index)
    own |= {path for path in causes if not _is_final(index.ends.get(path))}
    whole |= causes & _validations(history)
    ended_at = _what_ended_it(index, history, last)
    whole |= {path for path, at in index.begun_at.items() if at > ended_at and path not in own}
    return _with_what_is_entered(own, whole, index)


def run_again(paths: Collection[str], history: Iterable[ev.Event]) -> tuple[str, ...]:
    """The paths to drop so that these paths run again, with all that is below them. One that ends
    in "/" is only entered again: what is below it keeps its record.
    """
    if not paths:
        return ()
    own = {path[:-1] for path in paths if path.endswith("/")}
    whole = {path for path in paths if not path.endswith("/")}
    return _with_what_is_entered(own, whole, HistoryIndex(history))


def groups_of(history: Iterable[ev.Event]) -> set[str]:
    """The paths of groups, but not of races: these have handled each failure."""
    return {one.path for one in history if isinstance(one, ev.GroupStarted) and one.kind != "race"}


def failed_members(history: Sequence[ev.Event], groups: Collection[str] | None) -> list[str]:
    """The failed members of these groups, and of groups in them that collect failures, of their
    last attempt; by default, of all groups that collect failures.
    """
    index = HistoryIndex(history)
    began = (one for one in history if isinstance(one, ev.GroupStarted))
    collecting = {one.path for one in began if one.on_error == "continue"}
    named = groups or ()
    inside = (path for path in collecting if any(is_within(path, group) for group in named))
    groups = collecting if groups is None else {*groups, *inside}
    ends = {path: index.ends.get(path) for path in groups}
    bases = {
        attempt_base(path, 1 if end is None else end.result.attempts) for path, end in ends.items()
    }
    return [path for path in index.ended_as("failed") if path.rpartition("/")[0] in bases]


def ran_again_since(history: Iterable[ev.Event], path: str) -> list[str]:
    """The actions and waits whose record a resume dropped, and that ended again after this step,
    or member, had begun.
    """
    dropped, again, has_begun = set[str](), dict[str, str](), False
    for event in history:
        if isinstance(event, ev.RunResumed):
            dropped.update(event.superseded)
            if path in event.superseded:
                has_begun, again = False, {}
        elif isinstance(event, (ev.StepStarted, ev.MemberStarted)) and event.path == path:
            has_begun = True
        elif isinstance(event, ev.StepCompleted) and has_begun and event.path in dropped:
            again[event.path] = event.result.step_type
    return [one for one, kind in again.items() if kind in LEAF_KINDS | WAIT_KINDS]


def _with_what_is_entered(
    own: Iterable[str], whole: Iterable[str], index: HistoryIndex
) -> tuple[str, ...]:
    """The paths to drop so that the ``own`` and ``whole`` ones run again. In the composites that
    are entered for it, steps that were cancelled, cleaned up or undone are dropped, too: they may
    end differently now. A worktree that was removed is made again.
    """
    dropped = _expanded(own, whole, index)
    ended = index.outcomes(but=dropped)
    inside = functools.partial(_inside, dropped, ended, index)
    stopped = inside(index.ended_as("cancelled"))
    whole = inside(index.cleaning_up) | inside(index.undone)
    dropped |= _expanded(stopped, whole, index)
    return tuple(sorted(dropped | _git_work_in_removed_trees(dropped, index)))


def _git_work_in_removed_trees(dropped: set[str], index: HistoryIndex) -> set[str]:
    """What git did for the dropped ``worktree`` steps whose worktree is not there any more."""
    found = set[str]()
    for path, end in index.ends.items():
        base, _, name = path.rpartition("/")
        is_removed = name == REMOVE or (name == LEAVE and end.result.output is True)
        if is_removed and parent_of(path, index.known) in dropped:
            found.update(join(base, one) for one in (MAKE, MERGE, REMOVE, LEAVE))
    return found & index.known


def _inside(
    dropped: set[str], ended: Mapping[str, int], index: HistoryIndex, found: Mapping[str, int]
) -> set[str]:
    """The ``found`` paths inside a dropped step, unless a kept step that ended encloses them."""
    return {
        path
        for path in _outside(found, ended, index)
        if not dropped.isdisjoint(ancestors_of(path, index.known))
    }


def _expanded(own: Iterable[str], whole: Iterable[str], index: HistoryIndex) -> set[str]:
    """The ``own`` paths, the ``whole`` ones with all below them, and all that enclose any of them:
    a composite whose child runs again has not ended either.
    """
    own, roots = set(own), set(whole)
    if not own and not roots:
        return set()
    known = index.known
    # By prefix first, which is quick; then by tree, as a member's key may look like an attempt.
    prefixes = tuple(prefix for root in roots for prefix in (f"{root}/", f"{root}~"))
    dropped = {*own, *roots}
    dropped.update(
        path
        for path in known
        if path.startswith(prefixes) and not roots.isdisjoint(ancestors_of(path, known))
    )
    for path in tuple(dropped):
        dropped.update(above for above in ancestors_of(path, known) if above in known)
    return dropped


def _validations(history: Iterable[ev.Event]) -> set[str]:
    """The paths of validations. They run again as a whole: their rounds count from one again."""
    return {
        event.path
        for event in history
        if isinstance(event, ev.StepStarted) and event.step_type == "validate"
    }


def cancelled_half_way(history: Sequence[ev.Event]) -> tuple[str, ...]:
    """The paths of steps that were cancelled in a drive that died while it unwound. A resume enters
    them again as far as they had come, and cancels them again; clean-up by bodies is kept.
    """
    for index in range(len(history) - 1, -1, -1):
        if isinstance(history[index], ev.WorkflowCompleted):
            break
        if isinstance(history[index], ev.CancelRequested):
            whole, since = HistoryIndex(history), HistoryIndex(history[index:])
            over = since.attempt_failed | since.outcomes()
            cancelled = _outside(since.ended_as("cancelled"), over, whole)
            return tuple(sorted(_expanded(cancelled, (), whole)))
    return ()


def _outside(
    paths: Mapping[str, int], outcomes: Mapping[str, int], index: HistoryIndex
) -> set[str]:
    """The paths that are not inside a step with a later outcome, as the loser of a won race is.

    A rollback that runs because the run failed comes after all enclosing steps have ended.
    """
    return {
        path
        for path, when in paths.items()
        if not any(outcomes.get(above, -1) > when for above in ancestors_of(path, index.known))
    }


def _is_final(end: ev.StepCompleted | ev.MemberCompleted | None) -> bool:
    """True if a step failed because it must not run again; only ``rerun`` lets it."""
    return end is not None and end.result.error_type in _FINAL


def _what_ended_it(
    index: HistoryIndex, history: Sequence[ev.Event], last: ev.WorkflowCompleted
) -> int:
    """The position where the run's end began: steps that began later were clean-up.

    A failure that a group collected ended the run after the group had ended. Each drive that
    continues to unwind records the limit, or the request to cancel: the first record counts.
    """
    if last.status == "failed" and last.error_type != _LIMIT:
        if last.failed_step is None:  # the workflow's own error, whatever came before
            return len(history)
        outermost = (last.failed_step, *ancestors_of(last.failed_step, index.known))[-1]
        return index.ended_at.get(outermost, len(history))
    ending = ev.CancelRequested if last.status == "cancelled" else ev.LimitReached
    ended_at, ends = len(history), 0
    for number in range(len(history) - 1, -1, -1):
        event = history[number]
        if isinstance(event, ending):
            ended_at = number
        elif isinstance(event, ev.WorkflowCompleted):
            ends += 1
            if ends > 1:  # an earlier end no longer matters: the run was resumed after it
                break
        elif isinstance(event, ev.RunSuspended):
            break
    return ended_at
