"""The verbs with many children: each verb of ``steps.groups``, and what ``work`` shares.

A group pulls its members one by one into a sliding window, so items may be an endless iterator and
a slow member delays no other. The output of a group does not depend on the order in which members
end: outputs and rollbacks are kept by index. Only *which* failure is named first, and which member
wins a race, depends on time.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from handrail.core import commands as cmd
from handrail.core.ending import compensation_error, undo
from handrail.core.failing import fail
from handrail.core.failures import AttemptFailure, failure_from, failure_of
from handrail.core.items import Items, is_body
from handrail.core.mistakes import no_body
from handrail.core.nodes import MemberNode, Node, Phase, RollbackEntry
from handrail.core.replaying import replay_member
from handrail.core.run_state import (
    CompositeNode,
    Pull,
    RunState,
    Stop,
    StopMember,
    StopMembers,
)
from handrail.core.stopping import end_stopped, note_stopped_before
from handrail.core.user_code import call_user
from handrail.errors import DefinitionError, DuplicateStepName, GroupFailed, HandrailError
from handrail.model import events as ev
from handrail.model.described import defined_at
from handrail.model.outcome import INTERRUPTED, RAISED, RETURNED
from handrail.model.results import StepResult
from handrail.record.members import reasons_text
from handrail.steps.fingerprint import item_digest
from handrail.steps.groups import RESULTS, Bodied, ForEachGroup, Group, Mode
from handrail.steps.verbs import Step

PULLS_PER_TURN = 256
"""How many members are started before the event loop gets a turn."""

_FAILURES_TOLD = 5
"""A failed group quotes up to so many failures of members in full; of more, only the first."""
_NO_MORE = object()


class Members:
    """The progress of one attempt of a group. Mutable."""

    __slots__ = (
        "awaits_turn",
        "cancelled",
        "closed",
        "decided",
        "exhausted",
        "failed",
        "first_failure",
        "interrupted",
        "items",
        "left",
        "mode",
        "pulls",
        "results",
        "rollbacks",
        "shown_by",
        "skipped",
        "started",
        "stopped",
        "succeeded",
        "window",
        "winner",
    )

    def __init__(self, mode: Mode, window: int | None, items: Iterator[Any]) -> None:
        self.mode = mode
        self.window = window
        self.items = items
        self.exhausted = False
        self.closed = False
        self.interrupted = False
        self.started = 0
        self.pulls = 0
        self.awaits_turn = False
        self.results: dict[int, StepResult[Any]] = {}
        self.rollbacks: dict[int, list[RollbackEntry]] = {}
        self.first_failure: StepResult[Any] | None = None
        self.winner: StepResult[Any] | None = None
        self.left: set[str] | None = None
        """Once ``decided``: members that an earlier drive began, and this one did not enter yet."""
        self.stopped: str | None = None
        """Why an earlier drive was stopping the group, if a cancelled member shows that it was."""
        self.shown_by = ""
        """The path of that member."""
        self.decided = False
        """True if no further member may begin: one failed, won or was stopped, or the group must.

        It must stop if, during a rehearsal, its deadline has passed already or the run is ending.
        """
        self.succeeded = self.failed = self.cancelled = self.skipped = 0

    def count(self, child: Node, result: StepResult[Any]) -> None:
        """Count a member that ended, and keep its result and rollbacks."""
        self.results[child.index] = result
        if child.rollbacks:
            self.rollbacks[child.index] = child.rollbacks
        match result.status:
            case "failed":
                self.failed += 1
            case "cancelled":
                self.cancelled += 1
            case "skipped":
                self.skipped += 1
            case _:
                self.succeeded += 1

    @property
    def decided_by_member(self) -> bool:
        """True if a member has decided how the group ends."""
        failed = self.first_failure is not None and self.mode == "fail_fast"
        return failed or self.winner is not None

    def may_pull(self, node: Node) -> bool:
        """True if the window has room and another member may begin."""
        if self.exhausted or self.closed or self.interrupted or node.stop is not None:
            return False
        if self.decided and not self.left:
            return False
        live = 0 if node.live is None else len(node.live)
        return self.window is None or live < self.window

    def gathered(self) -> list[RollbackEntry]:
        """The rollbacks of all members, in order of index."""
        return [entry for index in sorted(self.rollbacks) for entry in self.rollbacks[index]]

    def close_items(self) -> None:
        """Close a generator of items so that its ``finally`` blocks run; ignore what they raise."""
        close = getattr(self.items, "close", None)
        if close is not None and not self.exhausted:
            with contextlib.suppress(Exception):
                close()


class GroupNode(CompositeNode):
    """The node of each ``Group``, whose verb has its members, its decision and its output.

    The node of ``work`` (``core.work``) derives from it.
    """

    __slots__ = ("items", "live", "members")
    verb: Group

    def __init__(
        self, step: Step[Any], path: str, parent: Node | None, inputs: Mapping[str, Any]
    ) -> None:
        super().__init__(step, path, parent, inputs)
        self.members = Members("fail_fast", None, iter(()))
        """The members of the current attempt."""
        self.live = None
        self.items: Items | None = None
        """The items of ``for_each``, for all attempts."""

    def undoes_itself(self) -> bool:
        """True for ``all_or_nothing`` only."""
        return self.members.mode == "all_or_nothing"

    def kept_items(self) -> Items | None:
        """The items of ``for_each``, kept for all its attempts; None for other verbs."""
        verb = self.verb
        if self.items is None and isinstance(verb, ForEachGroup):
            self.items = Items(verb.items, again=True)
        return self.items

    def begin(self, run: RunState) -> None:
        """Set up the members and record the start; items that raise fail the attempt."""
        verb = self.verb
        self.live = {}
        run.concurrent.add(self.base)
        what, members = call_user(run, self.first_members)
        if what != RETURNED:
            self.members, self.live = Members("fail_fast", None, iter(())), None
            if what == RAISED:
                fail(run, self, failure_of(members))
            return
        self.members = members
        if run.looks_ahead and type(members) is Members and _size(verb) is not None:
            members.window = None
        run.record(
            ev.GroupStarted(self.path, verb.kind, _size(verb), verb.on_error, members.window)
        )
        self.record_start(run)
        run.push(Pull(self))

    def record_start(self, run: RunState) -> None:
        """Record what belongs to the start of the group, before any member starts."""

    def first_members(self) -> Members:
        """The members of an attempt, none of them begun.

        Raises:
            Exception: the items raised.
        """
        verb = self.verb
        if isinstance(verb, ForEachGroup):
            if self.items is None:
                self.items = Items(verb.items, again=self.step.modifiers.retry is not None)
            return Members(verb.mode, verb.max_concurrency, self.items.from_first())
        return Members(verb.mode, verb.max_concurrency, iter(verb.members()))

    # -- starting members -----------------------------------------------------------------------

    def turn(self, run: RunState) -> None:
        """Start further members, after the event loop has had a turn."""
        self.members.pulls = 0
        self.members.awaits_turn = False
        run.push(Pull(self))

    def pull(self, run: RunState) -> None:
        """Start the next member if the window has room; end the group if none is left."""
        members = self.members
        if run.rehearses and run.ending is not None and not members.decided:  # mistake, or limit
            self._begin_no_more(run)
        if not members.may_pull(self):
            self._perhaps_end(run)
            return
        if members.pulls >= PULLS_PER_TURN and not run.rehearses:
            if not members.awaits_turn:
                members.awaits_turn = True
                run.emit(cmd.Pull(self.path))
            return
        what, item = call_user(run, next, members.items, _NO_MORE)
        if what != RETURNED:
            self._code_raised(run, what, item)
            return
        if item is _NO_MORE:
            members.exhausted = True
            self._perhaps_end(run)
            return
        members.pulls += 1
        run.push(Pull(self))
        verb = self.verb
        if isinstance(verb, Bodied):
            self._open_member(run, verb, item)
        else:
            self._open_step(run, item)

    def _code_raised(
        self, run: RunState, what: int, error: BaseException, whose: str = "its items"
    ) -> None:
        """Fail with the error of the items or a key; or begin no more, if the drive ends by it."""
        if what == INTERRUPTED:
            self.members.interrupted = True
        else:
            self._give_up(run, error, f"{whose} raised after {self.members.started}")

    def _give_up(self, run: RunState, error: BaseException, what: str) -> None:
        """Fail with the error of a user's function, after all members have been stopped."""
        self.members.exhausted = True
        failure = failure_of(error)
        failure.error = f"{what}: {failure.error}"
        self.failure = failure
        self._stop_members(run, failure.error)
        self._perhaps_end(run)

    def _open_step(self, run: RunState, step: Step[Any]) -> None:
        members = self.members
        path = f"{self.base}/{step.name}"
        if not self._admit(run, path):
            return
        if run.reserve_path(self, path, "Name the steps of a group apart."):
            index, members.started = members.started, members.started + 1
            run.open_child(self, step, path, index)

    def mistake_in(self, member: Node, failure: AttemptFailure) -> HandrailError | None:
        """The mistake of the author that this failure of a member is; None if it is none."""
        del member, failure
        return None

    def index_of(self, run: RunState, item: Any) -> int:
        """The index of the member that begins next, whose item this is."""
        del run, item
        return self.members.started

    def _open_member(self, run: RunState, verb: Bodied, item: Any) -> None:
        members = self.members
        index = self.index_of(run, item)
        members.started += 1
        what, given = call_user(run, verb.keyed, item, index)
        if what == RAISED and isinstance(given, DefinitionError):
            run.mistake(DefinitionError(f"{run.where(self)}: {given}"))
            return
        if what != RETURNED:
            self._code_raised(run, what, given)
            return
        value, key = given
        path = f"{self.base}/{key}"
        if not self._admit(run, path):
            return
        if self.seen is not None and path in self.seen:
            before = [one for one in self.seen if one.startswith(f"{self.base}/")].index(path)
            hint = f"Items {before} and {index} have the same key {key!r}: give key= a unique one."
            run.mistake(DuplicateStepName(path, run.where(self), hint))
            return
        if not run.reserve_path(self, path, ""):
            return
        member = MemberNode(path, self, self.inputs)
        member.index = index
        member.started_at = run.now
        assert self.live is not None
        self.live[path] = run.nodes[path] = member
        compared = verb.compared(item)
        if run.retraces:
            run.enter_member(member, verb, compared, value)
            return
        if replay_member(run, member, verb, compared, value):
            return
        digest = "" if run.codec is None else item_digest(compared, run.codec, run.setting.secrets)
        member.phase = Phase.RUNNING
        run.record(ev.MemberStarted(path, index, key, digest))
        begin_body(run, member, verb, value)

    def _admit(self, run: RunState, path: str) -> bool:
        """Let the member at this path begin, or be taken from the record, if it may; True if so."""
        return not self.members.decided or self._keep_left(run, path)

    def _keep_left(self, run: RunState, path: str) -> bool:
        """Have a member stopped late that an earlier drive began before the group was decided; True
        if it is one.

        It is entered, because it may have left rollbacks, and stopped once its record is replayed.
        """
        left = self.members.left
        assert left is not None
        if path not in left:
            if _size(self.verb) is None:
                left.clear()  # the items may be endless
            return False
        left.discard(path)
        if not run.rehearses:
            run.push(StopMember(self, path))
        return True

    def stop_late(self, run: RunState, path: str) -> None:
        """Stop the member at this path, if it has not ended."""
        member = (self.live or {}).get(path)
        if member is not None:
            run.push(Stop(member, _decision(self.members)))

    # -- ending ---------------------------------------------------------------------------------

    def note_child(self, child: Node, result: StepResult[Any]) -> None:
        """Count a member that ended while the group is being stopped."""
        self.members.count(child, result)

    def child_ended(self, run: RunState, child: Node, result: StepResult[Any]) -> None:
        """Count the member; the first failure, or the winner, may stop the others."""
        members = self.members
        members.count(child, result)
        if result.status == "cancelled" and not members.decided:  # an earlier drive stopped it
            members.stopped, members.shown_by = result.error or "cancelled", child.path
            self._decided(run)
        judges = members.winner is None and type(self.verb).child_ended is not Group.child_ended
        if judges and self._decides(run, result):
            members.winner = result
            self._decided(run)
        elif result.status == "failed" and members.first_failure is None:
            members.first_failure = result
            if members.mode == "fail_fast":
                self._decided(run)
        run.push(Pull(self))

    def _decides(self, run: RunState, result: StepResult[Any]) -> bool:
        what, decides = call_user(run, self.verb.child_ended, result, self.members.results)
        if what != RETURNED:
            self._code_raised(run, what, decides, "its verb")
        return what == RETURNED and bool(decides)

    def _decided(self, run: RunState) -> None:
        self._begin_no_more(run)
        self._stop_members(run, _decision(self.members))

    def _begin_no_more(self, run: RunState) -> None:
        """Begin no further members, except those that an earlier drive began."""
        self.members.decided = True
        recorded, seen = run.recorded, self.seen or {}
        self.members.left = {
            path
            for path in recorded.children(self.path)
            if path.startswith(f"{self.base}/")
            and recorded.at(path).attempt <= self.attempt
            and path not in seen
        }

    def _stop_members(self, run: RunState, reason: str) -> None:
        if run.rehearses:
            run.after_rehearsal.append(StopMembers(self, reason, self.attempt))
        else:
            self.stop_members(run, reason, self.attempt)

    def stop_members(self, run: RunState, reason: str, attempt: int) -> None:
        """Stop its members, if it is still at this attempt."""
        if attempt == self.attempt:
            for member in reversed(list((self.live or {}).values())):
                run.push(Stop(member, reason))

    def _perhaps_end(self, run: RunState) -> None:
        members = self.members
        if members.closed or self.live or self.phase is not Phase.RUNNING or self.stop is not None:
            return
        if members.stopped is not None and not members.decided_by_member and self.failure is None:
            note_stopped_before(run, self, members.shown_by, members.stopped)
            end_stopped(run, self)
            return
        if not (self.failure is not None or members.exhausted or members.decided_by_member):
            return
        self.stopped(run)
        if run.retraces:
            run.succeed(self, None)  # as recorded
            return
        undone = compensation_error(run, self)
        failure = self.failure or _failure(self.path, self.verb, members, self.not_begun())
        if failure is None and undone is not None:
            failure = failure_of(undone)
        if failure is None:
            what, output = call_user(run, self.output)
            if what == RETURNED:
                run.succeed(self, output[0], derived=output[1])
                return
            if what == INTERRUPTED:
                return
            failure = failure_of(output)
        failure.output, failure.derived = self.results()
        if undone is not None or members.mode == "all_or_nothing":
            undo(run, self, lambda: fail(run, self, failure))
        else:
            fail(run, self, failure)

    def output(self) -> tuple[Any, str]:
        """The group's output, and how it derives from its members."""
        return self.verb.output(self._results_in_order(), self.members.winner)

    def results(self) -> tuple[Any, str]:
        """The output of a group that failed: the results of the members that began."""
        return self.verb.sequence(self._results_in_order()), RESULTS

    def _results_in_order(self) -> list[StepResult[Any]]:
        return [result for _, result in sorted(self.members.results.items())]

    def not_begun(self) -> int:
        """How many members were never begun, as far as that is known."""
        return max(0, (_size(self.verb) or 0) - self.members.started)

    def order(self, run: RunState) -> tuple[tuple[str, ...], str | None]:
        """The member keys, if members began in another order than theirs; why some were left."""
        del run
        return (), None

    def stopped(self, run: RunState) -> None:
        """Close the group, and record how many members it had; all of them have ended."""
        members = self.members
        if members.closed:
            return
        members.closed = True
        order, why_stopped = self.order(run)
        run.concurrent.discard(self.base)  # all have ended: nothing depends on which was faster
        members.close_items()
        gathered = members.gathered()
        if gathered:
            self.rollbacks = [*(self.rollbacks or []), *gathered]
            members.rollbacks = {}
        self.live = None
        run.record(
            ev.GroupCompleted(
                self.path,
                self.verb.kind,
                members.started,
                members.succeeded,
                members.failed,
                members.cancelled,
                members.skipped,
                order,
                why_stopped,
            )
        )


def member_failed(run: RunState, member: Node, failure: AttemptFailure) -> None:
    """End a member as failed; or the run, if its failure is a mistake of the author."""
    group = member.parent
    mistake = group.mistake_in(member, failure) if isinstance(group, GroupNode) else None
    if mistake is None:
        run.end_member(member, "failed", failure=failure)
    else:
        run.mistake(mistake)


def begin_body(run: RunState, member: MemberNode, verb: Bodied, value: Any) -> None:
    """Run the body of a member, or its only step."""
    function = verb.function
    what, made = call_user(run, function, value)
    if what == INTERRUPTED:
        return
    if what == RAISED:
        member_failed(run, member, failure_of(made))
    elif type(made) is Step:
        path = f"{member.base}/{made.name}"
        run.tree[member.path] = path  # its only child; a dict would cost 200 bytes more
        run.open_child(member, made, path)
    elif is_body(made):
        run.enter(member, made)
    else:
        place = defined_at(function) or run.where(member)
        run.mistake(no_body(made, place, member.path))


# -- decisions, as functions of a group's members --------------------------------------------------


def _decision(members: Members) -> str:
    """The reason for which the other members are stopped."""
    if members.winner is not None:
        what = "won the race" if members.mode == "race" else "decided"
        return f"{members.winner.name!r} {what}"
    if members.first_failure is not None and members.decided_by_member:
        return f"{members.first_failure.name!r} failed"
    return members.stopped or "cancelled"


def _size(verb: Group) -> int | None:
    members: Any = verb.members
    try:
        return len(members())
    except Exception:  # noqa: BLE001  # no __len__, or the user's own
        return None


def _failure(path: str, verb: Group, members: Members, not_begun: int) -> AttemptFailure | None:
    """Why the group fails, or None if it does not."""
    match members.mode:
        case "race":
            return None if _winner(members) is not None else _no_winner_failure(path, members)
        case "continue":
            return _too_few_failure(path, members, verb.min_success)
        case _:
            if members.first_failure is None:
                return None
            text = _failures_text(members) + _other_members_text(members, not_begun)
            return failure_from(_failures(members)[0], text)


def _failures(members: Members) -> list[StepResult[Any]]:
    """The members that failed, in their order."""
    return [result for _, result in sorted(members.results.items()) if result.status == "failed"]


def _failures_text(members: Members) -> str:
    """Each failure by name; if there are many, all but the first by error type."""
    failed = _failures(members)
    named = failed if len(failed) <= _FAILURES_TOLD else failed[:1]
    text = "; ".join(f"member {member.name!r} failed: {member.error}" for member in named)
    others = failed[len(named) :]
    if others:
        counted = reasons_text(Counter(member.error_type for member in others))
        names = _join_names([member.name for member in others])
        text += f"; {len(others)} more failed, {counted}: {names}"
    return text


def _other_members_text(members: Members, not_begun: int) -> str:
    stopped = [
        result.name for _, result in sorted(members.results.items()) if result.status == "cancelled"
    ]
    text = f"; cancelled: {_join_names(stopped)}" if stopped else ""
    if not_begun:
        text += f"; {not_begun} not begun"
    return text


def _join_names(names: list[str], most: int = 10) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _winner(members: Members) -> StepResult[Any] | None:
    """The first success; without one, the first member that was skipped."""
    if members.winner is not None:
        return members.winner
    return next((result for result in members.results.values() if result.success), None)


def _no_winner_failure(path: str, members: Members) -> AttemptFailure:
    why = f"all {len(members.results)} steps of the race failed: {_failures_text(members)}"
    first = members.results[min(members.results)]
    return failure_from(first, f"group {path!r}: {why}")


def _too_few_failure(path: str, members: Members, wanted: float | None) -> AttemptFailure | None:
    if wanted is None:
        return None
    good = sum(1 for result in members.results.values() if result.success)
    total = len(members.results)
    needed = wanted if isinstance(wanted, int) else wanted * total
    if good >= needed:
        return None
    why = f"{good} of {total} members succeeded, min_success={wanted} asks for more"
    if members.failed:
        why += f": {_failures_text(members)}"
    return failure_of(GroupFailed(path, why))
