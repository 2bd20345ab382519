"""The laws of a drive, as functions of what happened; a broken one raises AssertionError."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from handrail.core import commands as cmd
from handrail.model import events as ev
from handrail.model.results import WorkflowResult
from handrail.testing.shapes import tree_key
from tests.testing.by_hand import Hand

STARTS = (ev.StepStarted, ev.MemberStarted)
ENDS = (ev.StepCompleted, ev.MemberCompleted)
DRIVE_ENDS = (ev.WorkflowCompleted, ev.RunSuspended)
PAIRS: tuple[tuple[type[Any], type[Any]], ...] = (
    (ev.StepStarted, ev.StepCompleted),
    (ev.MemberStarted, ev.MemberCompleted),
    (ev.GroupStarted, ev.GroupCompleted),
    (ev.SubworkflowStarted, ev.SubworkflowEnded),
    (ev.RollbackStarted, ev.RollbackCompleted),
)
Events = Sequence[Any]


def above(path: str) -> str:
    """The path of the node that this one stands below: ``a`` for ``a~2/b``."""
    parent = path.rpartition("/")[0]
    name, mark, attempt = parent.rpartition("~")
    return name if mark and attempt.isdigit() else parent


def paths(events: Events, *kinds: type[Any]) -> list[str]:
    """The paths of the events of these classes, in order."""
    return [event.path for event in events if isinstance(event, kinds)]


def numbered_without_a_hole(events: Events) -> None:
    """Events are numbered from 1, one by one."""
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


def one_start_and_one_end(events: Events) -> None:
    """What starts ends; a step or a member does so exactly once."""
    for start, end in PAIRS:
        assert Counter(paths(events, start)) == Counter(paths(events, end)), start.__name__
    once = Counter(paths(events, *STARTS))
    assert {path: count for path, count in once.items() if count > 1} == {}


def children_inside_their_parents(events: Events) -> None:
    """All that is said of a path and of what is below it lies between its start and its end."""
    starts = {event.path: event.seq for event in events if isinstance(event, STARTS)}
    ends = {event.path: event.seq for event in events if isinstance(event, ENDS)}
    for event in events:
        path = getattr(event, "path", "")
        if isinstance(event, (ev.RollbackStarted, ev.RollbackCompleted)):
            continue  # the run's own come when all steps have ended
        while path:
            if path in starts:
                assert starts[path] <= event.seq <= ends[path], (event, path)
            path = above(path)


def one_end_and_nothing_after_it(events: Events) -> None:
    """A drive has one end, and it is the last event."""
    assert [event for event in events if isinstance(event, DRIVE_ENDS)] == [events[-1]]


def results_in_tree_order(events: Events, result: WorkflowResult[Any]) -> None:
    """The result lists every step that ended, parents first, then as the workflow has them."""
    listed = [step.path for step in result.step_results]
    assert listed == sorted(paths(events, ev.StepCompleted), key=tree_key)


def groups_count_their_members(events: Events) -> None:
    """A group's end counts how its members ended, and no more ran at once than it allows."""
    opened: dict[str, ev.GroupStarted] = {}
    live: dict[str, set[str]] = {}
    ended: dict[str, Counter[str]] = {}
    for event in events:
        group = above(getattr(event, "path", ""))
        match event:
            case ev.GroupStarted():
                opened[event.path], live[event.path] = event, set()
                ended[event.path] = Counter()
            case ev.StepStarted() | ev.MemberStarted() if group in opened:
                live[group].add(event.path)
                window = opened[group].max_concurrency
                assert window is None or len(live[group]) <= window, event
            case ev.StepCompleted() | ev.MemberCompleted() if group in opened:
                live[group].remove(event.path)
                ended[group][event.status] += 1
            case ev.GroupCompleted():
                counts = ended[event.path]
                told = (event.total, event.failed, event.cancelled, event.skipped)
                seen = (counts.total(), counts["failed"], counts["cancelled"], counts["skipped"])
                assert told == seen, event
                assert live[event.path] == set(), event
                del opened[event.path]
            case _:
                pass


def rolled_back_in_reverse(
    events: Events, result: WorkflowResult[Any], undoable: Collection[str]
) -> None:
    """What succeeded is undone at most once, last first; all of it if the run did not succeed."""
    undone = paths(events, ev.RollbackStarted)
    succeeded = [
        event.path
        for event in events
        if isinstance(event, ev.StepCompleted)
        and event.status == "succeeded"
        and event.path in undoable
    ]
    assert len(undone) == len(set(undone))
    assert set(undone) <= set(succeeded)
    if result.status in {"failed", "cancelled"}:
        assert set(undone) == set(succeeded)
    together: dict[str, list[str]] = {}
    for event in events:
        if isinstance(event, ev.RollbackStarted):
            together.setdefault(_undone_with(event, events), []).append(event.path)
    for each in together.values():
        assert each == sorted(each, key=_end_key, reverse=True)


def _undone_with(event: ev.RollbackStarted, events: Events) -> str:
    """What is being undone as a whole: below it nothing but rollbacks happens any more."""
    whole, base = "", event.path.rpartition("/")[0]
    while base:
        name, mark, attempt = base.rpartition("~")
        node = name if mark and attempt.isdigit() else base
        ends = [one.seq for one in events if isinstance(one, ENDS) and one.path == node]
        later = [
            one
            for one in events
            if isinstance(one, (*STARTS, *ENDS))
            and one.seq > event.seq
            and one.path.startswith(f"{base}/")
            and not f"{one.path}/".startswith((f"{base}/o/", f"{base}/o~"))  # its fallback
        ]
        if ends and ends[0] > event.seq and not later:
            whole = base
        base = base.rpartition("/")[0]
    return whole


def _end_key(path: str) -> tuple[Any, ...]:
    """Steps by this are in order of end, had they run one after the other: children first."""
    *parents, (name, _) = tree_key(path)
    return (*parents, (name, 1_000))


def commands_in_tree_order(hand: Hand) -> None:
    """Within one batch, what begins, what is stopped and what ends come in tree order; but tasks
    beside one another in that of their urgency.
    """
    works = {
        event.path
        for event in hand.events
        if isinstance(event, ev.GroupStarted) and event.kind == "work"
    }
    for happened, commands in hand.batches:
        for kind in (_begun, _stopped, _ended):
            there = [path for command in commands for path in kind(command)]
            for each in _tasks_apart(there, works):
                assert each == sorted(each, key=tree_key), (happened, there)


def _tasks_apart(there: list[str], works: Collection[str]) -> list[list[str]]:
    """The paths of each task, and those that stand in none, with one for all tasks of a work."""
    found: dict[str, list[str]] = {}
    for path in there:
        home, parts = "", path.split("/")
        for depth in range(1, len(parts)):
            here = "/".join(parts[:depth])
            if re.sub(r"~\d+$", "", here) in works:
                found.setdefault(home, []).append(here)
                home = "/".join(parts[: depth + 1])
        found.setdefault(home, []).append(path)
    return list(found.values())


def _begun(command: cmd.Command) -> list[str]:
    match command:
        case cmd.Record(event=ev.StepStarted(path=path) | ev.MemberStarted(path=path)):
            return [path]
        case cmd.Perform(path=path) | cmd.AskPredicate(path=path) | cmd.Ask(path=path):
            return [path]
        case _:
            return []


def _stopped(command: cmd.Command) -> list[str]:
    return [command.path] if isinstance(command, cmd.Cancel) else []


def _ended(command: cmd.Command) -> list[str]:
    match command:
        case cmd.Record(event=ev.StepCompleted(path=path) | ev.MemberCompleted(path=path)):
            return [path]
        case cmd.Record(event=ev.AttemptFailed(path=path)):
            return [path]
        case _:
            return []


def cancelled_to_the_end(hand: Hand) -> None:
    """After a request to cancel the run is cancelled, unless its end was decided before; what was
    begun waits no longer and is not tried again, and only bodies that unwind start anything.
    """
    assert hand.result is not None
    events = hand.events
    at = next((i for i, one in enumerate(events) if isinstance(one, ev.CancelRequested)), None)
    if at is None or isinstance(events[at - 1], DRIVE_ENDS):
        return
    if any(isinstance(event, ev.RollbackStarted) for event in events[:at]):
        return  # it may have been failing already
    assert hand.result.status == "cancelled"
    before = set(paths(events[:at], *STARTS))
    assert before.isdisjoint(paths(events[at:], ev.GateAnswered))
    after = {path for seq, path in hand.attempts if seq > events[at].seq}
    assert before.isdisjoint(after)
    bodies = {"", *paths(events, ev.MemberStarted, ev.SubworkflowStarted)}
    bodies |= {
        event.path
        for event in events
        if isinstance(event, ev.StepStarted) and event.step_type in {"scope", "holding"}
    }
    for path in after:
        home = above(path)
        while home and home not in before:
            home = above(home)
        assert home in bodies, path


def nothing_left(hand: Hand) -> None:
    """At the end of a drive nothing is waited for, in flight, or remembered as live."""
    run = hand.machine.run
    assert (run.nodes, run.gates, run.listeners, run.timers) == ({}, {}, {}, {})
    assert hand.open_attempts == {}


def the_most_urgent_begins_first(events: Events) -> None:
    """Of the tasks that wait the most urgent begins; of equal ones the one that came first. Of a
    drive whose queues nobody edits.
    """
    waiting: dict[str, dict[str, tuple[float, int]]] = {}
    known: dict[str, set[str]] = {}
    for event in events:
        group = getattr(event, "path", "").rpartition("/")[0]
        match event:
            case ev.TasksQueued(path=path, tasks=tasks):
                waiting[path], known[path] = {}, set()
                brought = [(one.id, one.priority) for one in tasks]
                _bring(brought, waiting[path], known[path])
            case ev.MemberCompleted(found=brought) if group in waiting:
                _bring(brought, waiting[group], known[group])
            case ev.MemberStarted(key=key) if group in waiting:
                place = waiting[group].pop(key)
                assert place <= min(waiting[group].values(), default=place), (event, waiting[group])
            case _:
                pass


def _bring(
    tasks: Sequence[tuple[str, float]], waiting: dict[str, tuple[float, int]], known: set[str]
) -> None:
    for one, priority in tasks:
        if one not in known:
            known.add(one)
            waiting[one] = priority, len(known)
