"""What the console knows of one run: a tree that takes events and gives lines.

Theory of operation. The tree is pure: it reads no clock, draws nothing, and what it gives depends
on the events alone (and on the time that ``lines`` is told). An event costs O(depth of its path),
``lines`` costs O(height), however many members a group has. Both follow from keeping the
children of a node by state (``Node``), with those that ended counted, and only some of them kept.

A node is found by its path while it is live. A path below which nothing is known yet makes its
parents: ``verify/2`` (a round) and ``name~2`` (another attempt, which is the node ``name`` again)
have no event of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, ClassVar

from handrail.model import events as ev
from handrail.model.paths import is_budget_gate
from handrail.model.results import OpenGate, RunStatus, Skipped, StepResult
from handrail.sinks.console_lines import tree_lines
from handrail.sinks.console_node import Node, State
from handrail.sinks.console_text import (
    UNICODE,
    Glyphs,
    Line,
    clean,
    error_text,
    last_line,
)
from handrail.sinks.console_words import (
    Cause,
    budget_text,
    ladder_text,
    live_text,
    what_failed,
    whose_budget,
)

MAX_DEPTH = 60
_ATTEMPT = re.compile(r"(.+)~(\d{1,9})\Z", re.DOTALL)
_LAUNCHED = frozenset({"agent", "generate"})
_WAITING_KINDS = {"wait_for": "waits for its signal"}


class ConsoleTree:
    """The state of one drive of a run, for people. Mutable; not thread-safe."""

    def __init__(self, run_id: str, name: str = "") -> None:
        self.run_id = run_id
        self.workflow_name = name or run_id
        self.at = 0.0
        self.status: RunStatus | None = None
        self.cause: Cause | None = None
        """The failure that ended the run, if a step's did."""
        self.steps: dict[str, int] = {}
        self.replayed = 0
        self.root = Node("", self.workflow_name, "workflow", parent=None, order=0, at=0.0)
        self._nodes: dict[str, Node] = {}
        self._timers: list[tuple[float, int, Node]] = []
        self._count = 0

    def apply(self, event: ev.Event | ev.Progress) -> None:
        """Take note of an event; of one that means nothing to the tree, only its time."""
        self.at = max(self.at, event.at)
        self._advance(self.at)
        apply = self._APPLY.get(type(event))
        if apply is not None:
            apply(self, event)

    def lines(
        self, height: int, *, now: float | None = None, glyphs: Glyphs = UNICODE
    ) -> list[Line]:
        """The tree at the time ``now``, in at most ``height`` lines: what runs, failed, is new."""
        is_over = self.status is not None
        moment = self.at if now is None or is_over else max(now, self.at)
        self._advance(moment)
        return tree_lines(self.root, self.run_id, height, now=moment, glyphs=glyphs)

    # -- nodes -------------------------------------------------------------------------------

    def _open(self, path: str, kind: str, at: float, name: str = "") -> Node:
        """The node of something that starts now."""
        node = self._nodes.get(path)
        if node is not None:
            node.kind = kind
            return node
        above, _, last = path.rpartition("/")
        if path.count("/") >= MAX_DEPTH:
            parts = path.split("/", MAX_DEPTH)
            above, last = "/".join(parts[:-1]), parts[-1]
        parent = self._container(above, at)
        self._count += 1
        shown = name or clean(last, 80)
        node = Node(path, shown, kind, parent=parent, order=self._count, at=at)
        self._nodes[path] = node
        parent.join(node)
        self._reconsider(parent)
        return node

    def _container(self, path: str, at: float) -> Node:
        """The node below whose path something starts; rounds and attempts have no other origin."""
        if not path:
            return self.root
        node = self._nodes.get(path)
        if node is None:
            again = _ATTEMPT.match(path)
            known = self._nodes.get(again.group(1)) if again else None
            if again and known is not None:
                self._attempt_again(known, path, int(again.group(2)))
                return known
            node = self._open(path, "", at)
            self._name_round(node)
        if not node.live:  # a round that waits for its fix, or what a late event is about
            self._move(node, "running")
        return node

    @staticmethod
    def _name_round(node: Node) -> None:
        parent = node.parent
        if parent is not None and parent.kind == "validate" and node.name.isdigit():
            node.kind, node.name = "round", f"round {node.name}"

    def _attempt_again(self, node: Node, alias: str, number: int) -> None:
        """The attempt ``number`` of a composite: it starts with no children."""
        self._forget_paths(node)
        node.forget_children()
        node.attempts = max(node.attempts, number)
        node.size = None
        node.aliases = [*(node.aliases or ()), alias]
        self._nodes[alias] = node

    def _end(self, node: Node, state: State, at: float) -> None:
        if not node.live:
            return
        self._forget_paths(node)
        for child in node.live_children():
            self._end(child, "cancelled" if state == "cancelled" else "interrupted", at)
        if node.kind != "round":
            self._nodes.pop(node.path, None)
            for alias in node.aliases or ():
                self._nodes.pop(alias, None)
        node.ended_at = max(at, node.started_at)
        node.note = node.said = ""
        node.due = None
        self._move(node, state)
        self._perhaps_end_round(node.parent, at)

    def _perhaps_end_round(self, node: Node | None, at: float) -> None:
        """A round whose verdict is known ends with its fix, which has no event of its own."""
        if node is not None and node.verdict is not None and not node.live_children():
            self._end(node, node.verdict, at)

    def _forget_paths(self, node: Node) -> None:
        """Rounds stay known by their path until the validation is over."""
        for child in (*(node.failed or ()), *(node.done or ())):
            if child.kind == "round":
                self._nodes.pop(child.path, None)

    def _move(self, node: Node, state: State) -> None:
        """Set a state, and those of the nodes above that follow from it."""
        here = node
        while here.state != state:
            old, here.state = here.state, state
            parent = here.parent
            if parent is None:
                return
            parent.leave(here, old)
            parent.join(here)
            if not parent.live:
                return
            here, state = parent, _state_from_below(parent)

    def _reconsider(self, node: Node) -> None:
        if node.live:
            self._move(node, _state_from_below(node))

    def _advance(self, now: float) -> None:
        """What waited for a time that has come goes on."""
        while self._timers and self._timers[0][0] <= now:
            due, _, node = heappop(self._timers)
            if node.due == due:
                node.due = None
                node.note = ""
                self._reconsider(node)

    # -- events of the run -------------------------------------------------------------------

    def _run_started(self, event: ev.WorkflowStarted) -> None:
        self.workflow_name = self.root.name = clean(event.workflow_name, 80)
        self.root.started_at = event.at

    def _run_resumed(self, event: ev.RunResumed) -> None:
        if event.workflow_name:
            self.workflow_name = self.root.name = clean(event.workflow_name, 80)
        self.root.started_at = event.at
        self.root.note = "resumed"

    def _run_ended(self, event: ev.WorkflowCompleted) -> None:
        self.status = event.status
        if event.status == "failed":
            found = _cause(self.root, "", event.error or "", event.error_type)
            self.cause = found.inner
        self._close(event.at, "interrupted" if event.status == "suspended" else event.status)

    def _run_suspended(self, event: ev.RunSuspended) -> None:
        self.status = "suspended"
        self.root.ended_at = event.at
        self.root.verdict = "interrupted"

    def _close(self, at: float, state: State) -> None:
        self.root.note = ""
        self._end(self.root, state, at)

    def _cancel_requested(self, event: ev.CancelRequested) -> None:
        self.root.note = f"cancelling: {clean(event.reason)}"

    def _limit_reached(self, event: ev.LimitReached) -> None:
        self.root.note = f"limit reached: {clean(event.name)}={clean(event.value)}"

    # -- events of steps ---------------------------------------------------------------------

    def _step_started(self, event: ev.StepStarted) -> None:
        node = self._open(event.path, event.step_type, event.at)
        note = _WAITING_KINDS.get(event.step_type)
        if note is not None:
            node.note = note
            self._move(node, "waiting")

    def _step_completed(self, event: ev.StepCompleted) -> None:
        node = self._nodes.get(event.path)
        if node is None:
            node = self._open(event.path, event.result.step_type, event.at)
        self.steps[event.result.status] = self.steps.get(event.result.status, 0) + 1
        self._take(node, event.result, event.at)

    def _take(self, node: Node, result: StepResult[Any], at: float) -> None:
        node.attempts = max(node.attempts, result.attempts)
        if result.error is None and result.error_type is None:
            node.error = ""
        else:
            node.error = error_text(result.error, result.error_type)
            node.cause = _cause(node, result.name, result.error or "", result.error_type)
        if isinstance(result.output, Skipped) and not node.error:
            node.error = clean(result.output.reason)
        self._end(node, result.status, at)
        node.started_at = node.ended_at - result.duration_ms / 1000

    def _step_replayed(self, event: ev.StepReplayed) -> None:
        self.replayed += 1
        kind = "" if event.result is None else event.result.step_type
        node = self._open(event.path, kind, event.at)
        node.replayed = True
        if event.result is None:
            self._end(node, "succeeded", event.at)
        else:
            self._take(node, event.result, event.at)

    def _step_interrupted(self, event: ev.StepInterrupted) -> None:
        node = self._nodes.get(event.path)
        if node is not None:
            node.error = clean(event.reason)
            self._end(node, "interrupted", event.at)

    def _attempt_failed(self, event: ev.AttemptFailed) -> None:
        node = self._nodes.get(event.path)
        if node is not None:
            node.error = error_text(event.error, event.error_type)
            node.past = [*(node.past or ())[-4:], node.error]
            node.said = ""

    def _output(self, event: ev.StepOutput | ev.AgentMessage) -> None:
        node = self._nodes.get(event.path)
        if node is not None:
            node.said = last_line(event.text) or node.said

    def _turn_started(self, event: ev.AgentTurnStarted) -> None:
        node = self._nodes.get(event.path)
        if node is not None and event.turn == 1:
            node.said = ""

    def _turn_completed(self, event: ev.AgentTurnCompleted) -> None:
        node = self._nodes.get(event.path)
        if node is not None and event.problem:
            node.said = f"asked again: {clean(event.problem)}"

    # -- events of agents ----------------------------------------------------------------------

    def _doing(self, event: Any) -> None:
        node = self._nodes.get(event.path)
        if node is not None:
            node.said = live_text(event) or node.said

    def _ladder_step(self, event: ev.LadderStep) -> None:
        node = self._nodes.get(event.path)
        if node is None:
            return
        node.error = clean(event.error)
        node.past = [*(node.past or ())[-4:], node.error]
        node.said = ""
        if event.parked or event.due <= event.at:
            node.said = ladder_text(event)
        else:
            node.note = what_failed(event)  # the timer that follows says until when

    def _budget_warning(self, event: ev.BudgetWarning) -> None:
        self.root.note = f"{whose_budget(event)}: {budget_text(event)}"

    # -- events of groups and children -------------------------------------------------------

    def _group_started(self, event: ev.GroupStarted) -> None:
        self._open(event.path, event.kind, event.at).size = event.size

    def _group_completed(self, event: ev.GroupCompleted) -> None:
        """Its counts stand: members that were taken from the record came without an event."""
        node = self._nodes.get(event.path)
        if node is not None:
            node.size = event.total
            counts = {
                "succeeded": event.succeeded,
                "failed": event.failed,
                "cancelled": event.cancelled,
                "skipped": event.skipped,
            }
            node.tally = {state: count for state, count in counts.items() if count}

    def _member_started(self, event: ev.MemberStarted) -> None:
        self._open(event.path, "member", event.at, clean(event.key, 80))

    def _member_completed(self, event: ev.MemberCompleted) -> None:
        node = self._nodes.get(event.path)
        if node is None:
            node = self._open(event.path, "member", event.at)
        self._take(node, event.result, event.at)

    def _child_started(self, event: ev.SubworkflowStarted) -> None:
        node = self._nodes.get(event.path)
        if node is not None and event.workflow_name != node.name:
            node.note = clean(event.workflow_name, 80)

    def _round_ended(self, event: ev.ValidationRound) -> None:
        above = self._nodes.get(event.path)
        base = event.path if above is None or not above.aliases else above.aliases[-1]
        node = self._nodes.get(f"{base}/{event.number}")
        if node is None:
            return
        node.verdict = "succeeded" if event.passed else "failed"
        found = next((stage for stage in event.round.stages if not stage.passed), None)
        node.error = "" if found is None else f"{found.name}: {clean(found.error or found.output)}"
        self._perhaps_end_round(node, event.at)

    # -- events of waiting -------------------------------------------------------------------

    def _gate_opened(self, event: ev.GateOpened) -> None:
        node = self._open(event.path, "ask", event.at)
        node.note = question_of(event.gate)
        node.due = None
        if event.gate.deadline is not None:
            node.note += " (until its deadline)"
        self._move(node, "waiting")

    def _gate_answered(self, event: ev.GateAnswered) -> None:
        node = self._nodes.get(event.path)
        if node is None:
            return
        node.note = ""
        if _asks_for_budget(node):  # it has no end of its own
            by = f" by {clean(event.by, 80)}" if event.by else ""
            node.error = f"answered {clean(event.answer, 80)}{by}"
            self._end(node, "succeeded", event.at)
        else:
            self._move(node, "running")

    def _timer_set(self, event: ev.TimerSet) -> None:
        node = self._nodes.get(event.path)
        if node is None or event.reason in {"timeout", "run", "gate"}:
            return
        node.due = event.due
        if event.reason != "cap" or not node.note:
            node.note = _REASONS.get(event.reason, "")
        self._count += 1
        heappush(self._timers, (event.due, self._count, node))
        self._reconsider(node)

    # -- events of undoing -------------------------------------------------------------------

    def _rollback_started(self, event: ev.RollbackStarted) -> None:
        self._open(_undo(event.path), "rollback", event.at, f"undo {clean(event.path)}")

    def _rollback_completed(self, event: ev.RollbackCompleted) -> None:
        node = self._nodes.get(_undo(event.path))
        if node is not None:
            node.error = error_text(event.error, event.error_type)
            self._end(node, "succeeded" if event.error is None else "failed", event.at)

    _APPLY: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        ev.WorkflowStarted: _run_started,
        ev.WorkflowCompleted: _run_ended,
        ev.RunSuspended: _run_suspended,
        ev.RunResumed: _run_resumed,
        ev.CancelRequested: _cancel_requested,
        ev.LimitReached: _limit_reached,
        ev.StepStarted: _step_started,
        ev.AttemptFailed: _attempt_failed,
        ev.StepInterrupted: _step_interrupted,
        ev.StepCompleted: _step_completed,
        ev.ValidationRound: _round_ended,
        ev.GroupStarted: _group_started,
        ev.GroupCompleted: _group_completed,
        ev.MemberStarted: _member_started,
        ev.MemberCompleted: _member_completed,
        ev.SubworkflowStarted: _child_started,
        ev.GateOpened: _gate_opened,
        ev.GateAnswered: _gate_answered,
        ev.TimerSet: _timer_set,
        ev.RollbackStarted: _rollback_started,
        ev.RollbackCompleted: _rollback_completed,
        ev.StepOutput: _output,
        ev.StepReplayed: _step_replayed,
        ev.AgentMessage: _output,
        ev.AgentTurnStarted: _turn_started,
        ev.AgentTurnCompleted: _turn_completed,
        ev.AgentReasoning: _doing,
        ev.AgentToolStarted: _doing,
        ev.AgentToolCompleted: _doing,
        ev.AgentRetry: _doing,
        ev.AgentCompaction: _doing,
        ev.AgentLimit: _doing,
        ev.AgentPermission: _doing,
        ev.LadderStep: _ladder_step,
        ev.BudgetWarning: _budget_warning,
    }


def _cause(node: Node, name: str, error: str, error_type: str | None) -> Cause:
    """A node's failure, with the one among its children that it comes from."""
    below = (child.cause for child in reversed(node.failed or ()))
    inner = next((cause for cause in below if cause is not None and cause.brings(error)), None)
    return Cause(node.path, name, error, error_type, inner)


_REASONS = {"retry": "again", "cap": "waits for a limit"}


def _asks_for_budget(node: Node) -> bool:
    """True for the question whether an agent may be launched, which is no step."""
    above = node.parent
    if above is None or above.kind not in _LAUNCHED:
        return False
    return is_budget_gate(above.path, node.path)


def _undo(path: str) -> str:
    return "\0" + path.replace("/", "\0")  # below the root, and no step's path


def _state_from_below(node: Node) -> State:
    """The state of a live node: it waits if nothing below it runs, and something waits."""
    if node.running:
        return "running"
    if node.waiting or node.due is not None:
        return "waiting"
    return "running"


def question_of(gate: OpenGate) -> str:
    """A gate's question with its choices: ``Merge? [yes, no]``."""
    question = clean(gate.question)
    if not gate.choices:
        return question
    return f"{question} [{clean(', '.join(str(choice) for choice in gate.choices))}]"
