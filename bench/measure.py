"""Minima over interleaved rounds: the noise of a shared machine only ever adds time."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """One promise: what was measured, its ratio to the baseline, and the most it may be.

    ``unit_us`` and ``baseline_us`` are microseconds for one unit (a step, a member, a process).
    ``value`` is what is compared with ``limit``; None where nothing is promised.
    """

    name: str
    baseline: str
    baseline_us: float
    unit_us: float
    value: float
    limit: float | None
    note: str = ""

    @property
    def met(self) -> bool | None:
        """True if the promise is kept, None if there is none."""
        return None if self.limit is None else self.value <= self.limit


def ratio(  # noqa: PLR0917  # the columns of the table, in order
    name: str,
    baseline: str,
    base_s: float,
    ours_s: float,
    limit: float | None,
    count: int = 1,
    note: str = "",
) -> Row:
    """A row of what ``count`` units took, as a ratio to what they took by the baseline."""
    each = 1e6 / count
    return Row(name, baseline, base_s * each, ours_s * each, ours_s / base_s, limit, note)


@contextmanager
def cores_busy() -> Iterator[None]:
    """While as many other processes as there are cores do nothing but work."""
    code = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(code) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


@contextmanager
def collector_off() -> Iterator[None]:
    """Without the cyclic collector, and with nothing for it to do when it is back."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def seconds(function: Callable[[], Any], *, gc_on: bool = False) -> float:
    """How long one call takes."""
    gc.collect()
    if not gc_on:
        gc.disable()
    try:
        began = time.perf_counter()
        function()
        return time.perf_counter() - began
    finally:
        gc.enable()


def interleaved(rounds: int, *functions: Callable[[], Any], gc_on: bool = False) -> list[float]:
    """The least time of each function, in seconds, over rounds in which they take turns."""
    best = [float("inf")] * len(functions)
    for _ in range(rounds):
        for index, function in enumerate(functions):
            best[index] = min(best[index], seconds(function, gc_on=gc_on))
    return best
