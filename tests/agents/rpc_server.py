"""A program that holds a recorded conversation on its stdin and stdout.

What the client said then is waited for, by method; what the program said then is printed. Options:
``hang=N``, ``exit=N`` after N messages of its own; ``stay`` when stdin ends; ``child`` starts a
process in a session of its own; ``crumbs`` prints in pieces.
"""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

_SCRIPT = r"""
import json
import os
import subprocess
import sys
import time

file, notes, *rest = sys.argv[1:]
words, arguments = rest[: rest.index("--")], rest[rest.index("--") + 1 :]
options = dict(word.partition("=")[::2] for word in words)
ids = {}


def note(what):
    with open(notes, "a", encoding="utf-8") as out:
        out.write(json.dumps(what) + "\n")


def hang():
    while True:
        time.sleep(60)


def say(message):
    data = (json.dumps(message) + "\n").encode()
    step = 1000 if "crumbs" in options else len(data)
    for start in range(0, len(data), step):
        sys.stdout.buffer.write(data[start : start + step])
        sys.stdout.buffer.flush()


def listen(wanted):
    for line in sys.stdin:
        said = json.loads(line)
        note(said)
        if said.get("method") == wanted.get("method"):
            if "id" in wanted:
                ids[wanted["id"]] = said["id"]
            return
    sys.exit(0)


def count(name, number):
    return name in options and number >= int(options[name])


note({"argv": arguments, "cwd": os.getcwd(), "extra": os.environ.get("EXTRA")})
if "child" in options:
    subprocess.Popen(["sleep", "60"], start_new_session=True)
sys.stderr.write("a word on stderr\n")
sys.stderr.flush()
number = 0
for record in map(json.loads, open(file, encoding="utf-8")):
    message = record["msg"]
    if record["dir"] == "client->agent":
        listen(message)
        continue
    if count("exit", number):
        sys.exit(3)
    if count("hang", number):
        hang()
    if "method" not in message and message.get("id") in ids:
        message = {**message, "id": ids[message["id"]]}
    say(message)
    number += 1
for line in sys.stdin:
    note(json.loads(line))
if "stay" in options:
    hang()
"""


def install_server(folder: Path, name: str, recording: Path, *options: str) -> Path:
    """Put a program of this name into a folder, which holds a recorded conversation."""
    script = folder / f"{name}.py"
    script.write_text(_SCRIPT, "utf-8")
    words = [sys.executable, "-I", "-S", str(script), str(recording), str(folder / "heard")]
    path = folder / name
    path.write_text(
        "#!/bin/sh\n"
        '[ "$1" = --version ] && echo "it 1.2.3" && exit 0\n'
        f'exec {" ".join(map(repr, [*words, *options]))} -- "$@"\n',
        "utf-8",
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def heard(folder: Path) -> list[Any]:
    """What a server of this folder was told: how it was called, and then each message."""
    return [json.loads(line) for line in (folder / "heard").read_text("utf-8").splitlines()]


def methods(folder: Path) -> list[str]:
    """The methods of what it was told, without the answers."""
    return [said["method"] for said in heard(folder)[1:] if "method" in said]
