"""Takes from the record what an earlier drive left there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from handrail.core.node import Node, Phase
from handrail.core.replay import PathRecord, Recorded
from handrail.model import commands as cmd
from handrail.model import events as ev
from handrail.model.steps import SignalWait

if TYPE_CHECKING:
    from handrail.core.machine import Machine


class Replaying:
    """Goes by path; see ``core.replay``."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def replay(self, node: Node, recorded: Recorded) -> bool:
        """Take from the record what it holds of this node; True if that was its end."""
        step = node.step
        assert step is not None
        record = recorded.at(node.path)
        result = record.result()
        if result is not None:
            self.machine.nodes.pop(node.path, None)
            for path, below in recorded.below(node.path):
                self.machine.results[path] = below
            self.machine.tree.update(recorded.tree_below(node.path))
            self.machine.emit(cmd.Tell(ev.StepReplayed(node.path, result)))
            self.machine.ended(node, result)
            return True
        if record.verdict is False:
            self.machine.skip(node)
            return True
        if record.started_at is not None and step.modifiers.when is not None and not record.verdict:
            return False  # the predicate's verdict is not known: ask again
        if record.started_at is not None:
            node.attempt = record.attempts
            if record.attempts:
                self._restore_children(node, recorded)
            node.phase = Phase.RUNNING
            node.started_at = record.started_at
            self.machine.record(started(node, verdict=record.verdict))
            self._pick_up(node, record)
            return True
        return False

    def _restore_children(self, node: Node, recorded: Recorded) -> None:
        """What earlier attempts of this step left; what is gone into again takes its place anew."""
        machine = self.machine
        machine.results.update(recorded.below(node.path))
        machine.tree.update(recorded.tree_below(node.path))
        children = machine.tree.get(node.path)
        if isinstance(children, dict):
            node.seen = children
            machine.restored.update(children)

    def replay_member(self, member: Node) -> bool:
        """Take a member's recorded end from the record, if it has one."""
        recorded = self.machine.setting.recorded
        if recorded is None or not recorded.knows(member.path):
            return False
        record = recorded.at(member.path)
        if record.member_end is None:
            return False
        for path, below in recorded.below(member.path):
            self.machine.results[path] = below
        self.machine.tree.update(recorded.tree_below(member.path))
        del self.machine.nodes[member.path]
        self.machine.emit(cmd.Tell(ev.StepReplayed(member.path, record.member_end)))
        self.machine.later(self.machine.tell_parent, member, record.member_end)
        return True

    def _pick_up(self, node: Node, record: PathRecord) -> None:
        """Go on from the last thing that is recorded of a step without an end."""
        if record.retry_due is not None:
            node.phase = Phase.PAUSED
            node.timer = self.machine.wait(node, record.retry_due)
        elif record.failure is not None:
            self.machine.failing.attempt_failed(record.failure)
        else:
            self.machine.attempt(node)


def started(node: Node, *, verdict: bool | None = None) -> ev.StepStarted:
    """The event of a step's start in this drive, with what a replay needs to know of it."""
    assert node.step is not None
    verb = node.step.verb
    signal = verb.signal if isinstance(verb, SignalWait) else ""
    return ev.StepStarted(node.path, verb.kind, verdict=verdict, signal=signal, index=node.index)
