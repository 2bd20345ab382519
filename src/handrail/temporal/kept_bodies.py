"""Bodies of runs that were put out of a worker's memory, and are not to run on because of that.

A worker keeps so many runs in memory, and makes one again from its history when it needs it. What
is put out is collected by Python, and Python closes a generator that it collects: the code of its
``finally`` would run, in the midst of a run that goes on, and once more at its end. So such a
generator is kept for as long as the process lives. Only one that stands in a ``try`` or a ``with``
has such code; the others are let go.
"""

from __future__ import annotations

import ctypes
import dis
from collections.abc import Iterator
from types import CodeType, GeneratorType
from typing import Any, cast

MOST = 10_000
"""So many are kept. Then a body is closed, and that is said."""


class PinnedGenerators:
    """The suspended generators of evicted runs, kept from the garbage collector: it would run their
    clean-up. Mutable.
    """

    def __init__(self) -> None:
        self.count = 0

    def keep(self, run_id: str, bodies: Iterator[Any]) -> None:
        """Keep what would do something if it was collected."""
        for body in bodies:
            if not closing_runs_code(body):
                continue
            self.count += 1
            if self.count <= MOST:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(body))
            else:
                _warn_closed(run_id, body)


def closing_runs_code(body: Any) -> bool:
    """True if closing the generator may run code of its own: it stands in a ``try`` or ``with``."""
    while isinstance(body, GeneratorType):
        suspended = cast("Any", body)
        frame = suspended.gi_frame
        if frame is not None and _is_guarded(frame.f_code, frame.f_lasti):
            return True
        body = suspended.gi_yieldfrom
    return False


def _is_guarded(code: CodeType, offset: int) -> bool:
    """True if an exception at this place comes to a handler that somebody wrote. Those that the
    compiler puts around a ``yield from`` pass it on to the next.
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
        "run again when the run goes on. Effects belong in steps.",
        run_id=run_id,
        where=where,
    )
