"""``handrail report``: a run as Markdown for a pull request, ticket or CI job, or as one HTML file.

Texts of a step are never markup: they are quoted as code, by a fence longer than any in the text.
"""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from handrail import addons
from handrail.cli.channels import tell
from handrail.cli.exits import Exit, Refused
from handrail.cli.journal import pick_run, read
from handrail.cli.masking import mask_text, mask_value
from handrail.cli.options import KEPT, Kept, RunId
from handrail.cli.report import format_time
from handrail.cli.show import describe_status
from handrail.model.results import WaitsFor
from handrail.ports.journal import RunInfo
from handrail.record.view import RunView, StepView, plain
from handrail.shortening import without_codes
from handrail.sinks.console_text import duration, path_text
from handrail.sinks.console_words import spent_text
from handrail.system.own_files import open_private
from handrail.typed.jsonsafe import json_safe

MOST_STEPS = 200
MOST_REASONS = 20
_LONG = 4_000
_MARKS = {
    "succeeded": "✅",
    "failed": "❌",
    "cancelled": "🚫",
    "running": "▶️",
    "waiting": "⏸️",
    "suspended": "⏸️",
}


def report(
    run: RunId,
    /,
    *,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    markdown: bool = False,
    github: bool = False,
    kept: Kept = KEPT,
) -> int:
    """Write a run as one HTML file that opens without a network, or print it as Markdown.

    Parameters
    ----------
    output
        The file: HTML, or Markdown if its name ends in .md. Without it, Markdown is printed.
    markdown
        Write Markdown, whatever the file's name.
    github
        Add it to the summary of the current GitHub job, $GITHUB_STEP_SUMMARY.
    """
    summary = _summary_of_job() if github else None
    place = kept.place()
    journal = place.find()
    recorded = read(journal, pick_run(journal, run))
    text = mask_text(markdown_of(recorded.info, recorded.view))
    text = without_codes(text.encode(errors="backslashreplace").decode())
    if summary is not None:
        _write(summary, text, "a")
    if output is not None:
        is_markdown = markdown or output.suffix.lower() in {".md", ".markdown"}
        _write(
            output, text if is_markdown else addons.load(addons.PAGES, "report")(recorded, place)
        )
        tell(f"the report is in {output}")
    elif summary is None:
        print(text.encode(errors="backslashreplace").decode(), end="")
    return Exit.SUCCEEDED


def _write(file: Path, text: str, mode: Literal["w", "a"] = "w") -> None:
    try:
        with open_private(file, mode, encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
    except OSError as error:
        raise Refused(str(file), f"cannot be written: {error.strerror}") from None


def _summary_of_job() -> Path:
    """The file of the summary of the GitHub job that this runs in.

    Raises:
        Refused: it runs in none.
    """
    named = os.environ.get("GITHUB_STEP_SUMMARY")
    if not named:
        raise Refused("--github", "only works in a GitHub job: GITHUB_STEP_SUMMARY is not set")
    return Path(named)


def markdown_of(info: RunInfo, view: RunView) -> str:
    """The report as Markdown."""
    return "\n".join(_lines(info, view)) + "\n"


def _lines(info: RunInfo, view: RunView) -> Iterator[str]:
    status = describe_status(info)
    yield f"## {_MARKS.get(status.partition(' ')[0], '⏺️')} {_code(info.workflow_name)} {status}"
    by_a_person = [one for one in view.waits_for if one.kind not in {"time", "claim"}]
    by_itself = [one for one in view.waits_for if one.kind in {"time", "claim"}]
    yield from _section("Needs a person", map(_wait, by_a_person))
    end = view.end
    if end is not None and end.error:
        yield from _section("Failed", _fenced(end.error))
    yield from _section("What failed, and why", _reasons(view))
    if view.spent.launches:
        yield from _section("Cost", [spent_text(view.spent)])
    yield from _section("Waits for", (f"- {_code(str(one))}" for one in by_itself))
    yield from _section("The run", _table(("", ""), _facts(info, view)))
    yield from _section("Steps", _steps(view))
    yield from _section("What went wrong on the way", _failures(view))
    incidents = (
        f"- {_code(path_text(one.step.path))}: {one.kind}, {_code(_line(one.step.error))}"
        for one in view.incidents
    )
    yield from _section("Incidents", incidents)
    if end is not None and end.value is not None:
        yield from _section("Value", _fenced(_text(end.value)))


def _facts(info: RunInfo, view: RunView) -> Iterator[tuple[str, str]]:
    yield "run", _code(info.run_id)
    if info.forked_from is not None:
        run_id, at = info.forked_from
        yield "forked from", _code(run_id) + (f" at {_code(at)}" if at else "")
    yield "started", format_time(info.started_at)
    yield "took", duration(info.updated_at - info.started_at)
    for name, value in dict(view.inputs or {}).items():
        yield f"input {_code(str(name))}", _code(_line(_text(value)))


def _wait(one: WaitsFor) -> str:
    question = f": {_code(_line(one.what))}" if one.kind == "answer" else ""
    return f"- {_code(str(one))}{question}"


def _reasons(view: RunView) -> Iterator[str]:
    """A line for each step that failed by itself."""
    failed = [
        one
        for one in view.steps
        if one.state == "failed" and one.cause is not None and one.cause.inner is None
    ]
    for one in failed[:MOST_REASONS]:
        yield f"- {_code(path_text(one.path))}: {_code(one.reason or '')}"
    if len(failed) > MOST_REASONS:
        yield f"- ... and {len(failed) - MOST_REASONS} more"


def _steps(view: RunView) -> Iterator[str]:
    rows = [
        (
            "&nbsp;" * 4 * one.depth + _code(path_text(one.path)),
            f"{_MARKS.get(one.state, '')} {one.state}".strip(),
            "" if one.duration_ms is None else duration(one.duration_ms / 1000),
            str(one.attempts) if one.attempts > 1 else "",
            "" if one.spent is None else spent_text(one.spent),
        )
        for one in view.steps[:MOST_STEPS]
    ]
    if rows:
        yield from _table(("step", "state", "took", "attempts", "agents"), rows)
    if len(view.steps) > MOST_STEPS:
        yield f"\n... and {len(view.steps) - MOST_STEPS} steps more"


def _failures(view: RunView) -> Iterator[str]:
    for one in view.steps:
        for failure in one.handled:
            yield f"- {_code(path_text(one.path))} {one.state} after {_code(_line(failure.error))}"
        if one.state == "failed" and one.cause is not None and one.cause.inner is None:
            yield from _details(one)


def _details(one: StepView) -> Iterator[str]:
    assert one.cause is not None
    yield ""
    yield f"<details><summary>{html.escape(path_text(one.path), quote=False)}</summary>"
    yield ""
    yield from _fenced(one.cause.error)
    yield ""
    yield "</details>"


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    found = list(lines)
    if found:
        yield from ("", f"### {title}", "", *found)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


def _text(value: Any) -> str:
    value = mask_value(plain(value, tagged=False))
    if isinstance(value, str):
        return value
    return json.dumps(json_safe(value), ensure_ascii=False, indent=2)


def _line(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 120 else f"{flat[:117]}..."


def _code(text: str) -> str:
    """The text as inline code."""
    flat = " ".join(text.split()) or " "
    marks = "`" * (_longest_fence(flat) + 1)
    pad = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{marks}{pad}{flat}{pad}{marks}"


def _fenced(text: str) -> list[str]:
    """The text as lines of a code block; the middle of a very long one is cut."""
    if len(text) > _LONG:
        text = f"{text[: _LONG // 2]}\n...\n{text[-_LONG // 2 :]}"
    marks = "`" * max(3, _longest_fence(text) + 1)
    return [f"{marks}text", *text.splitlines(), marks]


def _longest_fence(text: str) -> int:
    return max((len(found) for found in re.findall("`+", text)), default=0)
