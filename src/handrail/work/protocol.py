"""What an ``Orchestrator`` runs: the shape of a workflow protocol, and of its tasks.

Nothing has to be derived from these: an object fits that has the methods, a task that has an ``id``
and may have ``priority``, ``kind`` and ``payload``, a result that has ``children``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

Status: TypeAlias = Literal["running", "stopped", "interrupted"]


@dataclass(slots=True)
class TaskSpec:
    """One thing to do: its id, how urgent it is (lower numbers begin first), of what kind it is,
    and what it is about, as plain data.
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
        """What ``to_dict`` gave; only the id must be there."""
        payload = data.get("payload")
        return cls(
            str(data["id"]),
            float(data.get("priority", 0.0)),
            str(data.get("kind", "default")),
            dict(payload) if isinstance(payload, Mapping) else {},  # pyright: ignore[reportUnknownArgumentType]  # of any mapping
        )


@dataclass(slots=True)
class TaskResult:
    """What a task came to: the tasks that follow from it."""

    children: list[TaskSpec] = field(default_factory=list[TaskSpec])


class WorkflowProtocol(Protocol):
    """Which tasks there are, how each is done, and what is kept of it all."""

    def load(self) -> Sequence[Any]:
        """The tasks that are to be done; it is asked once whenever the work begins or goes on."""
        ...

    def checkpoint(self, queued: list[Any], running: list[Any], status: str, /) -> Any:
        """Keep what waits, the most urgent first, and what is at work. ``status`` is ``"running"``,
        ``"stopped"`` (all is done) or ``"interrupted"`` (the next ``run`` goes on).
        """
        ...

    def make_coro(self, spec: Any, /) -> Awaitable[Any]:
        """What does the task, and gives its ``TaskResult``."""
        ...

    async def on_result(self, spec: Any, result: Any, /) -> Sequence[Any]:
        """Take the result, and give the tasks that follow from it."""
        ...

    def summarize(self, workdir: Path, /) -> str:
        """How the work stands, as Markdown, from what is in the folder; at any time."""
        ...


METHODS = ("load", "checkpoint", "make_coro", "on_result", "summarize")
