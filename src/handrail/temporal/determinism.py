"""Finds, before a run starts, bodies that could decide differently when they run again.

On a cluster a body runs again on any worker that does not have the run in memory. Values that the
body reads from the clock, a random generator or the machine would then differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from handrail.cluster_errors import NotDeterministic
from handrail.engine.preflight import evaluate_expression, function_of
from handrail.model.definition import WorkflowDefinition

_CODES = frozenset({"HR201", "HR202", "HR203", "HR204", "HR205"})


def refuse_nondeterministic(definition: WorkflowDefinition) -> None:
    """Check the source of a workflow's body, of its helpers and of its sub-workflows.

    Raises:
        NotDeterministic: with the places, and what to write instead. ``# handrail: ignore[...]``
            on a line lets it pass.
    """
    found = list(_findings(definition.function, set()))
    if found:
        raise NotDeterministic(definition.name, tuple(found))


def _findings(function: Any, seen: set[CodeType]) -> Iterator[str]:
    from handrail.static.lint import check
    from handrail.static.source import source_of
    from handrail.static.step_code import step_code

    if not isinstance(function, FunctionType) or function.__code__ in seen:
        return
    seen.add(function.__code__)
    try:
        source = source_of(function)
        findings, codes = check(source), step_code(source)
    except Exception:  # noqa: BLE001  # a run must not fail over source that cannot be read
        return
    for one in findings:
        if one.code in _CODES:
            hint = f" {one.hint}" if one.hint else ""
            yield f"{one.filename}:{one.line}: {one.message} ({one.code}).{hint}"
    for code in codes:
        if code.child:
            yield from _findings(function_of(evaluate_expression(code.expression, function)), seen)
