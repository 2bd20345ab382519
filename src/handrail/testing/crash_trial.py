"""One run in processes that are killed as planned, and what they may do."""

from __future__ import annotations

import os
import shutil
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import anyio
import attrs

from handrail.engine.executor import Engine
from handrail.errors import WrongUse
from handrail.journals.sqlite.journal import SqliteJournal
from handrail.ports.journal import Journal
from handrail.testing.clock import JumpClock
from handrail.testing.crash_child import in_child
from handrail.testing.crash_counts import counted
from handrail.testing.crash_drive import Errand
from handrail.testing.crash_journal import CrashingJournal
from handrail.testing.crash_points import Plan, Point
from handrail.testing.crash_story import Chapter, Notebook, read_story, times_performed
from handrail.testing.crash_verdict import interrupted_steps, verdict_of

_EMPTY = "empty.db"
MakeExecutor: TypeAlias = Callable[[Journal], Engine]


@attrs.frozen
class Allowed:
    """How often a step may be performed, by path or name; ``default``: the others."""

    executions: Mapping[str, int]
    default: int | None

    def exceeded(self, story: Sequence[Chapter], usual: Counter[str]) -> list[str]:
        """What was performed more often, in words; ``usual``: how often it is without a crash."""
        once = set[str]().union(*(chapter.once for chapter in story))
        kills = len(story) - 1
        found: list[str] = []
        for what, times in times_performed(story).items():
            most = 1 if what in once else self._most(what, usual[what] + kills)
            if times > most:
                by = "1 process" if len(story) == 1 else f"{len(story)} processes"
                found.append(f"{what!r} was performed {times} times by {by}, {most} allowed")
        return found

    def _most(self, what: str, otherwise: int) -> int:
        by_name = self.executions.get(what.rpartition("/")[2], self.default)
        declared = self.executions.get(what, by_name)
        return otherwise if declared is None else declared


@attrs.frozen
class Trial:
    """A run that can be had again and again: each has its own files in ``home``."""

    errand: Errand
    executor: MakeExecutor
    home: Path
    timeout_s: float

    def prepare(self) -> None:
        """Make an empty journal to copy, and import all that children would import one by one."""
        journal = SqliteJournal(self.home / _EMPTY)
        journal.runs()
        journal.close()
        anyio.run(anyio.sleep, 0)

    def run(self, plan: Plan = (), name: str = "") -> list[Chapter]:
        """The lives of the processes that were killed as planned, and of the one that was not."""
        name = name or name_of(plan)
        story: list[Chapter] = []
        shutil.copy(self.home / _EMPTY, self.home / f"{name}.db")
        for point in (*plan, None):
            status = in_child(lambda p=point: self._live(name, p), self.timeout_s)  # type: ignore[misc]  # bound now
            story = read_story(self.home / f"{name}.jsonl")
            last = story[-1]
            if status is None:
                last.raised = f"it did not end within {self.timeout_s:g} s and was killed"
            elif point is None and last.verdict is None and last.raised is None:
                last.raised = f"its process died by itself, with {_died_of(status)}"
            if last.verdict is not None or last.raised is not None:
                break
        return story

    def _live(self, name: str, point: Point | None) -> None:
        """The whole life of a child process."""
        notes = Notebook(self.home / f"{name}.jsonl")
        try:
            inner = SqliteJournal(self.home / f"{name}.db")
            history = inner.events(self.errand.run_id)
            notes.found(history)
            journal = CrashingJournal(inner, point, notes.record)
            executor = self._executor(journal, history[-1].at if history else None)
            with counted(notes.performs):
                result = anyio.run(self.errand.finish, executor, journal)
            verdict = verdict_of(result, journal.codec)
            notes.write("ends", dict(verdict), interrupted_steps(result))
        except BaseException:  # noqa: BLE001  # the parent tells of it
            notes.write("raises", traceback.format_exc())

    def _executor(self, journal: Journal, since: float | None) -> Engine:
        """The executor, whose clock does not go back behind what is recorded."""
        executor = self.executor(journal)
        parts = executor._parts  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # the kit knows the engine
        if parts.journal is not journal:
            raise WrongUse(
                "the executor of crash_everywhere must use the journal that it is given: "
                "executor=lambda journal: Executor(journal=journal, ...)"
            )
        if since is not None and isinstance(parts.clock, JumpClock):
            parts.clock.set(max(since, parts.clock.now()))
        return executor


def name_of(plan: Plan) -> str:
    """What the files of a plan are called."""
    return "-".join(f"{number}-{when}" for number, when in plan) or "whole"


def _died_of(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    return f"exit code {os.waitstatus_to_exitcode(status)}"
