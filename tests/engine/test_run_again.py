"""What a person says runs again: what failed, what a pattern names, and what follows from it."""

from __future__ import annotations

from typing import Any

import pytest

from handrail import (
    Executor,
    Found,
    NotRecorded,
    ReplayMismatch,
    Step,
    Steps,
    Task,
    Work,
    step,
    workflow,
)
from handrail.testing import TextJournal
from tests.engine.support import bound


class Pages:
    """A group whose items a step lists; behind it one that uses what it gave."""

    def __init__(self, kind: str = "each", **options: Any) -> None:
        self.items, self.broken, self.did = ["a", "b"], set[str](), list[Any]()
        self.kind, self.options = kind, options

    def act(self, item: str) -> str:
        """An action on an item."""
        self.did.append(item)
        if item in self.broken:
            raise ValueError(item)
        return item.upper()

    def find(self, item: str) -> Found[str]:
        """What a task finds."""
        return Found(self.act(item))

    def group(self, found: list[str]) -> Step[Any]:
        """The group."""
        if self.kind == "parallel":
            return step("pages").parallel(
                *(step(one).call(self.act, one) for one in found), **self.options
            )
        if self.kind == "work":
            return step("pages").work(
                [Task(one) for one in found],
                lambda task: step("s").call(self.find, task.id),
                **self.options,
            )
        return step("pages").for_each(
            found, lambda item: step("s").call(self.act, item), key=str, **self.options
        )

    def flow(self) -> Any:
        """The workflow."""

        @bound
        def flow() -> Steps[Any]:
            found = yield from step("list").call(lambda: list(self.items))
            values = good((yield from self.group(found)))
            yield from step("send").call(lambda given: self.did.append("send"), values)
            return values

        return flow()


def good(values: Any) -> list[Any]:
    """The values of the members that succeeded."""
    if isinstance(values, Work):
        return list(values.values)
    return [one if isinstance(one, str) else one.output for one in values if of_use(one)]


def of_use(one: Any) -> bool:
    """True for a value, or a success."""
    return isinstance(one, str) or one.success


def executor_of(journal: TextJournal, on_change: Any = "refuse", **options: Any) -> Executor:
    """An executor."""
    return Executor(journal=journal, on_change=on_change, **options)


@pytest.mark.parametrize("rerun_failed", [True, "pages", "p*"])
@pytest.mark.parametrize("verb", ["resume", "fork"])
@pytest.mark.parametrize("kind", ["each", "parallel", "work"])
async def test_what_failed_in_a_group_runs_again_and_nothing_else(
    kind: str, verb: str, rerun_failed: Any
) -> None:
    """Members that succeeded keep their results; what follows is performed with what there is."""
    pages = Pages(kind, on_error="continue")
    pages.items, pages.broken = ["a", "b", "c"], {"b"}
    executor = executor_of(TextJournal(), "rerun", workflows=[pages.flow()])
    first = await executor.run(pages.flow())
    assert first.value == ["A", "C"]
    pages.did.clear()
    pages.broken.clear()
    run_id = first.run_id
    if verb == "fork":
        run_id = await executor.fork(run_id, rerun_failed=rerun_failed)
        rerun_failed = False
    plan = await executor.plan(run_id, pages.flow(), rerun_failed=rerun_failed)
    planned = [one.path for one in plan.steps if one.state == "will run"]
    assert {path.split("/")[1] for path in planned if "/" in path} == {"b"}
    result = await executor.resume(run_id, pages.flow(), rerun_failed=rerun_failed)
    assert (result.value, pages.did) == (["A", "B", "C"], ["b", "send"])
    assert (await executor.resume(run_id, pages.flow(), rerun_failed=True)).value == result.value
    assert pages.did == ["b", "send"]


@pytest.mark.parametrize("stream", [False, True])
async def test_nothing_runs_again_that_nobody_named(*, stream: bool) -> None:
    """A run that ended well although members failed gives its result, resumed in either way."""
    pages = Pages("each", on_error="continue")
    pages.items, pages.broken = ["a", "b"], {"b"}
    executor = executor_of(TextJournal(), workflows=[pages.flow()])
    first = await executor.run(pages.flow())
    pages.did.clear()
    if stream:
        async with executor.stream_resume(first.run_id) as run:
            pass
        result = run.result
    else:
        result = await executor.resume(first.run_id)
    assert (result.value, pages.did) == (first.value, [])


@pytest.mark.parametrize(
    ("name", "done"), [("out", ["0b", "1b"]), ("out/1/in", ["1b"]), ("out/*/in", ["0b", "1b"])]
)
async def test_a_named_group_stands_for_the_groups_in_it(name: str, done: list[str]) -> None:
    """What failed in these runs again, and nothing else."""
    did, broken = list[str](), {"b"}

    def act(item: str) -> None:
        did.append(item)
        if item[1] in broken:
            raise ValueError(item)

    def inner(number: int) -> Step[Any]:
        items = [f"{number}a", f"{number}b"]
        return step("in").for_each(
            items, lambda one: step("s").call(act, one), key=str, on_error="continue"
        )

    @workflow
    def flow() -> Steps[None]:
        yield from step("out").for_each([0, 1], inner, key=str)

    executor = executor_of(TextJournal())
    run_id = (await executor.run(flow)).run_id
    did.clear()
    broken.clear()
    assert (await executor.resume(run_id, flow, rerun_failed=name)).success
    assert sorted(did) == done


@pytest.mark.parametrize("on_change", ["refuse", "reuse", "rerun"])
async def test_what_changes_late_below_a_named_group_runs_again_with_it(on_change: Any) -> None:
    """A task whose payload has changed brings another child: nobody is asked a second time."""
    did, payload = list[str](), ["old"]

    def find(name: str, text: str) -> Found[str]:
        did.append(text)
        children = [Task(f"{name}-child", f"{text} child")] if "-" not in name else []
        return Found(text, children)

    @workflow
    def flow() -> Steps[Any]:
        tasks = [Task("kept", "same"), Task("other", payload[0])]
        done = yield from step("work").work(
            tasks, lambda task: step("s").call(find, task.id, task.payload), max_concurrency=1
        )
        return sorted(done.values)

    journal = TextJournal()
    run_id = (await executor_of(journal).run(flow)).run_id
    did.clear()
    payload[0] = "new"
    result = await executor_of(journal, on_change).resume(run_id, flow, rerun=["work"])
    assert (result.success, did) == (True, ["new", "new child"])


async def test_a_pattern_names_each_path_that_it_matches_part_by_part() -> None:
    """A name that matches nothing is refused, as one that is not recorded."""
    pages = Pages()
    executor = executor_of(TextJournal())
    run_id = (await executor.run(pages.flow())).run_id
    pages.did.clear()
    result = await executor.resume(run_id, pages.flow(), rerun=["pages/*"])
    assert (result.value, sorted(pages.did)) == (["A", "B"], ["a", "b"])
    for wrong in ({"rerun": ["*/*/*/*"]}, {"rerun_failed": "list"}, {"rerun_failed": "x*"}):
        with pytest.raises(NotRecorded):
            await executor.resume(run_id, pages.flow(), **wrong)


@pytest.mark.parametrize("kind", ["each", "work"])
@pytest.mark.parametrize(
    ("items", "done"),
    [
        (["a", "b", "c"], ["c"]),
        (["a"], []),
        (["b", "a"], []),
        (["z", "a"], ["z"]),
        ([], []),
    ],
)
@pytest.mark.parametrize("how", ["named", "on_change", "step by step"])
async def test_members_whose_item_is_the_same_keep_their_results(
    kind: str, items: list[str], done: list[str], how: str
) -> None:
    """New ones run, others are orphaned, and what used the group's output runs, too."""
    pages = Pages(kind)
    journal = TextJournal()
    run_id = (await executor_of(journal).run(pages.flow())).run_id
    pages.did.clear()
    pages.items = items
    executor = executor_of(journal, "rerun" if how == "on_change" else "refuse")
    if how == "on_change":
        result = await executor.resume(run_id, pages.flow(), rerun=["list"])
    else:
        with pytest.raises(ReplayMismatch, match="'list' ran again") as late:
            await executor.resume(run_id, pages.flow(), rerun=["list"])
        assert (late.value.late, [one.path for one in late.value.changes]) == (True, ["pages"])
        assert "--rerun pages" in str(late.value)
        assert "deterministic" not in str(late.value)
        with pytest.raises(ReplayMismatch, match="'list' ran again"):
            await executor.resume(run_id, pages.flow())
        plan = await executor.plan(run_id, pages.flow())
        assert [one.path for one in plan.changes] == ["pages"]
        assert pages.did == []
        executor = executor_of(journal, "rerun") if how == "named" else executor
        if how == "named":
            result = await executor.resume(run_id, pages.flow(), rerun=["pages"])
        else:
            with pytest.raises(ReplayMismatch) as behind:
                await executor.resume(run_id, pages.flow(), rerun=["pages"])
            assert [one.path for one in behind.value.changes] == ["send"]
            rerun = ["send"] if behind.value.late else ["pages", "send"]
            result = await executor.resume(run_id, pages.flow(), rerun=rerun)
    assert result.value == [item.upper() for item in items]
    assert pages.did == [*done, "send"]


async def test_reuse_keeps_what_a_group_gave_though_its_items_are_others() -> None:
    """A person said so; on_change="reuse" says it of all that shows late."""
    for on_change in ("refuse", "reuse"):
        pages = Pages()
        journal = TextJournal()
        executor = executor_of(journal, on_change)
        run_id = (await executor.run(pages.flow())).run_id
        pages.items, pages.did = ["c"], []
        reuse = ["pages"] if on_change == "refuse" else []
        result = await executor.resume(run_id, pages.flow(), rerun=["list"], reuse=reuse)
        assert (result.value, pages.did) == (["A", "B"], [])
        assert (await executor.resume(run_id, pages.flow())).value == ["A", "B"]


async def test_a_body_is_called_not_deterministic_only_if_nothing_ran_again() -> None:
    """Nothing ran and the file is as old as before: then it is."""
    values = iter(range(9))

    @workflow
    def flow() -> Steps[None]:
        yield from step("a").call(str, next(values))
        yield from step("b").ask("?")

    executor = executor_of(TextJournal())
    run_id = (await executor.run(flow)).run_id
    with pytest.raises(ReplayMismatch, match="not deterministic"):
        await executor.resume(run_id, flow)
