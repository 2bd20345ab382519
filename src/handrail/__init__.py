"""Agent workflows as plain generator functions, run unattended and resumed after any crash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from handrail._wiring import Executor
from handrail._workflow import Workflow, workflow
from handrail.dsl.step import step
from handrail.engine.current import Current, OutsideStep, current
from handrail.engine.run import Run
from handrail.errors import (
    AgentError,
    AnswerRejected,
    CommandFailed,
    CommandNotFound,
    DefinitionError,
    DuplicateStepName,
    GateClosed,
    GateNotFound,
    GateRefusal,
    GroupFailed,
    HandrailError,
    InsideEventLoop,
    InvalidAnswer,
    InvalidInput,
    LimitExceeded,
    MissingExtra,
    NoArmChosen,
    NotAStep,
    NotPortable,
    OutputNotSerializable,
    PromptError,
    ReplayMismatch,
    RunCancelled,
    RunLocked,
    RunNotFound,
    StageFailed,
    StagesMissing,
    StepFailed,
    StepTimeout,
    ValidationFailed,
    WorkflowError,
    WorkflowFailed,
    WorkflowMistake,
    WorkflowNotFound,
    WrongUse,
)
from handrail.model.context import WorkflowContext
from handrail.model.definition import WorkflowDefinition, WorkflowParameter
from handrail.model.policy import Backoff, Limits, Retry, Secrets
from handrail.model.results import (
    AgentResult,
    BranchResult,
    CommandResult,
    OpenGate,
    RollbackError,
    Skipped,
    StageResult,
    StepResult,
    Usage,
    ValidationResult,
    ValidationRoundResult,
    WorkflowResult,
)
from handrail.model.shapes import AgentLike, AgentRequest, WorkflowLike
from handrail.model.steps import Stage, Step, Steps
from handrail.ports.agent import AgentBackend, AgentReply, AgentTurn
from handrail.ports.clock import Clock
from handrail.ports.journal import Journal
from handrail.ports.sink import Sink

if TYPE_CHECKING:
    from handrail.agents.agent import Agent
    from handrail.agents.command import CommandBackend
    from handrail.agents.fake import FakeBackend
    from handrail.dsl.source import SourceUnavailable
    from handrail.engine.contexts import ContextNotAMapping
    from handrail.journals.memory import MemoryJournal
    from handrail.sinks.callback import CallbackSink
    from handrail.sinks.console import ConsoleSink
    from handrail.sinks.jsonl import JsonlSink
    from handrail.sinks.memory import MemorySink
    from handrail.sinks.structlog import StructlogSink
    from handrail.system.refusal import CommandNotStarted

_LAZY = {
    "Agent": "handrail.agents.agent",
    "CallbackSink": "handrail.sinks.callback",
    "CommandBackend": "handrail.agents.command",
    "CommandNotStarted": "handrail.system.refusal",
    "ConsoleSink": "handrail.sinks.console",
    "ContextNotAMapping": "handrail.engine.contexts",
    "FakeBackend": "handrail.agents.fake",
    "JsonlSink": "handrail.sinks.jsonl",
    "MemoryJournal": "handrail.journals.memory",
    "MemorySink": "handrail.sinks.memory",
    "SourceUnavailable": "handrail.dsl.source",
    "StructlogSink": "handrail.sinks.structlog",
}

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "AgentBackend",
    "AgentError",
    "AgentLike",
    "AgentReply",
    "AgentRequest",
    "AgentResult",
    "AgentTurn",
    "AnswerRejected",
    "Backoff",
    "BranchResult",
    "CallbackSink",
    "Clock",
    "CommandBackend",
    "CommandFailed",
    "CommandNotFound",
    "CommandNotStarted",
    "CommandResult",
    "ConsoleSink",
    "ContextNotAMapping",
    "Current",
    "DefinitionError",
    "DuplicateStepName",
    "Executor",
    "FakeBackend",
    "GateClosed",
    "GateNotFound",
    "GateRefusal",
    "GroupFailed",
    "HandrailError",
    "InsideEventLoop",
    "InvalidAnswer",
    "InvalidInput",
    "Journal",
    "JsonlSink",
    "LimitExceeded",
    "Limits",
    "MemoryJournal",
    "MemorySink",
    "MissingExtra",
    "NoArmChosen",
    "NotAStep",
    "NotPortable",
    "OpenGate",
    "OutputNotSerializable",
    "OutsideStep",
    "PromptError",
    "ReplayMismatch",
    "Retry",
    "RollbackError",
    "Run",
    "RunCancelled",
    "RunLocked",
    "RunNotFound",
    "Secrets",
    "Sink",
    "Skipped",
    "SourceUnavailable",
    "Stage",
    "StageFailed",
    "StageResult",
    "StagesMissing",
    "Step",
    "StepFailed",
    "StepResult",
    "StepTimeout",
    "Steps",
    "StructlogSink",
    "Usage",
    "ValidationFailed",
    "ValidationResult",
    "ValidationRoundResult",
    "Workflow",
    "WorkflowContext",
    "WorkflowDefinition",
    "WorkflowError",
    "WorkflowFailed",
    "WorkflowLike",
    "WorkflowMistake",
    "WorkflowNotFound",
    "WorkflowParameter",
    "WorkflowResult",
    "WrongUse",
    "__version__",
    "current",
    "step",
    "workflow",
]


def __getattr__(name: str) -> Any:
    """Names that most programs do not need at once are imported when they are first used."""
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'handrail' has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(module), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
