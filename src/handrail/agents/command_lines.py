"""What any program prints, read for one turn: all of its stdout is the answer.

Such a program knows no protocol. Its only word on the answer is its exit: with 0 what it printed is
whole, with anything else it is not, for reasons of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from handrail.agents.programs.turn_parser import Ending, Stop
from handrail.agents.programs.watchdog import Patience
from handrail.errors import AgentError, AgentErrorKind
from handrail.model.events import AgentMessage, Notice
from handrail.ports.agent import AgentReply, AgentTurn
from handrail.shortening import LONGEST_WORD, shortened

KEPT_BYTES = 8 << 20
"""The longest answer that is taken."""
_TAIL_CHARS = 2_000
_TAIL_BYTES = 4 * (_TAIL_CHARS + LONGEST_WORD + 1)  # so that its last characters are cut as text


class CommandParser:
    """Reads one turn of any program. Mutable.

    It is fed lines with their ends, so that the answer is what was printed, byte for byte. ``name``
    is the program's, ``patience`` the one it was given.
    """

    finished = False
    open_tools = 0
    patience_s = 0.0

    def __init__(self, turn: AgentTurn, name: str, patience: Patience) -> None:
        self._turn = turn
        self._name = name
        self._patience = patience
        self._kept: list[bytes] = []
        self._kept_bytes = 0
        self._left_out_bytes = 0
        self._tail = b""

    def feed(self, line: bytes, /) -> Iterable[Notice]:
        """The line, as a part of the answer."""
        kept = line[: KEPT_BYTES - self._kept_bytes]
        if kept:
            self._kept.append(kept)
            self._kept_bytes += len(kept)
        if len(kept) < len(line):
            self._left_out_bytes += len(line) - len(kept)
            self._tail = (self._tail + line)[-_TAIL_BYTES:]
        return (AgentMessage(self._turn.path, line.decode("utf-8", "replace")),)

    def feed_stderr(self, _line: bytes, /) -> Iterable[Notice]:
        """Nothing: what is said there is the step's output."""
        return ()

    def conclude(self, ending: Ending, /) -> AgentReply:
        """All that was printed, if the program exited with 0.

        Raises:
            AgentError: it did not, was ended by us, or printed more than can be kept.
        """
        if ending.stopped is not None:
            raise self._stopped(ending.stopped, ending)
        if ending.exit_code != 0:
            said = _said(ending.stderr) or _said(self._end) or " and said nothing"
            raise self._error(None, f"{self._name!r} {_exit(ending.exit_code)}{said}")
        if self._left_out_bytes:
            raise self._error(
                None,
                f"{self._name!r} printed {self._left_out_bytes} bytes more than are kept of an "
                f"answer. Have it print the answer alone.",
            )
        return AgentReply(self._printed)

    def _stopped(self, stop: Stop, ending: Ending) -> AgentError:
        patience, said = self._patience, _said(ending.stderr)
        match stop:
            case "interrupted":
                return self._error("interrupted", f"{self._name!r} was interrupted")
            case "start_timeout":
                why = f"gave no sign of life within {patience.start_s:g} s"
            case "idle_timeout":
                why = f"printed nothing for {patience.idle_s:g} s"
            case "timeout":
                why = f"gave no answer within {patience.total_s:g} s"
        return self._error("timeout", f"{self._name!r} {why}{said}")

    def _error(self, kind: AgentErrorKind | None, reason: str) -> AgentError:
        text = shortened(self._end, _TAIL_CHARS, keep="tail", mark="")
        return AgentError(self._turn.agent, reason, kind=kind, text=text)

    @property
    def _printed(self) -> str:
        return b"".join(self._kept).decode("utf-8", "replace")

    @property
    def _end(self) -> str:
        """The last of what it printed, or all."""
        return self._tail.decode("utf-8", "replace") if self._tail else self._printed


def _exit(code: int | None) -> str:
    if code is None:
        return "never exited"
    return f"was ended by signal {-code}" if code < 0 else f"exited with {code}"


def _said(output: str) -> str:
    shown = shortened(output.strip(), _TAIL_CHARS, keep="tail")
    return f": {shown}" if shown else ""
