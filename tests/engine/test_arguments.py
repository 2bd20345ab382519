"""Arguments of an executor that are of the wrong kind are refused where they are written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest

from handrail import (
    AgentOptions,
    Budget,
    ConsoleSink,
    DefinitionError,
    Executor,
    FakeBackend,
    Limits,
    MemoryJournal,
    MemorySink,
    Secrets,
    SqliteJournal,
    Steps,
    WrongUse,
    step,
    workflow,
)
from handrail.testing import FakeAgent, JumpClock, cassette
from tests.engine.support import same

WORKER = FakeAgent("worker", [])


@workflow
def flow() -> Steps[int]:
    """One step."""
    return (yield from step("a").call(same, 1))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"limits": Budget(usd=1)}, r"got a Budget\. Write limits=Limits\(budget=Budget"),
        ({"limits": {"max_steps": 3}}, r"limits= of an Executor takes Limits\(\.\.\.\)"),
        ({"agents": [WORKER]}, r"a mapping of names to agents, such as \{'worker': agent\}"),
        ({"agents": {1: WORKER}}, "a mapping of names to agents"),
        ({"agents": WORKER}, "a mapping of names to agents"),
        ({"stages": ["lint"]}, "a mapping of names to commands"),
        ({"services": [1]}, "services= of an Executor takes a mapping"),
        ({"config": "style"}, "config= of an Executor takes a mapping"),
        ({"journal": "runs.db"}, r"such as SqliteJournal\('runs\.db'\), got 'runs\.db'"),
        ({"journal": MemoryJournal}, "journal= of an Executor takes a journal"),
        ({"clock": 3}, "clock= of an Executor takes a clock"),
        ({"clock": JumpClock}, "clock= of an Executor takes a clock"),
        ({"cassette": "recordings"}, "cassette= of an Executor takes a cassette"),
        ({"sinks": MemorySink()}, "sinks= of an Executor takes a list of sinks"),
        ({"sinks": "console"}, "sinks= of an Executor takes a list of sinks"),
        ({"sinks": [ConsoleSink]}, "a sink is an object with a method emit"),
        ({"workflows": flow}, "workflows= of an Executor takes a list of workflows"),
        ({"workflows": [same]}, "workflows= of an Executor takes a list of workflows"),
        ({"secrets": ["API_KEY"]}, r"secrets= of an Executor takes Secrets\("),
        ({"agent_options": {"model": "m"}}, "agent_options= of an Executor takes AgentOptions"),
        ({"model": 3}, "model= of an Executor takes the name of a model"),
        ({"durable": "yes"}, "durable= of an Executor takes True or False"),
    ],
)
def test_an_argument_of_the_wrong_kind_says_what_to_pass(given: dict[str, Any], said: str) -> None:
    """A WrongUse, which is a TypeError, before anything runs."""
    with pytest.raises(WrongUse, match=said):
        Executor(**given)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("linger_s", -1),
        ("linger_s", "long"),
        ("suspend_timers_after_s", "1h"),
        ("cleanup_timeout_s", float("inf")),
        ("max_crashes", 0),
        ("max_crashes", 1.5),
    ],
)
def test_a_number_out_of_its_range_is_refused(name: str, value: Any) -> None:
    """A DefinitionError that names the argument."""
    with pytest.raises(DefinitionError, match=f"{name} of an Executor must be"):
        Executor(**{name: value})


async def test_what_is_of_the_right_kind_is_taken(tmp_path: Any) -> None:
    """All arguments together, as their types allow."""
    executor = Executor(
        journal=MemoryJournal(),
        sinks=(MemorySink(),),
        agents={"worker": WORKER},
        stages={"lint": "true"},
        services={"db": 1},
        config={"a": 1},
        workflows=(flow,),
        limits=Limits(budget=Budget(usd=1)),
        clock=JumpClock(),
        linger_s=0,
        suspend_timers_after_s=60,
        cleanup_timeout_s=1,
        max_crashes=1,
        secrets=Secrets(),
        durable=True,
        backend=FakeBackend([]),
        model="m",
        agent_options=AgentOptions(idle_timeout_s=timedelta(seconds=1)),
        cassette=cassette(tmp_path, "auto"),
    )
    assert (await executor.run(flow)).value == 1


WRONG: dict[str, tuple[Callable[[Executor], Any], str]] = {
    "run_id": (lambda one: one.options(run_id=cast("Any", 5)), "run_id= takes printable .* got 5"),
    "label": (
        lambda one: one.options(labels=cast("Any", {"a": 1})),
        "labels= takes .* got {'a': 1}",
    ),
    "a long id": (
        lambda one: one.options(run_id="x" * 60_000),
        r"run_id= takes .* 1 to 120 characters",
    ),
    "blanks": (lambda one: one.options(run_id=" a"), "run_id= takes .* no blank at its ends"),
    "two lines": (lambda one: one.options(run_id="a\nb"), r"run_id= takes .* got 'a.nb'"),
    "labels": (lambda one: one.options(labels=cast("Any", "x")), "labels= takes a mapping"),
    "rerun": (lambda one: one.resume_sync("r", rerun="ab"), r"rerun= takes .* such as \['ab'\]"),
    "reuse": (lambda one: one.plan_sync("r", reuse="ab"), r"reuse= takes .* such as \['ab'\]"),
    "in memory": (lambda _: SqliteJournal(":memory:"), r"in memory: MemoryJournal\(\)"),
    "no path": (lambda _: SqliteJournal(""), "takes the path of a file, got ''"),
    "no text": (lambda _: SqliteJournal("a\0b"), "takes the path of a file"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_id_path_or_place_says_what_to_pass(what: str) -> None:
    """Where it is given, and not as what it would lead to."""
    call, said = WRONG[what]
    with pytest.raises(WrongUse, match=said):
        call(Executor())
