"""Keeps evicted runs' bodies from the garbage collector, which would run their clean-up code.

A worker caches a bounded number of runs, and rebuilds an evicted run from its history. Python
closes a generator that it collects. The body's ``finally`` would then run in the middle of a live
run, and again at the run's end. So the generator is kept for as long as the process lives. Only a
generator suspended in a ``try`` or a ``with`` has such code; others are let go.
"""

from __future__ import annotations

import ctypes
import dis
from collections.abc import Iterator
from types import CodeType, GeneratorType
from typing import Any, cast

MOST = 10_000
"""How many bodies a process keeps. Beyond that a body is closed, with a warning."""


class PinnedGenerators:
    """Suspended generators of evicted runs, pinned in memory. Mutable: it counts them."""

    def __init__(self) -> None:
        self.count = 0

    def keep(self, run_id: str, bodies: Iterator[Any]) -> None:
        """Pin each body whose collection would run code; beyond ``MOST``, only warn."""
        for body in bodies:
            if not closing_runs_code(body):
                continue
            self.count += 1
            if self.count <= MOST:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(body))
            else:
                _warn_closed(run_id, body)


def closing_runs_code(body: Any) -> bool:
    """True if the generator is suspended in a ``try`` or ``with``, so closing it may run code."""
    while isinstance(body, GeneratorType):
        suspended = cast("Any", body)
        frame = suspended.gi_frame
        if frame is not None and _is_guarded(frame.f_code, frame.f_lasti):
            return True
        body = suspended.gi_yieldfrom
    return False


def _is_guarded(code: CodeType, offset: int) -> bool:
    """True if a handler written in the source covers this offset.

    Handlers that the compiler puts around a ``yield from`` do not count: they pass the exception
    on, so the search continues from the handler itself.
    """
    made: Any = dis.Bytecode(code)
    entries = made.exception_entries
    firsts = {one.offset: one.opname for one in made}
    seen: set[int] = set()
    while offset not in seen:
        seen.add(offset)
        target = next((one.target for one in entries if one.start <= offset < one.end), None)
        if target is None:
            return False
        if firsts.get(target) == "PUSH_EXC_INFO":
            return True
        offset = target
    return False


def _warn_closed(run_id: str, body: Any) -> None:
    import structlog

    where = f"{body.gi_code.co_filename}:{body.gi_frame.f_lineno if body.gi_frame else 0}"
    structlog.get_logger("handrail").warning(
        "a body was closed because its worker needed room: code in its finally has run, and will "
        "run again when the run continues. Effects belong in steps.",
        run_id=run_id,
        where=where,
    )
