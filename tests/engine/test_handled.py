"""What a step got over, and what a failed group or command gives all the same."""

from __future__ import annotations

import copy
import pickle  # noqa: TID251  # what users may do to a result
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from handrail import (
    CommandResult,
    Executor,
    Failure,
    SqliteJournal,
    Step,
    StepFailed,
    StepResult,
    Steps,
    WrongUse,
    step,
    workflow,
)
from handrail.model import events as ev
from tests.engine.support import Boom, boom, give, run_seen


def other(made: Step[Any]) -> Callable[..., Step[Any]]:
    """A handler that asks for this step."""
    return lambda *_: made


def bang() -> None:
    """Fail as a fallback does."""
    raise ValueError("bang")


HANDLED = {
    "a fallback": (step("a").call(boom).on_error(other(step("b").call(give))), ["Boom"]),
    "a default": (step("a").call(boom).default(1), ["Boom"]),
    "a skip": (step("a").call(boom).skip_on_error(), ["Boom"]),
    "a default behind a fallback": (
        step("a").call(boom).on_error(other(step("b").call(bang))).default(1),
        ["Boom", "ValueError"],
    ),
    "a fallback that failed": (
        step("a").call(boom).on_error(other(step("b").call(bang))),
        ["Boom"],
    ),
    "a handler that failed": (step("a").call(boom).on_error(lambda *_: bang()), ["Boom"]),  # type: ignore[arg-type,func-returns-value]
    "a fallback of a group": (
        step("a").parallel(step("m").call(boom)).on_error(other(step("b").call(give))),
        ["Boom"],
    ),
    "nothing": (step("a").call(give), []),
    "a retry": (step("a").call(boom).retry(2, backoff=0), []),
}


def at_once_and_later(made: Step[Any], file: Path) -> list[StepResult[Any]]:
    """The step's result in the drive it ended in, in one that goes on, and read from the record."""
    works: list[int] = []

    def fails_once() -> None:
        works.append(1)
        if len(works) == 1:
            raise Boom("not yet")

    @workflow
    def flow() -> Steps[None]:
        with suppress(StepFailed):
            yield from made
        yield from step("then").call(fails_once)

    with closing(SqliteJournal(file)) as journal:
        executor = Executor(journal=journal)
        first = executor.run_sync(flow)
        drives = [first, *(executor.resume_sync(first.run_id, flow) for _ in range(2))]
    return [one.step("a") for one in drives]


@pytest.mark.parametrize("case", HANDLED)
def test_what_a_step_got_over_is_in_its_result(case: str, tmp_path: Path) -> None:
    """Each failure whole, in order, at once and after a resume."""
    made, expected = HANDLED[case]
    for result in at_once_and_later(made, tmp_path / "runs.db"):
        kinds = [one.error_type.rpartition(".")[2] for one in result.handled]
        assert kinds == expected
        for one in result.handled:
            assert one.is_a(Exception)
            assert "Traceback" in (one.traceback or "")


def test_a_result_says_when_it_was(tmp_path: Path) -> None:
    """Start and end of steps and of the run, in UTC, are the same after a resume."""
    before = time.time()
    now, later, read = at_once_and_later(step("a").call(give), tmp_path / "runs.db")
    assert before - 0.1 <= now.started_at.timestamp() <= now.ended_at.timestamp()
    assert now.ended_at.timestamp() <= time.time()
    assert str(now.ended_at.tzinfo) == "UTC"
    assert now.ended_at == later.ended_at == read.ended_at


async def test_a_run_says_when_it_was() -> None:
    """Its first drive's start and its last one's end, around those of its steps."""

    @workflow
    def flow() -> Steps[int]:
        return (yield from step("a").call(give))

    result, _ = await run_seen(flow)
    one = result.step("a")
    assert result.started_at <= one.started_at <= one.ended_at <= result.ended_at


# -- groups ----------------------------------------------------------------------------------------


def pick(number: int) -> int:
    """Fail for every third number."""
    if number % 3 == 0:
        raise Boom(f"no {number}")
    return number


def member(number: int) -> Step[int]:
    """One member of a group."""
    return step("x").call(pick, number)


GROUPS: dict[str, tuple[Step[Any], type, str]] = {
    "the first failure": (
        step("a").for_each([1, 3, 4], member, max_concurrency=1),
        list,
        "member '1' failed: step 'x' failed: no 3; 1 not begun",
    ),
    "all or nothing": (
        step("a").parallel(
            step("x").call(pick, 1), step("y").call(boom), on_error="all_or_nothing"
        ),
        tuple,
        "member 'y' failed: no",
    ),
    "a race": (
        step("a").race(step("x").call(pick, 3), step("y").call(boom)),
        tuple,
        "member 'x' failed: no 3; member 'y' failed: no",
    ),
    "too few": (
        step("a").for_each(range(30), member, on_error="continue", min_success=25),
        list,
        "no 0; 9 more failed, Boom × 9: 3, 6,",  # noqa: RUF001  # the sign is meant
    ),
}


@pytest.mark.parametrize("case", GROUPS)
def test_a_failed_group_gives_its_members(case: str, tmp_path: Path) -> None:
    """Its output is that of `continue`, its text names the failures or counts them by reason."""
    made, kind, text = GROUPS[case]
    now, later, read = at_once_and_later(made, tmp_path / "runs.db")
    assert text in (now.error or "")
    assert type(now.output) is kind
    assert {type(one) for one in now.output} == {StepResult}
    assert "failed" in [one.status for one in now.output]
    forms = [[(one.path, one.status, one.output) for one in r.output] for r in (now, later, read)]
    assert forms[0] == forms[1] == forms[2]


def test_the_handler_of_a_failed_group_sees_its_members(tmp_path: Path) -> None:
    """Also when the process died between the failure's record and the handler."""
    seen: list[list[str]] = []

    def handler(_: Any, failed: StepResult[Any]) -> Step[int]:
        seen.append([one.status for one in failed.output])
        return step("b").call(give)

    @workflow
    def flow() -> Steps[Any]:
        grouped = step("a").for_each([1, 3], member, max_concurrency=1)
        return (yield from grouped.on_error(handler))

    whole, cut = SqliteJournal(tmp_path / "whole.db"), SqliteJournal(tmp_path / "cut.db")
    assert Executor(journal=whole).options(run_id="r").run_sync(flow).success
    lease = cut.acquire("r")
    for event in whole.events("r"):
        cut.append(event)
        if isinstance(event, ev.AttemptFailed) and event.path == "a":
            break
    lease.release()
    assert Executor(journal=cut).resume_sync("r", flow).success
    assert seen == [["succeeded", "failed"]] * 2
    for journal in (whole, cut):
        journal.close()


# -- commands --------------------------------------------------------------------------------------


def test_a_failed_command_gives_its_result(tmp_path: Path) -> None:
    """Exit code and what it printed are the output of the failed step."""
    made = step("a").command("echo out; echo err >&2; exit 4")
    for result in at_once_and_later(made, tmp_path / "runs.db"):
        assert result.status == "failed"
        assert result.output == CommandResult(4, "out\n", "err\n")


@pytest.mark.parametrize("code", [0, 3])
def test_data_that_did_not_parse_is_not_there(code: int, tmp_path: Path) -> None:
    """Reading it says the exit code and what the program said; all else of the result is there."""
    made = step("a").command(f"echo text; echo bad >&2; exit {code}", check=False, parse=dict)
    for result in at_once_and_later(made, tmp_path / "runs.db"):
        assert result.status == ("succeeded" if code else "failed")
        output: Any = result.output
        assert (output.exit_code, output.stdout, output.stderr) == (code, "text\n", "bad\n")
        with pytest.raises(WrongUse, match=rf"exited with {code}.*It said: bad"):
            _ = output.data
        assert not hasattr(output, "data")
        assert output == copy.copy(output) == pickle.loads(pickle.dumps(output))
        assert len({output, copy.copy(output)}) == 1
        assert "UnparsedCommandResult" in repr(output)


def test_a_failure_is_a_plain_record() -> None:
    """It tells classes by their full names, as results do."""
    one = Failure("no", "builtins.KeyError", ("builtins.LookupError",))
    assert one.is_a(KeyError)
    assert one.is_a(LookupError)
    assert not one.is_a("builtins.ValueError")
