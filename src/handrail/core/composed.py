"""Outputs that follow from what is recorded below a step, so that they need not be stored twice.

The ``composed`` field of an end says how:

    outputs            the members' outputs, in the order of the group
    results            the members' results, in the order of the group
    outputs [NAMES]    the same of these members only, in this order, where the record has others,
    results [NAMES]    for the code was another when it was written
    child              the output of the only step below
    child PATH         the output of this one, where there were others
    winner PATH        the output of the member that won
    arm INDEX PATH     a ``BranchResult`` with the output of the arm's step
    workflow           the ``WorkflowResult`` of a child, which returned what ``SubworkflowEnded``
                       holds
    workflow [PATHS]   the same without these recorded steps, which it did not come to
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import msgspec

from handrail.core.node import Node
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


def of_members(how: str, recorded: Recorded | None, node: Node, places: Mapping[str, int]) -> str:
    """How the output of a group is composed; ``places``: those of its members, by path. They are
    named if an earlier drive recorded others.
    """
    if recorded is None or places.keys() >= set(_ended_members(recorded, node.path, node.base)):
        return how
    cut = len(node.base) + 1
    names = [path[cut:] for path in sorted(places, key=places.__getitem__)]
    return f"{how} {msgspec.json.encode(names).decode()}"


def of_child(recorded: Recorded | None, path: str, child: str) -> str:
    """How the output of a member is composed whose body gave one step."""
    others = recorded is not None and set(recorded.children(path)) - {child}
    return f"{CHILD} {child}" if others else CHILD


def of_workflow(recorded: Recorded | None, path: str, tree: Tree) -> str:
    """How the result of a child workflow is composed; ``tree``: what it came to."""
    if recorded is None:
        return WORKFLOW
    left: list[str] = []
    stack = [path]
    while stack:
        here = stack.pop()
        come_to = set(children_of(tree, here))
        others = (one for one in recorded.children(here) if one not in come_to)
        left += [one for one in others if recorded.at(one).ended() or recorded.children(one)]
        stack.extend(come_to)
    return f"{WORKFLOW} {msgspec.json.encode(left).decode()}" if left else WORKFLOW


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
            listed = _members(recorded, path, record, rest)
            members = [_result(recorded, member) for member in listed]
            values = members if how == "results" else [member.output for member in members]
            kind = record.end.step_type if record.end is not None else ""
            return tuple(values) if kind == "parallel" else values
        case "child":
            return _result(recorded, rest or recorded.children(path)[0]).output
        case "winner":
            return _result(recorded, rest).output
        case "arm":
            index, _, chosen = rest.partition(" ")
            result = _result(recorded, chosen)
            return BranchResult(int(index), result.name, result.output)
        case _:
            return _child_result(recorded, path, record, run_id)


def _members(recorded: Recorded, path: str, record: PathRecord, names: str) -> list[str]:
    """The members of the attempt that counts, in order."""
    attempts = record.end.attempts if record.end is not None else 1
    base = attempt_base(path, attempts)
    if names:
        return [f"{base}/{name}" for name in msgspec.json.decode(names, type=list[str])]
    return _ended_members(recorded, path, base)


def _ended_members(recorded: Recorded, path: str, base: str) -> list[str]:
    return [
        member
        for member in recorded.children(path)
        if member.startswith(f"{base}/") and recorded.at(member).ended()
    ]


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
