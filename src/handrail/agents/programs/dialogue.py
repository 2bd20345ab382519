"""What holds a conversation with a program for one turn: messages in, notices and messages out.

Dialogues do no input or output and know no clock, as parsers do (see ``turn_parser``); but they
also say what is to be sent. Whoever drives one sends what it says, in order.
"""

from __future__ import annotations

from typing import Protocol

from handrail.agents.programs.jsonrpc import Message
from handrail.agents.programs.turn_parser import TurnReader
from handrail.model.events import Notice


class Dialogue(TurnReader, Protocol):
    """Holds one turn."""

    def start(self) -> list[Message]:
        """What is sent first."""
        ...

    def received(self, message: object, /) -> tuple[list[Notice], list[Message]]:
        """What a message means, and what is to be sent because of it. Nothing raises."""
        ...

    def interrupt(self) -> list[Message]:
        """What is sent to end the turn early; nothing if the protocol has nothing for that now."""
        ...
