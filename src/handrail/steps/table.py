"""The list of all verbs: what looks a verb up by its kind looks here."""

from __future__ import annotations

from handrail.steps import bodies, groups, leaves, waits
from handrail.steps.verbs import Verb

_ALL: list[type[Verb]] = [  # a list: of a tuple the type checker would not check the items
    leaves.PythonCall,
    leaves.ShellCommand,
    leaves.AgentCall,
    leaves.Generation,
    leaves.StageCheck,
    leaves.TreeWork,
    bodies.Validation,
    bodies.ChildWorkflow,
    bodies.ScopedBody,
    bodies.HeldBody,
    bodies.TreeBody,
    bodies.Branching,
    groups.ParallelGroup,
    groups.ForEachGroup,
    groups.WorkGroup,
    groups.RaceGroup,
    waits.Question,
    waits.SignalWait,
    waits.Pause,
]
VERBS: dict[str, type[Verb]] = {verb.kind: verb for verb in _ALL}
"""Each verb by its kind."""


def verb_of(kind: str) -> type[Verb]:
    """The verb of a kind that a record names; ``Verb``, which does nothing, if there is none."""
    return VERBS.get(kind, Verb)


def ends_by_itself(kind: str) -> bool:
    """True for a kind whose output does not follow from steps below it."""
    verb = verb_of(kind)
    return verb.leaf or verb.waits
