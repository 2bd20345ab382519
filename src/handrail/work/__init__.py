"""Runs workflow protocols: objects that say which tasks there are, and how to do each."""

from __future__ import annotations

from handrail.work.orchestrator import Orchestrator
from handrail.work.protocol import TaskResult, TaskSpec, WorkflowProtocol

__all__ = ["Orchestrator", "TaskResult", "TaskSpec", "WorkflowProtocol"]
