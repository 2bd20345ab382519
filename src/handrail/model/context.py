"""What a workflow's small functions see of a run: its inputs and the results so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from handrail.errors import NotClean
from handrail.model.dataclass import dataclass
from handrail.model.results import StepResult, ValidationResult


@dataclass(frozen=True, slots=True)
class WorkflowContext:
    """The view of a run that context builders, predicates, handlers and rollbacks get.

    It shows results of the step's own generator and of the enclosing ones, never of siblings that
    run at the same time, so that it does not depend on which is faster. ``results`` is keyed by
    full path. ``check_name(path, name)`` raises if the workflow has no step of that name.
    """

    run_id: str
    path: str
    inputs: Mapping[str, Any]
    results: Mapping[str, StepResult[Any]]
    services: Mapping[str, Any]
    config: Mapping[str, Any]
    validation: ValidationResult | None = None
    check_name: Callable[[str, str], None] | None = field(default=None, repr=False, compare=False)

    def result(self, path: str) -> StepResult[Any] | None:
        """The result at a path, or None.

        The path is searched from this step's own generator outward; with a leading ``/`` it is a
        path from the root of the run.
        """
        find = getattr(self.results, "find", None)
        if find is None:
            return self.results.get(path.removeprefix("/"))
        found: StepResult[Any] | None = find(path)
        return found

    def output(self, path: str, default: Any = None) -> Any:
        """The output of a finished step, looked up as ``result`` does, or ``default``.

        Raises:
            WrongUse: the workflow's source, as far as it can be read, has no step of this name.
        """
        found = self.result(path)
        if found is None and self.check_name is not None:
            self.check_name(self.path, path)
        return default if found is None or not found.success else found.output

    def require_clean(self, path: str = "") -> None:
        """Do nothing, unless a default was used at a path or below it (``""``: anywhere).

        Raises:
            NotClean: a default was used; the error lists the steps.
        """
        found = self.result(path) if path else None
        top = found.path if found is not None else path.removeprefix("/")
        used = [
            known
            for known, result in self.results.items()
            if result.degraded and (not top or known == top or known.startswith(f"{top}/"))
        ]
        if used:
            raise NotClean(path or self.run_id, used)
