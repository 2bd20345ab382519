"""Recorded runs as tests: does today's code still replay them?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from handrail.model.shapes import WorkflowLike
from handrail.replays import Source, replay

if TYPE_CHECKING:
    import pytest


def assert_replays(
    source: Source, workflow: WorkflowLike[..., Any], *, run_id: str | None = None
) -> None:
    """Do nothing if ``replay`` matches.

    Raises:
        AssertionError: it does not; the text has the first divergence.
    """
    __tracebackhide__ = True  # the line of the test is what pytest is to show
    report = replay(source, workflow, run_id=run_id)
    if report.divergence is not None:
        raise AssertionError(f"run {report.run_id} is not replayed: {report.divergence}")


def recorded_runs(folder: str | os.PathLike[str]) -> pytest.MarkDecorator:
    """Have a test run once for each exported run (``*.jsonl``) of a folder, as ``recorded_run``.

    Raises:
        FileNotFoundError: there is none.
    """
    import pytest

    files = sorted(Path(folder).glob("*.jsonl"))
    if not files:
        raise FileNotFoundError(f"no exported run (*.jsonl) is in {folder}")
    return pytest.mark.parametrize("recorded_run", files, ids=[file.stem for file in files])
