"""Wrappers of a journal: ``CheckingJournal`` refuses values that could not be written to disk."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence

from handrail.codec.codec import Codec
from handrail.model.events import Event
from handrail.ports.journal import Journal, Lease, Letter, RunInfo
from handrail.record.rows import to_record


class JournalWrapper:
    """Passes reads and leases on to the journal behind it; subclasses define the writes."""

    def __init__(self, journal: Journal) -> None:
        self._behind = journal

    @property
    def durable(self) -> bool:
        """As the journal behind it."""
        return self._behind.durable

    @property
    def codec(self) -> Codec:
        """The codec of the journal behind it."""
        return self._behind.codec

    def events(
        self, run_id: str, /, *, secrets: Mapping[str, str] | None = None
    ) -> Sequence[Event]:
        """As the journal behind it."""
        return self._behind.events(run_id, secrets=secrets)

    def runs(self) -> Sequence[RunInfo]:
        """As the journal behind it."""
        return self._behind.runs()

    def acquire(self, run_id: str, /, *, secrets: Mapping[str, str] | None = None) -> Lease:
        """As the journal behind it."""
        return self._behind.acquire(run_id, secrets=secrets)

    def letters(self, run_id: str, after: int, /) -> Sequence[Letter]:
        """As the journal behind it."""
        return self._behind.letters(run_id, after)

    def close(self) -> None:
        """As the journal behind it."""
        self._behind.close()


class CheckingJournal(JournalWrapper):
    """Encodes each event before the journal behind it gets it, and discards the text."""

    def append(self, event: Event, /, *, sync: bool = False) -> Awaitable[None] | None:
        """Append an event that can be encoded.

        Raises:
            OutputNotSerializable: it cannot be encoded; nothing is appended.
        """
        to_record(event, self.codec)
        return self._behind.append(event, sync=sync)

    def append_run(
        self,
        events: Sequence[Event],
        /,
        *,
        letters: Sequence[Letter] = (),
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        """As the journal behind it, for events that can be encoded.

        Raises:
            OutputNotSerializable: one cannot be encoded; nothing is appended.
        """
        for event in (*events, *(letter.event for letter in letters)):
            to_record(event, self.codec)
        self._behind.append_run(events, letters=letters, secrets=secrets)

    def post(self, letter: Letter, /, *, secrets: Mapping[str, str] | None = None) -> Letter:
        """Post a message that can be encoded.

        Raises:
            OutputNotSerializable: it cannot be encoded; nothing is posted.
        """
        to_record(letter.event, self.codec)
        return self._behind.post(letter, secrets=secrets)
