"""Timers, gates and signals: what a run waits for, kept as entries and not as tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from handrail.core.node import Node, Phase
from handrail.model import commands as cmd
from handrail.model import events as ev

if TYPE_CHECKING:
    from handrail.core.machine import Machine

_GOES_ON = frozenset({"sleep", "retry", "cleanup"})


class Waits:
    """Sets timers, and hands what was waited for to the node that waits."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._tokens = 0

    def wait(self, node: Node, due: float, purpose: str) -> int:
        """Ask for ``TimerFired`` at ``due``; the token's purpose says what it is for."""
        self._tokens += 1
        self.machine.timers[self._tokens] = (purpose, node)
        self.machine.emit(cmd.Wait(node.path, due, self._tokens))
        return self._tokens

    def drop_timer(self, token: int) -> None:
        """Forget a timer; 0 is none."""
        if token:
            self.machine.timers.pop(token, None)

    def timer_fired(self, report: cmd.TimerFired) -> None:
        purpose, node = self.machine.timers.pop(report.token, ("", None))
        if node is None:
            return
        match purpose:
            case "retry":
                node.timer = 0
                self.machine.attempt(node)
            case "deadline":
                node.deadline = 0
                self.machine.stopping.deadline_passed(node)
            case "cleanup":
                node.timer = 0
                self.machine.stopping.cleanup_overdue(node)
            case "run":
                self.machine.run_overdue()
            case _:
                assert node.step is not None
                behaviour: Any = self.machine.behaviours[type(node.step.verb)]
                node.timer = 0
                behaviour.timer_fired(self.machine, node, purpose)

    def gate_answered(self, event: ev.GateAnswered) -> None:
        self.machine.answered[event.path] = event
        gate = self.machine.gates.pop(event.path, None)
        node = self.machine.nodes.get(event.path)
        if gate is not None and node is not None and node.phase is Phase.RUNNING:
            self.machine.succeed(node, event.answer)

    def gate_refused(self, report: cmd.GateRefused) -> None:
        node = self.machine.nodes.get(report.path)
        if node is None or self.machine.gates.pop(report.path, None) is None:
            return
        self.machine.fail_with(node, report.error)

    def signal_received(self, event: ev.SignalReceived) -> None:
        waiting = self.machine.listeners.get(event.name)
        if waiting:
            node = waiting.pop(0)
            if not waiting:
                del self.machine.listeners[event.name]
            behaviour: Any = self.machine.behaviours[type(node.step.verb)] if node.step else None
            behaviour.signalled(self.machine, node, event.payload)
        else:
            self.machine.mailboxes.setdefault(event.name, []).append(event.payload)

    def goes_on_by_itself(self, token: int) -> bool:
        """True if this timer is one the process waits for: a pause, a retry, clean-up; not the
        deadline of something that waits for a person."""
        return self.machine.timers.get(token, ("", None))[0] in _GOES_ON
