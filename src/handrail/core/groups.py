"""The verbs with many children: ``parallel``, ``for_each`` and ``race``.

A group pulls its members one by one into a sliding window, so items may be an endless iterator and
a slow member holds nobody back. Whatever the order in which members end, what the group gives does
not depend on it: outputs and rollbacks are kept by index. Only *which* failure is named first, and
who wins a race, is decided by time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from typing import Any, Literal, TypeAlias

from handrail.core import commands as cmd
from handrail.core.failures import Failure, failure_from, failure_of
from handrail.core.machine import Machine
from handrail.core.members import Items, function_of, is_body, keyed
from handrail.core.mistakes import not_a_step
from handrail.core.node import Node, Phase, RollbackEntry
from handrail.errors import DefinitionError, DuplicateStepName, GroupFailed
from handrail.model import events as ev
from handrail.model.described import defined_at
from handrail.model.results import StepResult
from handrail.record.outputs import OUTPUTS, RESULTS, winner
from handrail.steps.verbs import ForEachGroup, ParallelGroup, RaceGroup, Step

PULLS_PER_TURN = 256
"""How many members are started before the event loop gets a turn."""

Mode: TypeAlias = Literal["fail_fast", "continue", "all_or_nothing", "race"]


class Members:
    """How far a group has come. Mutable."""

    __slots__ = (
        "cancelled",
        "closed",
        "decided",
        "exhausted",
        "failed",
        "first_failure",
        "items",
        "left",
        "mode",
        "pulls",
        "results",
        "rollbacks",
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
        self.started = 0
        self.pulls = 0
        self.results: dict[int, StepResult[Any]] = {}
        self.rollbacks: dict[int, list[RollbackEntry]] = {}
        self.first_failure: StepResult[Any] | None = None
        self.winner: StepResult[Any] | None = None
        self.left: set[str] | None = None
        """Members that an earlier drive began, and this one has not, although it is decided."""
        self.stopped: str | None = None
        """Why an earlier drive was stopping the group, if its members tell."""
        self.decided = False
        """No further member is to begin: one has failed, or has won the race; or the group is to be
        stopped, for its time, or its run, was over when this drive began.
        """
        self.succeeded = self.failed = self.cancelled = self.skipped = 0

    def note(self, child: Node, result: StepResult[Any]) -> None:
        """Count a member that ended, and keep what it gave."""
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
    def told(self) -> bool:
        """True if a member has decided how the group ends."""
        failed = self.first_failure is not None and self.mode == "fail_fast"
        return failed or self.winner is not None

    def may_pull(self, node: Node) -> bool:
        """True if the window is open and nothing speaks against another member."""
        if self.exhausted or self.closed or node.stop is not None:
            return False
        if self.decided and not self.left:
            return False
        live = 0 if node.live is None else len(node.live)
        return self.window is None or live < self.window

    def gathered(self) -> list[RollbackEntry]:
        """The rollbacks of all members, in order of index."""
        return [entry for index in sorted(self.rollbacks) for entry in self.rollbacks[index]]


class GroupBehaviour:
    """One behaviour for the three verbs; they differ in where members come from and in the end."""

    def undoes_itself(self, node: Node) -> bool:
        """Only ``all_or_nothing`` does."""
        return bool(node.state.mode == "all_or_nothing")

    def begin(self, machine: Machine, node: Node) -> None:
        """Make the window of members and note the start; items that cannot be iterated fail it."""
        assert node.step is not None
        verb = node.step.verb
        node.live = {}
        machine.concurrent.add(node.base)
        try:
            node.state = state = _members(verb, node)
        except Exception as error:  # noqa: BLE001  # the user's __iter__
            node.state = Members("fail_fast", None, iter(()))
            machine.fail(node, failure_of(error))
            return
        on_error = "fail_fast" if isinstance(verb, RaceGroup) else _on_error(verb)
        machine.record(ev.GroupStarted(node.path, verb.kind, _size(verb), on_error, state.window))
        if machine.rehearses and machine.is_late(node):
            self._leave(machine, node)
        self.pulled(machine, node)

    # -- starting members -----------------------------------------------------------------------

    def pulled(self, machine: Machine, node: Node) -> None:
        """Go on starting members, after a turn of the loop."""
        node.state.pulls = 0
        machine.later(self._pull, machine, node)

    def _pull(self, machine: Machine, node: Node) -> None:
        state: Members = node.state
        if machine.rehearses and machine.end.decided and not state.decided:  # mistake, or limit
            self._leave(machine, node)
        if not state.may_pull(node):
            self._perhaps_end(machine, node)
            return
        if state.pulls >= PULLS_PER_TURN and not machine.rehearses:
            machine.emit(cmd.Pull(node.path))
            return
        try:
            item = next(state.items)
        except StopIteration:
            state.exhausted = True
            self._perhaps_end(machine, node)
            return
        except Exception as error:  # noqa: BLE001  # the user's iterator
            self._items_failed(machine, node, error)
            return
        state.pulls += 1
        machine.later(self._pull, machine, node)
        assert node.step is not None
        if isinstance(node.step.verb, ForEachGroup):
            self._open_member(machine, node, item)
        else:
            self._open_step(machine, node, item)

    def _items_failed(self, machine: Machine, node: Node, error: Exception) -> None:
        state: Members = node.state
        state.exhausted = True
        failure = failure_of(error)
        failure.error = f"its items raised after {state.started}: {failure.error}"
        node.failure = failure
        self._stop_members(machine, node, failure.error)
        self._perhaps_end(machine, node)

    def _open_step(self, machine: Machine, node: Node, step: Step[Any]) -> None:
        state: Members = node.state
        path = f"{node.base}/{step.name}"
        if state.decided and not self._is_left(machine, node, path):
            return
        if machine.take_path(node, path, machine.where(node), "Name the steps of a group apart."):
            index, state.started = state.started, state.started + 1
            machine.open_child(node, step, path, index)

    def _open_member(self, machine: Machine, node: Node, item: Any) -> None:
        state: Members = node.state
        assert node.step is not None
        verb = node.step.verb
        assert isinstance(verb, ForEachGroup)
        index, state.started = state.started, state.started + 1
        try:
            value, key = keyed(verb, item, index)
        except DefinitionError as error:
            machine.mistake(DefinitionError(f"{machine.where(node)}: {error}"))
            return
        except Exception as error:  # noqa: BLE001  # the user's key function
            self._items_failed(machine, node, error)
            return
        path = f"{node.base}/{key}"
        if state.decided and not self._is_left(machine, node, path):
            return
        if node.seen is not None and path in node.seen:
            members = [one for one in node.seen if one.startswith(f"{node.base}/")]
            first = members.index(path)
            hint = f"Items {first} and {index} have the same key {key!r}: give key= a unique one."
            machine.mistake(DuplicateStepName(path, machine.where(node), hint))
            return
        if not machine.take_path(node, path, machine.where(node), ""):
            return
        member = Node(None, path, node, node.inputs)
        member.index = index
        member.started_at = machine.now
        assert node.live is not None
        node.live[path] = member
        machine.nodes[path] = member
        digest = machine.digest(item)
        if machine.replay_member(member, digest, value):
            return
        member.phase = Phase.RUNNING
        machine.record(ev.MemberStarted(path, index, key, digest))
        self._begin_body(machine, member, verb, value)

    def _is_left(self, machine: Machine, node: Node, path: str) -> bool:
        """True for a member that began before it was decided; it is stopped as soon as it is where
        it was. It may have left something to undo.
        """
        state: Members = node.state
        assert state.left is not None
        assert node.step is not None
        if path not in state.left:
            if _size(node.step.verb) is None:
                state.left.clear()  # there may be no end of items
            return False
        state.left.discard(path)
        if not machine.rehearses:
            machine.later(self._stop_late, machine, node, path)
        return True

    def _stop_late(self, machine: Machine, node: Node, path: str) -> None:
        member = (node.live or {}).get(path)
        if member is not None:
            machine.stop(member, _decision(node.state))

    def _begin_body(self, machine: Machine, member: Node, verb: ForEachGroup, value: Any) -> None:
        function = function_of(verb)
        try:
            made: Step[Any] | Generator[Any, Any, Any] = function(value)
        except Exception as error:  # noqa: BLE001  # the user's body
            machine.end_member(member, "failed", failure=failure_of(error))
            return
        if type(made) is Step:
            path = f"{member.base}/{made.name}"
            machine.tree[member.path] = path  # its only child; a dict would cost 200 bytes more
            machine.open_child(member, made, path)
        elif is_body(made):
            generator: Any = made
            machine.enter(member, generator)
        else:
            place = defined_at(function) or machine.where(member)
            machine.mistake(not_a_step(made, f"{place} (the body of {member.path!r})"))

    # -- ending ---------------------------------------------------------------------------------

    def child_ended(
        self, machine: Machine, node: Node, child: Node, result: StepResult[Any]
    ) -> None:
        """Count the member; the first failure, or the winner, may stop the others."""
        state: Members = node.state
        state.note(child, result)
        if result.status == "cancelled" and not state.decided:  # it was, by an earlier drive
            state.stopped = result.error or "cancelled"
            self._decided(machine, node)
        if state.mode == "race":
            if result.success and result.status != "skipped" and state.winner is None:
                state.winner = result
                self._decided(machine, node)
        elif not result.success and state.first_failure is None and result.status == "failed":
            state.first_failure = result
            if state.mode == "fail_fast":
                self._decided(machine, node)
        machine.later(self._pull, machine, node)

    def _decided(self, machine: Machine, node: Node) -> None:
        self._leave(machine, node)
        self._stop_members(machine, node, _decision(node.state))

    def _leave(self, machine: Machine, node: Node) -> None:
        """Begin no further members but those that an earlier drive began."""
        state: Members = node.state
        state.decided = True
        recorded = machine.setting.recorded
        if recorded is not None:
            seen = node.seen or {}
            state.left = {
                path
                for path in recorded.children(node.path)
                if path.startswith(f"{node.base}/")
                and recorded.at(path).attempt <= node.attempt
                and path not in seen
            }

    def _stop_members(self, machine: Machine, node: Node, reason: str) -> None:
        if machine.rehearses:
            state = node.state
            machine.replaying.at_the_end(lambda: self._stop_then(machine, node, state, reason))
            return
        for member in reversed(list((node.live or {}).values())):
            machine.later(machine.stop, member, reason)

    def _stop_then(self, machine: Machine, node: Node, state: Members, reason: str) -> None:
        """Stop the members of this attempt; by the end of the rehearsal another one may be on."""
        if node.state is state:
            self._stop_members(machine, node, reason)

    def _perhaps_end(self, machine: Machine, node: Node) -> None:
        state: Members = node.state
        if state.closed or node.live or node.phase is not Phase.RUNNING or node.stop is not None:
            return
        if state.stopped is not None and not state.told and node.failure is None:
            machine.stopping.was_stopped(node, state.stopped)
            machine.stopping.all_stopped(node)
            return
        if not (node.failure is not None or state.exhausted or state.told):
            return
        self._close(machine, node)
        undone = machine.end.half_undone(node)
        failure = node.failure or _failure(node, state)
        if failure is None and undone is not None:
            failure = failure_of(undone)
        if failure is None:
            machine.succeed(node, _output(node, state), composed=_composed(state))
        elif undone is not None or state.mode == "all_or_nothing":
            machine.undo(node, lambda: machine.fail(node, failure))
        else:
            machine.fail(node, failure)

    def _close(self, machine: Machine, node: Node) -> None:
        assert node.step is not None
        state: Members = node.state
        if state.closed:
            return
        state.closed = True
        machine.concurrent.discard(node.base)  # all have ended: nothing depends on who was faster
        _close_items(state)
        gathered = state.gathered()
        if gathered:
            node.rollbacks = [*(node.rollbacks or []), *gathered]
            state.rollbacks = {}
        node.live = None
        machine.record(
            ev.GroupCompleted(
                node.path,
                node.step.verb.kind,
                state.started,
                state.succeeded,
                state.failed,
                state.cancelled,
                state.skipped,
            )
        )

    def stopped(self, machine: Machine, node: Node) -> None:
        """Note how many members there were, now that all have ended."""
        self._close(machine, node)

    def evaluated(self, machine: Machine, node: Node, report: cmd.Evaluated) -> None:
        """A group asks for no evaluation."""


def _decision(state: Members) -> str:
    """Why the others are stopped."""
    if state.winner is not None:
        return f"{state.winner.name!r} won the race"
    if state.first_failure is not None and state.told:
        return f"{state.first_failure.name!r} failed"
    return state.stopped or "cancelled"


# -- choices, as functions of what a group holds ---------------------------------------------------


def _members(verb: Any, node: Node) -> Members:
    match verb:
        case ParallelGroup():
            return Members(verb.on_error, verb.max_concurrency, iter(verb.steps))
        case RaceGroup():
            return Members("race", None, iter(verb.steps))
        case ForEachGroup():
            if node.kept is None:
                assert node.step is not None
                again = node.step.modifiers.retry is not None
                node.kept = Items(verb.items, again=again)
            return Members(verb.on_error, verb.max_concurrency, node.kept.from_first())
        case _:
            raise AssertionError(verb)


def _close_items(state: Members) -> None:
    """Let a generator of items end its ``with`` and ``finally`` blocks, whatever they raise."""
    close = getattr(state.items, "close", None)
    if close is not None and not state.exhausted:
        with contextlib.suppress(Exception):
            close()


def _on_error(verb: Any) -> str:
    mode: str = verb.on_error
    return mode


def _size(verb: Any) -> int | None:
    members: Any = verb.items if isinstance(verb, ForEachGroup) else verb.steps
    try:
        return len(members)
    except Exception:  # noqa: BLE001  # no __len__, or the user's own
        return None


def _failure(node: Node, state: Members) -> Failure | None:
    """Why the group fails, or None if it does not."""
    assert node.step is not None
    verb = node.step.verb
    match state.mode:
        case "race":
            return None if _winner(state) is not None else _nobody_won(node, state)
        case "continue":
            return _too_few(node, state, getattr(verb, "min_success", None))
        case _:
            if state.first_failure is None:
                return None
            return failure_from(state.first_failure, _first_failure_text(state))


def _first_failure_text(state: Members) -> str:
    first = state.first_failure
    assert first is not None
    text = f"member {first.name!r} failed: {first.error}"
    stopped = [
        result.name for _, result in sorted(state.results.items()) if result.status == "cancelled"
    ]
    others = state.failed - 1
    if others:
        text += f"; {others} more failed"
    if stopped:
        text += f"; cancelled: {_listed(stopped)}"
    return text


def _listed(names: list[str], most: int = 10) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _winner(state: Members) -> StepResult[Any] | None:
    """The first success; if nobody ran to one, a member that was skipped."""
    if state.winner is not None:
        return state.winner
    return next((result for result in state.results.values() if result.success), None)


def _nobody_won(node: Node, state: Members) -> Failure:
    ends = [f"{result.name}: {result.error}" for _, result in sorted(state.results.items())]
    why = f"all {len(ends)} steps of the race failed: {_listed(ends, 5)}"
    first = state.results[min(state.results)]
    return failure_from(first, f"group {node.path!r}: {why}")


def _too_few(node: Node, state: Members, wanted: float | None) -> Failure | None:
    if wanted is None:
        return None
    good = sum(1 for result in state.results.values() if result.success)
    total = len(state.results)
    needed = wanted if isinstance(wanted, int) else wanted * total
    if good >= needed:
        return None
    why = f"{good} of {total} members succeeded, min_success={wanted} asks for more"
    return failure_of(GroupFailed(node.path, why))


def _composed(state: Members) -> str:
    if state.mode == "race":
        won = _winner(state)
        assert won is not None
        return winner(won.path)
    return RESULTS if state.mode == "continue" else OUTPUTS


def _output(node: Node, state: Members) -> Any:
    assert node.step is not None
    ordered = [result for _, result in sorted(state.results.items())]
    if state.mode == "race":
        won = _winner(state)
        assert won is not None
        return won.output
    values = ordered if state.mode == "continue" else [result.output for result in ordered]
    return values if isinstance(node.step.verb, ForEachGroup) else tuple(values)
