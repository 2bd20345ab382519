"""A run that fails, is mended, fails elsewhere, is cancelled, dies: drive after drive, to its end.

What succeeded once is not done again, whatever earlier drives came to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail import Limits, Steps, Workflow, WorkflowError, WorkflowResult, WrongUse, workflow
from handrail.model import events as ev
from handrail.model.paths import ancestors_of
from handrail.record.run_record import Recorded
from handrail.testing.shapes import (
    Act,
    Action,
    Body,
    Choice,
    Each,
    Grow,
    Placed,
    Raise,
    Rounds,
    Shape,
    Statement,
    Try,
    workflow_of,
)
from handrail.testing.strategies import bodies
from tests.durability.support import (
    LAW,
    LEAVES,
    RUN,
    Lives,
    Story,
    backends,
    ends_are_recorded_once,
    essence,
    nothing_recorded_is_performed_again,
    nothing_was_lost,
    performed_at_most_once_a_life,
    the_record_lists_the_same,
    what_can_be_undone_is_undone_or_named,
    what_was_undone_is_done_again,
)
from tests.testing import by_hand

pytestmark = pytest.mark.usefixtures("outside_git")


class Breaks(NamedTuple):
    """In this drive one of the actions fails, whichever this number falls on."""

    number: int


class Limited(NamedTuple):
    """In this drive the run may take so many steps, or a line of it may be visited so often."""

    steps: int
    visits: bool


class Raises(NamedTuple):
    """In this drive the workflow raises when all is done."""


class Cancelled(NamedTuple):
    """This drive is there to cancel the run."""


class Unfinished(NamedTuple):
    """In this drive the workflow, and its children if ``everywhere``, has only so many statements:
    the others are written later, or are taken out for once. It raises behind them, or just ends.
    """

    statements: int
    everywhere: bool
    raises: bool


class Rearranged(NamedTuple):
    """In this drive the last statements of the workflow, so many, stand before the others, and of
    its children too if ``everywhere``; ``new``: in front of all stands a step that is new.
    """

    last: int
    everywhere: bool
    new: bool


class Dies(NamedTuple):
    """The process of this drive dies at a write, which still returns or not; its code may be an
    edited one.
    """

    writes: int
    returns: bool
    edit: Unfinished | Rearranged | None = None


class Again(NamedTuple):
    """In this drive a step that has ended is to run again, whichever this number falls on, and one
    of the actions fails, or none.
    """

    number: int
    breaks: int | None


Drive: TypeAlias = Again | Breaks | Dies | Limited | Raises | Cancelled | Unfinished | Rearranged
ANY_DRIVE = (
    st.builds(Breaks, st.integers(0, 20))
    | st.builds(Dies, st.integers(1, 20), st.booleans(), st.none())
    | st.builds(Limited, st.integers(1, 12), st.booleans())
    | st.builds(Raises)
    | st.builds(Cancelled)
    | st.builds(Unfinished, st.integers(0, 3), st.booleans(), st.just(True))
)
EDITED = st.builds(Unfinished, st.integers(0, 3), st.booleans(), st.just(False)) | st.builds(
    Rearranged, st.integers(0, 2), st.booleans(), st.booleans()
)
DIES_EDITED = st.builds(Dies, st.integers(1, 20), st.booleans(), EDITED)
AGAIN = st.builds(Again, st.integers(0, 20), st.none() | st.integers(0, 20))
Given: TypeAlias = dict[str, tuple[int, Any]]
DRIVES = st.lists(ANY_DRIVE, min_size=1, max_size=5)
DRIVES_OF_ANY_CODE = st.lists(ANY_DRIVE | EDITED | DIES_EDITED, min_size=1, max_size=5)
DRIVES_OF_ANY_KIND = st.lists(ANY_DRIVE | EDITED | DIES_EDITED | AGAIN, min_size=1, max_size=5)


def without_handlers(part: Any) -> Any:
    """A drawn workflow in which every failure fails the run, so that a resume tries it again: but
    for a validation, which goes on from what its stages said, if something else ended the run.
    """
    if isinstance(part, tuple):
        found: list[Any] = []
        for one in part:
            if isinstance(one, Try):
                found += without_handlers(one.body)
            elif not isinstance(one, Raise):
                found.append(without_handlers(one))
        return tuple(found)
    if not is_dataclass(part):
        return part
    given = {one.name: without_handlers(getattr(part, one.name)) for one in fields(part)}
    if isinstance(part, Shape):
        given |= {"fallback": None, "settle": None}
        if part.when == "raises":
            given["when"] = None
        if isinstance(part.what, Rounds):
            given["what"] = Act()
        if isinstance(part.what, Choice):
            arms = part.what.arms
            given["what"] = Choice(tuple((bool(yes), without_handlers(arm)) for yes, arm in arms))
    if "on_error" in given:
        given["on_error"] = "fail_fast"
    return type(part)(**given)


def without_clean_up(part: Any) -> Any:
    """A drawn workflow that may go on from failures, and yields nothing once its end is certain."""
    if isinstance(part, tuple):
        return tuple(without_clean_up(one) for one in part if not isinstance(one, Raise))
    if not is_dataclass(part):
        return part
    given = {one.name: without_clean_up(getattr(part, one.name)) for one in fields(part)}
    if isinstance(part, Try):
        given |= {"handler": given["handler"] or (), "catches": "failure", "final": ()}
    return type(part)(**given)


def edited(part: Any, drive: Unfinished | Rearranged) -> Any:
    """A drawn workflow as it is in this drive; members of ``for_each`` and tasks stay: they are
    items.
    """
    if isinstance(part, tuple):
        return tuple(edited(one, drive) for one in part)
    if not is_dataclass(part) or isinstance(part, (Each, Grow)):
        return part
    if isinstance(part, Body):
        known = edited(part.statements, drive) if drive.everywhere else part.statements
        return Body(cut(known, drive) if isinstance(drive, Unfinished) else turned(known, drive))
    given = {one.name: edited(getattr(part, one.name), drive) for one in fields(part)}
    return type(part)(**given)


def cut(statements: tuple[Statement, ...], drive: Unfinished) -> tuple[Statement, ...]:
    """The first statements of these."""
    return (*statements[: drive.statements], *((Raise(),) if drive.raises else ()))


def turned(statements: tuple[Statement, ...], drive: Rearranged) -> tuple[Statement, ...]:
    """These statements in another order, under the names that they had."""
    placed = [Placed(str(index), one) for index, one in enumerate(statements)]
    first = len(placed) - drive.last
    new = [Placed("n", Shape(Act()))] if drive.new else []
    return (*new, *placed[max(first, 0) :], *placed[: max(first, 0)])


@contextlib.contextmanager
def broken(label: str | None) -> Generator[set[str]]:
    """Meanwhile the action with this label fails, and no other one; the labels of all that ran."""
    ran = set[str]()

    def fails(self: Action, path: str, attempt: int) -> bool:
        del path, attempt
        ran.add(self.label)
        return self.label == label

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Action, "fails", fails)
        yield ran


def mistaken(body: Body, mistakes: list[str]) -> Workflow[[], Any]:
    """The drawn workflow, which raises when all is done as long as there is a mistake in it."""
    inner = workflow_of(body).definition.function

    @workflow(name="shape")
    def flow() -> Steps[Any]:
        found = yield from inner()
        if mistakes:
            raise WorkflowError(mistakes[0])
        return found

    return flow


def lived(body: Body, drives: Iterable[Drive], backend: str) -> tuple[Story, WorkflowResult[Any]]:
    """Drive a run of this workflow so, and then to its end with nothing in its way; and the result
    of a run that had nothing in its way at all.
    """
    mistakes: list[str] = []
    flow = mistaken(body, mistakes)
    with broken(None) as ran:
        expected = Lives(flow, backend).through().result
    run, labels = Lives(flow, backend), sorted(ran)
    was: Given = {}
    for drive in drives:
        run.again, run.cancels, run.options, run.flow, run.rerun = True, None, {}, flow, ()
        mistakes.clear()
        label: str | None = None
        ends: dict[str, Any] = {}
        match drive:
            case Limited(steps, visits):
                limits = Limits(max_visits=steps) if visits else Limits(max_steps=steps)
                run.options = {"limits": limits}
            case Raises():
                mistakes.append("no")
            case Again(number, breaks) if labels and (over := ended_paths(run)):
                run.rerun = (over[number % len(over)],)
                label = None if breaks is None else labels[breaks % len(labels)]
            case Breaks(number) if labels:
                label = labels[number % len(labels)]
            case Unfinished() | Rearranged():
                run.flow = mistaken(edited(body, drive), mistakes)
            case Dies(writes, returns, edit):
                if edit is not None:
                    run.flow = mistaken(edited(body, edit), mistakes)
                ends = {"stop_at": writes, "abrupt": not returns}
            case Cancelled() if not run.at_its_end():
                run.cancels = "enough"
            case _:
                continue
        with broken(label), contextlib.suppress(WrongUse):  # it is being undone
            was = given_again(run, run.live(**ends), was)
    run.cancels, run.options, run.flow, run.rerun = None, {}, flow, ()
    mistakes.clear()
    with broken(None):
        result = run.live()
    assert result is not None
    given_again(run, result, was)
    return run.story(result), expected


def ended_paths(run: Lives) -> list[str]:
    """The steps of which an end is on record, in the order in which they ended."""
    history = run.journal.reopened().events(RUN)
    return [event.path for event in history if isinstance(event, ev.StepCompleted)]


def given_again(run: Lives, result: WorkflowResult[Any] | None, was: Given) -> Given:
    """What the ends gave in this drive, by path, with the number of the end; those which ``was`` in
    an earlier drive gave the same again. Who asks for the result later gets the same, too.
    """
    if result is None:
        return was
    story = run.story(result)
    the_record_lists_the_same(story)
    ends = {event.path: event.seq for event in story.history if isinstance(event, ev.StepCompleted)}
    now = {one.path: (ends[one.path], by_hand.essence(one)) for one in result.step_results}
    for path, (number, end) in now.items():
        known = was.get(path)
        assert known is None or known[0] != number or known[1] == end, path
    return {**was, **now}


def what_succeeded_is_not_dropped(story: Story) -> None:
    """Unless it was undone, or what it stands in was, or it stands in a validation, whose rounds
    begin anew as a whole.
    """
    known = Recorded(story.history).begun()
    kinds = {
        event.path: event.step_type for event in story.history if isinstance(event, ev.StepStarted)
    }
    done = set[str]()
    for event in story.history:
        match event:
            case ev.RunResumed():
                for path in done.intersection(event.superseded):
                    above = {kinds.get(one) for one in ancestors_of(path, known)}
                    assert "validate" in above, (path, event)
                done.difference_update(event.superseded)
            case ev.StepCompleted() if event.status == "succeeded":
                if kinds[event.path] in LEAVES:
                    done.add(event.path)
            case ev.RollbackCompleted():
                here = event.path
                done = {one for one in done if here not in (one, *ancestors_of(one, known))}
            case _:
                pass


LAWS = (
    what_succeeded_is_not_dropped,
    nothing_recorded_is_performed_again,
    performed_at_most_once_a_life,
    ends_are_recorded_once,
    nothing_was_lost,
    the_record_lists_the_same,
    what_can_be_undone_is_undone_or_named,
    what_was_undone_is_done_again,
)


@backends
@LAW
@given(body=bodies(timeless=True, depth=2).map(without_handlers), drives=DRIVES)
def test_a_run_that_is_mended_failure_by_failure_ends_like_one_that_never_failed(
    backend: str, body: Body, drives: list[Drive]
) -> None:
    """With the same outputs, and nothing that succeeded done again.

    A composite that is retried may get over what is broken in one drive by what its later attempt
    did in another one; then it tells of the attempt that failed.
    """
    story, expected = lived(body, drives, backend)
    for law in LAWS:
        law(story)
    assert by_hand.essence(story.result.value) == by_hand.essence(expected.value)
    if all(one.attempts == 1 for one in story.result.step_results):
        assert essence(story.result) == essence(expected)


@backends
@LAW
@given(body=bodies(depth=2).map(without_clean_up), drives=DRIVES_OF_ANY_CODE)
def test_what_succeeded_stays_whatever_the_run_went_on_from(
    backend: str, body: Body, drives: list[Drive]
) -> None:
    """Failures that are handled, settled, replaced, or collected by a group."""
    story, _ = lived(body, drives, backend)
    for law in LAWS:
        law(story)


@backends
@LAW
@given(body=bodies(depth=2), drives=DRIVES_OF_ANY_KIND)
def test_a_run_that_is_driven_again_and_again_repeats_nothing(
    backend: str, body: Body, drives: list[Drive]
) -> None:
    """Whatever it handles, validates and cleans up, and whatever time decides."""
    story, _ = lived(body, drives, backend)
    for law in LAWS[1:]:
        law(story)
