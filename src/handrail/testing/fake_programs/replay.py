"""A recording, played again: the lines of a program, or its side of a conversation."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from handrail.testing.fake_programs.folder import read_json
from handrail.testing.fake_programs.launch import Entry, Launch
from handrail.testing.fake_programs.output import Output, pause, read_all

RPC = ".rpc.jsonl"


def replay(launch: Launch, recording: Entry) -> int:
    """Play it; the recorded exit code, or the one that was asked for."""
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
    """Say what the agent said; wait where the client spoke, and answer to the ids it has now."""
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
    """Wait for the message that the recording has here; requests that it has not get no more."""
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
