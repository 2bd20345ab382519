"""What an engine is made of, and where a drive begins."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import attrs

from handrail.errors import DefinitionError, WrongUse
from handrail.model import events as ev
from handrail.model.agent_options import NO_SETTINGS, AgentSettings
from handrail.model.definition import WorkflowDefinition
from handrail.model.policy import Limits, Secrets
from handrail.model.shapes import WorkflowLike
from handrail.ports.clock import Clock
from handrail.ports.journal import Journal
from handrail.ports.sink import Sink
from handrail.record.run_record import Recorded

GATE_POLICIES = ("approve", "default", "fail")

AgentCheck: TypeAlias = Callable[[Any, AgentSettings, Callable[[], AgentSettings] | None], None]
"""Raises what an agent would be refused for with a step's settings and those of the run; without
the latter, only what the step itself says counts."""


@attrs.frozen
class Parts:
    """Everything an engine is made of."""

    journal: Journal
    clock: Clock
    sinks: tuple[Sink, ...] = ()
    agents: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    stages: Callable[[], Mapping[str, Any]] = dict
    services: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    config: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    workflows: tuple[WorkflowLike[..., Any], ...] = ()
    limits: Limits = Limits()
    gates: Any = None
    linger_s: float = 0.0
    suspend_timers_after_s: float | None = None
    cleanup_timeout_s: float = 30.0
    max_crashes: int = 5
    secrets: Secrets = Secrets()
    durable: bool = False
    identity: str = attrs.field(factory=lambda: os.urandom(4).hex())
    """Tells its runs from others of the same id, where the journal cannot."""
    agent_defaults: Callable[[], AgentSettings] = lambda: NO_SETTINGS
    """What holds for agents; found out when it is first needed."""
    check_agent: AgentCheck | None = None


@attrs.frozen
class Options:
    """What ``executor.options`` sets for the runs that follow."""

    run_id: str | None = None
    labels: Mapping[str, str] = attrs.field(factory=dict[str, str])


@attrs.frozen
class Start:
    """Where a drive begins: with nothing, or after what is recorded (``seq`` events).

    ``letters`` came since, ``cancel`` says why the run is to be cancelled at once.
    """

    definition: WorkflowDefinition
    run_id: str
    inputs: dict[str, Any]
    first: ev.Event
    recorded: Recorded | None = None
    seq: int = 0
    letters: tuple[ev.Event, ...] = ()
    cancel: str | None = None


def check_parts(parts: Parts) -> None:
    """Do nothing, or raise what is wrong with an executor's arguments."""
    gates = parts.gates
    if gates is not None and not callable(gates) and gates not in GATE_POLICIES:
        raise DefinitionError(
            f"gates is a callable that is given an OpenGate, or one of "
            f"{', '.join(GATE_POLICIES)}, got {gates!r}"
        )
    for sink in parts.sinks:
        if not callable(getattr(sink, "emit", None)) or isinstance(sink, type):
            raise WrongUse(f"a sink is an object with a method emit(event), got {sink!r}")
    for name, agent in parts.agents.items():
        if not callable(getattr(agent, "run", None)):
            raise WrongUse(f"agents[{name!r}] must be an agent, got {agent!r}")


def definition_of(workflow: Any) -> WorkflowDefinition:
    """The definition of a workflow.

    Raises:
        WrongUse: it is none; the text says what to write.
    """
    definition = getattr(workflow, "definition", None)
    if isinstance(definition, WorkflowDefinition):
        return definition
    name = getattr(workflow, "__name__", repr(workflow))
    raise WrongUse(
        f"{name} is not a workflow: decorate the generator function with @workflow, and pass the "
        f"function itself, without calling it"
    )


def new_run_id(name: str) -> str:
    """A run id for people: the workflow's name and eight random hex digits."""
    return f"{name}-{os.urandom(4).hex()}"
