"""``handrail report``: a run as Markdown for a pull request, ticket or CI job, or as one HTML file.

Lines are quoted as code, by a fence longer than any in them, so no text of a step is markup, except
the value of a run that succeeded with Markdown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from handrail import addons
from handrail.cli.channels import tell
from handrail.cli.exits import Exit, Refused
from handrail.cli.journal import Place, pick_run, read
from handrail.cli.masking import mask_text
from handrail.cli.options import KEPT, Kept, RunId
from handrail.cli.report import first_lines, readable
from handrail.cli.run_text import describe_status, format_spending, reason_lines, run_sections
from handrail.cli.target import reaching
from handrail.ports.journal import RunInfo
from handrail.record.view import RunView
from handrail.shortening import without_codes
from handrail.system.own_files import open_private

MOST_LINES = 300
"""Lines of one section."""
_MARKS = {
    "succeeded": "✅",
    "failed": "❌",
    "cancelled": "🚫",
    "running": "▶️",
    "waiting": "⏸️",
    "suspended": "⏸️",
    "paused": "⏸️",
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
    text = mask_text(markdown_of(recorded.info, recorded.view, reaching(place, recorded.info)))
    text = without_codes(text.encode(errors="backslashreplace").decode())
    if summary is not None:
        _write(summary, text, "a")
    if output is not None:
        is_markdown = markdown or output.suffix.lower() in {".md", ".markdown"}
        page_of = None if is_markdown else addons.load(addons.PAGES, "report")
        _write(output, text if page_of is None else page_of(recorded, place))
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


_HANDLED = "What failed on the way, and was handled"
_ORDER = (
    "Value", "Needs a person", "Failed", "What failed, and why", "Cost", _HANDLED, "Waits for",
    "To continue",
    "The run", "Steps", "Queues", "Messages", "Incidents",
)  # fmt: skip
_MARKUP = re.compile(r"^(#{1,6} |\||[-*+] |\d+\. |> |`{3})|\*\*\S|\]\(", re.MULTILINE)


def markdown_of(info: RunInfo, view: RunView, place: Place) -> str:
    """The report as Markdown: the lines of ``show``, with what matters to people first."""
    status = describe_status(info)
    mark = _MARKS.get(status.partition(" ")[0], "⏺️")
    sections = dict(run_sections(info, view, place, most_of_a_value=MOST_LINES))
    succeeded = view.end is not None and view.end.status == "succeeded"
    sections[_HANDLED if succeeded else "What failed, and why"] = reason_lines(view)
    sections["Cost"] = [format_spending(view.spent)] if view.spent.launches else []
    text = f"## {mark} {_code(info.workflow_name)} {status}\n"
    for title in _ORDER:
        if title == "Value" and (markup := _markup(view)):
            text += f"\n{markup}\n"
        elif sections.get(title):
            text += f"\n### {title}\n\n{_fenced(first_lines(sections[title], MOST_LINES))}\n"
    return text


def _markup(view: RunView) -> str:
    """The value of a run, if it is a text with Markdown; else empty."""
    value = None if view.end is None else readable(view.end.value)
    if not isinstance(value, str) or not _MARKUP.search(value):
        return ""
    return "\n".join(first_lines(mask_text(value).strip(), MOST_LINES))


def _code(text: str) -> str:
    """The text as inline code."""
    flat = " ".join(text.split()) or " "
    marks = "`" * (_longest_fence(flat) + 1)
    pad = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{marks}{pad}{flat}{pad}{marks}"


def _fenced(lines: Sequence[str]) -> str:
    """The lines as a code block."""
    text = "\n".join(lines)
    marks = "`" * max(3, _longest_fence(text) + 1)
    return f"{marks}text\n{text}\n{marks}"


def _longest_fence(text: str) -> int:
    return max((len(found) for found in re.findall("`+", text)), default=0)
