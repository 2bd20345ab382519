"""The steps that a workflow may run, by their paths in its source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field

from handrail.model.dataclass import dataclass
from handrail.static.chain import StepName
from handrail.static.outline import HelperNode, Node, StepNode, child_nodes, outline
from handrail.static.source import Source

_KEY = StepName("{key}", ("", ""))
_ROUND = StepName("{round}", ("", ""))
_ENTERED_ONCE = frozenset({"holding", "worktree"})
"""Verbs whose body has no members."""


@dataclass(frozen=True, slots=True)
class PossibleStep:
    """A step that the source may yield; ``names`` are the parts of its path, or their patterns."""

    names: tuple[StepName, ...]
    verb: str
    line: int
    call: ast.Call | None = field(default=None, compare=False, repr=False)

    @property
    def path(self) -> str:
        """The path as text: ``review/{key}/lint``."""
        return "/".join(name.text for name in self.names)

    @property
    def literal(self) -> bool:
        """True if the source shows the whole path."""
        return all(name.literal for name in self.names)

    def matches(self, path: str) -> bool:
        """True if this step can have the path, in any attempt."""
        return _match(self.names, path)

    def is_in(self, path: str) -> bool:
        """True if this step can be directly below the path."""
        return _match(self.names[:-1], path)


def _match(names: Sequence[StepName], path: str) -> bool:
    parts = [re.sub(r"~\d+$", "", part) for part in path.split("/")]
    return len(parts) == len(names) and all(
        name.matches(part) for name, part in zip(names, parts, strict=True)
    )


def may_run(source: Source) -> tuple[PossibleStep, ...]:
    """Each step that the workflow may yield, in source order, each path once.

    Members of groups, fixes and fallbacks come after the step they run in. Steps of sub-workflows
    and of helpers in other files are missing.
    """
    return possible_steps(outline(source).nodes)


def possible_steps(nodes: Iterable[Node]) -> tuple[PossibleStep, ...]:
    """Each step of an outline, as ``may_run`` has them."""
    found: dict[str, PossibleStep] = {}
    for step in steps_of(nodes):
        found.setdefault(step.path, step)
    return tuple(found.values())


def steps_of(nodes: Iterable[Node]) -> Iterator[PossibleStep]:
    """Each step of an outline, with those inside it."""
    return _steps(nodes, ())


def is_whole(nodes: Iterable[Node]) -> bool:
    """False if a helper's source is elsewhere, or the source does not show a step's name."""
    for node in nodes:
        if isinstance(node, HelperNode) and node.nodes is None:
            return False
        if isinstance(node, StepNode) and node.name.fixed == ("", ""):
            return False
        if not is_whole(child_nodes(node)):
            return False
    return True


def _steps(nodes: Iterable[Node], path: tuple[StepName, ...]) -> Iterator[PossibleStep]:
    for node in nodes:
        if isinstance(node, StepNode):
            yield from _step(node, path)
        else:
            yield from _steps(child_nodes(node), path)


def _step(node: StepNode, path: tuple[StepName, ...]) -> Iterator[PossibleStep]:
    own = (*path, node.name)
    call = node.chain.call if node.chain is not None else None
    yield PossibleStep(own, node.verb, node.line, call)
    for part in node.parts:
        between = (_ROUND,) if part.role == "fix" else ()
        if part.role == "body" and node.verb not in _ENTERED_ONCE:
            between = (_KEY,)
        yield from _steps(part.nodes, (*own, *between))
