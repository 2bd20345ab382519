"""The hub: its reaction to a message, to a socket that opens or closes, and to time passing.

It opens nothing and reads no clock. The same inputs at the same times lead to the same reactions.
The caller must store a reaction's records before it sends the reaction's outputs. Then a hub that
starts from the stored records knows all that any client was told.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from handrail.coordination.hub import admission, claiming, planning, run_claiming, talking
from handrail.coordination.hub.frames import LONGEST, SHORT, Refusal, Unreadable, read
from handrail.coordination.hub.records import Answer, Put
from handrail.coordination.hub.state import Reaction, Request, Settings, State

HANDLERS: dict[str, Callable[[Request], str]] = {
    "chat": talking.chat,
    "claim": claiming.claim,
    "release": claiming.release,
    "task_update": claiming.task_update,
    "handoff": claiming.handoff,
    "checkpoint": claiming.checkpoint,
    "wait_request": claiming.wait_request,
    "resource": talking.resource,
    "resource_offer": talking.resource,
    "offer_resource": talking.resource,
    "ledger_task": planning.ledger_task,
    "ledger_task_update": planning.ledger_task_update,
    "ledger_progress": planning.ledger_progress,
    "board_request": planning.board_request,
    "advertise": talking.advertise,
    "manifest_request": talking.manifest_request,
    "state_request": talking.state_request,
    "who_request": talking.who_request,
    "history_request": talking.history_request,
    "resume_request": talking.resume_request,
    **run_claiming.HANDLERS,
}
"""The handler of each message type. Each returns the text of its success message."""

DENIALS = {
    "claim": "claim_denied",
    "release": "release_denied",
    "handoff": "handoff_denied",
    "checkpoint": "checkpoint_denied",
    "wait_request": "wait_denied",
}
"""The reply types of refusals, by message type; of other messages it is ``error``."""

ONCE = frozenset(
    {"claim", "release", "task_update", "handoff", "checkpoint"}
    | {"resource", "resource_offer", "offer_resource"}
)
"""The message types that the hub carries out once for each idempotency key."""

LONGER = {"chat": 1 << 40, "handrail.acquire": 2 * LONGEST}
"""The most bytes of message types that have another limit; ``chat`` checks its own."""

_NOT_ASKED = ("sender", "target", "timestamp", "token", "takeover", "idem_key")
"""Fields that may differ between a request and its repetition; ``_WORDING`` only in a claim."""
_WORDING = ("note", "ttl_seconds")


class Hub:
    """A hub without sockets or files. Mutable: it has the state."""

    def __init__(self, settings: Settings, records: Iterable[Put] = (), now: float = 0.0) -> None:
        """A hub that continues from these records, with every agent away since ``now``."""
        self.state = State(settings)
        for put in records:
            self.state.put(put)
        state = self.state
        for owner in list(state.agent_claims.owners()):
            state.agent_claims.mark_away(owner, now)
        expected = itertools.chain(state.waits.agents(), state.cards, state.run_claims.agents())
        state.absent = dict.fromkeys(expected, now)

    # -- inputs ------------------------------------------------------------------------------------

    def on_open(self, socket: int, now: float) -> Reaction:
        """The reaction to a new socket."""
        reaction = self._begin(now)
        admission.open_socket(reaction, socket)
        return _serve_line(reaction)

    def on_close(self, socket: int, now: float) -> Reaction:
        """The reaction to the end of a socket."""
        reaction = self._begin(now)
        admission.close_socket(reaction, socket)
        return _serve_line(reaction)

    def oldest_nameless(self) -> int | None:
        """The socket to close first: the oldest that has sent nothing yet, or None."""
        return next(iter(self.state.roster.nameless()), None)

    def send_away(self, socket: int, code: int, reason: str, now: float) -> Reaction:
        """The reaction to a socket that the server closes."""
        reaction = self._begin(now)
        session = self.state.roster.get(socket)
        if session is not None:
            admission.send_away(reaction, session, code, reason)
        return _serve_line(reaction)

    def on_missed(self, socket: int, count: int, now: float) -> Reaction:
        """The notice to a socket that missed ``count`` chats, because it read too slowly."""
        reaction = self._begin(now)
        text = f"{count} chats were left out, since they were read too slowly: resume gives them."
        session = self.state.roster.get(socket)
        if session is not None:
            reaction.to(socket, reaction.envelope("error", text, session.name or "all"))
        return reaction

    def tick(self, now: float) -> Reaction:
        """The reaction to the passing of time."""
        return _serve_line(self._begin(now))

    def next_tick(self) -> float | None:
        """When ``tick`` next has something to do, or None."""
        grace_s = self.state.settings.grace_s
        ends = [at + grace_s for at in self.state.absent.values()]
        ends += filter(None, (self.state.agent_claims.next_end(), self.state.run_claims.next_end()))
        return min(ends, default=None)

    def on_message(self, socket: int, data: str | bytes, now: float) -> Reaction:
        """The reaction to a message."""
        reaction = self._begin(now)
        session = self.state.roster.get(socket)
        if session is None:
            return reaction  # the hub has closed it
        try:
            frame = read(data)
        except Unreadable as unreadable:
            admission.refuse_unreadable(reaction, session, str(unreadable))
            return reaction
        sender = _plain(frame.fields.get("sender"))
        if admission.bind_name(reaction, session, sender, dict(frame.fields)):
            self._answer(Request(frame, session, reaction), len(data))
        return _serve_line(reaction)

    # -- parts -------------------------------------------------------------------------------------

    def _begin(self, now: float) -> Reaction:
        reaction = Reaction(self.state, now)
        claiming.expire(reaction)
        run_claiming.expire(reaction)
        self._forget_absent(reaction)
        return reaction

    def _forget_absent(self, reaction: Reaction) -> None:
        state = self.state
        if not state.absent:
            return
        now, grace_s = reaction.now, state.settings.grace_s
        for agent in [agent for agent, since in state.absent.items() if since + grace_s <= now]:
            del state.absent[agent]
            if state.waits.get(agent) is not None:
                reaction.put("wait", agent, None)
            if state.cards.get(agent) is not None:
                reaction.put("card", agent, None)
            run_claiming.release_absent(reaction, agent)

    def _answer(self, request: Request, size: int) -> None:
        state = self.state
        kind = ""
        state.roster.mark_seen(request.sender, request.now)
        try:
            kind = request.frame.name("type").lower() or "chat"
            if kind == "heartbeat":
                return
            if not state.rate.allows(request.sender, request.now):
                raise Refusal("Rate limit exceeded.", reason="rate")  # noqa: TRY301
            if request.frame.flaw:
                raise Refusal(request.frame.flaw)  # noqa: TRY301
            handler = HANDLERS.get(kind)
            if handler is None:
                raise Refusal(f"Unknown message type '{kind}'.")  # noqa: TRY301
            longest = LONGER.get(kind, LONGEST)
            if size > longest:
                raise Refusal(f"The message is longer than {longest} bytes.")  # noqa: TRY301
            self._perform(request, kind, handler)
        except Refusal as refusal:
            _refuse(request, kind, refusal)
        except Exception as mistake:  # noqa: BLE001  # only this message's sender is affected
            request.reaction.mistake = mistake
            _refuse(request, kind, Refusal("The hub made a mistake with this message."))

    def _perform(self, request: Request, kind: str, handler: Callable[[Request], str]) -> None:
        name = request.frame.name("idem_key") if kind in ONCE else ""
        if not name:
            handler(request)
            return
        key = f"{len(request.sender)}:{request.sender}:{kind}:{name}"
        digest = request.digest(_NOT_ASKED + (_WORDING if kind == "claim" else ()))
        known = self.state.answers.get(key)
        if known is not None and not self._is_void(kind, known):
            if known.digest != digest:
                text = "Idempotency key was already used for a different request."
                raise Refusal(text)
            request.reaction.to(request.session.socket, known.text)
            return
        text = handler(request)
        task_id = request.frame.name("task_id", "payload")
        answer = Answer(sender=request.sender, task_id=task_id, digest=digest, text=text)
        self._keep(request.reaction, key, answer)

    def _is_void(self, kind: str, known: Answer) -> bool:
        """True for a grant whose claim its sender no longer has: the hub must not repeat it."""
        if kind != "claim":
            return False
        held = self.state.agent_claims.get(known.task_id)
        return held is None or held.owner != known.sender

    def _keep(self, reaction: Reaction, key: str, answer: Answer) -> None:
        state, size = self.state, len(answer.text)
        own = state.answers_of.get(answer.sender)
        surplus = [] if own is None else own.surplus(size)
        for old in surplus:
            reaction.put("answer", old, None)
        reaction.put_newest("answer", key, answer, state.answers.surplus(size))


def _serve_line(reaction: Reaction) -> Reaction:
    """Serve the waiting line as part of a reaction; returns the reaction."""
    try:
        run_claiming.serve(reaction)
    except Exception as mistake:  # noqa: BLE001  # the next change serves the line
        reaction.mistake = mistake
    return reaction


def _refuse(request: Request, kind: str, refusal: Refusal) -> None:
    denial = DENIALS.get(kind, "error")
    extras: dict[str, Any] = dict(refusal.extras)
    if isinstance(asked := request.frame.fields.get("request"), str):
        extras["request"] = asked[:SHORT]
    if denial != "error":
        names = ("task_id",) if kind in {"handoff", "checkpoint"} else ("task_id", "payload")
        extras = {"task_id": _named_task(request, names), **extras}
    request.reply(denial, refusal.text, **extras)


def _named_task(request: Request, names: tuple[str, ...]) -> str:
    try:
        return request.frame.name(*names)
    except Refusal:
        return ""


def _plain(value: object) -> str:
    """A text or number as text without blanks around it; "" for anything else."""
    if isinstance(value, str):
        return value.strip()
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""
