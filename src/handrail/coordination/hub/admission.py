"""Admits sockets: welcomes them, binds each to an agent's name, and closes them.

If the hub requires tokens, it sends a socket nothing before the socket has shown one. A name has
one socket: the hub closes a second one with that name, unless it asks to take the name over.
"""

from __future__ import annotations

from typing import Any

from handrail.coordination.hub.frames import HUB, SHORT
from handrail.coordination.hub.roster import Session
from handrail.coordination.hub.state import Reaction

CONFLICT = 4009
SUPERSEDED = 4010
"""The close code of a socket whose name was taken over, and of a refused token."""
COOLDOWN = 4014
_AUTH = "auth denied"


def open_socket(reaction: Reaction, socket: int) -> None:
    """Welcome a socket, unless it has to show a token first."""
    session = reaction.state.roster.add(socket)
    if reaction.state.settings.tokens is None:
        _welcome(reaction, session)


def close_socket(reaction: Reaction, socket: int) -> None:
    """Remove a socket; its agent's claims last for the grace period."""
    session = reaction.state.roster.remove(socket)
    if session is not None and session.name:
        _mark_absent(reaction, session.name)


def bind_name(reaction: Reaction, session: Session, sender: str, fields: dict[str, Any]) -> bool:
    """Bind a socket to the sender's name; False if the hub closed the socket instead.

    Once a socket has a name, its messages may leave the sender out.
    """
    if session.name:
        if sender in {"", session.name}:
            return True
        text = (
            f"Sender name switch denied: '{session.name}' -> '{sender}'. "
            "Reconnect with a new --name."
        )
        _tell(reaction, session, "name_conflict", session.name, text)
        send_away(reaction, session, CONFLICT, "name switch")
        return False
    name = sender or f"anon-{session.socket}"
    return _admit(reaction, session, name, fields.get("token")) and _bind(
        reaction, session, name, takes_over=bool(fields.get("takeover"))
    )


def refuse_unreadable(reaction: Reaction, session: Session, text: str) -> None:
    """Answer a frame that is no message with an error, or with a denial before the token."""
    if not session.name and reaction.state.settings.tokens is not None:
        _deny(reaction, session, "all", "Authentication token required.")
    else:
        _tell(reaction, session, "error", "all", text)


def send_away(reaction: Reaction, session: Session, code: int, reason: str) -> None:
    """Close a socket, and remove it at once."""
    reaction.close(session.socket, code, reason)
    close_socket(reaction, session.socket)


def _admit(reaction: Reaction, session: Session, name: str, token: object) -> bool:
    tokens = reaction.state.settings.tokens
    refused = tokens.refusal(token, name) if tokens is not None else None
    if refused is not None:
        _deny(reaction, session, name[:SHORT], refused)
    return refused is None


def _bind(reaction: Reaction, session: Session, name: str, *, takes_over: bool) -> bool:
    roster = reaction.state.roster
    if len(name) > SHORT or not name.isprintable() or name == HUB:
        text = f"Name '{name[:80]}' cannot be used: it is the hub's, too long, or not printable."
        _tell(reaction, session, "name_conflict", name[:SHORT], text)
        send_away(reaction, session, CONFLICT, "name conflict")
        return False
    holder = roster.holder(name)
    if holder is None:
        _join(reaction, session, name)
        return True
    if not takes_over:
        text = f"Name '{name}' is already online from another session. Use a unique --name."
        _tell(reaction, session, "name_conflict", name, text)
        send_away(reaction, session, CONFLICT, "name conflict")
        return False
    if roster.is_cooling(name, reaction.now):
        send_away(reaction, session, COOLDOWN, "takeover cooldown")
        return False
    roster.remove(holder)
    reaction.close(holder, SUPERSEDED, "superseded")
    roster.bind(session, name)
    if not session.listens:
        _welcome(reaction, session)
    return True


def _join(reaction: Reaction, session: Session, name: str) -> None:
    state = reaction.state
    if not session.listens:
        _welcome(reaction, session)
    state.roster.bind(session, name)
    state.agent_claims.mark_present(name)
    state.absent.pop(name, None)
    _presence(reaction, "joined", name)


def _mark_absent(reaction: Reaction, name: str) -> None:
    state = reaction.state
    state.agent_claims.mark_away(name, reaction.now)
    if state.waits.get(name) is not None:
        reaction.put("wait", name, None)
    if state.cards.get(name) is not None:
        reaction.put("card", name, None)
    if state.run_claims.entries_of(name):
        state.absent[name] = reaction.now
    state.roster.forget_some()
    _presence(reaction, "left", name)


def _welcome(reaction: Reaction, session: Session) -> None:
    roster = reaction.state.roster
    roster.listen(session)
    text = reaction.envelope(
        "welcome",
        "Welcome to Synapse",
        "self",
        connected_clients=len(roster.listeners()),
        online_agents=roster.online(),
    )
    reaction.to(session.socket, text)


def _presence(reaction: Reaction, event: str, name: str) -> None:
    online = reaction.state.roster.online()
    reaction.broadcast(
        "presence_update", "Presence update", online_agents=online, event=event, agent=name
    )


def _deny(reaction: Reaction, session: Session, target: str, text: str) -> None:
    _tell(reaction, session, "auth_denied", target, text)
    send_away(reaction, session, SUPERSEDED, _AUTH)


def _tell(reaction: Reaction, session: Session, kind: str, target: str, text: str) -> None:
    reaction.to(session.socket, reaction.envelope(kind, text, target))
