"""The log of a run: a line for each event, searched by words, and read in parts."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

from handrail.model.dataclass import dataclass
from handrail.model.events import Event
from handrail.sinks.event_words import event_text, is_of_people, severity_of
from handrail.typed.jsonsafe import Json

Level: TypeAlias = Literal["error", "warning", "person", "info"]
"""``person``: a person did it, or is asked to act."""

LogFilter: TypeAlias = Literal["", "errors", "warnings", "people"]
"""A filter: errors; errors and warnings; what people did, or are asked for; empty: all lines."""

ONLY: Mapping[LogFilter, frozenset[str]] = {
    "": frozenset(),
    "errors": frozenset({"error"}),
    "warnings": frozenset({"error", "warning"}),
    "people": frozenset({"person"}),
}
MOST_LINES = 1_000
"""Lines in one response."""
_MAX_KEPT_QUERIES = 8
"""Queries whose matches are kept, to be extended when the record grows."""


@dataclass(frozen=True, slots=True)
class LogQuery:
    """A query of the log: lines with all these words in kind, path or text, that pass ``only``."""

    words: tuple[str, ...] = ()
    only: LogFilter = ""


class _Matches:
    """The numbers of the lines that match, among the first ``known`` events. Mutable."""

    __slots__ = ("known", "numbers")

    def __init__(self) -> None:
        self.known = 0
        self.numbers = array("L")


class Log:
    """The log of one run, whose record grows. Mutable: it keeps matches and counts, not lines.

    ``hide`` masks the secrets in an event.
    """

    def __init__(self, hide: Callable[[Event], Event]) -> None:
        self._hide = hide
        self._found: dict[LogQuery, _Matches] = {}
        self._counts: Counter[str] = Counter()
        self._counted = 0

    def part(
        self,
        history: Sequence[Event],
        sought: LogQuery,
        *,
        start: int | None = None,
        line: int | None = None,
        limit: int = 200,
    ) -> dict[str, Json]:
        """At most ``limit`` matching lines: from the index ``start``, around ``line``, or the last.

        ``line`` is an event's number; if that does not match, the next match stands in for it. In
        the result, ``start`` is the index (from 0) of the first line among all matches, ``total``
        the number of matches, ``at`` the index of the line that was asked for, and ``counts`` the
        number of lines in the whole record that each ``only`` shows.
        """
        numbers = self._matching_numbers(history, sought)
        total = len(history) if numbers is None else len(numbers)
        at = None
        if line is not None and total:
            place = line - 1 if numbers is None else bisect_left(numbers, line)
            at = min(place, total - 1)
            start = max(0, at - limit // 2)
        if start is None:
            start = max(0, total - limit)
        start = min(start, total)
        places = range(start, min(start + limit, total))
        seqs = [place + 1 if numbers is None else numbers[place] for place in places]
        return {
            "start": start,
            "total": total,
            "at": at,
            "counts": self._count(history),
            "lines": [line_data(self._hide(history[seq - 1])) for seq in seqs],
        }

    def _matching_numbers(self, history: Sequence[Event], sought: LogQuery) -> array[int] | None:
        """The event numbers of the matches, in order; None: all events match."""
        if sought == LogQuery():
            return None
        found = self._found.pop(sought, None) or _Matches()
        if found.known > len(history):
            found = _Matches()
        for event in history[found.known :]:
            if self._matches(event, sought):
                found.numbers.append(event.seq)
        found.known = len(history)
        self._found[sought] = found
        while len(self._found) > _MAX_KEPT_QUERIES:
            del self._found[next(iter(self._found))]
        return found.numbers

    def _matches(self, event: Event, sought: LogQuery) -> bool:
        levels = ONLY[sought.only]
        if levels and level_of(event) not in levels:
            return False
        if not sought.words:
            return True
        masked = self._hide(event)
        path = getattr(masked, "path", "")
        text = f"{type(event).__name__} {path} {event_text(masked)}".lower()
        return all(word in text for word in sought.words)

    def _count(self, history: Sequence[Event]) -> Json:
        if self._counted > len(history):
            self._counted = 0
            self._counts.clear()
        self._counts.update(level_of(event) for event in history[self._counted :])
        self._counted = len(history)
        return {
            only: sum(self._counts[level] for level in levels)
            for only, levels in ONLY.items()
            if only
        }


def level_of(event: Event) -> Level:
    """The level of an event, found without making its text."""
    return "person" if is_of_people(event) else severity_of(event)


def line_data(event: Event) -> Json:
    """One line as JSON data; ``event`` is masked already."""
    return {
        "seq": event.seq,
        "at": event.at,
        "type": type(event).__name__,
        "path": getattr(event, "path", ""),
        "level": level_of(event),
        "text": event_text(event),
    }
