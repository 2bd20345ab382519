"""The live state of one run, and the primitives that every part of the interpreter shares.

All parts of the core are functions over a ``RunState`` (named ``run``). A part may call those below
it. What it asks of one above it is an ``Action``, put on the agenda with ``RunState.push`` and
carried out within the same ``receive``; ``core.machine`` has the table that says by whom.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

from handrail.core import commands as cmd
from handrail.core.failures import AttemptFailure, facts_of
from handrail.core.items import Items
from handrail.core.ledger import BudgetState
from handrail.core.mistakes import SecretNames, names_a_secret, secret_names
from handrail.core.nodes import MemberNode, Node, Phase, RunNode
from handrail.core.visible import VisibleResults
from handrail.errors import DuplicateStepName, HandrailError, OutputNotSerializable, StepChange
from handrail.model import events as ev
from handrail.model.dataclass import dataclass
from handrail.model.definition import WorkflowDefinition
from handrail.model.described import line_of
from handrail.model.launch import Launch
from handrail.model.policy import Limits
from handrail.model.results import (
    A_PERSON,
    Failure,
    Incident,
    OpenGate,
    RollbackError,
    RunStatus,
    Skipped,
    StepResult,
    StepStatus,
    Usage,
    add_usage,
    qualified,
)
from handrail.model.shapes import OwnTree
from handrail.record.outputs import declared_output, member_output, recordable
from handrail.record.results import children_of
from handrail.record.run_record import Recorded, attempt_in
from handrail.steps.fingerprint import fingerprint, matches
from handrail.steps.verbs import ForEachGroup, SignalWait, Step, WorkGroup

if TYPE_CHECKING:
    from handrail.codec.codec import Codec  # attrs keeps the annotation as text


class StepNode(Node):
    """A live step. Each verb has a class of its own, which says what the verb does."""

    __slots__ = ("asking", "attempt", "failure", "step", "used")

    is_leaf: bool = False
    """True if the engine performs its attempts."""
    deadline: int = 0
    """Token of its deadline."""
    overdue: bool = False
    """Its deadline has passed: it is being stopped in order to fail with ``failure``."""

    def __init__(
        self, step: Step[Any], path: str, parent: Node | None, inputs: Mapping[str, Any]
    ) -> None:
        super().__init__(path, parent, inputs)
        self.step = step
        self.attempt = 0
        self.failure = None
        self.asking = False
        """The engine evaluates something for it, and will answer."""
        self.used: Usage | None = None
        """What its attempts that failed had used."""

    def used_at_end(self, run: RunState, last: Usage | None, /) -> Usage | None:
        """What it used in all; ``last`` is what is known of the attempt that it ends in."""
        del run
        return add_usage(self.used, last)

    def begin(self, run: RunState, /) -> None:
        """Begin an attempt; ``attempt`` is its number already."""
        raise NotImplementedError

    def child_ended(self, run: RunState, child: Node, result: StepResult[Any], /) -> None:
        """Go on after a child that ended and is recorded."""

    def body_ended(self, run: RunState, value: Any, error: BaseException | None, /) -> None:
        """Go on after its body's end, which nothing was stopping."""

    def evaluated(self, run: RunState, report: cmd.Evaluated, /) -> None:
        """Go on with what it asked for with ``RunState.ask``."""

    def consume(self, run: RunState, number: int, payload: Any, /) -> None:
        """Go on with the payload of a signal that it listened for."""

    def timer_fired(self, run: RunState, /) -> None:
        """Go on after its timer."""

    def pull(self, run: RunState, /) -> None:
        """Start its next member."""

    def stop_late(self, run: RunState, path: str, /) -> None:
        """Stop the member at this path, if it has not ended."""

    def stop_members(self, run: RunState, reason: str, attempt: int, /) -> None:
        """Stop its members, if it is still at this attempt."""

    def put_in_order(self, run: RunState, /) -> None:
        """List its children in their order, where that is another than that of their starts."""

    def stopped(self, run: RunState, /) -> None:
        """Close what it holds open: it was stopped, and has no child left."""

    def undoes_itself(self) -> bool:
        """True if what its children registered is undone at its own end when it is stopped."""
        return False

    def kept_items(self) -> Items | None:
        """The items of ``for_each``, kept for all its attempts; None for other verbs."""
        return None

    def validation_so_far(self) -> Any:
        """What a fix below it is shown; None if it validates nothing."""
        return None

    @property
    def consumed_signal(self) -> int:
        """The number of the signal that its attempt took; 0 for none."""
        return 0


class LeafNode(StepNode):
    """A step that the engine performs: a call, a command, a stage."""

    __slots__ = ("interrupted",)

    is_leaf = True

    def __init__(
        self, step: Step[Any], path: str, parent: Node | None, inputs: Mapping[str, Any]
    ) -> None:
        super().__init__(step, path, parent, inputs)
        self.interrupted = False
        """Its next attempt follows one that was at work when its process ended."""


class CompositeNode(StepNode):
    """A step that the core carries out itself: it has children, or waits."""

    __slots__ = ("deadline", "late", "overdue")

    @property
    def begins_again(self) -> bool:
        """True if the steps that it holds may have begun before."""
        return self.attempt > 1

    def __init__(
        self, step: Step[Any], path: str, parent: Node | None, inputs: Mapping[str, Any]
    ) -> None:
        super().__init__(step, path, parent, inputs)
        self.deadline = 0
        self.late = self.overdue = False


class AgentNode(LeafNode):
    """A step that an agent is launched for, once or several times an attempt."""

    __slots__ = (
        "at_work",
        "budget_gate",
        "guided",
        "ladder",
        "launch_spent",
        "launched",
        "pending",
        "reasks",
        "reserved",
        "said",
        "spent_s",
    )

    def __init__(
        self, step: Step[Any], path: str, parent: Node | None, inputs: Mapping[str, Any]
    ) -> None:
        super().__init__(step, path, parent, inputs)
        self.ladder: tuple[ev.LadderStep | ev.AgentGuided, ...] = ()
        """How its attempt went on after launches that failed, and what its agent was told."""
        self.at_work: Launch | None = None
        """The launch that the engine was asked for, and that has not ended."""
        self.guided = False
        """That launch is being broken off, to be made again with what somebody said."""
        self.said: tuple[str, ...] = ()
        """What people said to its agent."""
        self.pending: Launch | None = None
        """What is launched when its pause is over."""
        self.launched = 0
        """The number of its last launch."""
        self.reasks = 0
        self.spent_s = 0.0
        """How long the launches of its attempt were at work."""
        self.reserved = 0
        """The number of the launch that something is reserved for."""
        self.launch_spent: Usage | None = None
        """What the launches before that one used."""
        self.budget_gate = ""
        """Where it is asked whether its launch may be made."""

    @property
    def rungs(self) -> list[ev.LadderStep]:
        """How its attempt went on after launches that failed."""
        return [one for one in self.ladder if isinstance(one, ev.LadderStep)]

    def used_at_end(self, run: RunState, last: Usage | None) -> Usage | None:
        """With the launches of an attempt that was stopped before the next of them."""
        if last is None and self.failure is None and self.ladder:
            rung = self.ladder[-1]
            last = rung.next.spent if rung.attempt == self.attempt else None
        return super().used_at_end(run, last)


class BodyStepNode(CompositeNode):
    """A step with a body of its own: a generator that yields steps."""

    __slots__ = ("body_inputs", "generator", "unwinding")

    def __init__(
        self, step: Step[Any], path: str, parent: Node | None, inputs: Mapping[str, Any]
    ) -> None:
        super().__init__(step, path, parent, inputs)
        self.body_inputs = None
        self.generator = None
        self.unwinding = False


BodyNode: TypeAlias = RunNode | MemberNode | BodyStepNode
"""A node whose generator is run: the run, a member, a child workflow."""


# -- the agenda ------------------------------------------------------------------------------------


class Open(msgspec.Struct, gc=False):
    """Look at the record of a new step, evaluate its predicate, and start it."""

    node: StepNode


class Attempt(msgspec.Struct, gc=False):
    """Make the next attempt of a step."""

    node: StepNode


class MakeLaunch(msgspec.Struct, gc=False):
    """Make a launch of an agent within its attempt."""

    node: AgentNode
    launch: Launch
    interrupted: bool


class Advance(msgspec.Struct, gc=False):
    """Run a body from its beginning to its first step."""

    node: Node


class EndBody(msgspec.Struct, gc=False):
    """Tell whoever waits for a body that it returned or raised."""

    node: Node
    value: Any
    error: BaseException | None


class TellParent(msgspec.Struct, gc=False):
    """Let the parent of a node that ended go on."""

    node: Node
    result: StepResult[Any]


class Pull(msgspec.Struct, gc=False):
    """Start the next member of a group, or end it."""

    node: StepNode


class Stop(msgspec.Struct, gc=False):
    """Stop a subtree; ``hard``: close bodies instead of unwinding them."""

    node: Node
    reason: str
    hard: bool = False


class StopMember(msgspec.Struct, gc=False):
    """Stop one member of a group that is decided."""

    node: StepNode
    path: str


class StopMembers(msgspec.Struct, gc=False):
    """Stop all members of a group, if it is still at this attempt."""

    node: StepNode
    reason: str
    attempt: int


class EndStopped(msgspec.Struct, gc=False):
    """End a stopped node that has nothing running below it."""

    node: Node


Action: TypeAlias = (
    Open
    | Attempt
    | MakeLaunch
    | Advance
    | EndBody
    | TellParent
    | Pull
    | Stop
    | StopMember
    | StopMembers
    | EndStopped
)


# -- the run ---------------------------------------------------------------------------------------


class Search(Protocol):
    """What looks for rollbacks in the code, and has asked for a fallback on its way."""

    def answer(self, report: cmd.Evaluated, /) -> None:
        """Take it further, with the answer."""

    def close(self) -> None:
        """Close the bodies that it stands in."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How the run is to end, once its tree has unwound."""

    status: RunStatus
    error: str | None = None
    error_type: str | None = None
    traceback: str | None = None
    failed_step: str | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """What a machine is told once, before the first event.

    ``codec`` is None where nothing needs to be recorded so that another process could read it.
    ``secrets`` are values, by name, that no description of a step may hold. ``unwinds``: a request
    to cancel will follow the rehearsal, and what waits then is still waiting.
    """

    run_id: str
    limits: Limits = Limits()
    cleanup_timeout_s: float = 30.0
    recorded: Recorded = field(default_factory=lambda: Recorded(()))
    codec: Codec | None = None
    max_crashes: int = 5
    secrets: Mapping[str, str] | None = None
    unwinds: bool = False

    def opened_before(self) -> int:
        """How many steps earlier drives let in, if that is bounded."""
        return 0 if self.limits.max_steps is None else self.recorded.steps_begun()


class RunState:
    """What is live in one drive of one run. Mutable."""

    def __init__(  # noqa: PLR0915  # one attribute a line
        self,
        definition: WorkflowDefinition,
        inputs: Mapping[str, Any],
        setting: Setting,
        node_types: Mapping[type, type[StepNode]],
    ) -> None:
        recorded = setting.recorded
        self.definition, self.setting, self.limits = definition, setting, setting.limits
        self.recorded, self.codec = recorded, setting.codec
        self.node_types = node_types
        """The class of a step's node, by its verb."""
        self.secrets: SecretNames = secret_names(setting.secrets)
        # what is live
        self.root = RunNode("", None, inputs)
        self.nodes: dict[str, Node] = {}
        self.results: dict[str, StepResult[Any]] = {}
        self.tree: dict[str, dict[str, None] | str] = {}
        self.concurrent: set[str] = set()
        # the drive
        self.now = 0.0
        self.started_at = 0.0
        self.run_deadline = 0
        self.drive_seq = 0
        """The number of the event that the drive began with; nearly all is replayed behind it."""
        self.timers_frozen = setting.unwinds
        """No wait is over: it is to be cancelled as it was left, however much later."""
        self.rehearses = not recorded.is_empty
        """The record is being gone through, and nothing else has happened."""
        self.after_rehearsal: list[Stop | StopMembers] = []
        self.paused: ev.RunSteered | None = recorded.paused
        """Who paused the run, if it is: nothing begins but to clean up."""
        self.bounds_steps = setting.limits.bounds_steps
        self.asked: dict[str, ev.RunSteered] = dict(recorded.asked)
        """What a person wants of steps that have not ended, by path."""
        self.edits: dict[str, list[ev.WorkEdited]] = {
            path: list(edits) for path, edits in recorded.edits.items()
        }
        """What was done to the queue of ``work``, by its path, in order."""
        self.last_edit = 0
        """The number of the last message that was one of these."""
        self.more_ended = False
        """Another end is on record, and comes next: no task begins before what it brings is known.
        """
        self.deferred: dict[str, None] = {}
        """The ``work`` that waits for that, by path."""
        self.roomy = set[str]()
        """The ``work`` that would begin a task at once if somebody added one."""
        self.begins_at_once = False
        """A plain leaf needs no look at the record, nor at how many steps there were."""
        self.guidance = recorded.guidance.copy()
        """What people said to agents, and is not given to them yet."""
        self.postponed: dict[str, Open | Attempt | MakeLaunch | Pull] = {}
        """What is to begin once the run is not paused any more, or what it stands in holds what it
        wants; by path.
        """
        self.unclaimed: dict[str, StepNode] = {}
        """Steps that wait for what they hold while what is below them runs, by path."""
        self.trees: dict[str, OwnTree] = {}
        """The worktrees that steps work in, by the path of the step that they are of."""
        self.claimed: set[str] = set()
        """Paths of those that have it, or ask for it now."""
        self.look_at_each()
        self.over_limit: dict[str, dict[str, tuple[StepNode, str, float, str]]] = {}
        """Steps that a limit has no room for, with the limit, by the question they wait for."""
        self.opened = setting.opened_before()
        """How many steps were let in, if that is bounded."""
        self.visits: dict[tuple[str, str], int] = {}
        """How often each line of a body yielded, if that is bounded."""
        self.changes: list[StepChange] = []
        """Recorded steps that the code describes otherwise now."""
        # what is waited for
        self.timers: dict[int, tuple[Node, float]] = {}
        """Whose timers are set, by token, and when they are due."""
        self._tokens = 0
        self.gates: dict[str, OpenGate] = {}
        self.answered: dict[str, ev.GateAnswered] = {}
        self.revisions: dict[str, int] = {}
        """How often each question was asked so far, by path."""
        self.listeners: dict[str, dict[str, StepNode]] = {}
        self.mailboxes: dict[str, list[tuple[int, Any]]] = {}
        self.last_message = 0
        """The number of the last message that was a signal and has arrived."""
        # agents
        self.parked: dict[str, str] = {}
        """What a person must do, by path of the step that waits for it."""
        self.incidents: list[Incident] = list(recorded.incidents)
        """The failures that the run lived through, in all its drives."""
        self.budgets = BudgetState(recorded.spending)
        # the end
        self.ending: Ending | None = None
        self.value: Any = None
        self.undoing: dict[str, tuple[Node, Callable[[], None]]] = {}
        """What runs its rollbacks, by the path of the one at work, and what follows."""
        self.searches: dict[str, Search] = {}
        """Searches for rollbacks that wait for an answer, by the path of their question."""
        self.undone: set[str] = set()
        self.rollback_errors: list[RollbackError] = []
        self.finished = False
        self.escaped: BaseException | None = None
        # one receive
        self.out: list[cmd.Command] = []
        self.agenda: list[Action] = []

    def look_at_each(self) -> None:
        """Begin plain leaves at once only where nothing is to be looked up first."""
        known = not self.recorded.is_empty or bool(self.asked)
        may_wait = self.paused or self.unclaimed or self.trees
        self.begins_at_once = not (known or self.bounds_steps or may_wait)

    # -- commands and actions -------------------------------------------------------------------

    def emit(self, command: cmd.Command) -> None:
        """Add a command to the batch."""
        self.out.append(command)

    def record(self, event: ev.Event) -> None:
        """Add ``Record(event)`` to the batch."""
        self.out.append(cmd.Record(event))

    def ask(self, node: StepNode, command: cmd.Command) -> None:
        """Add a command that ``Evaluated`` will answer."""
        node.asking = True
        self.out.append(command)

    def push(self, action: Action) -> None:
        """Do this within the same ``receive``; what is pushed last is done first."""
        self.agenda.append(action)

    def wait(self, node: Node, due: float) -> int:
        """Ask for ``TimerFired`` at ``due``; the token of the timer."""
        self._tokens += 1
        self.timers[self._tokens] = node, due
        self.out.append(cmd.Wait(node.path, due, self._tokens))
        return self._tokens

    def drop_timer(self, token: int) -> None:
        """Forget a timer; 0 is none."""
        if token:
            self.timers.pop(token, None)

    def drop_timers(self, node: StepNode) -> None:
        """Forget the deadline of a node, and what it waits for; give back what it holds."""
        if self.claimed or self.unclaimed:
            self._unclaim(node.path)
        if self.trees and self.trees.pop(node.path, None) is not None:
            self.look_at_each()
        if isinstance(node, CompositeNode) and node.deadline:
            self.timers.pop(node.deadline, None)
            node.deadline = 0
        if node.timer:
            self.timers.pop(node.timer, None)
            node.timer = 0

    def _unclaim(self, path: str) -> None:
        if self.unclaimed.pop(path, None) is not None:
            self.look_at_each()
        if path in self.claimed:
            self.claimed.discard(path)
            self.out.append(cmd.Unclaim(path))

    def tree_of(self, node: Node) -> OwnTree | None:
        """The worktree that a step works in; None if it is the process's own folder."""
        above: Node | None = node if self.trees else None
        while above is not None:
            if above.path in self.trees:
                return self.trees[above.path]
            above = above.parent
        return None

    # -- nodes ----------------------------------------------------------------------------------

    def step_at(self, path: str) -> StepNode | None:
        """The live step at this path whose end is not on its way, if there is one."""
        node = self.nodes.get(path)
        if isinstance(node, StepNode) and node.phase is not Phase.ENDING:
            return node
        return None

    def new_node(self, parent: Node, step: Step[Any], path: str) -> StepNode:
        """A node for a step below ``parent``, of the class that its verb has."""
        inner = parent.body_inputs
        inputs = parent.inputs if inner is None else inner
        return self.node_types[type(step.verb)](step, path, parent, inputs)

    def open_child(
        self, parent: Node, step: Step[Any], path: str, index: int | None = None
    ) -> StepNode:
        """A node for a step below ``parent``, opened within this ``receive``; ``index``, its place,
        is said where they are not opened in order, in a group.
        """
        if index is None:
            index = parent.yields
            parent.yields += 1
        node = self.new_node(parent, step, path)
        node.index = index
        if parent.live is not None:
            parent.live[path] = node
        else:
            parent.child = node
        self.nodes[path] = node
        self.agenda.append(Open(node))
        return node

    def enter(self, node: BodyNode, generator: Any) -> None:
        """Run this generator as the node's body, from its beginning."""
        node.generator = generator
        node.yields = 0
        self.agenda.append(Advance(node))

    def take_path(self, parent: Node, path: str, where: str, hint: str) -> bool:
        """Make ``path`` a child of ``parent``; one that is taken is a mistake and ends the run."""
        seen = parent.seen
        if seen is None:
            seen = parent.seen = self.tree[parent.path] = {}
        if path in seen:
            self.mistake(DuplicateStepName(path, where, hint))
            return False
        if self.secrets and self.names_a_secret(path, where):
            return False
        seen[path] = None
        return True

    def names_a_secret(self, path: str, where: str) -> bool:
        """End the run if a name or key has the value of a secret."""
        mistake = names_a_secret(self.secrets, path, where)
        if mistake is not None:
            self.mistake(mistake)
        return mistake is not None

    def where(self, node: Node) -> str:
        """``file:line`` of the body that yielded the step this node belongs to."""
        above: Node | None = node
        while above is not None:
            if above.generator is not None:
                return line_of(above.generator)
            above = above.parent
        return self.definition.name

    def was_let_in(self, path: str) -> bool:
        """True for what began in an earlier drive, whose limits were others: it counts, but none is
        hit by it, or a success on record would end a second time.
        """
        recorded = self.recorded
        if not recorded.knows(path):
            return False
        if recorded.limit is None or recorded.limit.path != path:
            return True
        end = recorded.at(path).end
        return end is not None and end.success

    # -- what steps see, and how they are described ---------------------------------------------

    def view(self, node: Node, validation: Any = None) -> cmd.View:
        """What the functions of a step may see."""
        return self.view_of(node.path, node.inputs, validation)

    def view_of(self, path: str, inputs: Mapping[str, Any], validation: Any = None) -> cmd.View:
        """The same, of a step that need not be live."""
        results = VisibleResults(self.results, self.concurrent, path)
        return cmd.View(path, inputs, results, validation)

    def fingerprint(self, step: Step[Any]) -> str:
        """What the step is, for the record; empty where nothing is to be durable."""
        return "" if self.codec is None else fingerprint(step, self.codec, self.setting.secrets)

    def matches(self, recorded: str, step: Step[Any]) -> bool:
        """True if the step is the one that has this recorded fingerprint."""
        codec = self.codec
        return codec is None or matches(recorded, step, codec, self.setting.secrets)

    def unrecordable(
        self, value: Any, where: str, declared: Callable[[], tuple[Any, ...]] | None = None
    ) -> OutputNotSerializable | None:
        """Why a value cannot be recorded, or None if it can or need not; ``declared`` gives the
        types by which it will be read, if it will be.
        """
        if self.codec is None:
            return None
        try:
            if declared is None:
                self.codec.dump(value, where=where)
            else:
                recordable(value, self.codec, declared, where)
        except OutputNotSerializable as error:
            return error
        return None

    def started(
        self,
        node: StepNode,
        verdict: bool | None = None,  # noqa: FBT001  # as the event has it
        *,
        began: bool = True,
    ) -> ev.StepStarted:
        """The event of a step's start in this drive, with what a replay needs to know of it; not
        ``began``: it is ended at once, and may begin another time.
        """
        step = node.step
        verb = step.verb
        return ev.StepStarted(
            node.path,
            verb.kind,
            self.fingerprint(step),
            verdict,
            verb.signal if type(verb) is SignalWait else "",
            node.index,
            step.modifiers.rollback is not None,
            step.modifiers.once and began,
            self._accepted_by(verb) if type(verb) is SignalWait else None,
            node.parent is not None and node.parent.unwinding,
        )

    def _accepted_by(self, verb: SignalWait) -> Any:
        """The type of the payload, for those who send one; None if it tells them nothing."""
        if verb.type is Any or self.unrecordable(verb.type, "the type of a signal") is not None:
            return None
        return verb.type

    # -- ends -----------------------------------------------------------------------------------

    def skip(self, node: StepNode) -> None:
        """End a step whose predicate was false."""
        node.started_at = self.now
        node.phase = Phase.RUNNING
        self.record(self.started(node, verdict=False))
        self.end_step(node, "skipped", output=Skipped("its predicate was false"))

    def succeed(self, node: StepNode, output: Any, *, derived: str = "") -> None:
        """End a node that is no leaf with its output; ``derived``: see ``record.outputs``."""
        self.end_step(node, "succeeded", output=output, derived=derived)

    def end_cancelled(
        self, node: StepNode, *, usage: Usage | None = None, abandoned: bool = False
    ) -> None:
        """End a step that was stopped: as cancelled, or as the person wants who had it stopped."""
        asked = self.asked.pop(node.path, None) if self.asked else None
        above = node.parent
        if asked is not None and asked.action == "retry" and above is not None and above.stop:
            asked = None  # all of it is being stopped
        if asked is None:
            error = node.stop or "cancelled"
            self.end_step(node, "cancelled", error=error, usage=usage, abandoned=abandoned)
        elif asked.action == "retry":
            self.drop_timers(node)
            node.stop, node.hard, node.phase = None, False, Phase.PAUSED
            node.used = add_usage(node.used, usage)
            node.attempt -= 1  # it is not counted
            self.push(Attempt(node))
        else:
            self.end_given(node, asked, usage=usage, abandoned=abandoned)

    def end_given(
        self,
        node: StepNode,
        asked: ev.RunSteered,
        *,
        usage: Usage | None = None,
        abandoned: bool = False,
    ) -> None:
        """End a step with what a person gave for its output, or with its own ``default``."""
        who = asked.by or A_PERSON
        modifiers = node.step.modifiers
        status: StepStatus = "succeeded"
        output = asked.value
        if asked.action == "skip" and modifiers.default is not None:
            status, output = "defaulted", modifiers.default.value
        elif asked.action == "skip":
            status, output = "skipped", Skipped(f"skipped by {who}")
        self.end_step(node, status, output=output, usage=usage, abandoned=abandoned, given_by=who)

    def end_step(
        self,
        node: StepNode,
        status: StepStatus,
        *,
        output: Any = None,
        error: str | None = None,
        failure: AttemptFailure | None = None,
        handled: tuple[AttemptFailure, ...] = (),
        usage: Usage | None = None,
        abandoned: bool = False,
        derived: str = "",
        given_by: str | None = None,
    ) -> None:
        """Send the step's end on its way to the journal; the parent hears of it after that."""
        step = node.step
        self.drop_timers(node)
        if node.phase is Phase.STARTING:
            self.record(self.started(node, began=False))
            node.started_at = self.now
        node.phase = Phase.ENDING
        result = StepResult(
            step.name,
            node.path,
            step.verb.kind,
            status,
            output,
            *facts_of(failure, error),
            max(0.0, (self.now - node.started_at) * 1000),
            node.attempt,
            abandoned=abandoned,
            usage=node.used_at_end(self, usage),
            handled=tuple([Failure(*one.facts) for one in handled]),
            given_by=given_by,
        )
        modifiers = step.modifiers
        on_disk = modifiers.checkpoint or modifiers.once
        unreached = self.unreached_children(node)
        ended = ev.StepCompleted(
            node.path, result, derived, node.consumed_signal, unreached, node.used
        )
        self.out.append(cmd.Record(ended, on_disk))

    def end_member(
        self,
        node: Node,
        status: StepStatus,
        *,
        output: Any = None,
        failure: AttemptFailure | None = None,
        error: str | None = None,
        derived: str = "",
        found: tuple[tuple[str, float], ...] = (),
    ) -> None:
        """Record the end of a member that is no step itself; ``found``: what it brings."""
        self.drop_timer(node.timer)
        node.timer = 0
        node.phase = Phase.ENDING
        result = StepResult(
            node.path.rpartition("/")[2],
            node.path,
            "member",
            status,
            output,
            *facts_of(failure, error),
            max(0.0, (self.now - node.started_at) * 1000),
        )
        unreached = self.unreached_children(node)
        ended = ev.MemberCompleted(node.path, node.index, result, derived, unreached, found)
        self.out.append(cmd.Record(ended))

    def unreached_children(self, node: Node) -> tuple[str, ...]:
        """What is recorded just below a node, in its attempts, and this drive did not reach."""
        recorded, path = self.recorded, node.path
        known = recorded.children(path)
        if not known:
            return ()
        reached = set(children_of(self.tree, path))
        made = max(node.attempt, 1)
        return tuple(
            one
            for one in known
            if one not in reached
            and attempt_in(path, one) <= made
            and (recorded.at(one).ended() or recorded.children(one))
        )

    def mistake(self, error: HandrailError) -> None:
        """End the run as failed: generators are closed, not asked."""
        self.decide_mistake(error)
        self.stop_root(str(error), hard=True)

    def decide_mistake(self, error: HandrailError) -> None:
        """Have the run end as failed by a mistake, unless it fails already."""
        if self.ending is None or self.ending.status == "cancelled":
            self.ending = Ending("failed", str(error), qualified(type(error)), None, None)

    def stop_root(self, reason: str, *, hard: bool) -> None:
        """Stop the run, but not before all that is on record has been gone through: what can be
        undone must be known.
        """
        stop = Stop(self.root, reason, hard)
        if self.rehearses:
            self.after_rehearsal.append(stop)
        else:
            self.agenda.append(stop)


def declared_for(node: Node) -> tuple[Any, ...]:
    """The types by which the end of a node, or the value of its child workflow, may be read.

    Each must do: what a member's step gave is read with the member's type once the group has ended.
    """
    declared: list[Any] = []
    member: Node | None = node
    if isinstance(node, StepNode):
        declared.append(declared_output(node.step))
        member = node.parent
    by_member = member is node or (member is not None and member.generator is None)
    if by_member and isinstance(member, MemberNode) and isinstance(member.parent, StepNode):
        verb = member.parent.step.verb
        if isinstance(verb, (ForEachGroup, WorkGroup)):
            declared.append(member_output(verb))
    return tuple(declared)
