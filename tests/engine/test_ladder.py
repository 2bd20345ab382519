"""How a run lives through agents that fail, on a clock that jumps."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail import (
    Agent,
    AgentError,
    Budget,
    BudgetExceeded,
    CodexBackend,
    Executor,
    FakeBackend,
    Limits,
    MemorySink,
    NotClean,
    Steps,
    StepTimeout,
    WorkflowResult,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.model.launch import Launch
from handrail.model.results import Usage, qualified
from handrail.ports.agent import AgentReply, AgentTurn
from handrail.testing import JumpClock, TextJournal
from handrail.testing.clock import START
from handrail.testing.fake_programs import Dies, fake_cli
from tests.engine.support import just

HOUR = 3_600.0


def capped(**more: Any) -> AgentError:
    """A plan whose window is used up."""
    return AgentError("coder", "you hit your limit", kind="usage_cap", **more)


def flow_of(agent: Any, **settings: Any) -> Any:
    """A workflow of one agent step, which gives the agent's result."""
    return just(step("code").agent(agent, {}, **settings))


async def ran(backend: Any, clock: JumpClock | None = None, **options: Any) -> WorkflowResult[Any]:
    """The result of a run of one step, whose agent has this backend, on a clock that jumps."""
    flow = flow_of(Agent("coder", "Do it.", backend=backend))
    return await Executor(clock=clock or JumpClock(), **options).run(flow)


def kinds(sink: MemorySink) -> list[str]:
    """The journaled events of the run, by name, without those of the run itself."""
    return [
        type(event).__name__
        for event in sink.events
        if isinstance(event, (ev.StepStarted, ev.LadderStep, ev.TimerSet, ev.AttemptFailed))
    ]


async def test_a_cap_is_waited_for_and_costs_no_attempt() -> None:
    """A step with one attempt survives a cap of five hours: probed once, then waited for."""
    clock, sink = JumpClock(), MemorySink()
    backend = FakeBackend([capped(retry_at=START + 5 * HOUR)] * 2 + ["done"])
    result = await ran(backend, clock=clock, sinks=[sink])
    assert result.unwrap().output == "done"
    assert (result.step_results[0].attempts, result.value and result.value.attempts) == (1, 3)
    assert kinds(sink) == ["StepStarted", "LadderStep", "TimerSet", "LadderStep", "TimerSet"]
    assert 5 * HOUR < clock.now() - START < 5.1 * HOUR


async def test_a_transient_failure_is_retried_in_its_session() -> None:
    """The second prompt goes into the session and says that the first broke off."""
    down = AgentError("coder", "overloaded", kind="transient", session="s-1")
    backend = FakeBackend([down, AgentReply("done", session="s-1")])
    result = await ran(backend)
    assert result.success
    first, second = backend.turns
    assert (first.session, second.session) == (None, "s-1")
    assert "interrupted: overloaded" in second.prompt
    assert second.prompt.endswith("Do it.")


async def test_a_step_whose_session_is_gone_goes_on_in_a_new_one(tmp_path: Path) -> None:
    """A program that has forgotten the session in which it crashed is asked once more, in another,
    within the same attempt.
    """

    def prompt(_: Any) -> str:
        """The prompt of each launch, before which the program forgets all sessions."""
        state = codex.folder / "state.json"
        state.write_text(json.dumps(json.loads(state.read_text()) | {"sessions": {}}))
        return "Do it."

    with fake_cli("codex", [Dies(after="start"), "done."], path=tmp_path) as codex:
        agent = Agent("coder", prompt, backend=CodexBackend())
        result = await Executor(clock=JumpClock()).run(flow_of(agent))
    assert result.unwrap().output == "done."
    assert result.step_results[0].attempts == 1
    assert ["thread/resume" in call.stdin for call in codex.calls] == [False, True, False]


WORTH = {"StepStarted", "LadderStep", "AttemptFailed"}


async def test_what_is_used_up_fails_the_attempt_and_then_counts_as_one() -> None:
    """A failure that goes on is the attempt's, the step's retry follows with a clean session."""
    down = AgentError("coder", "gone", kind="crashed", session="s-1")
    backend = FakeBackend([down] * 3 + ["done"])
    sink = MemorySink()
    agent = Agent("coder", "Do it.", backend=backend)
    flow = just(step("code").agent(agent, {}).retry(2, backoff=0))
    result = await Executor(clock=JumpClock(), sinks=[sink]).run(flow)
    assert result.success
    assert result.step_results[0].attempts == 2
    told = [kind for kind in kinds(sink) if kind in WORTH]
    assert told == ["StepStarted", "LadderStep", "LadderStep", "AttemptFailed"]
    assert [turn.session for turn in backend.turns] == [None, "s-1", "s-1", None]
    assert [turn.turn for turn in backend.turns] == [1, 2, 3, 1]


async def test_the_total_of_a_session_is_the_last_that_any_step_knew() -> None:
    """Two steps go on in the session of a third: the second of them does not count the first's."""
    totals = [Usage(100, 1), Usage(300, 2), Usage(600, 3)]
    replies = [AgentReply("ok", session="s-1", session_usage=total) for total in totals]
    backend = FakeBackend(replies)
    agent = Agent("a", "Do it.", backend=backend)

    @workflow
    def flow() -> Steps[None]:
        first = yield from step("a").agent(agent)
        yield from step("b").agent(agent, session=first)
        yield from step("c").agent(agent, session=first)

    assert (await Executor(clock=JumpClock()).run(flow)).success
    assert [turn.session_usage for turn in backend.turns] == [None, *totals[:2]]


@pytest.mark.parametrize("kind", ["auth", "spending_cap"])
async def test_what_a_person_must_mend_suspends_the_run(kind: Any) -> None:
    """The run says what to do and uses no attempt; resumed, the step is launched again."""
    refused = AgentError("coder", "Not logged in", kind=kind, hint="Run `coder login`.")
    backend = FakeBackend([refused, "done"])
    flow = flow_of(Agent("coder", "Do it.", backend=backend))
    executor = Executor(clock=JumpClock())
    result = await executor.options(run_id="r").run(flow)
    assert result.status == "suspended"
    assert result.error == "fake: Not logged in. Run `coder login`."
    again = await executor.resume("r", flow)
    assert again.unwrap().output == "done"
    assert again.step_results[0].attempts == 1


async def test_siblings_go_on_while_one_step_waits_for_a_person() -> None:
    """The run suspends when nothing else can be done, and not before."""
    refused = AgentError("coder", "no credit", kind="spending_cap")
    agent = Agent("coder", "Do it.", backend=FakeBackend([refused]))
    done: list[str] = []
    flow = just(
        step("both").parallel(
            step("code").agent(agent, {}),
            step("slow").sleep(100),
            step("other").call(done.append, "other"),
        )
    )
    sink = MemorySink()
    result = await Executor(clock=JumpClock(), sinks=[sink]).run(flow)
    assert (result.status, done) == ("suspended", ["other"])
    ended = {event.path for event in sink.events if isinstance(event, ev.StepCompleted)}
    assert ended == {"both/slow", "both/other"}


async def test_a_full_session_is_left_with_a_summary() -> None:
    """A backend that cannot compact gets a new session, told what the old one did."""
    full = AgentError("coder", "too long", kind="context_overflow", session="s", text="I did A.")
    backend = FakeBackend([full, full, "done"])
    backend_without = type("Plain", (), {"name": "plain", "complete": backend.complete})()
    result = await ran(backend_without)
    assert result.success
    assert [turn.session for turn in backend.turns] == [None, None, None]
    assert "I did A." in backend.turns[1].prompt
    assert backend.turns[1].prompt.startswith("Do it.")


async def test_a_backend_that_can_compacts_its_session() -> None:
    """The same session is gone on in, and the backend is told to make it smaller."""
    full = AgentError("coder", "too long", kind="context_overflow", session="s")
    backend = FakeBackend([full, "done"])
    await ran(backend)
    assert [(turn.session, turn.compact) for turn in backend.turns] == [(None, False), ("s", True)]


async def test_the_last_re_ask_is_reframed() -> None:
    """Told why in the session first, then anew: the prompt again with the reason before it."""
    backend = FakeBackend([AgentReply("?", session="s"), AgentReply("??", session="s"), "4"])
    agent = Agent("count", "Count it.", output=int, backend=backend)
    result = await Executor(clock=JumpClock()).run(flow_of(agent))
    assert result.unwrap().output == 4
    assert [turn.session for turn in backend.turns] == [None, "s", None]
    assert "no JSON value found" in backend.turns[2].prompt
    assert "Count it." in backend.turns[2].prompt


@pytest.mark.parametrize("backoff", [0, HOUR], ids=["one drive", "many"])
async def test_re_asks_are_not_multiplied_by_retries(backoff: float) -> None:
    """The first attempt asks again twice, the two after it ask once each; so it is where the run
    suspends before each attempt.
    """
    backend = FakeBackend(["?"] * 20)
    agent = Agent("count", "Count it.", output=int, backend=backend)
    flow = just(step("count").agent(agent).retry(3, backoff=backoff))
    clock = JumpClock(jumps=False)
    executor = Executor(clock=clock, journal=TextJournal(), suspend_timers_after_s=60)
    result = await executor.options(run_id="r").run(flow)
    while result.status == "suspended":
        clock.advance(HOUR)
        result = await executor.resume("r", flow)
    assert (result.status, result.step_results[0].attempts) == ("failed", 3)
    assert [turn.turn for turn in backend.turns] == [1, 2, 3, 1, 1]


async def test_the_fallback_answers_when_the_first_backend_cannot() -> None:
    """The next backend of the chain gets the plain prompt; the result says whose answer it is."""
    first = FakeBackend([AgentError("coder", "no such model", kind="bad_request")], name="first")
    second = FakeBackend(["done"], name="second")
    agent = Agent("coder", "Do it.", backend=first, model="m-1", fallback=[second])
    result = await Executor(clock=JumpClock()).run(flow_of(agent))
    assert result.unwrap().backend == "second"
    assert [turn.prompt for turn in second.turns] == ["Do it."]
    assert second.turns[0].options.model is None


async def test_a_default_is_given_when_everything_failed_and_is_marked() -> None:
    """Only then, and the run is degraded."""
    backend = FakeBackend([AgentError("coder", "no", kind="refusal")])
    agent = Agent("coder", "Do it.", backend=backend)
    flow = just(step("code").agent(agent, {}).default("nothing"))
    result = await Executor(clock=JumpClock()).run(flow)
    assert (result.value, result.degraded) == ("nothing", True)
    assert result.step_results[0].status == "defaulted"


async def test_a_step_that_must_run_once_climbs_no_ladder() -> None:
    """A launch that may have taken effect is not made again."""
    backend = FakeBackend([AgentError("coder", "gone", kind="crashed"), "done"])
    agent = Agent("coder", "Do it.", backend=backend)
    result = await Executor(clock=JumpClock()).run(just(step("code").agent(agent, {}).once()))
    assert result.status == "failed"
    assert len(backend.turns) == 1


async def test_a_cost_that_the_backend_does_not_say_is_of_the_table() -> None:
    """Where the model is in the table; else it is unknown, and not zero."""
    said = Usage(100_000, 0)
    known = AgentReply("x", model="claude-sonnet-4-5", usage=said)
    backend = FakeBackend([known, AgentReply("x", model="made-up-1", usage=said)])
    agent = Agent("c", "Do it.", backend=backend)
    first = (await Executor().run(flow_of(agent))).usage
    second = (await Executor().run(flow_of(agent))).usage
    assert first is not None
    assert (first.cost_usd, first.cost_source) == (pytest.approx(0.3), "table")
    assert second == said


async def test_a_session_is_chained_on_purpose_and_forked() -> None:
    """session= goes on in the session of an earlier result; without it a step starts clean."""
    backend = FakeBackend([AgentReply("a", session="s-1"), "b", "c", "d"])
    agent = Agent("coder", "Do it.", backend=backend)

    @workflow
    def flow() -> Steps[None]:
        first = yield from step("a").agent(agent)
        yield from step("b").agent(agent, session=first)
        yield from step("c").agent(agent, session=first, fork=True)
        yield from step("d").agent(agent)

    assert (await Executor().run(flow)).success
    assert [(turn.session, turn.fork) for turn in backend.turns] == [
        (None, False), ("s-1", False), ("s-1", True), (None, False),
    ]  # fmt: skip


async def test_a_cancelled_wait_ends_the_step() -> None:
    """A run that waits for a cap can be cancelled at once."""
    backend = FakeBackend([capped()])
    clock = JumpClock(jumps=False)
    executor = Executor(clock=clock)
    async with executor.stream(flow_of(Agent("coder", "Do it.", backend=backend))) as run:
        async for event in run:
            if isinstance(event, ev.TimerSet):
                run.cancel("enough")
    assert run.result.status == "cancelled"
    assert run.result.step_results[0].status == "cancelled"


async def test_a_wait_survives_the_process() -> None:
    """Resumed before the cap ends, the run waits for what is left; nothing is launched early."""
    clock, journal = JumpClock(jumps=False), TextJournal()
    ends = START + 5 * HOUR
    backend = FakeBackend([capped(retry_at=ends), capped(retry_at=ends), "done"])
    flow = flow_of(Agent("coder", "Do it.", backend=backend))
    executor = Executor(clock=clock, journal=journal, suspend_timers_after_s=60)
    result = await executor.options(run_id="r").run(flow)
    assert result.status == "suspended"
    clock.advance(HOUR)
    assert (await executor.resume("r", flow)).status == "suspended"
    assert len(backend.turns) == 2  # the probe was due
    clock.advance(HOUR)
    assert (await executor.resume("r", flow)).status == "suspended"
    assert len(backend.turns) == 2
    clock.advance(3.1 * HOUR)
    assert (await executor.resume("r", flow)).unwrap().output == "done"


async def test_ladder_steps_say_what_follows() -> None:
    """The record names kind, backend, session, and the next launch."""
    down = AgentError("coder", "down", kind="timeout", session="s", text="so far")
    sink = MemorySink()
    backend = FakeBackend([down, "done"])
    await ran(backend, sinks=[sink])
    (taken,) = [event for event in sink.events if isinstance(event, ev.LadderStep)]
    assert (taken.path, taken.attempt, taken.kind, taken.error) == ("code", 1, "timeout", "down")
    assert (taken.backend, taken.session, taken.due) == ("fake", "s", 0.0)
    assert taken.next == Launch(
        2, 2, "retry", "s", reason="down", answer="so far", spent=Usage(unpriced=1), backend="fake"
    )


async def test_what_a_run_lived_through_is_in_its_result() -> None:
    """Each failed launch with its kind, what followed and how long that took to begin."""
    down = AgentError("coder", "down", kind="transient")
    backend = FakeBackend([down, capped(), "done"])
    result = await ran(backend)
    assert [(one.path, one.kind, one.rung, one.backend) for one in result.incidents] == [
        ("code", "transient", "retry", "fake"),
        ("code", "usage_cap", "wait", "fake"),
    ]
    assert result.incidents[1].waited_s == 1800
    assert result.to_dict()["incidents"][0]["error"] == "down"


async def test_a_result_can_be_asked_whether_it_is_clean() -> None:
    """A default is found in the run's result, in a child's, and by the steps after it."""
    seen: list[list[str]] = []

    def look(ctx: Any) -> bool:
        ctx.require_clean("sure")
        for where in ({}, {"path": "inner"}):
            with pytest.raises(NotClean) as unclean:
                ctx.require_clean(**where)
            seen.append(sorted(unclean.value.paths))
        return True

    @workflow
    def flow() -> Steps[Any]:
        yield from step("sure").call(int, "1")
        inner = yield from step("inner").run_workflow(just(step("risky").call(int, "x").default(0)))
        yield from step("after").call(int, "2").when(look)
        return inner

    result = await Executor().run(flow)
    assert seen == [["inner", "inner/risky"]] * 2
    assert result.degraded
    assert result.step("inner").degraded
    with pytest.raises(NotClean, match=r"inner/risky"):
        result.require_clean()
    clean = await Executor().run(flow_of(Agent("c", "x", backend=FakeBackend(["done"]))))
    assert clean.require_clean() is clean


async def test_a_step_that_is_no_agents_any_more_just_runs() -> None:
    """What was parked as an agent's launch is begun as what the code now says."""
    refused = AgentError("coder", "Not logged in", kind="auth")
    executor = Executor(journal=TextJournal())
    first = flow_of(Agent("coder", "Do it.", backend=FakeBackend([refused])))
    assert (await executor.options(run_id="r").run(first)).status == "suspended"
    flow = just(step("code").parallel(step("a").call(int, "1")))
    assert (await executor.resume("r", flow)).unwrap() == (1,)


async def test_a_retry_of_what_did_not_get_through_says_the_same_again() -> None:
    """A re-ask, and a summary, whose launch failed at once are put in their own words again."""
    down = AgentError("c", "down", kind="transient")
    full = AgentError("c", "too long", kind="context_overflow", text="I did A.")
    replies = [AgentReply("what?"), down, full, down, "4"]
    backend = FakeBackend(replies)
    plain = type("Plain", (), {"name": "plain", "complete": backend.complete})()
    agent = Agent("c", "Count it.", output=int, backend=plain)
    result = await Executor(clock=JumpClock()).run(flow_of(agent))
    assert result.unwrap().output == 4
    prompts = [turn.prompt for turn in backend.turns]
    assert "no JSON value found" in prompts[1]
    assert prompts[2] == prompts[1]
    assert "I did A." in prompts[3]
    assert prompts[4] == prompts[3]


class Out:
    """A backend behind a network that is out until a time."""

    name = "out"

    def __init__(self, clock: JumpClock, until_s: float) -> None:
        self.clock, self.until = clock, START + until_s
        self.launches: list[float] = []

    async def complete(self, turn: Any) -> AgentReply:
        """Answer once the network is back."""
        self.launches.append(self.clock.now())
        if self.clock.now() < self.until:
            raise AgentError("coder", "fetch failed", kind="transient")
        return AgentReply("done")


@pytest.mark.parametrize("hours", [300 / 3600, 11.5])
async def test_an_outage_of_hours_is_waited_out(hours: float) -> None:
    """With pauses that grow to 15 minutes and no longer."""
    clock = JumpClock()
    backend = Out(clock, hours * HOUR)
    result = await ran(backend, clock=clock)
    assert (result.status, result.step("code").attempts) == ("succeeded", 1)
    pauses = [later - at for at, later in itertools.pairwise(backend.launches)]
    assert max(pauses) <= 900.1
    assert clock.now() - START < hours * HOUR + 901


async def test_an_outage_that_does_not_end_suspends_the_run_and_does_not_fail_it() -> None:
    """After twelve hours; once a person resumes it, it is patient again."""
    clock, journal = JumpClock(), TextJournal()
    backend = Out(clock, 30 * HOUR)
    flow = flow_of(Agent("coder", "Do it.", backend=backend))
    executor = Executor(clock=clock, journal=journal)
    result = await executor.options(run_id="r").run(flow)
    assert result.status == "suspended"
    assert "tried again for 12 hours" in (result.error or "")
    assert 11 * HOUR < clock.now() - START <= 12 * HOUR
    clock.advance(12 * HOUR)
    assert (await executor.resume("r", flow)).unwrap().output == "done"


async def test_a_fallback_takes_over_before_patience_is_needed() -> None:
    """After a few minutes; the last of the chain is patient."""
    clock = JumpClock()
    first, second = Out(clock, 10 * HOUR), Out(clock, 2 * HOUR)
    agent = Agent("coder", "Do it.", backend=first, fallback=[second])
    result = await Executor(clock=clock).run(flow_of(agent))
    assert (result.status, len(first.launches)) == ("succeeded", 7)
    assert first.launches[-1] - START < 600


async def test_a_given_session_is_not_gone_back_to_by_another_backend() -> None:
    """The fallback begins a session of its own, and so does what follows it."""
    first = FakeBackend([AgentError("c", "no", kind="bad_request", session="S1")], name="first")
    second = FakeBackend([AgentError("c", "down", kind="transient"), "done"], name="second")
    agent = Agent("c", "Do it.", backend=first, fallback=[second])
    result = await Executor(clock=JumpClock()).run(flow_of(agent, session="S1"))
    assert result.success, result.error
    assert [turn.session for turn in first.turns] == ["S1"]
    assert [turn.session for turn in second.turns] == [None, None]


async def test_a_session_is_not_handed_to_another_backend_after_a_resume() -> None:
    """What was begun with one backend begins anew with the one that the code names now."""
    down = AgentError("c", "down", kind="transient", retry_at=START + HOUR, session="s-1")
    clock = JumpClock(jumps=False)
    executor = Executor(clock=clock, journal=TextJournal(), suspend_timers_after_s=60)
    first, second = FakeBackend([down], name="first"), FakeBackend(["done"], name="second")
    flow = flow_of(Agent("c", "Do it.", backend=first))
    assert (await executor.options(run_id="r").run(flow)).status == "suspended"
    clock.advance(HOUR)
    result = await executor.resume("r", flow_of(Agent("c", "Do it.", backend=second)))
    assert result.unwrap().backend == "second"
    assert [turn.session for turn in second.turns] == [None]


async def test_all_launches_of_an_attempt_share_its_timeout() -> None:
    """Of 100 seconds the first two launches took 40 each, so the third is stopped after 20."""

    async def dies(turn: Any) -> Any:
        await turn.sleep(40)
        return AgentError("c", "gone", kind="interrupted")

    clock, backend = JumpClock(), FakeBackend([dies] * 3)
    agent = Agent("c", "Do it.", backend=backend)
    result = await Executor(clock=clock).run(just(step("code").agent(agent).timeout(100)))
    assert result.step_results[0].is_a(StepTimeout)
    assert (len(backend.turns), clock.now()) == (3, START + 100)


async def test_a_session_is_told_with_the_number_of_its_launch() -> None:
    """So that a record of launches can be read."""
    sink = MemorySink()
    down = AgentError("c", "down", kind="transient", session="s-1")
    backend = FakeBackend([down, AgentReply("done", session="s-1")])
    executor = Executor(clock=JumpClock(), sinks=[sink])
    await executor.run(flow_of(Agent("c", "Do it.", backend=backend)))
    told = [one.launch for one in sink.events if isinstance(one, ev.AgentSessionStarted)]
    assert told == [1, 2]


async def test_a_parked_run_that_is_cancelled_launches_nothing() -> None:
    """It is resumed only to unwind."""
    refused = AgentError("coder", "Not logged in", kind="auth")
    backend = FakeBackend([refused, "done"])
    flow = flow_of(Agent("coder", "Do it.", backend=backend))
    journal = TextJournal()
    executor = Executor(journal=journal, workflows=[flow])
    await executor.options(run_id="r").run(flow)
    await executor.cancel("r")
    assert len(backend.turns) == 1
    ended = journal.events("r")[-1]
    assert isinstance(ended, ev.WorkflowCompleted)
    assert ended.status == "cancelled"


async def test_a_cap_met_after_long_work_is_a_new_one() -> None:
    """It is probed again, and its waits are not added to those of the one before."""
    capped_later = [capped(retry_at=START + 5 * HOUR)]

    async def work(turn: Any) -> Any:
        await turn.sleep(4 * HOUR)
        return capped(retry_at=START + 12 * HOUR)

    backend = FakeBackend([*capped_later * 2, work, "done"])
    result = await ran(backend)
    assert result.success
    waits = [round(one.waited_s / 60) for one in result.incidents]
    assert waits in ([30, 270, 30], [30, 271, 30])


class Spends:
    """A backend whose turns after the first ``quick`` hang; told to stop, it says what it used."""

    name = "spends"
    capabilities = FakeBackend.capabilities

    def __init__(self, quick: int = 0) -> None:
        self.turns: list[AgentTurn] = []
        self.quick = quick
        self.hangs = anyio.Event()

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """Start a session, and hang, or answer."""
        self.turns.append(turn)
        turn.emit(ev.AgentSessionStarted(turn.path, "s-1", self.name))
        if len(self.turns) <= self.quick:
            return AgentReply("ok", session="s-1", usage=SPENT)
        self.hangs.set()
        try:
            await anyio.sleep_forever()
        finally:
            turn.emit(ev.AgentFinished(turn.path, "interrupted", usage=SPENT))
        raise AssertionError


SPENT = Usage(100, 10, 0.5, 1)


async def test_an_agent_that_is_stopped_has_used_what_it_said() -> None:
    """By the timeout of its step, and by a sibling that was faster."""
    late = just(
        step("code").agent(Agent("a", "Do it.", backend=Spends()), {}).timeout(0.05).skip_on_error()
    )
    race = just(
        step("first").race(
            step("code").agent(Agent("a", "Do it.", backend=Spends()), {}), step("fast").sleep(0.05)
        )
    )
    for flow, path, status in ((late, "code", "skipped"), (race, "first/code", "cancelled")):
        journal = TextJournal()
        executor = Executor(journal=journal)
        live = await executor.options(run_id="r").run(flow)
        again = await executor.resume("r", flow)
        for result in (live, again):
            assert result.success
            assert result.step(path).status == status
            assert result.step(path).usage == result.usage == SPENT


@pytest.mark.parametrize("usd", [1.6, 1.4], ids=["enough", "too little"])
async def test_what_an_interrupted_launch_used_is_counted_after_the_resume(usd: float) -> None:
    """Once: in the step, the run and the budget; its session's totals begin behind it."""
    backend, journal = Spends(), TextJournal()
    flow = flow_of(Agent("a", "Do it.", backend=backend))
    executor = Executor(journal=journal, clock=JumpClock(), limits=Limits(budget=Budget(usd=usd)))

    async def interrupted(run: Any) -> None:
        async with run, anyio.create_task_group() as tasks:

            async def stop() -> None:
                await backend.hangs.wait()
                run.interrupt("asked to go")

            tasks.start_soon(stop)
            async for _ in run:
                pass
        assert run.result.status == "suspended"
        backend.hangs = anyio.Event()

    await interrupted(executor.options(run_id="r").stream(flow))
    await interrupted(executor.stream_resume("r", flow))
    backend.quick = 3
    result = await executor.resume("r", flow)
    turns = [turn.session_usage for turn in backend.turns]
    if usd < 1.5:
        assert result.step("code").error_type == qualified(BudgetExceeded)
        assert (result.usage, turns) == (SPENT + SPENT, [None, SPENT])
    else:
        assert result.unwrap().usage == result.usage == SPENT + SPENT + SPENT
        assert turns == [None, SPENT, SPENT + SPENT]
