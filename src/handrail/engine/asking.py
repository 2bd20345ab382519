"""``gates="ask"``: the questions of a run, put to whoever sits at the terminal."""

from __future__ import annotations

import sys
import threading
from typing import Any

import anyio
import anyio.to_thread

from handrail.errors import GateRefusal, InvalidAnswer
from handrail.model.results import OpenGate
from handrail.record.answers import accepted
from handrail.shortening import clean

_AT_THE_TERMINAL = threading.Lock()
"""One question at a time, also of runs in several threads."""
_POLL_S = 0.05
_ENDED = (
    "gates='ask', and stdin has ended. Type the answer there, or leave gates= out: then the run is "
    "suspended, and can be answered later"
)


async def asked(gate: OpenGate) -> Any:
    """The answer to a gate, read from stdin; one that does not fit is asked for again.

    The question is on stderr, so that it never gets among data. A wait that is cancelled leaves its
    thread behind, which takes the next line.

    Raises:
        GateRefusal: stdin has ended.
    """
    while not _AT_THE_TERMINAL.acquire(blocking=False):  # noqa: ASYNC110  # of several loops
        await anyio.sleep(_POLL_S)
    try:
        while True:
            sys.stderr.write(_prompt(gate))
            sys.stderr.flush()
            line = await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
            if not line:
                raise GateRefusal(gate.path, _ENDED)
            text = line.strip()
            if not text and gate.has_default:
                return gate.default
            try:
                return accepted(gate, text)
            except InvalidAnswer as error:
                sys.stderr.write(f"{error}\n")
    finally:
        _AT_THE_TERMINAL.release()


def _prompt(gate: OpenGate) -> str:
    offered = ", ".join(str(choice) for choice in gate.choices)
    choices = f" [{clean(offered)}]" if offered else ""
    default = f" (default: {clean(str(gate.default))})" if gate.has_default else ""
    return f"{clean(gate.path, 80)}: {clean(gate.question)}{choices}{default} "
