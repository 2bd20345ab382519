"""What a resume runs again follows from the recorded causes of failures, never from their words."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from handrail import Executor, MemoryJournal, StepFailed, Steps, WorkflowError, step, workflow
from handrail.steps.scope import scope
from tests.agents.repositories import needs_git, repository

pytestmark = needs_git

RAN: list[str] = []
BROKEN: set[str] = set()


def check(name: str) -> str:
    """Note that a step ran; it fails while it is broken."""
    RAN.append(name)
    if name in BROKEN:
        raise ValueError(f"{name} is broken")
    return name


def checked(errors: list[StepFailed]) -> Steps[None]:
    """Two checks, both of which may fail; their failures are handled."""
    for name in "ab":
        try:
            yield from step(f"check-{name}").call(check, name)
        except StepFailed as error:
            errors.append(error)


def published(end: Callable[[list[StepFailed]], Any]) -> Callable[..., Steps[None]]:
    """A body that publishes whatever its checks said, and ends in this way."""

    def body(_: Any = None) -> Steps[None]:
        errors: list[StepFailed] = []
        yield from checked(errors)
        yield from step("publish").call(check, "publish")
        ended = end(errors) if errors else None
        if isinstance(ended, BaseException):
            raise ended
        if ended is not None:
            yield from ended

    return body


def at_last(end: Callable[[list[StepFailed]], Any]) -> Callable[..., Steps[None]]:
    """A body whose last steps are the checks."""

    def body(_: Any = None) -> Steps[None]:
        errors: list[StepFailed] = []
        yield from step("publish").call(check, "publish")
        yield from checked(errors)
        if errors:
            raise end(errors)

    return body


def own(join: str) -> Callable[[list[StepFailed]], Any]:
    """An error of the body's own, with the words of the failures in it."""
    return lambda errors: WorkflowError(join + "\n".join(map(str, errors)))


def one_more(_: Any) -> Generator[Any, Any, Any]:
    """A step whose failure nobody handles."""
    yield from step("last").call(check, "a")


BODIES: dict[str, tuple[Callable[..., Steps[None]], list[str]]] = {
    "the words of a failure come first": (published(own("")), []),
    "other words come first": (published(own("problems: ")), []),
    "words of another error": (published(lambda errors: ValueError(str(errors[0]))), []),
    "several errors": (published(lambda errors: ExceptionGroup("all", errors)), []),
    "a failure is raised again": (published(lambda errors: errors[1]), ["b", "publish"]),
    "a failure that nobody handled": (published(one_more), ["a"]),
    "the last step failed": (at_last(own("problems: ")), ["b"]),
    "the last step failed, in its words": (at_last(own("")), ["b"]),
    "the first failure is raised at last": (at_last(lambda errors: errors[0]), ["a", "b"]),
}


@workflow
def child(case: str) -> Steps[None]:
    """The body as a child workflow."""
    yield from BODIES[case][0]()


def member(case: str) -> Steps[None]:
    """The body as that of a member."""
    yield from BODIES[case][0]()


def raised_from(number: int) -> Callable[[list[StepFailed]], WorkflowError]:
    """An error of the body's own that names one of the failures as its cause."""

    def end(errors: list[StepFailed]) -> WorkflowError:
        error = WorkflowError("not today")
        error.__cause__ = errors[number]
        return error

    return end


BODIES |= {
    "raised from a failure": (published(raised_from(1)), ["b", "publish"]),
    "raised from the first at last": (at_last(raised_from(0)), ["a", "b"]),
}

PLACES: dict[str, Callable[[str], Any]] = {
    "the run": lambda case: BODIES[case][0](),
    "child": lambda case: step("s").run_workflow(child, case),
    "member": lambda case: step("s").for_each([case], member),
    "member that is a child": lambda case: step("s").for_each(
        [case], lambda one: step("in").run_workflow(child, one)
    ),
    "scope": lambda case: scope("s", member(case)),
    "holding": lambda case: step("s").holding("name", member, case),
    "child in a scope": lambda case: scope("s", deeper(case)),
}


def deeper(case: str) -> Steps[None]:
    """The body, one level further down."""
    yield from step("in").run_workflow(child, case)


@workflow
def flow(place: str, case: str) -> Steps[None]:
    """The body at a place."""
    yield from PLACES[place](case)


def test_a_run_says_which_failure_its_error_was_raised_from() -> None:
    """`failed_step` is its path, as that of a failure that nobody handled is."""
    BROKEN.update("ab")
    result = Executor().run_sync(flow, "the run", "raised from a failure")
    assert (result.error, result.failed_step) == ("not today", "check-b")
    BROKEN.clear()


def test_an_error_that_is_its_own_cause_ends_the_body() -> None:
    """Its causes are looked at once, however they refer to each other."""

    @workflow
    def raises(*, alone: bool) -> Steps[None]:
        yield from step("a").call(int)
        error, other = ValueError("x"), OSError("y")
        other.__cause__ = error
        raise error from (error if alone else other)

    ends = [Executor().run_sync(raises, alone=alone) for alone in (True, False)]
    assert [(one.status, one.failed_step) for one in ends] == [("failed", None)] * 2


def again_after(place: str, case: str) -> list[str]:
    """What a resume performs when all is mended; its plan must name the first of it."""
    BROKEN.update("ab")
    executor = Executor(journal=MemoryJournal())
    assert executor.options(run_id="r").run_sync(flow, place, case).status == "failed"
    RAN.clear()
    BROKEN.clear()
    plan = executor.plan_sync("r", flow)
    will_run = [one.path for one in plan.steps if one.state == "will run"]
    assert RAN == []
    executor.resume_sync("r", flow)
    first = [path.rpartition("/")[2] for path in will_run if "check-" in path or "last" in path]
    names = {"check-a": "a", "check-b": "b", "last": "a"}
    assert [names[one] for one in first] == RAN[:1]
    return list(RAN)


@pytest.fixture(autouse=True, scope="module")
def in_a_repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Names are claimed in the repository of the current folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(repository(tmp_path_factory.mktemp("causes")))
        yield


@pytest.mark.parametrize("words", ["as they are", "reworded"])
@pytest.mark.parametrize("case", BODIES)
@pytest.mark.parametrize("place", PLACES)
def test_only_what_ended_a_body_runs_again(
    place: str, case: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure that the body handled is kept, with what followed it, whatever its errors say."""
    if words == "reworded":
        monkeypatch.setattr(StepFailed, "__str__", lambda self: f"no: {self.result.name}")
        monkeypatch.setattr(WorkflowError, "__str__", lambda _: "step 's/check-a' failed: no")
        monkeypatch.setattr("handrail.core.failures.text_of", lambda _: "step 'check-a' failed")
    assert again_after(place, case) == BODIES[case][1]
