"""Requests as an executor would make them, and what agents do with its functions."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from handrail.model.context import WorkflowContext
from handrail.model.shapes import AgentRequest


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
def make_request(
    run_id: str, emitted: list[Any], slept: list[float]
) -> Callable[..., AgentRequest]:
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
