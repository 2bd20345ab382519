"""Which behaviour each composite or waiting verb has."""

from __future__ import annotations

from collections.abc import Mapping

from handrail.core.flow import BranchBehaviour, ChildBehaviour
from handrail.core.groups import GroupBehaviour
from handrail.core.machine import Behaviour
from handrail.core.validation import ValidationBehaviour
from handrail.core.waiting import PauseBehaviour, QuestionBehaviour, SignalBehaviour
from handrail.steps.verbs import (
    Branching,
    ChildWorkflow,
    ForEachGroup,
    ParallelGroup,
    Pause,
    Question,
    RaceGroup,
    SignalWait,
    Validation,
)


def behaviours() -> Mapping[type, Behaviour]:
    """A behaviour for each verb that is no leaf; they keep nothing of their own."""
    group = GroupBehaviour()
    return {
        Branching: BranchBehaviour(),
        ChildWorkflow: ChildBehaviour(),
        Validation: ValidationBehaviour(),
        ParallelGroup: group,
        ForEachGroup: group,
        RaceGroup: group,
        Pause: PauseBehaviour(),
        Question: QuestionBehaviour(),
        SignalWait: SignalBehaviour(),
    }
