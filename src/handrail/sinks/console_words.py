"""Texts for people: errors traced to their origins, names of steps, and usage.

A composite's error contains the error of the member that failed it, and so on inwards. To print
them all would print one error many times. ``FailureCause`` has the original error.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from handrail.model.paths import decode_key
from handrail.model.results import Failure, Usage
from handrail.record.live_view import LiveStep
from handrail.record.spending import Spent
from handrail.record.view import FailureCause
from handrail.shortening import TRACEBACK, clean, reason_of
from handrail.sinks.console_text import error_text, path_text

INDENT = "    "
WIDTH = 500
"""Characters of one line of an error."""

_HEAD = 5
_FOLLOWS = 200


def origin_from(cause: FailureCause, above: str = "") -> str:
    """``at checks/0/check; 2 more failed``: where a failure began, seen from the path ``above``."""
    path = cause.origin.path
    where = f"at {path_text(path.removeprefix(f'{above}/') if above else path)}"
    rest = "" if cause.inner is None else cause.error.partition(cause.inner.error)[2]
    return where + clean(rest, _FOLLOWS) if rest.startswith("; ") else where


def cause_in_short(cause: FailureCause) -> str:
    """The first line of the error that a failure began with, after its path."""
    origin = cause.origin
    return (
        f"{path_text(origin.path)}: {first_line(origin.error, origin.error_type)}{at_line(origin)}"
    )


def error_of(cause: FailureCause) -> str:
    """A failure on one line; of a long error only its first line."""
    said = error_text(cause.error, cause.error_type)
    if len(said) > _SHORT:
        said = first_line(cause.error, cause.error_type)
    return said + at_line(cause)


def at_line(cause: FailureCause) -> str:
    """`` (flows.py:14)``: the last line of the author's code that a failure passed.

    Nothing if there is none, or the error itself names it.
    """
    if cause.inner is not None or cause.place in cause.error:
        return ""
    return f" ({clean(cause.place.removeprefix(f'{Path.cwd()}{os.sep}'))})"


def handled_text(status: str, handled: Sequence[Failure], exit_code: int = 0) -> str:
    """``by its fallback, after Gone: no``: the failures that a step handled, or its exit code."""
    if exit_code and status == "succeeded":
        return f"exit code {exit_code}"
    if status == "succeeded" and handled:
        return f"by its fallback, after {error_text(handled[0].error, handled[0].error_type)}"
    before = handled if status == "failed" else handled[:-1]
    return "; ".join(f"before that {error_text(one.error, one.error_type)}" for one in before)


def name_of(step: LiveStep) -> str:
    """The name of a step in its row."""
    match step.kind:
        case "round":
            return f"round {step.name}"
        case "rollback":
            return f"undo {clean(decode_key(step.name))}"
        case _:
            return clean(decode_key(step.name), 80)


def first_line(error: str, error_type: str | None = None) -> str:
    """An error's first line, with `` ...`` after it if there are more."""
    lines = _lines(error)
    if lines and lines[0].endswith(TRACEBACK):
        return reason_of(error, error_type)
    said = error_text(lines[0] if lines else "", error_type, WIDTH)
    return f"{said} ..." if len(lines) > 1 else said


def error_lines(error: str | None, error_type: str | None = None, *, most: int = 20) -> list[str]:
    """An error as lines, the first with the name of its class; the middle of very many is left out.

    Lines after the first are indented, and keep their indentation among themselves.
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
    """The nonblank lines, without the indentation that all lines after the first share."""
    lines = [line for line in error.expandtabs(4).splitlines() if line.strip()]
    margin = min((len(line) - len(line.lstrip()) for line in lines[1:]), default=0)
    return [*lines[:1], *(line[margin:] for line in lines[1:])]


def printable(line: str) -> str:
    """A line of text, indented as it was, without terminal codes."""
    blank = len(line) - len(line.lstrip())
    return " " * min(blank, 40) + clean(line, WIDTH)


_SHORT = 80


def usage_text(usage: Usage | None, unknown_tokens: int = 0, unknown_cost: int = 0) -> str:
    """``120k in, 4.5k out, $0.41``; ``?``: unknown, ``at least``: launches did not report all."""
    usage = usage or Usage()
    tokens = "tokens ?"
    if usage.tokens is not None:
        tokens = f"{_count(usage.input_tokens)} in, {_count(usage.output_tokens)} out"
        if unknown_tokens:
            tokens = f"at least {tokens}"
    cost = "$?" if usage.cost_usd is None else _dollars(usage)
    if usage.cost_usd is not None and unknown_cost and not tokens.startswith("at least"):
        cost = f"at least {cost}"
    return f"{tokens}, {cost}"


def spent_text(spent: Spent) -> str:
    """``5 launches, 120k in, 4.5k out, $0.41``."""
    launches = f"{spent.launches} launch{'es' * (spent.launches != 1)}"
    return f"{launches}, {usage_text(spent.usage, spent.unknown_tokens, spent.unknown_cost)}"


def _count(number: int | None) -> str:
    if number is None:
        return "?"
    if number < 1_000:
        return str(number)
    size, unit = (1_000, "k") if number < 999_500 else (1_000_000, "M")
    scaled = number / size
    return f"{scaled:.1f}".removesuffix(".0") + unit if scaled < 10 else f"{scaled:.0f}{unit}"


def _dollars(usage: Usage) -> str:
    cost = usage.cost_usd or 0.0
    about = "about " if usage.cost_source == "table" else ""
    return f"{about}${cost:.2f}" if cost >= 0.01 or not cost else f"{about}${cost:.2g}"
