"""What agents may consume, and what happens when it is used up."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from handrail import (
    Agent,
    AgentError,
    Executor,
    FakeBackend,
    Limits,
    MemoryJournal,
    MemorySink,
    Steps,
    step,
    workflow,
)
from handrail.core.ledger import BudgetState
from handrail.errors import BudgetExceeded, DefinitionError
from handrail.model import events as ev
from handrail.model.policy import Budget
from handrail.model.results import Usage
from handrail.ports.agent import AgentReply
from handrail.record.run_record import Recorded
from handrail.record.view import view_of
from handrail.testing import JumpClock, TextJournal
from tests.engine.support import bound, cancelled_when, just, paths_begun


def reply(tokens: int = 0, usd: float | None = None) -> AgentReply:
    """An answer that used this much."""
    return AgentReply("ok", usage=Usage(tokens or None, cost_usd=usd))


def agent_of(*replies: Any) -> Agent[str]:
    """An agent with these replies."""
    return Agent("worker", "Work.", backend=FakeBackend(list(replies)))


@bound
def flow_of(agent: Any, steps: int) -> Steps[list[str]]:
    """A workflow of that many agent steps; it gives the names of those that were done."""
    done = []
    for number in range(steps):
        yield from step(f"s{number}").agent(agent)
        done.append(f"s{number}")
    return done


async def run(flow: Any, budget: Budget, *, gates: Any = None) -> tuple[Any, list[Any]]:
    """The result of a run with this budget, and its events."""
    sink = MemorySink()
    executor = Executor(limits=Limits(budget=budget), sinks=[sink], clock=JumpClock(), gates=gates)
    return await executor.run(flow), list(sink.events)


@pytest.mark.parametrize(
    ("budget", "name"),
    [
        (Budget(launches=2), "launches"),
        (Budget(tokens=250), "tokens"),
        (Budget(usd=0.25), "usd"),
    ],
)
async def test_a_launch_that_does_not_fit_is_not_made(budget: Budget, name: str) -> None:
    """Two launches of 100 tokens and 0.1 dollars fit, the third does not, and its step fails."""
    agent = agent_of(*[reply(100, 0.1)] * 3)
    result, _ = await run(flow_of(agent, 3), budget)
    assert result.status == "failed"
    assert result.failed_step == "s2"
    assert result.step_results[-1].is_a(BudgetExceeded)
    assert f"budget of the run does not allow another launch of an agent: {name}" in result.error
    assert len(agent.backend.turns) == 2


async def test_a_share_is_reserved_before_and_settled_after_each_launch() -> None:
    """The dearest launch so far is set aside, and replaced by what was used."""
    _, events = await run(flow_of(agent_of(reply(100), reply(40)), 2), Budget(tokens=1_000))
    told = [one for one in events if isinstance(one, (ev.BudgetReserved, ev.BudgetSettled))]
    assert [(type(one).__name__, one.path, one.launch) for one in told] == [
        ("BudgetReserved", "s0", 1), ("BudgetSettled", "s0", 1),
        ("BudgetReserved", "s1", 1), ("BudgetSettled", "s1", 1),
    ]  # fmt: skip
    assert [one.tokens for one in told if isinstance(one, ev.BudgetReserved)] == [None, 100]
    assert [one.usage.tokens for one in told if isinstance(one, ev.BudgetSettled)] == [100, 40]


async def test_retries_and_re_asks_are_launches() -> None:
    """Each launch counts, and a failed one is paid for too."""
    down = AgentError("worker", "down", kind="transient", usage=Usage(70))
    result, events = await run(flow_of(agent_of(down, reply(30)), 1), Budget(tokens=140))
    assert result.success
    settled = [one.usage for one in events if isinstance(one, ev.BudgetSettled)]
    assert [usage and usage.tokens for usage in settled] == [70, 30]
    result, _ = await run(flow_of(agent_of(down, reply(30)), 1), Budget(launches=1))
    assert result.status == "failed"


async def test_a_warning_is_told_once() -> None:
    """At 80 percent, not before, and not again."""
    _, events = await run(flow_of(agent_of(*[reply(100)] * 10), 10), Budget(tokens=1_000))
    warned = [(one.path, one.name, one.used, one.limit) for one in events
              if isinstance(one, ev.BudgetWarning)]  # fmt: skip
    assert warned == [("s7", "tokens", 800, 1_000)]


async def test_a_warning_is_not_told_again_after_a_resume() -> None:
    """What an earlier drive warned of is known to the next."""
    agent = agent_of(*[reply(100)] * 3)
    flow = just(
        step("a").agent(agent),
        step("go on?").ask("Go on?", choices=["yes", "no"]),
        step("b").agent(agent),
    )
    journal = TextJournal()
    executor = Executor(limits=Limits(budget=Budget(tokens=1_000, soft=0.1)), journal=journal)
    await executor.options(run_id="r").run(flow)
    await executor.answer("r", "go on?", "yes")
    assert (await executor.resume("r", flow)).success
    warned = [event.path for event in journal.events("r") if isinstance(event, ev.BudgetWarning)]
    assert warned == ["a"]


async def test_an_unknown_cost_is_said_and_stays_reserved() -> None:
    """A launch that does not say what it cost counts as what was set aside for it."""
    budget = Budget(usd=1.0, reserve_usd=0.4)
    result, events = await run(flow_of(agent_of(*[reply(10)] * 3), 3), budget)
    assert result.failed_step == "s2"
    assert [one.name for one in events if isinstance(one, ev.BudgetWarning)][:1] == ["unknown_usd"]


async def test_a_breach_suspends_and_a_larger_budget_goes_on() -> None:
    """Resumed with the same budget it suspends again; with more it ends."""
    agent = agent_of(*[reply(100)] * 3)
    flow = flow_of(agent, 3)
    journal, clock = TextJournal(), JumpClock()

    def executor(tokens: int) -> Executor:
        budget = Budget(tokens=tokens, on_breach="suspend")
        return Executor(limits=Limits(budget=budget), journal=journal, clock=clock)

    result = await executor(200).options(run_id="r").run(flow)
    assert result.status == "suspended"
    assert "tokens 200 of 200 used or reserved, and it is expected to use 100." in result.error
    assert "Raise it, then resume the run." in result.error
    assert (await executor(200).resume("r", flow)).status == "suspended"
    assert len(agent.backend.turns) == 2
    assert (await executor(400).resume("r", flow)).success


@pytest.mark.parametrize(("answer", "status"), [("allow", "succeeded"), ("stop", "failed")])
async def test_a_breach_asks_whether_as_much_again_may_be_used(answer: str, status: str) -> None:
    """The gate says what is used up; each answer allows one budget more, or fails the step."""
    asked: list[str] = []

    def gates(gate: Any) -> str:
        asked.append(gate.question)
        return answer

    budget = Budget(tokens=150, on_breach="ask")
    agent = agent_of(*[reply(100)] * 4)
    result, events = await run(flow_of(agent, 4), budget, gates=gates)
    assert result.status == status
    assert "tokens 100 of 150 used or reserved, and it is expected to use 100. Allow" in asked[0]
    raised = [one.scope for one in events if isinstance(one, ev.BudgetRaised)]
    assert raised == ([""] * 2 if answer == "allow" else [])


async def test_a_policy_of_approval_allows_no_money() -> None:
    """Gates that are approved by themselves do not raise a budget."""
    budget = Budget(launches=1, on_breach="ask")
    result, _ = await run(flow_of(agent_of(reply(), reply()), 2), budget, gates="approve")
    assert result.status == "failed"


async def test_an_open_gate_of_a_budget_is_answered_later() -> None:
    """The run suspends at the question, and goes on with its answer in another drive."""
    agent = agent_of(reply(), reply())
    flow = flow_of(agent, 2)
    executor = Executor(
        limits=Limits(budget=Budget(launches=1, on_breach="ask")), journal=TextJournal()
    )
    result = await executor.options(run_id="r").run(flow)
    (gate,) = result.waiting
    assert (result.status, gate.path, gate.choices) == (
        "suspended",
        "s1/budget-1",
        ("stop", "allow"),
    )
    await executor.answer("r", gate.path, "allow")
    assert (await executor.resume("r", flow)).success


async def test_each_budget_asks_for_itself() -> None:
    """What is allowed to a step is not allowed to the run: that is another question."""
    budget = Budget(launches=1, on_breach="ask")
    agent = Agent("worker", "Work.", output=int, backend=FakeBackend(["no", "2"]))
    flow = just(step("a").agent(agent).budget(budget))
    executor = Executor(limits=Limits(budget=budget), journal=TextJournal())
    first = await executor.options(run_id="r").run(flow)
    assert [gate.path for gate in first.waiting] == ["a/budget-1"]
    assert "of step 'a'" in first.waiting[0].question
    await executor.answer("r", "a/budget-1", "allow")
    second = await executor.resume("r", flow)
    assert [gate.path for gate in second.waiting] == ["a/budget-2"]
    assert "of the run" in second.waiting[0].question
    await executor.answer("r", "a/budget-2", "allow")
    assert (await executor.resume("r", flow)).success


async def test_a_no_holds_for_this_failure_and_is_asked_again_on_resume() -> None:
    """Resumed, the step that failed of it asks anew, and may be allowed."""
    agent = agent_of(reply(), reply())
    flow = flow_of(agent, 2)
    journal = TextJournal()
    executor = Executor(limits=Limits(budget=Budget(launches=1, on_breach="ask")), journal=journal)
    await executor.options(run_id="r").run(flow)
    await executor.answer("r", "s1/budget-1", "stop")
    assert (await executor.resume("r", flow)).status == "failed"
    again = await executor.resume("r", flow)
    assert (again.status, [gate.path for gate in again.waiting]) == ("suspended", ["s1/budget-1"])
    await executor.answer("r", "s1/budget-1", "allow")
    assert (await executor.resume("r", flow)).success


async def test_a_no_to_one_member_is_not_undone_by_a_yes_to_another() -> None:
    """Both questions are answered while the run is suspended; each member gets its own answer."""
    agent = Agent("w", "Work.", backend=FakeBackend([reply(0, 0.5)] * 3))
    flow = just(
        step("first").agent(agent),
        step("all").parallel(step("m").agent(agent), step("n").agent(agent), on_error="continue"),
    )
    budget = Budget(usd=1.0, reserve_usd=0.6, on_breach="ask")
    executor = Executor(limits=Limits(budget=budget), journal=TextJournal())
    first = await executor.options(run_id="r").run(flow)
    assert sorted(gate.path for gate in first.waiting) == ["all/m/budget-1", "all/n/budget-1"]
    await executor.answer("r", "all/m/budget-1", "allow")
    await executor.answer("r", "all/n/budget-1", "stop")
    members = (await executor.resume("r", flow)).unwrap()
    assert [member.status for member in members] == ["succeeded", "failed"]


async def test_launches_that_are_made_again_are_paid_for_again() -> None:
    """A failed step that runs again on resume takes its part of the budget a second time."""
    agent = agent_of(reply(), AgentError("worker", "no"), reply(), reply())
    journal = TextJournal()
    executor = Executor(limits=Limits(budget=Budget(launches=3)), journal=journal)
    flow = flow_of(agent, 3)
    assert (await executor.options(run_id="r").run(flow)).status == "failed"
    again = await executor.resume("r", flow)
    assert "launches 3 of 3" in (again.error or "")
    reserved = [one for one in journal.events("r") if isinstance(one, ev.BudgetReserved)]
    assert len({(one.path, one.launch) for one in reserved}) == len(reserved) == 3


async def test_what_a_later_launch_does_not_say_is_not_taken_for_nothing() -> None:
    """The second launch says no cost: what was reserved for it stays, and a warning says so."""
    replies = FakeBackend([AgentReply("no", usage=Usage(cost_usd=0.3)), AgentReply("5")])
    agent = Agent("w", "Work.", output=int, backend=replies)
    _, events = await run(flow_of(agent, 1), Budget(usd=10, reserve_usd=1))
    settled = [one.usage and one.usage.cost_usd for one in events
               if isinstance(one, ev.BudgetSettled)]  # fmt: skip
    assert settled == [0.3, None]
    assert "unknown_usd" in [one.name for one in events if isinstance(one, ev.BudgetWarning)]


@pytest.mark.parametrize(
    ("answer", "failed", "why"),
    [("allow", "s3", "usd 0.8 of 1"), ("stop", "s1", "1 launch of an agent did not report its")],
)
async def test_launches_that_say_nothing_are_asked_about(
    answer: str, failed: str, why: str
) -> None:
    """Whatever the policy; who allows more of them allows no more dollars, also after a resume."""
    agent = agent_of(reply(), reply(usd=0.4), reply(usd=0.4), reply(usd=0.4), reply(usd=0.4))
    flow = flow_of(agent, 5)
    limits = Limits(budget=Budget(usd=1.0, unknown=1))
    journal = TextJournal()
    executor = Executor(journal=journal, limits=limits, clock=JumpClock(), workflows=[flow])
    asked = await executor.options(run_id="r").run(flow)
    await executor.answer("r", asked.waiting[0].path, answer)
    result = await executor.resume("r")
    assert result.failed_step == failed
    assert why in (result.error or "")
    sums = BudgetState(journal.events("r"))
    assert (sums.times("", "unknown"), sums.times("", "usd")) == (int(answer == "allow"), 0)


async def test_what_failed_launches_used_is_in_the_result() -> None:
    """Also where a default took the place of the answer, and where no fault was known."""
    refused = AgentError("w", "no", kind="refusal", usage=Usage(10, cost_usd=1.0))
    agent = Agent("w", "Work.", backend=FakeBackend([refused]))
    result = await Executor().run(just(step("a").agent(agent).default("d")))
    assert result.usage == Usage(10, cost_usd=1.0)


async def test_a_budget_is_its_steps_in_every_attempt_around_it() -> None:
    """A child workflow with retries below a step with retries keeps its own count in each."""
    agent = Agent("w", "Work.", backend=FakeBackend([AgentError("w", "no")] * 20))
    inner = just(step("z").agent(agent))

    @workflow
    def outer() -> Steps[Any]:
        once = Budget(launches=2)
        return (yield from step("y").run_workflow(inner).retry(3, backoff=0).budget(once))

    await Executor(clock=JumpClock()).run(just(step("x").run_workflow(outer).retry(2, backoff=0)))
    assert len(agent.backend.turns) == 4


async def test_the_nearest_budget_speaks_first_and_a_child_shares_its_parents() -> None:
    """A step's own, its group's and the run's all count; the error names whose it is."""
    agent = agent_of(*[reply(10)] * 6)

    @workflow
    def child() -> Steps[None]:
        for number in range(3):
            yield from step(f"c{number}").agent(agent)

    @workflow
    def flow() -> Steps[Any]:
        first = yield from step("first").run_workflow(child).budget(Budget(launches=3))
        yield from step("own").agent(agent).budget(Budget(launches=1))
        yield from step("second").run_workflow(child).budget(Budget(launches=1))
        return first

    result, _ = await run(flow, Budget(launches=100))
    assert result.status == "failed"
    assert "budget of step 'second'" in result.error
    assert len(agent.backend.turns) == 5


def crowd_of(agent: Agent[str], size: int) -> Any:
    """A workflow that launches this agent so often at once; what failed is left out."""

    @workflow
    def crowd() -> Steps[Any]:
        member = step("work").agent(agent).skip_on_error()
        return (yield from step("all").for_each(range(size), lambda _: member))

    return crowd


async def test_a_launch_that_waits_for_a_place_sets_nothing_aside() -> None:
    """Each is looked at when the one before is settled: five of 10 tokens fit in 50."""
    agent = agent_of(*[reply(10)] * 6)
    sink = MemorySink()
    limits = Limits(max_concurrency=1, budget=Budget(tokens=50, reserve_tokens=10))
    await Executor(limits=limits, sinks=[sink], clock=JumpClock()).run(crowd_of(agent, 6))
    assert len(agent.backend.turns) == 5
    kinds = (ev.BudgetReserved, ev.BudgetSettled)
    told = [type(event) for event in sink.events if isinstance(event, kinds)]
    assert told == [*kinds] * 5


async def test_what_waited_when_a_run_was_interrupted_is_not_counted() -> None:
    """Of four launches with one place one was made: the other three are free when it goes on."""
    sink = MemorySink()
    slow = Agent("worker", "Work.", backend=FakeBackend([reply(10)] * 4, delay=1_000))
    limits = Limits(max_concurrency=1, budget=Budget(launches=5))
    journal = TextJournal()
    executor = Executor(limits=limits, journal=journal, sinks=[sink])
    async with cancelled_when(lambda: len(paths_begun(sink)) > 4):
        await executor.options(run_id="r").run(crowd_of(slow, 4))
    assert sum(isinstance(event, ev.BudgetReserved) for event in sink.events) == 1
    quick = agent_of(*[reply(10)] * 4)
    again = Executor(limits=limits, journal=journal)
    result = await again.resume("r", crowd_of(quick, 4))
    assert [one.status for one in result.step_results if one.name == "work"] == ["succeeded"] * 4


async def test_who_has_to_ask_gives_its_place_back() -> None:
    """While a question about money is open, a step that costs nothing takes the only place."""
    agent = agent_of(reply(10), reply(10))
    done: list[str] = []
    flow = just(
        step("first").agent(agent),
        step("both").parallel(step("dear").agent(agent), step("free").call(done.append, "free")),
    )
    limits = Limits(max_concurrency=1, budget=Budget(launches=1, on_breach="ask"))
    result = await Executor(limits=limits, clock=JumpClock()).run(flow)
    assert (result.status, done) == ("suspended", ["free"])


async def test_a_launch_that_waits_is_cancelled_with_its_group() -> None:
    """Two wait for the place of one that fails: none of them is launched, and neither a share nor
    the place stays taken.
    """
    agent = agent_of(AgentError("worker", "no", kind="bad_request"), reply(10))
    sink = MemorySink()

    @workflow
    def flow() -> Steps[Any]:
        group = step("all").for_each(range(3), lambda _: step("work").agent(agent))
        yield from group.default(None)
        return (yield from step("after").agent(agent))

    limits = Limits(max_concurrency=1, budget=Budget(launches=9))
    with anyio.fail_after(10):
        result = await Executor(limits=limits, sinks=[sink], clock=JumpClock()).run(flow)
    assert (result.step("all").status, result.status) == ("defaulted", "succeeded")
    assert len(agent.backend.turns) == 2
    assert sum(type(event) is ev.BudgetReserved for event in sink.events) == 2


async def test_what_a_failed_attempt_used_counts_when_the_next_is_made_by_another_drive() -> None:
    """The step has used all that its attempts did, in whichever drives they were made."""
    failure = AgentError("worker", "no", kind="bad_request", usage=Usage(7, 0))
    agent = agent_of(failure, reply(10), reply(10))
    flow = just(step("work").agent(agent).retry(2, backoff=0))
    journal = MemoryJournal()
    whole = await Executor(journal=journal, clock=JumpClock()).options(run_id="r").run(flow)
    events = journal.events("r")
    failed = next(at for at, one in enumerate(events) if isinstance(one, ev.AttemptFailed))
    left = MemoryJournal()
    left.append_run(events[: failed + 1])
    resumed = await Executor(journal=left, clock=JumpClock()).resume("r", flow)
    for result in (whole, resumed):
        assert result.success, result
        assert result.usage is not None
        assert result.usage.input_tokens == 17


@pytest.mark.parametrize("budget", [Budget(usd=2), Budget(tokens=20)])
async def test_the_first_launch_goes_alone_where_nothing_says_what_one_takes(
    budget: Budget,
) -> None:
    """Of 20 at once two fit: all others are looked at when it is known what the first took."""
    agent = agent_of(*[reply(10, 1.0)] * 20)
    sink = MemorySink()
    limits = Limits(budget=budget)
    await Executor(limits=limits, sinks=[sink], clock=JumpClock()).run(crowd_of(agent, 20))
    assert len(agent.backend.turns) == 2
    warned = [event.name for event in sink.events if isinstance(event, ev.BudgetWarning)]
    assert warned.count("first_launch") == 1


@pytest.mark.parametrize(
    "budget", [Budget(usd=100, reserve_usd=1), Budget(tokens=900, reserve_tokens=9)]
)
async def test_launches_with_a_share_begin_at_once(budget: Budget) -> None:
    """What is set aside for each bounds them all."""
    agent = Agent("worker", "Work.", backend=FakeBackend([reply(9, 1.0)] * 20, delay=60))
    limits = Limits(budget=budget, max_concurrency=20)
    result = await Executor(limits=limits, clock=JumpClock()).run(crowd_of(agent, 20))
    assert result.success
    assert result.total_duration_ms == pytest.approx(60_000, abs=1)


async def test_a_first_launch_that_does_not_say_what_it_took_holds_nobody() -> None:
    """The others then begin, and that nothing is known of their tokens is said once."""
    agent = agent_of(*[reply()] * 5)
    sink = MemorySink()
    limits = Limits(budget=Budget(tokens=20))
    result = await Executor(limits=limits, sinks=[sink], clock=JumpClock()).run(crowd_of(agent, 5))
    assert result.success
    assert len(agent.backend.turns) == 5
    warned = [event.name for event in sink.events if isinstance(event, ev.BudgetWarning)]
    assert warned == ["first_launch", "unknown_tokens"]


async def test_who_waits_for_the_first_launch_can_be_cancelled() -> None:
    """A group whose time is over ends although its members wait for one of them."""
    agent = Agent("worker", "Work.", backend=FakeBackend(["never"] * 3, delay=1_000))

    @workflow
    def flow() -> Steps[Any]:
        group = step("all").for_each(range(3), lambda _: step("work").agent(agent)).timeout(60)
        return (yield from group)

    limits = Limits(budget=Budget(usd=2), max_concurrency=2)
    result = await Executor(limits=limits, clock=JumpClock()).run(flow)
    assert result.status == "failed"
    assert [one.status for one in result.step_results if one.name == "work"] == ["cancelled"] * 3


async def test_wall_time_stops_a_launch() -> None:
    """A launch that is at work when the time is over is stopped, and its step fails."""
    slow = FakeBackend(["never"], delay=1_000)
    result, _ = await run(flow_of(Agent("worker", "Work.", backend=slow), 1), Budget(wall_s=60))
    assert result.status == "failed"
    assert result.total_duration_ms == pytest.approx(60_000, abs=1)
    assert "wall_s 60 of 60 used or reserved" in (result.error or "")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Budget, "a Budget needs a bound"),
        (lambda: Budget(usd=0), "usd of a Budget must be above 0"),
        (lambda: Budget(tokens=0), "tokens of a Budget must be a whole number of at least 1"),
        (lambda: Budget(usd=1, soft=2), "soft of a Budget must be a share"),
        (lambda: Budget(usd=1, on_breach="shout"), "on_breach of a Budget must be one of"),  # type: ignore[arg-type]
        (lambda: step("x").call(print).budget(Budget(usd=1)), r"\.budget\(\) is for agents"),
        (lambda: step("x").ask("?").budget(Budget(usd=1)), r"\.budget\(\) is for agents"),
        (lambda: Limits(budget=3), "budget of Limits must be a Budget"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_budget_says_what_is_wrong(make: Any, said: str) -> None:
    """Each is refused where it is written."""
    with pytest.raises(DefinitionError, match=said):
        make()


@pytest.mark.parametrize("by", ["resume", "fork"])
@pytest.mark.parametrize(
    "budget", [Budget(launches=3), Budget(tokens=35), Budget(usd=0.35)], ids=str
)
async def test_a_budget_counts_what_was_used_before_there_was_one(budget: Budget, by: str) -> None:
    """Two of three launches were made by then: one more follows."""

    @workflow
    def whole() -> Steps[None]:
        yield from step("first").agent(agent_of(reply(10, 0.1)))
        yield from step("second").agent(agent_of(reply(10, 0.1)))
        yield from step("gate").ask("?", choices=["yes"])
        yield from step("third").agent(agent_of(reply(10, 0.1)))
        yield from step("fourth").agent(agent_of(reply(10, 0.1)))

    journal = TextJournal()
    before = Executor(journal=journal, workflows=[whole])
    run_id = (await before.run(whole)).run_id
    if by == "fork":
        run_id = await before.fork(run_id)
    await before.answer(run_id, "gate", "yes")
    result = await Executor(journal=journal, limits=Limits(budget=budget)).resume(run_id, whole)
    assert (result.status, result.failed_step) == ("failed", "fourth")
    assert "budget" in (result.error or "")


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (None, 0), ("config", 0), ("not_installed", 0), ("prompt", 0), ("bad_request", 1),
        ("refusal", 1),
    ],
)  # fmt: skip
async def test_only_what_was_asked_is_a_launch_now_and_after_a_resume(
    error: Any, asked: int, bounded: bool
) -> None:
    """A refusal is not retried and counts nowhere: later launches have the whole budget."""
    failure = AgentError("worker", "no", kind=None if error == "prompt" else error)
    worker = Agent("worker", "{{ nothing }}" if error == "prompt" else "Work.")
    mended = Agent("worker", "Work.")

    def flow_of(agent: Any) -> Any:
        @workflow(name="flow")
        def flow() -> Steps[None]:
            for number in range(3):
                yield from step(f"s{number}").agent(agent).retry(2, backoff=0)

        return flow

    journal = TextJournal()
    budget = Limits(budget=Budget(launches=9)) if bounded else Limits()
    before = Executor(
        journal=journal,
        limits=budget,
        backend=error and FakeBackend([failure] * 2),
        on_change="rerun",
    )
    failed = await before.run(flow_of(worker))
    tries = 2 * asked or 1
    assert failed.step("s0").attempts == tries
    history = list(journal.events(failed.run_id))
    recorded = Recorded(history)
    assert view_of(recorded, alive=False, now=0.0).spent.launches == 2 * asked
    assert BudgetState(recorded.spending).ledger.of("").launches == 2 * asked
    after = Executor(
        journal=journal,
        limits=Limits(budget=Budget(launches=2 * asked + 2)),
        backend=FakeBackend(["ok"] * 3),
        on_change="rerun",
    )
    result = await after.resume(failed.run_id, flow_of(mended))
    assert result.failed_step == "s2"
