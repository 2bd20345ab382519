"""Which runs without a driver are due now: a worker drives these."""

from __future__ import annotations

import math
from collections.abc import Iterable

import attrs

from handrail.model import events as ev
from handrail.model.results import OVER
from handrail.ports.journal import Journal, Letter, RunInfo
from handrail.record.inbox import paused_by, stuck_letter
from handrail.record.run_record import FORKED, Recorded

AGAIN_S, AT_MOST_S = 60.0, 3_600.0
"""After a drive that recorded nothing, because of an error before it began, the next one comes
``AGAIN_S`` later; then the wait doubles, up to ``AT_MOST_S``. A run whose process dies again and
again waits, too, and so does one whose drive breaks off each time: an action of it ends the
process, say."""
PERSON_S = 600.0
"""How often to try a run that waits for a person to do something elsewhere: to sign in, say."""
_DOUBLINGS = 12
"""A bound on the doublings: by then the wait has long reached an hour."""
_NOT_BROKEN_OFF = frozenset({"waiting", "paused", FORKED})
"""The reasons of suspensions because nothing was left to do, or because nobody has resumed yet."""
_FOR_LATER = frozenset({"pause", "stop", "guide"})
"""Steering for which no process resumes a run."""


@attrs.frozen
class _SuspendedRecord:
    """What a suspended run's record says, as long as it has this many ``events``."""

    events: int
    broke_off: bool
    """Its last drive ended with work left to do, and no person had stopped it. A fork that was not
    resumed yet had none.
    """
    letter: int


@attrs.frozen
class _BegunDrive:
    """The last drive begun of a run: when, and how much was recorded and posted then."""

    at: float
    events: int
    letter: int
    in_vain: int = 0
    """How many drives in a row before it recorded nothing."""
    died: int = 0
    """How many drives in a row before it lost their process soon, or broke off."""

    def may_go_on(self, info: RunInfo, now: float, *, broke_off: bool) -> bool:
        """True if another drive may follow by now, without a new message to the run."""
        if info.events == self.events:
            return now >= self.at + _wait_s(AGAIN_S, self.in_vain)
        return not broke_off or now >= self.at + _wait_s(1.0, self.died)


class Due:
    """Finds the due runs of one journal. Mutable: it keeps what it read of suspended runs."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._seen: dict[str, _SuspendedRecord] = {}
        self._begun: dict[str, _BegunDrive] = {}
        self.next_at = math.inf
        """When the next wait for a time ends, of the runs that were looked at last."""

    def select_due(self, infos: Iterable[RunInfo], now: float) -> list[RunInfo]:
        """The runs among these that are due."""
        infos = list(infos)
        times = (wait.until for info in infos for wait in info.waits_for if wait.until is not None)
        self.next_at = min((at for at in times if at > now), default=math.inf)
        return [info for info in infos if self._is_due(info, now)]

    def note_begun(self, info: RunInfo, now: float) -> None:
        """Note that a drive of this run begins: the reasons for it are no reasons for another."""
        letters = self._journal.letters(info.run_id, 0)
        number = max((letter.number for letter in letters), default=0)
        last = self._begun.get(info.run_id)
        in_vain = died = 0
        if last is not None and (last.events, last.letter) == (info.events, number):
            in_vain = last.in_vain + 1
        elif last is not None and self._broke_off(info) and now < last.at + AT_MOST_S:
            died = last.died + 1
        self._begun[info.run_id] = _BegunDrive(now, info.events, number, in_vain, died)

    def _is_due(self, info: RunInfo, now: float) -> bool:
        if info.holder is not None or info.damaged or info.status in OVER:
            self._seen.pop(info.run_id, None)
            return False
        letters = self._journal.letters(info.run_id, 0)
        if paused_by(letter.event for letter in letters) is not None:
            return False
        begun = self._begun.get(info.run_id)
        stuck = stuck_letter(letters, info.events)
        if begun is not None and (
            (stuck is not None and begun.events == info.events)
            or not begun.may_go_on(info, now, broke_off=self._broke_off(info))
        ):
            return any(
                _is_reason_to_drive(letter) for letter in letters if letter.number > begun.letter
            )
        if stuck is not None:
            return True  # this process has not tried it, and may have other code
        if info.status is None:
            return True  # its process is gone
        seen = self._look(info)
        read = seen.letter
        if begun is not None and begun.events != info.events:  # that drive has read these
            read = max(read, begun.letter)
        if any(_is_reason_to_drive(letter) for letter in letters if letter.number > read):
            return True
        if any(wait.until is not None and wait.until <= now for wait in info.waits_for):
            return True
        if any(wait.kind == "person" for wait in info.waits_for):
            return now >= info.updated_at + PERSON_S
        return seen.broke_off

    def _broke_off(self, info: RunInfo) -> bool:
        """The last drive ended with work left to do, by no wish of a person."""
        return info.status is None or self._look(info).broke_off

    def _look(self, info: RunInfo) -> _SuspendedRecord:
        seen = self._seen.get(info.run_id)
        if seen is None or seen.events != info.events:
            recorded = Recorded(self._journal.events(info.run_id))
            was_told = recorded.suspended_for in _NOT_BROKEN_OFF or recorded.is_stopped
            seen = _SuspendedRecord(info.events, not was_told, recorded.last_message)
            self._seen[info.run_id] = seen
        return seen


def _wait_s(first_s: float, count: int) -> float:
    return min(first_s * 2.0 ** min(count, _DOUBLINGS), AT_MOST_S)


def _is_reason_to_drive(letter: Letter) -> bool:
    event = letter.event
    if isinstance(event, ev.GateAnswered):
        return event.by != "timeout"
    if isinstance(event, ev.RunSuspended):
        return False
    return not isinstance(event, ev.RunSteered) or event.action not in _FOR_LATER
