"""Retraces code along the record: a mode of the machine, in which every path answers from it.

A ``Retracing`` is a run in this mode. Its nodes and actions are the machine's own, so each verb has
one interpreter. But nothing begins, and no end is decided again: no command leaves the run, a child
that is not recorded ends what would open it, and each step ends as recorded. On the way the code is
compared with the record. ``compensation`` and ``comparison`` say what is entered, and what becomes
of a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sized
from dataclasses import field
from typing import Any, Literal, TypeAlias

from handrail.codec.unresolved import Unresolved
from handrail.core import commands as cmd
from handrail.core.changes import note_item_change, note_step_change
from handrail.core.failing import failed_result, failure_on_record
from handrail.core.failures import body_error_text
from handrail.core.generators import close
from handrail.core.groups import GroupNode, begin_body
from handrail.core.nodes import MemberNode, Node, Phase
from handrail.core.replaying import may_have_children
from handrail.core.run_state import (
    Action,
    Attempt,
    BodyNode,
    CompositeNode,
    EndBody,
    Open,
    Pull,
    RunState,
    StepNode,
    TellParent,
)
from handrail.core.validation import ValidationNode
from handrail.core.work import WorkNode
from handrail.core.worktrees import WorktreeNode
from handrail.errors import HandrailError, StepTimeout
from handrail.model import events as ev
from handrail.model.dataclass import dataclass
from handrail.model.outcome import INTERRUPTIONS
from handrail.model.paths import encode_key, join
from handrail.model.results import qualified
from handrail.record.diff import equal
from handrail.record.outputs import derive, resolve
from handrail.record.path_tree import PathState, replayed
from handrail.record.results import children_of
from handrail.steps.bodies import MERGE, TREE_STEPS, ChildWorkflow
from handrail.steps.groups import Bodied, ForEachGroup
from handrail.steps.verbs import Step, take

Outcome: TypeAlias = Literal["succeeded", "failed", "stopped", "open"]
"""How a body, or an attempt, ended. A stopped one may have stopped anywhere."""
Question: TypeAlias = cmd.AskFallback | cmd.FindStages
_STOPPED_BY_TIME = qualified(StepTimeout)
_NO_STEP = "no such step"
_LOST = GeneratorExit("the record does not lead on")


@dataclass(slots=True)
class Search:
    """What is retraced below the ``root``, a node that stands for one of the real run. Mutable."""

    retracing: Retracing
    root: Node
    then: Callable[[], None]
    whole: bool = True
    """What no rollback is due in is gone through, too, in order to compare it."""
    agenda: list[Action] = field(default_factory=list)
    question: Question | None = None
    """What it waits for."""

    def answer(self, report: cmd.Evaluated) -> None:
        """Go on with the answer to its question."""
        self.retracing.take_answer(self, report)

    def close(self) -> None:
        """Close the bodies that have been entered."""
        self.retracing.close()


class Retracing(RunState):
    """A run in the mode that retraces, beside the ``real`` one. Mutable.

    ``act`` carries out an action as the machine does.
    """

    retraces = True
    counts_open = 0
    """1 if an attempt without an end is retraced, too."""
    search: Search

    def __init__(self, real: RunState, act: Callable[[RunState, Action], None]) -> None:
        super().__init__(real.definition, real.root.inputs, real.setting, real.node_types)
        self.real, self._act = real, act
        self.results, self.concurrent = real.results, real.concurrent
        self.paused, self.bounds_steps = None, False
        self.steering_requests.clear()
        self._at: Node = self.root
        """The node whose code runs."""
        self._known: dict[tuple[str, int], list[str]] = {}
        """The recorded children of the attempts that are retraced now, by base and attempt."""
        self._fell_back = set[str]()
        """The steps whose attempts are over, and whose fallback is retraced."""

    # -- what a kind of retracing says ------------------------------------------------------------

    def enters(self, path: str) -> bool:
        """True if this step or member is retraced, with what is below it."""
        raise NotImplementedError

    def enters_attempt(self, node: StepNode) -> bool:
        """True if what this attempt of a step left is retraced."""
        raise NotImplementedError

    def compares(self, node: Node) -> bool:
        """True if the children and the end of an attempt are to be as recorded."""
        raise NotImplementedError

    def differs(self, node: Node, path: str, was: str, now: str) -> None:
        """Take a difference between record and code: ``path`` is the node's, or that of a child."""
        raise NotImplementedError

    def text_of(self, value: Any) -> str:
        """What a difference says of a body's value."""
        raise NotImplementedError

    def record_of(self, node: Node) -> PathState:
        """What is recorded of a node."""
        return self.recorded.at(node.path)

    # -- running --------------------------------------------------------------------------------

    def select(self, search: Search) -> None:
        """Let what is pushed from now on belong to this search."""
        self.search, self.agenda, search.question = search, search.agenda, None
        self.nodes[search.root.path] = search.root

    def work_off(self) -> None:
        """Go on until all is done, or a question is asked."""
        search, real = self.search, self.real
        while self.agenda and search.question is None and not (self.counts_open and real.changes):
            self._carry_out(self.agenda.pop())
            for command in self.out:
                self._answer_from_record(command)
            self.out.clear()
        if search.question is not None:
            real.searches[search.question.path] = search
            real.emit(search.question)

    def _answer_from_record(self, command: cmd.Command) -> None:
        """An attempt that would end, or ask, is over; all other commands are dropped."""
        match command:
            case cmd.Record(ev.MemberCompleted(path=path, result=result)):
                node = self.nodes[path]
                if not result.success and self.compares(node):
                    self._compare_end(node, None, HandrailError(result.error))
                self._over(node)
            case cmd.Record(ev.StepCompleted(path=path) | ev.AttemptFailed(path=path)):
                self._over(self.nodes[path])
            case cmd.AskPredicate(path=path):
                self._over(self.nodes[path])
            case _:
                pass

    def _carry_out(self, action: Action) -> None:
        node = self._at = action.node
        if type(action) is TellParent and node.parent is not None:
            self._at = parent = node.parent
            if isinstance(parent, ValidationNode) and parent.path not in self._fell_back:
                self._detach(node)
                self.next_fix(parent)
                return
        match action:
            case EndBody(_, value, error):
                self._end_body(node, value, error)
            case Open(step_node):
                self._open(step_node)
            case Attempt(step_node):
                self._next_attempt(step_node)
            case _:
                self._act(self, action)

    def take_answer(self, search: Search, report: cmd.Evaluated) -> None:
        """Open the fallback step that a handler returned, if its record is to be entered."""
        node, chosen = self.nodes[report.path], report.value
        self.select(search)
        assert isinstance(node, StepNode)
        if isinstance(chosen, Step):
            step: Step[Any] = chosen
            self._open_if_entered(node, step, join(node.path, step.name))
        if node.child is None:
            self._over(node)
        self.work_off()

    def close(self) -> None:
        """Close the bodies that have been entered."""
        for node in reversed(self.nodes.values()):
            if node.generator is not None:
                close(node.generator)
        self.nodes.clear()

    # -- in place of the run's own ----------------------------------------------------------------

    def emit(self, command: cmd.Command) -> None:
        """Drop the command; an interruption ends the real drive."""
        if type(command) is cmd.EndDrive:
            self.real.escaped = self.escaped
            self.real.emit(command)

    def stop_root(self, reason: str, *, hard: bool) -> None:
        """End what makes a mistake, or hits a limit, as if its body had raised it."""
        del hard
        self.ending = None
        if isinstance(self._at, GroupNode):
            self._over(self._at)
        else:
            self.push(EndBody(self._at, None, HandrailError(reason)))

    def enter(self, node: BodyNode, generator: Generator[Any, Any, Any]) -> None:
        """Run this generator as the node's body, along the record."""
        super().enter(node, generator)
        self.places[node.path] = None  # its visits were counted
        records = [self.recorded.at(path) for path in self.known(node)]
        clean_up = [record.index for record in records if record.cleanup]
        before = [record.index for record in records if clean_up and record.index < min(clean_up)]
        if before:
            self.stops_at[node.path] = max(before)

    def open_child(
        self, parent: Node, step: Step[Any], path: str, index: int | None = None
    ) -> StepNode | None:
        """A node for a step that is recorded; another one ends what would open it."""
        record, is_yielded = self.recorded.get(path), parent.generator is not None
        is_known = record is not None and (
            is_yielded or parent.path in self._fell_back or record.attempt == max(1, parent.attempt)
        )
        is_in_body = is_yielded or isinstance(parent, MemberNode)
        may_skip = not is_yielded and isinstance(parent, (GroupNode, MemberNode))
        if is_known and not (may_skip and not self.enters(path)):
            return super().open_child(parent, step, path, index)
        take(step)
        if is_known and is_in_body:
            self._compare_step(path, step, yielded=False)
        elif is_in_body:
            self._unrecorded(parent, path, step)
        self._lose(parent)
        return None

    def enter_member(self, member: MemberNode, verb: Bodied, item: Any, value: Any) -> None:
        """Retrace a member that its group opens."""
        group, path = member.parent, member.path
        assert group is not None
        if not self.recorded.knows(path):
            self._unrecorded(group, path, None)
            self._detach(member)
            return
        self._at = member
        note_item_change(self.real, path, item)
        if self.enters(path):
            begin_body(self, member, verb, value)
        else:
            self._finish(member)

    # -- nodes ----------------------------------------------------------------------------------

    def _open(self, node: StepNode) -> None:
        path, step, record = node.path, node.step, self.recorded.at(node.path)
        yielded = node.parent is not None and node.parent.generator is not None
        leads_on = record.end is not None or self.counts_open
        resolve(self.recorded, path, step, self.codec)
        if leads_on and yielded and may_have_children(step, record):
            derive(self.recorded, path, self.setting.run_id)
        self._compare_step(path, step, yielded=yielded)
        if leads_on and may_have_children(step, record) and self.enters(path):
            self._next_attempt(node)
        else:
            self._finish(node)

    def _next_attempt(self, node: StepNode) -> None:
        """Begin the next attempt that is entered; after the last one the fallback, or the end."""
        record = self.recorded.at(node.path)
        made = record.attempts + self.counts_open
        if record.end is not None:
            made = max(record.attempts, record.end.attempts)
        while isinstance(node, CompositeNode) and node.attempt < made:
            node.attempt += 1
            node.phase = Phase.RUNNING
            if not (node.verb.leaf or node.verb.waits) and self.enters_attempt(node):
                self._begin_attempt(node)
                return
        may_fall_back = record.attempts >= made if record.end is not None else self.counts_open
        if not may_fall_back or not self._falls_back(node):
            self._finish(node)

    def _begin_attempt(self, node: CompositeNode) -> None:
        node.stop, node.hard, node.overdue, node.failure, node.yields = None, False, False, None, 0
        if isinstance(node, ValidationNode):
            self.begin_rounds(node)
            return
        of_steps = isinstance(node, GroupNode) and not isinstance(node.verb, Bodied)
        if of_steps and not any(map(self.enters, self.known(node))):
            self._leave(node)
            return
        node.begin(self)
        if not isinstance(node, GroupNode) or node.live is None:
            return
        node.members.window = None
        if isinstance(node.verb, ForEachGroup):
            node.members.items = self._as_far_as_recorded(node, node.verb, node.members.items)
        elif isinstance(node, WorkNode):
            node.queue.only_begun = True
            self._compare_tasks(node)

    def _as_far_as_recorded(
        self, node: GroupNode, verb: ForEachGroup, items: Iterator[Any]
    ) -> Iterator[Any]:
        """The items that are looked at; the others may be endless."""
        begun = self.known(node)
        whole = self._is_complete(node)
        left = set() if whole else {path for path in begun if self.enters(path)}
        last = max((self.recorded.at(path).index for path in begun), default=-1)
        may_be_endless = not isinstance(verb.items, Sized)
        for index, item in enumerate(items):
            yield item
            beyond = may_be_endless and index >= last
            if not whole:
                left.discard(next(reversed(node.seen or {"": None})))
            if (beyond and self.real.changes) if whole else (beyond or not left):
                return

    def begin_rounds(self, node: ValidationNode) -> None:
        """Retrace the rounds of a validation."""
        self.next_fix(node)

    def next_fix(self, node: ValidationNode) -> None:
        """Open the next fix that is recorded."""
        fix = node.verb.on_failure
        for path in self.known(node) if fix is not None else ():
            number, _, name = path.removeprefix(f"{node.base}/").partition("/")
            is_fix = fix is not None and name == fix.name and number.isdigit()
            if is_fix and path not in (node.seen or ()) and self._open_if_entered(node, fix, path):
                return
        self._leave(node)

    def _open_if_entered(self, node: StepNode, step: Any, path: str) -> bool:
        take(step)
        entered = self.enters(path) and self.reserve_path(node, path, "")
        if entered:
            self.open_child(node, step, path)
        return entered

    def _falls_back(self, node: StepNode) -> bool:
        """Ask the handler for the fallback step, if its record is to be entered."""
        path, handler, record = node.path, node.step.modifiers.on_error, self.recorded.at(node.path)
        failure = record.failure
        if handler is None or failure is None or path in self._fell_back:
            return False
        self._fell_back.add(path)
        if not any(map(self.enters, self.known(node))):
            return False
        node.phase = Phase.FALLING_BACK
        ms = max(0.0, (failure.at - (record.started_at or failure.at)) * 1000)
        failed = failed_result(node.step, path, failure_on_record(failure), failure.attempt, ms)
        self.results.update(self.recorded.below(path))
        self.search.question = cmd.AskFallback(path, handler, failed, self.view(node))
        return True

    # -- ends -----------------------------------------------------------------------------------

    def _end_body(self, node: Node, value: Any, error: BaseException | None) -> None:
        if node.generator is not None:
            close(node.generator)
            node.generator = None  # type: ignore[misc]
        if error is not _LOST and self.compares(node):
            self._compare_children(node)
            self._compare_end(node, value, error)
        if isinstance(error, INTERRUPTIONS):
            self.real.escaped = error
        self._leave(node)

    def _over(self, node: Node) -> None:
        """An attempt has come to its end, or as far as the record leads."""
        of_members = isinstance(node, GroupNode) and isinstance(node.verb, Bodied)
        by_code = of_members or isinstance(node, MemberNode) or node.path in self._fell_back
        if by_code and self.compares(node):
            self._compare_children(node)
            self._compare_places(node)
        self._leave(node)

    def _leave(self, node: Node) -> None:
        node.phase = Phase.ENDING
        if isinstance(node, GroupNode):
            node.members.interrupted = True  # it pulls no more
            self.concurrent.discard(node.base)
        self._known.pop((node.base, max(1, node.attempt)), None)
        if isinstance(node, StepNode):
            self.push(Attempt(node))
        else:
            self._finish(node)

    def _lose(self, parent: Node) -> None:
        """A child tells nothing: a body cannot go on, a group has other members."""
        if isinstance(parent, GroupNode) and parent.path not in self._fell_back:
            if parent.members.exhausted:
                self.push(Pull(parent))
        elif parent.generator is not None:
            self.push(EndBody(parent, None, _LOST))
        else:
            self._over(parent)

    def _finish(self, node: Node) -> None:
        """Give the parent the recorded end of a node."""
        path, parent, record = node.path, node.parent, self.recorded.at(node.path)
        del self.nodes[path]
        self.places.pop(path, None)
        self.tree.pop(path, None)
        self.trees.pop(path, None)
        if node is self.search.root:
            self.search.then()
            return
        assert parent is not None
        end = record.end
        if end is not None and isinstance(node, StepNode):
            if not node.is_leaf and node.attempt == 0:  # it was not entered
                self.results.update(self.recorded.below(path))
            end = self.results[path] = replayed(end)
            self.keep_rollback(node)
        yielded, falls_back = parent.generator is not None, parent.path in self._fell_back
        is_told = yielded or falls_back or isinstance(parent, StepNode)
        if end is None or not is_told or (type(parent) is GroupNode and not falls_back):
            self._detach(node)
            self._lose(parent)
            return
        if yielded and parent.stop is None:
            is_last = record.index == self.stops_at.get(parent.path)
            parent.stop = end.error or "cancelled" if is_last or end.status == "cancelled" else None
        self.push(TellParent(node, end))

    def keep_rollback(self, node: StepNode) -> None:
        """Called for a step that has been retraced."""

    def _detach(self, node: Node) -> None:
        self.nodes.pop(node.path, None)
        parent = node.parent
        if isinstance(parent, GroupNode) and parent.live is not None:
            del parent.live[node.path]
            if node.rollbacks is not None:
                parent.members.rollbacks[node.index] = node.rollbacks
        elif parent is not None:
            parent.child = None
            parent.rollbacks = [*(parent.rollbacks or ()), *(node.rollbacks or ())]

    # -- what is recorded -----------------------------------------------------------------------

    def known(self, node: Node) -> list[str]:
        """The recorded children of a body, or of an attempt, in order."""
        recorded, path = self.recorded, node.path
        base, attempt = node.base, max(1, node.attempt)
        if path in self._fell_back:
            base, attempt = path, recorded.at(path).attempts + 1
        children = self._known.get((base, attempt))
        if children is None:
            prefix = f"{base}/" if base else ""
            children = self._known[base, attempt] = [
                child
                for child in recorded.children(path)
                if child.startswith(prefix) and (not path or recorded.at(child).attempt == attempt)
            ]
        return children

    def outcome(self, node: Node) -> Outcome:
        """How a body, or an attempt, ended, as far as the record shows."""
        record = self.record_of(node)
        end, failure = record.end, record.failure
        if node.path in self._fell_back:
            return "open"
        if isinstance(node, WorktreeNode) and self.recorded.knows(f"{node.base}/{MERGE}"):
            return "succeeded" if end is not None and end.success else "open"  # no other value is
        if 0 < node.attempt <= record.attempts:
            last = failure is not None and failure.attempt == node.attempt
            timely = failure is not None and failure.error_type != _STOPPED_BY_TIME
            return "failed" if last and timely else "stopped"
        if end is None or end.status == "cancelled":
            return "open" if end is None else "stopped"
        return "succeeded" if end.success else "failed"

    def recorded_value(self, node: Node) -> Any:
        """The recorded value that a body returned."""
        record = self.record_of(node)
        if isinstance(node, StepNode) and isinstance(node.step.verb, ChildWorkflow):
            return None if record.child is None else record.child.value
        return None if record.end is None else record.end.output

    # -- what is compared -----------------------------------------------------------------------

    def _compare_step(self, path: str, step: Step[Any], *, yielded: bool) -> None:
        """Compare a step that is recorded, if its success counts."""
        end = self.recorded.at(path).end
        is_success = end is not None and end.success and (yielded or self.search.whole)
        if self.counts_open or is_success:
            note_step_change(self.real, path, step)

    def _unrecorded(self, parent: Node, path: str, step: Step[Any] | None) -> None:
        """Compare a step, or a member, that the recorded run would have begun."""
        if not self.compares(parent):
            return
        how, now = self.outcome(parent), "a member"
        if step is not None:
            now = self.fingerprint(step) or "a step"
        past = how == "succeeded" or (how == "failed" and step is not None)
        if (past and parent.stop is None) or (step is not None and self._unreached(parent)):
            self.differs(parent, path, _NO_STEP, now)

    def _compare_tasks(self, node: WorkNode) -> None:
        """Compare the initial tasks of work that came to its end."""
        was = [task.id for task in self.recorded.tasks.get(node.path, ())]
        now = [task.id for task in node.verb.tasks]
        if was == now or not self._is_complete(node):
            return
        differ = {*was} ^ {*now}
        for task_id in (*now, *was):
            if task_id in differ:
                texts = ("a member", _NO_STEP) if task_id in was else (_NO_STEP, "a member")
                self.differs(node, f"{node.base}/{encode_key(task_id)}", *texts)
                return
        self.differs(node, node.path, f"work from {was[0]!r} on", f"work from {now[0]!r} on")

    def _is_complete(self, node: Node) -> bool:
        """True if an attempt is to have just the children that are recorded."""
        return self.compares(node) and self.outcome(node) == "succeeded"

    def _compare_children(self, node: Node) -> None:
        """Compare what is recorded with what the code has reached."""
        for path in self._unreached(node):
            self.differs(node, path, self.recorded.at(path).fingerprint or "a member", _NO_STEP)

    def _unreached(self, node: Node) -> list[str]:
        """The recorded children that the code did not reach, except those the run left out."""
        out = {*self.record_of(node).unreached_children, *children_of(self.tree, node.path)}
        missed: list[str] = []
        for path in self.known(node):
            of_tree = isinstance(node, WorktreeNode) and path.rpartition("/")[2] in TREE_STEPS
            if path in out or of_tree:
                continue
            record = self.recorded.at(path)
            has_come = record.ended() or self.recorded.children(path)
            if has_come or (record.started_at is not None and self.outcome(node) != "succeeded"):
                missed.append(path)
        return missed

    def _compare_places(self, node: Node) -> None:
        """Compare where the members of a group stand in its output."""
        if type(node) is not GroupNode or not self._is_complete(node):
            return
        left_out, prefix = self.record_of(node).unreached_children, f"{node.base}/"
        for index, path in enumerate(path for path in node.seen or () if path.startswith(prefix)):
            record = self.recorded.get(path)
            if record is not None and record.index != index:
                self.differs(node, path, "elsewhere", "moved")
            elif path in left_out:
                self.differs(node, path, _NO_STEP, "a member")

    def _compare_end(self, node: Node, value: Any, error: BaseException | None) -> None:
        """Compare the end of a body with the recorded one."""
        how, known = self.outcome(node), self.recorded_value(node)
        if node.stop is not None or how in {"stopped", "open"}:
            return
        if error is None and how == "failed":
            error = self.unrecordable(value, f"step {node.path!r}")
        if error is not None and how == "failed":
            return
        identity = self.codec.identity if self.codec is not None else repr
        now = self.text_of(value) if error is None else f"failed: {body_error_text(error)}"
        if how == "failed":
            end = self.record_of(node).end or self.record_of(node).failure
            self.differs(node, node.path, f"failed: {'' if end is None else end.error}", now)
        elif error is not None or (
            type(known) is not Unresolved and not equal(value, known, identity)
        ):
            self.differs(node, node.path, self.text_of(known), now)
