"""Messages to a run from outside its driver: answers, signals, cancellations, steering.

They all go through the journal. So exactly one of many answers to a gate counts, whichever process
it comes from, and a crash loses no accepted signal.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

from handrail.errors import GateClosed, GateNotFound
from handrail.model import events as ev
from handrail.model.results import A_PERSON, OVER, OpenGate, WaitsFor
from handrail.ports.journal import Journal, Letter, Message, RunInfo
from handrail.record.answers import check_payload
from handrail.record.run_record import Recorded
from handrail.record.status import drive_end

TIMEOUT = "timeout"
"""The ``by`` of the answer with which a deadline closes a gate."""

WITH_MESSAGE_NUMBER = ev.Posted | ev.RunResumed


def unread(journal: Journal, recorded: Recorded) -> list[ev.Event]:
    """The messages that the run has not read and that still apply to it."""
    return sort_messages(journal, recorded, math.inf)[0]


def sort_messages(journal: Journal, recorded: Recorded, since: float) -> tuple[list[ev.Event], int]:
    """The unread messages that apply to a drive which holds the lease ``since`` then; and the
    number of the last message that came too late for an earlier drive, or 0.

    A cancellation that came after the run had ended, and before this drive's lease, was meant for a
    drive that is over. So was an earlier request to stop.
    """
    events: list[ev.Event] = []
    late = 0
    for letter in journal.letters(recorded.run_id, recorded.last_message):
        event = letter.event
        if isinstance(event, ev.RunSuspended):
            continue
        if _was_for_a_drive_before(event, recorded.completed, since):
            late = letter.number
            continue
        if isinstance(event, ev.GateAnswered):
            gate = recorded.open_gates.get(event.path)
            is_for_it = gate is not None and gate_key(gate) == letter.key
            if not is_for_it or event.by == TIMEOUT:  # closed by its deadline: the step decides
                continue
        events.append(event_of(letter))
    return events, late


def _was_for_a_drive_before(
    event: Message, over: ev.WorkflowCompleted | None, since: float
) -> bool:
    """True for a message meant for an earlier drive: to stop it, or to cancel an ended run."""
    if event.at >= since:
        return False
    if isinstance(event, ev.RunSteered):
        return event.action == "stop"
    return isinstance(event, ev.CancelRequested) and over is not None


def runs_of(journal: Journal) -> list[RunInfo]:
    """The runs of a journal, oldest first, updated by their messages."""
    return [with_messages(journal, info) for info in journal.runs()]


def with_messages(journal: Journal, info: RunInfo) -> RunInfo:
    """A run's entry updated by its messages: answers and signals that came since its last event are
    no longer among its waits; a paused run waits for an unpause, also while it is driven; one whose
    code cannot go on with its record waits for a person, whatever else it waited for.
    """
    if info.damaged or info.status in OVER:
        return info
    posted = journal.letters(info.run_id, 0)
    if not posted:  # a cluster's run has its messages in its record
        return info
    letters = [letter.event for letter in posted]
    stuck = None if info.holder is not None else stuck_letter(posted, info.events)
    waits = [wait for wait in info.waits_for if wait.kind != "unpause"]
    if stuck is not None:
        waits = list(cast("ev.RunSuspended", stuck.event).waits_for)
    paused = paused_by(letters)
    if paused is not None:
        waits.insert(0, unpause_of(paused))
    info = replace(info, waits_for=tuple(waits))
    if all(wait.kind not in {"answer", "signal"} for wait in waits):
        return info
    sent = [event for event in letters if event.at >= (info.updated_at or 0.0)]
    answered = {event.path for event in sent if isinstance(event, ev.GateAnswered)}
    signals = {event.name for event in sent if isinstance(event, ev.SignalReceived)}
    left = [
        wait
        for wait in info.waits_for
        if not (wait.kind == "answer" and wait.path in answered)
        and not (wait.kind == "signal" and wait.what in signals)
    ]
    return replace(info, waits_for=tuple(left))


def stuck_wait(run_id: str, why: str) -> WaitsFor:
    """What a run waits for while the code cannot go on with its record; ``why`` not."""
    return WaitsFor("person", "", why.removeprefix(f"run {run_id}: "), A_PERSON)


def stuck_in(info: RunInfo) -> WaitsFor | None:
    """That wait, among those of a run; None if the code can go on, as far as is known."""
    return next((wait for wait in info.waits_for if wait.kind == "person" and not wait.path), None)


def stuck_letter(letters: Iterable[Letter], events: int) -> Letter | None:
    """The last message which says that no drive could go on from a record of so many events."""
    posts = [post for post in letters if isinstance(post.event, ev.RunSuspended)]
    return next((post for post in reversed(posts) if post.key.startswith(f"#{events}/")), None)


def new_stuck_letter(
    journal: Journal, history: Sequence[ev.Event], wait: WaitsFor, now: float
) -> Letter | None:
    """The message to post about a run with which a drive could not go on; None if the run is over,
    or the last such message said the same.
    """
    run_id, events = history[0].run_id, len(history)
    letters = journal.letters(run_id, 0)
    known = stuck_letter(letters, events)
    is_known = known is not None and cast("ev.RunSuspended", known.event).waits_for == (wait,)
    if isinstance(drive_end(history), ev.WorkflowCompleted) or is_known:
        return None
    event = ev.stamp(ev.RunSuspended(reason="stuck", waits_for=(wait,)), run_id, 0, now)
    return Letter(event, f"#{events}/{len(letters)}")


def paused_by(messages: Iterable[ev.Event]) -> ev.RunSteered | None:
    """The message that paused the run; None if the run was unpaused or cancelled since."""
    paused: ev.RunSteered | None = None
    for event in messages:
        if isinstance(event, ev.CancelRequested):
            paused = None
        elif isinstance(event, ev.RunSteered) and event.action in {"pause", "unpause"}:
            paused = event if event.action == "pause" else None
    return paused


def unpause_of(paused: ev.RunSteered) -> WaitsFor:
    """The wait of a paused run: for an unpause."""
    return WaitsFor("unpause", "", paused.by or A_PERSON, A_PERSON)


def guided_agents(history: Sequence[ev.Event], text: str, by: str) -> list[str]:
    """The agents that got a person's latest guidance of this text, or are being interrupted for it;
    none if it waits for the next launch.
    """
    acts = [act for act in history if isinstance(act, ev.RunSteered) and act.action == "guide"]
    numbers = (n for n, act in enumerate(acts, 1) if (act.value, act.by) == (text, by))
    number = max(numbers, default=0)
    given = (one for one in history if isinstance(one, ev.AgentGuided) and number in one.numbers)
    left = (guide for guide in Recorded(history).guidance.waiting if guide.number == number)
    waiting = itertools.chain.from_iterable(sorted(guide.waiting) for guide in left)
    return [*(event.path for event in given), *waiting]


def event_of(letter: Letter) -> Message:
    """The event of a message as the run will record it: not numbered yet, timed at the posting."""
    event = letter.event
    assert not isinstance(event, ev.RunSuspended)  # no drive reads it
    return ev.stamp(replace(event, letter=letter.number), event.run_id, 0, event.at)


def without_message_number(event: ev.Event) -> ev.Event:
    """The event without the number of its message, as another run, or journal, has it."""
    if isinstance(event, WITH_MESSAGE_NUMBER) and event.letter:
        return replace(event, letter=0)
    return event


def is_signal(event: ev.Event, name: str) -> bool:
    """True for a signal of this name."""
    return isinstance(event, ev.SignalReceived) and event.name == name


def gate_key(gate: OpenGate) -> str:
    """The key of one opening of a gate; a step that runs again opens its gate another time."""
    return f"{gate.path}#{gate.opening}"


def gate_in(recorded: Recorded, path: str, now: float) -> OpenGate:
    """The gate at a path that is open now, by a run's record and the messages behind it.

    Raises:
        GateClosed: it was answered, or its deadline has passed. GateNotFound: none is open there.
    """
    if path in recorded.answers:
        event = recorded.answers[path]
        raise GateClosed(path, event.answer, event.by, event.at)
    gate = recorded.open_gates.get(path)
    if gate is None:
        raise GateNotFound(recorded.run_id, path, tuple(recorded.open_gates))
    deadline = None if recorded.awaits_its_first_drive else gate.deadline
    if deadline is not None and deadline <= now:  # the next drive will close it
        raise GateClosed(gate.path, gate.default, TIMEOUT, deadline)
    return gate


def agents_may_signal(recorded: Recorded, name: str) -> bool:
    """True if steps wait for this signal, and each of them takes it from what steps started."""
    waits = [event for event in recorded.awaited.values() if event.signal == name]
    return bool(waits) and all(event.agents_may_answer for event in waits)


def check_signal(journal: Journal, recorded: Recorded, name: str, payload: Any) -> None:
    """Raise if a run would fail with this signal, as far as its record, which this completes with
    its messages, shows.

    Raises:
        InvalidSignal: it would.
    """
    types = recorded.awaited_types().get(name)
    if types:
        recorded.take(unread(journal, recorded))
        check_payload(name, payload, types, len(recorded.signals_left().get(name, ())))
