"""What holds for claims, the board, waits and keys, also where the hub of 0.32.0 differs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from handrail.coordination.hub.claiming import LEAST_LEASE_S
from handrail.coordination.hub.records import Answer, TaskClaim
from handrail.coordination.hub.state import Close
from tests.coordination.room import Room, types


@pytest.fixture
def room() -> Room:
    """One with three who are there."""
    found = Room(grace_s=15.0)
    found.join("ann", "bob", "cat")
    return found


# -- scopes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mine", "yours", "both"),
    [
        (["src"], ["src/a.py"], False),
        (["src/a.py"], ["src"], False),
        (["src/a.py"], ["src/b.py"], True),
        (["src"], ["srcs"], True),
        (["."], ["src/a.py"], False),
        ([], ["src/a.py"], False),
        (["lib"], ["src/../lib/x.py"], False),
        (["src/a.py"], ["src//a.py"], False),
        (["src/a.py"], ["src\\a.py"], False),
        (["src/a.py"], ["/repo/src/a.py"], False),
        (["src/*.py"], ["src/a.py"], False),
        (["docs", "src/a.py"], ["lib", "src"], False),
    ],
)
def test_who_overlaps_is_refused(mine: list[str], yours: list[str], both: bool) -> None:
    """Two claims of two agents are held at once only if no path is in both."""
    room = Room(roots=("/repo",))
    room.join("ann", "bob")
    assert room.ask("ann", "claim", task_id="A", paths=mine)["type"] == "claim_granted"
    said = room.ask("bob", "claim", task_id="B", paths=yours)
    assert (said["type"] == "claim_granted") is both
    if not both:
        assert said["payload"] == "Task 'B' file scope conflicts with 'A' held by ann."
        assert (said["holder"], said["blocked_by"]) == ("ann", "A")


def test_worktrees_are_apart(room: Room) -> None:
    """The same path in another worktree is another path."""
    room.ask("ann", "claim", task_id="A", paths=["src"])
    said = room.ask("bob", "claim", task_id="B", paths=["src"], worktree="wt")
    assert said["type"] == "claim_granted"


def test_an_absolute_path_is_of_the_worktree_that_it_is_in(room: Room) -> None:
    """Where the worktree is a path, paths in it are from there."""
    said = room.ask("ann", "claim", task_id="A", worktree="/w/one", paths=["/w/one/src/a.py"])
    assert said["paths"] == ["src/a.py"]


def test_paths_that_are_no_list_are_the_whole_tree(room: Room) -> None:
    """Who names paths in a way that is not understood keeps all others out."""
    assert room.ask("ann", "claim", task_id="A", paths="src")["paths"] == []
    assert room.ask("bob", "claim", task_id="B", paths=["doc"])["type"] == "claim_denied"


def test_the_oldest_of_several_is_named(room: Room) -> None:
    """Of claims in the way that one is named which was taken first, renewed since or not."""
    room.ask("ann", "claim", task_id="Z", paths=["src/1"])
    room.ask("bob", "claim", task_id="A", paths=["src/2"])
    room.ask("ann", "claim", task_id="Z")
    assert "'Z' held by ann" in room.ask("cat", "claim", task_id="C", paths=["src"])["payload"]


# -- leases ----------------------------------------------------------------------------------------


def test_a_renewal_keeps_all_but_epoch_and_lease(room: Room) -> None:
    """Who renews a claim goes on with status, version, paths, note, reference and checkpoint."""
    room.ask("ann", "claim", task_id="A", paths=["src"], worktree="wt", note="mine")
    room.ask("ann", "task_update", task_id="A", status="working", data_ref="mem://1")
    room.ask("ann", "checkpoint", task_id="A", checkpoint="half")
    before = room.claims()["A"]
    room.clock += 100
    said = room.ask("ann", "claim", task_id="A")
    after = room.claims()["A"]
    changed = {"epoch", "lease_expires_at"}
    assert {name: before[name] for name in before if before[name] != after[name]}.keys() == changed
    assert (said["version"], said["status"], said["checkpoint"]) == (2, "working", "half")
    assert after["epoch"] > before["epoch"]


@pytest.mark.parametrize("ttl", [float("nan"), float("inf"), -float("inf"), "NaN", "soon", True])
def test_a_lease_has_an_end(room: Room, ttl: Any) -> None:
    """A lease for ever, or for no number of seconds, is refused as claims are."""
    said = room.ask("ann", "claim", task_id="A", ttl_seconds=ttl)
    assert (said["type"], said["task_id"]) == ("claim_denied", "A")
    assert room.claims() == {}


@pytest.mark.parametrize(("ttl", "lasts"), [(1, LEAST_LEASE_S), (-5, LEAST_LEASE_S), (60, 60),
                                            ("90", 90), (None, 3600)])  # fmt: skip
def test_a_lease_lasts_as_long_as_asked(room: Room, ttl: Any, lasts: float) -> None:
    """A lease has at least 30 seconds, and an hour if nothing is said."""
    said = room.ask("ann", "claim", task_id="A", ttl_seconds=ttl)
    assert said["lease_expires_at"] == room.clock + lasts


def test_the_end_of_a_lease_is_told(room: Room) -> None:
    """When a lease is over everybody hears so, once, without anybody asking."""
    room.ask("ann", "claim", task_id="A", ttl_seconds=30)
    assert room.hub.next_tick() == room.clock + 30
    assert room.wait(29.9) == {}
    heard = room.wait(0.1)
    assert [frames[0]["type"] for frames in heard.values()] == ["claim_expired"] * 3
    assert (heard["bob"][0]["task_id"], heard["bob"][0]["reason"]) == ("A", "lease")
    assert room.wait(100) == {}


def test_a_saved_checkpoint_goes_to_who_takes_the_task_up(room: Room) -> None:
    """A lapsed claim's checkpoint is the next holder's; that of a released one is dropped."""
    room.ask("ann", "claim", task_id="A", ttl_seconds=30)
    room.ask("ann", "checkpoint", task_id="A", checkpoint="half")
    room.wait(31)
    assert room.ask("bob", "claim", task_id="A")["checkpoint"] == "half"
    room.ask("bob", "release", task_id="A")
    assert room.ask("cat", "claim", task_id="A")["checkpoint"] == ""


def test_claims_of_who_is_gone_end_soon(room: Room) -> None:
    """An owner who does not come back within the grace holds nothing any more."""
    room.ask("ann", "claim", task_id="A", paths=["src"])
    room.leave("ann")
    assert room.claims()["A"]["lease_expires_at"] == room.clock + 15
    assert room.ask("bob", "claim", task_id="B", paths=["src"])["type"] == "claim_denied"
    heard = room.wait(15)
    assert heard["bob"][0]["reason"] == "owner_gone"
    assert room.ask("bob", "claim", task_id="B", paths=["src"])["type"] == "claim_granted"


def test_who_comes_back_in_time_keeps_their_claims(room: Room) -> None:
    """An owner who is there again within the grace holds what they held, as long as before."""
    lease = room.ask("ann", "claim", task_id="A", ttl_seconds=600)["lease_expires_at"]
    room.leave("ann")
    room.wait(14)
    room.join("ann")
    assert room.wait(100) == {}
    assert room.claims()["A"]["lease_expires_at"] == lease


def test_a_name_that_is_taken_over_keeps_its_claims(room: Room) -> None:
    """A takeover is no end of an agent: its claims go on."""
    room.ask("ann", "claim", task_id="A")
    room.open("ann2")
    heard = room.say("ann2", "heartbeat", sender="ann", takeover=True)
    assert heard == {"ann": [{"close": 4010, "reason": "superseded"}]}
    room.leave("ann")
    room.wait(100)
    assert "A" in room.claims()


# -- handing over ----------------------------------------------------------------------------------


def test_a_hand_over_leaves_no_two_with_the_same(room: Room) -> None:
    """A claim within another one of its owner is not handed to somebody else."""
    room.ask("ann", "claim", task_id="A", paths=["src"])
    room.ask("ann", "claim", task_id="B", paths=["src/b"])
    said = room.ask("ann", "handoff", task_id="B", to_agent="bob")
    assert said["payload"] == "Task 'B' file scope conflicts with 'A' held by ann."
    room.ask("ann", "release", task_id="A")
    assert room.ask("ann", "handoff", task_id="B", to_agent="bob")["type"] == "handoff_granted"


# -- waits -----------------------------------------------------------------------------------------


def test_a_wait_is_over_when_its_task_is_released(room: Room) -> None:
    """Who has released what another waited for can wait for that other."""
    room.ask("ann", "claim", task_id="A", paths=["a"])
    room.ask("bob", "claim", task_id="B", paths=["b"])
    room.ask("bob", "wait_request", task_id="A")
    room.ask("ann", "release", task_id="A")
    assert room.ask("ann", "wait_request", task_id="B")["type"] == "wait_granted"
    room.ask("cat", "claim", task_id="A", paths=["a"])  # for which bob waits no more
    assert room.ask("cat", "wait_request", task_id="B")["type"] == "wait_granted"


def test_a_wait_is_over_for_who_is_given_a_task(room: Room) -> None:
    """Who is handed a task, or is granted one, waits for none."""
    room.ask("ann", "claim", task_id="A", paths=["a"])
    room.ask("bob", "wait_request", task_id="A")
    room.ask("ann", "handoff", task_id="A", to_agent="bob")
    assert ("wait", "bob") not in room.kept
    room.ask("ann", "wait_request", task_id="A")
    room.ask("ann", "claim", task_id="B", paths=["b"])
    assert ("wait", "ann") not in room.kept


def test_a_circle_of_three_is_refused(room: Room) -> None:
    """Who would wait for somebody who waits, through another, for them, is refused."""
    for name, task in (("ann", "A"), ("bob", "B"), ("cat", "C")):
        room.ask(name, "claim", task_id=task, paths=[task])
    room.ask("ann", "wait_request", task_id="B")
    room.ask("bob", "wait_request", task_id="C")
    said = room.ask("cat", "wait_request", task_id="A")
    assert (said["type"], said["holder"]) == ("wait_denied", "ann")


# -- idempotency keys ------------------------------------------------------------------------------


def test_a_key_is_of_one_sender_and_type(room: Room) -> None:
    """The same key of another agent, or for another type of request, is another key."""
    room.ask("ann", "claim", task_id="A", paths=["a"], idem_key="k")
    assert room.ask("bob", "claim", task_id="B", paths=["b"], idem_key="k")["owner"] == "bob"
    assert room.ask("ann", "release", task_id="A", idem_key="k")["type"] == "release_granted"
    assert list(room.claims()) == ["B"]


def test_a_key_with_another_request_is_refused(room: Room) -> None:
    """A key that stands for one request does not answer another one."""
    room.ask("ann", "claim", task_id="A", paths=["a"], idem_key="k")
    said = room.ask("ann", "claim", task_id="A2", paths=["a2"], idem_key="k")
    assert said["payload"] == "Idempotency key was already used for a different request."
    assert list(room.claims()) == ["A"]


def test_a_repeated_request_is_done_once_and_answered_to_who_asks(room: Room) -> None:
    """The second of two requests with a key changes nothing, and only its sender hears of it."""
    room.ask("ann", "claim", task_id="A", paths=["a"])
    first = room.say("ann", "task_update", task_id="A", note="x", idem_key="u")
    again = room.say("ann", "task_update", task_id="A", note="x", idem_key="u")
    assert (again["ann"], list(again)) == (first["ann"], ["ann"])
    assert room.claims()["A"]["version"] == 1


def test_a_grant_is_not_repeated_to_who_holds_it_no_more(room: Room) -> None:
    """A repeated claim whose lease is over is a new claim, or is refused."""
    room.ask("ann", "claim", task_id="A", ttl_seconds=30, idem_key="k")
    room.wait(31)
    room.ask("bob", "claim", task_id="A")
    said = room.ask("ann", "claim", task_id="A", ttl_seconds=30, idem_key="k")
    assert said["payload"] == "Task 'A' is already claimed by bob."


def test_one_agent_does_not_push_out_the_keys_of_another(room: Room) -> None:
    """More requests with keys of one agent than are kept leave another one's key as it was."""
    first = room.ask("ann", "resource", kind="k", name="n", idem_key="mine")
    for number in range(1_100):
        room.say("bob", "resource", kind="k", name="n", idem_key=f"{number}")
    assert room.ask("ann", "resource", kind="k", name="n", idem_key="mine") == first
    kept = [put.value for (kind, _), put in room.kept.items() if kind == "answer"]
    assert sum(isinstance(one, Answer) and one.sender == "bob" for one in kept) == 1_024


# -- the board -------------------------------------------------------------------------------------


def test_a_task_is_claimed_when_what_it_depends_on_is_done(room: Room) -> None:
    """A task on the board cannot be claimed before its turn, unless its claim says so."""
    room.ask("ann", "ledger_task", task_id="P", title="plan")
    room.ask("ann", "ledger_task", task_id="B", title="build", depends_on=["P", "Q"])
    said = room.ask("bob", "claim", task_id="B", paths=["b"])
    assert said["type"] == "claim_denied"
    assert said["payload"] == "Task 'B' is not ready: 'P' is open, 'Q' is not on the board."
    assert room.ask("bob", "claim", task_id="B", paths=["b"], force=True)["owner"] == "bob"
    room.ask("bob", "release", task_id="B")
    room.ask("ann", "ledger_task", task_id="Q", title="q")
    for task in "PQ":
        room.ask("ann", "ledger_task_update", task_id=task, status="done")
    assert room.ask("bob", "claim", task_id="B", paths=["b"])["type"] == "claim_granted"


@pytest.mark.parametrize(
    ("who", "before", "after", "allowed"),
    [
        ("ann", "open", "cancelled", True),
        ("bob", "open", "cancelled", True),
        ("cat", "open", "cancelled", False),
        ("cat", "open", "done", True),
        ("cat", "in_progress", "open", True),
        ("cat", "blocked", "open", True),
        ("cat", "done", "open", False),
        ("ann", "done", "open", True),
        ("cat", "done", "done", True),
    ],
)
def test_who_may_call_a_task_off_or_begin_it_again(
    room: Room, who: str, before: str, after: str, allowed: bool
) -> None:
    """Only those whom a task concerns cancel it, or open it when it is over."""
    room.ask("ann", "ledger_task", task_id="P", title="plan", suggested_owner="bob")
    room.ask("ann", "ledger_task_update", task_id="P", status=before)
    said = room.ask(who, "ledger_task_update", task_id="P", status=after)
    assert (said["type"] == "ledger_task_updated") is allowed
    forced = room.ask(who, "ledger_task_update", task_id="P", status=after, force=True)
    assert forced["type"] == "ledger_task_updated"


def test_who_has_claimed_a_task_says_when_it_is_done(room: Room) -> None:
    """A task that somebody works on is not called done by a third."""
    room.ask("ann", "ledger_task", task_id="P", title="plan")
    room.ask("bob", "claim", task_id="P")
    assert room.ask("cat", "ledger_task_update", task_id="P", status="done")["type"] == "error"
    assert room.ask("bob", "ledger_task_update", task_id="P", status="done")["task"]


def test_a_change_can_say_what_it_changes(room: Room) -> None:
    """A change of a task that is not as expected any more is refused."""
    room.ask("ann", "ledger_task", task_id="P", title="plan")
    change = {"task_id": "P", "expected_status": "open", "status": "in_progress"}
    assert "task" in room.ask("bob", "ledger_task_update", **change)
    said = room.ask("cat", "ledger_task_update", **change)
    assert said["payload"] == "Task 'P' is in_progress, not open."


# -- messages --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("[1, 2]", "error", "A message must be a JSON object."),
        ("7", "error", "A message must be a JSON object."),
        ("null", "error", "A message must be a JSON object."),
        ("{bad json", "error", "Malformed JSON."),
        ("", "error", "Malformed JSON."),
        ("[" * 100_000, "error", "Malformed JSON."),
        ('{"type": "chat", "payload": "\\ud800"}', "error", "Malformed JSON."),
        (b"\xff\xfe", "error", "Malformed JSON."),
        ('{"type": "claim", "task_id": "A", "ttl_seconds": NaN}', "claim_denied", "NaN and"),
        ('{"type": "chat", "payload": "x", "x": Infinity}', "error", "NaN and"),
        ('{"type": "chat", "payload": "x", "x": 1e999}', "error", "NaN and"),
        ('{"type": "chat", "timestamp": "x"}', "error", "timestamp must be a finite number"),
        ('{"type": "chat", "target": {"a": 1}}', "error", "target must be text"),
        ('{"type": "resource", "kind": "k", "name": "n", "capacity": "many"}', "error",
         "capacity must be a finite number"),
        ('{"type": "claim", "task_id": ["A"]}', "claim_denied", "task_id must be text"),
        ('{"type": "claim", "task_id": "A", "paths": [null]}', "claim_denied", "paths must be"),
        ('{"type": "release", "task_id": "A", "epoch": {}}', "release_denied",
         "Task 'A' is not currently"),
        ('{"type": "task_update", "task_id": "A"}', "error", "Task 'A' not found."),
        ('{"type": {"a": 1}}', "error", "type must be text"),
        ('{"type": true}', "error", "type must be text"),
    ],
)  # fmt: skip
def test_what_is_no_message_is_answered(
    room: Room, text: str | bytes, kind: str, says: str
) -> None:
    """Whatever is sent, the answer says what is wrong with it, and the socket stays."""
    heard = room.send("ann", text)
    assert (heard["ann"][-1]["type"], heard["ann"][-1].get("payload", "")[: len(says)]) == (
        kind, says,
    )  # fmt: skip
    assert room.ask("ann", "who_request")["online_agents"] == ["ann", "bob", "cat"]


def test_a_mistake_of_the_hub_harms_nobody_else(room: Room) -> None:
    """Where the hub itself fails at a message, its sender hears so, and all else goes on."""
    del room.hub.state.cards
    frame = '{"sender": "ann", "type": "manifest_request"}'
    reaction = room.hub.on_message(room.sockets["ann"], frame, room.clock)
    assert isinstance(reaction.mistake, AttributeError)
    (said,) = (json.loads(send.text) for send in reaction.out if not isinstance(send, Close))
    assert said["payload"] == "The hub made a mistake with this message."
    assert room.ask("ann", "who_request")["online_agents"] == ["ann", "bob", "cat"]


def test_a_chat_says_who_sent_it_and_no_secret(room: Room) -> None:
    """A chat has the name of its socket, and neither the token nor the wish to take over."""
    said = room.say("ann", "chat", sender=" ann ", payload="x", token="t", takeover=True, extra=[1])
    assert said["bob"][0]["sender"] == "ann"
    assert said["bob"][0]["extra"] == [1]
    assert not {"token", "takeover"} & said["bob"][0].keys()
    assert "token" not in json.dumps(room.ask("bob", "history_request"))


def test_a_socket_speaks_for_one_agent(room: Room) -> None:
    """Another name on the same socket ends it; no name is the one that it has."""
    assert room.send("ann", '{"type": "who_request"}')["ann"][0]["target"] == "ann"
    heard = room.say("ann", "chat", sender="bob", payload="I am bob")
    assert types(heard["ann"]) == ["name_conflict", "close"]
    assert types(heard["bob"]) == ["presence_update"]


@pytest.mark.parametrize("name", ["SynapseHub", "a\nb", "x" * 401])
def test_a_name_that_could_mislead_is_refused(room: Room, name: str) -> None:
    """Nobody is called as the hub is, or by what cannot be read."""
    room.open("new")
    heard = room.say("new", "heartbeat", sender=name)
    assert types(heard["new"])[-2:] == ["name_conflict", "close"]
    assert set(heard) == {"new"}


def test_a_second_takeover_at_once_is_refused(room: Room) -> None:
    """Two that take a name from each other do not do so all the time."""
    room.open("two")
    room.say("two", "heartbeat", sender="ann", takeover=True)
    room.leave("ann")
    room.open("three")
    heard = room.say("three", "heartbeat", sender="ann", takeover=True)
    assert heard == {"three": [{"close": 4014, "reason": "takeover cooldown"}]}
    room.leave("three")
    room.clock += 2
    room.open("three")
    heard = room.say("three", "heartbeat", sender="ann", takeover=True)
    assert heard["two"] == [{"close": 4010, "reason": "superseded"}]


def test_all_that_is_shown_fits_into_a_message() -> None:
    """A board, a history and a state of many megabytes are shown as far as a client takes them."""
    room = Room(max_reply=50_000)
    room.join("ann", "bob")
    for number in range(300):
        room.say("ann", "claim", task_id=f"{number}", paths=[f"{number}"], note="x" * 1_000)
        room.say("ann", "ledger_task", task_id=f"{number}", title="y" * 1_000)
        room.say("ann", "ledger_progress", task_id="0", payload=f"{number} " + "z" * 1_000)
        room.say("ann", "chat", payload=f"{number} " + "c" * 1_000)
    for kind in ("state_request", "board_request", "history_request", "resume_request"):
        said = room.ask("bob", kind)
        assert len(json.dumps(said)) < 60_000, kind
    assert room.state()["omitted"] > 0
    assert room.ask("bob", "history_request")["history"][-1]["msg_id"] == 300
    assert room.ask("bob", "board_request")["board"]["tasks"]


def test_what_does_not_fit_is_had_with_the_next_request() -> None:
    """An agent that missed many chats gets each of them once, reply after reply."""
    room = Room(max_reply=20_000)
    room.join("ann", "bob")
    for number in range(100):
        room.say("ann", "chat", payload=f"{number} " + "c" * 500)
    since, seen = 0, []
    while messages := room.ask("bob", "resume_request", since=since)["messages"]:
        seen += [message["msg_id"] for message in messages]
        since = seen[-1]
    assert seen == list(range(1, 101))


def test_a_chat_is_not_longer_than_others_can_take(room: Room) -> None:
    """A message that others could only end their connection at is refused."""
    said = room.ask("ann", "chat", payload="\N{GRINNING FACE}" * 260_000)
    assert said["type"] == "error"
    said = room.ask("ann", "claim", task_id="A", note="x" * 300_000)
    assert (said["type"], said["task_id"]) == ("claim_denied", "A")


def test_history_is_bounded() -> None:
    """So many chats are kept as the hub is to keep, and their numbers go on."""
    room = Room(max_history=3)
    room.join("ann")
    for number in range(5):
        room.say("ann", "chat", payload=str(number))
    numbers = [chat["msg_id"] for chat in room.ask("ann", "history_request")["history"]]
    assert numbers == [3, 4, 5]
    assert sum(kind == "chat" for kind, _ in room.kept) == 3


def test_progress_notes_are_bounded() -> None:
    """The board shows the newest notes, so many as the hub is to keep."""
    room = Room(max_progress=2)
    room.join("ann")
    room.ask("ann", "ledger_task", task_id="P", title="t")
    for number in range(4):
        room.say("ann", "ledger_progress", task_id="P", payload=str(number))
    notes = room.ask("ann", "board_request")["board"]["progress"]
    assert [note["text"] for note in notes] == ["2", "3"]


def test_a_claim_that_does_not_say_lasts_as_long_as_the_hub_says() -> None:
    """A claim's own time wins; a renewal is given the hub's time again."""
    room = Room(lease_s=100.0)
    room.join("ann")
    granted = room.ask("ann", "claim", task_id="A")
    own = room.ask("ann", "claim", task_id="B", paths=["b"], worktree="w", ttl_seconds=50)
    assert (granted["lease_expires_at"], own["lease_expires_at"]) == (
        room.clock + 100,
        room.clock + 50,
    )


def test_offers_and_cards_end_unless_repeated(room: Room) -> None:
    """What was offered five minutes ago, and not since, is offered no more."""
    room.ask("ann", "resource", kind="gpu", name="0")
    room.ask("ann", "advertise", description="d")
    room.wait(299)
    assert len(room.state()["resources"]) == len(room.ask("bob", "manifest_request")["manifest"])
    room.wait(1)
    assert room.state()["resources"] == []
    assert room.ask("bob", "manifest_request")["manifest"] == []
    assert not [kind for kind, _ in room.kept if kind in {"offer", "card"}]


# -- a restart -------------------------------------------------------------------------------------


def test_a_restart_loses_nothing(room: Room) -> None:
    """Claims with version, epoch and checkpoint, keys, waits, cards, board, chats: all go on."""
    room.ask("ann", "claim", task_id="A", paths=["a"], idem_key="k")
    room.ask("ann", "task_update", task_id="A", status="working")
    room.ask("ann", "checkpoint", task_id="A", checkpoint="half")
    room.ask("bob", "claim", task_id="B", paths=["b"])
    room.ask("ann", "wait_request", task_id="B")
    room.ask("bob", "advertise", description="d")
    room.ask("cat", "resource", kind="k", name="n", meta={"a": [1]})
    room.ask("cat", "ledger_task", task_id="P", title="t")
    room.ask("cat", "chat", payload="hello")
    shown = ("state_request", "board_request", "manifest_request", "history_request")
    before = [content(room.ask("cat", kind)) for kind in shown]
    again = room.again()
    again.join("cat", "ann", "bob")
    after = [content(again.ask("cat", kind)) for kind in shown]
    assert after == before
    granted = again.ask("ann", "claim", task_id="A", paths=["a"], idem_key="k")
    assert granted["epoch"] == 1  # the answer of then
    assert again.ask("bob", "wait_request", task_id="A")["type"] == "wait_denied"
    assert again.ask("ann", "claim", task_id="A2", paths=["a2"])["epoch"] == 3
    assert again.ask("cat", "chat", payload="x")["msg_id"] == 2


def content(frame: dict[str, Any]) -> dict[str, Any]:
    """A snapshot without when it was made, and who was seen when."""
    frame = json.loads(json.dumps(frame))
    if "snapshot" in frame:
        del frame["snapshot"]["agents"]
    return frame


def test_who_does_not_come_back_after_a_restart_is_gone(room: Room) -> None:
    """Claims, waits and cards of who is away longer than the grace end, after a restart as well."""
    room.ask("ann", "claim", task_id="A", paths=["a"])
    room.ask("bob", "claim", task_id="B", paths=["b"])
    room.ask("ann", "wait_request", task_id="B")
    room.ask("ann", "advertise", description="d")
    again = room.again()
    again.join("bob")
    assert again.hub.next_tick() == again.clock + 15
    again.wait(15)
    assert list(again.claims()) == ["B"]
    assert {kind for kind, _ in again.kept} == {"claim", "count"}


def test_claims_are_kept_as_they_are(room: Room) -> None:
    """A claim's record says all of it."""
    room.ask("ann", "claim", task_id="A", paths=["a"])
    (kept,) = [put.value for put in room.kept.values() if isinstance(put.value, TaskClaim)]
    assert (kept.owner, kept.paths, kept.epoch, kept.first_epoch) == ("ann", ("a",), 1, 1)
