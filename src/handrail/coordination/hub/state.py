"""The state of a hub, and its reaction to one input.

All recorded state changes in one place, ``State.put``: the same changes, put into another hub, make
the same state. The roster of connected sockets is not recorded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Any, TypeAlias

import msgspec

from handrail.coordination.hub.agent_claims import AgentClaims, Waits
from handrail.coordination.hub.board import Board
from handrail.coordination.hub.bounded import Bounded
from handrail.coordination.hub.frames import Frame, envelope
from handrail.coordination.hub.records import (
    Answer,
    Card,
    Chat,
    Checkpoint,
    Count,
    Note,
    Offer,
    Put,
    RunClaim,
    RunClaimRequest,
    Task,
    TaskClaim,
    Value,
    Wait,
)
from handrail.coordination.hub.roster import Rate, Roster, Session, Tokens
from handrail.coordination.hub.run_claims import RunClaims
from handrail.model.dataclass import dataclass

ANSWERS = (1_024, 4 * 1024 * 1024)
"""The most answers that the hub keeps for one agent, and their total characters."""
ALL_ANSWERS = (64 * 1_024, 64 * 1024 * 1024)
CHECKPOINTS = (10_000, 32 * 1024 * 1024)
OFFERS = (2_000, 16 * 1024 * 1024)
"""The most offers, or cards, and the most bytes of all of them together, as JSON."""
CHATS_SIZE = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a hub."""

    hub_id: str
    grace_s: float = 15.0
    """How long an agent's claims last after it has left."""
    per_s: float = 0.0
    """Messages a second that an agent may send; 0: no limit."""
    burst: float = 20.0
    lease_s: float = 3600.0
    """How long a claim lasts that does not say."""
    max_history: int = 10_000
    max_progress: int = 5_000
    """The most progress notes of the board."""
    max_reply: int = 1_000_000
    """The most bytes of a reply: clients take no message above 1 MiB."""
    roots: tuple[str, ...] = ()
    """Absolute paths of the repository."""
    real: Callable[[str], str] = str
    """Follows the links in an absolute path of this machine."""
    folds_case: bool = False
    tokens: Tokens | None = None


@dataclass(frozen=True, slots=True)
class Send:
    """A text for these sockets. ``public``: a broadcast. ``spare``: slow readers may miss it."""

    to: tuple[int, ...]
    text: str
    public: bool = False
    spare: bool = False


@dataclass(frozen=True, slots=True)
class Close:
    """Close a socket, after all that was sent to it before."""

    socket: int
    code: int
    reason: str


Output: TypeAlias = Send | Close


class State:
    """All that a hub knows. Mutable."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.roster = Roster()
        self.rate = Rate(settings.per_s, settings.burst)
        self.agent_claims = AgentClaims(settings.grace_s, folds_case=settings.folds_case)
        self.checkpoints: Bounded[Checkpoint] = Bounded(*CHECKPOINTS)
        self.board = Board(settings.max_progress)
        self.waits = Waits()
        self.run_claims = RunClaims(settings.roots, folds_case=settings.folds_case)
        self.chats: Bounded[Chat] = Bounded(settings.max_history, CHATS_SIZE)
        self.answers: Bounded[Answer] = Bounded(*ALL_ANSWERS)
        self.answers_of: dict[str, Bounded[str]] = {}
        self.offers: Bounded[Offer] = Bounded(*OFFERS)
        self.cards: Bounded[Card] = Bounded(*OFFERS)
        self.epoch = 0
        self.forgotten = 0
        """The hub still knows every claim that was live since this epoch."""
        self.last_chat = 0
        self.absent: dict[str, float] = {}
        """Since when agents are away that have claims as runs, or had waits or cards at a restart.
        After the grace period the hub drops these."""
        self._drops: dict[str, Callable[[str], None]] = {
            "claim": self.agent_claims.remove,
            "checkpoint": self.checkpoints.drop,
            "task": self.board.remove,
            "note": self.board.notes.drop,
            "chat": self.chats.drop,
            "offer": self.offers.drop,
            "card": self.cards.drop,
            "wait": self.waits.remove,
            "held": self.run_claims.drop_claim,
            "lined": self.run_claims.drop_request,
            "answer": self._drop_answer,
        }

    def put(self, put: Put) -> None:
        """Apply a change."""
        if put.value is None:
            self._drops[put.kind](put.key)
        else:
            self._store(put.key, put.value)

    def _store(self, key: str, value: Value) -> None:
        match value:
            case TaskClaim():
                self.agent_claims.put(value)
                if self.run_claims.is_awaited(value.worktree, value.paths, value.task_id):
                    self.run_claims.due = True
            case Checkpoint():
                self.checkpoints.put(key, value, len(value.text))
            case Task():
                self.board.put(value)
            case Note():
                self.board.notes.put(key, value, size_of(value))
                self.board.last_note = max(self.board.last_note, int(key))
            case Chat():
                self.chats.put(key, value, len(value.text))
                self.last_chat = max(self.last_chat, int(key))
            case Offer():
                self.offers.put(key, value, _length(value))
            case Card():
                self.cards.put(key, value, _length(value))
            case Wait():
                self.waits.put(value.agent, value.task_id)
            case Answer():
                self.answers.put(key, value, len(value.text))
                own = self.answers_of.setdefault(value.sender, Bounded(*ANSWERS))
                own.put(key, key, len(value.text))
            case _:
                self._store_more(key, value)

    def _store_more(self, key: str, value: RunClaim | RunClaimRequest | Count) -> None:
        match value:
            case RunClaim():
                self.run_claims.put_claim(key, value)
            case RunClaimRequest():
                self.run_claims.put_request(key, value)
            case Count() if key == "epoch":
                self.epoch = value.value
            case Count():
                self.forgotten = value.value

    def _drop_answer(self, key: str) -> None:
        answer = self.answers.get(key)
        if answer is not None:
            self.answers.drop(key)
            own = self.answers_of[answer.sender]
            own.drop(key)
            if not len(own):
                del self.answers_of[answer.sender]


def size_of(note: Note) -> int:
    """The approximate size of a progress note, in characters."""
    return 100 + len(note.text) + len(note.task_id)


def _length(value: Offer | Card) -> int:
    return len(msgspec.json.encode(value))


class Reaction:
    """What one input leads to: changes to record, then outputs to send, in order. Mutable."""

    def __init__(self, state: State, now: float) -> None:
        self.state = state
        self.now = now
        self.records: list[Put] = []
        self.out: list[Output] = []
        self.mistake: Exception | None = None
        """An unexpected error in the hub's code; the changes before it still count."""

    def put(self, kind: str, key: str, value: Value | None) -> None:
        """Apply a change, and have it recorded."""
        put = Put(kind, key, value)
        self.state.put(put)
        self.records.append(put)

    def put_newest(self, kind: str, key: str, value: Value, surplus: Iterable[str]) -> None:
        """Remove the ``surplus`` keys of this kind, then put the value."""
        for old in surplus:
            self.put(kind, old, None)
        self.put(kind, key, value)

    def envelope(self, kind: str, payload: str, target: str, /, **extras: Any) -> str:
        """The text of a message from the hub itself."""
        stamp = {"timestamp": self.now, "hub_id": self.state.settings.hub_id}
        return envelope(kind, payload, target, {**stamp, **extras})

    def broadcast(self, kind: str, payload: str, /, **extras: Any) -> str:
        """Send a message to all; its text."""
        text = self.envelope(kind, payload, "all", **extras)
        self.to_all(text)
        return text

    def to_all(self, text: str, *, spare: bool = False) -> None:
        """Send a text to all."""
        self.out.append(Send(self.state.roster.listeners(), text, public=True, spare=spare))

    def to(self, socket: int, text: str) -> None:
        """Send a text to one socket."""
        self.out.append(Send((socket,), text))

    def close(self, socket: int, code: int, reason: str) -> None:
        """Close a socket."""
        self.out.append(Close(socket, code, reason))


@dataclass(slots=True)
class Request:
    """An agent's message, and the reaction to it."""

    frame: Frame
    session: Session
    reaction: Reaction
    state: State = field(init=False)
    now: float = field(init=False)

    def __post_init__(self) -> None:
        self.state = self.reaction.state
        self.now = self.reaction.now

    @property
    def sender(self) -> str:
        """The name of the agent."""
        return self.session.name

    def reply(self, kind: str, payload: str, /, **extras: Any) -> str:
        """Send the agent a message; its text."""
        text = self.reaction.envelope(kind, payload, self.sender, **extras)
        self.reaction.to(self.session.socket, text)
        return text

    def digest(self, ignoring: Iterable[str]) -> str:
        """A hash of the message's fields, without ``ignoring``."""
        skipped = frozenset(ignoring)
        asked = {name: one for name, one in self.frame.fields.items() if name not in skipped}
        text = msgspec.json.encode(asked, order="deterministic")
        return hashlib.sha256(text).hexdigest()
