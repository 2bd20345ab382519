"""Posts messages to a run (answers, signals, cancellations), and reads the new ones of a drive.

All of them go through the journal, also those of this process. So exactly one of many answers to a
gate counts, whichever process it comes from, and a crash loses no accepted signal.
``Engine.answer`` and its neighbours post them; ``Driver.read_messages`` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from handrail.core.machine import Machine
from handrail.engine.tasks import Flight
from handrail.errors import CannotSteer, GateClosed
from handrail.later import later
from handrail.model import events as ev
from handrail.model.paths import is_within
from handrail.model.results import OpenGate
from handrail.ports.journal import Journal, Letter

if TYPE_CHECKING:
    from handrail.core import steering, waits, work_edits
    from handrail.record import answers
    from handrail.record import inbox as messages
else:
    later(
        globals(),
        "core.steering core.waits core.work_edits record.answers record.inbox:messages",
    )


class Inbox:
    """The messages of one drive. Mutable: it knows which ones it has read."""

    def __init__(self, journal: Journal, machine: Machine) -> None:
        self._journal = journal
        self._machine = machine
        self._run_id = machine.run.setting.run_id
        self.last_read = machine.run.recorded.last_message
        """The number of the last message that was read."""

    def answer(self, gate: OpenGate, value: Any, by: str | None, at: float) -> None:
        """Post an answer.

        Raises:
            GateClosed: another answer came first.
        """
        event = ev.stamp(ev.GateAnswered(gate.path, value, by), self._run_id, 0, at)
        post_answer(self._journal, gate, event)

    def signal(self, name: str, payload: Any, by: str | None, at: float) -> None:
        """Post a signal.

        Raises:
            InvalidSignal: an open ``wait_for`` would fail with this payload.
        """
        types = waits.awaited_types(self._machine.run, name)
        if types:
            answers.check_payload(name, payload, types, self._on_the_way(name))
        event = ev.stamp(ev.SignalReceived(name, payload, by), self._run_id, 0, at)
        self._journal.post(Letter(event))

    def steer(self, event: ev.RunSteered | ev.WorkEdited, at: float) -> None:
        """Post a request to steer the run, or to edit a queue of ``work``.

        Raises:
            CannotSteer, InvalidInput: the step does not accept it.
        """
        if isinstance(event, ev.WorkEdited):
            event = work_edits.check_edit(
                self._machine.run, event, self._edits_coming(), driven=True
            )
        elif event.path:
            event = steering.check_steering(self._machine.run, event)
        self._journal.post(Letter(ev.stamp(event, self._run_id, 0, at)))

    def _edits_coming(self) -> list[ev.WorkEdited]:
        """The edits of queues that are posted, and have not reached the machine."""
        run = self._machine.run
        arrived = max(run.recorded.last_message, run.last_edit)
        posted = (letter.event for letter in self._journal.letters(self._run_id, arrived))
        return [event for event in posted if isinstance(event, ev.WorkEdited)]

    def _on_the_way(self, name: str) -> int:
        """How many signals of a name are posted, and have not reached the machine."""
        run = self._machine.run
        arrived = max(run.recorded.last_message, run.last_message)
        letters = self._journal.letters(self._run_id, arrived)
        return sum(messages.is_signal(letter.event, name) for letter in letters)

    def close(self, gate: OpenGate, at: float) -> bool:
        """Close a gate, whose time is up, to later answers; False if an answer came first."""
        event = ev.GateAnswered(gate.path, gate.default, messages.TIMEOUT)
        mine = Letter(ev.stamp(event, self._run_id, 0, at), messages.gate_key(gate))
        first = self._journal.post(mine).event
        return isinstance(first, ev.GateAnswered) and first.by == messages.TIMEOUT

    def new(self) -> list[ev.Event]:
        """The events of messages that came since the last look and still apply to the run."""
        events: list[ev.Event] = []
        for letter in self._journal.letters(self._run_id, self.last_read):
            self.last_read = letter.number
            if self._counts(letter):
                events.append(messages.event_of(letter))
        return events

    def _counts(self, letter: Letter) -> bool:
        event = letter.event
        if not isinstance(event, ev.GateAnswered):
            return not isinstance(event, ev.RunSuspended)
        gate = self._machine.run.gates.get(event.path)
        return (
            gate is not None
            and messages.gate_key(gate) == letter.key
            and event.by != messages.TIMEOUT
        )


def is_urgent(event: ev.Event, at_work: Flight | None) -> bool:
    """True for a message that stops the attempt in the driver's own task, if there is one."""
    if not isinstance(event, ev.RunSteered):
        return isinstance(event, ev.CancelRequested)
    if at_work is None or not is_within(at_work.path, event.path):
        return event.action == "stop"
    if event.action == "guide":
        launches: bool = at_work.command.step.verb.launches_agent()
        return launches
    return event.action == "stop" or event.path != ""


def post_answer(
    journal: Journal,
    gate: OpenGate,
    mine: ev.GateAnswered,
    secrets: Mapping[str, str] | None = None,
) -> None:
    """Post an answer to an open gate.

    Raises:
        GateClosed: another answer came first. OutputNotSerializable: it cannot be recorded.
    """
    first = journal.post(Letter(mine, messages.gate_key(gate)), secrets=secrets).event
    if first is not mine and isinstance(first, ev.GateAnswered):
        raise GateClosed(gate.path, first.answer, first.by, first.at)


def sender(run_id: str, journal: str, by: str | None, *, may: bool = False) -> str | None:
    """Who sends a message to a run, for its record: ``by``, or the step that this process is in.

    ``may``: a step may send it to the run that it is part of, and to others of its journal.

    Raises:
        CannotSteer: it is in a step of the run, or of another run in its journal, and may not.
    """
    from handrail.system.marker import enclosing_step

    step = enclosing_step(run_id, journal)
    if step is not None and not may:
        why = f"{step} cannot steer it: what a step starts steers no run of the step's journal"
        raise CannotSteer(run_id, why, "A person can, from a process that no step started.")
    step = step or enclosing_step()
    return by if step is None else str(step)
