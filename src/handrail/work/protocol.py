"""What an ``Orchestrator`` runs: the shape of a workflow protocol, and of its tasks.

No subclassing is needed. A protocol is any object with the methods; a task has an ``id``, and may
have ``priority``, ``kind`` and ``payload``; a result has ``children``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from handrail.model.dataclass import dataclass

Status: TypeAlias = Literal["running", "stopped", "interrupted"]


@dataclass(slots=True)
class TaskSpec:
    """One task: its id, its priority (lower numbers begin first), its kind, and its payload, which
    is plain data.
    """

    id: str
    priority: float = 0.0
    kind: str = "default"
    payload: dict[str, Any] = field(default_factory=dict[str, Any])

    def to_dict(self) -> dict[str, Any]:
        """All fields, for JSON."""
        return {
            "id": self.id,
            "priority": self.priority,
            "kind": self.kind,
            "payload": self.payload,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TaskSpec:
        """The task of a ``to_dict``; only the id is required."""
        payload = data.get("payload")
        return cls(
            str(data["id"]),
            float(data.get("priority", 0.0)),
            str(data.get("kind", "default")),
            dict(payload) if isinstance(payload, Mapping) else {},  # pyright: ignore[reportUnknownArgumentType]  # of any mapping
        )


@dataclass(slots=True)
class TaskResult:
    """The result of a task: the tasks that follow from it."""

    children: list[TaskSpec] = field(default_factory=list[TaskSpec])


class WorkflowProtocol(Protocol):
    """Which tasks there are, how to do each, and what to keep of their state."""

    def load(self) -> Sequence[Any]:
        """The tasks to do; called once at each start or continuation of the work."""
        ...

    def checkpoint(self, queued: list[Any], running: list[Any], status: str, /) -> Any:
        """Keep the tasks that wait, the most urgent first, and the tasks at work. ``status`` is
        ``"running"``, ``"stopped"`` (all done) or ``"interrupted"`` (the next ``run`` continues).
        """
        ...

    def make_coro(self, spec: Any, /) -> Awaitable[Any]:
        """The awaitable that does the task, and returns its ``TaskResult``."""
        ...

    async def on_result(self, spec: Any, result: Any, /) -> Sequence[Any]:
        """Take the result of a task; returns the tasks that follow from it."""
        ...

    def summarize(self, workdir: Path, /) -> str:
        """The state of the work, as Markdown, from the folder's files; callable at any time."""
        ...


METHODS = ("load", "checkpoint", "make_coro", "on_result", "summarize")
