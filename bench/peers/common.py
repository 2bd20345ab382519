"""How the scripts beside it measure: the least of some rounds, in microseconds a step."""

from __future__ import annotations

import importlib.metadata
import json
import sys
import time
from collections.abc import Callable

STEPS = 1000
ROUNDS = 2
"""In each process: the program that runs the scripts in turns begins several."""
START = "start"
"""The argument of a script that is to run one step, in memory where it can, and end."""


def least_us(run: Callable[[int], object] | None, count: int) -> float | None:
    """Microseconds a step, of the fastest round; None where there is nothing to run."""
    if run is None:
        return None
    run(min(count, 20))  # imports and caches
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        run(count)
        best = min(best, time.perf_counter() - began)
    return best / count * 1e6


def report(
    package: str,
    memory: Callable[[int], object] | None,
    durable: Callable[[int], object] | None,
    count: int = STEPS,
    of: str = "",
) -> None:
    """Print one line of JSON: the package, its version, and what a step (``of`` a kind) costs."""
    row: dict[str, object] = {
        "package": package,
        "version": importlib.metadata.version(package),
        "of": of,
    }
    if sys.argv[1:] == [START]:
        run = memory or durable
        assert run is not None
        run(1)
        print(json.dumps(row))
        sys.exit()
    row |= {"memory_us": least_us(memory, count), "durable_us": least_us(durable, count)}
    print(json.dumps(row))
