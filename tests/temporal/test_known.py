"""Which workflow a run on the cluster has, as its caller knows it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from handrail import WorkflowNotFound
from handrail.temporal import TemporalExecutor
from handrail.temporal.caller import Caller
from tests.temporal.flows import stepwise

pytestmark = pytest.mark.temporal


def test_a_workflow_that_was_given_is_known_by_name() -> None:
    """To begin a run or to drive one, also to copies with other options; none needs a cluster."""
    run: Any = SimpleNamespace(workflow=stepwise.definition.name)
    executor = TemporalExecutor("localhost:1")
    caller = executor.options(labels={"a": "b"})._caller  # what all its methods ask
    with pytest.raises(WorkflowNotFound):
        caller.definition(run)
    executor.stream(stepwise, Path())
    assert caller.definition(run) is stepwise.definition
    other = Caller("localhost:1")
    assert other.definition_to_drive(run, stepwise) is other.definition(run)
