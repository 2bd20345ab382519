"""The verbs that wait: ``ask``, ``wait_for`` and ``sleep``. None of them costs a task."""

from __future__ import annotations

from typing import Any

from handrail.core import commands as cmd
from handrail.core.failures import failure_of
from handrail.core.machine import Machine
from handrail.core.node import Node
from handrail.core.payloads import payload_for
from handrail.errors import StepTimeout
from handrail.model import events as ev
from handrail.model.results import OpenGate, StepResult
from handrail.steps.verbs import Pause, Question, SignalWait


class _Childless:
    """What a verb without children and evaluations does not hear of."""

    def undoes_itself(self, node: Node) -> bool:
        """No: it registers nothing."""
        del node
        return False

    def child_ended(
        self, machine: Machine, node: Node, child: Node, result: StepResult[Any]
    ) -> None:
        """It has no children."""

    def evaluated(self, machine: Machine, node: Node, report: cmd.Evaluated) -> None:
        """It asks for no evaluation."""


class PauseBehaviour(_Childless):
    """Ends when its time has come."""

    def begin(self, machine: Machine, node: Node) -> None:
        """Wait until the recorded time, if an earlier drive had set one."""
        if machine.still:
            return
        due = _recorded_due(machine, node, "sleep")
        if due is None:
            due = self._due(machine, node)
        if due <= machine.now:
            machine.succeed(node, None)
            return
        machine.record(ev.TimerSet(node.path, due, "sleep", node.attempt))
        node.timer = machine.wait(node, due)

    def _due(self, machine: Machine, node: Node) -> float:
        assert node.step is not None
        verb = node.step.verb
        assert isinstance(verb, Pause)
        if verb.until is not None:
            return verb.until.timestamp()
        assert verb.seconds is not None
        return machine.now + verb.seconds

    def timer_fired(self, machine: Machine, node: Node) -> None:
        """End: a pause gives nothing."""
        machine.succeed(node, None)

    def stopped(self, machine: Machine, node: Node) -> None:
        """Take its timer back."""
        machine.drop_timer(node.timer)


class QuestionBehaviour(_Childless):
    """Opens a gate and ends with its answer, or at its deadline with the default."""

    def begin(self, machine: Machine, node: Node) -> None:
        """Open the gate, unless an earlier drive has its answer."""
        verb = _question(node)
        answered = machine.answered.get(node.path)
        if answered is not None:
            machine.succeed(node, answered.answer)
            return
        if machine.still:
            return
        gate = self._gate(machine, node, verb)
        machine.gates[node.path] = gate
        machine.record(ev.GateOpened(node.path, gate))
        if gate.deadline is not None and gate.deadline <= machine.now:
            self.timer_fired(machine, node)  # it passed while the run was suspended
            return
        if gate.deadline is not None:
            node.timer = machine.wait(node, gate.deadline)
        machine.emit(cmd.Ask(node.path, gate))

    def _gate(self, machine: Machine, node: Node, verb: Question) -> OpenGate:
        recorded = machine.setting.recorded
        known = recorded.gate(node.path, node.attempt) if recorded is not None else None
        if known is not None and self._is_another(machine, node):
            known = None  # who answers the old question does not answer this one
        since = machine.now if known is None else known.since
        deadline = None if verb.timeout_s is None else since + verb.timeout_s
        opening = machine.openings.get(node.path, 0) + 1 if known is None else known.opening
        machine.openings[node.path] = opening
        return OpenGate(
            node.path,
            verb.question,
            verb.choices,
            verb.type,
            since,
            deadline,
            verb.default,
            verb.has_default,
            opening,
        )

    def _is_another(self, machine: Machine, node: Node) -> bool:
        """True if the recorded gate was opened for a step that the code describes otherwise now."""
        recorded = machine.setting.recorded
        assert recorded is not None
        assert node.step is not None
        was = recorded.fingerprint_of(node.path)
        return bool(was) and was != machine.fingerprint(node.step)

    def timer_fired(self, machine: Machine, node: Node) -> None:
        """Answer with the default, or close the gate and fail."""
        gate = machine.gates.get(node.path)
        if gate is None:
            return
        if gate.has_default:
            machine.record(ev.GateAnswered(node.path, gate.default, "timeout"))
            return
        del machine.gates[node.path]
        machine.fail_with(node, StepTimeout(node.path, _question(node).timeout_s or 0.0))

    def stopped(self, machine: Machine, node: Node) -> None:
        """Close the gate: nobody can answer it any more."""
        machine.gates.pop(node.path, None)


class SignalBehaviour(_Childless):
    """Ends with the payload of the next signal of its name; each signal is taken once."""

    def begin(self, machine: Machine, node: Node) -> None:
        """Take the oldest signal that is kept, or listen for the next."""
        node.took = 0
        if machine.still:
            return
        kept = machine.mailboxes.get(_signal(node).signal)
        if kept:
            self.signalled(machine, node, *kept.pop(0))
        else:
            machine.listeners.setdefault(_signal(node).signal, {})[node.path] = node

    def signalled(self, machine: Machine, node: Node, number: int, payload: Any) -> None:
        """Take this payload as the output, converted; ``number`` is its event's."""
        verb = _signal(node)
        node.took = number
        try:
            value = payload_for(verb.signal, payload, verb.type)
        except Exception as error:  # noqa: BLE001  # a user's type may raise anything
            machine.fail(node, failure_of(error))
            return
        machine.succeed(node, value)

    def stopped(self, machine: Machine, node: Node) -> None:
        """Listen no longer."""
        waiting = machine.listeners.get(_signal(node).signal, {})
        waiting.pop(node.path, None)
        if not waiting:
            machine.listeners.pop(_signal(node).signal, None)


def _recorded_due(machine: Machine, node: Node, reason: str) -> float | None:
    recorded = machine.setting.recorded
    return None if recorded is None else recorded.due(node.path, reason, node.attempt)


def _question(node: Node) -> Question:
    assert node.step is not None
    verb = node.step.verb
    assert isinstance(verb, Question)
    return verb


def _signal(node: Node) -> SignalWait:
    assert node.step is not None
    verb = node.step.verb
    assert isinstance(verb, SignalWait)
    return verb
