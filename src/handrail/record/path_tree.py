"""The recorded paths of a run, as a tree: which children of a path count, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from handrail.model.paths import is_budget_gate, parent_of
from handrail.model.results import StepResult
from handrail.record.assemble import copier
from handrail.record.path_state import PathState


class PathTree:
    """What is recorded of each path, and the children of each. Mutable."""

    def __init__(self) -> None:
        self._paths: dict[str, PathState] = {}
        self._children: dict[str, dict[str, None]] = {}
        self._gaps: dict[str, PathState] = {}
        """Forgotten paths, as they were. They stay among the children of the step above, and so do
        the paths below them, for they may begin again.
        """

    def knows(self, path: str) -> bool:
        """True if anything is recorded of this path."""
        return path in self._paths

    def get(self, path: str) -> PathState | None:
        """The record of this path; None if nothing is recorded of it."""
        return self._paths.get(path)

    def at(self, path: str) -> PathState:
        """What is recorded of this path; an empty record if nothing is."""
        return self._paths.get(path) or PathState()

    def items(self) -> Iterable[tuple[str, PathState]]:
        """All paths whose records count."""
        return self._paths.items()

    def begun(self) -> dict[str, PathState]:
        """All steps and members that ever began, whether their records still count or not."""
        states = (*self._gaps.items(), *self._paths.items())
        return {path: state for path, state in states if state.kind}

    def paths_below(self, path: str) -> Iterator[str]:
        """Every recorded path below this one, those above before those below them."""
        stack = list(self._counting(path))
        while stack:
            known = stack.pop()
            yield known
            stack.extend(self._counting(known))

    def children(self, path: str) -> list[str]:
        """The recorded children of a path, in the order of the group, or as they were yielded."""
        return sorted(self._counting(path), key=self._place)

    def reached_children(self, path: str) -> list[str]:
        """The recorded children of a path in order; if it has ended, only those that it reached."""
        return sorted(self._reached_children(path), key=self._place)

    def left_by_attempts(self, path: str) -> list[str]:
        """The children that a step without an end reached in its finished attempts."""
        record = self.at(path)
        children = self.children(path)
        left, over = set(record.unreached_children), record.attempts
        return [one for one in children if one not in left and self._paths[one].attempt <= over]

    def leads_on(self, path: str) -> bool:
        """True if a failed step has a fallback of its own on record."""
        return any(
            self._paths[child].attempt > attempt_in(path, child)
            and not self._is_budget_gate(path, child)
            for child in self._counting(path)
        )

    def tree_below(self, path: str, *, whole: bool = False) -> dict[str, dict[str, None]]:
        """The children of a path and of all paths below it, in order; ``whole``: also children that
        the end of their step did not reach.
        """
        found: dict[str, dict[str, None]] = {}
        stack = [path]
        while stack:
            here = stack.pop()
            counting = self._counting(here) if whole else self._reached_children(here)
            children = sorted(counting, key=self._place)
            if children:
                found[here] = dict.fromkeys(children)
                stack.extend(children)
        return found

    def below(self, path: str) -> Iterator[tuple[str, StepResult[Any]]]:
        """Every finished step below a path, with its result, marked as replayed; without steps that
        the end of a step above them did not reach.
        """
        stack = [path]
        while stack:
            for known in self._reached_children(stack.pop()):
                stack.append(known)
                result = self._paths[known].result
                if result is not None:
                    yield known, replayed(result)

    def ends(self) -> Iterator[tuple[str, StepResult[Any]]]:
        """Every finished step of the run, by path."""
        for path, state in self._paths.items():
            result = state.result
            if result is not None:
                yield path, replayed(result)

    def ended_paths(self) -> list[str]:
        """The paths of all finished steps."""
        return [path for path, state in self._paths.items() if state.result is not None]

    def parent_of(self, path: str) -> str:
        """The path of the step or member that encloses this one; see ``model.paths``."""
        return parent_of(path, self._paths)

    def _counting(self, path: str) -> Collection[str]:
        """The recorded children of a path, without those of later attempts than its end has: an
        earlier drive made these, and its end of the step is superseded.
        """
        children: Collection[str] = self._children.get(path, ())
        if not children:
            return children
        if self._gaps:
            children = [child for child in children if child not in self._gaps]
        record = self._paths.get(path)
        if not children or record is None or record.end is None:
            return children
        made = record.end.attempts
        return [child for child in children if attempt_in(path, child) <= made]

    def _reached_children(self, path: str) -> Collection[str]:
        """The children as ``_counting`` has them, without those that the end of this path did not
        reach, and without its fallback if its last attempt did not fail.
        """
        children, record = self._counting(path), self._paths.get(path)
        if not children or record is None or record.end is None:
            return children
        made, left = record.end.attempts, set(record.unreached_children)
        if record.attempts >= made:
            return [one for one in children if one not in left] if left else children
        return [one for one in children if one not in left and self._paths[one].attempt <= made]

    def _place(self, child: str) -> tuple[int, int]:
        """The attempt that a child belongs to, and its place in the group or body. If drives of
        different code recorded two in one place, the older one comes first.
        """
        record = self._paths[child]
        return record.attempt, record.index

    def _state(self, path: str) -> PathState:
        state = self._paths.get(path)
        if state is None:
            state = self._paths[path] = PathState()
            gap = self._gaps.pop(path, None)
            if gap is not None:
                state.kind, state.dropped_seq = gap.kind, max(1, gap.dropped_seq)
            home = self._home(path) if "/" in path else ""
            children = self._children.get(home)
            if children is None:
                children = self._children[home] = {}
            children[path] = None
        return state

    def _home(self, path: str) -> str:
        """The path of the node that a child belongs to: the nearest one above it that is known.

        ``a~2/b`` belongs to ``a``, unless ``a~2`` is itself a member's path.
        """
        above = path.rpartition("/")[0]
        while above and above not in self._paths:
            head, tilde, digits = above.rpartition("~")
            if tilde and digits.isascii() and digits.isdigit() and head in self._paths:
                return head
            above = above.rpartition("/")[0]
        return above

    def _is_budget_gate(self, step: str, path: str) -> bool:
        """True for the gate that asks whether a step's agent may be launched; not for a step."""
        return is_budget_gate(step, path) and not self.at(path).kind

    def _attempt_of(self, path: str) -> int:
        """The attempt of its parent that a new child belongs to; for a fallback, past the last."""
        above = self._home(path)
        if path.startswith(f"{above}~"):
            return attempt_in(above, path)
        known = self._paths.get(above)
        return 1 if known is None or not known.attempts else known.attempts + 1


def attempt_in(above: str, path: str) -> int:
    """The attempt of ``above`` that a path below it names (``above~2/...``); 1 if it names none."""
    if not path.startswith(f"{above}~"):
        return 1
    digits = path[len(above) + 1 :].partition("/")[0]
    return int(digits) if digits.isdigit() else 1


replayed: Callable[[StepResult[Any]], StepResult[Any]] = copier(StepResult, replayed=True)
"""A recorded result, marked as replayed; a fast copy, as each recorded step needs one."""
