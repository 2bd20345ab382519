"""Bodies that would decide otherwise when they run again, found before a run starts.

On a cluster a body runs again on any worker, whenever that has not the run in its memory. What it
reads of the clock, of chance, of the machine, would be another thing then.
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
    """Do nothing, or raise for what a workflow's body, its helpers', or its sub-workflows' source
    shows.

    Raises:
        NotDeterministic: with the place, and what to write instead. ``# handrail: ignore[...]`` on
            the line lets it pass.
    """
    found = list(_findings(definition.function, set()))
    if found:
        raise NotDeterministic(definition.name, tuple(found))


def _findings(function: Any, seen: set[CodeType]) -> Iterator[str]:
    from handrail.static.code_given import code_given
    from handrail.static.lint import check
    from handrail.static.source import source_of

    if not isinstance(function, FunctionType) or function.__code__ in seen:
        return
    seen.add(function.__code__)
    try:
        source = source_of(function)
        findings, given = check(source), code_given(source)
    except Exception:  # noqa: BLE001  # no run fails because its source cannot be had, or is odd
        return
    for one in findings:
        if one.code in _CODES:
            hint = f" {one.hint}" if one.hint else ""
            yield f"{one.filename}:{one.line}: {one.message} ({one.code}).{hint}"
    for link in given:
        if link.child:
            yield from _findings(function_of(evaluate_expression(link.given, function)), seen)
