"""Steps that a body made and dropped: told while the body runs, at the line that dropped them."""

from __future__ import annotations

import inspect
import sys
import warnings
from pathlib import Path
from types import FrameType

from handrail.model import outcome

_PACKAGE = str(Path(__file__).parents[1])


class StepNotYielded(UserWarning):
    """A workflow's body made a step and never yielded it, so it never ran."""


def warn_if_forgotten(name: str) -> None:
    """Warn of a step that is dropped just now, if a workflow's body runs here."""
    if sys.is_finalizing():
        return
    at: tuple[str, int] | None = None
    frame: FrameType | None = inspect.currentframe()  # and so on to who dropped it
    while frame is not None:
        code = frame.f_code
        if code is outcome.resume.__code__:
            break
        if at is None and not code.co_filename.startswith(_PACKAGE):
            at = (code.co_filename, frame.f_lineno)
        frame = frame.f_back
    else:
        return  # no body runs: it was made elsewhere
    if at is None:  # the body has ended, and what it kept is dropped with it
        code = frame.f_locals["generator"].gi_code
        at = (code.co_filename, code.co_firstlineno)
    text = (
        f"step {name!r} was made and never yielded, so it never ran: write `yield from step(...)`"
    )
    warnings.warn_explicit(text, StepNotYielded, *at)
