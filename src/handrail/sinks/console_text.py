"""Toned text, glyphs and times for the console, as plain data without a terminal."""

from __future__ import annotations

import time
from typing import Literal, NamedTuple, TypeAlias

from handrail.model.dataclass import dataclass
from handrail.model.paths import decode_key
from handrail.shortening import clean

Tone: TypeAlias = Literal["plain", "name", "dim", "good", "bad", "warn", "busy", "wait"]


def path_text(path: str) -> str:
    """A path with its names and keys as the workflow wrote them, not encoded."""
    return clean(decode_key(path))


class Span(NamedTuple):
    """A piece of a line, and its tone."""

    text: str
    tone: Tone = "plain"


Line: TypeAlias = tuple[Span, ...]


def text_of(line: Line) -> str:
    """The line without its tones."""
    return "".join(span.text for span in line)


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The signs of one character set; the sign of a state is the field of its name."""

    running: tuple[str, ...]
    waiting: str
    succeeded: str
    failed: str
    skipped: str
    defaulted: str
    cancelled: str
    interrupted: str
    suspended: str
    started: str
    again: str
    undo: str
    more: str
    times: str
    into: str
    dot: str
    branch: str
    last: str
    pipe: str
    bar: tuple[str, str]

    def of(self, state: str, now: float = 0.0) -> str:
        """The sign of a state; that of ``running`` turns with the time."""
        if state == "running":
            return self.running[int(now % 1e6 * 10) % len(self.running)]
        return str(getattr(self, state, self.started))


UNICODE = Glyphs(
    running=tuple("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"),
    waiting="⏸",
    succeeded="✓",
    failed="✗",
    skipped="⊘",
    defaulted="↷",
    cancelled="⚑",
    interrupted="⏸",
    suspended="⏸",
    started="▸",
    again="↻",
    undo="↶",
    more="…",
    times="×",  # noqa: RUF001  # the sign is meant
    into="›",  # noqa: RUF001  # as above
    dot="·",
    branch="├─ ",
    last="└─ ",
    pipe="│  ",
    bar=("━", "╌"),
)
ASCII = Glyphs(
    running=("|", "/", "-", "\\"),
    waiting="?",
    succeeded="+",
    failed="x",
    skipped="-",
    defaulted="~",
    cancelled="!",
    interrupted="?",
    suspended="?",
    started=">",
    again="^",
    undo="<",
    more="...",
    times="x",
    into=">",
    dot="|",
    branch="|- ",
    last="`- ",
    pipe="|  ",
    bar=("#", "."),
)

TONES: dict[str, Tone] = {
    "running": "busy",
    "waiting": "wait",
    "succeeded": "good",
    "failed": "bad",
    "skipped": "dim",
    "defaulted": "warn",
    "cancelled": "warn",
    "interrupted": "wait",
    "suspended": "wait",
}


def duration(seconds: float) -> str:
    """A length of time for people: ``80 ms``, ``1.4 s``, ``3 min 20 s``, ``2 h 5 min``."""
    seconds = min(max(0.0, seconds), 1e9)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    for unit, size, part, part_size in _UNITS:
        if seconds >= size:
            whole, rest = divmod(seconds, size)
            below = int(rest // part_size)
            return f"{whole:.0f} {unit}" + (f" {below} {part}" if below else "")
    raise AssertionError(seconds)


_UNITS = (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1))


def until(due: float, now: float) -> str:
    """When something is due: ``in 12 s``, ``until 14:32 (in 3 min)``, in local time."""
    left = due - now
    if not left >= 60:  # NaN too
        return f"in {max(0.0, left):.0f} s"
    clock = local_text(due, "%H:%M" if left < 43_200 else "%a %d %b %H:%M")
    if clock == NEVER:
        return f"in {left:.3g} s"
    unit, size = next((unit, size) for unit, size, _, _ in _UNITS if left >= size)
    return f"until {clock} (in {left / size:.0f} {unit})"


NEVER = "never"


def local_text(at: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """A local date and time, or another form of ``strftime``; ``never`` if no calendar has it."""
    try:
        return time.strftime(form, time.localtime(at))
    except (OverflowError, ValueError, OSError):
        return NEVER


def pace(done: int, left: int, spent_s: float) -> str:
    """The rate and the time left: ``5.2/s, 2 min left``; empty until 3 are done and 1 s is over."""
    if done < 3 or spent_s < 1:
        return ""
    each_s = spent_s / done
    rate = f"{1 / each_s:.1f}/s" if each_s <= 1 else f"{60 / each_s:.1f}/min"
    return f"{rate}, {duration(left * each_s)} left" if left else rate


def counted(number: int, noun: str) -> str:
    """``1 step``, ``2 steps``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
