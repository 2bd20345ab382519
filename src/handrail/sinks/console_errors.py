"""Errors for people: their line breaks kept, and those of groups traced to where they began.

A composite's error holds that of the member that failed it, and so on inwards, so whoever prints
them all prints one error many times. ``Cause`` finds the one that it began with.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from handrail.model.results import StepResult
from handrail.sinks.console_text import clean, error_text

INDENT = "    "
WIDTH = 500
"""Characters of one line of an error."""

_HEAD = 5
_FOLLOWS = 200
_KEPT = 1_000
_ATTEMPT = re.compile(r"~\d+\Z")


@dataclass(frozen=True, slots=True)
class Cause:
    """A failure as it was recorded, and the one inside of it that it came from, if it is known."""

    path: str
    name: str
    error: str
    error_type: str | None = None
    inner: Cause | None = None

    @property
    def origin(self) -> Cause:
        """The innermost failure: the step that failed by itself."""
        found = self
        while found.inner is not None:
            found = found.inner
        return found

    def brings(self, error: str) -> bool:
        """True if this is what the error of a step around it speaks of."""
        before, found, _ = error.partition(self.error)
        return bool(found) and (
            f"{self.name!r} failed" in before or f"{self.path!r} failed" in before
        )

    def named(self, above: str = "") -> str:
        """``at checks/0/check; 2 more failed``: where it began, seen from the path ``above``."""
        path = self.origin.path
        where = f"at {clean(path.removeprefix(f'{above}/') if above else path)}"
        rest = "" if self.inner is None else self.error.partition(self.inner.error)[2]
        return where + clean(rest, _FOLLOWS) if rest.startswith("; ") else where

    def in_short(self) -> str:
        """The first line of the error it began with, after its path."""
        found = self.origin
        return f"{clean(found.path)}: {first_line(found.error, found.error_type)}"


class Causes:
    """The failures that were told, until what is around them has ended too. Mutable."""

    def __init__(self) -> None:
        self._below: dict[str, list[Cause]] = {}

    def below(self, path: str, error: str) -> Cause | None:
        """The failure below a path that its error comes from; those of its last attempt first."""
        failed = reversed(self._below.get(path, ()))
        return next((cause for cause in failed if cause.brings(error)), None)

    def ended(self, path: str, result: StepResult[Any]) -> Cause:
        """The failure of a step, or one that a default took the place of."""
        error = result.error or ""
        cause = Cause(path, result.name, error, result.error_type, self.below(path, error))
        self._below.pop(path, None)
        if result.status == "failed":
            self._keep(_ATTEMPT.sub("", path.rpartition("/")[0]), cause)
        return cause

    def _keep(self, above: str, cause: Cause) -> None:
        failed = self._below.setdefault(above, [])
        if len(failed) < _KEPT:
            failed.append(cause)
        if len(self._below) > _KEPT:  # of groups that went on, and of bodies that caught it
            del self._below[next(iter(self._below))]


def first_line(error: str, error_type: str | None = None) -> str:
    """An error's first line, with a sign if there are more."""
    lines = _lines(error)
    said = error_text(lines[0] if lines else "", error_type, WIDTH)
    return f"{said} ..." if len(lines) > 1 else said


def error_lines(error: str | None, error_type: str | None = None, *, most: int = 20) -> list[str]:
    """An error as lines, the first with the name of its class; of very many the first and the last.

    Those after the first are indented, and keep the blanks that they begin with.
    """
    lines = _lines(error or "")
    if len(lines) <= 1:
        said = error_text(error, error_type, WIDTH)
        return [said] if said else []
    if len(lines) > most:
        head = min(_HEAD, most // 2)
        tail = most - head - 1
        left_out = f"... {len(lines) - head - tail} lines left out ..."
        lines = [*lines[:head], left_out, *lines[-tail:]]
    first, *others = lines
    return [error_text(first, error_type, WIDTH), *(f"{INDENT}{printable(one)}" for one in others)]


def _lines(error: str) -> list[str]:
    """The lines that say something, without the blanks that all after the first begin with."""
    lines = [line for line in error.expandtabs(4).splitlines() if line.strip()]
    margin = min((len(line) - len(line.lstrip()) for line in lines[1:]), default=0)
    return [*lines[:1], *(line[margin:] for line in lines[1:])]


def printable(line: str) -> str:
    """A line of text, indented as it was, without terminal codes."""
    blank = len(line) - len(line.lstrip())
    return " " * min(blank, 40) + clean(line, WIDTH)
