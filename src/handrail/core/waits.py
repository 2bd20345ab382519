"""Timers, gates and signals: what a run waits for, kept as entries and not as tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from handrail.core import commands as cmd
from handrail.core.node import Node, Phase
from handrail.model import events as ev
from handrail.steps.verbs import Pause

if TYPE_CHECKING:
    from handrail.core.machine import Machine


class Waits:
    """Sets timers, and hands what was waited for to the node that waits.

    A timer is a token and its node, no more: there may be many. What it is for follows from the
    node.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.heard = 0
        """The number of the last letter that was a signal and has arrived."""
        self._tokens = 0

    def wait(self, node: Node, due: float) -> int:
        """Ask for ``TimerFired`` at ``due``."""
        self._tokens += 1
        self.machine.timers[self._tokens] = node
        self.machine.emit(cmd.Wait(node.path, due, self._tokens))
        return self._tokens

    def drop_timer(self, token: int) -> None:
        """Forget a timer; 0 is none."""
        if token:
            self.machine.timers.pop(token, None)

    def timer_fired(self, report: cmd.TimerFired) -> None:
        """Go on from where the node waited."""
        machine = self.machine
        node = machine.timers.pop(report.token, None)
        if node is None:
            return
        if report.token == machine.run_deadline:
            machine.run_overdue()
        elif report.token == node.deadline:
            node.deadline = 0
            machine.stopping.deadline_passed(node)
        else:
            node.timer = 0
            self._wait_ended(node)

    def _wait_ended(self, node: Node) -> None:
        if node.phase is Phase.PAUSED and node.pending is not None:
            self.machine.launches.go(node, node.pending)
        elif node.phase is Phase.PAUSED:
            self.machine.attempt(node)
        elif node.generator is not None:
            self.machine.stopping.cleanup_overdue(node)
        else:
            assert node.step is not None
            behaviour: Any = self.machine.behaviours[type(node.step.verb)]
            behaviour.timer_fired(self.machine, node)

    def goes_on_by_itself(self, token: int) -> bool:
        """True if this timer is one the process waits for: a pause, a retry, clean-up; not the
        deadline of something that waits for a person.
        """
        node = self.machine.timers.get(token)
        if node is None or token in (node.deadline, self.machine.run_deadline):
            return False
        if node.phase is Phase.PAUSED or node.generator is not None:
            return True
        return node.step is not None and isinstance(node.step.verb, Pause)

    def gate_answered(self, event: ev.GateAnswered) -> None:
        """End the step that asked."""
        self.machine.answered[event.path] = event
        if self.machine.spending.asks(event.path):
            self.machine.spending.answered(event)
            return
        gate = self.machine.gates.pop(event.path, None)
        node = self.machine.nodes.get(event.path)
        if gate is not None and node is not None and node.phase is Phase.RUNNING:
            self.machine.succeed(node, event.answer)

    def gate_refused(self, report: cmd.GateRefused) -> None:
        """Fail the step that asked."""
        if self.machine.spending.asks(report.path):
            self.machine.spending.refused(report)
            return
        node = self.machine.nodes.get(report.path)
        if node is None or self.machine.gates.pop(report.path, None) is None:
            return
        self.machine.fail_with(node, report.error)

    def signal_received(self, event: ev.SignalReceived) -> None:
        """Give the payload to who waits longest, or keep it."""
        self.heard = max(self.heard, event.letter)
        waiting = self.machine.listeners.get(event.name)
        if waiting:
            node = waiting.pop(next(iter(waiting)))
            if not waiting:
                del self.machine.listeners[event.name]
            behaviour: Any = self.machine.behaviours[type(node.step.verb)] if node.step else None
            behaviour.signalled(self.machine, node, event.seq, event.payload)
        else:
            letter = (event.seq, event.payload)
            self.machine.mailboxes.setdefault(event.name, []).append(letter)
