"""Runs and outsiders at one hub: whatever either holds, the other waits for or is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.coordination.room import Room, types

ROOT = "/repo"
GIT = "/repo/.git"


@pytest.fixture
def room() -> Room:
    """Two outsiders, and the process of two runs."""
    found = Room(grace_s=15.0, roots=(ROOT,))
    found.join("ann", "bob", "runs")
    return found


def files(*patterns: str, tree: str = ROOT) -> dict[str, Any]:
    """Files of a working tree."""
    return {"patterns": patterns, "repository": GIT, "tree": tree}


def named(name: str) -> dict[str, Any]:
    """A name in the repository."""
    return {"name": name, "repository": GIT}


def acquire(room: Room, who: str, *resources: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What the step ``run/path`` is answered; the request is called as the step is."""
    run, _, path = who.partition("/")
    claimant = {"run": run, "path": path}
    fields = {"request": who, "claimant": claimant, "resources": resources, **more}
    heard = room.say("runs", "handrail.acquire", **fields)["runs"]
    return [frame for frame in heard if frame.get("request") == who][-1]


def give_back(room: Room, who: str, epoch: int) -> Any:
    """The step holds it no more."""
    run, _, path = who.partition("/")
    claimant = {"run": run, "path": path}
    return room.say("runs", "handrail.give_back", request="x", epoch=epoch, claimant=claimant)


def told(heard: Any, who: str) -> list[str]:
    """Types of what the step hears."""
    return types(frame for frame in heard.get("runs", ()) if frame.get("request") == who)


@pytest.mark.parametrize(
    ("paths", "resources", "both"),
    [
        (["src"], [files("src/**")], False),
        (["src/a.py"], [files("src/*.py")], False),
        (["src/a.md"], [files("src/*.py")], True),
        (["src/gen/x"], [files("src/**", "!src/gen/**")], True),
        ([], [files("docs/x")], False),
        (["src"], [files("**", tree="/repo/../other")], True),
        (["src"], [named("git")], True),
        (["src"], [named("T")], False),
        (["app/[id]"], [files("app/i")], True),
        (["app/[id]"], [files("app/\\[id\\]/page.tsx")], False),
        (["a"], [files("/b/a")], True),
        (["!a"], [files("\\!a")], False),
    ],
)
def test_what_one_holds_the_other_does_not(
    paths: list[str], resources: list[dict[str, Any]], both: bool
) -> None:
    """A run and an outsider hold at once only what has no file and no name in common."""
    for outsider_first in (True, False):
        room = Room(roots=(ROOT,))
        room.join("ann", "runs")
        if outsider_first:
            room.say("ann", "claim", task_id="T", paths=paths)
            said = acquire(room, "r/s", *resources)
            assert (said["type"] == "handrail.acquired") is both
        else:
            acquire(room, "r/s", *resources)
            said = room.ask("ann", "claim", task_id="T", paths=paths)
            assert (said["type"] == "claim_granted") is both


def test_an_outsiders_claim_is_waited_for(room: Room) -> None:
    """A step gets what an outsider held when that is released, handed on or not, and is over."""
    room.ask("ann", "claim", task_id="T", paths=["src"])
    said = acquire(room, "r/s", files("src/a.py"))
    assert said["type"] == "handrail.waits"
    assert said["behind"][0]["run"] == "ann"
    heard = room.say("ann", "handoff", task_id="T", to_agent="bob")
    assert told(heard, "r/s") == ["handrail.waits"]  # for bob now
    heard = room.say("bob", "release", task_id="T")
    assert told(heard, "r/s") == ["handrail.acquired"]
    assert types(heard["ann"]) == ["release_granted", "claim_granted"]
    assert heard["ann"][1]["owner"] == "r"


def test_a_run_gets_what_an_outsider_left_behind(room: Room) -> None:
    """An outsider who is gone is waited for no longer than the grace."""
    room.ask("ann", "claim", task_id="T", paths=["src"])
    acquire(room, "r/s", files("src/a.py"))
    room.leave("ann")
    assert told(room.wait(14), "r/s") == []
    assert told(room.wait(1), "r/s") == ["handrail.acquired"]


def test_outsiders_see_what_runs_hold(room: Room) -> None:
    """The state names run, step, files and names; a claim, a wait and a release say whose it is."""
    epoch = acquire(room, "r/s", files("src/**", "!src/gen"), named("git"))["epoch"]
    claims = room.claims()
    assert (claims["r/s"]["owner"], claims["r/s"]["paths"]) == ("r", ["src"])
    assert (claims["git"]["owner"], claims["git"]["epoch"]) == ("r", epoch)
    said = room.ask("ann", "claim", task_id="T", paths=["src/x"])
    assert said["payload"] == "Task 'T' file scope conflicts with 'r/s' held by r."
    assert (said["blocked_by"], said["holder"]) == ("r/s", "r")
    said = room.ask("ann", "claim", task_id="git", paths=["doc"])
    assert said["payload"] == "Task 'git' is already claimed by r."
    said = room.ask("ann", "release", task_id="git")
    assert said["payload"] == "Task 'git' is owned by r, not ann."
    assert room.ask("ann", "wait_request", task_id="git")["holder"] == "r"
    heard = give_back(room, "r/s", epoch)
    assert types(heard["ann"]) == ["release_granted"] * 2
    assert ("wait", "ann") not in room.kept
    assert room.claims() == {}


def test_nobody_overtakes_a_step_in_line(room: Room) -> None:
    """An outsider does not get what a step waits for, unless that waits for the outsider."""
    room.ask("ann", "claim", task_id="T", paths=["src"])
    acquire(room, "r/s", files("src/**", "doc/**"))
    said = room.ask("bob", "claim", task_id="D", paths=["doc"])
    assert said["payload"] == "Task 'D' file scope conflicts with 'r/s' waited for by r."
    assert room.ask("ann", "claim", task_id="D", paths=["doc"])["type"] == "claim_granted"
    assert room.ask("ann", "claim", task_id="T")["type"] == "claim_granted"  # renewed


def test_a_circle_through_runs_and_outsiders_is_refused(room: Room) -> None:
    """Whoever closes it, run or outsider, is refused."""
    room.ask("ann", "claim", task_id="A", paths=["a"])
    acquire(room, "r/h", named("b"))
    acquire(room, "r/h/s", files("a/x"))
    said = room.ask("ann", "wait_request", task_id="b")
    assert said["payload"] == "Waiting for 'b' held by r would deadlock."
    room.say("runs", "handrail.withdraw", request="r/h/s")
    assert room.ask("ann", "wait_request", task_id="b")["type"] == "wait_granted"
    said = acquire(room, "r/h/s", files("a/x"))
    assert (said["type"], said["reason"]) == ("error", "deadlock")
    assert said["circle"] == [
        "step 'h/s' of run r waits for a/x, which ann has",
        "ann waits for b, which step 'h' of run r has",
    ]


def test_what_outsiders_held_meanwhile_is_told(room: Room) -> None:
    """A step hears of claims that began or ended since its own, in its own terms."""
    room.ask("ann", "claim", task_id="before", paths=["x"])
    room.ask("ann", "release", task_id="before")
    mine = acquire(room, "r/s", files("mine/**", tree="/repo"))
    room.ask("ann", "claim", task_id="A", paths=["a"])
    room.ask("ann", "claim", task_id="A", paths=["a2"])
    room.ask("bob", "claim", task_id="B", paths=["b"])
    room.ask("bob", "release", task_id="B")
    fields = {
        "request": "o", "epoch": mine["epoch"], "since": mine["epoch"],
        "claimant": {"run": "r", "path": "s"}, "resources": [files("mine/**")],
    }  # fmt: skip
    said = room.ask("runs", "handrail.others_since", **fields)
    found = {
        (one["claimant"]["run"], one["resources"][0]["patterns"][0], one["resources"][0]["tree"])
        for one in said["claims"]
    }
    assert found == {("ann", "/a", ROOT), ("ann", "/a2", ROOT), ("bob", "/b", ROOT)}
    assert said["more"] is None


def test_what_does_not_fit_is_told_page_by_page() -> None:
    """However much others held, the step hears of all of it."""
    room = Room(max_reply=5_000)
    room.join("ann", "runs")
    mine = acquire(room, "r/s", files("mine/**"))
    for number in range(100):
        room.ask("ann", "claim", task_id=f"{number}", paths=[f"{number}"])
    fields = {
        "request": "o", "epoch": mine["epoch"], "since": mine["epoch"],
        "claimant": {"run": "r", "path": "s"}, "resources": [files("mine/**")],
    }  # fmt: skip
    found, after = [], -1
    while after is not None:
        said = room.ask("runs", "handrail.others_since", **fields, after=after)
        found += [one["resources"][1]["name"] for one in said["claims"]]
        after = said["more"]
    assert sorted(map(int, found)) == list(range(100))


def test_an_outsiders_claim_is_ended_by_its_owner_alone(room: Room) -> None:
    """What any run may do with runs' claims, none may do with those of outsiders."""
    epoch = room.ask("ann", "claim", task_id="A", paths=["a"])["epoch"]
    ann = {"run": "ann", "journal": "outside", "kind": "session"}
    said = room.ask("runs", "handrail.give_back", request="g", epoch=epoch, claimant=ann)
    assert (said["type"], said["request"]) == ("error", "g")
    assert room.ask("runs", "handrail.is_held", request="h", epoch=epoch, claimant=ann)["held"]
    assert list(room.claims()) == ["A"]


def test_two_claims_of_one_step_are_two(room: Room) -> None:
    """A step that holds a name and then files has both, and gives back one without the other."""
    first = acquire(room, "r/s", files("a"))["epoch"]
    claimant = {"run": "r", "path": "s"}
    second = room.ask(
        "runs", "handrail.acquire", request="2", claimant=claimant, resources=[files("b")]
    )["epoch"]
    give_back(room, "r/s", first)
    assert room.claims()["r/s"]["epoch"] == second
    assert room.ask("ann", "release", task_id="r/s")["payload"] == (
        "Task 'r/s' is owned by r, not ann."
    )
    give_back(room, "r/s", second)
    assert room.ask("ann", "claim", task_id="r/s")["type"] == "claim_granted"


def test_a_restart_keeps_line_and_claims_of_runs(room: Room) -> None:
    """Who had, and who waited, has and waits; asked again, the hub says so."""
    epoch = acquire(room, "r/s", named("x"))["epoch"]
    acquire(room, "q/1", named("x"))
    acquire(room, "q/2", named("x"))
    again = room.again()
    again.join("runs", "ann")
    assert acquire(again, "r/s", named("x"))["epoch"] == epoch
    assert acquire(again, "q/2", named("x"))["type"] == "handrail.waits"
    heard = give_back(again, "r/s", epoch)
    assert told(heard, "q/1") == ["handrail.acquired"]
    assert told(heard, "q/2") == ["handrail.waits"]


def test_who_is_not_there_after_a_restart_holds_nothing_for_long(room: Room) -> None:
    """A process that does not connect within the grace loses claims and places in line."""
    acquire(room, "r/s", named("x"))
    acquire(room, "q/1", named("x"))
    again = room.again()
    again.join("ann")
    again.wait(15)
    assert again.claims() == {}
    assert again.hub.state.run_claims.line == {}


def test_what_a_process_held_that_is_gone_is_free_after_the_grace(room: Room) -> None:
    """Claims and places in line of a process end, but for what has a time of its own."""
    acquire(room, "r/s", named("x"))
    acquire(room, "r/t", named("y"), ttl_seconds=100)
    room.open("others")
    room.say("others", "heartbeat", payload="online")
    fields = {"claimant": {"run": "q"}, "resources": [named("x")]}
    room.say("others", "handrail.acquire", request="q", **fields)
    room.leave("runs")
    assert room.wait(14) == {}
    heard = room.wait(1)
    assert types(heard["others"]) == ["claim_expired", "claim_granted", "handrail.acquired"]
    assert set(room.claims()) == {"x", "y"}
    assert types(room.wait(85)["ann"]) == ["release_granted"]
    assert set(room.claims()) == {"x"}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "request is required"),
        ({"request": "a"}, "resources"),
        ({"request": "a", "claimant": {"run": "r"}, "resources": []}, "resources are required"),
        ({"request": "a", "claimant": 7, "resources": [named("x")]}, "claimant"),
        ({"request": "a", "claimant": {"run": "r"}, "resources": [{"name": 7}]}, "resources"),
        ({"request": "a", "claimant": {"run": "r"}, "resources": [named("x")],
          "ttl_seconds": "soon"}, "ttl_seconds"),
        ({"request": "a", "claimant": {"run": "r"}, "resources": [files(*["x"] * 6_000)]},
         "5000"),
        ({"request": "a", "claimant": {"run": "r"}, "resources": [files("[z-a]")]}, "is none"),
        ({"request": "a", "claimant": {"run": "r"}, "resources": [files("*a" * 9)]}, "8 * or ?"),
        ({"request": "a", "claimant": {"run": "r"}, "resources": [files(*["*"] * 51)]}, "50 are"),
    ],
)  # fmt: skip
def test_a_request_that_is_none_is_refused(room: Room, fields: Any, says: str) -> None:
    """What is not understood is answered by the word of the request, and nothing is held."""
    said = room.ask("runs", "handrail.acquire", **fields)
    assert said["type"] == "error"
    assert says in said["payload"]
    assert said.get("request") == fields.get("request")
    assert room.claims() == {}
