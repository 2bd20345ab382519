"""One workflow as it was, and as edited later. Workers find each by its module, and list none."""

from __future__ import annotations

from pathlib import Path

from handrail import step, workflow
from handrail.steps.verbs import Steps
from tests.temporal.flows import counted


@workflow
def branched(folder: Path) -> Steps[int]:
    """Its second step has what the first one returned."""
    first = yield from step("first").call(counted, folder, 1)
    return (yield from step("second").call(counted, folder, first + 1))


@workflow(name="branched")
def branched_otherwise(folder: Path) -> Steps[int]:
    """The same workflow, once its first step has been changed."""
    first = yield from step("first").call(counted, folder, 10)
    return (yield from step("second").call(counted, folder, first + 1))


@workflow(name="branched")
def branched_further(folder: Path) -> Steps[int]:
    """The same workflow, once its second step has been changed."""
    first = yield from step("first").call(counted, folder, 1)
    return (yield from step("second").call(counted, folder, first + 21))
