"""What a resume would do, step by step."""

from __future__ import annotations

from dataclasses import asdict, field
from typing import Any, Literal, TypeAlias

from handrail.errors import StepChange
from handrail.model.dataclass import dataclass
from handrail.model.results import RunStatus, StepStatus, WaitsFor
from handrail.typed.reference import NEWER

PlanState: TypeAlias = Literal["recorded", "changed", "will run", "may run", "orphaned"]


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step of a plan.

    ``recorded``: its end is in the journal and counts. ``changed``: so it is, but the code
    describes the step otherwise now (``was`` and ``now``). ``will run``: the next one of its
    branch. ``may run``: named in the source behind it. ``orphaned``: recorded, and the code did
    not come to it. ``status`` is the recorded one; of one that will run, how it ends without being
    performed, by an answer that came since, say. ``interrupted``: it was at work when its process
    ended; if its status is "failed", it must not begin again. ``reached`` is False of one that is
    recorded behind what must run first: whether the code describes it otherwise shows only then.
    """

    path: str
    state: PlanState
    step_type: str = ""
    status: StepStatus | None = None
    was: str = ""
    now: str = ""
    interrupted: bool = False
    reached: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """What ``resume`` would do with a run; nothing was run to find out.

    ``status`` is the run's, None while it has no end. ``ends`` is how the run would end if no step
    of it had to run any more. ``undoes``: the steps whose rollbacks would run at once, in order.
    ``unwinds``: why the run was to be cancelled, if all that is left is to unwind it. ``waits_for``
    is what it would wait for, and what a person must do first. ``stuck`` is the step that must not
    begin again, if the run ends by that: only ``rerun`` of it helps.
    """

    run_id: str
    workflow_name: str
    status: RunStatus | None
    steps: tuple[PlannedStep, ...]
    ends: RunStatus | None = None
    undoes: tuple[str, ...] = ()
    unwinds: str | None = None
    waits_for: tuple[WaitsFor, ...] = field(default=(), metadata=NEWER)
    stuck: str | None = field(default=None, metadata=NEWER)

    @property
    def changes(self) -> tuple[StepChange, ...]:
        """The recorded steps that changed; a resume needs ``reuse`` or ``rerun`` for each."""
        return tuple(
            StepChange(step.path, step.was, step.now)
            for step in self.steps
            if step.state == "changed"
        )

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON-safe data."""
        return asdict(self)
