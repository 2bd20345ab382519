"""Who runs a command: the person who types it, or the step of a run that started its process."""

from __future__ import annotations

import getpass
import os
import platform
import re

from handrail.ports.claims import Claimant
from handrail.system.marker import STEP

_MARKED = re.compile(r"(?P<run>.+?)@(?P<journal>[0-9a-f]{8})/(?P<path>.*?)(#\d+.*)?")


def current_user() -> str:
    """The user who types the command: ``user@host``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user may have no name
        user = "somebody"
    return f"{user}@{platform.node()}"


def enclosing_claimant() -> Claimant | None:
    """The step, or ``handrail lock``, that started this process, if one did."""
    found = _MARKED.fullmatch(os.environ.get(STEP, ""))
    if found is None:
        return None
    run, journal, path = found["run"], found["journal"], found["path"]
    return Claimant(run, path, journal, "command" if path.startswith("lock-") else "step")


def current_claimant() -> Claimant:
    """The claimant: the step that started this process, or else the person who types."""
    return enclosing_claimant() or Claimant(current_user(), kind="person")


def marker() -> str:
    """The marker of the programs that this command starts for itself."""
    return f"handrail-{os.getpid()}/git"
