"""What an executor does round attempts, for its agents, and where the code has changed."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from contextvars import ContextVar
from typing import Any

import pytest

from handrail import (
    Agent,
    AgentError,
    Current,
    Executor,
    Ladder,
    ReplayMismatch,
    Steps,
    Workflow,
    WorkflowContext,
    WrongUse,
    current,
    step,
    workflow,
)
from handrail.testing import FakeBackend, TextJournal
from tests.engine.support import RUN, Boom, Jumping, boom, just, same

SPAN: ContextVar[str] = ContextVar("span", default="none")
SEEN: list[str] = []


@contextlib.asynccontextmanager
async def span(attempt: Current) -> AsyncGenerator[None]:
    """A span round an attempt, as of a tracer."""
    token = SPAN.set(f"{attempt.path}#{attempt.attempt}")
    SEEN.append(f"> {SPAN.get()}")
    try:
        yield
    except Boom:
        SEEN.append(f"! {SPAN.get()}")
        raise
    finally:
        SEEN.append(f"< {SPAN.get()}")
        SPAN.reset(token)


def where(*_: Any) -> str:
    """The span that is current, in a thread or on the loop."""
    return SPAN.get()


async def awhere() -> str:
    """The same, in a coroutine."""
    return SPAN.get()


async def test_each_attempt_runs_inside_of_what_is_around_it() -> None:
    """Sync, async and inline actions, agents, members; each attempt has its own."""
    SEEN.clear()
    backend = FakeBackend(["done"])
    agent = Agent("a", lambda _: where(), backend=backend)

    @workflow
    def flow() -> Steps[Any]:
        found = [
            (yield from step("sync").call(where)),
            (yield from step("async").call(awhere)),
            (yield from step("inline").call(where).inline()),
        ]
        found += yield from step("both").parallel(step("one").call(where), step("two").call(awhere))
        yield from step("fails").call(boom).retry(2, backoff=0).default(None)
        return found

    result = await Executor(around=[span], clock=Jumping()).run(flow)
    assert result.value == ["sync#1", "async#1", "inline#1", "both/one#1", "both/two#1"]
    assert SEEN[-6:] == [
        f"{sign} fails#{attempt}" for attempt in (1, 2) for sign in (">", "!", "<")
    ]
    told = await Executor(around=[span]).run(just(step("agent").agent(agent, {})))
    assert (told.success, SPAN.get()) == (True, "none")
    assert backend.turns[0].prompt == "agent#1"


@contextlib.asynccontextmanager
async def swallowing(_: Current) -> AsyncGenerator[None]:
    """One that hides errors, by mistake."""
    with contextlib.suppress(Boom):
        yield


@contextlib.asynccontextmanager
async def refusing(_: Current) -> AsyncGenerator[None]:
    """One that cannot be entered."""
    raise ConnectionError("no session")
    yield


@pytest.mark.parametrize(
    ("factory", "error"), [(swallowing, "Boom"), (refusing, "ConnectionError")]
)
async def test_what_is_around_cannot_make_a_failure_a_success(factory: Any, error: str) -> None:
    """An error that is swallowed is still the step's; one of its own fails the step."""
    result = await Executor(around=[factory]).run(just(step("x").call(boom)))
    assert (result.status, error in (result.error or "")) == ("failed", True)


async def test_actions_reach_services_and_config() -> None:
    """What context builders are shown is there for actions and rollbacks, too."""
    seen: list[Any] = []

    def act() -> None:
        seen.append((current().services["db"], current().config["style"]))

    def undo(_: WorkflowContext) -> None:
        act()

    @workflow
    def flow() -> Steps[Any]:
        yield from step("a").call(act).with_rollback(undo)
        yield from step("g").parallel(step("b").call(act))
        yield from step("c").call(boom)

    await Executor(services={"db": "DB"}, config={"style": "terse"}).run(flow)
    assert seen == [("DB", "terse")] * 3


async def test_a_ladder_of_the_executor_holds_for_agents_that_have_none() -> None:
    """An agent's own goes before it."""
    launches = {
        (None, None): 1 + Ladder().crash_retries,
        (None, Ladder(crash_retries=0)): 1,
        (Ladder(crash_retries=1), Ladder(crash_retries=0)): 2,
    }
    for (own, run), count in launches.items():
        backend = FakeBackend([AgentError("a", "gone", kind="crashed")] * 9)
        with_own = {} if own is None else {"ladder": own}
        agent: Any = Agent("a", "Do.", backend=backend, **with_own)
        await Executor(ladder=run, clock=Jumping()).run(just(step("x").agent(agent, {})))
        assert len(backend.turns) == count
    with pytest.raises(WrongUse, match="ladder= of an Executor takes Ladder"):
        Executor(ladder=3)  # type: ignore[arg-type]


def version(number: int, *, fails: bool = False) -> Workflow[[], Any]:
    """A workflow whose first two steps depend on its version."""

    @workflow(name="flow")
    def flow() -> Steps[Any]:
        first = yield from step("first").call(same, number)
        yield from step("second").call(same, first + number)
        yield from step("third").call(boom if fails else same)
        return first

    return flow


@pytest.mark.parametrize(
    ("on_change", "value", "again"),
    [("reuse", 1, ["third"]), ("rerun", 2, ["first", "second", "third"])],
)
async def test_a_resume_goes_on_over_changed_steps_as_it_was_told(
    on_change: Any, value: int, again: list[str]
) -> None:
    """Nobody need name them; what was chosen is on record, for the next drive."""
    journal = TextJournal()
    executor = Executor(journal=journal, on_change=on_change)
    await executor.options(run_id=RUN).run(version(1, fails=True))
    result = await executor.resume(RUN, version(2))
    assert (result.status, result.value) == ("succeeded", value)
    assert [one.path for one in result.step_results if not one.replayed] == again
    with pytest.raises(WrongUse, match="on_change="):
        Executor(on_change="ignore")  # type: ignore[arg-type]


async def test_by_default_changed_steps_are_refused() -> None:
    """As it was."""
    executor = Executor(journal=TextJournal())
    await executor.options(run_id=RUN).run(version(1, fails=True))
    with pytest.raises(ReplayMismatch):
        await executor.resume(RUN, version(2))


@workflow
def plain() -> Steps[Any]:
    """One step."""
    return (yield from step("a").call(same)).output


@pytest.mark.parametrize(
    ("wrongly", "said"),
    [
        (lambda: Executor().run_sync(plain, run_id="x"), r"executor\.options\(run_id="),
        (lambda: Executor().resume_sync(plain, "x"), r"'x' is a text.*resume\(run_id, workflow\)"),
        (lambda: Executor().run_sync("plain"), "'plain' is a text, not a workflow"),
    ],
)
def test_what_is_given_at_the_wrong_place_is_told_where_it_belongs(wrongly: Any, said: str) -> None:
    """An option of the run among its inputs, and a run id or a name in a workflow's place."""
    with pytest.raises((TypeError, WrongUse), match=said):
        wrongly()
