"""What the end of a program says when the program itself said nothing of use."""

from __future__ import annotations

import re

from handrail.agents.programs.turn_parser import Ending
from handrail.errors import AgentErrorKind
from handrail.shortening import shortened

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_NOISE = re.compile(r"^(?:warning\b|warn\b|tip:|\(node:\d+\)|at |note:)", re.IGNORECASE)
_LOGIN = re.compile(
    r"not logged in|log ?in|sign in|authenticat|unauthorized|api[_ ]key|credentials|\btoken\b",
    re.IGNORECASE,
)
_PANIC = re.compile(r"panicked at|segmentation fault|out of memory|core dumped", re.IGNORECASE)
_SHOWN_CHARS = 600


def kind_of_end(ending: Ending, *, alive: bool) -> AgentErrorKind:
    """The kind of an end without a terminal event.

    A program that did not get as far as its protocol and complained on stderr did not accept how
    it was started, or knows no login.
    """
    if ending.stopped is not None:
        return "interrupted" if ending.stopped == "interrupted" else "timeout"
    complaint = said_on_stderr(ending)
    if alive or not complaint or not ending.exit_code or ending.exit_code < 0:
        return "crashed"
    if _PANIC.search(complaint):
        return "crashed"
    return "auth" if _LOGIN.search(complaint) else "config"


def words_of_end(program: str, ending: Ending, *, alive: bool = True) -> str:
    """How a program ended, in words, with the end of its stderr."""
    said = said_on_stderr(ending)
    tail = f": {said}" if said else ""
    match ending.stopped:
        case "interrupted":
            return f"{program} was interrupted"
        case "start_timeout":
            return f"{program} gave no sign of life within {ending.after_s:g} s{tail}"
        case "idle_timeout":
            return f"{program} gave no sign of life for {ending.after_s:g} s and was stopped"
        case "timeout":
            return f"{program} did not finish within {ending.after_s:g} s"
        case None:
            silent = " without saying that it is done" if alive or not said else ""
            return f"{program} {_exit(ending.exit_code)}{silent}{tail}"


def said_on_stderr(ending: Ending) -> str:
    """The lines of stderr that may be reasons, in short."""
    plain = _ANSI.sub("", ending.stderr)
    lines = (line.strip() for line in plain.splitlines())
    kept = "\n".join(line for line in lines if line and not _NOISE.match(line))
    if len(kept) <= _SHOWN_CHARS:
        return kept
    half = _SHOWN_CHARS // 2
    return shortened(kept, half, mark=" ... ") + shortened(kept, half, "tail", mark="")


def _exit(code: int | None) -> str:
    if code is None:
        return "never exited"
    return f"was ended by signal {-code}" if code < 0 else f"exited with {code}"
