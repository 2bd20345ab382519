"""A run of 100,000 steps: how large its file is, how long a resume takes, how much memory."""

from __future__ import annotations

import faulthandler
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.durability.long_run import SHAPES, STEPS
from tests.durability.processes import show

ROOT = Path(__file__).parents[2]
MOST_BYTES_A_STEP = 1_000
MOST_KIB_A_STEP = 2.0
MOST_KIB_A_STEP_ON_RESUME = 8.0
MOST_TIMES_AS_LONG = 2.0
"""A resume against the run itself; it is much quicker, but machines stall."""
LONGEST_S = 1_800


def driven(shape: str, path: Path) -> dict[str, Any]:
    """What a process of its own says of the run."""
    command = [sys.executable, "-m", "tests.durability.long_run", shape, str(path)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=LONGEST_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.soak
@pytest.mark.parametrize("shape", SHAPES)
def test_a_run_of_a_hundred_thousand_steps(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], shape: str
) -> None:
    """It fails at its end; its resume replays every step, performs none, and fails there again."""
    faulthandler.cancel_dump_traceback_later()  # this takes minutes where others are at work, too
    path = tmp_path / "runs.db"
    first, again = driven(shape, path), driven(shape, path)
    bytes_a_step = first["size_bytes"] / STEPS
    kib_a_step, kib_on_resume = first["memory_kib"] / STEPS, again["memory_kib"] / STEPS
    show(
        capfd,
        f"{STEPS} steps, {shape}: file {first['size_bytes'] / 2**20:.1f} MiB, {bytes_a_step:.0f} "
        f"bytes a step; run {first['took_s']:.1f} s, resume {again['took_s']:.1f} s, "
        f"{again['took_s'] / STEPS * 1e6:.0f} us a step; memory above an empty process: run "
        f"{first['memory_kib'] / 1024:.0f} MiB, {kib_a_step:.2f} KiB a step, resume "
        f"{again['memory_kib'] / 1024:.0f} MiB, {kib_on_resume:.2f} KiB a step",
    )
    for told in (first, again):
        assert (told["status"], told["error"], told["ended"]) == ("failed", "the end", True)
        assert told["results"] == STEPS
    assert (first["performed"], again["performed"]) == (STEPS, 0)
    assert (first["resumed"], again["resumed"]) == (0, 1)
    assert again["replayed"] >= STEPS
    assert bytes_a_step <= MOST_BYTES_A_STEP
    assert kib_a_step <= MOST_KIB_A_STEP
    assert kib_on_resume <= MOST_KIB_A_STEP_ON_RESUME
    assert again["took_s"] <= MOST_TIMES_AS_LONG * first["took_s"]
