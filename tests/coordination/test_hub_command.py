"""`handrail hub`: what it refuses to do, and what it says instead."""

from __future__ import annotations

import socket
import sqlite3
import stat
from pathlib import Path

import pytest

from handrail.cli import main
from handrail.coordination.command import HubOptions, _build_hub
from handrail.coordination.store import HubStore

pytestmark = pytest.mark.extra("cyclopts", "rich")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--host 0.0.0.0", "would let in everybody who can reach this machine. Add --token"),
        ("--host=", "--token-file"),
        ("--port 70000", "is not a port"),
        ("--port {taken}", "cannot be listened on"),
        ("--token-file none", "--token-file none: cannot be read: No such file"),
        ("--token-file binary", "--token-file binary: cannot be read: 'utf-8'"),
        ("--root none", "is no folder"),
        ("--token-file empty", "has no token"),
        ("--token-file short", "fewer than 8 characters"),
        ("--grace -1", "must be 0 or more"),
        ("--rate nan", "must be 0 or more"),
        ("--max-clients 0", "must be 1 or more"),
        ("--max-progress 0", "must be 1 or more"),
        ("--ttl 29", "must be 30 seconds or more"),
        ("--ttl nan", "must be 30 seconds or more"),
        ("--hub-id=", "is no name"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(
    words: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A wrong option ends the command with exit code 2, and one line that says what to do."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").write_text("# nothing\n\n")
    (tmp_path / "short").write_text("1234567\n")
    (tmp_path / "binary").write_bytes(b"\xff123456789\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        line = words.format(taken=taken.getsockname()[1])
        assert main(["hub", *line.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert err.count("\n") == 1


def test_a_file_of_tokens_is_made_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the hub listens; who looks is told."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "open"
    file.write_text("a-long-token\n")
    file.chmod(0o644)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["hub", "--token-file", "open", "--port", port]) == 2
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "open can be read by others on this machine: chmod 600 open" in capsys.readouterr().err


def test_a_file_has_one_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second hub on a file does not start."""
    monkeypatch.chdir(tmp_path)
    store = HubStore(tmp_path / "h.db")
    assert main(["hub", "--port", "0", "--db", "h.db"]) == 1
    store.close()
    said = "handrail: hub h.db is used by another hub. A file has one hub: stop the other, or give"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("content", ["text", "sqlite", "newer", "folder"])
def test_a_file_of_something_else_is_left_alone(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """What is no file of a hub is not written to."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "h.db"
    if content == "text":
        path.write_text("my notes\n" * 1_000)
    elif content == "folder":
        path.mkdir()
    else:
        if content == "newer":
            HubStore(path).close()
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE mine (x)")
            connection.execute("PRAGMA user_version = 99")
        connection.close()
    before = None if content == "folder" else path.read_bytes()
    assert main(["hub", "--port", "0", "--db", "h.db"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("handrail: hub h.db ")
    assert err.count("\n") == 1
    assert before == (None if content == "folder" else path.read_bytes())


def test_options_reach_the_hub(tmp_path: Path) -> None:
    """Its name, the lease of a claim that does not say, and how much it keeps."""
    file = tmp_path / "hub.db"
    wanted = HubOptions(db=file, ttl=60, hub_id="syn-mine", max_progress=7, max_history=9)
    hub, store = _build_hub(wanted, None)
    assert store is not None
    store.close()
    settings = hub.state.settings
    assert (settings.hub_id, settings.lease_s) == ("syn-mine", 60)
    assert (settings.max_progress, settings.max_history) == (7, 9)
