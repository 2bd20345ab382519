"""What it costs to import handrail, and to run one step in a new process."""

from __future__ import annotations

import subprocess
import sys

from bench.measure import Row, interleaved, ratio

BARE = "import anyio, attrs, msgspec"
OURS = "import handrail"
ONE_STEP = """
from handrail import step, workflow

def one():
    return 1

@workflow
def flow():
    return (yield from step("one").call(one))

assert flow().value == 1
"""


BARE_LOOP = """
import anyio, attrs, msgspec

async def main():
    pass

anyio.run(main)
"""


def run(code: str) -> None:
    """Run the code in a new process."""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)  # our own code


def rows(rounds: int) -> list[Row]:
    """The start-up rows; an import is timed without the interpreter's own start."""
    empty, bare, ours, loop, one = interleaved(
        rounds,
        lambda: run("pass"),
        lambda: run(BARE),
        lambda: run(OURS),
        lambda: run(BARE_LOOP),
        lambda: run(ONE_STEP),
    )
    whole = "process start to the end of a one-step run"
    return [
        ratio("import handrail", BARE, bare - empty, ours - empty, 1.3),
        ratio(whole, "a loop of anyio's", loop, one, 1.4),
    ]
