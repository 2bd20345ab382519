"""A hand on a run: whatever it is, wherever it is driven, it counts once and lasts."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from handrail import (
    CannotSteer,
    Executor,
    HandrailError,
    InvalidInput,
    MemoryJournal,
    RunNotFound,
    Steps,
    Workflow,
    WrongUse,
    current,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.model.paths import is_within
from handrail.model.shapes import AgentRequest
from handrail.ports.journal import Letter
from handrail.testing import JumpClock, TextJournal
from handrail.testing.shapes import Body, Consult, Shape, Thinking, workflow_of
from handrail.testing.strategies import bodies
from tests.durability.support import (
    LAW,
    RUN,
    Lives,
    essence,
    hold,
    nothing_recorded_is_performed_again,
    nothing_was_lost,
)
from tests.engine.support import boom

pytestmark = pytest.mark.usefixtures("outside_git")

GIVEN = "given by hand"
BEGINS = (ev.StepStarted, ev.MemberStarted)


def post(lives: Lives, action: Any, path: str = "", value: Any = None) -> None:
    """Steer the run of these lives while nobody drives it."""
    lives.journal = lives.journal.reopened()
    event = ev.RunSteered(action, path, value, "ann")
    lives.journal.post(Letter(ev.stamp(event, RUN, 0, lives.clock.now())))


@LAW
@given(body=bodies(timeless=True, agents=True), number=st.integers(2, 25))
def test_while_a_run_is_paused_nothing_of_it_is_performed(body: Body, number: int) -> None:
    """Killed anywhere, paused, resumed in vain, and let go on: it ends as if nothing had been."""
    flow = workflow_of(body)
    whole = Lives(flow, gates="approve").through()
    lives = Lives(flow, gates="approve")
    if lives.live(stop_at=number, abrupt=True) is not None or lives.at_its_end():
        return
    post(lives, "pause")
    before = len(lives.did)
    for _ in range(2):  # the second time from its record
        result = lives.once()
        assert [did for did in lives.did[before:] if did.kind == "attempt"] == []
        if result.status != "suspended":  # nothing was left to begin
            return
        assert result.waits_for[0].kind == "unpause"
    history = lives.journal.events(RUN)
    paused = [one for one in history if isinstance(one, ev.RunSteered)]
    assert [(one.action, one.by, one.letter > 0) for one in paused] == [("pause", "ann", True)]
    post(lives, "unpause")
    story = lives.through()
    hold(story)
    assert essence(story.result) == essence(whole.result)


@LAW
@given(body=bodies(timeless=True, agents=True), number=st.integers(2, 25), pick=st.integers(0, 9))
def test_a_step_that_is_completed_is_not_performed_again(
    body: Body, number: int, pick: int
) -> None:
    """Killed anywhere, and what was at work, waited or had failed is given an output: it ends with
    that, also after another crash, and the run goes on to an end.
    """
    flow = workflow_of(body)
    lives = Lives(flow, gates="approve")
    if lives.live(stop_at=number, abrupt=True) is not None or lives.at_its_end():
        return
    history = lives.journal.reopened().events(RUN)
    begun = [one.path for one in history if isinstance(one, ev.StepStarted)]
    ended = {one.path for one in history if isinstance(one, ev.StepCompleted)}
    open_ones = [path for path in dict.fromkeys(begun) if path not in ended]
    if not open_ones:
        return
    path = open_ones[pick % len(open_ones)]
    lives.journal = lives.journal.reopened()
    executor = Executor(workflows=[flow], journal=lives.journal, clock=lives.clock)
    try:
        anyio.run(functools.partial(executor.complete, RUN, path, GIVEN, by="ann"))
    except (CannotSteer, InvalidInput):  # a member, what is not come to, a question with choices
        return
    before = len(lives.did)
    story = lives.through([(3, False), (8, True)])
    again = [did for did in lives.did[before:] if did.path == path and did.kind == "attempt"]
    assert again == []
    given = [one for one in story.history if isinstance(one, ev.StepCompleted) and one.path == path]
    if given:  # else what it stood in was stopped before its turn came
        assert (given[-1].result.output, given[-1].result.given_by) == (GIVEN, "ann")
    nothing_recorded_is_performed_again(story)
    nothing_was_lost(story)


ONE_AGENT = Body((Shape(Consult()),))
WORDS = {1: "use tabs", 2: "be quick"}


@LAW
@given(
    body=bodies(timeless=True, agents=True),
    number=st.integers(2, 25),
    pick=st.integers(0, 9),
    crashes=st.lists(st.tuples(st.integers(3, 12), st.booleans()), max_size=3),
)
@example(body=ONE_AGENT, number=1, pick=0, crashes=[(4, False)])
@example(body=ONE_AGENT, number=1, pick=0, crashes=[(5, False)])
@example(body=ONE_AGENT, number=2, pick=0, crashes=[(5, False), (6, False)])
def test_what_is_said_is_given_once(
    body: Body, number: int, pick: int, crashes: list[tuple[int, bool]]
) -> None:
    """Killed anywhere, told something, and killed again: what was said, to any agent or to
    those below a step, is given once to each that was at work there, else to one, if one is
    launched there; by the record, and by what the agents heard.
    """
    flow = workflow_of(body)
    heard: list[AgentRequest] = []
    lives = Lives(flow, gates="approve", options={"agents": {"thinking": Thinking(heard.append)}})
    if lives.live(stop_at=number, abrupt=True) is not None or lives.at_its_end():
        return
    history = lives.journal.reopened().events(RUN)
    begun = [one.path for one in history if isinstance(one, BEGINS)]
    above = begun[pick % len(begun)] if begun else ""
    at_work = {
        one.path for one in history if isinstance(one, ev.StepStarted) and one.step_type == "agent"
    } - {one.path for one in history if isinstance(one, ev.StepCompleted)}
    for which, path in ((1, ""), (2, above)):
        post(lives, "guide", path, WORDS[which])
    del heard[:]
    story = lives.through(crashes)
    hold(story)
    given = [
        (which, one.path)
        for one in story.history
        if isinstance(one, ev.AgentGuided)
        for which in one.numbers
    ]
    assert len(given) == len(set(given))
    for which, path in ((1, ""), (2, above)):
        to = {at for number, at in given if number == which}
        there = {one.path for one in heard if is_within(one.path, path)}
        most = sum(is_within(one, path) for one in at_work)
        assert len(to) <= max(1, most), (to, at_work)
        assert bool(to) == bool(there), (given, there)
        with_it = (one for one in heard if WORDS[which] in (*one.launch.guidance, *one.launch.said))
        assert to == {one.path for one in with_it}


def three(log: list[str]) -> Workflow[[], str]:
    """Steps one after the other, and two at once."""

    async def work(name: str) -> str:
        await anyio.sleep(0.15)
        log.append(name)
        return name

    @workflow(name="three")
    def body() -> Steps[str]:
        yield from step("a").call(work, "a")
        yield from step("b").call(work, "b")
        yield from step("both").parallel(step("c").call(work, "c"), step("d").call(work, "d"))
        return "done"

    return body


@pytest.mark.parametrize("durable", [True, False])
async def test_a_run_at_work_is_paused_and_goes_on(*, durable: bool) -> None:
    """What is at work ends, nothing follows; then the same drive goes on."""
    log: list[str] = []
    executor = Executor(journal=TextJournal() if durable else MemoryJournal())
    async with executor.stream(three(log)) as run, anyio.create_task_group() as hands:

        async def hand() -> None:
            await anyio.sleep(0.2)
            await executor.pause(run.run_id, by="ann")
            await anyio.sleep(0.5)
            assert log == ["a", "b"]
            await executor.unpause(run.run_id)

        hands.start_soon(hand)
        seen = [event async for event in run]
    assert run.result.value == "done"
    assert sorted(log) == ["a", "b", "c", "d"]
    at = [n for n, event in enumerate(seen) if isinstance(event, ev.RunSteered)]
    between = seen[at[0] : at[1]]
    assert [one for one in between if isinstance(one, BEGINS)] == []


async def test_a_run_that_is_stopped_goes_on_where_it_was() -> None:
    """It is suspended with who did it, and no later drive hears of it."""
    log: list[str] = []
    executor = Executor(journal=TextJournal())
    async with executor.stream(three(log)) as run:
        async for event in run:
            if isinstance(event, ev.StepStarted) and event.path == "b":
                run.stop(by="ann")
    assert (run.result.status, log) == ("suspended", ["a"])
    suspended = executor.journal.events(run.run_id)[-1]
    assert isinstance(suspended, ev.RunSuspended)
    assert suspended.reason == "stopped by ann"
    await executor.stop(run.run_id)  # nobody drives it: it stays as it is
    result = await executor.resume(run.run_id, three(log))
    assert (result.status, sorted(log)) == ("succeeded", ["a", "b", "c", "d"])


async def test_a_paused_run_that_is_cancelled_unwinds() -> None:
    """To cancel it is to let it clean up, whoever paused it."""
    log: list[str] = []
    executor = Executor(journal=TextJournal(), clock=JumpClock())
    async with executor.stream(three(log)) as run:
        async for event in run:
            if isinstance(event, ev.StepStarted) and event.path == "a":
                await executor.pause(run.run_id)
            if isinstance(event, ev.RunSteered):
                run.cancel("enough")
    assert run.result.status == "cancelled"


@workflow
def several() -> Steps[Any]:
    """A step of each kind that takes something, or does not; it stays at ``wide`` and ``ask``."""
    yield from step("done").call(int, "1")
    waits = step("ask").ask("which?", choices=["x", "y"])
    inner = step("agent").agent(Thinking(), {"label": "a", "failures": 0})
    group = step("group").for_each(["k"], lambda _: step("part").wait_for("never"))
    once = step("once").call(anyio.sleep_forever).once()
    wide = step("wide").parallel(waits, group, once, on_error="continue")
    yield from step("both").parallel(wide, step("plain").call(anyio.sleep_forever))
    yield from inner


OVER = r"fork\(\) tries something else"
AGAIN = r"resume\(\) continues it"
KEPT = r"fork\(outputs=...\)"
AT_WORK = r"At work: 'both/"
NEXT = "without a path it is given to the next one"
STEPS = r"Its steps: 'done'"
REFUSED: list[tuple[str, tuple[Any, ...], type[Exception], str]] = [
    # a path that is not there
    ("complete", ("nope", 1), CannotSteer, f"no step 'nope'. {STEPS}"),
    ("skip", ("don",), CannotSteer, "no step 'don'. Did you mean 'done'"),
    ("retry", ("nope",), CannotSteer, STEPS),
    ("guide", ("tabs", "agnet"), CannotSteer, "Did you mean 'agent'"),
    # one that has ended
    ("complete", ("done", 2), CannotSteer, f"'done' has ended. {KEPT}"),
    ("skip", ("done",), CannotSteer, KEPT),
    ("complete", ("done/part", 2), CannotSteer, f"'done' has ended. {KEPT}"),
    ("retry", ("done",), CannotSteer, KEPT),
    ("guide", ("tabs", "done"), CannotSteer, f"'done' has ended. .*{NEXT}"),
    # one that is of another kind
    ("complete", ("both/wide/group/0", 1), CannotSteer, f"a member of a group.*{AT_WORK}"),
    ("retry", ("both/wide",), CannotSteer, f"holds other steps. {AT_WORK}"),
    ("retry", ("both/wide/once",), CannotSteer, r"\.once\(\).*complete\(\) ends it"),
    ("retry", ("agent",), CannotSteer, f"has not begun. {AT_WORK}"),
    ("skip", ("both/plain",), CannotSteer, r"neither .default\(\).*complete\(\) ends it"),
    ("guide", ("tabs", "both/plain"), CannotSteer, f"launches no agent. .*{NEXT}"),
    ("guide", ("tabs", "both/wide/ask"), CannotSteer, f"launches no agent. .*{NEXT}"),
    # a value that is not of its type
    ("complete", ("both/wide/ask", "z"), InvalidInput, "one of: x, y"),
    ("guide", (" ",), CannotSteer, "is empty. Say what"),
    ("guide", (3,), WrongUse, "takes the text"),
    ("guide", ("tabs", 3), WrongUse, "takes the path of a step"),
    ("complete", (3, 3), WrongUse, "takes the path of a step"),
    ("retry", ("",), WrongUse, "takes the path of a step"),
]


async def refused(executor: Executor, run_id: str, verb: str, args: tuple[Any, ...]) -> Exception:
    """What the executor raises."""
    named: dict[str, Any] = {}
    if verb == "guide" and len(args) > 1:
        args, named = args[:1], {"path": args[1]}
    with pytest.raises(HandrailError) as caught:
        await getattr(executor, verb)(run_id, *args, **named)
    return caught.value


@pytest.mark.parametrize("driven", [True, False])
async def test_bad_use_is_refused_with_what_can_be_done_instead(*, driven: bool) -> None:
    """A table of each verb; of a run that is driven here, and of one that is not."""
    journal = TextJournal()
    executor = Executor(journal=journal, workflows=[several])
    async with executor.stream(several) as run:
        async for event in run:
            if isinstance(event, ev.StepStarted) and event.path == "both/plain":
                break
        if not driven:
            run.stop()
            async for _ in run:
                pass
        for verb, args, kind, said in REFUSED:
            if args[0] == "both/wide/once" and not driven:
                continue  # it was interrupted, and has failed by that
            error = await refused(executor, run.run_id, verb, args)
            assert type(error) is kind, (verb, args, error)
            assert re.search(said, str(error)), (verb, args, error)
        run.stop()
        async for _ in run:
            pass
    steered = [one for one in journal.events(run.run_id) if isinstance(one, ev.RunSteered)]
    assert {one.action for one in steered} == {"stop"}


ANY: dict[str, tuple[Any, ...]] = {
    "pause": (),
    "unpause": (),
    "stop": (),
    "guide": ("tabs",),
    "retry": ("a",),
    "complete": ("a", 1),
    "skip": ("a",),
}


@pytest.mark.parametrize("end", ["succeeded", "failed", "cancelled"])
async def test_what_has_ended_takes_no_hand(end: str) -> None:
    """And says what can be done instead: only a step of a run that failed may still be given."""

    @workflow
    def flow() -> Steps[None]:
        yield from step("a").call(
            boom if end == "failed" else anyio.sleep, *([0.1] * (end != "failed"))
        )

    executor = Executor(journal=TextJournal(), workflows=[flow])
    async with executor.stream(flow) as run:
        if end == "cancelled":
            run.cancel()
        async for _ in run:
            pass
    assert run.result.status == end
    for verb, args in ANY.items():
        if end != "failed" or verb not in {"complete", "skip"}:
            error = await refused(executor, run.run_id, verb, args)
            assert type(error) is CannotSteer
            assert re.search(OVER if end == "succeeded" else AGAIN, str(error)), error
        assert type(await refused(executor, "nobody", verb, args)) is RunNotFound


async def test_nothing_begins_behind_a_pause_that_an_action_asked_for() -> None:
    """Though the action ends at once then, and no other process had the time to look."""
    journal = TextJournal()
    executor = Executor(journal=journal, clock=JumpClock())

    def hand() -> None:
        Executor(journal=journal).pause_sync(current().run_id)

    @workflow
    def flow() -> Steps[None]:
        yield from step("hand").call(hand)
        yield from step("after").call(int, "1")

    result = await executor.run(flow)
    assert (result.status, [one.path for one in result.step_results]) == ("suspended", ["hand"])
    assert result.waits_for[0].kind == "unpause"


@dataclass
class Out:
    """What a step gives."""

    n: int


async def test_a_step_is_completed_skipped_and_begun_again() -> None:
    """At work, before its turn, while it waits, and after it failed: the record says who it was."""
    tries: list[str] = []

    async def slow(name: str) -> Out:
        tries.append(name)
        await anyio.sleep(0 if tries.count(name) > 1 else 30)
        return Out(0)

    def fails() -> int:
        raise ValueError("no")

    @workflow
    def flow() -> Steps[Any]:
        a = yield from step("a").call(slow, "a")
        b = yield from step("b").call(slow, "b").default(Out(2))
        c = yield from step("c").call(slow, "c")
        d = yield from step("d").call(slow, "d")
        e = yield from step("e").ask("which?", choices=["x", "y"])
        f = yield from step("f").call(fails)
        return [a, b, c, d, e, f]

    executor = Executor(journal=TextJournal(), workflows=[flow])
    async with executor.stream(flow) as run:
        name = run.run_id
        async for event in run:
            match event:
                case ev.StepStarted(path="a"):
                    with pytest.raises(InvalidInput, match=r"step 'a': got .* expected Out"):
                        await executor.complete(name, "a", {"n": "one"})
                    await executor.complete(name, "d", {"n": 4}, by="dan")
                    await executor.complete(name, "a", {"n": 1}, by="ann")
                case ev.StepStarted(path="b"):
                    run.skip("b", by="bob")
                case ev.StepStarted(path="c"):
                    run.retry("c", by="cid")
                case _:
                    pass
    assert run.result.status == "suspended"
    await executor.complete(name, "e", '"y"', by="eve")
    assert (await executor.resume(name)).status == "failed"
    with pytest.raises(CannotSteer, match=r"it has failed.* resume\(\) continues it"):
        await executor.retry(name, "f")
    await executor.complete(name, "f", "6", by="fay")
    result = await executor.resume(name)
    assert result.value == [Out(1), Out(2), Out(0), Out(4), "y", 6]
    assert tries == ["a", "b", "c", "c"]
    who = {one.path: (one.given_by, one.attempts) for one in result.step_results}
    assert who == {
        "a": ("ann", 1),
        "b": ("bob", 1),
        "c": (None, 1),
        "d": ("dan", 0),
        "e": ("eve", 0),
        "f": ("fay", 0),
    }


MISFIT = ("complete", "nine")


@pytest.mark.parametrize("driven", [True, False])
@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ([("complete", 7), MISFIT], 7),
        ([MISFIT, ("complete", 7)], 7),
        ([("complete", 7), ("complete", 8)], 8),
        ([("skip", None), MISFIT], 0),
        ([MISFIT, ("skip", None)], 0),
        ([("complete", 7), ("skip", None)], 7),
        ([MISFIT], 1),
    ],
)
async def test_of_many_requests_before_a_step_begins_one_that_it_accepts_counts(
    *, driven: bool, requests: list[tuple[str, Any]], expected: int
) -> None:
    """The last output that is of its type, else a skip; what does not fit displaces neither."""

    def one() -> int:
        return 1

    @workflow
    def flow() -> Steps[int]:
        yield from step("go").wait_for("go")
        return (yield from step("late").call(one).default(0))

    executor = Executor(journal=TextJournal(), workflows=[flow], linger_s=0.2 * driven)

    async def request(run_id: str) -> None:
        for action, value in requests:
            await getattr(executor, action)(run_id, "late", *[value] * (action == "complete"))
        await executor.signal(run_id, "go")

    async with executor.stream(flow) as run:
        async for event in run:
            if driven and isinstance(event, ev.StepStarted) and event.path == "go":
                await request(run.run_id)
    result = run.result
    if not driven:
        await request(run.run_id)
        result = await executor.resume(run.run_id)
    assert result.value == expected
