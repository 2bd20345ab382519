"""Finds names and paths that no step of a workflow can have, by the workflow's source."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from handrail.errors import ReplayMismatch, WrongUse, did_you_mean
from handrail.model import events as ev
from handrail.model.definition import WorkflowDefinition
from handrail.record.run_record import Recorded

if TYPE_CHECKING:
    from handrail.static.may_run import PossibleStep


_MOST = 8
"""How many steps a message lists for a name that no step has."""


@attrs.define
class StepNames:
    """The names of a workflow's steps, read from its source when they are first needed."""

    _definition: WorkflowDefinition
    _steps: Sequence[Any] | None = None

    def check(self, viewer: str, asked: str) -> None:
        """Raise if no step can have this name; do nothing where that cannot be known.

        ``viewer`` is the path of the step that asks. A step in a sub-workflow also sees the steps
        of that, and one in a ``validate`` its stages: those are not known here.

        Raises:
            WrongUse: no step has the name; the text has the nearest one.
        """
        if self._steps is None:
            self._steps = _steps_of(self._definition)
        steps: Sequence[PossibleStep] = self._steps
        if any(name.verb == "validate" for name in steps) or not any(
            name.matches(viewer) for name in steps
        ):
            return
        name = asked.removeprefix("/").partition("/")[0]
        names = [name.names[-1] for name in steps]
        if not any(pattern.matches(name) for pattern in names):
            near = did_you_mean([name], [pattern.text for pattern in names if pattern.literal])
            workflow = self._definition.name
            raise WrongUse(f"no step of workflow {workflow!r} is named {name!r}.{near}")


def no_step_at(definition: WorkflowDefinition, path: str) -> str | None:
    """A hint if no step of the workflow can have this path: the nearest path, or a list of paths.

    None if a step can have it, or that cannot be known.
    """
    steps = _steps_of(definition)
    if _may_have(steps, path):
        return None
    paths = [name.path for name in steps if name.literal]
    near = did_you_mean([path], paths).strip()
    return near or f"Its steps: {', '.join(map(repr, paths[:_MOST]))}."


def without_step(definition: WorkflowDefinition, paths: Iterable[str]) -> set[str]:
    """Those of the paths that no step of the workflow can have, as far as its source shows."""
    paths = list(paths)
    steps = _steps_of(definition) if paths else ()
    return {path for path in paths if not _may_have(steps, path)}


def _may_have(steps: Sequence[PossibleStep], path: str) -> bool:
    """False if none of the steps can have this path; True also if that cannot be known."""
    top, _, rest = path.partition("/")
    return (
        not steps
        or any(name.matches(path) for name in steps)
        # in a sub-workflow or a group: not all of its steps are known
        or (bool(rest) and any(name.matches(top) for name in steps))
    )


def reason_of(
    definition: WorkflowDefinition, mismatch: ReplayMismatch, history: Sequence[ev.Event]
) -> str:
    """A sentence on why the first step has changed: what ran again since, or else, if its file is
    older than the run, that the body is not deterministic. Empty if neither is known.
    """
    from handrail.record.dropped import ran_again_since

    first = mismatch.changes[0].path
    again = ran_again_since(Recorded(history), first)
    if again:
        names, them = (
            ", ".join(map(repr, again[:3])),
            "it gives" if len(again) == 1 else "they give",
        )
        more = f" and {len(again) - 3} more" if len(again) > 3 else ""
        flags = " ".join(f"--rerun {shlex.quote(change.path)}" for change in mismatch.changes[:3])
        return (
            f" {names}{more} ran again after {first!r} was recorded, and what {them} now may have "
            f"changed it: add {flags} to follow."
        )
    try:
        if Path(definition.function.__code__.co_filename).stat().st_mtime >= history[0].at:
            return ""
    except OSError:
        return ""
    return (
        f" {yielded_at(definition, first)}: this file has not changed since the run began. If "
        f"nothing that it imports has changed either, the workflow's body is not deterministic: it "
        f"must yield the same steps for the same inputs and outputs, and may not depend on the "
        f"clock, random values, files or the environment."
    )


def yielded_at(definition: WorkflowDefinition, path: str) -> str:
    """``file:line`` where the code yields a step; the function's first line if not known."""
    code = definition.function.__code__
    lines = (name.line for name in _steps_of(definition) if name.matches(path))
    return f"{code.co_filename}:{next(lines, code.co_firstlineno)}"


def _steps_of(definition: WorkflowDefinition) -> tuple[PossibleStep, ...]:
    """The steps; none if the source does not show all of them."""
    from handrail.static.may_run import is_whole, may_run
    from handrail.static.outline import outline
    from handrail.static.source import SourceUnavailable, source_of

    try:
        source = source_of(definition.function)
        return may_run(source) if is_whole(outline(source).nodes) else ()
    except SourceUnavailable:
        return ()
