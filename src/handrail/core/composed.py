"""Outputs that follow from what is recorded below a step, so that they need not be stored twice.

The ``composed`` field of an end says how:

    outputs            the members' outputs, in the order of the group
    results            the members' results, in the order of the group
    child              the output of the only step below
    winner PATH        the output of the member that won
    arm INDEX PATH     a ``BranchResult`` with the output of the arm's step
    workflow           the ``WorkflowResult`` of a child, which returned what ``SubworkflowEnded``
                       holds

What an earlier drive recorded there, and this end's did not come to, is no part of it: the end's
``left_out`` names that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from handrail.core.replay import PathRecord, Recorded
from handrail.core.report import children_of, tree_order, workflow_result
from handrail.model.events import WorkflowCompleted
from handrail.model.paths import attempt_base
from handrail.model.results import BranchResult, StepResult

Tree: TypeAlias = Mapping[str, dict[str, None] | str]

OUTPUTS = "outputs"
RESULTS = "results"
CHILD = "child"
WORKFLOW = "workflow"


def winner(path: str) -> str:
    """How the output of a race is composed."""
    return f"winner {path}"


def arm(index: int, path: str) -> str:
    """How the output of a branch is composed."""
    return f"arm {index} {path}"


def compose(recorded: Recorded, path: str, run_id: str) -> None:
    """Fill in the composed outputs of a path and of all below it, the innermost first.

    Done once for each: a journal that keeps objects has them filled in already.
    """
    for known in reversed([path, *recorded.paths_below(path)] if path else ()):
        record = recorded.at(known)
        if record.end is not None and record.composed and record.end.output is None:
            output = _output(recorded, known, record, record.composed, run_id)
            record.end = replace(record.end, output=output)
        if record.member_end is not None and record.member_composed:
            output = _output(recorded, known, record, record.member_composed, run_id)
            record.member_end = replace(record.member_end, output=output)


def _output(recorded: Recorded, path: str, record: PathRecord, composed: str, run_id: str) -> Any:
    how, _, rest = composed.partition(" ")
    match how:
        case "outputs" | "results":
            members = [_result(recorded, member) for member in _members(recorded, path, record)]
            values = members if how == "results" else [member.output for member in members]
            kind = record.end.step_type if record.end is not None else ""
            return tuple(values) if kind == "parallel" else values
        case "child":
            return _result(recorded, _ended(recorded, path)[0]).output
        case "winner":
            return _result(recorded, rest).output
        case "arm":
            index, _, chosen = rest.partition(" ")
            result = _result(recorded, chosen)
            return BranchResult(int(index), result.name, result.output)
        case _:
            return _child_result(recorded, path, record, run_id)


def _members(recorded: Recorded, path: str, record: PathRecord) -> list[str]:
    """The members of the attempt that counts, in order."""
    base = attempt_base(path, record.end.attempts if record.end is not None else 1)
    return [one for one in _ended(recorded, path) if one.startswith(f"{base}/")]


def _ended(recorded: Recorded, path: str) -> list[str]:
    return [one for one in recorded.come_to(path) if recorded.at(one).ended()]


def _result(recorded: Recorded, path: str) -> StepResult[Any]:
    record = recorded.at(path)
    result = record.member_end if record.member_end is not None else record.end
    assert result is not None, path
    return result


def _child_result(recorded: Recorded, path: str, record: PathRecord, run_id: str) -> Any:
    assert record.end is not None
    tree: dict[str, dict[str, None] | str] = {**recorded.tree_below(path)}
    results = dict(recorded.below(path))
    return workflow_result(
        record.workflow_name,
        run_id,
        "succeeded",
        ordered=tree_order(tree, results, path),
        top=children_of(tree, path),
        duration_ms=record.end.duration_ms,
        completed=WorkflowCompleted("succeeded", record.value),
    )
