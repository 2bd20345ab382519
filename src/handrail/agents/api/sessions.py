"""What was said in the sessions of a model API, which itself remembers nothing."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from handrail.model.results import Usage

KEPT = 1_000
"""How many sessions are remembered: those that were used last."""


@dataclass(frozen=True, slots=True)
class Session:
    """A session: its id, the messages so far, what they used."""

    id: str
    messages: tuple[Any, ...] = ()
    usage: Usage | None = None


class Sessions:
    """The sessions of one backend, for as long as it lives. Mutable."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Session] = OrderedDict()

    def begin(self) -> Session:
        """A new session, in which nothing was said."""
        return Session(str(uuid.uuid4()))

    def find(self, id: str) -> Session | None:  # noqa: A002
        """The session of this id, if it is remembered."""
        return self._kept.get(id)

    def fork(self, session: Session) -> Session:
        """A new session in which the same was said."""
        return Session(str(uuid.uuid4()), session.messages, session.usage)

    def keep(self, session: Session) -> None:
        """Remember how a session stands now; the one that rested longest may be forgotten."""
        self._kept[session.id] = session
        self._kept.move_to_end(session.id)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
