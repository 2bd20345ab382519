"""Takes from the record what an earlier drive left there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from handrail.codec.unresolved import Unresolved
from handrail.core import commands as cmd
from handrail.core.launches import LAUNCHED
from handrail.core.members import Items
from handrail.core.node import Node, Phase
from handrail.core.registering import Registering
from handrail.errors import StepChange
from handrail.model import events as ev
from handrail.model.paths import attempt_base
from handrail.model.results import StepResult
from handrail.record.assemble import assembler
from handrail.record.outputs import compose, held_steps, resolve
from handrail.record.run_record import PathRecord, Recorded, replayed
from handrail.steps.fingerprint import is_still, short
from handrail.steps.verbs import ForEachGroup, Question, Step

_step_replayed = assembler(ev.StepReplayed)

if TYPE_CHECKING:
    from handrail.core.machine import Machine


class Replaying:
    """Goes by path; see ``core.replay``."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.registering = Registering(machine)
        self._at_the_end: list[Callable[[], None]] = []
        self.seq = 0
        """The number of the event that the drive began with; nearly all is replayed behind it."""

    def at_the_end(self, action: Callable[[], None]) -> None:
        """Do this when all that is on record has been gone through."""
        self._at_the_end.append(action)

    def rehearsed(self, report: cmd.Rehearsed) -> None:
        """Go on beyond the record."""
        del report
        machine = self.machine
        machine.rehearses = False
        recorded = machine.setting.recorded
        if recorded is not None and recorded.cancel is None:
            machine.end.carry_on_failing()
        for action in reversed(self._at_the_end):
            self.machine.later(action)
        self._at_the_end.clear()

    def replay_plain(self, parent: Node, step: Step[Any], path: str) -> StepResult[Any] | None:
        """Take the recorded success of a leaf without modifiers, below a body: most of a replay.

        None if there is none or something speaks against it; then ``replay`` says what to do.
        """
        machine = self.machine
        setting = machine.setting
        record = None if setting.recorded is None else setting.recorded.known(path)
        end = None if record is None else record.end
        if record is None or end is None or end.status != "succeeded":
            return None
        if type(end.output) is Unresolved or parent.stop is not None or machine.limits.max_steps:
            return None
        codec = setting.codec
        if codec is not None and not is_still(record.fingerprint, step, codec, setting.secrets):
            return None
        result = machine.results[path] = replayed(end)
        if record.index != parent.yields:
            self._moved(path, parent.yields)
        said = _step_replayed(setting.run_id, self.seq, machine.now, path, result)
        machine.emit(cmd.Tell(said))
        return result

    def replay(self, node: Node, recorded: Recorded) -> bool:
        """Take from the record what it holds of this node; True if nothing is left to do."""
        step = node.step
        assert step is not None
        record = recorded.at(node.path)
        counts = record.end.success if record.end is not None else self._is_answered(node, step)
        if counts and self.changed(node.path, step):
            node.phase = Phase.HALTED
            return True
        if record.end is not None:
            self._take_end(node, step, record, recorded)
            return True
        if record.verdict is False:
            self.machine.skip(node)
            return True
        if record.started_at is not None and step.modifiers.when is not None and not record.verdict:
            return False  # the predicate's verdict is not known: ask again
        if record.started_at is not None:
            node.attempt = record.attempts
            node.phase = Phase.RUNNING
            node.started_at = record.started_at
            again = self.machine.started(node, record.verdict)
            self.machine.emit(cmd.Record(again, step.modifiers.once))
            if record.attempts:
                self._restore_children(node, recorded)
                if isinstance(step.verb, ForEachGroup):
                    node.kept = Items(step.verb.items, again=True)
                self._register(node, lambda: self._restored(node, record))
            else:
                self._pick_up(node, record)
            return True
        return False

    def _register(self, node: Node, then: Callable[[], None]) -> None:
        """Have what can be undone of a step, from the attempts that are over, found in the code."""
        step = node.step
        assert step is not None
        self.registering.register(
            node, lambda finding: finding.below(node.path, step, node.inputs, node.kept), then
        )

    def _is_answered(self, node: Node, step: Step[Any]) -> bool:
        """True for a question whose answer is recorded and its end is not."""
        return type(step.verb) is Question and node.path in self.machine.answered

    def _take_end(
        self, node: Node, step: Step[Any], record: PathRecord, recorded: Recorded
    ) -> None:
        machine = self.machine
        has_children = _may_have_children(step, record)
        resolve(recorded, node.path, step, machine.codec)
        if has_children:
            compose(recorded, node.path, machine.setting.run_id)
        assert record.end is not None
        result = replayed(record.end)
        if record.index != node.index:
            self._moved(node.path, node.index)
        if has_children:
            machine.tree.update(recorded.tree_below(node.path))
            machine.end.note_recorded(node.path)
        machine.emit(cmd.Tell(_step_replayed("", 0, 0.0, node.path, result)))
        if has_children:
            self._register(node, lambda: self._ended(node, result, has_children=True))
        else:
            self._ended(node, result)

    def _moved(self, path: str, index: int) -> None:
        """Have it recorded where this stands now, for who reads the record in its order."""
        self.machine.record(ev.StepMoved(path, index))

    def _ended(self, node: Node, result: StepResult[Any], *, has_children: bool = False) -> None:
        recorded = self.machine.setting.recorded
        assert recorded is not None
        if has_children:
            self.machine.results.update(recorded.below(node.path))
        self.machine.nodes.pop(node.path, None)
        self.machine.ended(node, result)

    def changed(self, above: str, step: Step[Any]) -> bool:
        """Note a step whose record is of another, and steps that it holds as data; True if the
        drive must not go on from it.
        """
        machine = self.machine
        recorded = machine.setting.recorded
        if machine.codec is None or recorded is None:
            return False
        stop = False
        end = recorded.at(above).end
        made = 0 if end is None else end.attempts
        for path, one in held_steps(above, step):
            if recorded.at(path).attempt > made and path.rpartition("/")[0] == above:
                continue  # it is of the fallback, which has the name of a step that never began
            was = recorded.fingerprint_of(path)
            now = machine.fingerprint(one) if was else ""
            if was != now:
                stop = self.note_change(StepChange(path, was, now)) or stop
        return stop

    def note_change(self, change: StepChange) -> bool:
        """Keep a change that nobody accepted; True if the drive must not go on from it. To unwind
        a run, the record of a step will do as long as it is of the same kind.
        """
        recorded = self.machine.setting.recorded
        assert recorded is not None
        same_kind = change.was.partition(" ")[0] == change.now.partition(" ")[0]
        if recorded.is_reused(change.path) or (recorded.unwinds and same_kind):
            return False
        if change not in self.machine.changes:
            self.machine.changes.append(change)
            if not self.machine.rehearses:  # it ends this drive, and is not collected with others
                self.machine.emit(cmd.Changed(change.path))
        return not self.machine.rehearses

    def _restore_children(self, node: Node, recorded: Recorded) -> None:
        """What the attempts of this step left that are over; the next one comes to its own."""
        machine = self.machine
        assert node.step is not None
        resolve(recorded, node.path, node.step, machine.codec)
        compose(recorded, node.path, machine.setting.run_id)
        machine.end.note_recorded(node.path, attempt_base(node.path, node.attempt + 1))
        left = recorded.left_by_attempts(node.path)
        if left:
            node.seen = machine.tree[node.path] = dict.fromkeys(left)
        for path in left:
            machine.tree.update(recorded.tree_below(path))

    def replay_member(self, member: Node, digest: str, value: Any) -> bool:
        """Take a member's recorded end from the record, if it has one."""
        machine = self.machine
        recorded = machine.setting.recorded
        if recorded is None:
            return False
        if self.item_changed(member.path, digest):
            member.phase = Phase.HALTED
            return True
        if not recorded.knows(member.path):
            return False
        record = recorded.at(member.path)
        end = record.member_end
        if end is None:
            member.started_at = machine.now if record.started_at is None else record.started_at
            return False
        compose(recorded, member.path, machine.setting.run_id)
        if record.index != member.index:
            self._moved(member.path, member.index)
        machine.tree.update(recorded.tree_below(member.path))
        machine.end.note_recorded(member.path)
        machine.emit(cmd.Tell(ev.StepReplayed(member.path, record.member_end)))
        assert member.parent is not None
        assert member.parent.step is not None
        verb = member.parent.step.verb
        assert isinstance(verb, ForEachGroup)
        self.registering.register(
            member,
            lambda finding: finding.member(member.path, verb, value, member.inputs),
            lambda: self._member_ended(member, record),
        )
        return True

    def _member_ended(self, member: Node, record: PathRecord) -> None:
        recorded = self.machine.setting.recorded
        assert recorded is not None
        assert record.member_end is not None
        self.machine.results.update(recorded.below(member.path))
        del self.machine.nodes[member.path]
        self.machine.later(self.machine.tell_parent, member, record.member_end)

    def item_changed(self, path: str, digest: str) -> bool:
        """Note a member whose record is of another item; True if the drive must not go on."""
        recorded = self.machine.setting.recorded
        assert recorded is not None
        was = recorded.item_of(path)
        changed = was and digest and was != digest
        return bool(changed) and self.note_change(StepChange(path, f"item {was}", f"item {digest}"))

    def digest(self, item: Any) -> str:
        """What a member's item is, as a text that can be compared with the recorded one."""
        codec = self.machine.codec
        return "" if codec is None else short(codec.identity(item), self.machine.setting.secrets)

    def _restored(self, node: Node, record: PathRecord) -> None:
        recorded = self.machine.setting.recorded
        assert recorded is not None
        for path in recorded.left_by_attempts(node.path):
            end = recorded.at(path).end
            if end is not None:
                self.machine.results[path] = replayed(end)
            self.machine.results.update(recorded.below(path))
        if node.stop is None:
            self._pick_up(node, record)
        else:
            self.machine.stopping.all_stopped(node)

    def _went_on(self, node: Node, record: PathRecord) -> bool:
        """True if something is recorded of the attempt behind those that are over: it is entered,
        also to be stopped, for it may have left what can be undone.
        """
        recorded = self.machine.setting.recorded
        assert recorded is not None
        below = recorded.children(node.path)
        return any(recorded.at(child).attempt > record.attempts for child in below)

    def _pick_up(self, node: Node, record: PathRecord) -> None:
        """Go on from the last thing that is recorded of a step without an end."""
        machine = self.machine
        node.interrupted = record.interrupted
        recorded = machine.setting.recorded
        launched = 0 if recorded is None else recorded.launched.get(node.path, 0)
        agents = node.step is not None and type(node.step.verb) in LAUNCHED
        goes_on = agents and launched > 0 and record.end is None
        if goes_on and machine.launches.pick_up(node, record, launched):
            return
        due = record.retry_due
        waits = due is not None and (machine.still or due > machine.now)
        if due is not None and waits and not self._went_on(node, record):
            node.interrupted = False
            node.phase = Phase.PAUSED
            node.timer = machine.wait(node, due)
        elif record.failure is not None and due is None:
            machine.failing.attempt_failed(record.failure)
        else:
            machine.attempt(node)


def _may_have_children(step: Step[Any], record: PathRecord) -> bool:
    """True if something may be recorded below a step that has ended; it may have been another."""
    return not step.verb.leaf or step.modifiers.on_error is not None or bool(record.composed)
