"""The walks of docs/explanation/core.md are what small runs go through."""

from __future__ import annotations

import inspect
import re
import sys
import threading
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from handrail import (
    Executor,
    SqliteJournal,
    Step,
    StepResult,
    Steps,
    WorkflowContext,
    step,
    workflow,
)
from tests.test_core_map import PAGE, function_named

WALK_OF = {
    title.lower(): re.findall(
        r"`([a-z_]+(?:\.[A-Za-z_]+)+)`", "\n".join(re.findall(r"(?m)^\d+\. (?:.|\n(?=   ))+", text))
    )
    for title, text in re.findall(r"(?ms)^## The life of an? (\w+)\n(.*?)(?=^## |\Z)", PAGE)
}
"""The functions of each numbered list, in the order in which it names them."""


EITHER_WAY = {
    "failing.fall_back": "failing.fallback_chosen",
    "failing.fallback_ended": "failing.fail_for_good",
    "ending.undo": "ending.rollback_completed",
    "run_record.Recorded.take": "record.inbox.sort_messages",
    "replaying.replay": "changes.note_step_change",
    "changes.note_step_change": "changes.note_change",
}
"""Neighbours whose first is called behind the second, too: for the fallback, or the next step."""


def codes_called(act: Callable[[], Any]) -> list[CodeType]:
    """The code of each Python function that is called, on any thread."""
    codes: list[CodeType] = []
    beginnings: dict[CodeType, int] = {}

    def note(frame: FrameType, what: str, _argument: object) -> None:
        code, place = frame.f_code, frame.f_lasti
        if what == "call" and beginnings.setdefault(code, place) == place:
            codes.append(code)  # else a coroutine or generator continues

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    return codes


def first_not_reached(walk: list[str], codes: list[CodeType]) -> str | None:
    """The first function of a walk that is not called behind those before it; None if all are."""
    calls = iter(codes)
    for name in walk:
        code = inspect.unwrap(function_named(name)).__code__
        if code not in calls:
            return name
    return None


def wrote(text: str) -> str:
    """The output of a step that succeeds."""
    return text


def fails() -> str:
    """A step that fails."""
    raise OSError("no network")


def forget(_context: WorkflowContext) -> None:
    """A rollback without an effect."""


def instead(_context: WorkflowContext, _failed: StepResult[Any]) -> Step[str]:
    """A fallback that fails, too."""
    return step("mirror").call(fails)


def release_of(word: str, upload: Callable[[], str]) -> Any:
    """A workflow of a group, a rollback, and a step that is retried and has a fallback."""

    @workflow("release")
    def release() -> Steps[str]:
        yield from step("checks").parallel(step("style").call(wrote, "style"))
        yield from step("build").call(wrote, word).with_rollback(forget)
        return (yield from step("upload").call(upload).retry(2, backoff=0).on_error(instead))

    return release


@workflow
def build() -> Steps[str]:
    """A workflow of one step, which has a rollback."""
    return (yield from step("build").call(wrote, "build").with_rollback(forget))


@pytest.fixture
def drive_of(tmp_path: Path) -> dict[str, Callable[[], Any]]:
    """What drives a run for each walk. Those that it begins from are in the journal by then."""
    journal = SqliteJournal(tmp_path / "runs.db")
    works = release_of("build", partial(wrote, "up"))
    broken = release_of("build", fails)
    executor = Executor(journal=journal)
    failed, succeeded = executor.run_sync(broken), executor.run_sync(works)
    changed = Executor(journal=journal, workflows=[release_of("another", partial(wrote, "up"))])
    return {
        "step": lambda: executor.run_sync(build),
        "failure": lambda: executor.run_sync(broken),
        "resume": lambda: executor.resume_sync(failed.run_id, works),
        "fork": lambda: changed.resume_sync(changed.fork_sync(succeeded.run_id)),
    }


def test_the_page_has_four_walks() -> None:
    """The page has the lives of a step, a failure, a resume and a fork, each of many functions."""
    assert list(WALK_OF) == ["step", "failure", "resume", "fork"]
    assert all(len(walk) >= 8 for walk in WALK_OF.values())


@pytest.mark.parametrize("life", WALK_OF)
def test_a_run_goes_the_way_of_the_page(life: str, drive_of: dict[str, Callable[[], Any]]) -> None:
    """A run calls the functions of a walk in the order of the page, and in no other."""
    walk, codes = WALK_OF[life], codes_called(drive_of[life])
    assert first_not_reached(walk, codes) is None
    for number, (name, following) in enumerate(pairwise(walk)):
        if EITHER_WAY.get(name) != following:
            exchanged = [*walk[:number], following, name, *walk[number + 2 :]]
            assert first_not_reached(exchanged, codes) is not None
