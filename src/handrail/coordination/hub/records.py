"""What a hub remembers: values under keys.

Every change in a hub puts a value under its key, or removes it. So the latest value of each key is
the whole state, and a new hub that loads these values continues where the old one stopped.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from handrail.model.dataclass import dataclass
from handrail.ports.claims import Claimant, Resource


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskClaim:
    """An agent's claim of a task, and of the files that it keeps others out of."""

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
    """The claim's epoch before any renewal or hand-over: it says which of two claims is older."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What the owner of an expired claim had saved, for the next owner of the task."""

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
    """A progress note about a task."""

    task_id: str
    author: str
    kind: str
    text: str
    posted_at: float


@dataclass(frozen=True, slots=True)
class Chat:
    """A message of one agent to others, as the hub sent it on."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A resource that an agent lets others use."""

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
    """An agent's wait for a task."""

    agent: str
    task_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The reply to a request that had an idempotency key."""

    sender: str
    task_id: str
    digest: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunClaim:
    """A claim, live or ended, of a run or another client of ``handrail.ports.claims``.

    ``agent`` is the client's name on its connection, ``request`` the client's id of its request.
    The ended claim of an outsider has neither.
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
    """The epoch counter when the claim ended; None while it is live."""
    cut: bool = False
    """True if the run vanished without releasing it. When its step runs again, the step may ask
    what others held since this claim's epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunClaimRequest:
    """A request for a ``RunClaim`` that waits in line."""

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
    """The value of a counter."""

    value: int


Value: TypeAlias = (
    TaskClaim
    | Checkpoint
    | Task
    | Note
    | Chat
    | Offer
    | Card
    | Wait
    | Answer
    | RunClaim
    | RunClaimRequest
    | Count
)

KINDS: dict[str, type[Value]] = {
    "claim": TaskClaim,
    "checkpoint": Checkpoint,
    "task": Task,
    "note": Note,
    "chat": Chat,
    "offer": Offer,
    "card": Card,
    "wait": Wait,
    "answer": Answer,
    "held": RunClaim,
    "lined": RunClaimRequest,
    "count": Count,
}
"""The stored name of each kind of value."""


@dataclass(frozen=True, slots=True)
class Put:
    """A change: puts ``value`` under ``key``, or removes the key if it is None."""

    kind: str
    key: str
    value: Value | None
