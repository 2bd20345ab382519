"""What the result of a resumed run lists, and in which order.

One that fails or is cancelled may stop short of steps that an earlier drive ended. They were done,
so they are listed, as they are when the result is read from the record.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, TypeAlias

from handrail.core.composed import Tree, compose
from handrail.core.replay import Recorded, attempt_in
from handrail.core.report import children_of
from handrail.model.results import StepResult

Results: TypeAlias = Mapping[str, StepResult[Any]]


def in_order(recorded: Recorded, tree: Tree, results: Results, left: Container[str]) -> Tree:
    """The tree of a drive with all that is recorded, each in its place.

    ``left``: what stands in the tree because it is recorded, and was not come to.
    """
    whole = dict(tree)
    stack = [""]
    while stack:
        path = stack.pop()
        known = recorded.places(path)
        if known:
            made = results[path].attempts if path in results else None
            counting = [one for one in known if made is None or attempt_in(path, one) <= made]
            come_to = [one for one in children_of(tree, path) if one not in left]
            seen = set(come_to)
            whole[path] = dict.fromkeys(
                one
                for one in _merged(counting, come_to)
                if one in seen or not recorded.is_forgotten(one)
            )
        stack.extend(children_of(whole, path))
    return whole


def with_recorded(recorded: Recorded, results: Results, run_id: str) -> Results:
    """The results of a drive, and the recorded ones of steps that it did not come to."""
    for path in recorded.children(""):
        compose(recorded, path, run_id)
    return {**dict(recorded.ends()), **results}


def _merged(known: Sequence[str], come_to: Sequence[str]) -> list[str]:
    """Those come to, in their order, and each of the others behind the known one before it."""
    left = set(known).difference(come_to)
    after: dict[str, list[str]] = {}
    before = ""
    for path in known:
        if path in left:
            after.setdefault(before, []).append(path)
        else:
            before = path
    merged = after.get("", [])
    for path in come_to:
        merged.append(path)
        merged.extend(after.get(path, ()))
    return merged
