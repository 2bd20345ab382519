"""One row of the console's tree, and which of its children are worth a row of their own."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Literal, TypeAlias

from handrail.sinks.console_words import Cause

State: TypeAlias = Literal[
    "running",
    "waiting",
    "succeeded",
    "failed",
    "skipped",
    "defaulted",
    "cancelled",
    "interrupted",
]

GROUPS = frozenset({"parallel", "for_each", "race"})
LEAVES = frozenset({"python", "command", "agent", "generate", "stage"})

# How many children that ended well, and how many that failed, are remembered at each depth. So a
# loop of a million steps, or a group of as many members, takes no more memory than these.
_KEPT = (60, 40, 20, 12, 6)


class Node:
    """A step, member, round or rollback, with its children by state. Mutable."""

    __slots__ = (
        "aliases",
        "attempts",
        "cause",
        "depth",
        "done",
        "due",
        "ended_at",
        "error",
        "failed",
        "kind",
        "name",
        "note",
        "order",
        "parent",
        "past",
        "path",
        "replayed",
        "running",
        "said",
        "size",
        "started_at",
        "state",
        "tally",
        "verdict",
        "waiting",
    )

    def __init__(
        self, path: str, name: str, kind: str, *, parent: Node | None, order: int, at: float
    ) -> None:
        self.path = path
        self.name = name
        self.kind = kind
        self.parent = parent
        self.order = order
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.state: State = "running"
        self.started_at = at
        self.ended_at = at
        self.attempts = 1
        self.past: list[str] | None = None  # the errors of earlier attempts
        self.error = ""
        self.cause: Cause | None = None  # its error, and what that comes from
        self.note = ""  # what it waits for
        self.said = ""  # the last line of its output
        self.due: float | None = None
        self.verdict: State | None = None  # of a round, which ends before its fix does
        self.replayed = False
        self.aliases: list[str] | None = None
        self.size: int | None = None
        self.tally: dict[str, int] | None = None
        self.running: dict[int, Node] | None = None
        self.waiting: dict[int, Node] | None = None
        self.failed: list[Node] | None = None
        self.done: deque[Node] | None = None

    @property
    def live(self) -> bool:
        """True if it has not ended."""
        return self.state in {"running", "waiting"}

    @property
    def ended(self) -> int:
        """How many of its children ended."""
        return sum(self.tally.values()) if self.tally else 0

    @property
    def children(self) -> int:
        """How many children it has had."""
        return self.ended + len(self.running or ()) + len(self.waiting or ())

    def count(self, state: str) -> int:
        """How many of its children are in this state."""
        if state == "running":
            return len(self.running or ())
        if state == "waiting":
            return len(self.waiting or ())
        return self.tally.get(state, 0) if self.tally else 0

    # -- children, by state ------------------------------------------------------------------

    def join(self, child: Node) -> None:
        """Put a child where its state says."""
        match child.state:
            case "running":
                self.running = self.running if self.running is not None else {}
                self.running[child.order] = child
            case "waiting":
                self.waiting = self.waiting if self.waiting is not None else {}
                self.waiting[child.order] = child
            case _:
                self._join_ended(child)

    def _join_ended(self, child: Node) -> None:
        tally = self.tally = self.tally if self.tally is not None else {}
        tally[child.state] = tally.get(child.state, 0) + 1
        kept = _KEPT[min(self.depth, len(_KEPT) - 1)]
        if child.state == "failed":  # the first failures say most
            self.failed = self.failed if self.failed is not None else []
            if len(self.failed) < kept:
                self.failed.append(child)
            return
        if self.done is None:
            self.done = deque(maxlen=kept)
        self.done.append(child)

    def leave(self, child: Node, state: State) -> None:
        """Take a child from where that state had put it."""
        if state == "running":
            (self.running or {}).pop(child.order, None)
        elif state == "waiting":
            (self.waiting or {}).pop(child.order, None)
        else:
            self._leave_ended(child, state)

    def _leave_ended(self, child: Node, state: State) -> None:
        if self.tally and self.tally.get(state):
            self.tally[state] -= 1
        if self.failed and child in self.failed:
            self.failed.remove(child)
        elif self.done and child in self.done:
            self.done.remove(child)

    def forget_children(self) -> None:
        """Be as if it had none; for another attempt, or to save memory."""
        self.running = self.waiting = self.tally = self.failed = self.done = None

    def live_children(self) -> list[Node]:
        """Those that have not ended."""
        return [*(self.running or {}).values(), *(self.waiting or {}).values()]

    @property
    def only_live_child(self) -> Node | None:
        """The one child that has not ended, if there is just one."""
        running, waiting = self.running or {}, self.waiting or {}
        if len(running) + len(waiting) != 1:
            return None
        return next(iter((running or waiting).values()))

    def shown(self, most: int) -> list[Node]:
        """At most ``most`` children: first that failed, then waiting, running, the latest done.

        The work is bounded by ``most``, however many children there are.
        """
        running, waiting = self.running or {}, self.waiting or {}
        failed, done = self.failed or [], self.done or ()
        sizes = [len(running), len(failed), len(waiting), len(done)]
        room = _shares(sizes, most)
        return [
            *failed[: room[1]],
            *islice(waiting.values(), room[2]),
            *islice(running.values(), room[0]),
            *islice(reversed(done), room[3]),
        ]


def _shares(sizes: list[int], most: int) -> list[int]:
    """How many rows each kind gets: a half and three quarters, then what is left, in that order."""
    if sum(sizes) <= most:
        return sizes
    wanted = (max(1, most // 2), *[max(1, most // 4)] * 3)
    room: list[int] = []
    left = most
    for size, share in zip(sizes, wanted, strict=True):
        room.append(min(size, share, left))
        left -= room[-1]
    for index, size in enumerate(sizes):
        more = min(left, size - room[index])
        room[index] += more
        left -= more
    return room
