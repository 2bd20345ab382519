"""Requests as an executor would make them, and what agents do with its functions."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from handrail.core.ladder import Next, next_launch
from handrail.errors import AgentError
from handrail.model.context import WorkflowContext
from handrail.model.events import LadderStep
from handrail.model.launch import FIRST
from handrail.model.results import AgentResult
from handrail.model.shapes import AgentRequest

MakeRequest: TypeAlias = Callable[..., AgentRequest]
BOTH_LOOPS = pytest.mark.parametrize(
    "anyio_backend", ["asyncio", pytest.param("trio", marks=pytest.mark.extra("trio"))]
)
"""For tests of processes, tasks, cancellation and time: there the loops could differ."""


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """One event loop, for most tests."""
    return "asyncio"


@pytest.fixture
def emitted() -> list[Any]:
    """Every notice that was emitted through a request, in order."""
    return []


@pytest.fixture
def slept() -> list[float]:
    """Every wait on the request's clock, which takes no time."""
    return []


@pytest.fixture
def run_id() -> str:
    """A run of its own: the processes of two tests at the same time must not carry one marker."""
    return f"run-{uuid.uuid4().hex}"


@pytest.fixture
def make_request(run_id: str, emitted: list[Any], slept: list[float]) -> MakeRequest:
    """A function of the context: the request of a step at ``work/plan``."""

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    def make(context: Mapping[str, Any] | None = None, **inputs: Any) -> AgentRequest:
        return AgentRequest(
            run_id=run_id,
            path="work/plan",
            attempt=1,
            context=context or {},
            workflow=WorkflowContext(run_id, "work/plan", inputs, {}, {}, {}),
            idempotency_key="key",
            interrupted=False,
            emit=emitted.append,
            sleep=sleep,
        )

    return make


@pytest.fixture
def climb() -> Callable[..., Any]:
    """A function of an agent and a request: what the agent answers in the end, each launch that
    failed being followed by what the ladder says.
    """

    async def run(agent: Any, request: AgentRequest) -> AgentResult[Any]:
        past: list[LadderStep] = []
        while True:
            try:
                return await agent.run(replace(request, launch=past[-1].next if past else FIRST))
            except AgentError as error:
                after = error.fault and next_launch(error.fault, past, 0.0, "seed")
                if not isinstance(after, Next):
                    raise
                past.append(LadderStep("work/plan", 1, error.kind, error.reason, after.launch))

    return run
