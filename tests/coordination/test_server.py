"""The hub on its sockets: in a process of its own, with clients that mean well and others."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from handrail.coordination.store import HubStore
from tests.coordination.running import PATIENCE_S, Client, Running, running


@pytest.fixture(scope="module")
def lasting_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One for all that does not ask for options."""
    folder = tmp_path_factory.mktemp("hub")
    with running("--db", "hub.db", "--grace", "0.3", cwd=folder) as found:
        yield found


@pytest.fixture
def hub(lasting_hub: Running) -> Iterator[Running]:
    """The same, with the clients of one test; each test has names of its own."""
    yield lasting_hub
    lasting_hub.clients.close()


# -- its life --------------------------------------------------------------------------------------


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_it_is_told_to(tmp_path: Path, signum: signal.Signals) -> None:
    """A signal ends the hub with exit code 0; clients hear that it goes away."""
    with running("--db", "h.db", cwd=tmp_path) as hub:
        client = hub.client("ann")
        client.claim("A", paths=["src"])
        code, said = hub.end(signum)
        assert (code, said.count("\n")) == (0, 1), said
        while (frame := client.next())["type"] != "closed":
            pass
        assert frame["code"] == 1001
    assert sorted(path.name for path in tmp_path.iterdir()) == ["h.db"]


def test_a_claim_that_was_granted_survives_the_death_of_the_hub(tmp_path: Path) -> None:
    """Killed in the midst of a load, the next hub on the file knows all that was acknowledged."""
    granted: dict[str, int] = {}
    versions: dict[str, int] = {}
    with running("--db", "h.db", cwd=tmp_path) as hub:
        clients = [hub.client(name) for name in ("ann", "bob")]
        threads = [
            threading.Thread(target=load, args=(client, granted, versions)) for client in clients
        ]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + PATIENCE_S
        while len(granted) < 300 and time.monotonic() < deadline:
            clients[0].socket.ping().wait(1)
        hub.process.kill()
        for thread in threads:
            thread.join()
    assert len(granted) >= 300
    with running("--db", "h.db", cwd=tmp_path) as hub:
        client = hub.client("cat")
        snapshot = client.ask("state_request", "state_snapshot")["snapshot"]
        known = {claim["task_id"]: claim for claim in snapshot["active_claims"]}
        assert granted.items() <= {task: one["epoch"] for task, one in known.items()}.items()
        assert all(known[task]["version"] >= version for task, version in versions.items())
        assert client.claim("new", paths=["new"])["epoch"] > max(granted.values())


def load(client: Client, granted: dict[str, int], versions: dict[str, int]) -> None:
    """Claim and update without a pause until the hub is gone; what it acknowledged is noted."""
    number = 0
    try:
        while True:
            for _ in range(16):
                task = f"{client.name}-{number}"
                client.say("claim", task_id=task, paths=[f"{client.name}/{number}"])
                client.say("task_update", task_id=task, status="working", idem_key="u")
                number += 1
            while (frame := client.next()).get("version") is None or frame["task_id"] != task:
                if frame["type"] == "closed":
                    return
                note(frame, granted, versions)
            note(frame, granted, versions)
    except ConnectionClosed:
        with contextlib.suppress(ConnectionClosed):  # behind what had come before
            for text in client.socket:
                note(json.loads(text), granted, versions)


def note(frame: dict[str, Any], granted: dict[str, int], versions: dict[str, int]) -> None:
    """Keep what a hub has acknowledged."""
    if frame["type"] == "claim_granted":
        granted[frame["task_id"]] = frame["epoch"]
    elif frame["type"] == "task_updated":
        versions[frame["task_id"]] = frame["version"]


def test_what_cannot_be_kept_is_told_nobody(tmp_path: Path) -> None:
    """A hub whose file takes no more ends, and says why; what it granted is in the file."""
    small_files = ("sh", "-c", 'ulimit -f 800 && exec "$@"', "sh")
    granted: list[str] = []
    with running("--db", "h.db", cwd=tmp_path, within=small_files) as hub:
        client = hub.client("ann")
        for number in range(1_000):
            client.say("claim", task_id=f"{number}", paths=[f"{number}"], note="x" * 1_000)
            while (frame := client.next())["type"] not in {"claim_granted", "closed"}:
                pass
            if frame["type"] == "closed":
                break
            granted.append(frame["task_id"])
        _, said = hub.process.communicate(timeout=PATIENCE_S)
        assert hub.process.returncode == 1
        assert "hub h.db cannot be written" in said
    store = HubStore(tmp_path / "h.db")
    assert set(granted) <= {put.key for put in store.read() if put.kind == "claim"}
    store.close()
    assert granted


# -- who may take part -----------------------------------------------------------------------------


def test_who_has_no_token_hears_nothing(tmp_path: Path) -> None:
    """Before it has shown a token a socket is sent nothing: no welcome, nothing that others say."""
    (tmp_path / "tokens").write_text("# people\ntoken-of-all\n\ntoken-of-repo repo/* ann\n")
    with running("--token-file", "tokens", cwd=tmp_path) as hub:
        silent = hub.socket("silent")
        ann = hub.client("ann", token="token-of-repo")
        ann.claim("A")
        ann.say("chat", payload="secret")
        for name, token, says in (
            ("x", None, "Authentication token required."),
            ("x", "", "Authentication token required."),
            ("x", 7, "Authentication token required."),
            ("x", "token-of-al", "Invalid authentication token."),
            ("x", "token-of-repo", "Token is not authorised for agent 'x'."),
            ("SynapseHub", "wrong-token", "Invalid authentication token."),
        ):
            refused = hub.socket(name)
            refused.say("claim", task_id="A", token=token)
            assert (refused.next()["payload"], refused.next()["code"]) == (says, 4010)
        broken = hub.socket("x")
        broken.socket.send("[1")
        assert (broken.next()["type"], broken.next()["code"]) == ("auth_denied", 4010)
        assert hub.client("repo/1", token="token-of-repo")
        assert hub.client("x", token="token-of-all").claim("A")["holder"] == "ann"
        with pytest.raises(TimeoutError):
            silent.next(timeout=0.1)


def test_no_page_of_a_browser_is_let_in(hub: Running) -> None:
    """A site that a person visits cannot have their browser talk with the hub."""
    with pytest.raises(InvalidStatus, match="403"):
        hub.socket("page", origin="http://localhost:8876")


def test_who_says_nothing_gives_way(tmp_path: Path) -> None:
    """Where there is no room for one more, the oldest that has no name goes; else it is refused."""
    with running("--max-clients", 3, cwd=tmp_path) as hub:
        ann = hub.client("ann")
        silent = [hub.socket(f"s{number}") for number in range(2)]
        bob = hub.client("bob")
        assert [silent[0].next()["type"], silent[0].next()["code"]][1] == 4013
        hub.client("cat")
        late = hub.socket("dan")
        assert late.next() == {"type": "closed", "code": 4013}
        assert ann.claim("A", paths=["a"])["type"] == "claim_granted"
        bob.socket.close()
        ann.until("presence_update", event="left")
        assert hub.client("dan").claim("B", paths=["b"])["type"] == "claim_granted"


def test_a_rate_holds_over_connections(tmp_path: Path) -> None:
    """Who has used up what they may send does not get more by coming again."""
    with running("--rate", "0.01", "--burst", 3, cwd=tmp_path) as hub:
        ann = hub.client("ann")
        for _ in range(3):
            ann.ask("who_request", "who_snapshot")
        assert ann.ask("who_request", "error")["payload"] == "Rate limit exceeded."
        ann.socket.close()
        ann = hub.client("ann")
        assert ann.ask("who_request", "error")["payload"] == "Rate limit exceeded."
        assert hub.client("bob").ask("who_request", "who_snapshot")


# -- hostile clients -------------------------------------------------------------------------------

MANY = list(range(600))


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x00\xff" * 100, 0),
        ("[" * 200_000, 0),
        ('{"type":' * 10_000, 0),
        ("9" * 10_000, 0),
        ('{"type": "claim", "task_id": "x", "ttl_seconds": Infinity}', 0),
        ('{"type": "claim", "task_id": "' + "x" * 500_000 + '"}', 0),
        ('{"type": "claim", "task_id": "x", "paths": ["' + "a/" * 100_000 + '"]}', 0),
        (f'{{"type": "ledger_task", "task_id": "x", "title": "t", "depends_on": {MANY}}}', 0),
        ('{"type": "chat", "payload": "' + "x" * 1_048_500 + '"}', 0),
        ("x" * 1_048_577, 1009),
        (b"y" * 2_000_000, 1009),
    ],
    ids=lambda value: str(value)[:24],
)  # fmt: skip
def test_a_hostile_message_harms_its_sender_alone(
    hub: Running, data: str | bytes, code: int
) -> None:
    """What one socket sends is answered or ends it; others go on as before."""
    good, bad = hub.client(f"good{time.time_ns()}"), hub.client(f"bad{time.time_ns()}")
    bad.socket.send(data)
    frame = bad.until("error", "claim_denied", "closed")
    assert frame.get("code", 0) == code
    assert good.claim(good.name, paths=[good.name])["type"] == "claim_granted"
    good.ask("release", "release_granted", task_id=good.name)


def test_what_is_no_handshake_harms_nobody(hub: Running) -> None:
    """Bytes that are no request, and a request that is never finished, take nothing from others."""
    at = urlsplit(hub.url)
    raw = [socket.create_connection((at.hostname, at.port)) for _ in range(20)]
    for number, one in enumerate(raw):
        one.sendall([b"\x16\x03\x01" * 50, b"GET / HTTP/1.1\r\nHost: x\r\n", b""][number % 3])
    client = hub.client("hana")
    assert client.claim("H", paths=["h"])["type"] == "claim_granted"
    client.ask("release", "release_granted", task_id="H")
    for one in raw:
        one.close()


def test_a_flood_takes_nothing_from_others(hub: Running) -> None:
    """While one sends without a pause and reads nothing, another's claims are granted at once."""
    good, bad = hub.client("good"), hub.client("bad")
    frame = json.dumps({"sender": "bad", "type": "state_request"})
    ends = threading.Event()

    def flood() -> None:
        try:
            while not ends.is_set():
                bad.socket.send(frame)
        except ConnectionClosed:
            pass

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        waits: list[float] = []
        for number in range(50):
            began = time.monotonic()
            good.claim(f"F{number}", paths=[f"f{number}"])
            waits.append(time.monotonic() - began)
            good.ask("release", "release_granted", task_id=f"F{number}")
    finally:
        ends.set()
        bad.socket.socket.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert sorted(waits)[45] < 1.0


def test_a_slow_reader_is_told_what_it_missed(hub: Running) -> None:
    """Chats pass by who does not read; all else does not, and they can ask for what they missed."""
    reader, writer = hub.client("reader"), hub.client("writer")
    text = "x" * 100_000
    before = writer.ask("chat", "chat", payload="first", target="all")["msg_id"]
    for number in range(200):
        writer.say("chat", payload=f"{number} {text}")
        writer.until("chat")
    writer.claim("W", paths=["w"])
    missed = reader.until("error")
    assert "chats were left out" in missed["payload"]
    assert "claim_granted" in [frame["type"] for frame in reader.heard]
    kept = [frame["msg_id"] for frame in reader.heard if frame["type"] == "chat"]
    assert len(kept) < 200
    reader.say("resume_request", since=before + 199)
    assert [one["msg_id"] for one in reader.until("resume_snapshot")["messages"]] == [before + 200]
    writer.ask("release", "release_granted", task_id="W")


def test_who_never_reads_is_cut_off(tmp_path: Path) -> None:
    """A socket that takes nothing holds up nobody, and in the end costs no memory."""
    with running(cwd=tmp_path) as hub:
        writer = hub.client("writer")
        idle = hub.socket("idle", max_queue=1)
        idle.say("heartbeat")
        writer.until("presence_update", agent="idle")
        note, number = "n" * 100_000, 0
        while "idle" in writer.ask("who_request", "who_snapshot")["online_agents"]:
            writer.claim("W", paths=["w"], note=f"{number} {note}")
            number += 1
            assert number < 400, "it was sent 40 MB and is still there"
        assert memory_of(hub.process.pid) < 200_000_000


def memory_of(pid: int) -> int:
    """Bytes that a process has in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


# -- time ------------------------------------------------------------------------------------------


def test_the_end_of_a_claim_is_told_by_itself(hub: Running) -> None:
    """Who listens hears when the claims of one that died are over, without asking."""
    ann, bob = hub.client("tim"), hub.client("tom")
    ann.claim("T", paths=["t"])
    ann.socket.socket.shutdown(socket.SHUT_RDWR)  # no good-bye
    assert bob.until("claim_expired", task_id="T")["reason"] == "owner_gone"
    assert bob.claim("T", paths=["t"])["type"] == "claim_granted"
    bob.ask("release", "release_granted", task_id="T")


# -- the relay log ---------------------------------------------------------------------------------


def test_what_goes_to_all_is_in_the_relay_log(tmp_path: Path) -> None:
    """Each message to all is a line of the log, of which the newest are kept."""
    log = tmp_path / "relay.ndjson"
    with running("--relay-log", log, "--relay-max-lines", 10, cwd=tmp_path) as hub:
        ann = hub.client("ann")
        for number in range(35):
            ann.ask("chat", "chat", payload=f"{number}", target="bob")
            ann.ask("who_request", "who_snapshot")
        lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert 10 <= len(lines) <= 20
    assert [line["p"] for line in lines[-3:]] == ["32", "33", "34"]
    last = lines[-1]
    assert (last["v"], last["i"], last["ty"], last["s"], last["to"]) == (
        1,
        35,
        "chat",
        "ann",
        "bob",
    )
