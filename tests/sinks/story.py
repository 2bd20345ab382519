"""Runs told event by event, as an engine would emit them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from handrail.model import events as ev
from handrail.model.results import (
    OpenGate,
    StageResult,
    StepResult,
    ValidationRoundResult,
)


class Story:
    """Emits numbered events, each one second after the last unless told otherwise."""

    def __init__(self, *listeners: Callable[[Any], Any], run_id: str = "ship-1") -> None:
        self.listeners = listeners
        self.run_id = run_id
        self.seq = 0
        self.at = 0.0
        self.kinds: dict[str, tuple[str, float]] = {}

    def tell(self, event: Any, *, after: float = 1.0) -> None:
        """Emit any event."""
        self.seq += 1
        self.at += after
        ev.stamp(event, self.run_id, self.seq, self.at)
        for listener in self.listeners:
            listener(event)

    def begin(self, name: str = "ship") -> None:
        """The run starts, at second 0."""
        self.tell(ev.WorkflowStarted(name, {"task": "x"}), after=0.0)

    def finish(self, status: Any = "succeeded", **fields: Any) -> None:
        """The run ends."""
        self.tell(ev.WorkflowCompleted(status, **fields))

    def start(self, path: str, kind: str = "python", **fields: Any) -> None:
        """A step starts."""
        self.kinds[path] = (kind, self.at + 1.0)
        self.tell(ev.StepStarted(path, kind, **fields))

    def end(self, path: str, status: Any = "succeeded", **fields: Any) -> None:
        """A step ends."""
        self.tell(ev.StepCompleted(path, self.result(path, status, **fields)))

    def run(
        self, path: str, kind: str = "python", status: Any = "succeeded", **fields: Any
    ) -> None:
        """A step starts and ends."""
        self.start(path, kind)
        self.end(path, status, **fields)

    def result(self, path: str, status: Any, **fields: Any) -> StepResult[Any]:
        """The result that a step or member has if it ends in one second."""
        kind, started = self.kinds.get(path, ("python", self.at))
        if status == "failed":
            fields.setdefault("error", "boom")
            fields.setdefault("error_type", "builtins.ValueError")
        fields.setdefault("duration_ms", (self.at + 1.0 - started) * 1000)
        return StepResult(path.rpartition("/")[2], path, kind, status, **fields)

    def group(self, path: str, size: int | None, kind: str = "for_each") -> None:
        """A group opens."""
        self.start(path, kind)
        self.tell(ev.GroupStarted(path, kind, size), after=0.0)

    def member(self, path: str, index: int = 0) -> None:
        """A member of a ``for_each`` starts."""
        self.kinds[path] = ("member", self.at)
        self.tell(ev.MemberStarted(path, index, path.rpartition("/")[2]), after=0.0)

    def member_ends(self, path: str, status: Any = "succeeded", index: int = 0) -> None:
        """A member of a ``for_each`` ends."""
        self.tell(ev.MemberCompleted(path, index, self.result(path, status)))

    def round(self, path: str, number: int, **stages: bool) -> None:
        """All stages of a round run, and the round ends."""
        for name, passed in stages.items():
            self.run(f"{path}/{number}/{name}", "stage", "succeeded" if passed else "failed")
        results = tuple(
            StageResult(name, passed, error=None if passed else "exit code 1")
            for name, passed in stages.items()
        )
        passed = all(stages.values())
        done = ValidationRoundResult(number, results)
        base = path.rpartition("~")[0] or path
        self.tell(ev.ValidationRound(base, number, passed, done), after=0.0)

    def ask(self, path: str, question: str = "Merge?", *choices: str, **fields: Any) -> None:
        """A gate opens."""
        self.start(path, "ask")
        gate = OpenGate(path, question, choices, since=self.at, **fields)
        self.tell(ev.GateOpened(path, gate), after=0.0)
