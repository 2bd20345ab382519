"""Messages to a run from outside its driver: answers, signals, cancellations, steering.

They all go through the journal. So exactly one of many answers to a gate counts, whichever process
it comes from, and a crash loses no accepted signal.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from typing import Any

from handrail.errors import GateClosed, GateNotFound
from handrail.model import events as ev
from handrail.model.paths import is_budget_gate
from handrail.model.results import A_PERSON, OVER, OpenGate, WaitsFor
from handrail.ports.journal import Journal, Letter, Message, RunInfo
from handrail.record.answers import check_payload
from handrail.record.dropped import begun
from handrail.record.reading import awaits_its_first_drive, ended
from handrail.record.run_record import Recorded

TIMEOUT = "timeout"
"""The ``by`` of the answer with which a deadline closes a gate."""

WITH_MESSAGE_NUMBER = (
    ev.GateAnswered,
    ev.SignalReceived,
    ev.CancelRequested,
    ev.RunSteered,
    ev.WorkEdited,
    ev.RunResumed,
)


def unread(journal: Journal, run_id: str, history: Sequence[ev.Event]) -> list[ev.Event]:
    """The messages that the run has not read and that still apply to it."""
    return sort_messages(journal, run_id, history, math.inf)[0]


def sort_messages(
    journal: Journal, run_id: str, history: Sequence[ev.Event], since: float
) -> tuple[list[ev.Event], int]:
    """The unread messages that apply to a drive which holds the lease ``since`` then; and the
    number of the last message that came too late for an earlier drive, or 0.

    A cancellation that came after the run had ended, and before this drive's lease, was meant for a
    drive that is over. So was an earlier request to stop.
    """
    waiting = journal.letters(run_id, last_message(history))
    if not waiting:
        return [], 0
    recorded = Recorded(history)
    gates = {
        event.path: gate_key(event.gate) for event in history if isinstance(event, ev.GateOpened)
    }
    found: list[ev.Event] = []
    over, late = ended(history), 0
    for letter in waiting:
        event = letter.event
        if _was_for_a_drive_before(event, over, since):
            late = letter.number
            continue
        if isinstance(event, ev.GateAnswered) and (
            gates.get(event.path) != letter.key
            or event.by == TIMEOUT  # closed by its deadline: the step decides what that means
            or event.path in recorded.answers
            or recorded.at(event.path).ended()
        ):
            continue
        found.append(event_of(letter))
    return found, late


def _was_for_a_drive_before(
    event: Message, over: ev.WorkflowCompleted | None, since: float
) -> bool:
    """True for a message meant for an earlier drive: to stop it, or to cancel an ended run."""
    if event.at >= since:
        return False
    if isinstance(event, ev.RunSteered):
        return event.action == "stop"
    return isinstance(event, ev.CancelRequested) and over is not None


def unread_messages(journal: Journal, history: Sequence[ev.Event]) -> Sequence[Letter]:
    """The messages that the run has not read."""
    return journal.letters(history[0].run_id, last_message(history))


def runs_of(journal: Journal) -> list[RunInfo]:
    """The runs of a journal, oldest first, updated by their messages."""
    return [with_messages(journal, info) for info in journal.runs()]


def with_messages(journal: Journal, info: RunInfo) -> RunInfo:
    """A run's entry updated by its messages: answers and signals that came since its last event are
    no longer among its waits; a paused run waits for an unpause, also while it is driven.
    """
    if info.damaged or info.status in OVER:
        return info
    letters = [one.event for one in journal.letters(info.run_id, 0)]
    waits = [one for one in info.waits_for if one.kind != "unpause"]
    paused = paused_by(letters)
    if paused is not None:
        waits.insert(0, unpause_of(paused))
    info = replace(info, waits_for=tuple(waits))
    if all(one.kind not in {"answer", "signal"} for one in waits):
        return info
    sent = [event for event in letters if event.at >= (info.updated_at or 0.0)]
    answered = {event.path for event in sent if isinstance(event, ev.GateAnswered)}
    signals = {event.name for event in sent if isinstance(event, ev.SignalReceived)}
    left = [
        one
        for one in info.waits_for
        if not (one.kind == "answer" and one.path in answered)
        and not (one.kind == "signal" and one.what in signals)
    ]
    return replace(info, waits_for=tuple(left))


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
    said = [one for one in history if isinstance(one, ev.RunSteered) and one.action == "guide"]
    numbers = (n for n, one in enumerate(said, 1) if (one.value, one.by) == (text, by))
    number = max(numbers, default=0)
    given = (one for one in history if isinstance(one, ev.AgentGuided) and number in one.numbers)
    left = (one for one in Recorded(history).guidance.waiting if one.number == number)
    waiting = itertools.chain.from_iterable(sorted(one.waiting) for one in left)
    return [*(one.path for one in given), *waiting]


def last_message(history: Sequence[ev.Event]) -> int:
    """The number of the last message that a run has read."""
    if set(map(type, history)).isdisjoint(WITH_MESSAGE_NUMBER):
        return 0  # nearly always, and quicker than to look at each
    return max((one.letter for one in history if isinstance(one, WITH_MESSAGE_NUMBER)), default=0)


def event_of(letter: Letter) -> Message:
    """The event of a message as the run will record it: not numbered yet, timed at the posting."""
    event = letter.event
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


def asked_by(step: str, gates: Iterable[str], steps: Container[str]) -> list[str]:
    """The gates of a step: its own question, and those whether its agent may be launched; not a
    gate whose path is among ``steps``, which is a step of its own.
    """
    return [
        gate for gate in gates if gate == step or (is_budget_gate(step, gate) and gate not in steps)
    ]


def gate_in(run_id: str, history: Sequence[ev.Event], path: str, now: float) -> OpenGate:
    """The gate at a path that is open now, by a run's record and the messages behind it.

    Raises:
        GateClosed: it was answered, or its deadline has passed. GateNotFound: none is open there.
    """
    opened: dict[str, OpenGate] = {}
    answered: dict[str, ev.GateAnswered] = {}
    steps = begun(history)
    for event in history:
        match event:
            case ev.GateOpened():
                if opened.get(event.path) != event.gate:
                    answered.pop(event.path, None)
                opened[event.path] = event.gate
            case ev.GateAnswered():
                answered[event.path] = event
            case ev.StepCompleted():
                for gate in asked_by(event.path, opened, steps):
                    if gate not in answered:
                        del opened[gate]
            case ev.RunResumed():
                closed = [asked_by(gone, opened, steps) for gone in event.superseded]
                for gate in itertools.chain.from_iterable(closed):
                    opened.pop(gate, None)
                    answered.pop(gate, None)
            case _:
                pass
    if path in answered:
        event = answered[path]
        raise GateClosed(path, event.answer, event.by, event.at)
    if path not in opened:
        waiting = tuple(one for one in opened if one not in answered)
        raise GateNotFound(run_id, path, waiting)
    return _before_its_deadline(opened[path], history, now)


def _before_its_deadline(gate: OpenGate, history: Sequence[ev.Event], now: float) -> OpenGate:
    deadline = None if awaits_its_first_drive(history) else gate.deadline
    if deadline is not None and deadline <= now:  # the next drive will close it
        raise GateClosed(gate.path, gate.default, TIMEOUT, deadline)
    return gate


def open_waits(history: Sequence[ev.Event]) -> dict[str, list[ev.StepStarted]]:
    """By signal, the starts of the open ``wait_for`` steps. After a resume, a wait counts once the
    drive has reached it again.
    """
    found: dict[str, ev.StepStarted] = {}
    for event in history:
        match event:
            case ev.StepStarted(signal=name) if name and event.verdict is not False:
                found[event.path] = event
            case ev.StepCompleted():
                found.pop(event.path, None)
            case ev.RunResumed() | ev.WorkflowCompleted():
                found.clear()
            case _:
                pass
    waits: dict[str, list[ev.StepStarted]] = {}
    for event in found.values():
        waits.setdefault(event.signal, []).append(event)
    return waits


def waited_for(history: Sequence[ev.Event]) -> dict[str, list[Any]]:
    """By signal, the payload types of the open ``wait_for`` steps; None for one not known."""
    waits = open_waits(history)
    return {name: [event.accepts for event in events] for name, events in waits.items()}


def agents_may_signal(history: Sequence[ev.Event], name: str) -> bool:
    """True if steps wait for this signal, and each of them takes it from what steps started."""
    waits = open_waits(history).get(name, ())
    return bool(waits) and all(event.agents_may_answer for event in waits)


def check_signal(journal: Journal, history: Sequence[ev.Event], name: str, payload: Any) -> None:
    """Raise if a run would fail with this signal, as far as its record shows.

    Raises:
        InvalidSignal: it would.
    """
    types = waited_for(history).get(name)
    if types:
        letters = unread(journal, history[0].run_id, history)
        left = Recorded([*history, *letters]).signals_left().get(name, ())
        check_payload(name, payload, types, len(left))
