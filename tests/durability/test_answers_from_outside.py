"""Of many processes that answer one gate at once one wins, and the run goes on with its answer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from handrail import Executor, GateClosed, SqliteJournal, Steps, WorkflowResult, step, workflow
from handrail.model import events as ev
from tests.durability.processes import Barrier, Child, result_of, until

RUN = "run"
IN_CI = 6
IN_SOAK = 50
many = pytest.mark.parametrize("count", [IN_CI, pytest.param(IN_SOAK, marks=pytest.mark.soak)])


@workflow
def asks() -> Steps[str]:
    """Ask who is there, and greet them."""
    yield from step("before").call(str)
    who = yield from step("who").ask("Who is there?")
    return (yield from step("greet").call("hello {}".format, who))


def drive(path: Path, linger_s: float = 0.0) -> WorkflowResult[str]:
    """Begin the run, or go on with it."""
    journal = SqliteJournal(path)
    executor = Executor(journal=journal, linger_s=linger_s)
    if journal.events(RUN):
        return executor.resume_sync(RUN, asks)
    return executor.options(run_id=RUN).run_sync(asks)


def answer(path: Path, who: str, barrier: Barrier) -> tuple[str, str | None, str | None]:
    """Who answers, who is said to have answered before, and how."""
    executor = Executor(journal=SqliteJournal(path))
    barrier.wait()
    try:
        executor.answer_sync(RUN, "who", f"the answer of {who}", by=who)
    except GateClosed as closed:
        return who, closed.by, closed.answer
    return who, None, None


def winner(path: Path, count: int) -> str:
    """Let so many processes answer at once; the one that won, of whom all others were told."""
    barrier = Barrier()
    with contextlib.ExitStack() as stack:
        people = [
            stack.enter_context(Child(lambda who=f"p{n}": answer(path, who, barrier)))  # type: ignore[misc]
            for n in range(count)
        ]
        barrier.open(people)
        said = [child.result() for child in people]
    (won,) = [who for who, by, _ in said if by is None]
    others = [(by, text) for _, by, text in said if by is not None]
    assert others == [(won, f"the answer of {won}")] * (count - 1)
    return str(won)


def the_run_went_on_with(path: Path, who: str, result: WorkflowResult[str]) -> None:
    """Assert that the run ended with this answer, and that its record holds no other."""
    assert (result.status, result.value) == ("succeeded", f"hello the answer of {who}")
    journal = SqliteJournal(path)
    (answered,) = [one for one in journal.events(RUN) if isinstance(one, ev.GateAnswered)]
    letters = journal.letters(RUN, 0)
    journal.close()
    assert (answered.by, answered.answer, answered.letter) == (who, f"the answer of {who}", 1)
    assert len(letters) == 1


@many
def test_a_suspended_run_gets_one_of_many_answers(tmp_path: Path, count: int) -> None:
    """Nobody drives it while they answer; it goes on when it is resumed."""
    path = tmp_path / "runs.db"
    suspended = result_of(lambda: drive(path).status)
    assert suspended == "suspended"
    won = winner(path, count)
    the_run_went_on_with(path, won, drive(path))


@contextlib.contextmanager
def asking(path: Path) -> Iterator[Child]:
    """A process that drives the run, and waits for an answer by now."""
    with Child(lambda: drive(path, linger_s=3600)) as driver:
        with contextlib.closing(SqliteJournal(path)) as watching:
            until(
                lambda: any(isinstance(one, ev.GateOpened) for one in watching.events(RUN)),
                "the gate is open",
            )
        yield driver


@many
def test_a_live_run_gets_one_of_many_answers(tmp_path: Path, count: int) -> None:
    """A process waits for the answer, and goes on with it by itself."""
    path = tmp_path / "runs.db"
    with asking(path) as driver:
        won = winner(path, count)
        result = driver.result()
    the_run_went_on_with(path, won, result)


@many
def test_a_dead_run_gets_one_of_many_answers(tmp_path: Path, count: int) -> None:
    """The process that asked was killed; the next one finds the answer."""
    path = tmp_path / "runs.db"
    with asking(path) as driver:
        driver.kill()
    won = winner(path, count)
    the_run_went_on_with(path, won, drive(path))
