"""What holds whatever is said to a hub, in whatever order, with restarts in between."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from handrail.coordination.hub.hub import HANDLERS, ONCE, Hub
from handrail.coordination.hub.run_claiming import _live_claims, _snapshot
from handrail.workspace.claims.deciding import related
from tests.coordination.room import Heard, Room

NAMES = ("ann", "bob", "cat")
TASKS = ("S", "T", "U")
WORDS = st.sampled_from(["", "x", "working", "done", "failed", "claimed", "open", "cancelled"])
NUMBERS = st.one_of(st.none(), st.integers(-1, 4))
PATHS = st.lists(
    st.sampled_from([".", "a", "a/b", "./a/b/", "a/../c", "c/d", "*", "../x", 7]), max_size=3
)


@dataclass(frozen=True)
class Do:
    """One thing that happens."""

    what: str
    who: str = ""
    fields: dict[str, Any] | None = None
    seconds: float = 0.0


def said(kind: str, /, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Do]:
    """A message of this type."""
    drawn = st.fixed_dictionaries({"type": st.just(kind)}, optional=fields)
    return st.builds(Do, st.just("say"), st.sampled_from(NAMES), drawn)


KEY = st.sampled_from(["k1", "k2"])
CLAIMANT = st.builds(
    lambda run, path: {"run": run, "path": path},
    st.sampled_from(["r", "q"]), st.sampled_from(["", "1", "1/x", "2"]),
)  # fmt: skip
RESOURCES = st.lists(
    st.one_of(
        st.builds(lambda name: {"name": name}, st.sampled_from(TASKS)),
        st.builds(
            lambda patterns, tree: {"patterns": patterns, "tree": tree},
            st.lists(st.sampled_from(["a/**", "a/b", "!a/b", "*", "/c", "**"]), min_size=1,
                     max_size=2),
            st.sampled_from(["", "w"]),
        ),
    ),
    min_size=1, max_size=2,
)  # fmt: skip
TASK = st.sampled_from(TASKS)


def acquired(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Do]:
    """A request of a run."""
    drawn = st.fixed_dictionaries(
        {"type": st.just("handrail.acquire"), "request": KEY, "claimant": CLAIMANT,
         "resources": RESOURCES}, optional=fields,
    )  # fmt: skip
    return st.builds(Do, st.just("say"), st.sampled_from(NAMES), drawn)


DOINGS = st.one_of(
    said("claim", task_id=TASK, paths=PATHS, worktree=st.sampled_from(["", "w"]), idem_key=KEY,
         ttl_seconds=st.sampled_from([1, 60, float("nan")]), force=st.booleans()),
    said("claim", task_id=TASK, paths=st.sampled_from([["a"], ["a/b"], ["c"]]), idem_key=KEY),
    said("claim", task_id=TASK),
    said("release", task_id=TASK, epoch=NUMBERS, idem_key=KEY),
    said("task_update", task_id=TASK, status=WORDS, expected_version=NUMBERS, idem_key=KEY),
    said("checkpoint", task_id=TASK, checkpoint=WORDS, idem_key=KEY),
    said("handoff", task_id=TASK, to_agent=st.sampled_from([*NAMES, "ghost"]), idem_key=KEY),
    said("wait_request", task_id=TASK),
    said("ledger_task", task_id=TASK, title=WORDS, depends_on=st.lists(TASK, max_size=2)),
    said("ledger_task_update", task_id=TASK, status=WORDS),
    said("ledger_progress", task_id=TASK, payload=WORDS),
    said("resource", kind=WORDS, name=WORDS, idem_key=KEY),
    said("advertise", description=WORDS),
    said("chat", payload=WORDS),
    acquired(wait=st.booleans(), ttl_seconds=st.sampled_from([None, 20])),
    acquired(),
    said("handrail.withdraw", request=KEY),
    said("handrail.give_back", request=KEY, epoch=st.integers(1, 30), claimant=CLAIMANT),
    said("state_request"),
    said("board_request"),
    st.builds(Do, st.just("leave"), st.sampled_from(NAMES)),
    st.builds(Do, st.just("wait"), seconds=st.sampled_from([1.0, 16.0, 31.0, 4_000.0])),
    st.just(Do("restart")),
)  # fmt: skip


def perform(room: Room, do: Do) -> tuple[Room, Heard]:
    """The room after it, and what was heard."""
    if do.what == "wait":
        return room, room.wait(do.seconds)
    if do.what == "restart":
        return room.again(), {}
    if do.what == "leave":
        return room, room.leave(do.who) if do.who in room.sockets else {}
    if do.who not in room.sockets:
        room.join(do.who)
    assert do.fields is not None
    return room, room.send(do.who, json.dumps({"sender": do.who, **do.fields}))


def lasting(hub: Hub) -> dict[str, Any]:
    """All that a hub knows that is not who is connected."""
    state = hub.state
    return {
        "claims": {claim.task_id: claim for claim in state.agent_claims.all()},
        "checkpoints": list(state.checkpoints.values()),
        "tasks": state.board.tasks(),
        "notes": list(state.board.notes.values()),
        "chats": list(state.chats.values()),
        "offers": list(state.offers.values()),
        "cards": list(state.cards.values()),
        "waits": {agent: state.waits.get(agent) for agent in state.waits.agents()},
        "held": state.run_claims.held,
        "line": state.run_claims.line,
        "ended": sorted(state.run_claims.ended.values(), key=lambda one: one.epoch),
        "answers": list(state.answers.values()),
        "own answers": {name: list(own.values()) for name, own in state.answers_of.items()},
        "counts": (state.epoch, state.forgotten, state.last_chat, state.board.last_note),
    }


def overlap(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """True if two claims have a path in both."""
    pairs = [(a.split("/"), b.split("/")) for a in one for b in other]
    return not one or not other or any(a[: len(b)] == b or b[: len(a)] == a for a, b in pairs)


def all_heard(heard: Heard) -> list[dict[str, Any]]:
    """Every message, whoever heard it."""
    return [frame for frames in heard.values() for frame in frames]


def no_two_hold_the_same(room: Room) -> None:
    """Of two claims of two agents in one worktree no path is in both."""
    held = list(room.hub.state.agent_claims.all())
    for claim in held:
        for other in held:
            if claim.owner != other.owner and claim.worktree == other.worktree:
                assert not overlap(claim.paths, other.paths), (claim, other)
    everybody = _live_claims(room.hub.state)
    for one in everybody:
        for another in everybody:
            if not related(one.claimant, another.claimant):
                pairs = itertools.product(one.resources, another.resources)
                assert not any(a.overlaps(b) for a, b in pairs), (one, another)


def who_may_have_it_has_it(room: Room) -> None:
    """Nobody stands in line for what is free, and each knows who is in the way."""
    claims, scene = room.hub.state.run_claims, _snapshot(room.hub.state)
    for number in claims.line:
        behind = scene.in_the_way(scene.line[number])
        assert behind, claims.line[number]
        assert claims.sent_behind.get(number, behind) == behind, claims.line[number]


def nobody_waits_in_a_circle(room: Room) -> None:
    """From no agent do waits lead back to it."""
    state = room.hub.state
    for agent in state.waits.agents():
        seen, one = [agent], agent
        while (task := state.waits.get(one)) and (claim := state.agent_claims.get(task)):
            one = claim.owner
            assert one not in seen, seen
            seen.append(one)


def what_is_recorded_is_all_of_it(room: Room) -> None:
    """A hub that is made of the records knows what the one knew that made them."""
    assert lasting(room.again().hub) == lasting(room.hub)


@given(st.lists(DOINGS, max_size=30))
def test_the_laws_of_a_hub_hold_at_any_time(doings: list[Do]) -> None:
    """And whatever an agent says, it hears something, and its socket stays."""
    room = Room()
    for do in doings:
        room, heard = perform(room, do)
        no_two_hold_the_same(room)
        who_may_have_it_has_it(room)
        nobody_waits_in_a_circle(room)
        what_is_recorded_is_all_of_it(room)
        if do.what == "say":
            assert heard[do.who], do
            assert "close" not in [key for frame in heard[do.who] for key in frame]


@given(st.lists(DOINGS, max_size=30))
def test_epochs_only_grow(doings: list[Do]) -> None:
    """Each grant has a greater epoch than all before it, over restarts as well."""
    room, last, seen = Room(), 0, set[str]()
    for do in doings:
        room, heard = perform(room, do)
        for frame in all_heard(heard):
            if frame.get("type") in {"claim_granted", "handoff_granted"}:
                text = json.dumps(frame)
                same = frame["epoch"] == last and "claimed_at" in frame  # a run's, of two tasks
                assert frame["epoch"] > last or same or text in seen, (do, frame)
                seen.add(text)
                last = max(last, frame["epoch"])


@given(st.lists(DOINGS, max_size=20), said("claim", task_id=TASK, paths=PATHS, idem_key=KEY))
def test_a_request_with_a_key_is_done_once(doings: list[Do], last: Do) -> None:
    """The second of two same requests with a key changes nothing and has the same answer."""
    room = Room()
    for do in [*doings, last]:
        room, first = perform(room, do)
        fields = do.fields or {}
        if do.what != "say" or "idem_key" not in fields or fields["type"] not in ONCE:
            continue
        granted = [frame for frame in first.get(do.who, []) if frame.get("type", "") in DONE]
        if granted:
            before = lasting(room.hub)
            room, again = perform(room, do)
            assert again == {do.who: granted[-1:]}, do
            assert lasting(room.hub) == before, do


DONE = {
    "claim_granted", "release_granted", "task_updated", "handoff_granted", "checkpoint_saved",
    "resource_offered",
}  # fmt: skip


ANYTHING = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), WORDS, TASK,
        st.sampled_from([1e308, -(10**40), "SynapseHub", "9" * 30, "x" * 3_000, "a/" * 99]),
    ),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=3,
)  # fmt: skip
FIELDS = (
    "task_id", "id", "payload", "paths", "worktree", "note", "ttl_seconds", "epoch",
    "expected_version", "status", "data_ref", "idem_key", "to_agent", "target", "checkpoint",
    "kind", "name", "capacity", "meta", "title", "description", "depends_on", "suggested_owner",
    "skills", "task_classes", "model", "limit", "since", "timestamp", "takeover", "token", "force",
    "expected_status", "sender", "text", "priority", "request", "claimant", "resources", "wait",
    "after", "pid", "host",
    "request", "claimant", "resources", "wait", "after", "pid", "host",
)  # fmt: skip
FRAMES = st.builds(
    lambda kind, fields: {"type": kind, **fields},
    st.one_of(st.sampled_from(sorted(HANDLERS)), ANYTHING),
    st.dictionaries(st.sampled_from(FIELDS), ANYTHING, max_size=7),
)


@given(st.lists(st.tuples(st.sampled_from(NAMES), FRAMES), max_size=8))
def test_nothing_that_is_said_is_a_surprise(frames: list[tuple[str, dict[str, Any]]]) -> None:
    """Whatever is in a message, it leads to no error of the hub, and what follows is recorded."""
    room = Room()
    for name, frame in frames:
        if name not in room.sockets:
            room.join(name)
        heard = room.send(name, json.dumps({"sender": name, **frame}))
        if any("close" in one for one in heard.get(name, [])):
            room.sockets.pop(name)
    assert lasting(room.again().hub) == lasting(room.hub)
