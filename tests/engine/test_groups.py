"""Steps side by side: order of outputs, failure modes, the window, keys, and odd members."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from handrail import (
    DefinitionError,
    Executor,
    MemorySink,
    Skipped,
    StepFailed,
    StepResult,
    Steps,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.testing import TextJournal
from handrail.testing.text_journal import GroupingTextJournal
from tests.engine.support import (
    Boom,
    Flaky,
    aboom,
    boom,
    caught,
    check_drive,
    forever,
    give,
    just,
    names,
    paths,
    run_seen,
    same,
    statuses,
)


async def turns(count: int, value: Any = None) -> Any:
    """Give the value back after that many turns of the loop."""
    for _ in range(count):
        await anyio.lowlevel.checkpoint()
    return count if value is None else value


# -- parallel --------------------------------------------------------------------------------------


async def test_parallel_gives_a_tuple_in_the_order_written() -> None:
    """Outputs stand in the order of the steps, whoever ended first."""
    flow = just(
        step("g").parallel(
            step("a").call(turns, 40), step("b").call(turns, 1), step("c").call(turns, 20)
        )
    )
    result, sink = await run_seen(flow)
    assert result.value == (40, 1, 20)
    ended = [e.path for e in sink.of(ev.StepCompleted)]
    assert ended == ["g/b", "g/c", "g/a", "g"]


@pytest.mark.parametrize("mode", ["fail_fast", "continue", "all_or_nothing"])
async def test_a_group_of_no_members_gives_an_empty_result(mode: Any) -> None:
    """parallel() and for_each([]) succeed, with nothing in them."""

    @workflow
    def flow() -> Steps[Any]:
        none = yield from step("p").parallel(on_error=mode)
        empty = yield from step("f").for_each([], lambda _: step("s").call(same), on_error=mode)
        nothing = yield from step("m").for_each({}, lambda _: step("s").call(same), on_error=mode)
        return none, empty, nothing

    result, sink = await run_seen(flow)
    assert result.value == ((), [], [])
    assert [e.total for e in sink.of(ev.GroupCompleted)] == [0, 0, 0]


def test_a_race_of_nobody_is_a_definition_error() -> None:
    """`.race()` needs a step."""
    with pytest.raises(DefinitionError, match=r"'r'.*race"):
        step("r").race()


@pytest.mark.parametrize("width", [0, -1, True, 1.5])
def test_a_window_below_one_is_a_value_error(width: Any) -> None:
    """max_concurrency below 1 is refused at the user's line, for both groups that have it."""
    with pytest.raises(ValueError, match=r"max_concurrency.*'p'"):
        step("p").parallel(step("a").call(same), max_concurrency=width)
    with pytest.raises(ValueError, match=r"max_concurrency.*'f'"):
        step("f").for_each([1], lambda _: step("a").call(same), max_concurrency=width)


async def test_fail_fast_cancels_the_siblings_for_real() -> None:
    """The first failure cancels those at work, and never starts those that wait."""
    stopped: list[str] = []
    started: list[str] = []

    async def long(name: str) -> None:
        started.append(name)
        try:
            await anyio.sleep_forever()
        finally:
            stopped.append(name)

    flow = just(
        step("g").parallel(
            step("a").call(long, "a"),
            step("b").call(turns, 3).on_error(lambda _c, _f: step("z").call(same)),
            step("c").call(aboom, "c broke"),
            step("d").call(long, "d"),
            step("e").call(long, "e"),
            max_concurrency=4,
        )
    )
    result, sink = await run_seen(flow)
    assert (result.status, result.failed_step) == ("failed", "g")
    assert sorted(stopped) == sorted(started)
    ends = statuses(result)
    assert ends["g/c"] == "failed"
    assert ends["g/a"] == ends["g/d"] == "cancelled"
    text = result.error or ""
    assert "'c'" in text
    assert "c broke" in text
    assert "a" in text.partition("cancelled")[2]
    group = next(i for i, e in enumerate(sink.events) if isinstance(e, ev.GroupCompleted))
    assert not [e for e in sink.events[group + 1 :] if getattr(e, "path", "").startswith("g/")]
    counts = sink.of(ev.GroupCompleted)[0]
    assert counts.total == counts.succeeded + counts.failed + counts.cancelled + counts.skipped


async def test_a_group_that_is_stopped_as_it_ends_is_recorded_once() -> None:
    """A group that fails, and that a sibling recorded with its last member stops, ends once."""
    at_once = anyio.Event()

    async def fail_at_once() -> None:
        await at_once.wait()
        raise Boom("broke")

    async def begin(number: int) -> None:
        if number == 9:  # the last one: so many are in flight that ends are recorded together
            at_once.set()
        await anyio.sleep_forever()

    flow = just(
        step("outer").parallel(
            step("inner").parallel(step("x").call(fail_at_once)),
            *(step(f"y{number}").call(fail_at_once) for number in range(3)),
            *(step(f"z{number}").call(begin, number) for number in range(10)),
        )
    )
    result, sink = await run_seen(flow, journal=GroupingTextJournal())
    assert statuses(result)["outer/inner"] == "cancelled"
    ends = [one.path for one in sink.of(ev.GroupCompleted)]
    assert ends == ["outer/inner", "outer"]


async def test_a_failed_group_has_its_members_kind_of_error() -> None:
    """StepFailed of a group is_a what its member raised."""
    group = step("g").parallel(step("a").call(aboom), step("b").call(forever))
    result, _ = await run_seen(
        caught(group, lambda failed: (failed.is_a(Boom), failed.result.path))
    )
    assert (result.status, result.value) == ("succeeded", (True, "g"))


async def test_continue_gives_the_members_results_and_never_fails() -> None:
    """With on_error="continue" the output is the StepResults, in order, failures among them."""

    @workflow
    def flow() -> Steps[Any]:
        return (
            yield from step("g").parallel(
                step("a").call(aboom), step("b").call(give, 2), step("c").call(aboom),
                on_error="continue",
            )
        )  # fmt: skip

    result, _ = await run_seen(flow)
    assert result.status == "succeeded"
    assert isinstance(result.value, tuple)
    assert all(isinstance(one, StepResult) for one in result.value)
    assert [(one.path, one.status, one.output) for one in result.value] == [
        ("g/a", "failed", None), ("g/b", "succeeded", 2), ("g/c", "failed", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "status"),
    [
        (2, "succeeded"),
        (3, "failed"),
        (0.5, "succeeded"),
        (0.6, "failed"),
        (0, "succeeded"),
        (1.0, "failed"),
    ],
)
async def test_min_success_asks_for_a_number_or_a_share(wanted: float, status: str) -> None:
    """`min_success` fails a continuing group of which too few succeeded: 2 of 4 here."""
    flow = just(
        step("g").for_each(
            [0, 1, 2, 3],
            lambda n: step("s").call(aboom if n % 2 else give),
            on_error="continue",
            min_success=wanted,
        )
    )
    result, _ = await run_seen(flow)
    assert result.status == status
    if status == "failed":
        assert "2 of 4" in (result.error or "")


async def test_all_or_nothing_runs_all_then_fails_and_rolls_back() -> None:
    """Every member runs; if one failed, those that succeeded are undone at the group's end."""
    undone: list[str] = []

    @workflow
    def flow() -> Steps[Any]:
        try:
            yield from step("g").parallel(
                step("a").call(give, 1).with_rollback(lambda _: undone.append("a")),
                step("b").call(aboom, "b broke"),
                step("c").call(turns, 20).with_rollback(lambda _: undone.append("c")),
                on_error="all_or_nothing",
            )
        except StepFailed as failed:
            undone.append("caught")
            return failed.result.error
        return "?"

    result, sink = await run_seen(flow)
    assert undone == ["c", "a", "caught"]
    assert result.status == "succeeded"
    assert "b broke" in str(result.value)
    assert statuses(result) == {
        "g": "failed",
        "g/a": "succeeded",
        "g/b": "failed",
        "g/c": "succeeded",
    }
    assert result.rollback_errors == ()
    order = names(sink)
    assert order.index("RollbackStarted") < len(order) - 1 - order[::-1].index("StepCompleted")


async def test_all_or_nothing_that_succeeds_gives_the_outputs() -> None:
    """Without a failure it is like any other group, and its rollbacks join the run's."""
    undone: list[str] = []

    @workflow
    def flow() -> Steps[Any]:
        got = yield from step("g").parallel(
            step("a").call(give, 1).with_rollback(lambda _: undone.append("a")),
            step("b").call(give, 2),
            on_error="all_or_nothing",
        )
        assert (got, undone) == ((1, 2), [])
        yield from step("then").call(boom)

    result, _ = await run_seen(flow)
    assert result.failed_step == "then"
    assert undone == ["a"]


async def test_max_concurrency_is_a_sliding_window() -> None:
    """No more than n members at once, and a slow one never holds the others back."""
    running: list[int] = []
    most: list[int] = []
    ended: list[int] = []

    async def act(n: int) -> int:
        running.append(n)
        most.append(len(running))
        await turns(400 if n == 0 else 5)
        running.remove(n)
        ended.append(n)
        return n

    flow = just(step("f").for_each(range(12), lambda n: step("s").call(act, n), max_concurrency=3))
    result, _ = await run_seen(flow)
    assert result.value == list(range(12))
    assert max(most) == 3
    assert ended[-1] == 0


@pytest.mark.parametrize("member", [step("x"), "a", None, lambda: 1])
def test_a_group_takes_steps_only(member: Any) -> None:
    """Something else in a group, a step without a verb too, is a TypeError that shows it."""
    for verb in (step("g").parallel, step("g").race):
        with pytest.raises(TypeError, match=r"'g'"):
            verb(member)


# -- for_each --------------------------------------------------------------------------------------


async def test_for_each_names_members_by_index() -> None:
    """A list's members are `group/<index>`, their steps `group/<index>/<step>`, outputs a list."""
    flow = just(step("f").for_each(["a", "b"], lambda x: step("s").call(str.upper, x)))
    result, sink = await run_seen(flow)
    assert result.value == ["A", "B"]
    assert paths(result) == ["f", "f/0/s", "f/1/s"]
    members = sink.of(ev.MemberStarted)
    assert [(e.path, e.index, e.key) for e in members] == [("f/0", 0, "0"), ("f/1", 1, "1")]


async def test_a_mapping_gives_its_keys_as_keys_and_its_values_to_the_body() -> None:
    """for_each over a mapping: the member is named by the key, the body gets the value."""

    @workflow
    def flow() -> Steps[Any]:
        items = {"src/a.py": 1, "b%": 2, "..": 3}
        return (yield from step("f").for_each(items, lambda v: step("s").call(same, v * 10)))

    result, _ = await run_seen(flow)
    assert result.value == [10, 20, 30]
    assert paths(result) == ["f", "f/src%2Fa.py/s", "f/b%25/s", "f/%2E%2E/s"]


async def test_key_names_members_by_their_items() -> None:
    """`key=` makes stable paths of items."""
    flow = just(
        step("f").for_each(
            [{"id": 7}, {"id": 9}], lambda _: step("s").call(same), key=lambda item: item["id"]
        )
    )
    assert paths((await run_seen(flow))[0]) == ["f", "f/7/s", "f/9/s"]


def raises_behind_a_step(n: int) -> Steps[int]:
    """A generator body that breaks for one item."""
    yield from step("a").call(same, n)
    if n == 1:
        raise LookupError("body broke")
    return n


def raises_before_it_gives_a_step(n: int) -> Any:
    """A plain body that breaks for one item."""
    if n == 1:
        raise LookupError("body broke")
    return step("a").call(same, n)


@pytest.mark.parametrize("body", [raises_behind_a_step, raises_before_it_gives_a_step])
async def test_a_body_that_raises_fails_its_member(body: Any) -> None:
    """An exception of a body fails that member, and the group as its mode says."""
    result, _ = await run_seen(just(step("f").for_each([0, 1, 2], body, on_error="continue")))
    assert result.status == "succeeded"
    assert result.value is not None
    assert [one.status for one in result.value] == ["succeeded", "failed", "succeeded"]
    assert [one.output for one in result.value] == [0, None, 2]
    assert result.value[1].is_a(LookupError)
    assert "body broke" in result.value[1].error
    assert [one.path for one in result.value] == ["f/0", "f/1", "f/2"]


async def test_items_are_pulled_as_the_window_opens() -> None:
    """With max_concurrency=2 an item is taken only when one of the two has ended."""
    pulled: list[int] = []
    ended: list[int] = []
    ahead: list[int] = []

    def source() -> Iterator[int]:
        for n in range(6):
            pulled.append(n)
            ahead.append(len(pulled) - len(ended))
            yield n

    async def act(n: int) -> int:
        await turns(3)
        ended.append(n)
        return n

    flow = just(step("f").for_each(source(), lambda n: step("s").call(act, n), max_concurrency=2))
    result, _ = await run_seen(flow)
    assert result.value == list(range(6))
    assert max(ahead) == 2


async def test_an_endless_iterator_is_pulled_only_while_the_group_runs() -> None:
    """With a window, an iterator without end stops at the first failure."""
    pulled = itertools.count()

    async def act(n: int) -> int:
        await turns(2)
        if n == 20:
            raise Boom("enough")
        return n

    flow = just(step("f").for_each(pulled, lambda n: step("s").call(act, n), max_concurrency=4))
    result, _ = await run_seen(flow)
    assert (result.status, result.failed_step) == ("failed", "f")
    assert next(pulled) < 30


async def test_a_long_iterator_without_a_window_leaves_the_loop_its_turns() -> None:
    """While items without end are pulled, the loop gets its turns, so the run can be cancelled."""
    pulled: list[int] = []

    def source() -> Iterator[int]:
        for n in range(5_000):  # without end in spirit; so it fails, and does not hang
            pulled.append(n)
            yield n

    flow = just(step("f").for_each(source(), lambda _: step("s").call(forever)))
    with anyio.fail_after(20):
        async with Executor().stream(flow) as run:
            async for event in run:
                if isinstance(event, ev.MemberStarted):
                    run.cancel("enough")
    assert run.result.status == "cancelled"
    assert len(pulled) < 5_000


class BrokenItems:
    """Items that cannot be gone through."""

    def __iter__(self) -> Iterator[int]:
        raise OSError("no disk")


@pytest.mark.parametrize(
    ("items", "key", "said"), [(BrokenItems(), None, "no disk"), ([1], lambda _: 1 / 0, "division")]
)
async def test_items_or_a_key_that_raise_at_once_fail_the_group(
    items: Any, key: Any, said: str
) -> None:
    """What ``__iter__`` or ``key`` raises fails the group, and names nothing else."""
    flow = just(step("f").for_each(items, lambda _: step("s").call(same), key=key))
    result, _ = await run_seen(flow)
    assert (result.status, result.failed_step) == ("failed", "f")
    assert said in (result.error or "")


async def test_an_iterable_that_raises_half_way_fails_the_group() -> None:
    """The members that run are cancelled, and the error tells how far it came."""

    def source() -> Iterator[int]:
        yield 1
        yield 2
        raise OSError("disk gone")

    flow = caught(
        step("f").for_each(source(), lambda _: step("s").call(forever)),
        lambda failed: (failed.result.error, failed.is_a(OSError)),
    )
    result, _ = await run_seen(flow)
    assert result.value is not None
    assert "disk gone" in result.value[0]
    assert result.value[1]
    assert statuses(result) == {"f": "failed", "f/0/s": "cancelled", "f/1/s": "cancelled"}


async def test_a_member_that_yields_a_name_twice_ends_the_run() -> None:
    """A mistake inside a member ends the run, with the member's path."""

    def body(_: int) -> Steps[None]:
        yield from step("a").call(same)
        yield from step("a").call(same)

    @workflow
    def flow() -> Steps[Any]:
        try:
            yield from step("f").for_each([1], body)
        except BaseException:  # noqa: BLE001  # even this must not catch it
            return "caught"
        return "?"

    result = await Executor().run(flow)
    assert (result.status, result.value) == ("failed", None)
    assert "'f/0/a'" in (result.error or "")


@pytest.mark.parametrize("items", ["abc", b"abc", 5, None])
def test_for_each_takes_a_collection(items: Any) -> None:
    """Text, a number or None is no collection of items."""
    with pytest.raises(TypeError, match=r"'f'"):
        step("f").for_each(items, lambda _: step("s").call(same))


async def test_thousands_of_failing_members_end_in_a_result() -> None:
    """A group of 2,000 members that all fail, continuing, gives 2,000 results."""
    flow = just(
        step("f").for_each(
            range(2_000), lambda _: step("s").call(aboom), on_error="continue", max_concurrency=100
        )
    )
    result = await Executor().run(flow)
    assert result.value is not None
    assert len(result.value) == 2_000
    assert {one.status for one in result.value} == {"failed"}


async def test_thousands_of_failing_members_at_once_fail_fast() -> None:
    """Without a window, 2,000 failing members end in a failed run with one end a path."""
    sink = MemorySink()
    flow = just(step("f").for_each(range(2_000), lambda _: step("s").call(aboom)))
    result = await Executor(sinks=[sink]).run(flow)
    assert (result.status, result.failed_step) == ("failed", "f")
    assert len(result.error or "") < 2_000
    check_drive(sink)


async def test_a_skipped_member_counts_as_a_success() -> None:
    """A member skipped by its predicate has a Skipped in its place, and fails nothing."""
    flow = just(
        step("g").parallel(step("a").call(give, 1), step("b").call(give, 2).when(lambda _: False))
    )
    result, sink = await run_seen(flow)
    assert result.value is not None
    assert result.value[0] == 1
    assert isinstance(result.value[1], Skipped)
    assert sink.of(ev.GroupCompleted)[0].skipped == 1


async def test_a_group_may_be_retried_defaulted_and_skipped() -> None:
    """Modifiers hold for groups: retry runs all members again, default and skip stand in."""
    flaky = Flaky(1)

    @workflow
    def flow() -> Steps[Any]:
        a = yield from step("a").for_each([1], lambda _: step("s").call(flaky)).retry(2, backoff=0)
        b = yield from step("b").parallel(step("s").call(aboom)).default("spare")
        c = yield from step("c").race(step("s").call(aboom)).skip_on_error()
        return a, b, bool(c)

    result, _ = await run_seen(flow)
    assert result.value == (["ok"], "spare", False)
    assert "a~2/0/s" in paths(result)


# -- race ------------------------------------------------------------------------------------------


async def test_the_first_success_wins_and_the_others_are_cancelled() -> None:
    """A race gives the output of the first success; a failure before it does not count."""
    stopped: list[int] = []

    async def long() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.append(1)

    flow = just(
        step("r").race(
            step("bad").call(aboom), step("slow").call(long), step("good").call(turns, 10, "won")
        )
    )
    result, _ = await run_seen(flow)
    assert result.value == "won"
    assert stopped == [1]
    assert statuses(result) == {
        "r": "succeeded", "r/bad": "failed", "r/slow": "cancelled", "r/good": "succeeded",
    }  # fmt: skip


async def test_a_race_that_nobody_wins_fails_with_every_reason() -> None:
    """If all fail the race fails, and its error has the reason of each."""
    flow = just(step("r").race(step("a").call(aboom, "one"), step("b").call(aboom, "two")))
    result, _ = await run_seen(flow)
    assert (result.status, result.failed_step) == ("failed", "r")
    assert "one" in (result.error or "")
    assert "two" in (result.error or "")


async def test_a_loser_that_ignores_its_cancellation_once_does_not_win() -> None:
    """A member that swallows its cancellation and returns is cancelled all the same."""

    async def stubborn() -> str:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            return "late"
        return "?"

    flow = just(step("r").race(step("s").call(stubborn), step("w").call(turns, 5, "won")))
    result, _ = await run_seen(flow)
    assert result.value == "won"
    assert statuses(result)["r/s"] == "cancelled"
    assert result.step("r/s").output is None


# -- what members see ------------------------------------------------------------------------------


async def test_a_member_sees_what_came_before_the_group_and_not_its_siblings() -> None:
    """A context shows results of its own and enclosing generators, never of concurrent siblings."""
    seen: dict[str, Any] = {}

    def look(name: str) -> Any:
        def predicate(ctx: Any) -> bool:
            seen[name] = (
                ctx.output("before"),
                ctx.output("mine"),
                ctx.output("a"),
                sorted(ctx.results),
            )
            return True

        return predicate

    def body(n: int) -> Steps[None]:
        yield from step("mine").call(same, n)
        yield from step("look").call(turns, 3).when(look(f"f{n}"))

    flow = just(
        step("before").call(same, "b"),
        step("g").parallel(
            step("a").call(same, 1), step("b").call(same, 2).when(look("b")), max_concurrency=1
        ),
        step("f").for_each([1, 2], body, max_concurrency=1),
        step("after").call(same).when(look("after")),
    )
    result, _ = await run_seen(flow)
    assert result.error is None
    assert seen["b"] == ("b", None, None, ["before"])
    assert seen["f1"][:2] == ("b", 1)
    assert seen["f2"][:2] == ("b", 2)
    assert "f/0/mine" not in seen["f2"][3]
    assert {"g/a", "g/b", "f/0/mine"} <= set(seen["after"][3])


# -- mistakes --------------------------------------------------------------------------------------


async def waits(_: Any) -> None:
    """A body that is written as an async function."""


def each(items: Any, body: Any = lambda _: step("s").call(same), **options: Any) -> Any:
    """A group of a member for each item."""
    return lambda: step("f").for_each(items, body, **options)


@pytest.mark.parametrize(
    ("made", "kind", "said"),
    [
        pytest.param(
            lambda: step("g").parallel(step("a").call(give), step("a").call(give)),
            "DuplicateStepName", "'g/a'", id="two steps of one name",
        ),
        pytest.param(
            each(["x", "y", "x"], key=str), "DuplicateStepName", "0.*2", id="two items of one key"
        ),
        pytest.param(
            each(["1", 2, 1], key=str), "DuplicateStepName", "0.*2", id="two keys of one text"
        ),
        pytest.param(each(["a"], key=lambda _: ""), "", "key", id="an empty key"),
        pytest.param(each([1], lambda _: None), "NotAStep", "None", id="a body that makes none"),
        pytest.param(each([1], lambda _: "text"), "NotAStep", "text", id="a body that makes text"),
        pytest.param(each([1], waits), "NotAStep", "no async functions", id="an async body"),
        pytest.param(each([1], lambda _: step("x")), "NotAStep", "x", id="a step without a verb"),
        pytest.param(each([1], max_concurrency=0), "", "max_concurrency", id="no room"),
    ],
)  # fmt: skip
async def test_a_mistake_in_a_group_ends_the_run_and_names_the_users_line(
    made: Any, kind: str, said: str
) -> None:
    """The error says what is wrong, with file and line of the step."""

    @workflow
    def flow() -> Steps[Any]:
        yield from made()

    result = await Executor().run(flow)
    assert result.status == "failed"
    assert kind in (result.error_type or "")
    assert "test_groups.py:" in (result.error or "")
    assert re.search(said, result.error or "")


async def fails_after(count: int, error: Exception) -> None:
    """Raise after that many turns of the loop."""
    await turns(count)
    raise error


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("all_or_nothing", "ValueError: member 'a' failed: x; member 'b' failed: KeyError: 'y'"),
        ("fail_fast", "KeyError: member 'b' failed: KeyError: 'y'; cancelled: a"),
    ],
)
async def test_a_groups_failure_is_the_same_wherever_the_process_died(
    mode: Any, expected: str
) -> None:
    """Where all run, the failures are told in the order of the members, not of their ends."""
    flow = just(
        step("g").parallel(
            step("a").call(fails_after, 5, ValueError("x")),
            step("b").call(fails_after, 4, KeyError("y")),
            on_error=mode,
        )
    )
    whole = TextJournal()
    result = await Executor(journal=whole).options(run_id="r").run(flow)
    assert (result.error or "").endswith(expected)
    for length in range(1, len(whole.events("r"))):
        left = TextJournal()
        for event in whole.events("r")[:length]:
            left.append(event)
        assert (await Executor(journal=left).resume("r", flow)).error == result.error
