"""Reads from a failed turn's text when a limit resets.

Theory of operation: a few words announce such a time ("resets", "try again", "retry after"). After
the announcement comes a duration, a unix time, or a moment: date, clock time and zone in any order,
each of them optional. The parts are read one by one from the end of the announcement; reading stops
at the first text that is no part. Every pattern is bounded, so that a text of any size is read
once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from itertools import islice
from zoneinfo import ZoneInfo

from handrail.model.dataclass import dataclass

_DAY_S = 86_400.0
_MINUTE_S = 60.0
_FARTHEST_S = 400 * _DAY_S
"""A time farther away is no reset time, but a number that looks like one."""

_ANNOUNCED = re.compile(
    r"(?<![a-z])(?:resets?|resetting|retry(?:ing)?|(?:try|available)\s{1,4}again|available|wait"
    r"|again|regain\s{1,4}access|renews?|refresh(?:es)?|until)(?P<rest>[a-z_-]{0,40})",
    re.IGNORECASE,
)
_OLD_CAP = re.compile(r"limit reached\s{0,4}\|\s{0,4}(\d{10,13})(?!\d)", re.IGNORECASE)
_WINDOW_CHARS = 120
_MOST = 1_000
"""How many announcements are tried; a text with more of them is no failure message."""

_FILLER = re.compile(
    r"(?:[\s\"'`:=,(|~*·∙>]|(?<![a-z])(?:again|at|on|in|after|within|for|about|around|by|the|next|is"
    r"|approximately|access|please|and)(?![a-z])){1,24}",
    re.IGNORECASE,
)
_MINUS_SIGN = "\N{MINUS SIGN}"
_NUMBER = re.compile(r"(\d{1,13})(?:\.\d{0,9})?(?![\d:/a-z%-]|\.\d)", re.IGNORECASE)
_AMOUNT = re.compile(
    r"(?:(?P<n>\d{1,9}(?:\.\d{1,9})?)|an?(?=\s)|one(?=\s))\s{0,4}"
    r"(?P<unit>ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?)"
    r"(?![a-z])[\s,]{0,4}(?:and\s{1,4})?",
    re.IGNORECASE,
)
_UNIT_S = {"s": 1.0, "m": _MINUTE_S, "h": 3600.0, "d": _DAY_S, "w": 7 * _DAY_S}

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})[a-z]{{0,6}}\.?"
_DAY_OF_MONTH = r"(?P<day>\d{1,2})(?:st|[nr]d|th)?(?![\d:])"
_YEAR = r"(?:,?\s{1,4}(?P<year>\d{4})(?![\d:]))?"
_HOURS = r"(?P<hour>\d{1,2})"
_PARTS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?P<year>\d{4})[-/.](?P<number>\d{2})[-/.](?P<day>\d{2})T?(?!\d{3})",
        r"(?P<number>0?[1-9]|1[0-2])(?P<slash>/)(?P<day>\d{1,2})/(?P<year>\d{4}|\d{2})(?!\d)",
        r"(?P<day>\d{1,2})[./](?P<number>\d{1,2})[./](?P<year>\d{4}|\d{2})(?!\d)",
        rf"{_MONTH}\s{{1,4}}{_DAY_OF_MONTH}{_YEAR}",
        rf"{_DAY_OF_MONTH}\s{{1,4}}{_MONTH}{_YEAR}",
        rf"(?P<weekday>{'|'.join(_WEEKDAYS)})(?:[a-z]{{0,4}}day)?(?![a-z])",
        r"(?P<relative>today|tonight|tomorrow)(?![a-z])",
        rf"{_HOURS}(?::(?P<minute>\d{{2}}))?(?::(?P<second>\d{{2}}))?\s?(?P<half>[ap])\.?m\.?(?![a-z])",
        rf"{_HOURS}:(?P<minute>\d{{2}})(?::(?P<second>\d{{2}})(?:\.\d{{1,9}})?)?(?![\d:])",
        r"(?P<word>midnight|noon)(?![a-z])",
    )
)
_ZONE = re.compile(  # not "pm" in capitals, nor a word that begins a sentence
    r"\s{0,4}\(?(?P<zone>[A-Z][A-Za-z]{1,20}(?:/[A-Za-z0-9_+-]{1,30}){1,2}"
    r"|(?:UTC|GMT|utc|gmt)(?:\s?[+-]\d{1,2}(?::?\d{2})?)?|Z"
    r"|(?:Pacific|Mountain|Central|Eastern)(?:\s(?:Standard|Daylight))?\s[Tt]ime"
    r"|[A-Z]{1,4}T|MSK|WIB|[+-]\d{2}:?\d{2})(?![A-Za-z\d])\)?"
)
_OFFSET = re.compile(r"(?:UTC|GMT|utc|gmt)?\s?([+-])(\d{1,2}):?(\d{2})?")
_ZONE_NAMES = {
    **dict.fromkeys(("Z", "UTC", "GMT"), "UTC"),
    **dict.fromkeys(("PT", "PST", "PDT"), "America/Los_Angeles"),
    **dict.fromkeys(("MT", "MST", "MDT"), "America/Denver"),
    **dict.fromkeys(("CT", "CST", "CDT"), "America/Chicago"),
    **dict.fromkeys(("ET", "EST", "EDT"), "America/New_York"),
    **dict.fromkeys(("CET", "CEST"), "Europe/Berlin"),
    **dict.fromkeys(("BST", "WEST"), "Europe/London"),
    **dict.fromkeys(("AEST", "AEDT"), "Australia/Sydney"),
    **dict.fromkeys(("NZST", "NZDT"), "Pacific/Auckland"),
    **dict.fromkeys(("AKST", "AKDT"), "America/Anchorage"),
    **dict.fromkeys(("EET", "EEST"), "Europe/Athens"),
    **dict.fromkeys(("BRT", "BRST"), "America/Sao_Paulo"),
    "ART": "America/Argentina/Buenos_Aires",
    "AWST": "Australia/Perth",
    "COT": "America/Bogota",
    "EAT": "Africa/Nairobi",
    "HKT": "Asia/Hong_Kong",
    "HST": "Pacific/Honolulu",
    "ICT": "Asia/Bangkok",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "KST": "Asia/Seoul",
    "MSK": "Europe/Moscow",
    "PKT": "Asia/Karachi",
    "SAST": "Africa/Johannesburg",
    "SGT": "Asia/Singapore",
    "WAT": "Africa/Lagos",
    "WIB": "Asia/Jakarta",
}


def reset_time(text: str, now: float, zone: tzinfo | None = None) -> float | None:
    """The unix time at which a limit resets, by the text; None if it names no time to come.

    It is always later than ``now`` (unix seconds). A clock time without a date means its next
    occurrence, a date without a year the nearest. If the named minute (or day) has begun, the
    result is its end. A time without a zone, or with a zone that this machine does not know, is in
    ``zone``, by default the machine's own.
    """
    if not math.isfinite(now):
        return None
    text = text.replace(_MINUS_SIGN, "-")
    for match in _OLD_CAP.finditer(text):
        if (at := _soon(_unix(match[1]), now)) is not None:
            return at
    for match in islice(_ANNOUNCED.finditer(text), _MOST):
        window = text[match.end() : match.end() + _WINDOW_CHARS]
        if (at := _soon(_after(match["rest"].lower(), window, now, zone), now)) is not None:
            return at
    return None


def _soon(at: float | None, now: float) -> float | None:
    return at if at is not None and now < at <= now + _FARTHEST_S else None


def _unix(digits: str) -> float:
    """Unix seconds from a number that may count milliseconds."""
    value = float(digits)
    return value / 1000 if value >= 1e11 else value


def _after(key: str, window: str, now: float, zone: tzinfo | None) -> float | None:
    """The time after an announcement; ``key`` is the rest of the announcing word."""
    filler = _FILLER.match(window)
    start = filler.end() if filler else 0
    if (duration := _duration_s(window, start)) is not None:
        return now + duration
    if number := _NUMBER.match(window, start):
        if len(number[1]) >= 10:
            return _unix(number[1])
        words = f"{key} {filler[0].lower() if filler else ''}"
        if "after" in words or "delay" in words or "sec" in words or "ms" in key:
            seconds = float(number[0].rstrip("."))
            return now + max(seconds / 1000 if key.endswith("ms") else seconds, 0.001)
    moment = _Moment.read(window, start)
    return moment.next_time(now, zone) if moment else None


def _duration_s(window: str, start: int) -> float | None:
    """The seconds of a duration of any number of parts; None if there is none at ``start``."""
    total, position = 0.0, start
    while amount := _AMOUNT.match(window, position):
        unit = amount["unit"].lower()
        of_unit = 0.001 if unit == "ms" or unit.startswith("milli") else _UNIT_S[unit[0]]
        total += float(amount["n"] or 1) * of_unit
        position = amount.end()
    if position == start or window.startswith("ago", position):
        return None
    return max(total, 0.001)


@dataclass(frozen=True, slots=True)
class _Moment:
    """A moment as a text names it: the parts found, as text."""

    said: dict[str, str]
    zone: str | None

    @classmethod
    def read(cls, window: str, start: int) -> _Moment | None:
        """The moment at ``start``; None if there is none."""
        said: dict[str, str] = {}
        zone: str | None = None
        position = start
        while True:
            found = next(
                (m for m in _matches(window, position) if said.keys().isdisjoint(m[0])), None
            )
            if found is not None:
                said |= found[0]
                position = found[1]
            elif said and zone is None and (named := _ZONE.match(window, position)):
                zone, position = named["zone"], named.end()
            elif said and (filler := _FILLER.match(window, position)):
                position = filler.end()
            else:
                return cls(said, zone) if said else None

    def next_time(self, now: float, zone: tzinfo | None) -> float | None:
        """The first such moment that is not over (if begun: its end), in unix seconds, or None."""
        zone = _zone_of(self.zone) or zone
        lasts_s = self._lasts_s
        try:
            today = datetime.fromtimestamp(now, zone).date()
            for day in self._days(today):
                for fold in (0, 1):  # the hour that repeats when summer time ends
                    at = datetime(
                        day.year, day.month, day.day, *self._clock, tzinfo=zone, fold=fold
                    ).timestamp()
                    if now < at + lasts_s:
                        return at if at > now else at + lasts_s
        except (ValueError, OverflowError, OSError):
            pass  # the 31st of February, 25:00, a year that the platform cannot represent
        return None

    @property
    def _lasts_s(self) -> float:
        """How long the named moment lasts: a day, a minute, or no time."""
        if "hour" not in self.said and "word" not in self.said:
            return _DAY_S
        return 0.0 if "second" in self.said else _MINUTE_S

    @property
    def _clock(self) -> tuple[int, int, int]:
        if "hour" not in self.said:
            return (12 if self.said.get("word") == "noon" else 0), 0, 0
        hour = int(self.said["hour"])
        if half := self.said.get("half"):
            if not 1 <= hour <= 12:
                raise ValueError(f"there is no {hour} o'clock in half a day")
            hour = hour % 12 + (12 if half == "p" else 0)
        return hour, int(self.said.get("minute", 0)), int(self.said.get("second", 0))

    def _days(self, today: date) -> Iterator[date]:
        """The days that may be meant, earliest first."""
        said = self.said
        if "day" in said:
            yield from self._dates(today)
        elif "weekday" in said:
            ahead = (_WEEKDAYS.index(said["weekday"]) - today.weekday()) % 7
            yield today + timedelta(days=ahead)
            yield today + timedelta(days=ahead + 7)
        elif said.get("relative") == "tomorrow":
            yield today + timedelta(days=1)
        else:
            yield today
            yield today + timedelta(days=1)

    def _dates(self, today: date) -> Iterator[date]:
        said = self.said
        month = int(said["number"]) if "number" in said else _MONTHS.index(said["month"]) + 1
        day = int(said["day"])
        if "year" in said:
            year = int(said["year"])
            year += 0 if year > 99 else 2000
            yield date(year, month, day)
            if "slash" in said:  # the 9th of December, if the 12th of September is over
                yield date(year, day, month)
            return
        years = (today.year - 1, today.year, today.year + 1)
        dates = [date(year, month, day) for year in years if (month, day) != (2, 29) or _leap(year)]
        yield min(dates, key=lambda day: abs(day - today))


def _matches(window: str, position: int) -> Iterator[tuple[dict[str, str], int]]:
    for pattern in _PARTS:
        if match := pattern.match(window, position):
            parts = {name: value.lower() for name, value in match.groupdict().items() if value}
            yield parts, match.end()


def _leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _zone_of(name: str | None) -> tzinfo | None:
    """The zone of this name, abbreviation or offset; None if this machine does not know it."""
    if name is None:
        return None
    try:
        if offset := _OFFSET.fullmatch(name):
            east = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
            return timezone(-east if offset[1] == "-" else east)
        plain = f"{name[0]}T" if name[-4:].lower() == "time" else name
        known = _ZONE_NAMES.get(plain.upper(), name)
        return UTC if known == "UTC" else ZoneInfo(known)
    except (ValueError, OSError, KeyError):  # no such zone, or no valid file name
        return None
