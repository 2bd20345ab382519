"""What histories of runs say beside one another: two runs, or a run and today's code."""

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
    """One step in two runs. ``fields`` are those of its results that differ: of ``status``,
    ``output``, ``error``, ``attempts`` and ``usage``. Times make no difference.
    """

    path: str
    state: DiffState
    fields: tuple[str, ...] = ()
    a: StepResult[Any] | None = None
    b: StepResult[Any] | None = None


@dataclass(frozen=True, slots=True)
class RunDiff:
    """Two runs, step by step: those of ``a`` in its order, and those of ``b`` alone between them.

    ``fields``: of ``status``, ``value`` and ``error``, those of the runs that differ.
    """

    a: str
    b: str
    steps: tuple[StepDiff, ...]
    fields: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """True if nothing differs."""
        return not self.fields and all(one.state == "same" for one in self.steps)

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON-safe data."""
        steps = [{one.name: getattr(step, one.name) for one in fields(step)} for step in self.steps]
        return {
            "a": self.a,
            "b": self.b,
            "same": self.same,
            "fields": list(self.fields),
            "steps": json_safe(steps),
        }


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where today's code and a recorded run part: ``was`` is recorded, ``now`` is what the code
    does; ``where`` is its line, ``file:line``. The path is empty if it is the run's end.
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
        """True if the code does what is recorded."""
        return self.divergence is None


@dataclass(frozen=True, slots=True)
class Fault:
    """Something in a journal that is not as it was written: the run, empty if it is of none, the
    number of the event, 0 if it is none, and what is wrong.
    """

    run_id: str
    number: int
    what: str

    def __str__(self) -> str:
        return f"run {self.run_id}: {self.what}" if self.run_id else self.what


@dataclass(frozen=True, slots=True)
class Pruned:
    """The runs that were removed from a journal, their events, and the bytes that are free now."""

    runs: tuple[str, ...]
    events: int
    bytes: int
