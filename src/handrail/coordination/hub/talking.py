"""Messages between agents, about themselves, and about the hub's state."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice, takewhile
from typing import Any

import msgspec

from handrail.coordination.hub import run_claiming
from handrail.coordination.hub.bounded import Bounded, Fitting
from handrail.coordination.hub.claiming import claim_fields
from handrail.coordination.hub.frames import SHORT, Refusal, encode
from handrail.coordination.hub.records import Card, Chat, Offer, TaskClaim
from handrail.coordination.hub.state import Reaction, Request

OFFER_S = 300.0
CARD_S = 300.0
_PRIVATE = frozenset({"token", "takeover"})


def chat(request: Request) -> str:
    """Send a message on to all sockets, stamped with sender, time and number.

    The hub ignores the target: receivers pick their messages.
    """
    state, frame = request.state, request.frame
    timestamp = frame.number("timestamp")
    frame.name("target", most=4 * SHORT)
    number = state.last_chat + 1
    fields = {name: value for name, value in frame.fields.items() if name not in _PRIVATE}
    fields |= {
        "sender": request.sender,
        "type": "chat",
        "timestamp": request.now if timestamp is None else timestamp,
        "hub_id": state.settings.hub_id,
        "msg_id": number,
    }
    text = encode(fields)
    if len(text.encode()) > state.settings.max_reply:
        raise Refusal(f"The message is longer than {state.settings.max_reply} bytes.")
    request.reaction.put_newest("chat", str(number), Chat(text), state.chats.surplus(len(text)))
    request.reaction.to_all(text, spare=True)
    return text


def history_request(request: Request) -> str:
    """Show the newest chats, up to the ``limit`` asked for."""
    limit = _lenient(request, "limit")
    limit = None if limit is None else max(1, limit)
    newest = _raw_texts(islice(request.state.chats.newest(), limit))
    return request.reply(
        "history_snapshot",
        "History snapshot",
        history=Fitting(request.state.settings.max_reply).newest(newest),
        requested_limit="all" if limit is None else limit,
    )


def resume_request(request: Request) -> str:
    """Show the chats after the last one that the agent has seen.

    If not all fit into one reply, the agent asks again with the last number as ``since``.
    """
    since = _lenient(request, "since") or 0
    chats = request.state.chats
    after = list(takewhile(lambda key: int(key) > since, reversed(chats)))
    found = (chat for key in reversed(after) if (chat := chats.get(key)) is not None)
    messages = Fitting(request.state.settings.max_reply).first(_raw_texts(found))
    return request.reply("resume_snapshot", "Resume snapshot", since=since, messages=messages)


def who_request(request: Request) -> str:
    """Show who is online."""
    roster = request.state.roster
    return request.reply(
        "who_snapshot",
        "Who snapshot",
        online_agents=roster.online(),
        connected_clients=len(roster.listeners()),
    )


def state_request(request: Request) -> str:
    """Show the claims, the offers, and when each agent was last seen."""
    state = request.state
    forget_stale(request.reaction)
    fits = Fitting(state.settings.max_reply)
    claims = [_claim(one, state.agent_claims.end_of(one)) for one in state.agent_claims.all()]
    claims = sorted(
        [*claims, *run_claiming.held_entries(state)], key=lambda claim: claim["task_id"]
    )
    offers = sorted(state.offers.values(), key=_key)
    snapshot = {
        "active_claims": fits.all(claims),
        "agents": fits.all(
            {"agent": name, "last_seen": at} for name, at in sorted(state.roster.seen.items())
        ),
        "resources": fits.all(_offer(offer) for offer in offers),
        "generated_at": request.now,
        **fits.omitted(),
    }
    return request.reply("state_snapshot", "State snapshot", snapshot=snapshot)


def advertise(request: Request) -> str:
    """Publish what the agent can do."""
    frame = request.frame
    card = Card(
        agent=request.sender,
        description=frame.text("description").strip(),
        skills=frame.texts("skills"),
        task_classes=frame.texts("task_classes"),
        model=frame.name("model"),
        meta=frame.table("meta"),
        advertised_at=request.now,
    )
    forget_stale(request.reaction)
    _store_offer(request, "card", card.agent, card, request.state.cards)
    return request.reaction.broadcast(
        "capability_advertised",
        f"Capability advertised by {card.agent}",
        agent=card.agent,
        card=card,
    )


def manifest_request(request: Request) -> str:
    """Show what each agent can do."""
    forget_stale(request.reaction)
    found = sorted(request.state.cards.values(), key=lambda card: card.agent)
    shown = Fitting(request.state.settings.max_reply).all(found)
    return request.reply("manifest_snapshot", "Manifest snapshot", manifest=shown)


def resource(request: Request) -> str:
    """Offer a resource to other agents."""
    frame = request.frame
    kind, name = frame.name("kind", "resource_kind"), frame.name("name", "resource_name")
    if not kind or not name:
        raise Refusal("resource offer requires kind+name")
    capacity = frame.integer("capacity")
    offer = Offer(
        agent=request.sender,
        kind=kind,
        name=name,
        capacity=1 if capacity is None else capacity,
        meta=frame.table("meta"),
        offered_at=request.now,
    )
    forget_stale(request.reaction)
    _store_offer(request, "offer", _own_key(offer), offer, request.state.offers)
    return request.reaction.broadcast(
        "resource_offered",
        f"Resource offered by {offer.agent}",
        agent=offer.agent,
        kind=kind,
        name=name,
        key=_key(offer),
    )


def forget_stale(reaction: Reaction) -> None:
    """Drop offers and cards that were not repeated in time."""
    state, now = reaction.state, reaction.now
    offers = takewhile(lambda one: now - one.offered_at >= OFFER_S, state.offers.values())
    for offer in list(offers):
        reaction.put("offer", _own_key(offer), None)
    cards = takewhile(lambda one: now - one.advertised_at >= CARD_S, state.cards.values())
    for card in list(cards):
        reaction.put("card", card.agent, None)


def _key(offer: Offer) -> str:
    """The offer's key on the wire; ambiguous: ``a:b`` with ``c`` equals ``a`` with ``b:c``."""
    return f"{offer.agent}:{offer.kind}:{offer.name}"


def _own_key(offer: Offer) -> str:
    return f"{len(offer.agent)}:{len(offer.kind)}:{_key(offer)}"


def _store_offer(
    request: Request, kind: str, key: str, value: Offer | Card, known: Bounded[Any]
) -> None:
    size = len(msgspec.json.encode(value))
    request.reaction.put_newest(kind, key, value, known.surplus(size))


def _claim(claim: TaskClaim, ends_at: float) -> dict[str, Any]:
    more = {"claimed_at": claim.claimed_at, "data_ref": claim.data_ref}
    return {**claim_fields(claim), **more, "lease_expires_at": ends_at}


def _offer(offer: Offer) -> dict[str, Any]:
    return {
        "agent": offer.agent,
        "kind": offer.kind,
        "name": offer.name,
        "capacity": offer.capacity,
        "meta": offer.meta,
    }


def _raw_texts(chats: Iterable[Chat]) -> Iterable[msgspec.Raw]:
    return (msgspec.Raw(chat.text.encode()) for chat in chats)


def _lenient(request: Request, name: str) -> int | None:
    """A number, or None if the field is none: these requests change nothing, so none is refused."""
    try:
        return request.frame.integer(name)
    except Refusal:
        return None
