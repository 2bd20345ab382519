"""What a hub remembers: values under keys, of which the newest counts.

Whatever changes in a hub is such a value put under its key, or taken from it. So the last value of
every key is the whole state, and a hub that is given them goes on where another one stopped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from handrail.ports.claims import Claimant, Resource


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A task that an agent holds, and the part of a repository that it keeps others out of."""

    task_id: str
    owner: str
    note: str
    claimed_at: float
    lease_expires_at: float
    status: str
    data_ref: str
    worktree: str
    paths: tuple[str, ...]
    epoch: int
    version: int
    checkpoint: str
    first_epoch: int
    """That of the claim which was renewed or handed on since: the older of two goes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What the holder of a lapsed claim had saved, for whoever takes the task up."""

    task_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task on the board."""

    task_id: str
    title: str
    description: str
    depends_on: tuple[str, ...]
    status: str
    suggested_owner: str
    created_by: str
    created_at: float
    updated_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A line of progress."""

    task_id: str
    author: str
    kind: str
    text: str
    posted_at: float


@dataclass(frozen=True, slots=True)
class Chat:
    """A message of one agent to others, as it was sent on."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Something that an agent lets others use."""

    agent: str
    kind: str
    name: str
    capacity: int
    meta: dict[str, Any]
    offered_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What an agent can do."""

    agent: str
    description: str
    skills: tuple[str, ...]
    task_classes: tuple[str, ...]
    model: str
    meta: dict[str, Any]
    advertised_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Who waits for which task."""

    agent: str
    task_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a request with an idempotency key was answered."""

    sender: str
    task_id: str
    digest: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a run, or another client of ``handrail.ports.claims``, holds or has held.

    ``agent`` is the name under which it is connected, ``request`` what it calls its request. What
    an outsider has held has none of them.
    """

    claimant: Claimant
    resources: tuple[Resource, ...]
    epoch: int
    since: float
    until: float | None = None
    agent: str = ""
    request: str = ""
    host: str = ""
    pid: int = 0
    ended: int | None = None
    """The value of the epochs' counter at its end."""
    cut: bool = False
    """True if it was not given back: its step may look further back when it runs again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lined:
    """Who stands in line for something."""

    number: int
    claimant: Claimant
    resources: tuple[Resource, ...]
    since: float
    agent: str
    request: str
    ttl_s: float | None = None
    host: str = ""
    pid: int = 0


@dataclass(frozen=True, slots=True)
class Count:
    """How far a counter is."""

    value: int


Value: TypeAlias = (
    Claim | Checkpoint | Task | Note | Chat | Offer | Card | Wait | Answer | Held | Lined | Count
)

KINDS: dict[str, type[Value]] = {
    "claim": Claim,
    "checkpoint": Checkpoint,
    "task": Task,
    "note": Note,
    "chat": Chat,
    "offer": Offer,
    "card": Card,
    "wait": Wait,
    "answer": Answer,
    "held": Held,
    "lined": Lined,
    "count": Count,
}
"""The word for each, as it is stored."""


@dataclass(frozen=True, slots=True)
class Put:
    """From now on this value is under this key; None: nothing is."""

    kind: str
    key: str
    value: Value | None
