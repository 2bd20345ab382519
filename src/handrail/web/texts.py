"""The texts of one step in a run's artifacts: prompts, answers, the output of a program."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from handrail.model.dataclass import dataclass
from handrail.model.folders import numbered, run_folder, step_folder

MOST_BYTES = 256 * 1024
"""Bytes of each file; of a longer one only the end is read."""
_MOST_TURNS = 50
_MOST_TURN_CHARS = 1024 * 1024
"""Characters of all prompts and answers; beyond it earlier turns are left out."""
PLAIN = {
    "reasoning.md": "reasoning", "activity.jsonl": "activity", "stdout": "stdout",
    "stderr": "stderr",
}  # fmt: skip
"""The files besides prompts and answers, and what is in each."""


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts of one step; all are empty if there are no files.

    ``turns``: prompts, each with its answer if it has one; ``turns_before`` earlier ones are left
    out. ``activity``: the agent's tool calls and the like, a JSON object a line. ``ends``: by kind
    (``message``: the last answer), the length in bytes of the whole file when it was read.
    """

    turns: tuple[tuple[str, str | None], ...] = ()
    reasoning: str = ""
    activity: str = ""
    stdout: str = ""
    stderr: str = ""
    ends: Mapping[str, int] = field(default_factory=dict[str, int])
    turns_before: int = 0


def texts_of(artifacts: Path, workflow_name: str, run_id: str, path: str) -> Texts:
    """Read the texts of the step at a path; ``artifacts`` is the folder of all runs' artifacts."""
    folder = artifacts / run_folder(workflow_name, run_id) / step_folder(path)
    turns: list[tuple[str, str | None]] = []
    ends: dict[str, int] = {}

    def read(name: str, kind: str) -> str | None:
        found = _end_of(folder / name)
        if found is None:
            return None
        ends[kind] = found[1]
        return found[0]

    last = last_turn(folder)
    left = _MOST_TURN_CHARS
    for number in range(last, max(0, last - _MOST_TURNS), -1):
        prompt = _end_of(folder / numbered("prompt.md", number))
        answer = read(numbered("answer.md", number), "message" if number == last else "")
        left -= len(prompt[0] if prompt else "") + len(answer or "")
        if left < 0 and turns:
            break
        turns.insert(0, (prompt[0] if prompt else "", answer))
    ends.pop("", None)
    plain = {name: read(name, kind) or "" for name, kind in PLAIN.items()}
    return Texts(
        tuple(turns),
        plain["reasoning.md"],
        plain["activity.jsonl"],
        plain["stdout"],
        plain["stderr"],
        ends,
        last - len(turns),
    )


def last_turn(folder: Path) -> int:
    """The number of the last prompt, from 1; 0: there is none."""
    number = 0
    while (folder / numbered("prompt.md", number + 1)).exists():
        number += 1
    return number


def _end_of(file: Path) -> tuple[str, int] | None:
    """The end of a file as text, and its length in bytes; None if it is no plain file."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    with os.fdopen(descriptor, "rb") as stream:
        known = os.fstat(descriptor)
        if not stat.S_ISREG(known.st_mode):
            return None
        start = max(0, known.st_size - MOST_BYTES)
        stream.seek(start)
        data = stream.read(MOST_BYTES)
        return data.decode("utf-8", "ignore"), start + len(data)
