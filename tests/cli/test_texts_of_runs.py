"""What each form tells of the same runs, as one table: a file of texts for each run.

A text that changed on purpose is written anew with ``HANDRAIL_WRITE_TEXTS=1``.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from handrail import (
    Agent,
    Executor,
    FakeBackend,
    Found,
    MemoryJournal,
    Step,
    StepFailed,
    Steps,
    Task,
    step,
    workflow,
)
from handrail.cli.journal import Place
from handrail.cli.markdown import markdown_of
from handrail.cli.run_text import run_sections
from handrail.cli.show_step import show_step
from handrail.model import events as ev
from handrail.record.inbox import unread, with_messages
from handrail.record.live_view import LiveRun
from handrail.record.state import RecordedRun
from handrail.record.view import view_of
from handrail.sinks.console_lines import tree_lines
from handrail.sinks.console_plain import PlainLog, ending
from handrail.sinks.console_text import UNICODE, text_of
from handrail.sinks.event_words import event_text
from handrail.testing import JumpClock

TEXTS = Path(__file__).parent / "texts"
RUN = "r-1"


def fails(number: int) -> int:
    """Fail for multiples of three, in two lines."""
    if number % 3 == 0:
        raise ValueError(f"no {number}\n  wanted: another")
    return number


def instead(ctx: Any, failed: Any) -> Step[str]:
    """Another step."""
    del ctx, failed
    return step("other").call(str, "other")


def check(number: int) -> Step[int]:
    """One member."""
    return step("check").call(fails, number)


def done(task: Task) -> Steps[Found[str]]:
    """What is done with a task."""
    return Found((yield from step("do").call(str, task.id)))


@workflow
def gets_over(task: str = "it") -> Steps[list[str]]:
    """It succeeds, though much fails on the way."""
    yield from step("kept").call(fails, 3).on_error(instead)
    yield from step("left").call(fails, 6).retry(2).default(0)
    yield from step("exits").command("exit 3", check=False)
    yield from step("some").for_each([1, 2, 3], check, on_error="continue", max_concurrency=1)
    bot = Agent("bot", "Say it.", backend=FakeBackend(["said"]))
    yield from step("bot").agent(bot)
    yield from step("queue").work([Task("a"), Task("b")], done, max_concurrency=1)
    return [task, "a\nb"]


@workflow
def breaks() -> Steps[None]:
    """A member of a group fails it, and a rollback fails, too."""
    yield from step("made").call(str, "x").with_rollback(lambda _: fails(9))
    yield from step("all").for_each([1, 2, 3, 4], check, max_concurrency=1)


@workflow
def waits() -> Steps[str]:
    """It asks, waits for a signal, and for a message that is on its way."""
    with contextlib.suppress(StepFailed):
        yield from step("bad").call(fails, 3)
    yield from step("all").parallel(
        step("go?").ask("Go on?", choices=["yes", "no"]),
        step("sure?").ask("Sure?", type=bool),
        step("come").wait_for("come", int),
    )
    return "went"


def send(executor: Executor) -> None:
    """An answer and a pause that the run has not read."""
    executor.answer_sync(RUN, "all/sure?", True, by="ana")
    executor.pause_sync(RUN, by="ben")


RUNS: dict[str, tuple[Any, Callable[[Executor], None] | None, str]] = {
    "gets_over": (gets_over, None, "left"),
    "breaks": (breaks, None, "all/2/check"),
    "waits": (waits, send, "bad"),
}
"""Of each run: its workflow, what people sent afterwards, and the step that is shown."""


def recorded(name: str) -> tuple[MemoryJournal, RecordedRun]:
    """A run of this name, up to where it ended or waits."""
    journal = MemoryJournal()
    flow, sent, _ = RUNS[name]
    executor = Executor(journal=journal, clock=JumpClock(), workflows=[flow])
    executor.options(run_id=RUN).run_sync(flow)
    if sent is not None:
        sent(executor)
    history = journal.events(RUN)
    (info,) = journal.runs()
    view = view_of(history, unread(journal, RUN, history), alive=False, now=history[-1].at)
    return journal, RecordedRun(with_messages(journal, info), history, view)


PLACE = Place(Path("/p/.handrail"))


def sections(run: RecordedRun) -> Iterator[str]:
    """The lines that `show` prints."""
    for section in run_sections(run.info, run.view, PLACE):
        yield from section.lines


def live(run: RecordedRun) -> tuple[list[str], list[str]]:
    """The lines of the tree and of the plain log."""
    tree, log, lines = LiveRun(RUN), PlainLog(UNICODE), list[str]()
    for event in run.history:
        told = tree.apply(event)
        lines += map(text_of, log.lines(event, told))
        if isinstance(event, (ev.WorkflowCompleted, ev.RunSuspended)):
            lines.append(text_of(ending(tree, event, UNICODE)))
    return [text_of(line) for line in tree_lines(tree, 200, now=run.history[-1].at)], lines


FORMS: dict[str, Callable[[RecordedRun], Any]] = {
    "tree": lambda run: live(run)[0],
    "plain log": lambda run: live(run)[1],
    "show": sections,
    "report": lambda run: markdown_of(run.info, run.view, PLACE).splitlines(),
    "log of the page": lambda run: (
        f"{getattr(event, 'path', '')}: {event_text(event)}" for event in run.history
    ),
}


def steady(text: str) -> str:
    """The text without what differs from one run to the next: times, places, signs that turn."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "DATE", text)
    text = re.sub(r"\d+(\.\d)? (ms|s|min|h|d)( \d+ (s|min|h))?\b", "TIME", text)
    text = re.sub(r"session \S+", "session S", text)
    return re.sub(r"\(?[^\s(]*\.py:\d+\)?|File .*, line \d+", "PLACE", text)


@pytest.mark.parametrize("form", [*FORMS, "show of a step"])
@pytest.mark.parametrize("name", RUNS)
def test_each_form_tells_a_run_as_it_is_written_down(
    name: str, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The text of each form is that of the file, but for times and places."""
    _, run = recorded(name)
    if form == "show of a step":
        show_step(RUNS[name][2], run, None)
        text = capsys.readouterr().out
    else:
        text = "\n".join(FORMS[form](run))
    text = steady(text).rstrip() + "\n"
    file = TEXTS / f"{name}, {form}.txt"
    if os.environ.get("HANDRAIL_WRITE_TEXTS"):
        file.write_text(text, "utf-8")
    assert text == file.read_text("utf-8")
