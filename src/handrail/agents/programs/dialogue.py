"""What holds a conversation with a program for one turn: messages in, notices and messages out.

Dialogues do no input or output and know no clock, as parsers do (see ``turn_parser``); but they
also say what is to be sent. Whoever drives one sends what it says, in order.
"""

from __future__ import annotations

from typing import Protocol

from handrail.agents.programs.jsonrpc import Message
from handrail.agents.programs.turn_parser import Ending
from handrail.model.events import Notice
from handrail.ports.agent import AgentReply


class Dialogue(Protocol):
    """Holds one turn. Mutable; lives as long as the turn."""

    @property
    def finished(self) -> bool:
        """True once the program's own last word on the turn was heard: nothing more is needed."""
        ...

    @property
    def open_tools(self) -> int:
        """How many tools are at work, as far as it has been told: silence is no hang then."""
        ...

    @property
    def patience_s(self) -> float:
        """How much longer than usual the program may be silent now, because it said so."""
        ...

    def start(self) -> list[Message]:
        """What is sent first."""
        ...

    def received(self, message: object, /) -> tuple[list[Notice], list[Message]]:
        """What a message means, and what is to be sent because of it. Nothing raises."""
        ...

    def interrupt(self) -> list[Message]:
        """What is sent to end the turn early; nothing if the protocol has nothing for that now."""
        ...

    def conclude(self, ending: Ending, /) -> AgentReply:
        """The answer.

        Raises:
            AgentError: there is none, with its kind.
        """
        ...
