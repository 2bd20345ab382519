"""``work``: a group whose members are tasks, and whose tasks bring further tasks.

A task is *known* from when it arrives until the work ends; another one with its id is refused. It
*waits* until the window has room and no more urgent task waits. A resume takes up the tasks of
earlier drives before it begins any other: first those that have ended, in the order of their ends,
so that the tasks they brought arrive in the same order again; then those that were at work. Edits
to the queue take effect between these ends, by their event numbers.

The output, the order of the tasks and that of their rollbacks follow from the tree of tasks
(``model.work.in_tree_order``), so they do not depend on which task was faster.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, cast

from handrail.core import commands as cmd
from handrail.core.failing import fail_with
from handrail.core.failures import AttemptFailure
from handrail.core.groups import GroupNode, Members
from handrail.core.nodes import Node, Phase, RollbackEntry
from handrail.core.run_state import Pull, RunState
from handrail.core.steering import postpone_blocked
from handrail.core.user_code import call_user
from handrail.errors import WrongUse
from handrail.model import events as ev
from handrail.model.dataclass import assembler
from handrail.model.described import defined_at
from handrail.model.outcome import INTERRUPTED, RAISED, RETURNED
from handrail.model.paths import encode_key
from handrail.model.results import StepResult
from handrail.model.work import (
    NO_TASK,
    Tally,
    Task,
    TaskDone,
    TaskFailed,
    in_tree_order,
    is_found,
    work_of,
)
from handrail.record.outputs import WORK
from handrail.record.work import drop_reason, task_ended
from handrail.steps.groups import WorkGroup
from handrail.steps.verbs import Step

_task_done: Callable[[Task, Any, str | None], TaskDone[Any]] = assembler(TaskDone)


class Queue:
    """The tasks of one attempt: which are known, and which of them begins next. Mutable.

    Tasks are by key, the part of the path that encodes their id. The group pulls its members from
    the queue, as an iterator that stops whenever no task may begin now.
    """

    __slots__ = (
        "_arrivals",
        "_begun",
        "_waiting",
        "at_most",
        "ended",
        "known",
        "only_begun",
        "stopped",
        "taken",
        "urgency",
    )

    def __init__(self, at_most: int | None) -> None:
        self.at_most = math.inf if at_most is None else at_most
        self.known: dict[str, tuple[Task, str | None]] = {}
        """Every task, with the id of the one that brought it."""
        self.urgency: dict[str, tuple[float, int]] = {}
        """Priority and arrival of each task that waits: the lowest pair begins next."""
        self.stopped: str | None = None
        """Why no further task begins; None if tasks may begin."""
        self.only_begun = False
        """True if no task may begin but those that an earlier drive began."""
        self.taken = 0
        """How many tasks of this attempt have begun, in all drives."""
        self._arrivals = 0
        self._waiting: list[tuple[float, int, str]] = []  # a heap; it may have stale entries
        self.ended: list[tuple[int, str]] = []
        """A heap of the tasks whose recorded ends are still to be replayed, by event number."""
        self._begun: list[tuple[int, str]] = []

    def wait(self, key: str, priority: float) -> None:
        """Add a task that waits."""
        self._arrivals += 1
        self.urgency[key] = priority, self._arrivals
        heappush(self._waiting, (priority, self._arrivals, key))

    def take_up(self, key: str, *, ended: int | None, index: int) -> None:
        """Add a task that an earlier drive began, and perhaps ended; it comes before the others."""
        if ended is None:
            heappush(self._begun, (index, key))
        else:
            heappush(self.ended, (ended, key))

    def move(self, key: str, priority: float) -> None:
        """Change the priority of a waiting task; among equal ones it keeps its place."""
        known = self.urgency.get(key)
        if known is not None:
            self.urgency[key] = priority, known[1]
            heappush(self._waiting, (priority, known[1], key))

    def drop(self, key: str) -> bool:
        """Remove a waiting task; False if it does not wait."""
        return self.urgency.pop(key, None) is not None

    @property
    def next_end(self) -> float:
        """The event number of the next recorded end to replay; infinite if there is none."""
        return self.ended[0][0] if self.ended else math.inf

    @property
    def takes_up(self) -> bool:
        """True if the next task is one that an earlier drive began."""
        return bool(self.ended or self._begun)

    @property
    def may_begin(self) -> bool:
        """True if a task waits that only the window may keep from beginning."""
        within = self.stopped is None and self.taken < self.at_most
        return bool(self.urgency) and within and not self.only_begun

    def __iter__(self) -> Queue:
        return self

    def __next__(self) -> Task:
        """The next task to begin, or to take up."""
        if self.ended:
            _, key = heappop(self.ended)
        elif self._begun:
            _, key = heappop(self._begun)
        elif self.may_begin:
            key = self._most_urgent()
        else:
            raise StopIteration
        self.taken += 1
        return self.known[key][0]

    def _most_urgent(self) -> str:
        waiting, urgency = self._waiting, self.urgency
        while True:
            priority, arrival, key = heappop(waiting)
            if urgency.get(key) == (priority, arrival):
                del urgency[key]
                if len(waiting) > 2 * len(urgency) + 64:  # too many stale entries
                    waiting[:] = [(*place, task_id) for task_id, place in urgency.items()]
                    heapify(waiting)
                return key


class TaskMembers(Members):
    """The progress of one attempt of ``work``: failed tasks, and counts of all. Mutable."""

    __slots__ = ("queue", "undo_at")

    def __init__(self, verb: WorkGroup, queue: Queue) -> None:
        super().__init__(verb.on_error, verb.max_concurrency, queue)
        self.queue = queue
        self.undo_at: dict[int, int] = {}
        """The place of each task in tree order, by its index, which is the order of starts."""

    def count(self, child: Node, result: StepResult[Any]) -> None:
        """Count a task that ended; the node's ``tally`` keeps the output if it succeeded."""
        if result.status == "succeeded" and child.rollbacks is None:  # most of them
            self.succeeded += 1
            return
        super().count(child, result)
        if result.status not in {"failed", "cancelled"}:
            del self.results[child.index]

    def may_pull(self, node: Node) -> bool:
        """True if a task may be taken; one with a recorded end needs no room."""
        if self.closed or self.interrupted or node.stop is not None:
            return False
        if self.queue.ended:
            return True
        return self.has_room(node) and (not self.decided or bool(self.left))

    def has_room(self, node: Node) -> bool:
        """True if the window has room."""
        window = self.window
        return window is None or node.live is None or len(node.live) < window

    def gathered(self) -> list[RollbackEntry]:
        """The rollbacks of all tasks, in the order of their tree."""
        in_order = sorted(self.rollbacks, key=lambda index: self.undo_at.get(index, index))
        return [entry for index in in_order for entry in self.rollbacks[index]]

    def close_items(self) -> None:
        """Does nothing: a queue has nothing to close."""


class WorkNode(GroupNode):
    """The node of ``work``."""

    __slots__ = (
        "_asks",
        "_children",
        "_dropped",
        "_edits",
        "_has_room",
        "_has_unapplied",
        "_in_order",
        "_indices",
        "_moved",
        "_next_index",
        "_refused",
        "_roots",
        "_searching",
        "_stop",
        "_unwelcome",
        "_verdict",
        "queue",
        "tally",
    )
    verb: WorkGroup  # pyright: ignore[reportIncompatibleVariableOverride]  # it is never set again

    def __init__(
        self, step: Step[Any], path: str, parent: Node | None, inputs: Mapping[str, Any]
    ) -> None:
        super().__init__(step, path, parent, inputs)
        self._reset()

    def _reset(self) -> None:
        verb = self.verb
        self.queue = Queue(verb.at_most)
        self._stop = verb.stop
        self.tally: Tally[Any] = Tally()
        self._roots: list[Task] = []
        """The tasks that no other task brought: the initial ones, and those that people added."""
        self._in_order: Sequence[tuple[Task, str | None, bool]] = ()
        """All tasks in the order of their tree, once the work has ended."""
        self._children: dict[str, Sequence[Task]] = {}
        """The tasks that each finished task brought, by its id."""
        self._dropped: dict[str, str] = {}
        """Why a task was dropped, by id."""
        self._unwelcome: dict[str, str] = {}
        """Why a task is to be dropped as soon as it arrives, by id."""
        self._moved: dict[str, float] = {}
        """The priorities that people gave to tasks, by id."""
        self._refused = 0
        self._indices: dict[str, int] = {}
        """The index of each task that has begun, by path; kept only if the run has a record."""
        self._next_index = 0
        self._searching = set[str]()
        """Replayed tasks whose end waits for the search for rollbacks below them, by path."""
        self._edits: deque[ev.WorkEdited] = deque()
        """The edits to the queue that have not taken effect yet."""
        self._verdict: ev.WorkStopped | None = None
        """The reason to stop that ``stop`` gave in an earlier drive."""
        self._asks = False
        """True if ``stop`` is to be called once all recorded ends are replayed."""
        self._has_room = False
        """True if no task waits and an added one would begin at once."""
        self._has_unapplied = False
        """True if recorded ends, or edits, have not taken effect yet."""

    # -- the start ------------------------------------------------------------------------------

    def begin(self, run: RunState) -> None:
        """Queue the initial tasks; payloads that cannot be recorded fail the attempt."""
        tasks, where = self.verb.tasks, f"step {self.path!r}"
        if run.unrecordable(tasks, where) is not None:
            for task in tasks:  # find the one to name
                error = run.unrecordable(task.payload, f"{where}: the payload of {task.id!r}")
                if error is not None:
                    fail_with(run, self, error, retryable=False)
                    return
        super().begin(run)

    def first_members(self) -> Members:
        """The initial tasks, all of them waiting."""
        self._reset()
        return TaskMembers(self.verb, self.queue)

    def record_start(self, run: RunState) -> None:
        """Record the initial tasks, unless the record has just these."""
        recorded, tasks = run.recorded, self.verb.tasks
        if not _same(run, recorded.tasks.get(self.path), tasks):
            run.record(ev.TasksQueued(self.path, tasks))
        self._edits.extend(run.edits.get(self.path, ()))
        self._has_unapplied = not recorded.is_empty or bool(self._edits)
        begun = [child for child in recorded.children(self.path) if self._is_mine(child)]
        if begun:
            self._next_index = 1 + max(recorded.at(child).index for child in begun)
            has_ends = any(recorded.at(child).end is not None for child in begun)
            self._asks = has_ends and not run.retraces
            verdict = recorded.stops.get(self.path)
            if verdict is not None and verdict.attempt == self.attempt:
                self._verdict = verdict
        self._bring(run, tasks, None)
        if self._not_taken:
            self._emit_growth(run)

    def _is_mine(self, path: str) -> bool:
        """True for a path just below this attempt."""
        return path.startswith(f"{self.base}/")

    # -- the queue ------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """True if a task that arrives now can begin, sooner or later."""
        at_work = self.phase is Phase.RUNNING and self.live is not None and self.stop is None
        decided = self.members.closed or self.members.decided or self.failure is not None
        return at_work and not decided and self.queue.stopped is None

    @property
    def _not_taken(self) -> int:
        """How many tasks were refused, because their id was known, or dropped."""
        return self._refused + len(self._dropped)

    def dropped(self, task_id: str) -> str | None:
        """Why a task was dropped, or None if it was not."""
        return self._dropped.get(task_id)

    def _bring(self, run: RunState, tasks: Iterable[Task], parent: str | None) -> None:
        """Add tasks to the queue; ``parent`` is the id of the task that brought them, if any."""
        queue, known = self.queue, self.queue.known
        is_new = run.recorded.is_empty and not self._unwelcome and not self._moved
        for task in tasks:
            if parent is None:
                self._roots.append(task)
            key = encode_key(task.id)
            if key in known:
                self._refused += 1
                continue
            known[key] = task, parent
            self.members.exhausted = False
            if is_new:
                queue.wait(key, task.priority)
            else:
                self._bring_known(run, key, task)

    def _bring_known(self, run: RunState, key: str, task: Task) -> None:
        """Add a task that may be recorded, dropped or moved already."""
        queue, record = self.queue, run.recorded.get(f"{self.base}/{key}")
        if record is None and task.id in self._unwelcome:
            self._dropped[task.id] = self._unwelcome[task.id]
        elif record is None:
            queue.wait(key, self._moved.get(task.id, task.priority))
        else:
            ended = None if record.end is None else record.ended_seq
            queue.take_up(key, ended=ended, index=record.index)

    def _emit_growth(self, run: RunState) -> None:
        total = len(self.queue.known) - len(self._dropped)
        run.emit(cmd.Tell(ev.WorkGrew(self.path, total, self._not_taken)))

    def edited(self, run: RunState, event: ev.WorkEdited) -> None:
        """Take an edit of the queue, which takes effect in its turn."""
        self._edits.append(event)
        self._has_unapplied = True
        run.push(Pull(self))

    def _take_edit(self, run: RunState, event: ev.WorkEdited) -> None:
        queue = self.queue
        self._bring(run, event.add, None)
        for task_id in event.drop:
            key = encode_key(task_id)
            if key not in queue.known:  # it has not arrived yet
                self._unwelcome.setdefault(task_id, drop_reason(event))
            elif queue.drop(key):
                self._dropped[task_id] = drop_reason(event)
        for task_id, priority in event.priority.items():
            self._moved[task_id] = priority
            queue.move(encode_key(task_id), priority)
        self._emit_growth(run)

    # -- members --------------------------------------------------------------------------------

    def pull(self, run: RunState) -> None:
        """Take up, or begin, the next task; end the work if no task is left or at work."""
        has_to_look = self._has_unapplied or run.receiving_batch or run.paused is not None
        if has_to_look and not self._may_take_task(run):
            return
        if self._has_room and self.live and not self.queue.urgency:
            return  # nothing has changed
        super().pull(run)

    def _may_take_task(self, run: RunState) -> bool:
        """True if a task may be taken now: no recorded end, edit or pause comes first."""
        members, queue = self.members, self.queue
        if self.phase is not Phase.RUNNING or members.closed:
            return True
        if self._searching and queue.next_end == math.inf:
            return False  # what the task brought is not known yet
        if run.receiving_batch:
            run.deferred_work[self.path] = None
            return False
        if self._has_unapplied:
            self._catch_up(run)
        begins = not queue.takes_up and queue.may_begin and members.may_pull(self)
        return not (run.paused is not None and begins and postpone_blocked(run, Pull(self)))

    def _perhaps_end(self, run: RunState) -> None:
        super()._perhaps_end(run)
        members = cast("TaskMembers", self.members)
        self._has_room = not members.closed and members.has_room(self) and not self.queue.takes_up
        if self._has_room:
            run.work_with_room.add(self.path)  # an added task would begin at once
        else:
            run.work_with_room.discard(self.path)

    def _catch_up(self, run: RunState) -> None:
        """Apply the edits before the next recorded end; after the last, decide whether to stop."""
        edits, following = self._edits, self.queue.next_end
        while edits and edits[0].seq < following:
            self._take_edit(run, edits.popleft())
        if following < math.inf:
            return
        self._has_unapplied = False
        if not self._asks:
            return
        self._asks = False
        verdict = self._verdict
        if verdict is not None and len(self.tally.ends) >= verdict.ended:
            self.queue.stopped = verdict.reason
        else:
            self._ask(run)

    def index_of(self, run: RunState, item: Task) -> int:
        """The recorded index of the task, or else the next one."""
        if run.recorded.is_empty:
            self._next_index += 1
            return self._next_index - 1
        path = f"{self.base}/{encode_key(item.id)}"
        record = run.recorded.get(path)
        index = self._next_index if record is None else record.index
        self._indices[path] = index
        self._next_index = max(index + 1, self._next_index)
        return index

    def _open_member(self, run: RunState, verb: Any, item: Task) -> None:
        super()._open_member(run, verb, item)
        if not run.rehearses:
            return
        path = f"{self.base}/{encode_key(item.id)}"
        node = (self.live or {}).get(path)
        if node is not None and node.phase is Phase.SEARCHING:
            self._searching.add(path)

    def unfit(self, member: Node, value: Any) -> WrongUse:
        """The mistake of a body that returned this instead of ``Found``."""
        return self._mistake(member, "got {0!r} for {1!r}. Write Found({0!r})", value)

    def mistake_in(self, member: Node, failure: AttemptFailure) -> WrongUse | None:
        """The mistake of a ``Found`` whose children are no tasks; None for any other failure."""
        if failure.kind != NO_TASK:
            return None
        return self._mistake(member, "and for {1!r}: {0}", failure.error)

    def _mistake(self, member: Node, problem: str, about: Any) -> WrongUse:
        place = defined_at(self.verb.function) or f"step {self.path!r}"
        task = self.queue.known[_key(member.path)][0]
        return WrongUse(
            f"{place}: the body of {self.path!r} gives Found(value, children) for each task, "
            f"{problem.format(about, task.id)}"
        )

    def child_ended(self, run: RunState, child: Node, result: StepResult[Any]) -> None:
        """Queue the tasks that the task brought; ask whether the work is to stop."""
        recorded = run.recorded
        new = recorded.is_empty or recorded.at(child.path).end is None
        self._searching.discard(child.path)
        self._note_end(run, child, result)
        super().child_ended(run, child, result)
        if new and self._stop is not None and not self.members.decided:
            self._ask(run)

    def _note_end(self, run: RunState, child: Node, result: StepResult[Any]) -> None:
        task, parent = self.queue.known[child.path.rpartition("/")[2]]
        output = result.output
        if result.status == "succeeded" and is_found(output):  # nearly always
            self.tally.ends.append(_task_done(task, output.value, parent))
            self.tally.done += 1
        else:
            end = task_ended(task, parent, result)
            if end is not None:
                self.tally.add(end)
            if not result.success or not is_found(output):
                return
        if output.children:
            self._children[task.id] = output.children
            self._bring(run, output.children, task.id)
            self._emit_growth(run)

    def _ask(self, run: RunState) -> None:
        """Call ``stop``, and record the reason that it gives before anything follows from it."""
        stop, queue, tally = self._stop, self.queue, self.tally
        if stop is None or queue.stopped is not None:
            return
        tally.queued, tally.refused = len(queue.urgency), self._not_taken
        tally.running = len(self.live or ())
        what, reason = call_user(run, stop, tally)
        if what == INTERRUPTED:
            self.members.interrupted = True
            return
        if reason is not None and not isinstance(reason, str) and what == RETURNED:
            what, reason = RAISED, WrongUse(f"it must give a text or None, got {reason!r}")
        if what == RAISED:
            self._begin_no_more(run)
            ends = f"{len(tally.ends)} end{'s' * (len(tally.ends) != 1)}"
            self._give_up(run, reason, f"its stop raised after {ends}")
            return
        if reason is not None:
            queue.stopped = reason
            run.record(ev.WorkStopped(self.path, self.attempt, reason, len(tally.ends)))

    def _begin_no_more(self, run: RunState) -> None:
        super()._begin_no_more(run)
        self.queue.only_begun = True

    # -- the end --------------------------------------------------------------------------------

    def _why_stopped(self) -> str | None:
        """Why tasks were left that could have begun; None if none was."""
        queue = self.queue
        if queue.stopped is not None:
            return queue.stopped
        if queue.urgency and queue.taken >= queue.at_most:
            return f"at_most: {queue.taken} tasks have begun"
        return None

    def output(self) -> tuple[Any, str]:
        """What became of all tasks, as ``Work``."""
        ends: dict[str, TaskDone[Any] | TaskFailed] = {end.task.id: end for end in self.tally.ends}
        return work_of(self._in_order, ends, self._dropped, self._why_stopped()), WORK

    def results(self) -> tuple[Any, str]:
        """The output of work that failed: ``output``, too."""
        return self.output()

    def not_begun(self) -> int:
        """How many tasks wait."""
        return len(self.queue.urgency)

    def stopped(self, run: RunState) -> None:
        """Close the work: no edit takes effect any more."""
        super().stopped(run)
        run.work_with_room.discard(self.path)

    def order(self, run: RunState) -> tuple[tuple[str, ...], str | None]:
        """The keys in tree order, if tasks began in another one, and why some were left.

        The run then lists its steps in tree order, too.
        """
        before = list(self.seen or ())
        self.put_in_order(run)
        paths = list(self.seen or ())
        if paths == before and not self._indices:  # tasks began in tree order
            return (), self._why_stopped()
        mine = filter(self._is_mine, before)
        indices = self._indices or {path: index for index, path in enumerate(mine)}
        paths = [path for path in paths if path in indices]
        begun = [indices[path] for path in paths]
        keys = tuple(map(_key, paths)) if begun != sorted(begun) else ()
        cast("TaskMembers", self.members).undo_at = {index: at for at, index in enumerate(begun)}
        return keys, self._why_stopped()

    def put_in_order(self, run: RunState) -> None:
        """List the tasks that have begun in tree order."""
        self._in_order = in_tree_order(self._roots, self._children)
        seen, base = self.seen, self.base
        if not seen:
            return
        paths = [f"{base}/{encode_key(task.id)}" for task, _, counts in self._in_order if counts]
        begun = dict.fromkeys([path for path in paths if path in seen])
        before = {path: None for path in seen if path not in begun}
        self.seen = run.tree[self.path] = {**before, **begun} if before else begun


def _key(path: str) -> str:
    return path.rpartition("/")[2]


def _same(run: RunState, known: Sequence[Task] | None, tasks: Sequence[Task]) -> bool:
    """True if these are the recorded tasks."""
    if known is None or run.codec is None:
        return False
    if not known and not tasks:
        return True
    identity = run.codec.identity
    return len(known) == len(tasks) and all(
        task.id == given.id
        and task.priority == given.priority
        and identity(task.payload) == identity(given.payload)
        for task, given in zip(known, tasks, strict=True)
    )
