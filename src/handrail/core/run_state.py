"""The live state of one run, and the primitives that every part of the interpreter shares.

All parts of the core are functions over a ``RunState`` (named ``run``). A part may call those below
it. To have a part above it act, it puts an ``Action`` on the agenda with ``RunState.push``; the
machine carries it out within the same ``receive``, by the table in ``core.machine``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

import msgspec

from handrail.core import commands as cmd
from handrail.core.failures import AttemptFailure, facts_of
from handrail.core.ledger import BudgetState
from handrail.core.mistakes import SecretNames, mistake_of_secret_name, secret_names
from handrail.core.nodes import MemberNode, Node, Phase, RunNode
from handrail.core.setting import Ending, Setting
from handrail.errors import DuplicateStepName, HandrailError, OutputNotSerializable, StepChange
from handrail.later import later
from handrail.model import events as ev
from handrail.model.definition import WorkflowDefinition
from handrail.model.described import line_of
from handrail.model.launch import Launch
from handrail.model.results import (
    A_PERSON,
    Failure,
    Incident,
    OpenGate,
    RollbackError,
    Skipped,
    StepResult,
    StepStatus,
    Usage,
    add_usage,
    qualified,
)
from handrail.model.shapes import OwnTree
from handrail.record.path_tree import attempt_in
from handrail.record.results import children_of
from handrail.steps.verbs import Step, take

if TYPE_CHECKING:
    from handrail.core.items import Items
    from handrail.record import outputs
    from handrail.steps import fingerprint as fingerprints
    from handrail.steps import waits as wait_verbs
    from handrail.steps.groups import Bodied
else:
    later(
        globals(),
        "record.outputs steps.fingerprint:fingerprints steps.waits:wait_verbs",
    )


class StepNode(Node):
    """A live step. A subclass for each kind of verb says what the verb does."""

    __slots__ = ("asking", "attempt", "failure", "interrupted", "step", "used")

    is_leaf: bool = False
    """True if the engine performs its attempts."""
    overdue: bool = False
    """True while it is stopped to fail with ``failure``: its deadline passed, or claims failed."""

    def __init__(
        self, step: Step[Any], path: str, parent: Node | None, inputs: Mapping[str, Any]
    ) -> None:
        super().__init__(path, parent, inputs)
        self.step = step
        self.attempt = 0
        self.failure = None
        self.asking = False
        """True while the engine evaluates something for it, or acquires its claims."""
        self.used: Usage | None = None
        """The usage of its earlier attempts."""
        self.interrupted = False
        """Of a leaf: True if its last attempt was in flight when the process ended."""

    def used_at_end(self, run: RunState, last: Usage | None, /) -> Usage | None:
        """Its total usage; ``last`` is the usage of its last attempt, as far as known."""
        del run
        return add_usage(self.used, last)

    def begin(self, run: RunState, /) -> None:
        """Begin an attempt; ``attempt`` is already its number."""
        raise NotImplementedError

    def child_ended(self, run: RunState, child: Node, result: StepResult[Any], /) -> None:
        """React to the recorded end of a child."""

    def body_ended(self, run: RunState, value: Any, error: BaseException | None, /) -> None:
        """React to the end of its body, if nothing was stopping the step."""

    def evaluated(self, run: RunState, report: cmd.Evaluated, /) -> None:
        """Take the answer to what it asked with ``RunState.ask``."""

    def consume(self, run: RunState, signal: ev.SignalReceived, /) -> None:
        """Take a signal that it listened for."""

    def timer_fired(self, run: RunState, /) -> None:
        """React to its timer."""

    def pull(self, run: RunState, /) -> None:
        """Start its next member."""

    def stop_late(self, run: RunState, path: str, /) -> None:
        """Stop the member at this path, if it has not ended."""

    def stop_members(self, run: RunState, reason: str, attempt: int, /) -> None:
        """Stop its members, if it is still at this attempt."""

    def put_in_order(self, run: RunState, /) -> None:
        """List its children in their proper order, if they started in another one."""

    def stopped(self, run: RunState, /) -> None:
        """Close its gate, timer, listener or group: it was stopped, and has no child left."""

    def undoes_itself(self) -> bool:
        """True if its own end runs the rollbacks of the steps below it when it is stopped."""
        return False

    def kept_items(self) -> Items | None:
        """The items of ``for_each``, kept for all its attempts; None for other verbs."""
        return None

    def validation_so_far(self) -> Any:
        """The rounds so far, for a fix step below it; None for verbs other than ``validate``."""
        return None

    @property
    def consumed_signal(self) -> int:
        """The event number of the signal that its attempt consumed; 0 for none."""
        return 0


class LeafNode(StepNode):
    """A step that the engine performs: a call, a command, a stage."""

    __slots__ = ()

    is_leaf = True


class CompositeNode(StepNode):
    """A step that the core carries out itself: it has children, or waits."""

    __slots__ = ("deadline", "overdue", "verb")

    @property
    def begins_again(self) -> bool:
        """True if the steps it contains as data may have begun before."""
        return self.attempt > 1

    def __init__(
        self, step: Step[Any], path: str, parent: Node | None, inputs: Mapping[str, Any]
    ) -> None:
        super().__init__(step, path, parent, inputs)
        self.verb: Any = step.verb
        self.deadline = 0
        self.overdue = False


class AgentNode(LeafNode):
    """A step that launches an agent, once or several times in an attempt."""

    __slots__ = (
        "at_work",
        "budget_gate",
        "guidance",
        "guided",
        "ladder",
        "launch_spent",
        "launched",
        "pending",
        "reasks",
        "reserved",
        "spent_s",
    )

    def __init__(
        self, step: Step[Any], path: str, parent: Node | None, inputs: Mapping[str, Any]
    ) -> None:
        super().__init__(step, path, parent, inputs)
        self.ladder: tuple[ev.LadderStep | ev.AgentGuided, ...] = ()
        """The ladder steps and the guidance of its attempt so far."""
        self.at_work: Launch | None = None
        """The launch whose ``Perform`` was emitted and which has not ended."""
        self.guided = False
        """True while that launch is broken off, to be replaced by one with a person's guidance."""
        self.guidance: tuple[str, ...] = ()
        """The guidance that its agent has been given."""
        self.pending: Launch | None = None
        """The launch to make when its pause is over."""
        self.launched = 0
        """The number of its last launch."""
        self.reasks = 0
        self.spent_s = 0.0
        """How many seconds the launches of its attempt ran."""
        self.reserved = 0
        """The number of the launch that has an open budget reservation; 0 for none."""
        self.launch_spent: Usage | None = None
        """The usage of the attempt's launches before the ``reserved`` one."""
        self.budget_gate = ""
        """The path of the gate that asks whether its launch may exceed a budget; empty for none."""

    @property
    def rungs(self) -> list[ev.LadderStep]:
        """The ladder steps of its attempt, without guidance."""
        return [event for event in self.ladder if isinstance(event, ev.LadderStep)]

    def used_at_end(self, run: RunState, last: Usage | None) -> Usage | None:
        """Its total usage, with the launches of an attempt that was stopped between two."""
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
"""A node that can have a generator: the run, a member, a step with a body."""


# -- the agenda ------------------------------------------------------------------------------------


class Open(msgspec.Struct, gc=False):
    """Look at the record of a new step, evaluate its predicate, and start it."""

    node: StepNode


class Attempt(msgspec.Struct, gc=False):
    """Begin the next attempt of a step."""

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
    """Report that a body returned or raised, to the run, member or step it belongs to."""

    node: Node
    value: Any
    error: BaseException | None


class TellParent(msgspec.Struct, gc=False):
    """Report the end of a node to its parent."""

    node: Node
    result: StepResult[Any]


class Pull(msgspec.Struct, gc=False):
    """Start the next member of a group; if there is none, end the group."""

    node: StepNode


class Stop(msgspec.Struct, gc=False):
    """Stop a subtree; ``hard``: close bodies instead of unwinding them."""

    node: Node
    reason: str
    hard: bool = False


class StopMember(msgspec.Struct, gc=False):
    """Stop one member of a group whose outcome is decided."""

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


class Retrace(msgspec.Struct, gc=False):
    """Retrace the code below a node, whose end or finished attempts are recorded; call ``then``.

    A member has a ``body``: a verb and a value. A group that goes on keeps its ``items``.
    """

    node: Node
    then: Callable[[], None]
    body: tuple[Bodied, Any] | None = None
    items: Items | None = None


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
    | Retrace
)


# -- the run ---------------------------------------------------------------------------------------


class Search(Protocol):
    """A search for rollbacks in the code that waits for an answer."""

    def answer(self, report: cmd.Evaluated, /) -> None:
        """Continue the search with the answer."""

    def close(self) -> None:
        """Close the bodies that the search has entered."""


class RunState:
    """The live state of one drive of one run. Mutable."""

    retraces: ClassVar[bool] = False
    """True in the mode that goes through code along the record: see ``core.retracing``."""

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
        """The node class of each verb class."""
        self.secrets: SecretNames = secret_names(setting.secrets)
        # what is live
        self.root = RunNode("", None, inputs)
        self.nodes: dict[str, Node] = {}
        self.results: dict[str, StepResult[Any]] = {}
        self.tree: dict[str, dict[str, Any] | str] = {}
        self.concurrent: set[str] = set()
        # the drive
        self.now = 0.0
        self.started_at = 0.0
        self.run_deadline = 0
        self.drive_seq = 0
        """The number of the event that began the drive; most ``StepReplayed`` carry it, too."""
        self.timers_frozen = setting.unwinds
        """True before a run that is resumed only to unwind is cancelled: no wait may end."""
        self.rehearses = not recorded.is_empty
        """True while the record is replayed, before anything new happens."""
        self.looks_ahead = False
        """True for a plan: all members of a group begin, where it is known how many they are."""
        self.after_rehearsal: list[Stop | StopMembers] = []
        self.paused: ev.RunSteered | None = recorded.paused
        """The event that paused the run, if it is paused: only clean-up begins meanwhile."""
        self.bounds_steps = setting.limits.bounds_steps
        self.steering_requests: dict[str, list[ev.RunSteered]] = {
            path: list(requests) for path, requests in recorded.steering_requests.items()
        }
        """What people requested of steps (complete, skip, retry) that have not ended, by path: all
        of it until the step begins, then what the step has accepted.
        """
        self.edits: dict[str, list[ev.WorkEdited]] = {
            path: list(edits) for path, edits in recorded.edits.items()
        }
        """The edits to the queue of each ``work`` step, by its path, in order."""
        self.last_edit = 0
        """The message number of the last edit to any of these queues."""
        self.receiving_batch = False
        """True while events recorded together are received: the next ones may bring tasks."""
        self.deferred_work: dict[str, None] = {}
        """The ``work`` steps that begin no task before the last of these events, by path."""
        self.work_with_room = set[str]()
        """The ``work`` steps that would begin an added task at once, by path."""
        self.begins_at_once = False
        """True if a plain leaf may begin without a look at record, limits, pauses and claims."""
        self.guidance = recorded.guidance.copy()
        """Guidance that agents have not been given yet."""
        self.postponed: dict[str, Open | Attempt | MakeLaunch | Pull] = {}
        """Actions that wait for the end of a pause, or for claims of an enclosing step, by path."""
        self.unclaimed: dict[str, StepNode] = {}
        """Composites whose claims are not granted yet, by path."""
        self.trees: dict[str, OwnTree] = {}
        """Open worktrees, by the path of the ``worktree`` step that owns each."""
        self.claimed: set[str] = set()
        """Paths of the composites whose claims are requested or granted."""
        self.update_begins_at_once()
        self.over_limit: dict[str, dict[str, tuple[StepNode, str, float, str]]] = {}
        """Steps that exceed a limit, with the limit, by the path of the question they wait for."""
        self.admitted_count = 0 if self.limits.max_steps is None else recorded.steps_begun()
        """How many steps were let in; counted only if ``max_steps`` is set."""
        self.visits: dict[tuple[str, str], int] = {}
        """How often each line of a body yielded; counted only if ``max_visits`` is set."""
        self.places: dict[str, Counter[int] | None] = {}
        """How often each place in a long body yielded, by path; None once that was warned of."""
        self.changes: list[StepChange] = []
        """Recorded steps that the code now describes differently, if nobody accepted that."""
        self.changed = set[str]()
        self.passed: frozenset[str] = frozenset()
        """The steps and members that the code had reached before the first of these changes."""
        # waits
        self.timers: dict[int, tuple[Node, float]] = {}
        """The node and due time (unix seconds) of each timer that is set, by token."""
        self._tokens = 0
        self.gates: dict[str, OpenGate] = {}
        self.answered: dict[str, ev.GateAnswered] = {}
        self.revisions: dict[str, int] = {}
        """How often each question was asked so far, by path."""
        self.listeners: dict[str, dict[str, StepNode]] = {}
        self.mailboxes: dict[str, list[ev.SignalReceived]] = {}
        self.arriving: dict[int, ev.SignalReceived] = {}
        """The signals on record that come once more in a resume, by the token of their time."""
        self.last_message = 0
        """The message number of the last signal that arrived."""
        self.overdue: dict[str, str] = dict(recorded.overdue)
        """As in the record, and for each node that an earlier drive was stopping."""
        # agents
        self.parked: dict[str, str] = {}
        """The advice for a person, by the path of the step that waits for them to act."""
        self.incidents: list[Incident] = list(recorded.incidents)
        """The failed launches that the ladder handled, in all drives."""
        self.budgets = BudgetState(recorded.spending)
        # the end
        self.ending: Ending | None = None
        self.value: Any = None
        self.undoing: dict[str, tuple[Node, Callable[[], None]]] = {}
        """The node whose rollbacks run, and what to call then, by the current rollback's path."""
        self.searches: dict[str, Search] = {}
        """Searches for rollbacks that wait for an answer, by the path of their question."""
        self.stops_at: dict[str, int] = {}
        """By body that is retraced, the index of the last step before its clean-up."""
        self.retracing: Any = None
        """The run beside this one that retraces code, once there is one."""
        self.undone: set[str] = set()
        self.rollback_errors: list[RollbackError] = []
        self.finished = False
        self.escaped: BaseException | None = None
        # one receive
        self.out: list[cmd.Command] = []
        self.agenda: list[Action] = []

    def update_begins_at_once(self) -> None:
        """Recompute ``begins_at_once``, after one of its conditions has changed."""
        known = not self.recorded.is_empty or bool(self.steering_requests)
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
        """Put an action on the agenda of this ``receive``; the last one pushed is done first."""
        self.agenda.append(action)

    def wait(self, node: Node, due: float) -> int:
        """Ask for ``TimerFired`` at ``due``; returns the timer's token."""
        self._tokens += 1
        self.timers[self._tokens] = node, due
        self.out.append(cmd.Wait(node.path, due, self._tokens))
        return self._tokens

    def drop_timer(self, token: int) -> int:
        """Forget a timer; returns 0, which is none."""
        self.timers.pop(token, None)
        return 0

    def drop_timers(self, node: StepNode) -> None:
        """Forget a node's deadline, timer and worktree, and give back its claims."""
        if self.claimed or self.unclaimed:
            self._unclaim(node.path)
        if self.trees:
            self.trees.pop(node.path, None)
            self.update_begins_at_once()
        if isinstance(node, CompositeNode) and node.deadline:
            node.deadline = self.drop_timer(node.deadline)
        if node.timer:
            node.timer = self.drop_timer(node.timer)

    def _unclaim(self, path: str) -> None:
        if self.unclaimed.pop(path, None) is not None:
            self.update_begins_at_once()
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
        """The live step at this path; None if there is none, or it is ending."""
        node = self.nodes.get(path)
        if isinstance(node, StepNode) and node.phase is not Phase.ENDING:
            return node
        return None

    def add_child(
        self, parent: Node, step: Step[Any], path: str, index: int | None = None
    ) -> StepNode:
        """A node for a step below ``parent``, of the class for its verb.

        ``index`` is its place among its siblings, by default in the order of opening.
        """
        inner = parent.body_inputs
        inputs = parent.inputs if inner is None else inner
        node = self.node_types[type(step.verb)](step, path, parent, inputs)
        if index is None:
            index = parent.yields
            parent.yields = index + 1
        node.index = index
        if parent.live is not None:
            parent.live[path] = node
        else:
            parent.child = node
        self.nodes[path] = node
        return node

    def open_child(
        self, parent: Node, step: Step[Any], path: str, index: int | None = None
    ) -> StepNode | None:
        """``add_child``, to be opened next.

        The step counts as used, whoever made it: the author, a handler of theirs, or this library.
        """
        take(step)
        node = self.add_child(parent, step, path, index)
        self.agenda.append(Open(node))
        return node

    def enter(self, node: BodyNode, generator: Any) -> None:
        """Run this generator as the node's body, from its beginning."""
        node.generator = generator
        node.yields = 0
        self.agenda.append(Advance(node))

    def enter_member(self, member: MemberNode, verb: Bodied, item: Any, value: Any, /) -> None:
        """Retrace a member that its group opens, in a run that retraces."""
        raise NotImplementedError

    def reserve_path(self, parent: Node, path: str, hint: str, where: str = "") -> bool:
        """Reserve ``path`` below ``parent``; end the run and return False if it is not allowed.

        ``where`` the code has the mistake then; by default where the body stands.
        """
        seen = parent.seen
        if seen is None:
            seen = parent.seen = self.tree[parent.path] = {}
        if path in seen:
            self.mistake(DuplicateStepName(path, where or self.where(parent), hint))
            return False
        if self.secrets and self.refuse_secret_name(path, where or self.where(parent)):
            return False
        seen[path] = None
        return True

    def refuse_secret_name(self, path: str, where: str) -> bool:
        """End the run, and return True, if the last name in the path contains a secret's value."""
        mistake = mistake_of_secret_name(self.secrets, path, where)
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
        """True if an earlier drive let the step begin: it counts towards limits, but hits none now.

        That drive's limits may have been others, and a recorded success must not end the run now.
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
        """``view`` of a step that need not be live."""
        results = cmd.VisibleResults(self.results, self.concurrent, path)
        return cmd.View(path, inputs, results, validation)

    def fingerprint(self, step: Step[Any]) -> str:
        """The step's fingerprint; empty if nothing needs to be durable."""
        codec, secrets = self.codec, self.setting.secrets
        return "" if codec is None else fingerprints.fingerprint(step, codec, secrets)

    def matches(self, recorded: str, step: Step[Any]) -> bool:
        """True if the step has this recorded fingerprint, or nothing needs to be durable."""
        codec = self.codec
        return codec is None or fingerprints.matches(recorded, step, codec, self.setting.secrets)

    def unrecordable(
        self, value: Any, where: str, declared: Callable[[], tuple[Any, ...]] | None = None
    ) -> OutputNotSerializable | None:
        """Why a value cannot be recorded; None if it can, or need not be.

        ``declared`` returns the types by which later drives read it.
        """
        if self.codec is None:
            return None
        try:
            if declared is None:
                self.codec.dump(value, where=where)
            else:
                outputs.recordable(value, self.codec, declared, where)
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
        """The event of a step's start in this drive, with what a replay needs to know of the step.

        Not ``began``: the step ends at once without having begun, and may begin another time.
        """
        step, verb = node.step, node.step.verb
        return ev.StepStarted(
            node.path,
            verb.kind,
            self.fingerprint(step),
            verdict,
            verb.signal if type(verb) is wait_verbs.SignalWait else "",
            node.index,
            step.modifiers.rollback is not None,
            step.modifiers.once and began,
            self._accepted_by(verb) if type(verb) is wait_verbs.SignalWait else None,
            node.parent is not None and node.parent.unwinding,
            type(verb) is wait_verbs.SignalWait and verb.agents_may_answer,
        )

    def _accepted_by(self, verb: wait_verbs.SignalWait) -> Any:
        """The payload type for senders of the signal; None if the type tells them nothing."""
        if verb.type is Any or self.unrecordable(verb.type, "the type of a signal") is not None:
            return None
        return verb.type

    # -- ends -----------------------------------------------------------------------------------

    def skip(self, node: StepNode) -> None:
        """End a step whose predicate was false."""
        node.started_at, node.phase = self.now, Phase.RUNNING
        self.record(self.started(node, verdict=False))
        self.end_step(node, "skipped", output=Skipped("its predicate was false"))

    def succeed(self, node: StepNode, output: Any, *, derived: str = "") -> None:
        """End a composite with its output; ``derived``: see ``record.outputs``."""
        self.end_step(node, "succeeded", output=output, derived=derived)

    def end_cancelled(
        self, node: StepNode, *, usage: Usage | None = None, abandoned: bool = False
    ) -> None:
        """End a stopped step: as cancelled, or as requested by the person who stopped it."""
        request = self.requested(node)
        self.steering_requests.pop(node.path, None)
        above = node.parent
        if request is not None and request.action == "retry" and above is not None and above.stop:
            request = None  # the enclosing step is being stopped, too
        if request is None:
            error = node.stop or "cancelled"
            self.end_step(node, "cancelled", error=error, usage=usage, abandoned=abandoned)
        elif request.action == "retry":
            self.drop_timers(node)
            node.stop, node.hard, node.phase = None, False, Phase.PAUSED
            node.used = add_usage(node.used, usage)
            node.attempt -= 1  # the stopped attempt does not count
            self.push(Attempt(node))
        else:
            self.end_as_steered(node, request, usage=usage, abandoned=abandoned)

    def requested(self, node: StepNode) -> ev.RunSteered | None:
        """What a person requested of a step, and the step accepted, if anything."""
        requests = self.steering_requests.get(node.path)
        return requests[-1] if requests else None

    def end_as_steered(
        self,
        node: StepNode,
        request: ev.RunSteered,
        *,
        usage: Usage | None = None,
        abandoned: bool = False,
    ) -> None:
        """End a step with the output that a person gave, or skip it; ``default`` then applies."""
        who = request.by or A_PERSON
        modifiers = node.step.modifiers
        status: StepStatus = "succeeded"
        output = request.value
        if request.action == "skip" and modifiers.default is not None:
            status, output = "defaulted", modifiers.default.value
        elif request.action == "skip":
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
        """Record the step's end; the parent learns of it once it is in the journal."""
        step = node.step
        self.drop_timers(node)
        if node.phase is Phase.STARTING:
            self.record(self.started(node, began=False))
            node.started_at = self.now
        node.phase = Phase.ENDING
        if handled or failure is not None:
            abandoned = abandoned or any(one.abandoned for one in (*handled, failure) if one)
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
            handled=tuple([Failure(*failure.facts) for failure in handled]),
            given_by=given_by,
        )
        modifiers = step.modifiers
        on_disk = modifiers.checkpoint or modifiers.once
        unreached = self.unreached_children(node)
        overdue = self._overdue_above(node) if status == "cancelled" else ""
        ended = ev.StepCompleted(
            node.path, result, derived, node.consumed_signal, unreached, node.used, overdue
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
        """Record the end of a member that is no step; ``found``: the tasks that it brings."""
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
        cause = None if failure is None else failure.cause
        overdue = self._overdue_above(node) if status == "cancelled" else ""
        ended = ev.MemberCompleted(
            node.path, node.index, result, derived, unreached, found, cause, overdue
        )
        self.out.append(cmd.Record(ended))

    def _overdue_above(self, node: Node) -> str:
        """The step around a cancelled one whose timeout stops it, or did in an earlier drive."""
        return self.overdue.get(node.path) or node.overdue_above()

    def unreached_children(self, node: Node) -> tuple[str, ...]:
        """The node's recorded children, of its attempts so far, that this drive did not reach."""
        recorded, path = self.recorded, node.path
        known = recorded.children(path)
        if not known:
            return ()
        reached = set(children_of(self.tree, path))
        made = max(node.attempt, 1)
        return tuple(
            child
            for child in known
            if child not in reached
            and attempt_in(path, child) <= made
            and (recorded.at(child).ended() or recorded.children(child))
        )

    def mistake(self, error: HandrailError) -> None:
        """End the run as failed by a mistake of the author; bodies are closed, not unwound."""
        self.decide_mistake(error)
        self.stop_root(str(error), hard=True)

    def decide_mistake(self, error: HandrailError) -> None:
        """Decide that the run fails by a mistake, unless it fails already."""
        if self.ending is None or self.ending.status == "cancelled":
            self.ending = Ending("failed", str(error), qualified(type(error)), None, None)

    def stop_root(self, reason: str, *, hard: bool) -> None:
        """Stop the run; a rehearsal is finished first, because it must find the rollbacks."""
        stop = Stop(self.root, reason, hard)
        if self.rehearses:
            self.after_rehearsal.append(stop)
        else:
            self.agenda.append(stop)
