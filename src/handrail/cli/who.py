"""Who runs a command: the person who types it, or the step of a run that started its process."""

from __future__ import annotations

import getpass
import os
import platform

from handrail.cli.exits import Refused
from handrail.ports.claims import Claimant
from handrail.ports.journal import Journal
from handrail.system.marker import MARKED, STEP, enclosing_step


def current_user() -> str:
    """The user who types the command: ``user@host``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user may have no name
        user = "somebody"
    return f"{user}@{platform.node()}"


def acting_user(typed: str | None = None) -> str:
    """Who acts, for the record: the step that this process is in, or else the name that was typed,
    or the user.
    """
    step = enclosing_step()
    return str(step) if step is not None else typed or current_user()


def refuse_in_step(what: str, journal: Journal | None = None) -> None:
    """Raise if this process is in a step (of a run of the journal, if there is one).

    Raises:
        Refused: it is.
    """
    step = enclosing_step(None if journal is None else "", getattr(journal, "identity", ""))
    if step is not None:
        raise Refused(what, f"is not for {step}, which started it", "A person may type it.")


def enclosing_claimant() -> Claimant | None:
    """The step, or ``handrail lock``, that started this process, if one did."""
    found = MARKED.fullmatch(os.environ.get(STEP, ""))
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
