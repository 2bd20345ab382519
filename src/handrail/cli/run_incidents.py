"""What a recorded run lived through, a line for each, and all of it in one sentence."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from handrail.cli.masking import shown
from handrail.cli.run_state import moment
from handrail.model import events as ev
from handrail.sinks.console_text import Glyphs, clean, duration

Sort: TypeAlias = Literal["cap", "retry", "overflow", "re-ask", "fallback", "suspension"]

MOST = 40
SAME_CAP_S = 1800.0
"""A cap that is met again so soon after a wait is the one that was waited for."""

_DONE: Mapping[str, str] = {
    "retry": "tried again",
    "wait": "tried again",
    "resume": "went on in its session",
    "reask": "asked again in its session",
    "compact": "made its session smaller and went on",
    "summarise": "went on in a new session, with a summary",
    "reframe": "asked anew in a new session",
    "fallback": "went on with the next backend or model",
}
_NOUNS: Mapping[Sort, tuple[str, str]] = {
    "cap": ("usage cap", "usage caps"),
    "retry": ("retry", "retries"),
    "overflow": ("overflow", "overflows"),
    "re-ask": ("re-ask", "re-asks"),
    "fallback": ("fallback", "fallbacks"),
    "suspension": ("suspension", "suspensions"),
}
_SORT_OF_RUNG: Mapping[str, Sort] = {
    "fallback": "fallback",
    "reask": "re-ask",
    "reframe": "re-ask",
    "compact": "overflow",
    "summarise": "overflow",
}


@dataclass(frozen=True, slots=True)
class Lived:
    """A ladder step and when what it waited for was over (None: it is not yet)."""

    step: ev.LadderStep
    over_at: float | None

    @property
    def sort(self) -> Sort:
        """What it counts as."""
        if self.step.parked:
            return "suspension"
        by_rung = _SORT_OF_RUNG.get(self.step.next.rung)
        return by_rung or ("cap" if self.step.kind == "usage_cap" else "retry")


def lived_through(history: Sequence[ev.Event], now: float) -> list[Lived]:
    """The ladder steps of a run, in order."""
    steps = [(place, event) for place, event in enumerate(history) if type(event) is ev.LadderStep]
    if not steps:
        return []
    after: dict[int, float] = {}
    following: dict[str, float] = {}
    resumed: float | None = None
    places = {place for place, _ in steps}
    for place in range(len(history) - 1, -1, -1):
        event = history[place]
        if place in places:
            assert isinstance(event, ev.LadderStep)
            until = resumed if event.parked else following.get(event.path)
            if until is not None:
                after[place] = until
            following[event.path] = event.at
        elif isinstance(event, (ev.AttemptFailed, ev.StepCompleted)):
            following[event.path] = event.at
        elif isinstance(event, ev.RunResumed):
            resumed = event.at
    return [Lived(step, _over_at(step, after.get(place), now)) for place, step in steps]


def _over_at(step: ev.LadderStep, after: float | None, now: float) -> float | None:
    if step.parked:
        return after
    due = max(step.due, step.at)
    if after is not None:
        return min(due, after)
    return due if due <= now else None


def lines_of(lived: Sequence[Lived], glyphs: Glyphs) -> Iterator[str]:
    """A line for each, the latest if there are very many, and their sum at the end."""
    if not lived:
        return
    yield f"failures of agents that it lived through: {len(lived)}"
    if len(lived) > MOST:
        yield f"  {glyphs.more} {len(lived) - MOST} earlier (--json lists all)"
    latest = lived[-MOST:]
    width = max(len(clean(one.step.path)) for one in latest)
    days = {_day(at) for one in latest for at in (one.step.at, one.over_at or one.step.due) if at}
    for one in latest:
        at = moment(one.step.at) if len(days) > 1 else _clock(one.step.at)
        yield f"  {at}  {clean(one.step.path):{width}}  {_told(one)}"
    yield f"in all: {summary(lived)}"


def _told(one: Lived) -> str:
    step = one.step
    whose = f" ({clean(step.backend, 80)})" if step.backend else ""
    said = clean(shown(step.error), 160).removeprefix(f"{step.backend}: " if step.backend else "")
    return f"{clean(step.kind.replace('_', ' '), 80)}{whose}: {said.rstrip('.')}; {_followed(one)}"


def _followed(one: Lived) -> str:
    step = one.step
    if step.parked:
        if one.over_at is None:
            return "suspended the run"
        waited = duration(one.over_at - step.at)
        return f"suspended the run, resumed at {_time(one.over_at, step.at)} (after {waited})"
    done = _DONE.get(step.next.rung, "tried again")
    if one.over_at is None:
        waits = "looks again at" if step.kind == "usage_cap" else "waits until"
        return f"{waits} {_time(step.due, step.at)} ({duration(step.due - step.at)})"
    pause = one.over_at - step.at
    if pause >= 60:
        return f"waited until {_time(one.over_at, step.at)} ({duration(pause)}), then {done}"
    return f"{done} after {duration(pause)}" if pause >= 0.001 else done


def summary(lived: Sequence[Lived]) -> str:
    """``3 usage caps waited 14 h 20 min, 2 retries, 1 overflow``."""
    counts: dict[Sort, int] = {}
    waits: list[tuple[float, float]] = []
    last: dict[str, Lived] = {}
    for one in lived:
        before = last.get(one.step.path)
        last[one.step.path] = one
        if one.sort == "cap":
            waits.append((one.step.at, one.over_at or one.step.at))
            if before is not None and _same_cap(before, one):
                continue
        counts[one.sort] = counts.get(one.sort, 0) + 1
    waited = _together(waits)
    parts: list[str] = []
    for sort, (one_of_it, several) in _NOUNS.items():
        count = counts.get(sort, 0)
        if count:
            said = f"{count} {one_of_it if count == 1 else several}"
            parts.append(f"{said} waited {duration(waited)}" if sort == "cap" and waited else said)
    return ", ".join(parts)


def _together(waits: Iterable[tuple[float, float]]) -> float:
    """How long it was in all, with what was waited for at the same time counted once."""
    total = until = 0.0
    for begun, over in sorted(waits):
        total += max(0.0, over - max(begun, until))
        until = max(until, over)
    return total


def _same_cap(before: Lived, one: Lived) -> bool:
    over = before.over_at
    return before.sort == "cap" and over is not None and one.step.at - over <= SAME_CAP_S


def _day(at: float) -> str:
    return moment(at)[:10]


def _clock(at: float) -> str:
    return moment(at)[11:]


def _time(at: float, seen_from: float) -> str:
    """A time of day, with its day if that is another."""
    if _day(at) == _day(seen_from):
        return time.strftime("%H:%M", time.localtime(at))
    return time.strftime("%a %d %b %H:%M", time.localtime(at))
