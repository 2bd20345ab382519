"""Replays histories of a folder with Temporal's own ``Replayer``: ``python -m ... FOLDER``."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from temporalio.client import WorkflowHistory

from handrail.temporal import replayer
from handrail.testing.conformance import FLOWS as CONFORMANCE
from tests.temporal.flows import FLOWS


async def replayed(histories: Iterable[WorkflowHistory]) -> int:
    """How many were replayed; the first that is not raises."""
    count = 0
    replays = replayer([*FLOWS, *CONFORMANCE])
    for history in histories:
        await replays.replay_workflow(history)
        count += 1
    return count


def stored(folder: Path) -> Iterable[WorkflowHistory]:
    """The histories in a folder, as the cluster's own command writes them."""
    for file in sorted(folder.glob("*.json")):
        yield WorkflowHistory.from_json(file.stem.partition("@")[0], file.read_text("utf-8"))


if __name__ == "__main__":
    sys.stdout.write(str(asyncio.run(replayed(stored(Path(sys.argv[1]))))))
    sys.stdout.flush()
    os._exit(0)
