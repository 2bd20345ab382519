"""Compares the page docs/how-to/recorded-runs-as-tests.md with the code, in the names of its blocks."""

import sys
import types
from pathlib import Path

from handrail import Executor, Steps, StepFailed, step, workflow


def fetch(attempt: int) -> str:
    raise OSError("no network")


@workflow
def ship(name: str = "a") -> Steps[str]:
    try:
        yield from step("fetch").call(fetch, 1)
    except StepFailed:
        name = f"offline-{name}"
    return (yield from step("build").call(str.upper, name))


Path("tests/runs").mkdir(parents=True)
executor = Executor(workflows=[ship], durable=True)
recorded = executor.run_sync(ship)
executor.export_sync(recorded.run_id, "tests/runs/offline.jsonl")
sys.modules["ship"] = types.ModuleType("ship")
sys.modules["ship"].ship = ship

# ---
for recorded_run in test_the_code_still_does_what_it_did.pytestmark[0].args[1]:
    test_the_code_still_does_what_it_did(recorded_run)
del sys.modules["ship"]
