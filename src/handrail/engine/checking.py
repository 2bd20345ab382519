"""A journal in memory that refuses what a durable one would refuse."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence

import attrs

from handrail.codec.codec import Codec
from handrail.model.events import Event
from handrail.ports.journal import Journal, Lease, Letter, RunInfo
from handrail.record.rows import to_record


@attrs.frozen
class CheckingJournal:
    """Encodes each event before it is kept, and throws the text away."""

    journal: Journal

    @property
    def durable(self) -> bool:
        """What the journal behind it is."""
        return self.journal.durable

    @property
    def codec(self) -> Codec:
        """The codec of the journal behind it."""
        return self.journal.codec

    def append(self, event: Event, /, *, sync: bool = False) -> Awaitable[None] | None:
        """Keep an event that could be written.

        Raises:
            OutputNotSerializable: it could not; nothing is kept.
        """
        to_record(event, self.codec)
        return self.journal.append(event, sync=sync)

    def append_run(
        self,
        events: Sequence[Event],
        /,
        *,
        letters: Sequence[Letter] = (),
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        """As the journal behind it, for events that could be written.

        Raises:
            OutputNotSerializable: one could not; nothing is kept.
        """
        for event in (*events, *(one.event for one in letters)):
            to_record(event, self.codec)
        self.journal.append_run(events, letters=letters, secrets=secrets)

    def events(
        self, run_id: str, /, *, secrets: Mapping[str, str] | None = None
    ) -> Sequence[Event]:
        """As the journal behind it."""
        return self.journal.events(run_id, secrets=secrets)

    def runs(self) -> Sequence[RunInfo]:
        """As the journal behind it."""
        return self.journal.runs()

    def acquire(self, run_id: str, /, *, secrets: Mapping[str, str] | None = None) -> Lease:
        """As the journal behind it."""
        return self.journal.acquire(run_id, secrets=secrets)

    def post(self, letter: Letter, /, *, secrets: Mapping[str, str] | None = None) -> Letter:
        """Keep a letter that could be written.

        Raises:
            OutputNotSerializable: it could not; nothing is kept.
        """
        to_record(letter.event, self.codec)
        return self.journal.post(letter, secrets=secrets)

    def letters(self, run_id: str, after: int, /) -> Sequence[Letter]:
        """As the journal behind it."""
        return self.journal.letters(run_id, after)

    def close(self) -> None:
        """As the journal behind it."""
        self.journal.close()
