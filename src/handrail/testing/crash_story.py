"""What the processes of one run wrote down while they lived: a file of JSON lines.

It is written beside the journal, for the journal is what is put in question. Each line is one
write to the file, which a SIGKILL cannot take back.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from handrail.model import events as ev
from handrail.testing.crash_counts import Kind
from handrail.testing.crash_verdict import Verdict


class Notebook:
    """Writes the lines of one process; the first says that it began."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.write("begins")

    def write(self, what: str, *said: Any) -> None:
        """Add a line."""
        os.write(self._fd, json.dumps([what, *said]).encode() + b"\n")

    def found(self, history: Iterable[ev.Event]) -> None:
        """These events were recorded when it began."""
        self.write("found", [line for event in history for line in _found(event)])

    def record(self, number: int, name: str) -> None:
        """It is about to write this record."""
        self.write("record", number, name)

    def performs(self, kind: Kind, path: str, attempt: int, /, *, once: bool) -> None:
        """It performs this now."""
        self.write("performs", kind, path, attempt, once)


def _found(event: ev.Event) -> list[tuple[str, str, int]]:
    match event:
        case ev.StepStarted():
            return [("started", event.path, 0)]
        case ev.StepCompleted():
            return [("attempt", event.path, 0)]
        case ev.AttemptFailed():
            return [("attempt", event.path, event.attempt)]
        case ev.RollbackCompleted():
            return [("rollback", event.path, 0)]
        case _:
            return []


@dataclass
class Chapter:
    """The life of one process. Mutable while it is read."""

    found: set[tuple[str, str, int]] = field(default_factory=set[tuple[str, str, int]])
    """What was recorded when it began; attempt 0 stands for all of a step."""
    records: list[str] = field(default_factory=list[str])
    performed: list[tuple[Kind, str, int]] = field(default_factory=list[tuple[Kind, str, int]])
    once: set[str] = field(default_factory=set[str])
    """Steps that must not run twice."""
    verdict: Verdict | None = None
    interrupted: list[str] = field(default_factory=list[str])
    raised: str | None = None


def read_story(path: Path) -> list[Chapter]:
    """The lives of all processes that wrote into this file, in order."""
    story: list[Chapter] = []
    for line in path.read_text("utf-8").splitlines():
        what, *said = json.loads(line)
        if what == "begins":
            story.append(Chapter())
            continue
        chapter = story[-1]
        match what:
            case "found":
                chapter.found = {(kind, at, attempt) for kind, at, attempt in said[0]}
            case "record":
                chapter.records.append(said[1])
            case "performs":
                kind, at, attempt, once = said
                chapter.performed.append((kind, at, attempt))
                if once:
                    chapter.once.add(at)
            case "ends":
                chapter.verdict, chapter.interrupted = said
            case _:
                chapter.raised = said[0]
    return story


def times_performed(story: Iterable[Chapter]) -> Counter[str]:
    """How often each step, and each rollback, was performed by all processes together."""
    return Counter(
        path if kind == "attempt" else f"rollback of {path}"
        for chapter in story
        for kind, path, _ in chapter.performed
    )


def repeated(story: Iterable[Chapter]) -> list[str]:
    """What a process performed although its end was recorded when that process began."""
    found: list[str] = []
    for chapter in story:
        for kind, path, attempt in chapter.performed:
            whole, this = (kind, path, 0), (kind, path, attempt)
            if whole in chapter.found or this in chapter.found:
                what = "the rollback of " if kind == "rollback" else ""
                found.append(f"{what}{path!r} was performed again although its end was recorded")
    return found
