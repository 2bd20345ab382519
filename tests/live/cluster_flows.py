"""A workflow of the tests on a cluster, and the executor of its workers: they are processes of
their own, and are told by variables which program they have, and where its model is.
"""

from __future__ import annotations

import os
from pathlib import Path

from handrail import Agent, Executor, Steps, step, workflow
from tests.live.programs import ALL

PROGRAM, WHERE, HOME, MODEL = (
    f"HANDRAIL_TESTS_{name}" for name in ("PROGRAM", "AT", "HOME", "URL")
)


def executor() -> Executor:
    """What a worker performs steps with."""
    (live,) = [one for one in ALL if one.name == os.environ[PROGRAM]]
    home, url = Path(os.environ[HOME]), os.environ[MODEL]
    backend = live.make(os.environ[WHERE], home, url, env={}, permission="full")
    return Executor(backend=backend)


coder = Agent("coder", "{{ task }}")


@workflow
def two_turns() -> Steps[list[str]]:
    """One session over two steps."""
    first = yield from step("first").agent(coder, {"task": "The word is heron."})
    second = yield from step("second").agent(coder, {"task": "Go on."}, session=first)
    return [str(first.output), str(second.output)]
