"""The real client library and command of synapse-channel, on its hub and on ours.

Run by ``nox -s programs``, which installs them; ``HANDRAIL_SYNAPSE`` is the Python that has them.
Both hubs are driven at once by the same script: what is printed and heard, and exit codes, are the
same.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from websockets.sync.client import connect

from tests.coordination.running import Client

pytestmark = pytest.mark.hub

THEIRS = os.environ.get("HANDRAIL_SYNAPSE", "")
DRIVER = Path(__file__).with_name("client_of_theirs.py")
ENVIRONMENT = {**os.environ, "SYNAPSE_NO_UPDATE_CHECK": "1", "PYTHONUNBUFFERED": "1"}
PATIENCE_S = 30.0

Line: TypeAlias = tuple[str, str, list[Any], dict[str, Any]]
Heard: TypeAlias = dict[str, list[dict[str, Any]]]


class Hub:
    """A hub in a process of its own; ``kind`` is whose program it is."""

    def __init__(self, kind: str, folder: Path, *words: str) -> None:
        folder.mkdir(exist_ok=True)
        self.kind, self.folder, self.words = kind, folder, words
        self.port = free_port()
        self.url = f"ws://localhost:{self.port}"
        self.start()

    def start(self) -> None:
        """Start it, and wait until it listens."""
        program = [THEIRS, "-m", "synapse_channel.cli"]
        if self.kind == "ours":
            program = [sys.executable, "-m", "handrail"]
        self.process = subprocess.Popen(
            [*program, "hub", "--port", str(self.port), *self.words],
            cwd=self.folder,
            env=ENVIRONMENT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until(lambda: is_open(self.port))

    def stop(self, signum: int = signal.SIGTERM) -> None:
        """End it."""
        self.process.send_signal(signum)
        self.process.wait(PATIENCE_S)

    def command(self, *words: str) -> tuple[int, str]:
        """Exit code and output of `synapse` with these words, for this hub."""
        done = self.begin(*words)
        said, _ = done.communicate(timeout=PATIENCE_S)
        return done.returncode, said.replace(self.url, "HUB")

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """The same while it runs."""
        at = words.index("--") if "--" in words else len(words)
        where = [] if words[0] in {"relay", "--version"} else ["--uri", self.url]
        return subprocess.Popen(
            [THEIRS, "-m", "synapse_channel.cli", *words[:at], *where, *words[at:]],
            cwd=self.folder,
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def script(self, lines: Sequence[Line], token: str = "") -> list[Heard]:
        """What the agents of a script heard, line by line, without times and the hub's name."""
        done = subprocess.run(
            [THEIRS, DRIVER, self.url, *([token] if token else [])],
            input="".join(f"{json.dumps(line)}\n" for line in lines),
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE_S,
            env=ENVIRONMENT,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2_000:]
        return [timeless(json.loads(line)) for line in done.stdout.splitlines()]


WORKER = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
PORTS = iter(range(20_000 + 500 * int(WORKER), 20_500 + 500 * int(WORKER)))
"""Below those that systems give to clients, and of this worker alone."""


def free_port() -> int:
    """A port that nothing listens on, and that nobody else takes before the hub does."""
    return next(port for port in PORTS if not is_open(port))


def is_open(port: int) -> bool:
    """True if something listens there."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def until(holds: Any) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)  # noqa: TID251  # another process says when


TIMES = {
    "timestamp", "hub_id", "posted_at", "created_at", "updated_at", "claimed_at", "generated_at",
    "last_seen", "advertised_at",
}  # fmt: skip


def timeless(value: Any) -> Any:
    """What was heard without what differs each time; a lease is how long it lasts, about."""
    if isinstance(value, list):
        return [timeless(one) for one in value]
    if not isinstance(value, dict):
        return value
    lease = value.get("lease_expires_at")
    if lease is not None:
        value = {**value, "lease_expires_at": round((lease - time.time()) / 60)}
    return {name: timeless(one) for name, one in value.items() if name not in TIMES}


@pytest.fixture
def hubs(tmp_path: Path) -> Iterator[list[Hub]]:
    """Theirs and ours, each with a file and a relay log."""
    words = ("--db", "hub.db", "--relay-log", "relay.ndjson")
    with both(tmp_path, *words) as found:
        yield found


@contextlib.contextmanager
def both(folder: Path, *words: str) -> Generator[list[Hub]]:
    """Theirs and ours, with these options."""
    with contextlib.ExitStack() as ends:
        found: list[Hub] = []
        for kind in ("theirs", "ours"):
            found.append(Hub(kind, folder / kind, *words))
            ends.callback(found[-1].stop)
        yield found


def on_both(hubs: Sequence[Hub], act: Any) -> Any:
    """What comes of the same on both, at once; it must be the same."""
    with ThreadPoolExecutor(len(hubs)) as pool:
        theirs, ours = pool.map(act, hubs)
    assert ours == theirs
    return ours


# -- the command -----------------------------------------------------------------------------------


COMMANDS = [
    "health",
    "who",
    "who --project repo",
    "task declare P1 --title design --name ann",
    "task declare P2 --title build --depends-on P1 --name ann",
    "task declare P1 --title again --depends-on P2 --name ann",
    "task update P1 --status done --name bob",
    "task update P2 --suggested-owner bob --name bob",
    "task progress P1 text --name bob",
    "board",
    "manifest",
    "state",
    "send hello --name ann --wait-seconds 0.2",
    "send hello --name ann --target bob --priority --wait-seconds 0.2",
    "wait --name cat --timeout 0.5",
    "lock L1 --paths src --name ann -- sh -c 'echo in; exit 7'",
    "lock L1 --name ann -- true",
]


def test_the_command_does_the_same_on_both(hubs: list[Hub]) -> None:
    """Each command prints the same, and ends with the same exit code, whosever hub it is."""

    def act(hub: Hub) -> list[tuple[str, int, str]]:
        return [(line, *hub.command(*shlex.split(line))) for line in COMMANDS]

    said = {line: (code, text) for line, code, text in on_both(hubs, act)}
    assert said["health"][0] == 0
    assert "[open] P2 — build  (deps: P1)\nReady: P2\n" in said["board"][1]
    assert said[COMMANDS[-2]] == (7, "in\n")
    assert said["wait --name cat --timeout 0.5"][0] == 2


def test_a_lock_keeps_others_out_on_both(hubs: list[Hub]) -> None:
    """`synapse lock` waits for who holds an overlapping scope, or says who does; state shows it."""

    def act(hub: Hub) -> list[Any]:
        go = hub.folder / "go"
        wait_for_it = "touch held; until [ -e go ]; do sleep 0.05; done"
        first = hub.begin(
            "lock", "L1", "--paths", "src", "--name", "a/1", "--", "sh", "-c", wait_for_it
        )
        until((hub.folder / "held").exists)
        found: list[Any] = [
            hub.command("state"),
            hub.command("state", "--owner", "a"),
            hub.command("state", "--owner", "b"),
            hub.command("lock", "L2", "--paths", "src/x", "--wait-timeout", "0", "--name", "b",
                        "--", "echo", "never"),
        ]  # fmt: skip
        second = hub.begin("lock", "L2", "--paths", "src/x", "--name", "b", "--", "echo", "ran")
        go.touch()
        for one in (first, second):
            said, _ = one.communicate(timeout=PATIENCE_S)
            found.append((one.returncode, said))
        return [*found, hub.command("state")]

    *_, refused, first, second, end = on_both(hubs, act)
    assert "'L2' file scope conflicts with 'L1' held by a/1" in refused[1]
    assert (first, second) == ((0, ""), (0, "ran\n"))
    assert end == (0, "Active claims (0):\n")


def test_messages_wake_and_are_listened_to_on_both(hubs: list[Hub]) -> None:
    """`wait` ends at a message for its name, or with the hub; `listen` prints what comes."""

    def act(hub: Hub) -> list[Any]:
        listens = hub.begin("listen", "--name", "ear", "--for", "ann")
        waits = hub.begin("wait", "--name", "ann", "--wake-jitter", "0")
        lasts = hub.begin("wait", "--name", "bob", "--directed-only")
        names = {"ear", "ann-rx", "bob-rx"}
        until(lambda: names <= set(hub.command("who")[1].split()))
        hub.command("send", "to all", "--name", "x", "--wait-seconds", "0")
        said, _ = waits.communicate(timeout=PATIENCE_S)
        found = [(waits.returncode, said)]
        hub.command("send", "to ann", "--target", "ann,other", "--name", "x", "--wait-seconds", "0")
        hub.command("send", "to none", "--target", "other", "--name", "x", "--wait-seconds", "0")
        assert listens.stdout is not None
        lines = [listens.stdout.readline() for _ in range(3)]
        code, relay = hub.command("relay", "relay.ndjson", "--for", "ann")
        hub.stop(signal.SIGKILL)
        for one in (lasts, listens):
            one.communicate(timeout=PATIENCE_S)
            found.append((one.returncode, ""))
        hub.start()
        return [found, lines, code, re.sub(r"\[[0-9.]+\]", "[time]", relay)]

    ends, lines, _, relay = on_both(hubs, act)
    assert [code for code, _ in ends[:2]] == [0, 3]
    assert lines[-2:] == ["x: to all\n", "x: to ann\n"]
    assert relay.endswith("[time] x -> ann,other (chat): to ann\n")


def test_their_worker_and_supervisor_work_on_both(hubs: list[Hub]) -> None:
    """A worker answers and shows its card; a supervisor offers a stalled task again."""

    def act(hub: Hub) -> list[Any]:
        worker = hub.begin("worker", "--name", "FAST", "--provider", "rule")
        until(lambda: "FAST" in hub.command("manifest")[1])
        found: list[Any] = [hub.command("manifest")]
        hub.command("task", "declare", "P", "--title", "t", "--name", "ann")
        hub.command("task", "update", "P", "--status", "in_progress", "--name", "ann")
        words = ("supervisor", "--idle-seconds", "0.1", "--interval", "1")
        supervisor = hub.begin(*words)
        until(lambda: "[open] P" in hub.command("board")[1])
        found += [hub.command("board")]
        found += [hub.command("send", "hi FAST", "--name", "ann", "--wait-seconds", "1.5")]
        for one in (worker, supervisor):
            one.terminate()
            one.communicate(timeout=PATIENCE_S)
        return found

    manifest, board, answer = on_both(hubs, act)
    assert "FAST" in manifest[1]
    assert "[assessment] P: supervisor: no progress" in board[1]
    assert "FAST" in answer[1]


# -- the library -----------------------------------------------------------------------------------

A, B = "repo/ann", "repo/bob"
SAME: list[Line] = [
    (A, "connect", [], {}),
    (B, "connect", [], {"heartbeat_interval": 5.0}),
    (A, "chat", ["hello all"], {}),
    (A, "chat", ["only bob"], {"target": B, "priority": True}),
    (A, "claim", ["T1"], {"note": "n", "ttl_seconds": 5, "paths": ["src/core/"], "idem_key": "k"}),
    (B, "claim", ["T2"], {"paths": ["./src/core/hub.py"]}),
    (B, "claim", ["T1"], {}),
    (B, "claim", ["T3"], {"worktree": "wt", "paths": ["src/core/hub.py"]}),
    (A, "claim", ["T1"], {"paths": ["src/core/"], "idem_key": "k"}),
    (B, "claim", ["T5"], {"paths": ["docs"]}),
    (A, "update_task", ["T1"], {"status": "working", "note": "n", "expected_version": 0}),
    (A, "update_task", ["T1"], {"status": "input_required", "data_ref": "mem://1"}),
    (A, "update_task", ["T1"], {"status": "claimed"}),
    (A, "update_task", ["T1"], {"expected_version": 7}),
    (A, "update_task", ["T1"], {"epoch": 99}),
    (B, "update_task", ["T1"], {"note": "steal"}),
    (A, "save_checkpoint", ["T1", "step=3"], {"epoch": 1}),
    (B, "save_checkpoint", ["T1", "nope"], {}),
    (B, "request_wait", ["T1"], {}),
    (A, "request_wait", ["T5"], {}),
    (A, "request_wait", ["T1"], {}),
    (A, "request_wait", ["TX"], {}),
    (A, "handoff", ["T1", "ghost"], {}),
    (A, "handoff", ["T1", B], {"note": "over to you"}),
    (A, "release", ["T1"], {}),
    (B, "release", ["T1"], {"epoch": 1}),
    (B, "release", ["T1"], {"idem_key": "r"}),
    (B, "release", ["T1"], {"idem_key": "r"}),
    (A, "post_task", ["P1", "design"], {"description": "d"}),
    (A, "post_task", ["P2", "build"], {"depends_on": ["P1"], "suggested_owner": B}),
    (A, "post_task", ["P1", "design"], {"depends_on": ["P2"]}),
    (B, "update_ledger_task", ["P1"], {"status": "done"}),
    (B, "update_ledger_task", ["P1"], {"status": "bogus"}),
    (B, "post_progress", ["P1", "done it"], {"kind": "assessment"}),
    (B, "post_progress", ["P1", "?"], {"kind": "what"}),
    (B, "request_board", [], {}),
    (B, "advertise", [], {"skills": ["py", "py"], "model": "m", "meta": {"k": 1}}),
    (A, "request_manifest", [], {}),
    (A, "send_message", ["resource"], {"kind": "llm", "name": "x", "capacity": 2}),
    (A, "send_message", ["resource"], {"target": "System", "kind": "llm"}),
    (A, "request_state", [], {}),
    (A, "request_history", [], {"limit": 1}),
    (A, "request_history", [], {"limit": None}),
    (A, "request_resume", [], {"since": 1}),
    (A, "send_message", ["nonsense"], {}),
    ("clash", "connect", [], {"name": A}),
    ("taker", "connect", [], {"name": A, "takeover": True}),
    ("taker", "request_state", [], {}),
    (B, "close", [], {}),
    ("taker", "request_manifest", [], {}),
]  # fmt: skip


def test_the_library_hears_the_same_on_both(hubs: list[Hub]) -> None:
    """Every method of the client leads to the same messages, to the same agents, in order."""

    def act(hub: Hub) -> list[tuple[Line, Heard]]:
        return list(zip(SAME, [plain(heard) for heard in hub.script(SAME)], strict=True))

    heard = on_both(hubs, act)
    assert heard[4][1][B][0]["type"] == "claim_granted"
    assert heard[-1][1]["taker"][-1]["manifest"] == []


def plain(heard: Heard) -> Heard:
    """Without what we say more of a refusal than they do: which task, who is in the way."""
    more = {"task_id", "holder", "blocked_by"}
    return {
        name: [
            {key: one for key, one in frame.items() if key not in more or not refuses(frame)}
            for frame in frames
        ]
        for name, frames in heard.items()
    }


def refuses(frame: dict[str, Any]) -> bool:
    """True of an error or a denial."""
    return bool(re.fullmatch(r"error|\w+_denied", frame["type"]))


def test_a_restart_loses_nothing_for_their_client(hubs: list[Hub]) -> None:
    """Killed and started again on its file, our hub goes on where it was: versions, keys, waits."""
    hub = hubs[1]
    hub.script([
        (A, "connect", [], {}),
        (B, "connect", [], {}),
        (A, "claim", ["T"], {"paths": ["src"], "idem_key": "k"}),
        (A, "update_task", ["T"], {"status": "working"}),
        (A, "save_checkpoint", ["T", "half"], {}),
        (B, "chat", ["hello"], {}),
    ])  # fmt: skip
    hub.stop(signal.SIGKILL)
    hub.start()
    heard = hub.script([
        (A, "connect", [], {}),
        (A, "request_state", [], {}),
        (A, "claim", ["T"], {"paths": ["src"], "idem_key": "k"}),
        (A, "update_task", ["T"], {"expected_version": 2, "status": "done"}),
        (A, "claim", ["U"], {"paths": ["u"]}),
        (A, "chat", ["again"], {}),
        (A, "request_history", [], {}),
    ])  # fmt: skip
    (claim,) = heard[1][A][0]["snapshot"]["active_claims"]
    assert (claim["version"], claim["status"], claim["checkpoint"]) == (2, "working", "half")
    assert heard[2][A][0]["epoch"] == 1
    assert heard[3][A][0]["version"] == 3
    assert heard[4][A][0]["epoch"] == 2
    assert [chat["msg_id"] for chat in heard[6][A][0]["history"]] == [1, 2]


def test_tokens_are_asked_of_their_client(tmp_path: Path) -> None:
    """With the token their client and command work; without it they are refused."""
    token = tmp_path / "token"
    token.write_text("a-token-of-tests\n")
    token.chmod(0o600)

    def act(hub: Hub) -> list[Any]:
        board = hub.command("board", "--token-file", str(token))
        return [board, hub.script(SAME[:5], "a-token-of-tests")]

    with both(tmp_path, "--token-file", str(token)) as hubs:
        assert on_both(hubs, act)[0][0] == 0
        for words in (), ("--token", "another-token"):
            code, said = hubs[1].command("board", *words)
            assert code == 1  # by their hub 0: it says welcome first
            assert "4010 (private use) auth denied" in said


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_claim_costs_less_than_a_tenth_of_theirs(tmp_path: Path) -> None:
    """With a thousand claims of another agent, a claim takes a tenth of the time, durable too."""
    for words in (), ("--db", "hub.db"):
        with both(tmp_path, *words) as hubs:
            theirs, ours = map(cost_of_a_claim, hubs)
        assert ours < theirs / 10, (ours, theirs)


def cost_of_a_claim(hub: Hub) -> float:
    """The seconds of its processor that a hub needs for a claim, beside a thousand others."""
    options: dict[str, Any] = {"ping_interval": None, "close_timeout": 0.1}
    with connect(hub.url, **options) as one, connect(hub.url, **options) as two:
        holder, other = Client("holder", one), Client("other", two)
        for client in (holder, other):
            client.say("heartbeat", payload="online")
        claim_many(holder, 1_000)
        before = processor_s(hub.process.pid)
        claim_many(other, 100)
        return (processor_s(hub.process.pid) - before) / 100


def claim_many(client: Client, count: int) -> None:
    """Claim as many tasks of five files each, and wait until all are granted."""
    for number in range(count):
        task = f"{client.name}-{number}"
        paths = [f"src/{number % 50}/{client.name}/{number}/{file}.py" for file in range(5)]
        client.say("claim", task_id=task, paths=paths)
        if number % 200 == 199 or number == count - 1:
            client.until("claim_granted", task_id=task)


def processor_s(pid: int) -> float:
    """The seconds of processor that a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
