"""Texts for people: errors traced to their origins, names of steps, and usage.

A composite's error contains the error of the member that failed it, and so on inwards. To print
them all would print one error many times. ``FailureCause`` has the original error.
"""

from __future__ import annotations

import os
from pathlib import Path

from handrail.model.events import GateAnswered
from handrail.model.paths import decode_key
from handrail.model.results import Skipped, Usage, WaitsFor
from handrail.record.live_view import LiveStep
from handrail.record.spending import Spent
from handrail.record.view import FailureCause, StepView, exit_code_of
from handrail.shortening import clean, error_text, reason_of
from handrail.sinks.console_text import Glyphs, duration, local_text, path_text

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


def cause_in_short(cause: FailureCause, most: int = 200) -> str:
    """The reason that a failure began with, after its path."""
    return f"{path_text(cause.origin.path)}: {error_of(cause.origin, most)}"


def error_of(cause: FailureCause, most: int = 200) -> str:
    """The reason of a failure, on one line, and where the author's code is."""
    return reason_of(cause.error, cause.error_type, most) + at_line(cause)


def at_line(cause: FailureCause) -> str:
    """`` (flows.py:14)``: the last line of the author's code that a failure passed.

    Nothing if there is none, or the error itself names it.
    """
    if cause.inner is not None or cause.place in cause.error:
        return ""
    return f" ({clean(cause.place.removeprefix(f'{Path.cwd()}{os.sep}'))})"


def handled_text(step: StepView) -> str:
    """``by its fallback, after Gone: no``: the failures that a step handled, or its exit code."""
    status, handled, exit_code = step.state, step.handled, exit_code_of(step.output)
    if exit_code and status == "succeeded":
        return f"exit code {exit_code}"
    if status == "succeeded" and handled:
        return f"by its fallback, after {error_text(handled[0].error, handled[0].error_type)}"
    before = handled if status == "failed" else handled[:-1]
    return "; ".join(f"before that {error_text(one.error, one.error_type)}" for one in before)


def answer_text(event: GateAnswered) -> str:
    """``answered yes by ana``."""
    by = f" by {clean(event.by, 80)}" if event.by else ""
    return f"answered {clean(event.answer, 80)}{by}"


def facts_of(step: StepView) -> list[str]:
    """What is told of a step besides its state, times, error, and what it handled."""
    parts: list[str] = []
    if isinstance(step.output, Skipped):
        parts.append(clean(step.output.reason))
    if step.answer is not None:
        parts.append(answer_text(step.answer))
    if step.undone is not None:
        failed = step.undone.error
        why = "" if failed is None else error_text(failed, step.undone.error_type)
        parts.append("undone" if failed is None else f"rollback failed: {why}")
    if step.spent is not None and step.spent.launches:
        parts.append(spent_text(step.spent).removeprefix("1 launch, "))
    if step.given_by:
        parts.append(f"given by {clean(step.given_by)}")
    if step.told:
        people = ", ".join(clean(one, 80) for one in dict.fromkeys(one.by for one in step.told))
        times = f", {len(step.told)} times" if len(step.told) > 1 else ""
        parts.append(f"guided by {people}{times}")
    return [part for part in parts if part]


def step_words(step: StepView, glyphs: Glyphs, *, counts: str = "") -> tuple[list[str], list[str]]:
    """What every form tells of a step after its name and kind, and more lines of its error.

    Of an error that a step inside has told, only where that is. ``counts``: of a group.
    """
    words: list[str] = [] if step.state == "succeeded" else [step.state]
    words += [counts] if counts else []
    words += [f"{glyphs.times}{step.attempts}"] if step.attempts > 1 else []
    if step.duration_ms is not None and step.state != "skipped":
        words.append(duration(step.duration_ms / 1000))
    words += facts_of(step)
    cause, others = step.cause, list[str]()
    if cause is not None and cause.inner is not None:
        words.append(origin_from(cause, step.path))
    elif cause is not None and (lines := error_lines(cause.error, cause.error_type)):
        words.append(lines[0] + at_line(cause))
        others = lines[1:]
    handled = handled_text(step)
    return [*words, handled] if handled else words, others


def wait_text(wait: WaitsFor, most: int = 200) -> str:
    """``an answer: Merge it?``: what is waited for, on one line, and until when."""
    what = clean(wait.what, most)
    match wait.kind:
        case "answer":
            text = f"an answer: {what}"
        case "signal":
            text = f"the signal {what}"
        case "person":
            text = f"a person: {what}"
        case "time":
            text = f"{path_text(wait.path)} ({what.replace('_', ' ')})"
        case "claim":
            text = f"{what}, behind {clean(wait.whom) or 'another step'}"
        case "unpause":
            text = f"an unpause (paused by {what})"
    return text if wait.until is None else f"{text} until {local_text(wait.until)}"


def name_of(step: LiveStep) -> str:
    """The name of a step in its row."""
    match step.kind:
        case "round":
            return f"round {step.name}"
        case "rollback":
            return f"undo {clean(decode_key(step.name))}"
        case _:
            return clean(decode_key(step.name), 80)


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
