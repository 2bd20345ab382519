"""What a resume would do, step by step."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal, TypeAlias

from handrail.errors import StepChange
from handrail.model.dataclass import dataclass
from handrail.model.results import RunStatus, StepStatus, WaitsFor

PlanState: TypeAlias = Literal["recorded", "changed", "will run", "may run", "orphaned"]


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step of a plan.

    - ``state``: ``recorded``: its end is in the journal, and counts. ``changed``: recorded, but the
      code now describes the step differently (``was`` and ``now``). ``will run``: the next step of
      its branch. ``may run``: the source names it after those. ``orphaned``: recorded, but the code
      no longer reaches it.
    - ``status``: the recorded status. For a step that will run: how it ends without being
      performed, by an answer that came meanwhile, say.
    - ``interrupted``: it was at work when its process ended; with the status "failed" it must not
      begin again.
    - ``reached``: False for a recorded step after steps that must run first. Only when they have
      run does it show whether the code now describes this step differently.
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

    ``status`` is the run's, None while it has no end. ``ends`` is how the run would end; None if
    a step must run before. ``undoes``: the steps whose rollbacks would run at once, in order.
    ``unwinds``: the reason of the cancellation, if the resume would only unwind the run.
    ``waits_for``: what the run would wait for, and what a person must do first. ``stuck``: the step
    that must not begin again, if the run would end because of it: only ``rerun`` of it helps.
    """

    run_id: str
    workflow_name: str
    status: RunStatus | None
    steps: tuple[PlannedStep, ...]
    ends: RunStatus | None = None
    undoes: tuple[str, ...] = ()
    unwinds: str | None = None
    waits_for: tuple[WaitsFor, ...] = ()
    stuck: str | None = None

    @property
    def changes(self) -> tuple[StepChange, ...]:
        """The recorded steps that changed; a resume needs ``reuse`` or ``rerun`` for each. A fork
        runs them again by itself.
        """
        return tuple(
            StepChange(step.path, step.was, step.now)
            for step in self.steps
            if step.state == "changed"
        )

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON-safe data."""
        return asdict(self)
