"""Agent workflows as plain generator functions, run unattended and resumed after any crash.

The names below are imported when they are first used: a program that imports handrail pays for what
it uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from handrail.agents.acp.backend import AcpBackend
    from handrail.agents.agent import Agent
    from handrail.agents.api.backend import ApiBackend
    from handrail.agents.cassette.cassette import Cassette
    from handrail.agents.cassette.errors import CassetteMismatch, CassetteMissing
    from handrail.agents.claude.backend import ClaudeBackend
    from handrail.agents.codex.backend import CodexBackend
    from handrail.agents.codex.exec import CodexExecBackend
    from handrail.agents.command import CommandBackend
    from handrail.agents.copilot.backend import CopilotBackend
    from handrail.agents.fake import FakeBackend
    from handrail.agents.gemini.backend import GeminiBackend
    from handrail.agents.opencode.backend import OpencodeBackend
    from handrail.agents.prompt import Files
    from handrail.codec.codec import Codec, TypeCodec
    from handrail.codec.unresolved import Unresolvable, Unresolved
    from handrail.decorator import Workflow, workflow
    from handrail.engine.current import ContextNotAMapping, Current, OutsideStep, current
    from handrail.engine.run import Run
    from handrail.engine.stops import CancelledFromWithin, CoreStalled
    from handrail.errors import (
        BudgetExceeded,
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
        InvalidSignal,
        JournalDamaged,
        JournalFailed,
        LeaseLost,
        LimitExceeded,
        MissingExtra,
        NoArmChosen,
        NotAStep,
        NotClean,
        NotPortable,
        NotRecorded,
        OutputNotSerializable,
        ReplayMismatch,
        RunCancelled,
        RunIdTaken,
        RunLocked,
        RunNotFound,
        StagesMissing,
        StepChange,
        StepIsPoisonous,
        StepTimeout,
        StepWasInterrupted,
        WorkflowError,
        WorkflowMistake,
        WorkflowNotFound,
        WrongUse,
    )
    from handrail.executor import Executor
    from handrail.journals.memory import MemoryJournal, OutOfSequence
    from handrail.journals.sqlite.journal import SqliteJournal
    from handrail.model.agent_options import AgentOptions
    from handrail.model.context import WorkflowContext
    from handrail.model.definition import WorkflowDefinition, WorkflowParameter
    from handrail.model.launch import AgentError, AnswerRejected, PromptError
    from handrail.model.plan import Plan, PlannedStep
    from handrail.model.policy import Backoff, Budget, Ladder, Limits, Retry
    from handrail.model.results import (
        AgentResult,
        BranchResult,
        CommandResult,
        Incident,
        OpenGate,
        RollbackError,
        Skipped,
        StageFailed,
        StageResult,
        StepFailed,
        StepResult,
        Usage,
        ValidationFailed,
        ValidationResult,
        ValidationRoundResult,
        WorkflowFailed,
        WorkflowResult,
    )
    from handrail.model.shapes import AgentLike, AgentRequest, WorkflowLike
    from handrail.ports.agent import AgentBackend, AgentReply, AgentTurn, Capabilities, Probe
    from handrail.ports.clock import Clock
    from handrail.ports.journal import Holder, Journal, Lease, Letter, RunInfo
    from handrail.ports.sink import Sink
    from handrail.record.rows import UnreadableRecord
    from handrail.secrets.values import Secrets
    from handrail.sinks.artifacts import ArtifactsSink
    from handrail.sinks.callback import CallbackSink
    from handrail.sinks.console import ConsoleSink
    from handrail.sinks.jsonl import JsonlSink
    from handrail.sinks.memory import MemorySink
    from handrail.sinks.structlog import StructlogSink
    from handrail.static.source import SourceUnavailable
    from handrail.steps.step import step
    from handrail.steps.verbs import Stage, Step, Steps
    from handrail.system.spawn import CommandNotStarted
    from handrail.typed.convert import DoesNotFit
    from handrail.workspace.errors import PatchRefused, ScopeViolated, WorktreeConflict

__version__ = "0.1.0"

_HOMES = {
    "handrail.executor": ("Executor",),
    "handrail.decorator": (
        "Workflow",
        "workflow",
    ),
    "handrail.agents.agent": ("Agent",),
    "handrail.workspace.errors": ("PatchRefused", "ScopeViolated", "WorktreeConflict"),
    "handrail.agents.cassette.cassette": ("Cassette",),
    "handrail.agents.cassette.errors": ("CassetteMismatch", "CassetteMissing"),
    "handrail.agents.command": ("CommandBackend",),
    "handrail.agents.fake": ("FakeBackend",),
    "handrail.static.source": ("SourceUnavailable",),
    "handrail.steps.step": ("step",),
    "handrail.engine.current": (
        "ContextNotAMapping",
        "Current",
        "OutsideStep",
        "current",
    ),
    "handrail.engine.run": ("Run",),
    "handrail.engine.stops": (
        "CancelledFromWithin",
        "CoreStalled",
    ),
    "handrail.errors": (
        "BudgetExceeded",
        "CommandFailed",
        "CommandNotFound",
        "DefinitionError",
        "DoesNotFit",
        "DuplicateStepName",
        "GateClosed",
        "GateNotFound",
        "GateRefusal",
        "GroupFailed",
        "HandrailError",
        "InsideEventLoop",
        "InvalidAnswer",
        "InvalidInput",
        "InvalidSignal",
        "JournalDamaged",
        "JournalFailed",
        "LeaseLost",
        "LimitExceeded",
        "MissingExtra",
        "NoArmChosen",
        "NotAStep",
        "NotClean",
        "NotPortable",
        "NotRecorded",
        "OutputNotSerializable",
        "ReplayMismatch",
        "RunCancelled",
        "RunIdTaken",
        "RunLocked",
        "RunNotFound",
        "StagesMissing",
        "StepChange",
        "StepIsPoisonous",
        "StepTimeout",
        "StepWasInterrupted",
        "WorkflowError",
        "WorkflowMistake",
        "WorkflowNotFound",
        "WrongUse",
    ),
    "handrail.journals.memory": (
        "MemoryJournal",
        "OutOfSequence",
    ),
    "handrail.journals.sqlite.journal": ("SqliteJournal",),
    "handrail.codec.codec": (
        "Codec",
        "TypeCodec",
    ),
    "handrail.model.context": ("WorkflowContext",),
    "handrail.typed.convert": ("DoesNotFit",),
    "handrail.model.definition": (
        "WorkflowDefinition",
        "WorkflowParameter",
    ),
    "handrail.model.plan": (
        "Plan",
        "PlannedStep",
    ),
    "handrail.model.policy": (
        "Backoff",
        "Budget",
        "Ladder",
        "Limits",
        "Retry",
    ),
    "handrail.record.rows": ("UnreadableRecord",),
    "handrail.secrets.values": ("Secrets",),
    "handrail.model.launch": ("AgentError", "AnswerRejected", "PromptError"),
    "handrail.model.results": (
        "StageFailed",
        "StepFailed",
        "ValidationFailed",
        "WorkflowFailed",
        "AgentResult",
        "BranchResult",
        "CommandResult",
        "Incident",
        "OpenGate",
        "RollbackError",
        "Skipped",
        "StageResult",
        "StepResult",
        "Usage",
        "ValidationResult",
        "ValidationRoundResult",
        "WorkflowResult",
    ),
    "handrail.model.shapes": (
        "AgentLike",
        "AgentRequest",
        "WorkflowLike",
    ),
    "handrail.steps.verbs": (
        "Stage",
        "Step",
        "Steps",
    ),
    "handrail.codec.unresolved": (
        "Unresolvable",
        "Unresolved",
    ),
    "handrail.ports.agent": (
        "AgentBackend",
        "AgentReply",
        "AgentTurn",
        "Capabilities",
        "Probe",
    ),
    "handrail.ports.clock": ("Clock",),
    "handrail.ports.journal": (
        "Holder",
        "Journal",
        "Lease",
        "Letter",
        "RunInfo",
    ),
    "handrail.ports.sink": ("Sink",),
    "handrail.sinks.callback": ("CallbackSink",),
    "handrail.sinks.console": ("ConsoleSink",),
    "handrail.sinks.jsonl": ("JsonlSink",),
    "handrail.sinks.memory": ("MemorySink",),
    "handrail.sinks.structlog": ("StructlogSink",),
    "handrail.system.spawn": ("CommandNotStarted",),
    "handrail.model.agent_options": ("AgentOptions",),
    "handrail.agents.prompt": ("Files",),
    "handrail.agents.claude.backend": ("ClaudeBackend",),
    "handrail.agents.codex.backend": ("CodexBackend",),
    "handrail.agents.codex.exec": ("CodexExecBackend",),
    "handrail.agents.copilot.backend": ("CopilotBackend",),
    "handrail.agents.acp.backend": ("AcpBackend",),
    "handrail.agents.api.backend": ("ApiBackend",),
    "handrail.sinks.artifacts": ("ArtifactsSink",),
    "handrail.agents.gemini.backend": ("GeminiBackend",),
    "handrail.agents.opencode.backend": ("OpencodeBackend",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name's module when the name is first used."""
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module 'handrail' has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(module), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])


__all__ = [
    "AcpBackend",
    "Agent",
    "AgentBackend",
    "AgentError",
    "AgentLike",
    "AgentOptions",
    "AgentReply",
    "AgentRequest",
    "AgentResult",
    "AgentTurn",
    "AnswerRejected",
    "ApiBackend",
    "ArtifactsSink",
    "Backoff",
    "BranchResult",
    "Budget",
    "BudgetExceeded",
    "CallbackSink",
    "CancelledFromWithin",
    "Capabilities",
    "Cassette",
    "CassetteMismatch",
    "CassetteMissing",
    "ClaudeBackend",
    "Clock",
    "Codec",
    "CodexBackend",
    "CodexExecBackend",
    "CommandBackend",
    "CommandFailed",
    "CommandNotFound",
    "CommandNotStarted",
    "CommandResult",
    "ConsoleSink",
    "ContextNotAMapping",
    "CopilotBackend",
    "CoreStalled",
    "Current",
    "DefinitionError",
    "DoesNotFit",
    "DuplicateStepName",
    "Executor",
    "FakeBackend",
    "Files",
    "GateClosed",
    "GateNotFound",
    "GateRefusal",
    "GeminiBackend",
    "GroupFailed",
    "HandrailError",
    "Holder",
    "Incident",
    "InsideEventLoop",
    "InvalidAnswer",
    "InvalidInput",
    "InvalidSignal",
    "Journal",
    "JournalDamaged",
    "JournalFailed",
    "JsonlSink",
    "Ladder",
    "Lease",
    "LeaseLost",
    "Letter",
    "LimitExceeded",
    "Limits",
    "MemoryJournal",
    "MemorySink",
    "MissingExtra",
    "NoArmChosen",
    "NotAStep",
    "NotClean",
    "NotPortable",
    "NotRecorded",
    "OpenGate",
    "OpencodeBackend",
    "OutOfSequence",
    "OutputNotSerializable",
    "OutsideStep",
    "PatchRefused",
    "Plan",
    "PlannedStep",
    "Probe",
    "PromptError",
    "ReplayMismatch",
    "Retry",
    "RollbackError",
    "Run",
    "RunCancelled",
    "RunIdTaken",
    "RunInfo",
    "RunLocked",
    "RunNotFound",
    "ScopeViolated",
    "Secrets",
    "Sink",
    "Skipped",
    "SourceUnavailable",
    "SqliteJournal",
    "Stage",
    "StageFailed",
    "StageResult",
    "StagesMissing",
    "Step",
    "StepChange",
    "StepFailed",
    "StepIsPoisonous",
    "StepResult",
    "StepTimeout",
    "StepWasInterrupted",
    "Steps",
    "StructlogSink",
    "TypeCodec",
    "UnreadableRecord",
    "Unresolvable",
    "Unresolved",
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
    "WorktreeConflict",
    "WrongUse",
    "__version__",
    "current",
    "step",
    "workflow",
]
