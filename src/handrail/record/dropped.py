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

from collections.abc import Collection, Container, Iterable, Mapping, Sequence

from handrail.errors import LimitExceeded, StepIsPoisonous, StepWasInterrupted
from handrail.model import events as ev
from handrail.model.paths import ancestors_of, attempt_base, is_within, join, parent_of
from handrail.model.results import qualified
from handrail.record.path_tree import PathState
from handrail.record.run_record import Recorded
from handrail.steps.bodies import LEAVE, MAKE, MERGE, REMOVE
from handrail.steps.table import ends_by_itself, verb_of

_FINAL = frozenset({qualified(StepWasInterrupted), qualified(StepIsPoisonous)})
_LIMIT = qualified(LimitExceeded)


def stuck_step(error_type: str | None, failed_step: str | None) -> str | None:
    """The step that ended the run and fails each resume, unless ``rerun`` names it; else None."""
    return failed_step if error_type in _FINAL else None


class _Ends:
    """How the steps and members of a run began and ended, by path: a reading of its record.

    Each ``dict`` maps paths to the number of the event. Records that a drive dropped do not count.
    """

    def __init__(self, recorded: Recorded) -> None:
        self.known = recorded.begun()
        """All steps and members that ever began."""
        self.counting = dict(recorded.items())
        self._by_status: dict[str, dict[str, int]] = {}
        self.begun: dict[str, int] = {}
        """The steps that began."""
        self.cleaning_up: dict[str, int] = {}
        """The steps that bodies yielded while they were cancelled."""
        self.undone: dict[str, int] = {}
        """The steps whose rollback ran, and that did not run again since."""
        for path, state in self.counting.items():  # all in one go, as each resume does this
            if state.end is not None:
                self._by_status.setdefault(state.end.status, {})[path] = state.ended_seq
            if state.begun_seq:
                self.begun[path] = state.begun_seq
            if state.cleanup and state.cleanup_seq:
                self.cleaning_up[path] = state.cleanup_seq
            if state.undone is not None and state.undone_seq:
                self.undone[path] = state.undone_seq

    def ended_as(self, status: str) -> dict[str, int]:
        """The paths that ended with this status."""
        return self._by_status.get(status, {})

    def outcomes(self, but: Iterable[str] = ()) -> dict[str, int]:
        """The paths with an end that the run continued from: a success, or a failure that was
        handled. Without the paths in ``but``.
        """
        ends: dict[str, int] = {}
        for status, paths in self._by_status.items():
            ends |= paths if status != "cancelled" else {}
        for path in but:
            ends.pop(path, None)
        return ends

    def above(self, path: str) -> Iterable[str]:
        """The steps and members that contain a path, the nearest first."""
        return ancestors_of(path, self.known)

    def outside(self, paths: Mapping[str, int], outcomes: Mapping[str, int]) -> set[str]:
        """The paths not inside a step with a later outcome, as the loser of a won race is.

        A rollback that runs because the run failed comes after all enclosing steps have ended.
        """
        return {
            path
            for path, seq in paths.items()
            if not any(outcomes.get(above, 0) > seq for above in self.above(path))
        }

    def with_above(self, own: Iterable[str], whole: Iterable[str]) -> set[str]:
        """The ``own`` paths, the ``whole`` ones with all below them, and all that enclose any of
        them: a composite whose child runs again has not ended either.
        """
        roots = set(whole)
        paths = {*own, *roots}
        if not paths:
            return paths
        # By prefix first, which is quick; then by tree, as a member's key may look like an attempt.
        prefixes = tuple(prefix for root in roots for prefix in (f"{root}/", f"{root}~"))
        paths.update(
            path
            for path in self.known
            if path.startswith(prefixes) and not roots.isdisjoint(self.above(path))
        )
        for path in tuple(paths):
            paths.update(above for above in self.above(path) if above in self.known)
        return paths

    def entered(self, own: Iterable[str], whole: Iterable[str]) -> tuple[str, ...]:
        """The paths to drop so that the ``own`` and ``whole`` ones run again. In the composites
        that are entered for it, steps that were cancelled, cleaned up or undone are dropped, too:
        they may end differently now. A worktree that was removed is made again.
        """
        dropped = self.with_above(own, whole)
        outcomes = self.outcomes(but=dropped)

        def inside(paths: Mapping[str, int]) -> set[str]:
            """Those inside a dropped step, unless a kept step that ended encloses them."""
            left = self.outside(paths, outcomes)
            return {path for path in left if not dropped.isdisjoint(self.above(path))}

        again = inside(self.cleaning_up) | inside(self.undone)
        dropped = dropped | self.with_above(inside(self.ended_as("cancelled")), again)
        return tuple(sorted(dropped | self._git_work_in_removed_trees(dropped)))

    def _git_work_in_removed_trees(self, dropped: Container[str]) -> set[str]:
        """What git did for dropped ``worktree`` steps whose worktree is not there any more."""
        paths = set[str]()
        for path, state in self.counting.items():
            base, _, name = path.rpartition("/")
            if name not in {REMOVE, LEAVE} or state.end is None:
                continue
            is_removed = name == REMOVE or state.end.output is True
            if is_removed and parent_of(path, self.known) in dropped:
                paths.update(join(base, step) for step in (MAKE, MERGE, REMOVE, LEAVE))
        return paths & self.known.keys()


def _causes_of(ends: _Ends, paths: Sequence[str]) -> tuple[set[str], set[str]]:
    """The failed steps and, below them, the failures that they passed on, in each attempt; and the
    steps that a body yielded after such a failure, to clean up.

    If a body handled one failure and ended by another, the last one is the cause. If a body ended
    by an error of its own, its last failure is the cause, unless it yielded another step after it.
    A failure that a group collected may be the cause, too; the body yielded it with its group.
    """
    if not paths:
        return set(), set()
    counting, known = ends.counting, ends.known
    failed = ends.ended_as("failed")
    failed_in: dict[str, list[str]] = {}
    for path in sorted(failed, key=failed.__getitem__):
        failed_in.setdefault(parent_of(path, known), []).append(path)
    begun = ends.begun
    yielded_last: dict[str, int] = {}
    has_bodies = "" in paths or any(state.has_body or state.causes for state in counting.values())
    for path, seq in begun.items() if has_bodies else ():
        base = _attempt(path)
        yielded_last[base] = max(seq, yielded_last.get(base, 0))
    causes, passed_on, stack = set[str](), dict[str, int](), list(paths)
    while stack:
        here = stack.pop()
        causes.add(here)
        below, state = failed_in.get(here, []), counting.get(here)
        if not here or (state is not None and (state.has_body or state.causes)):
            reasons = {} if state is None else state.causes or {}
            last = {_attempt(path): path for path in below}
            below = [
                path
                for base, path in last.items()
                if not reasons.get(base) and failed[path] > yielded_last.get(base, 0)
            ]
            for cause in filter(failed.__contains__, reasons.values()):
                yielded = _yielded_in(here, cause, known)
                if yielded is not None:
                    below.append(cause)
                    passed_on[_attempt(yielded)] = counting[yielded].ended_seq
        stack.extend(below)
    causes.discard("")
    if not passed_on:
        return causes, set()
    after = (path for path, seq in begun.items() if seq > passed_on.get(_attempt(path), seq))
    return causes, set(after)


def _yielded_in(body: str, path: str, known: Container[str]) -> str | None:
    """The step yielded by ``body`` that is at this path, or encloses it; None if there is none."""
    for above in ancestors_of(path, known):
        if above == body:
            return path
        path = above
    return None


def _attempt(path: str) -> str:
    """The common beginning of the paths in one attempt of a body."""
    return path.rpartition("/")[0]


def superseded(recorded: Recorded) -> tuple[str, ...]:
    """The paths whose records a resume drops; children whose records it drops, too, are listed."""
    last = recorded.completed
    if last is None or last.status == "succeeded":
        return ()
    ends = _Ends(recorded)
    ended_by = [last.failed_step or ""]
    if last.failed_step is None and not _ended_by_its_body(ends, recorded, last):
        ended_by = []
    causes, whole = _causes_of(ends, ended_by)
    own = ends.outside(ends.ended_as("cancelled"), ends.outcomes(but=causes))
    was_failing = sorted(path for path in own if _passes_failures_on(ends.counting[path]))
    if was_failing:
        causes, whole = _causes_of(ends, [*ended_by, *was_failing])
    outcomes = ends.outcomes(but=causes)
    whole |= ends.outside(ends.cleaning_up, outcomes) | ends.outside(ends.undone, outcomes)
    for path in causes:
        end = recorded.at(path).end
        if end is None or end.error_type not in _FINAL:
            own.add(path)
        if recorded.at(path).kind == "validate":  # its rounds count from one again
            whole.add(path)
    ended_at = _what_ended_it(ends, recorded, last)
    if ended_at is not None:
        whole |= {path for path, seq in ends.begun.items() if seq > ended_at and path not in own}
    return ends.entered(own, whole)


def _ended_by_its_body(ends: _Ends, recorded: Recorded, last: ev.WorkflowCompleted) -> bool:
    """True if an error of the run's body ended the run: no limit, no cancellation, and no drive
    that only finished the rollbacks which an earlier one had begun.
    """
    undone = ends.undone
    left = ends.outside(undone, ends.outcomes())
    only_undid = any(undone[path] < recorded.resumed_seq for path in left)
    return last.status == "failed" and last.error_type != _LIMIT and not only_undid


def _passes_failures_on(state: PathState) -> bool:
    """True for a composite that does not handle a failure below it. A race, and a group that
    collects failures, handle each; so one that was cancelled was not failing by then.
    """
    group = state.group
    if group is None:
        return state.has_body
    return not verb_of(group.kind).needs_one and group.on_error != "continue"


def _what_ended_it(ends: _Ends, recorded: Recorded, last: ev.WorkflowCompleted) -> int | None:
    """The number of the event at which the run's end began: steps that began later were clean-up.
    None if none did.

    A failure that a group collected ended the run after the group had ended. Each drive that
    continues to unwind records the limit, or the request to cancel: the first record counts.
    """
    if last.status == "failed" and last.error_type != _LIMIT:
        if last.failed_step is None:  # the workflow's own error, whatever came before
            return None
        outermost = (last.failed_step, *ends.above(last.failed_step))[-1]
        return recorded.at(outermost).ended_seq or None
    ending = ev.CancelRequested if last.status == "cancelled" else ev.LimitReached
    return recorded.ended_since.get(ending)


def run_again(paths: Collection[str], recorded: Recorded) -> tuple[str, ...]:
    """The paths to drop so that these paths run again, with all that is below them. One that ends
    in "/" is only entered again: what is below it keeps its record.
    """
    if not paths:
        return ()
    own = {path[:-1] for path in paths if path.endswith("/")}
    whole = {path for path in paths if not path.endswith("/")}
    return _Ends(recorded).entered(own, whole)


def cancelled_half_way(recorded: Recorded) -> tuple[str, ...]:
    """The paths of steps that were cancelled in a drive that died while it unwound. A resume enters
    them again as far as they had come, and cancels them again; clean-up by bodies is kept.
    """
    since = recorded.cancel_seq
    if not since:
        return ()
    ends = _Ends(recorded)
    failed = {path: seq for path, state in ends.counting.items() if (seq := state.failed_seq)}
    over = failed | ends.outcomes()
    cancelled = {path: seq for path, seq in ends.ended_as("cancelled").items() if seq > since}
    return tuple(sorted(ends.with_above(ends.outside(cancelled, over), ())))


def groups_of(recorded: Recorded) -> set[str]:
    """The paths of groups, but not of races: these have handled each failure."""
    begun = recorded.begun().items()
    groups = ((path, state.group) for path, state in begun if state.group is not None)
    return {path for path, group in groups if not verb_of(group.kind).needs_one}


def failed_members(recorded: Recorded, groups: Collection[str] | None) -> list[str]:
    """The failed members of these groups, and of groups in them that collect failures, of their
    last attempt; by default, of all groups that collect failures.
    """
    begun = recorded.begun().items()
    collecting = [path for path, one in begun if one.group and one.group.on_error == "continue"]
    inside = (path for path in collecting if any(is_within(path, group) for group in groups or ()))
    groups = collecting if groups is None else {*groups, *inside}
    bases = set[str]()
    for path in groups:
        end = recorded.at(path).end
        bases.add(attempt_base(path, 1 if end is None else end.attempts))
    failed = _Ends(recorded).ended_as("failed")
    in_order = sorted(failed, key=failed.__getitem__)
    return [path for path in in_order if path.rpartition("/")[0] in bases]


def ran_again_since(recorded: Recorded, path: str) -> list[str]:
    """The actions and waits whose record a resume dropped, and that ended again after this step,
    or member, had begun.
    """
    since = recorded.at(path).first_seq
    again = {
        known: state.ended_seq
        for known, state in recorded.items()
        if state.dropped_seq and state.end is not None and ends_by_itself(state.kind)
    }
    return sorted((path for path in again if again[path] > since > 0), key=again.__getitem__)
