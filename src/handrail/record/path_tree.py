"""What is recorded of each path of a run, and the tree of them: which children of a path count."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import msgspec

from handrail.model import events as ev
from handrail.model.dataclass import copier
from handrail.model.paths import is_budget_gate, parent_of
from handrail.model.results import AgentResult, OpenGate, StepResult, Usage

How: TypeAlias = Literal["", "failed", "interrupted"]
"""How a stretch of work ended; "": as the step did, or it has no end yet."""
Stretch: TypeAlias = tuple[float, float | None, How]
"""When work on a step began, when that ended (None: it has not), and how. In unix seconds."""


class StepTimes(msgspec.Struct, gc=False):  # it is in no cycle
    """When a step was at work. Mutable; ``since``: when the open stretch began, or will begin."""

    began: float | None
    since: float | None
    earlier: list[Stretch] = []

    def begin(self, at: float, ended_at: float | None) -> None:
        """Begin, or begin again if it had ended; an open stretch goes on."""
        if ended_at is not None:
            self.stop(ended_at, "")
            self.began = None
        self.began = at if self.began is None else self.began
        self.since = at if self.since is None else self.since

    def stop(self, at: float, how: How) -> None:
        """End the open stretch; one that was not due yet counts only if it failed."""
        since, self.since = self.since, None
        if since is not None and (since <= at or how == "failed"):
            self.earlier.append((min(since, at), at, how))

    def stretches(self, ended_at: float | None) -> tuple[Stretch, ...]:
        """All stretches, of a step that has not ended with the open one."""
        since = self.since
        if since is None or (ended_at is not None and since > ended_at):
            return tuple(self.earlier)
        return (*self.earlier, (since, ended_at, ""))


class PathState(msgspec.Struct, eq=False, gc=False):  # it is in no cycle
    """What is recorded of one path: a step, a member, or a question. The fold fills it.

    A struct of msgspec's, since a replay makes one for every path. ``*_seq`` are numbers of events.
    """

    kind: str = ""
    """The type of the step, ``member``, or nothing for a question that is no step."""

    started_at: float | None = None
    verdict: bool | None = None
    end: StepResult[Any] | None = None
    """Of a step or a member."""
    attempts: int = 0
    consumed_signal: int = 0
    """The number of the signal that the step consumed; 0 for none."""
    failure: ev.AttemptFailed | None = None
    retry_due: float | None = None
    due: dict[tuple[str, int], float] | None = None
    gates: dict[int, OpenGate] | None = None
    signal: str = ""
    index: int = 0
    attempt: int = 1
    """The attempt of the step above that this path belongs to."""
    fingerprint: str = ""
    fingerprint_at_gate: str = ""
    """The step's fingerprint when its gate opened: a process may die between start and gate."""
    digest: str = ""
    first_seq: int = 0
    """Its start."""
    begun_seq: int = 0
    """Of a step: its start, or where a later drive entered it again."""
    dropped_seq: int = 0
    """Where a resume dropped an earlier record, or end, of it; 0 if none did."""
    ended_seq: int = 0
    causes: dict[str, str] | None = None
    """Of a body that failed: the step whose failure ended each of its attempts, by the beginning of
    the paths in it; empty if the body raised an error of its own.
    """
    group: ev.GroupStarted | None = None
    found: tuple[tuple[str, float], ...] = ()
    """Of a task: the tasks that it brought, by id, with their priorities."""
    derived: str = ""
    """How its output is composed from the records below it; see ``record.outputs``."""
    unreached_children: tuple[str, ...] = ()
    """Recorded children that its end, or its last failed attempt, did not reach."""
    child: ev.SubworkflowEnded | None = None
    """The end of its child workflow."""
    ladder: tuple[ev.LadderStep | ev.AgentGuided, ...] = ()
    session: ev.AgentSessionStarted | None = None
    """Of the launch that was at work last; None once the end of that launch is known."""
    interrupted_usage: Usage | None = None
    """The usage that interrupted launches of this attempt reported."""
    failed_usage: Usage | None = None
    """The usage of its failed attempts."""
    crashes: int = 0
    """How often the process died while this was at work, without a record of that."""
    interrupted: bool = False
    """It was at work when its process ended, and may have taken effect."""
    cleanup: bool = False
    """It was yielded by a body that was being cancelled."""
    rollback: bool = False
    undone: ev.RollbackCompleted | None = None
    ended_at: float | None = None
    """When it ended, or its question was answered; None once it has begun again."""
    times: StepTimes | None = None
    """When it was at work, once that was more than from its start to its end."""

    def timed(self) -> StepTimes:
        """When it was at work, to note what comes."""
        if self.times is None:
            self.times = StepTimes(self.started_at, self.started_at)
        return self.times

    def start(self, at: float) -> None:
        """Note a start of it, its first or another."""
        if self.started_at is not None or self.times is not None:
            self.begin(at)
        if self.started_at is None:
            self.started_at = at

    def begin(self, at: float) -> None:
        """Begin it again, or a question: an open stretch of work goes on."""
        self.timed().begin(at, self.ended_at)
        self.ended_at = None

    def stop(self, at: float, how: How) -> None:
        """End the open stretch of work."""
        if self.ended_at is None:
            self.timed().stop(at, how)

    @property
    def began(self) -> float | None:
        """When it began, or began again after an end; the start of a fork does not move it."""
        if self.times is None and self.started_at is None and self.end and self.ended_at:
            return self.ended_at - self.end.duration_ms / 1000
        return self.started_at if self.times is None else self.times.began

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """When it was at work: an attempt may fail, or its process end, and another follow."""
        times = self.times or StepTimes(self.began, self.began)
        return times.stretches(self.ended_at)

    def waits_at(self, moment: float) -> bool:
        """True if at this time a pause before its next attempt, or launch, was not yet over."""
        last = self.ladder[-1] if self.ladder else None
        due = self.retry_due or 0.0
        if isinstance(last, ev.LadderStep) and self.session is None:
            due = due or last.due
        return due > moment

    def begin_later(self, later_s: float) -> None:
        """Move its start, and the ends of its waits, to a later time."""
        if self.started_at is not None:
            self.timed()
            self.started_at += later_s
        if self.retry_due is not None:
            self.retry_due += later_s
        self.due = {why: due + later_s for why, due in (self.due or {}).items()}
        gates = (self.gates or {}).items()
        self.gates = {attempt: moved_gate(gate, later_s) for attempt, gate in gates}

    @property
    def result(self) -> StepResult[Any] | None:
        """The end of a step, as the run's result lists it: it lists no members."""
        return None if self.kind == "member" else self.end

    @property
    def has_body(self) -> bool:
        """It is a member, or a child workflow."""
        return self.kind in {"member", "subworkflow"}

    @property
    def guidance(self) -> tuple[str, ...]:
        """The guidance that people gave its agent."""
        given = [event.next for event in self.ladder if isinstance(event, ev.AgentGuided)]
        return (*given[-1].said, *given[-1].guidance) if given else ()

    @property
    def reasks(self) -> int:
        """How often its agent was asked again for an answer that fits."""
        failed = [event.next for event in self.ladder if isinstance(event, ev.LadderStep)]
        return failed[-1].reasks if failed else 0

    @property
    def cleanup_seq(self) -> int:
        """Its start, if a body that was being cancelled yielded it; else 0."""
        return self.begun_seq if self.cleanup and self.begun_seq > self.dropped_seq else 0

    @property
    def failed_seq(self) -> int:
        """The end of its last failed attempt, or 0."""
        return self._counting(self.failure)

    @property
    def undone_seq(self) -> int:
        """The end of its rollback, if it did not run again since; else 0."""
        return self._counting(self.undone)

    def _counting(self, event: ev.Event | None) -> int:
        return 0 if event is None or event.seq <= self.dropped_seq else event.seq

    def ended(self) -> bool:
        """True if the step's end, or the member's, is recorded."""
        return self.end is not None

    def drop_end(self, seq: int) -> None:
        """Drop the end, and nothing else: the step is entered again as far as it had come."""
        self.end = self.causes = None
        self.derived = ""
        self.first_seq, self.dropped_seq = 0, seq


def moved_gate(gate: OpenGate, later_s: float) -> OpenGate:
    """The gate, opened later by some seconds."""
    deadline = None if gate.deadline is None else gate.deadline + later_s
    return replace(gate, since=gate.since + later_s, deadline=deadline)


class PathTree:
    """What is recorded of each path, and the children of each. Mutable."""

    def __init__(self) -> None:
        self._paths: dict[str, PathState] = {}
        self._children: dict[str, dict[str, None]] = {}
        self._begun_again = set[str]()
        """The paths below which anything of a later attempt, or of a fallback, is recorded."""
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
        return self._paths_below(path) if path in self._children else iter(())

    def _paths_below(self, path: str) -> Iterator[str]:
        stack = list(self._counting(path))
        while stack:
            known = stack.pop()
            yield known
            if known in self._children:
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
        tree: dict[str, dict[str, None]] = {}
        stack = [path]
        while stack:
            here = stack.pop()
            counting = self._counting(here) if whole else self._reached_children(here)
            children = sorted(counting, key=self._place)
            if children:
                tree[here] = dict.fromkeys(children)
                stack.extend(children)
        return tree

    def below(self, path: str) -> Iterator[tuple[str, StepResult[Any]]]:
        """Every finished step below a path, with its result, marked as replayed; without steps that
        the end of a step above them did not reach.
        """
        return self._below(path) if path in self._children else iter(())

    def _below(self, path: str) -> Iterator[tuple[str, StepResult[Any]]]:
        stack = [path]
        while stack:
            for known in self._reached_children(stack.pop()):
                if known in self._children:
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

    def steps_begun(self) -> int:
        """How many steps began, in all drives, and still count."""
        return sum(state.begun_seq > 0 for state in self._paths.values())

    @cached_property
    def session_totals(self) -> dict[str, Usage]:
        """The latest total usage of each agent session; totals only grow."""
        totals: dict[str, Usage] = {}
        for record in self._paths.values():
            result = record.end.output if record.end is not None else None
            if isinstance(result, AgentResult) and result.session and result.session_usage:
                total, known = result.session_usage, totals.get(result.session)
                if known is None or (total.tokens or 0) >= (known.tokens or 0):
                    totals[result.session] = total
        return totals

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
        if record is None or record.end is None:
            return children
        made = record.end.attempts
        if made and path not in self._begun_again:
            return children
        return [child for child in children if attempt_in(path, child) <= made]

    def _reached_children(self, path: str) -> Collection[str]:
        """The children as ``_counting`` has them, without those that the end of this path did not
        reach, and without its fallback if its last attempt did not fail.
        """
        children, record = self._counting(path), self._paths.get(path)
        if not children or record is None or record.end is None:
            return children
        made, left = record.end.attempts, set(record.unreached_children)
        if made and not left and path not in self._begun_again:
            return children
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
                state.ended_at, state.times = gap.ended_at, gap.timed()
            home = self._home(path) if "/" in path else ""
            children = self._children.get(home)
            if children is None:
                children = self._children[home] = {}
            children[path] = None
            if "~" in path and attempt_in(home, path) > 1:
                self._begun_again.add(home)
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
        if known is None or not known.attempts:
            return 1
        self._begun_again.add(above)
        return known.attempts + 1


def attempt_in(above: str, path: str) -> int:
    """The attempt of ``above`` that a path below it names (``above~2/...``); 1 if it names none."""
    if not path.startswith(f"{above}~"):
        return 1
    digits = path[len(above) + 1 :].partition("/")[0]
    return int(digits) if digits.isdigit() else 1


replayed: Callable[[StepResult[Any]], StepResult[Any]] = copier(StepResult, replayed=True)
"""A recorded result, marked as replayed; a fast copy, as each recorded step needs one."""
