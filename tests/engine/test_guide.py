"""What a person says to the agents of a run: each gets it once, in its session if it has one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from handrail import (
    Agent,
    AgentError,
    Budget,
    BudgetExceeded,
    Executor,
    FakeBackend,
    Limits,
    MemoryJournal,
    Steps,
    StepTimeout,
    Workflow,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.model.results import Usage, qualified
from handrail.ports.agent import AgentReply, AgentTurn, Capabilities
from handrail.ports.claims import Claimant, ClaimRequest, Resource
from handrail.record.run_record import Recorded
from handrail.record.view import view_of
from handrail.testing import JumpClock, TextJournal
from handrail.workspace.claims.local import LocalClaims
from tests.engine.support import just

TABS = "use tabs, not blanks"


class Working:
    """A backend whose first turns do not end; they open a session and say something. Mutable.

    ``endless`` are the names of the agents of such turns, one a turn.
    """

    name = "working"

    def __init__(
        self,
        endless: str = "t",
        *,
        sessions: bool = True,
        opens: bool = True,
        says: bool = True,
    ) -> None:
        self.capabilities = Capabilities(sessions=sessions, usage=True)
        self.turns: list[AgentTurn] = []
        self.broken_off = 0
        self._endless = [*endless]
        self._opens, self._says = opens, says

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """An answer that names the agent, or none until it is interrupted."""
        self.turns.append(turn)
        session = turn.session or f"s-{turn.agent}"
        usage = Usage(100, 10, 0.5, 1)
        if self._opens:
            turn.emit(ev.AgentSessionStarted(turn.path, session, self.name))
        if turn.agent in self._endless:
            self._endless.remove(turn.agent)
            try:
                if self._says:
                    turn.emit(ev.AgentMessage(turn.path, "I see."))
                await anyio.sleep_forever()
            finally:
                self.broken_off += 1
                turn.emit(ev.AgentFinished(turn.path, "interrupted", usage=usage))
        turn.emit(ev.AgentFinished(turn.path, "completed", usage=usage))
        return AgentReply(f"by {turn.agent}", session=session, usage=usage)

    @property
    def told(self) -> list[str]:
        """The agents whose prompt had the words, turn by turn."""
        return [turn.agent for turn in self.turns if TABS in turn.prompt]


def agent(backend: Any, name: str = "t") -> Agent[str]:
    """An agent of text."""
    return Agent(name, f"The task of {name}.", backend=backend)


async def guided(
    executor: Executor, flow: Workflow[[], Any], hand: Callable[[Any, ev.Event], Any]
) -> Any:
    """The result of a run, each of whose events is shown to a person."""
    with anyio.fail_after(20):
        async with executor.stream(flow) as run:
            async for event in run:
                made = hand(run, event)
                if made is not None:
                    await made
    return run.result


def events_of(executor: Executor, result: Any, kind: type[Any]) -> list[Any]:
    """Those of one kind, from the record."""
    return [one for one in executor.journal.events(result.run_id) if isinstance(one, kind)]


@pytest.mark.parametrize("journal", [TextJournal, MemoryJournal])
async def test_an_agent_at_work_goes_on_in_its_session_with_what_it_is_told(journal: Any) -> None:
    """Interrupted once, no attempt and no failure; the prompt begins with the person's words; both
    turns are paid for; the record says who it was and with which launch it was given.
    """
    backend = Working()
    executor = Executor(journal=journal())

    def hand(run: Any, event: Any) -> Any:
        if isinstance(event, ev.AgentMessage) and event.text == "I see.":
            return executor.guide(run.run_id, TABS, path="code", by="ann")
        return None

    result = await guided(executor, just(step("code").agent(agent(backend), {})), hand)
    assert result.value.output == "by t"
    first, second = backend.turns
    assert (first.session, second.session) == (None, "s-t")
    assert second.prompt.startswith(TABS)
    assert "The task" not in second.prompt
    assert result.step_results[0].attempts == 1
    assert result.incidents == ()
    used = result.step_results[0].usage
    assert (used.input_tokens, used.cost_usd, used.turns) == (200, 1.0, 2)
    (said,) = events_of(executor, result, ev.RunSteered)
    (given,) = events_of(executor, result, ev.AgentGuided)
    assert (said.action, said.value, said.by) == ("guide", TABS, "ann")
    assert (given.path, given.next.number, given.next.rung) == ("code", 2, "guide")
    assert (given.numbers, given.said_by, given.next.guidance) == ((1,), ("ann",), (TABS,))


async def test_the_agent_of_a_fallback_is_reached_by_the_path_of_its_step() -> None:
    """It is at work below the step that it repairs, which launches no agent itself."""
    backend, executor = Working(), Executor()
    repaired = (
        step("count")
        .call(int, "three")
        .on_error(lambda *_: step("repair").agent(agent(backend), {}))
    )

    def hand(run: Any, event: Any) -> Any:
        if isinstance(event, ev.AgentMessage) and event.text == "I see.":
            return executor.guide(run.run_id, TABS, path="count")
        return None

    result = await guided(executor, just(repaired), hand)
    assert result.success
    assert backend.told == ["t"]


@pytest.mark.parametrize(
    "lacking",
    [{"sessions": False}, {"opens": False}, {"says": False}],
    ids=["no sessions", "none opened", "nothing said yet"],
)
async def test_without_a_session_the_task_is_put_again_with_what_was_said(
    lacking: dict[str, bool],
) -> None:
    """Where there is one, though the agent has said nothing in it yet, it goes on in that."""
    backend, executor = Working(**lacking), Executor()

    async def say(run: Any) -> None:
        while not backend.turns:  # noqa: ASYNC110  # the backend is not ours to wake
            await anyio.sleep(0.01)
        await executor.guide(run.run_id, TABS)

    def hand(run: Any, event: Any) -> Any:
        return say(run) if isinstance(event, ev.AgentTurnStarted) and event.turn == 1 else None

    result = await guided(executor, just(step("code").agent(agent(backend), {})), hand)
    assert result.success
    first, second = backend.turns
    assert TABS in second.prompt
    assert ("The task of t." in second.prompt) == (second.session is None)
    assert second.prompt.count(TABS) == 1
    assert first.prompt == "The task of t."


async def test_the_next_agent_is_told_if_none_is_at_work() -> None:
    """Once; the agents that follow are not."""
    backend = Working("")
    executor = Executor()

    def hand(run: Any, event: Any) -> Any:
        if isinstance(event, ev.StepStarted) and event.path == "look":
            return executor.guide(run.run_id, TABS)
        return None

    @workflow
    def flow() -> Steps[None]:
        yield from step("look").call(anyio.sleep, 0.05)
        for name in ("a", "b", "c"):
            yield from step(name).agent(agent(backend, name), {})

    result = await guided(executor, flow, hand)
    assert result.success
    assert backend.told == ["a"]
    (given,) = events_of(executor, result, ev.AgentGuided)
    assert (given.path, given.next.number, given.next.rung) == ("a", 1, "start")


async def test_all_that_are_at_work_are_told_or_those_below_a_path() -> None:
    """Each once, and in its own place, which is scarce: who waits for one is not let in before, and
    is told with its first prompt.
    """
    backend = Working("abcdab")
    executor = Executor(limits=Limits(max_concurrency=4))
    heard: list[str] = []

    def hand(run: Any, event: Any) -> Any:
        if isinstance(event, ev.AgentMessage) and event.text == "I see.":
            heard.append(event.path)
            if len(heard) == 4:
                return executor.guide(run.run_id, TABS, path="both/left")
            if len(heard) == 6:
                assert sorted(backend.told) == ["a", "b"]
                assert "e" not in [turn.agent for turn in backend.turns]
                return executor.guide(run.run_id, "be quick")
        return None

    @workflow
    def flow() -> Steps[None]:
        left = step("left").parallel(*(step(one).agent(agent(backend, one), {}) for one in "ab"))
        right = step("right").parallel(*(step(one).agent(agent(backend, one), {}) for one in "cde"))
        yield from step("both").parallel(left, right)

    result = await guided(executor, flow, hand)
    assert result.success
    left, right = ["both/left/a", "both/left/b"], ["both/right/c", "both/right/d"]
    assert sorted(heard) == sorted([*left, *left, *right])
    assert sorted(backend.told) == ["a", "b"]
    quick = [turn.agent for turn in backend.turns if "be quick" in turn.prompt]
    assert sorted(quick) == ["a", "b", "c", "d", "e"]
    assert (backend.broken_off, len(backend.turns)) == (6, 11)


async def test_two_sayings_in_a_row_are_both_given() -> None:
    """The second comes before the agent has read the first."""
    backend = Working("tt", says=False)
    executor = Executor()
    said: list[int] = []

    def hand(run: Any, event: Any) -> Any:
        if isinstance(event, ev.AgentSessionStarted) and len(said) < 2:
            said.append(len(said))
            return executor.guide(run.run_id, f"{TABS} {len(said)}")
        return None

    result = await guided(executor, just(step("code").agent(agent(backend), {})), hand)
    assert result.success
    assert [f"{TABS} 1" in one.prompt for one in backend.turns] == [False, True, True]
    assert [f"{TABS} 2" in one.prompt for one in backend.turns] == [False, False, True]
    given = events_of(executor, result, ev.AgentGuided)
    assert [one.numbers for one in given] == [(1,), (2,)]


async def test_a_paused_run_lets_an_agent_at_work_be_told() -> None:
    """It goes on to its end, in its place, and nothing else begins."""
    backend = Working("a")
    executor = Executor(journal=TextJournal(), clock=JumpClock())

    def hand(run: Any, event: Any) -> None:
        if isinstance(event, ev.AgentMessage) and event.text == "I see.":
            run.pause()
            run.guide(TABS)

    @workflow
    def flow() -> Steps[None]:
        one, other = (step(name).agent(agent(backend, name), {}) for name in "ab")
        yield from step("both").parallel(one, other, max_concurrency=1)

    result = await guided(executor, flow, hand)
    assert result.status == "suspended"
    assert [turn.agent for turn in backend.turns] == ["a", "a"]
    assert [one.path for one in result.step_results] == ["both/a"]


@pytest.mark.usefixtures("outside_git")
async def test_who_waits_for_a_claim_is_told_and_keeps_its_place() -> None:
    """It is launched once, with the words, and before who came later."""
    claims, backend, waits = LocalClaims(), Working(""), dict[str, str]()
    held = await claims.acquire(ClaimRequest(Claimant("ann", kind="person"), (Resource("git"),)))
    executor = Executor(journal=TextJournal())
    steps = [step(name).agent(agent(backend, name), {}).holds("git") for name in ("a", "b")]

    def hand(run: Any, event: Any) -> Any:
        if isinstance(event, ev.ClaimWaiting) and len(waits) < 2:
            waits[event.path] = event.holder
            if len(waits) == 2:
                return executor.guide(
                    run.run_id, TABS, path=min(waits, key=lambda at: len(waits[at]))
                )
        return claims.release(held) if isinstance(event, ev.AgentGuided) else None

    result = await guided(executor, just(step("both").parallel(*steps)), hand)
    await claims.close()
    first, second = sorted(waits, key=lambda at: len(waits[at]))
    assert result.status == "succeeded"
    assert [f"both/{turn.agent}" for turn in backend.turns] == [first, second]
    assert [f"both/{name}" for name in backend.told] == [first]


async def test_what_was_said_holds_for_the_attempts_that_follow() -> None:
    """The next attempt begins with the task and it, as does a launch in a new session."""

    async def fails(turn: AgentTurn) -> str:
        if turn.launch == 1:
            turn.emit(ev.AgentMessage(turn.path, "I see."))
            await anyio.sleep_forever()
        if turn.launch < 4:
            kind: Any = "context_overflow" if turn.launch == 2 else None
            raise AgentError(turn.agent, "no", kind=kind)
        return "done"

    backend = FakeBackend([fails] * 4)
    executor = Executor(journal=TextJournal(), clock=JumpClock())

    def hand(run: Any, event: Any) -> None:
        if isinstance(event, ev.AgentMessage) and event.text == "I see.":
            run.guide(TABS)

    flow = just(step("code").agent(agent(backend), {}).retry(2))
    result = await guided(executor, flow, hand)
    assert (result.value.output, result.step_results[0].attempts) == ("done", 2)
    assert [turn.prompt.count(TABS) for turn in backend.turns] == [0, 1, 1, 1]
    assert all("The task of t." in turn.prompt for turn in backend.turns)
    assert len(events_of(executor, result, ev.AgentGuided)) == 1


@pytest.mark.parametrize("what", ["cancel", "complete"])
async def test_an_agent_that_ends_while_it_is_broken_off_is_told_nothing(what: str) -> None:
    """What was said to it is for the next one, if there is one; what it used is paid for."""
    backend = Working("t")
    executor = Executor(journal=TextJournal())

    def hand(run: Any, event: Any) -> None:
        if isinstance(event, ev.AgentMessage) and event.text == "I see.":
            run.guide(TABS)
            if what == "complete":
                run.complete("code", "by hand")
            else:
                run.cancel()

    @workflow
    def flow() -> Steps[Any]:
        yield from step("code").agent(agent(backend), {})
        return (yield from step("next").agent(agent(backend, "n"), {}).answer())

    result = await guided(executor, flow, hand)
    assert result.status == ("succeeded" if what == "complete" else "cancelled")
    assert backend.told == (["n"] if what == "complete" else [])
    used = result.step_results[0].usage
    assert (used.cost_usd, used.turns) == (0.5, 1)


async def test_the_time_of_a_step_goes_on_over_what_it_is_told() -> None:
    """A launch that was broken off has used of it, too."""
    backend = Working("tt")
    executor = Executor(journal=TextJournal())
    said: list[str] = []

    async def guide(run: Any) -> None:
        await anyio.sleep(0.4)
        run.guide(TABS)

    def hand(run: Any, event: Any) -> Any:
        if isinstance(event, ev.AgentMessage) and not said:
            said.append(TABS)
            return guide(run)
        return None

    flow = just(step("code").agent(agent(backend), {}).timeout(0.6))
    result = await guided(executor, flow, hand)
    assert result.step_results[0].error_type == qualified(StepTimeout)
    assert result.step_results[0].duration_ms < 950
    assert (backend.told, result.step_results[0].usage.turns) == (["t"], 2)


async def test_budgets_count_a_launch_that_was_broken_off() -> None:
    """What it used is settled, and the launch that follows needs room, too."""
    backend = Working()
    executor = Executor(journal=TextJournal())

    def hand(run: Any, event: Any) -> None:
        if isinstance(event, ev.AgentMessage) and event.text == "I see.":
            run.guide(TABS)

    flow = just(step("code").agent(agent(backend), {}).budget(Budget(launches=2, usd=5.0)))
    result = await guided(executor, flow, hand)
    assert result.success
    settled = events_of(executor, result, ev.BudgetSettled)
    assert [one.usage.cost_usd for one in settled] == [0.5, 0.5]
    backend, executor = Working(), Executor(journal=TextJournal())
    flow = just(step("code").agent(agent(backend), {}).budget(Budget(launches=1)))
    result = await guided(executor, flow, hand)
    assert result.step_results[0].error_type == qualified(BudgetExceeded)


async def test_a_function_that_writes_text_is_no_agent() -> None:
    """It is not broken off; the words wait for one, and the result of the run is what it is."""

    async def write(_: Any) -> str:
        await anyio.sleep(0.1)
        return "text"

    executor = Executor(journal=TextJournal())

    def hand(run: Any, event: Any) -> None:
        if isinstance(event, ev.StepStarted):
            run.guide(TABS)

    result = await guided(executor, just(step("write").generate(write, {})), hand)
    assert result.value == "text"
    assert events_of(executor, result, ev.AgentGuided) == []
    view = view_of(Recorded(executor.journal.events(result.run_id)), alive=False, now=0.0)
    assert [one.value for one in view.untold] == [TABS]
