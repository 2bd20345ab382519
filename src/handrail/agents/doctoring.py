"""Probes several backends on this machine, each within a time limit."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import anyio

from handrail.ports.agent import Probe

PROBE_S = 5.0
"""How long a backend may take for its probe."""
_AT_ONCE = 2
"""How many probes run at once. Starting programs use the processor: many would seem to hang."""

Named: TypeAlias = tuple[str, Callable[[], Any]]
"""A backend's name, and a function that creates it."""


@dataclass(frozen=True, slots=True)
class Probed:
    """A backend's name, and its probe; or why there is none, as one word and as a sentence."""

    name: str
    probe: Probe | None
    problem: str = ""
    reason: str = ""
    where: str | None = None


async def probe_all(backends: Sequence[Named], timeout_s: float = PROBE_S) -> list[Probed]:
    """The backends' probes, in their order. A backend that fails or hangs affects no other."""
    found: dict[int, Probed] = {}
    limiter = anyio.CapacityLimiter(_AT_ONCE)

    async def ask(place: int, named: Named) -> None:
        async with limiter:
            found[place] = await _probe_one(*named, timeout_s)

    async with anyio.create_task_group() as tasks:
        for place, named in enumerate(backends):
            tasks.start_soon(ask, place, named)
    return [found[place] for place in range(len(backends))]


async def _probe_one(name: str, make: Callable[[], Any], timeout_s: float) -> Probed:
    where: str | None = None
    try:
        backend = make()
        executable = getattr(backend, "executable", None)
        where = shutil.which(executable) if isinstance(executable, str) else None
        if not callable(getattr(backend, "probe", None)):
            return Probed(name, None, "unknown", "It has no probe().", where)
        with anyio.move_on_after(timeout_s):
            return Probed(name, await backend.probe())
    except Exception as error:  # noqa: BLE001  # any problem of a backend is a result here
        said = " ".join(str(error).split())
        return Probed(name, None, "failed", f"{type(error).__name__}: {said}", where)
    return Probed(name, None, "no answer", f"It said nothing within {timeout_s:g} s.", where)
