"""The session that a program was to go on in is not there: one kind, whichever program says so.

As ``bad_request`` without a session, so that what follows begins a new one.
"""

from __future__ import annotations

import re

from handrail.agents.programs.ending import said_on_stderr
from handrail.agents.programs.turn_parser import Ending
from handrail.errors import AgentError
from handrail.ports.agent import AgentTurn


def lost_session(
    turn: AgentTurn, ending: Ending, program: str, words: re.Pattern[str]
) -> AgentError | None:
    """The error of a program that ended because it does not have the turn's session.

    ``words`` are those in which it says so on stderr. None if that is not why it ended. To be asked
    only of a program that did not get as far as its protocol.
    """
    if turn.session is None or ending.stopped is not None or not ending.exit_code:
        return None
    said = said_on_stderr(ending)
    if not words.search(said):
        return None
    reason = f"{program} does not have session {turn.session!r}: {said}"
    return AgentError(turn.agent, reason, kind="bad_request")
