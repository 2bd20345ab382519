"""What a run's files for people say of one step: prompts, answers, what a program printed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from handrail.model.folders import numbered, run_folder, step_folder

MOST_BYTES = 256 * 1024
"""Of each file; of a longer one the end is told."""
_MOST_TURNS = 50


@dataclass(frozen=True, slots=True)
class Texts:
    """All empty if there are no files. ``turns``: prompts, each with its answer if it has one."""

    turns: tuple[tuple[str, str | None], ...] = ()
    reasoning: str = ""
    stdout: str = ""
    stderr: str = ""


def texts_of(artifacts: Path, workflow_name: str, run_id: str, path: str) -> Texts:
    """Read them from below the folder that the artifacts of all runs are in."""
    folder = artifacts / run_folder(workflow_name, run_id) / step_folder(path)
    turns: list[tuple[str, str | None]] = []
    for number in range(1, _MOST_TURNS + 1):
        prompt = _end_of(folder / numbered("prompt.md", number))
        if prompt is None:
            break
        turns.append((prompt, _end_of(folder / numbered("answer.md", number))))
    return Texts(
        tuple(turns),
        _end_of(folder / "reasoning.md") or "",
        _end_of(folder / "stdout") or "",
        _end_of(folder / "stderr") or "",
    )


def _end_of(file: Path) -> str | None:
    """The end of a file as text; None if there is none, or it is no plain file."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    with os.fdopen(descriptor, "rb") as stream:
        size = os.fstat(descriptor).st_size
        stream.seek(max(0, size - MOST_BYTES))
        return stream.read(MOST_BYTES).decode("utf-8", "replace")
