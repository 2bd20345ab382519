"""Steps that the code describes otherwise than the record, for people who must say what counts."""

from __future__ import annotations

from collections.abc import Sequence

from handrail.cli.journal import Place
from handrail.errors import StepChange


def was_and_now(change: StepChange) -> tuple[str, str]:
    """What the step was and what it is, as two lines."""
    return f"was  {_one_line(change.was)}", f"now  {_one_line(change.now)}"


def choices_between(
    run_id: str, changes: Sequence[StepChange], place: Place, chosen: Sequence[str] = ()
) -> list[str]:
    """The two commands, ready to be typed: one keeps what is recorded, one runs all again; with
    what was ``chosen`` already.
    """
    lines: list[str] = []
    for option, why in (("--reuse", "keep what is recorded"), ("--rerun", "run again")):
        words = [word for change in changes for word in (option, change.path)]
        lines.append(f"{f'{why}:':24}{place.command('resume', run_id, *chosen, *words)}")
    return lines


def _one_line(text: str) -> str:
    return " ".join(text.split())
