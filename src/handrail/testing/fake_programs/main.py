"""The main function of every fake program.

It starts in a few hundredths of a second because it loads little: a Python without site-packages,
the standard library's json, and these files.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from handrail.testing.fake_programs.folder import Folder, read_json
from handrail.testing.fake_programs.launch import VERSIONS, Entry, Launch, tell_signals
from handrail.testing.fake_programs.output import Ended, Output, Signalled, pause, read_all
from handrail.testing.fake_programs.turn import die_of

LIFE_S = 900
"""Every fake ends after so long, whatever happened to its test."""
VERSION_WORDS = {"--version", "-V", "-v"}


def main(folder: str, name: str, argv: list[str]) -> None:
    """Act as the program ``name`` for one launch; ends the process."""
    signal.alarm(LIFE_S)
    tell_signals()
    launch = Launch(Folder(folder), name, argv)
    try:
        code = _run(launch)
    except Ended as ended:
        code = ended.code
        if ended.word:
            launch.out.error(ended.word + "\n")
    except Signalled as signalled:
        code = _idle_code(name, signalled.number)
    except BrokenPipeError:
        code = -signal.SIGPIPE
    with contextlib.suppress(Signalled):
        launch.ended(code)
    if code < 0:
        die_of(-code)
    sys.exit(code)


def _run(launch: Launch) -> int:
    if len(launch.argv) == 1 and launch.argv[0] in VERSION_WORDS:
        launch.probed()
        launch.out.text(VERSIONS[launch.name] + "\n")
        return 0
    if entry := launch.take(at_launch=True):
        if "replay" in entry:
            return replay(launch, entry["replay"])
        return _stopped(launch, entry)
    file = _protocol(launch.name, launch.argv)
    if file is None:
        raise Ended(2, f"fake {launch.name}: it does not fake {launch.argv}")
    protocol = import_module(f"handrail.testing.fake_programs.{file}")  # and no other protocol
    return int(protocol.run(launch))


def _stopped(launch: Launch, entry: Entry) -> int:
    """Carry out an act before any prompt: a wrong configuration, a hang, or an end."""
    fail: Entry | None = entry.get("fail")
    if fail:
        launch.out.error(f"{fail['message'] or 'Error: the configuration is not valid'}\n")
        return 1
    hang: Entry | None = entry.get("hang")
    if hang:
        pause(hang["seconds"])
        return 1
    death: Entry = entry["death"]
    return -int(death["signal"]) if death["signal"] else int(death["exit_code"])


def _protocol(name: str, argv: list[str]) -> str | None:
    """The file with the protocol that this program speaks with these arguments."""
    match name:
        case "claude":
            return "claude"
        case "codex":
            return "codex_server" if "app-server" in argv else None
        case _ if {"acp", "--acp", "--acp=true", "--experimental-acp"} & {name[-3:], *argv}:
            return "acp"
        case _:
            return "copilot" if name == "copilot" else None


def _idle_code(name: str, number: int) -> int:
    """The exit code of a program that gets a signal while it does nothing."""
    if name in {"copilot", "gemini"}:
        return 0
    if name == "claude":
        return 0 if number == signal.SIGINT else 143
    return -number


RPC = ".rpc.jsonl"


def replay(launch: Launch, recording: Entry) -> int:
    """Replay a recording; the recorded exit code, or the one that the act sets."""
    path: str = recording["path"]
    known = _about(path)
    if path.endswith(RPC):
        _converse(launch, path, recording["speed"])
    else:
        launch.stdin = read_all(0)
        _recite(launch.out, path, known.get("line_times_s") or [], recording["speed"])
    code = recording["exit_code"]
    return int((known.get("exit_code") or 0) if code is None else code)


def _about(path: str) -> dict[str, Any]:
    about = path.removesuffix(".jsonl") + ".meta.json"
    found: dict[str, Any] = read_json(about) if os.path.exists(about) else {}
    return found


def _recite(out: Output, path: str, times: list[float], speed: float | None) -> None:
    stderr = path.removesuffix(".jsonl") + ".stderr"
    if os.path.exists(stderr):
        with open(stderr, "rb") as file:
            out.error(file.read().decode(errors="replace"))
    before = times[0] if times else 0.0
    with open(path, "rb") as file:
        for number, line in enumerate(file):
            at = times[number] if number < len(times) else before
            if speed:
                pause((at - before) / speed)
            before = at
            out.raw(line)


def _converse(launch: Launch, path: str, speed: float | None) -> None:
    """Repeat the agent's messages; wait where the client spoke, and answer to its present ids."""
    ids: dict[str, Any] = {}
    heard = _messages(launch)
    before = 0.0
    with open(path, encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)
            message, at = record["msg"], record.get("t", before)
            if record["dir"] == "client->agent":
                _listen(launch, heard, message, ids)
            else:
                if speed:
                    pause((at - before) / speed)
                if "method" not in message and "id" in message:
                    message = {**message, "id": ids.get(str(message["id"]), message["id"])}
                launch.out.line(message)
            before = at
    for _ in heard:
        pass


def _listen(
    launch: Launch, heard: Iterator[dict[str, Any]], expected: dict[str, Any], ids: dict[str, Any]
) -> None:
    """Wait for the client's message that the recording has next; refuse any other request."""
    for message in heard:
        if message.get("method") == expected.get("method"):
            if "id" in message:
                ids[str(expected.get("id"))] = message["id"]
            return
        if "id" in message and "method" in message:
            error = {"code": -32601, "message": "not in the recording"}
            launch.out.line({"jsonrpc": "2.0", "id": message["id"], "error": error})


def _messages(launch: Launch) -> Iterator[dict[str, Any]]:
    rest = b""
    while part := os.read(0, 65536):
        launch.stdin += part
        *lines, rest = (rest + part).split(b"\n")
        yield from (json.loads(line) for line in lines if line.strip())
