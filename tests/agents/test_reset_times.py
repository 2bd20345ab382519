"""When a limit is over, by what a failed turn said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.agents.transport.reset_times import reset_time

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 10, 7, 12, 0, 30, tzinfo=UTC)  # a Wednesday

zones = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"]
)
moments = st.floats(1.6e9, 2.0e9)


def when(text: str, now: datetime = NOW) -> str | None:
    """The moment that a text names, in UTC; clock times without a zone are Berlin's."""
    at = reset_time(text, now.timestamp(), BERLIN)
    return None if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("You've hit your 5-hour limit · resets 9:35pm (UTC)", "2026-10-07 21:35:00"),
        ("You've hit your limit · resets 3am (Europe/Berlin)", "2026-10-08 01:00:00"),
        ("weekly limit · resets Oct 9, 3pm (America/New_York)", "2026-10-09 19:00:00"),
        ("· resets Jan 5, 2027, 3:04pm (UTC)", "2027-01-05 15:04:00"),
        ("5-hour limit reached ∙ resets 3pm", "2026-10-07 13:00:00"),
        ("Your limit will reset at 3pm (America/Santiago).", "2026-10-07 18:00:00"),
        ("try again at 9:43 PM.", "2026-10-07 19:43:00"),
        ("try again at 9:43\N{NARROW NO-BREAK SPACE}PM.", "2026-10-07 19:43:00"),
        ("or try again at Jan 5th, 2027 3:04 PM.", "2027-01-05 14:04:00"),
        ("Your limit resets on 9 October at 15:00 UTC+2", "2026-10-09 13:00:00"),
        ("resets at 12am tomorrow", "2026-10-07 22:00:00"),
        ("resets tomorrow at noon (UTC)", "2026-10-08 12:00:00"),
        ("resets Monday 9am", "2026-10-12 07:00:00"),
        ("resets next Wednesday, 9am UTC", "2026-10-14 09:00:00"),
        ("resets midnight UTC", "2026-10-08 00:00:00"),
        ("Your monthly limit resets on December 1 (UTC)", "2026-12-01 00:00:00"),
        ("You will regain access on 2026-11-01 at 00:00 UTC.", "2026-11-01 00:00:00"),
        ("resets 9am PST", "2026-10-07 16:00:00"),
        ("resets 9am Pacific Time", "2026-10-07 16:00:00"),
        ("resets 9am (Pacific Daylight Time)", "2026-10-07 16:00:00"),
        ("resets 9am AEDT", "2026-10-07 22:00:00"),
        ("resets at 9:30 p.m. (UTC)", "2026-10-07 21:30:00"),
        ("resets at 9:30 p.m.", "2026-10-07 19:30:00"),
        ("resets at 21:30 utc", "2026-10-07 21:30:00"),
        ("resets 5pm UTC\N{MINUS SIGN}5", "2026-10-07 22:00:00"),
        ("resets at 2026-10-08T15:00:00Z", "2026-10-08 15:00:00"),
        ("resets at 2026-10-08T15:00:00.123456+02:00", "2026-10-08 13:00:00"),
        ('"resets_at": "2026-10-08 15:00:00"', "2026-10-08 13:00:00"),
        ("Retry-After: Wed, 21 Oct 2026 07:28:00 GMT", "2026-10-21 07:28:00"),
        ("resets at 11/15/2026, 3:00 PM", "2026-11-15 14:00:00"),
        ("resets at 11/15/26, 3:00\N{NARROW NO-BREAK SPACE}PM UTC", "2026-11-15 15:00:00"),
        ("resets at 15.11.2026 15:00", "2026-11-15 14:00:00"),
        ("resets on 15.11.2026, 15:00 Uhr", "2026-11-15 14:00:00"),
        ("resets at 15/11/2026 15:00", "2026-11-15 14:00:00"),
        ("resets at 2026/11/15 15:00", "2026-11-15 14:00:00"),
        ("resets at 11/12/2026 15:00 UTC", "2026-11-12 15:00:00"),
        ("resets at 9/12/2026 15:00 UTC", "2026-12-09 15:00:00"),
        ("resets 9:30pm IST", "2026-10-07 16:00:00"),
        ("resets 9pm (BRT)", "2026-10-08 00:00:00"),
        ("resets 21:00 MSK", "2026-10-07 18:00:00"),
    ],
)
def test_a_date_or_clock_time_is_the_next_such_moment(text: str, expected: str) -> None:
    """Date, clock and zone are found in any order, whichever of them are named."""
    assert when(text) == expected


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Please try again in 1.5s", 1.5),
        ("Please try again in 352ms.", 0.352),
        ("Please try again in 6m0s", 360),
        ("Try again in 2 days 3 hours 4 minutes.", 183_840),
        ("try again in 1 hour and 5 minutes", 3_900),
        ("Your quota will reset after 18h20m5s.", 66_005),
        ("You've hit your fast limit · resets in 2h 5m", 7_500),
        ("retry after 30 seconds", 30),
        ("Please wait a minute", 60),
        ("retry-after: 120", 120),
        ('"retry_after_ms": 1500', 1.5),
        ('"retryDelay": "34.07s"', 34.07),
        ('"resets_in_seconds": 1234', 1_234),
        ("x-ratelimit-reset-tokens: 90s", 90),
    ],
)
def test_a_duration_counts_from_now(text: str, seconds: float) -> None:
    """A duration of any number of parts and units is added to now."""
    assert reset_time(text, 1e9) == pytest.approx(1e9 + seconds)


@pytest.mark.parametrize(
    "text",
    [
        "Claude AI usage limit reached|1795296912",
        '"resetsAt":1795296912,',
        "x-ratelimit-reset: 1795296912",
        '"reset_at_ms": 1795296912000',
    ],
)
def test_a_unix_time_is_taken_as_it_is(text: str) -> None:
    """Seconds since 1970, or milliseconds, are the moment itself."""
    assert reset_time(text, NOW.timestamp()) == 1_795_296_912


@pytest.mark.parametrize(
    "text",
    [
        "",
        "try again later",
        "Please retry.",
        "resets 25:00",
        "resets 13pm",
        "resets Feb 31, 3pm",
        "resets 3 days ago",
        "retry 2 of 10",
        "a rate limit of 40,000 input tokens per minute. Try again.",
        "Claude AI usage limit reached|1735689600",
        "resets Jan 5, 2020",
        "resets Oct 6, 3pm (UTC)",
        "available in 3 regions, until further notice",
        "in 99999999999 hours",
        "try again in 99999999 days",
        "the build took 5 minutes at 3pm",
    ],
)
def test_a_text_that_names_no_time_to_come_gives_none(text: str) -> None:
    """Nothing is read from texts without a moment, or with one that is long over."""
    assert when(text) is None


def test_a_moment_of_the_minute_that_has_begun_is_its_end() -> None:
    """Half a minute after noon "12pm" is not a day away, and a minute later it is."""
    assert when("resets 12pm (UTC)") == "2026-10-07 12:01:00"
    assert when("resets 12pm (UTC)", NOW + timedelta(seconds=30)) == "2026-10-08 12:00:00"


def test_the_year_of_a_date_is_the_nearest() -> None:
    """On the last day of a year a date in January is in the next one."""
    eve = datetime(2026, 12, 31, 12, tzinfo=UTC)
    assert when("resets Jan 2, 3pm (UTC)", eve) == "2027-01-02 15:00:00"


def test_clocks_that_are_put_forward_or_back_do_not_mislead() -> None:
    """A time that is left out is the one after it, one that comes twice is first the earlier."""
    assert when("resets 2:30am", datetime(2026, 3, 29, 0, tzinfo=UTC)) == "2026-03-29 01:30:00"
    back = datetime(2026, 10, 25, 0, tzinfo=UTC)
    assert when("resets 2:30am", back) == "2026-10-25 00:30:00"
    assert when("resets 2:30am", back + timedelta(hours=1)) == "2026-10-25 01:30:00"
    assert when("resets 2:30am", back + timedelta(hours=2)) == "2026-10-26 01:30:00"


def test_a_zone_that_is_not_known_is_the_callers() -> None:
    """A name that no zone has is as if none were named."""
    assert when("resets 3pm (Nowhere/Land)") == when("resets 3pm")


@given(moments, zones, st.integers(1, 12), st.integers(0, 59), st.sampled_from(["am", "pm"]))
def test_a_clock_time_is_within_the_next_day(
    now: float, zone: str, hour: int, minute: int, half: str
) -> None:
    """It is after now, at most 25 hours away, and reads as it was written (or just after)."""
    at = reset_time(f"resets {hour}:{minute:02d}{half} ({zone})", now)
    assert at is not None
    assert now < at <= now + 25 * 3600 + 60
    local = datetime.fromtimestamp(at, ZoneInfo(zone))
    said = (hour % 12 + (12 if half == "pm" else 0)) * 60 + minute
    late = (local.hour * 60 + local.minute - said) % 1440
    assert late in {0, 1, 30, 31, 60, 61}  # a minute that has begun; a time that was left out


@given(moments, zones, st.sampled_from(["Mon", "Tuesday", "sunday", "Sat"]), st.integers(0, 23))
def test_a_weekday_is_within_eight_days(now: float, zone: str, day: str, hour: int) -> None:
    """A day of the week is the next one, a week and a day away at most."""
    at = reset_time(f"resets {day} {hour}:00 {zone}", now)
    assert at is not None
    assert now < at < now + 8 * 86_400


@given(st.text(), moments)
def test_no_text_raises_or_gives_a_time_that_is_over(text: str, now: float) -> None:
    """Whatever follows the words that announce a time, the result is none or later than now."""
    for announced in ("resets ", "try again in ", "retry-after: ", "limit reached|"):
        at = reset_time(announced + text, now)
        assert at is None or at > now


@given(
    st.lists(
        st.sampled_from(["resets", "Oct", "9", "3", "pm", ":", "at", "in", "h", "Z", " ", "2026-"])
    ).map("".join),
    moments,
)
def test_no_mixture_of_parts_raises_or_gives_a_time_that_is_over(text: str, now: float) -> None:
    """Parts in an order that makes no sense give none, or a time later than now."""
    at = reset_time(f"resets {text}", now)
    assert at is None or at > now


@pytest.mark.parametrize(
    "piece", ["resets ", "try again in ", "1", "reset-", "until \t", "retry in 1 of ", "Oct 9 "]
)
def test_a_text_of_a_megabyte_is_read_once(piece: str) -> None:
    """Endless repetitions of what a time begins with are no time, and do not take forever."""
    assert reset_time(piece * (1_000_000 // len(piece)), NOW.timestamp()) is None
