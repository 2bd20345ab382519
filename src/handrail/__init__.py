"""Agent workflows as plain generator functions, run unattended and resumed after any crash.

The names below are imported when they are first used, so a program pays only for those it uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from handrail.addons import FileRefused as FileRefused
    from handrail.agents.acp.backend import AcpBackend as AcpBackend
    from handrail.agents.agent import Agent as Agent
    from handrail.agents.api.backend import ApiBackend as ApiBackend
    from handrail.agents.cassette.cassette import Cassette as Cassette
    from handrail.agents.cassette.cassette import CassetteMismatch as CassetteMismatch
    from handrail.agents.cassette.cassette import CassetteMissing as CassetteMissing
    from handrail.agents.claude.backend import ClaudeBackend as ClaudeBackend
    from handrail.agents.codex.backend import CodexBackend as CodexBackend
    from handrail.agents.command import CommandBackend as CommandBackend
    from handrail.agents.copilot.backend import CopilotBackend as CopilotBackend
    from handrail.agents.fake import FakeBackend as FakeBackend
    from handrail.agents.prompt import Files as Files
    from handrail.cluster_errors import BlobMissing as BlobMissing
    from handrail.cluster_errors import ClusterRefused as ClusterRefused
    from handrail.cluster_errors import ClusterUnreachable as ClusterUnreachable
    from handrail.cluster_errors import NotDeterministic as NotDeterministic
    from handrail.cluster_errors import NoWorker as NoWorker
    from handrail.cluster_errors import RunTerminated as RunTerminated
    from handrail.cluster_errors import ServerNotStarted as ServerNotStarted
    from handrail.cluster_errors import TooLarge as TooLarge
    from handrail.codec.codec import Codec as Codec
    from handrail.codec.codec import TypeCodec as TypeCodec
    from handrail.codec.unresolved import Unresolvable as Unresolvable
    from handrail.codec.unresolved import Unresolved as Unresolved
    from handrail.coordination.hub_claims import HubClaims as HubClaims
    from handrail.decorator import Workflow as Workflow
    from handrail.decorator import workflow as workflow
    from handrail.engine.current import ContextNotAMapping as ContextNotAMapping
    from handrail.engine.current import Current as Current
    from handrail.engine.current import OutsideStep as OutsideStep
    from handrail.engine.current import current as current
    from handrail.engine.serving import RunHandle as RunHandle
    from handrail.engine.stream import Run as Run
    from handrail.errors import BudgetExceeded as BudgetExceeded
    from handrail.errors import CancelledFromWithin as CancelledFromWithin
    from handrail.errors import CannotSteer as CannotSteer
    from handrail.errors import ClaimDeadlock as ClaimDeadlock
    from handrail.errors import ClaimLost as ClaimLost
    from handrail.errors import ClaimsFailed as ClaimsFailed
    from handrail.errors import ClaimTimeout as ClaimTimeout
    from handrail.errors import CodeNotFound as CodeNotFound
    from handrail.errors import CommandFailed as CommandFailed
    from handrail.errors import CommandNotFound as CommandNotFound
    from handrail.errors import CoreStalled as CoreStalled
    from handrail.errors import DamagedExport as DamagedExport
    from handrail.errors import DefinitionError as DefinitionError
    from handrail.errors import DuplicateStepName as DuplicateStepName
    from handrail.errors import GateClosed as GateClosed
    from handrail.errors import GateNotFound as GateNotFound
    from handrail.errors import GateRefusal as GateRefusal
    from handrail.errors import GroupFailed as GroupFailed
    from handrail.errors import HandrailError as HandrailError
    from handrail.errors import HubFailed as HubFailed
    from handrail.errors import InputsDiffer as InputsDiffer
    from handrail.errors import InsideEventLoop as InsideEventLoop
    from handrail.errors import InvalidAnswer as InvalidAnswer
    from handrail.errors import InvalidInput as InvalidInput
    from handrail.errors import InvalidSignal as InvalidSignal
    from handrail.errors import JournalDamaged as JournalDamaged
    from handrail.errors import JournalFailed as JournalFailed
    from handrail.errors import LeaseLost as LeaseLost
    from handrail.errors import LimitExceeded as LimitExceeded
    from handrail.errors import MissingExtra as MissingExtra
    from handrail.errors import NoArmChosen as NoArmChosen
    from handrail.errors import NotAStep as NotAStep
    from handrail.errors import NotClean as NotClean
    from handrail.errors import NotPortable as NotPortable
    from handrail.errors import NotRecorded as NotRecorded
    from handrail.errors import OutputChanged as OutputChanged
    from handrail.errors import OutputNotSerializable as OutputNotSerializable
    from handrail.errors import ReplayMismatch as ReplayMismatch
    from handrail.errors import RunCancelled as RunCancelled
    from handrail.errors import RunIdTaken as RunIdTaken
    from handrail.errors import RunLocked as RunLocked
    from handrail.errors import RunNotFound as RunNotFound
    from handrail.errors import StagesMissing as StagesMissing
    from handrail.errors import StepChange as StepChange
    from handrail.errors import StepIsPoisonous as StepIsPoisonous
    from handrail.errors import StepTimeout as StepTimeout
    from handrail.errors import StepWasInterrupted as StepWasInterrupted
    from handrail.errors import TooEarly as TooEarly
    from handrail.errors import WorkflowError as WorkflowError
    from handrail.errors import WorkflowMistake as WorkflowMistake
    from handrail.errors import WorkflowNotFound as WorkflowNotFound
    from handrail.errors import WrongUse as WrongUse
    from handrail.executor import Executor as Executor
    from handrail.journals.memory import MemoryJournal as MemoryJournal
    from handrail.journals.memory import OutOfSequence as OutOfSequence
    from handrail.journals.sqlite.journal import SqliteJournal as SqliteJournal
    from handrail.model.agent_options import AgentOptions as AgentOptions
    from handrail.model.context import WorkflowContext as WorkflowContext
    from handrail.model.definition import WorkflowDefinition as WorkflowDefinition
    from handrail.model.definition import WorkflowParameter as WorkflowParameter
    from handrail.model.launch import AgentError as AgentError
    from handrail.model.launch import AnswerRejected as AnswerRejected
    from handrail.model.launch import NotReady as NotReady
    from handrail.model.launch import PromptError as PromptError
    from handrail.model.plan import Plan as Plan
    from handrail.model.plan import PlannedStep as PlannedStep
    from handrail.model.policy import Backoff as Backoff
    from handrail.model.policy import Budget as Budget
    from handrail.model.policy import Ladder as Ladder
    from handrail.model.policy import Limits as Limits
    from handrail.model.policy import Retry as Retry
    from handrail.model.results import AgentResult as AgentResult
    from handrail.model.results import BranchResult as BranchResult
    from handrail.model.results import Choice as Choice
    from handrail.model.results import CommandResult as CommandResult
    from handrail.model.results import Conflict as Conflict
    from handrail.model.results import Failure as Failure
    from handrail.model.results import Incident as Incident
    from handrail.model.results import OpenGate as OpenGate
    from handrail.model.results import RollbackError as RollbackError
    from handrail.model.results import Skipped as Skipped
    from handrail.model.results import StageFailed as StageFailed
    from handrail.model.results import StageResult as StageResult
    from handrail.model.results import StepFailed as StepFailed
    from handrail.model.results import StepResult as StepResult
    from handrail.model.results import Usage as Usage
    from handrail.model.results import ValidationFailed as ValidationFailed
    from handrail.model.results import ValidationResult as ValidationResult
    from handrail.model.results import ValidationRoundResult as ValidationRoundResult
    from handrail.model.results import WaitsFor as WaitsFor
    from handrail.model.results import WorkflowFailed as WorkflowFailed
    from handrail.model.results import WorkflowResult as WorkflowResult
    from handrail.model.sandbox import Sandbox as Sandbox
    from handrail.model.sandbox import SandboxUnavailable as SandboxUnavailable
    from handrail.model.shapes import AgentLike as AgentLike
    from handrail.model.shapes import AgentRequest as AgentRequest
    from handrail.model.shapes import OwnTree as OwnTree
    from handrail.model.shapes import WorkflowLike as WorkflowLike
    from handrail.model.work import Found as Found
    from handrail.model.work import Tally as Tally
    from handrail.model.work import Task as Task
    from handrail.model.work import TaskDone as TaskDone
    from handrail.model.work import TaskFailed as TaskFailed
    from handrail.model.work import TaskRefused as TaskRefused
    from handrail.model.work import Work as Work
    from handrail.model.work import plateau as plateau
    from handrail.ports.agent import AgentBackend as AgentBackend
    from handrail.ports.agent import AgentReply as AgentReply
    from handrail.ports.agent import AgentTurn as AgentTurn
    from handrail.ports.agent import Capabilities as Capabilities
    from handrail.ports.agent import Probe as Probe
    from handrail.ports.claims import Claim as Claim
    from handrail.ports.claims import Claimant as Claimant
    from handrail.ports.claims import ClaimList as ClaimList
    from handrail.ports.claims import ClaimRequest as ClaimRequest
    from handrail.ports.claims import Claims as Claims
    from handrail.ports.claims import ClaimWait as ClaimWait
    from handrail.ports.claims import Resource as Resource
    from handrail.ports.clock import Clock as Clock
    from handrail.ports.journal import Holder as Holder
    from handrail.ports.journal import Journal as Journal
    from handrail.ports.journal import Lease as Lease
    from handrail.ports.journal import Letter as Letter
    from handrail.ports.journal import RunInfo as RunInfo
    from handrail.ports.sink import Sink as Sink
    from handrail.record.rows import UnreadableRecord as UnreadableRecord
    from handrail.record.state import RunState as RunState
    from handrail.secrets.values import Secrets as Secrets
    from handrail.sinks.artifacts import ArtifactsSink as ArtifactsSink
    from handrail.sinks.callback import CallbackSink as CallbackSink
    from handrail.sinks.console import ConsoleSink as ConsoleSink
    from handrail.sinks.jsonl import JsonlSink as JsonlSink
    from handrail.sinks.memory import MemorySink as MemorySink
    from handrail.sinks.otel import OtelSink as OtelSink
    from handrail.sinks.structlog import StructlogSink as StructlogSink
    from handrail.static.source import SourceUnavailable as SourceUnavailable
    from handrail.steps.scope import scope as scope
    from handrail.steps.step import step as step
    from handrail.steps.verbs import Stage as Stage
    from handrail.steps.verbs import Step as Step
    from handrail.steps.verbs import StepNotYielded as StepNotYielded
    from handrail.steps.verbs import Steps as Steps
    from handrail.system.spawn import CommandNotStarted as CommandNotStarted
    from handrail.typed.convert import DoesNotFit as DoesNotFit
    from handrail.workspace.errors import PatchRefused as PatchRefused
    from handrail.workspace.errors import ScopeViolated as ScopeViolated
    from handrail.workspace.errors import WorktreeConflict as WorktreeConflict

__version__ = "0.1.0"

_NAMES = {
    "handrail.addons": "FileRefused",
    "handrail.agents.acp.backend": "AcpBackend",
    "handrail.agents.agent": "Agent",
    "handrail.agents.api.backend": "ApiBackend",
    "handrail.agents.cassette.cassette": "Cassette CassetteMismatch CassetteMissing",
    "handrail.agents.claude.backend": "ClaudeBackend",
    "handrail.agents.codex.backend": "CodexBackend",
    "handrail.agents.command": "CommandBackend",
    "handrail.agents.copilot.backend": "CopilotBackend",
    "handrail.agents.fake": "FakeBackend",
    "handrail.agents.prompt": "Files",
    "handrail.cluster_errors": """
        BlobMissing ClusterRefused ClusterUnreachable NoWorker NotDeterministic RunTerminated
        ServerNotStarted TooLarge
    """,
    "handrail.codec.codec": "Codec TypeCodec",
    "handrail.codec.unresolved": "Unresolvable Unresolved",
    "handrail.coordination.hub_claims": "HubClaims",
    "handrail.decorator": "Workflow workflow",
    "handrail.engine.current": "ContextNotAMapping Current OutsideStep current",
    "handrail.engine.stream": "Run",
    "handrail.engine.serving": "RunHandle",
    "handrail.errors": """
        BudgetExceeded CancelledFromWithin CannotSteer ClaimDeadlock ClaimLost ClaimTimeout
        ClaimsFailed CodeNotFound CommandFailed CommandNotFound CoreStalled DamagedExport
        DefinitionError DuplicateStepName GateClosed GateNotFound
        GateRefusal GroupFailed HandrailError HubFailed InputsDiffer InsideEventLoop InvalidAnswer
        InvalidInput InvalidSignal JournalDamaged JournalFailed LeaseLost LimitExceeded
        MissingExtra NoArmChosen NotAStep NotClean NotPortable NotRecorded OutputChanged
        OutputNotSerializable ReplayMismatch RunCancelled RunIdTaken RunLocked RunNotFound
        StagesMissing StepChange StepIsPoisonous StepTimeout StepWasInterrupted TooEarly
        WorkflowError WorkflowMistake WorkflowNotFound WrongUse
    """,
    "handrail.executor": "Executor",
    "handrail.journals.memory": "MemoryJournal OutOfSequence",
    "handrail.journals.sqlite.journal": "SqliteJournal",
    "handrail.model.agent_options": "AgentOptions",
    "handrail.model.context": "WorkflowContext",
    "handrail.model.definition": "WorkflowDefinition WorkflowParameter",
    "handrail.model.launch": "AgentError AnswerRejected NotReady PromptError",
    "handrail.model.plan": "Plan PlannedStep",
    "handrail.model.policy": "Backoff Budget Ladder Limits Retry",
    "handrail.model.results": """
        AgentResult BranchResult Choice CommandResult Conflict Failure Incident OpenGate
        RollbackError Skipped StageFailed StageResult StepFailed StepResult Usage ValidationFailed
        ValidationResult ValidationRoundResult WaitsFor WorkflowFailed WorkflowResult
    """,
    "handrail.model.sandbox": "Sandbox SandboxUnavailable",
    "handrail.model.shapes": "AgentLike AgentRequest OwnTree WorkflowLike",
    "handrail.model.work": "Found Tally Task TaskDone TaskFailed TaskRefused Work plateau",
    "handrail.ports.agent": "AgentBackend AgentReply AgentTurn Capabilities Probe",
    "handrail.ports.claims": """
        Claim ClaimList ClaimRequest ClaimWait Claimant Claims Resource
    """,
    "handrail.ports.clock": "Clock",
    "handrail.ports.journal": "Holder Journal Lease Letter RunInfo",
    "handrail.ports.sink": "Sink",
    "handrail.record.rows": "UnreadableRecord",
    "handrail.record.state": "RunState",
    "handrail.secrets.values": "Secrets",
    "handrail.sinks.artifacts": "ArtifactsSink",
    "handrail.sinks.callback": "CallbackSink",
    "handrail.sinks.console": "ConsoleSink",
    "handrail.sinks.jsonl": "JsonlSink",
    "handrail.sinks.memory": "MemorySink",
    "handrail.sinks.otel": "OtelSink",
    "handrail.sinks.structlog": "StructlogSink",
    "handrail.static.source": "SourceUnavailable",
    "handrail.steps.scope": "scope",
    "handrail.steps.step": "step",
    "handrail.steps.verbs": "Stage Step StepNotYielded Steps",
    "handrail.system.spawn": "CommandNotStarted",
    "handrail.typed.convert": "DoesNotFit",
    "handrail.workspace.errors": "PatchRefused ScopeViolated WorktreeConflict",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import a public name's module when the name is first used."""
    module = _HOME.get(name)
    if module is None:
        if name.endswith("Backend"):
            from handrail.model.retired import retired

            if (error := retired(name)) is not None:
                raise error
        raise AttributeError(f"module 'handrail' has no attribute {name!r}")
    from importlib import import_module

    public = getattr(import_module(module), name)
    globals()[name] = public
    return public


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])


if not TYPE_CHECKING:  # a type checker reads the imports above
    __all__ = ["__version__", *sorted(_HOME)]  # noqa: PLE0604 - all are strings
