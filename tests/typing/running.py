"""`Executor` and `Script`: a run keeps the types of its workflow."""

from __future__ import annotations

from typing import Any, assert_type

from handrail import (
    CallbackSink,
    ConsoleSink,
    Current,
    Executor,
    JsonlSink,
    Limits,
    MemorySink,
    OpenGate,
    Run,
    Sink,
    Steps,
    StructlogSink,
    WorkflowResult,
    current,
    step,
    workflow,
)
from handrail.testing import Script


@workflow
def word_of(number: int, *, shout: bool = False) -> Steps[str]:
    return (yield from step("word").call(str, number))


async def answer(gate: OpenGate) -> str:
    return gate.question


sinks: list[Sink] = [
    CallbackSink(print),
    ConsoleSink(),
    JsonlSink("events.jsonl"),
    MemorySink(),
    StructlogSink(),
]
executor = Executor(sinks=sinks, limits=Limits(max_steps=3), gates=answer)

assert_type(executor.run_sync(word_of, 1, shout=True), WorkflowResult[str])
assert_type(executor.options(run_id="r", labels={"team": "a"}), Executor)
assert_type(executor.resume_sync("r", word_of), WorkflowResult[Any])
assert_type(Script(word_of, 1), Script[str])
assert_type(Script(word_of, 1).finish(), WorkflowResult[str])
assert_type(current(), Current)


async def run() -> None:
    assert_type(await executor.run(word_of, 1), WorkflowResult[str])
    async with executor.stream(word_of, 1) as streamed:
        assert_type(streamed, Run[str])
        async for event in streamed:
            assert_type(event.seq, int)
        assert_type(streamed.result, WorkflowResult[str])
    async with Executor() as opened:
        assert_type(opened, Executor)
    await executor.run(word_of, "1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await executor.run(word_of(1))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


executor.run_sync(word_of)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
executor.run_sync(word_of, 1, loud=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
executor.stream(word_of, "1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Script(word_of)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Executor(MemorySink())  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportCallIssue]
Executor(sinks=[print])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
Executor(limits={"max_steps": 3})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
