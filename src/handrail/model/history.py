"""What is found when recorded runs are compared, replayed, checked or pruned."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal, TypeAlias

from handrail.model.dataclass import dataclass
from handrail.model.results import StepResult
from handrail.typed.jsonsafe import json_safe

DiffState: TypeAlias = Literal["same", "changed", "only_a", "only_b"]
COMPARED = ("status", "output", "error", "attempts", "usage")


@dataclass(frozen=True, slots=True)
class StepDiff:
    """One step in two runs; ``fields`` names the fields of its two results that differ.

    Compared are ``status``, ``output``, ``error``, ``attempts`` and ``usage``, but no times.
    """

    path: str
    state: DiffState
    fields: tuple[str, ...] = ()
    a: StepResult[Any] | None = None
    b: StepResult[Any] | None = None


@dataclass(frozen=True, slots=True)
class RunDiff:
    """Two runs, step by step: the steps of ``a`` in its order, steps of ``b`` alone in between.

    ``fields`` names those of the runs' ``status``, ``value`` and ``error`` that differ, and
    ``denied`` if their sandboxes refused different things.
    """

    a: str
    b: str
    steps: tuple[StepDiff, ...]
    fields: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """True if nothing differs."""
        return not self.fields and all(step.state == "same" for step in self.steps)

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON-safe data."""
        steps = [
            {field.name: getattr(step, field.name) for field in fields(step)} for step in self.steps
        ]
        return {
            "a": self.a,
            "b": self.b,
            "same": self.same,
            "fields": list(self.fields),
            "steps": json_safe(steps),
        }


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where today's code departs from a recorded run.

    ``was`` is what is recorded, ``now`` what the code does, ``where`` the code's ``file:line``. An
    empty path stands for the run's end.
    """

    path: str
    was: str
    now: str
    where: str = ""

    def __str__(self) -> str:
        what = f"step {self.path!r}" if self.path else "the run"
        where = f" ({self.where})" if self.where else ""
        return f"{what}{where}: the record has {self.was}; the code has {self.now}"


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """Whether a recorded run can be replayed by today's code, and if not, the first divergence."""

    run_id: str
    divergence: Divergence | None = None

    @property
    def matches(self) -> bool:
        """True if there is no divergence."""
        return self.divergence is None


@dataclass(frozen=True, slots=True)
class JournalFault:
    """A place in a journal that is not as it was written; ``what`` says what is wrong.

    ``run_id`` is empty if the place belongs to no run, ``number`` is 0 if it is no event.
    """

    run_id: str
    number: int
    what: str

    def __str__(self) -> str:
        return f"run {self.run_id}: {self.what}" if self.run_id else self.what


@dataclass(frozen=True, slots=True)
class Pruned:
    """The runs that were removed from a journal, the count of their events, the bytes freed."""

    runs: tuple[str, ...]
    events: int
    bytes: int
