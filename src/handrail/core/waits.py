"""The verbs that wait, ``ask``, ``wait_for`` and ``sleep``, and what ends a wait.

Timers, gates and signals are entries of the run, not tasks. A timer is only a token and its node,
because there may be many; the state of the node says what the timer is for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from handrail.codec.unresolved import Unresolved
from handrail.core import commands as cmd
from handrail.core.budget import budget_answered, budget_refused
from handrail.core.ending import hit_limit
from handrail.core.failing import fail, fail_with
from handrail.core.failures import failure_of
from handrail.core.launches import launch_unless_paused
from handrail.core.limits import limit_answered, limit_refused
from handrail.core.nodes import Node, Phase, nearest_deadline
from handrail.core.run_state import AgentNode, Attempt, CompositeNode, RunState, StepNode
from handrail.core.stopping import cleanup_overdue, deadline_passed
from handrail.core.user_code import call_user
from handrail.errors import GateClosed, GateNotFound, HandrailError, StepTimeout
from handrail.model import events as ev
from handrail.model.outcome import RAISED, RETURNED
from handrail.model.results import OpenGate
from handrail.record.answers import answer_for, payload_for
from handrail.record.outputs import declared_output
from handrail.steps.verbs import Step
from handrail.steps.waits import Pause, Question, SignalWait


class TimerNode(CompositeNode):
    """``sleep``: ends when its time has come."""

    __slots__ = ()
    verb: Pause

    def begin(self, run: RunState) -> None:
        """Wait until the due time that an earlier drive recorded, or a new one; for a datetime that
        the code gives, no longer than until then: a fork's record may be later.
        """
        if run.timers_frozen:
            return
        due = run.recorded.due(self.path, "sleep", self.attempt)
        if due is None:
            due = self._due(run)
        elif self.verb.until is not None:
            due = min(due, self._due(run))
        if due <= run.now and not run.rehearses:
            run.succeed(self, None)
            return
        if due > run.now:
            run.record(ev.TimerSet(self.path, due, "sleep", self.attempt))
        self.timer = run.wait(self, due)

    def _due(self, run: RunState) -> float:
        until, seconds = self.verb.until, self.verb.seconds
        return run.now + (seconds or 0.0) if until is None else until.timestamp()

    def timer_fired(self, run: RunState) -> None:
        """End the sleep; its output is None."""
        run.succeed(self, None)

    def stopped(self, run: RunState) -> None:
        """Drop its timer."""
        run.drop_timer(self.timer)


class GateNode(CompositeNode):
    """``ask``: opens a gate and ends with its answer, or at its deadline with the default."""

    __slots__ = ()
    verb: Question

    def begin(self, run: RunState) -> None:
        """Open the gate, or end with the answer on record; in a resume, when its time has come."""
        answered = run.answered.get(self.path)
        if answered is not None and run.rehearses and not run.timers_frozen:
            self.timer = run.wait(self, min(answered.at, run.now))
            return
        if answered is not None:
            self.answered(run, answered, self._gate(run))
        elif not run.timers_frozen:
            self._open(run, self._gate(run))

    def _open(self, run: RunState, gate: OpenGate) -> None:
        run.revisions[self.path] = gate.opening
        run.gates[self.path] = gate
        run.record(ev.GateOpened(self.path, gate))
        own = self._own_deadline(gate.since)
        if own is not None and not self.timer:
            self.timer = run.wait(self, own)
        run.emit(cmd.Ask(self.path, gate))

    def answered(self, run: RunState, event: ev.GateAnswered, gate: OpenGate) -> None:
        """End with the answer as the code's question takes it; ask again if it does not fit."""
        try:
            answer = answer_for(gate, _resolved(run, self.step, event.answer))
        except HandrailError:  # whoever took it did not know the type
            del run.answered[self.path]
            if not run.timers_frozen:
                self._open(run, replace(gate, opening=gate.opening + 1))
            return
        run.succeed(self, self.verb.value_of(answer))

    def _gate(self, run: RunState) -> OpenGate:
        verb = self.verb
        known = run.recorded.gate(self.path, self.attempt)
        if known is not None and self._asks_another(run):
            known = None  # an answer to the old question does not answer this one
        since = run.now if known is None else known.since
        deadlines = (self._own_deadline(since), nearest_deadline(self, run.timers))
        deadline = min((due for due in deadlines if due is not None), default=None)
        return OpenGate(
            self.path,
            verb.question,
            verb.choices,
            verb.type,
            since,
            deadline,
            verb.default,
            verb.has_default,
            run.revisions.get(self.path, 0) + 1 if known is None else known.opening,
            verb.values,
            verb.agents_may_answer,
        )

    def _own_deadline(self, since: float) -> float | None:
        timeout_s = self.verb.timeout_s
        return None if timeout_s is None else since + timeout_s

    def _asks_another(self, run: RunState) -> bool:
        """True if the code now describes the step differently than when its gate opened."""
        was = run.recorded.fingerprint_of(self.path)
        return bool(was) and not run.matches(was, self.step)

    def timer_fired(self, run: RunState) -> None:
        """End with the answer, if there is one; else answer with the default, or fail."""
        gate, answered = run.gates.get(self.path), run.answered.get(self.path)
        if answered is not None:
            run.gates.pop(self.path, None)
            self.answered(run, answered, gate or self._gate(run))
            return
        if gate is None:
            return
        if gate.has_default:
            run.record(ev.GateAnswered(self.path, gate.default, "timeout"))
            return
        del run.gates[self.path]
        fail_with(run, self, StepTimeout(self.path, self.verb.timeout_s or 0.0))

    def stopped(self, run: RunState) -> None:
        """Close the gate: nobody can answer it any more."""
        run.gates.pop(self.path, None)


class SignalNode(CompositeNode):
    """``wait_for``: ends with the next signal of its name; each signal is consumed once."""

    __slots__ = ("_consumed",)
    verb: SignalWait

    def __init__(
        self, step: Step[Any], path: str, parent: Node | None, inputs: Mapping[str, Any]
    ) -> None:
        super().__init__(step, path, parent, inputs)
        self._consumed = 0

    @property
    def consumed_signal(self) -> int:
        """The event number of the signal that its attempt consumed; 0 for none."""
        return self._consumed

    def begin(self, run: RunState) -> None:
        """Consume the oldest signal in the mailbox, or listen for the next.

        In a resume, those on record come once more (``recall_signals``).
        """
        self._consumed = 0
        if run.timers_frozen:
            return
        signal = self.verb.signal
        kept = run.mailboxes.get(signal)
        if kept and not run.rehearses:
            self.consume(run, kept.pop(0))
        else:
            run.listeners.setdefault(signal, {})[self.path] = self

    def consume(self, run: RunState, signal: ev.SignalReceived) -> None:
        """End with the payload, converted to the declared type."""
        self._consumed = signal.seq
        what, value = call_user(run, self._payload, run, signal)  # a user's type may raise anything
        if what == RAISED:
            fail(run, self, failure_of(value))
        elif what == RETURNED:
            run.succeed(self, value)

    def _payload(self, run: RunState, signal: ev.SignalReceived) -> Any:
        payload = _resolved(run, self.step, signal.payload)
        return payload_for(signal.name, payload, self.verb.type)

    def stopped(self, run: RunState) -> None:
        """Listen no longer."""
        signal = self.verb.signal
        waiting = run.listeners.get(signal, {})
        waiting.pop(self.path, None)
        if not waiting:
            run.listeners.pop(signal, None)


def _resolved(run: RunState, step: Step[Any], value: Any) -> Any:
    """What was sent; if its class cannot be found by name, read by the type that the step has."""
    if type(value) is Unresolved and run.codec is not None:
        return run.codec.load(value.text, declared_output(step))
    return value


# -- what ends a wait ------------------------------------------------------------------------------


def timer_fired(run: RunState, report: cmd.TimerFired) -> None:
    """Carry out what a timer was set for: a limit of the run, a deadline, or the end of a wait."""
    node, _ = run.timers.pop(report.token, (None, 0.0))
    if node is None:
        return
    signal = run.arriving.pop(report.token, None)
    if signal is not None:
        signal_received(run, signal)
    elif report.token == run.run_deadline:
        hit_limit(run, "timeout_s", run.limits.timeout_s or 0.0, "")
    elif isinstance(node, CompositeNode) and report.token == node.deadline:
        node.deadline = 0
        deadline_passed(run, node)
    else:
        node.timer = 0
        _wait_ended(run, node)


def _wait_ended(run: RunState, node: Node) -> None:
    if node.phase is not Phase.PAUSED or not isinstance(node, StepNode):
        if node.generator is not None:
            cleanup_overdue(run, node)
        elif isinstance(node, StepNode):
            node.timer_fired(run)
    elif isinstance(node, AgentNode) and node.pending is not None:
        launch_unless_paused(run, node, node.pending)
    else:
        run.push(Attempt(node))


def process_waits_for(run: RunState, token: int) -> bool:
    """True for a timer that the process waits for: a sleep, a pause before a retry, clean-up.

    False for the deadline of a step, of the run, or of a question to a person.
    """
    node, _ = run.timers.get(token, (None, 0.0))
    if node is None or token == run.run_deadline:
        return False
    if isinstance(node, CompositeNode) and token == node.deadline:
        return False
    return node.phase is Phase.PAUSED or node.generator is not None or isinstance(node, TimerNode)


def counts_running_time(run: RunState, token: int) -> bool:
    """True for timers on elapsed running time: timeouts, retry and ladder backoff, clean-up, and
    a sleep of so many seconds.

    False for wall-clock ones: a sleep until a datetime, the deadline of a question, a usage cap.
    """
    node, _ = run.timers.get(token, (None, 0.0))
    if node is None:
        return False
    if token == run.run_deadline or (isinstance(node, CompositeNode) and token == node.deadline):
        return True
    if isinstance(node, TimerNode):
        return node.verb.until is None
    if node.phase is not Phase.PAUSED:
        return node.generator is not None
    rungs = node.rungs if isinstance(node, AgentNode) else ()
    return not (rungs and rungs[-1].kind == "usage_cap")


def clock_was_set(run: RunState, jump_s: float) -> None:
    """Shift start times and running-time timers by the seconds that the clock was set by.

    Durations are running time, so they must not include the jump.
    """
    run.started_at += jump_s
    for node in {run.root, *run.nodes.values()}:
        node.started_at += jump_s
    for token, (node, due) in run.timers.items():
        if counts_running_time(run, token):
            run.timers[token] = node, due + jump_s


def open_gate(run: RunState, path: str) -> OpenGate:
    """The open gate at a path.

    Raises:
        GateClosed: it was answered before. GateNotFound: it was never opened.
    """
    answered = run.answered.get(path)
    if answered is not None:
        raise GateClosed(path, answered.answer, answered.by, answered.at)
    gate = run.gates.get(path)
    if gate is None:
        raise GateNotFound(run.setting.run_id, path, tuple(run.gates))
    return gate


def awaited_types(run: RunState, signal: str) -> list[Any]:
    """The types that open ``wait_for`` steps convert the payload of this signal to."""
    verbs = (node.step.verb for node in run.listeners.get(signal, {}).values())
    return [verb.type for verb in verbs if isinstance(verb, SignalWait)]


def accept_no_other_answer(run: RunState, event: ev.GateAnswered) -> None:
    """Refuse other answers to the gate: a driver has this one, and is about to record it."""
    run.answered[event.path] = event


def gate_answered(run: RunState, event: ev.GateAnswered) -> None:
    """End the step that asked, or pass the answer to the budget or limit that did."""
    accept_no_other_answer(run, event)
    if budget_answered(run, event) or limit_answered(run, event):
        return
    gate = run.gates.pop(event.path, None)
    node = run.step_at(event.path)
    if gate is not None and isinstance(node, GateNode) and node.phase is Phase.RUNNING:
        node.answered(run, event, gate)


def gate_refused(run: RunState, report: cmd.GateRefused) -> None:
    """Fail the step that asked; if a budget did, fail the attempt, if a limit did, the run."""
    if budget_refused(run, report) or limit_refused(run, report):
        return
    node = run.nodes.get(report.path)
    if isinstance(node, StepNode) and run.gates.pop(report.path, None) is not None:
        fail_with(run, node, report.error)


def signal_received(run: RunState, event: ev.SignalReceived) -> None:
    """Give the payload to the step that listens longest, or keep it in the mailbox."""
    run.last_message = max(run.last_message, event.letter)
    waiting = run.listeners.get(event.name)
    if not waiting:
        run.mailboxes.setdefault(event.name, []).append(event)
        return
    node = waiting.pop(next(iter(waiting)))
    if not waiting:
        del run.listeners[event.name]
    node.consume(run, event)


def recall_signals(run: RunState) -> None:
    """Have the signals on record that a step listens for come once more, each at its time.

    Those of one name keep their order, also if the clock of a sender was behind.
    """
    for name in run.listeners:
        at = -math.inf
        for signal in run.mailboxes.pop(name, ()):
            at = max(at, min(signal.at, run.now))
            run.arriving[run.wait(run.root, at)] = signal
