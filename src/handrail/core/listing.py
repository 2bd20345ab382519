"""What the result of a resumed run lists, and in which order.

One that fails or is cancelled may stop short of steps that an earlier drive ended. They were done,
so they are listed, as they are when the result is read from the record.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, TypeAlias

from handrail.core.composed import Tree, compose
from handrail.core.replay import Recorded, attempt_in
from handrail.core.report import children_of
from handrail.model.results import StepResult

Results: TypeAlias = Mapping[str, StepResult[Any]]


def whole(recorded: Recorded, tree: Tree, results: Results) -> Tree:
    """The tree of a drive with all that is recorded; what it did not come to stands behind."""
    found = dict(tree)
    stack = [""]
    while stack:
        path = stack.pop()
        known = recorded.children(path)
        if known:
            made = results[path].attempts if path in results else None
            counting = [one for one in known if made is None or attempt_in(path, one) <= made]
            found[path] = dict.fromkeys([*children_of(tree, path), *counting])
        stack.extend(children_of(found, path))
    return found


def as_listed(tree: Tree, results: Results, orphaned: Container[str]) -> Tree:
    """The same, from the record alone: all that is recorded, but what the last drive did not come
    to behind what it did.
    """
    above = {one: path for path in tree for one in children_of(tree, path)}
    come_to = set[str]()
    for known in results:
        path = "" if known in orphaned else known
        while path and path not in come_to:
            come_to.add(path)
            path = above.get(path, "")
    return {
        path: dict.fromkeys(sorted(children_of(tree, path), key=lambda one: one not in come_to))
        for path in tree
    }


def with_recorded(recorded: Recorded, tree: Tree, results: Results, run_id: str) -> Results:
    """The results of a drive, and the recorded ones of what it did not come to; ``tree``: with all
    that is recorded.
    """
    stack = list(children_of(tree, ""))
    while stack:
        path = stack.pop()
        if path not in results and recorded.at(path).ended():
            compose(recorded, path, run_id)
        else:
            stack.extend(children_of(tree, path))
    return {**dict(recorded.ends()), **results}
