"""The list of all verbs: what looks a verb up by its kind looks here."""

from __future__ import annotations

from handrail.steps.bodies import (
    Branching,
    ChildWorkflow,
    HeldBody,
    ScopedBody,
    TreeBody,
    Validation,
)
from handrail.steps.groups import ForEachGroup, ParallelGroup, RaceGroup, WorkGroup
from handrail.steps.leaves import (
    AgentCall,
    Generation,
    PythonCall,
    ShellCommand,
    StageCheck,
    TreeWork,
)
from handrail.steps.verbs import Verb
from handrail.steps.waits import Pause, Question, SignalWait

_ALL: list[type[Verb]] = [  # a list: of a tuple the type checker would not check the items
    PythonCall,
    ShellCommand,
    AgentCall,
    Generation,
    StageCheck,
    TreeWork,
    Validation,
    ChildWorkflow,
    ScopedBody,
    HeldBody,
    TreeBody,
    Branching,
    ParallelGroup,
    ForEachGroup,
    WorkGroup,
    RaceGroup,
    Question,
    SignalWait,
    Pause,
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
