"""The program that plays a reel: what to do in each of its launches, written down beforehand.

It is run without site-packages, so that it starts fast: only the standard library is there.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from typing import Any

CHILD_LIVES_S = "120"


def main(folder: str, argv: list[str]) -> int:
    """Play the next reel of the folder; the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with open(f"{folder}/reels.json", "rb") as file:  # noqa: PTH123  # pathlib is slow to import
        film = json.load(file)
    if "--version" in argv:
        sys.stdout.write(f"{film['version']}\n")
        return 0
    sys.stdin.buffer.read()
    asked = _session_in(argv, film["resumes_by"])
    if asked not in {None, film["session"]}:
        os.write(2, film["refusal"].encode())
        return int(film["refused_with"])
    return _play(film["reels"][_launch(folder)], film["session"])


def _play(reel: list[tuple[str, Any]], session: str) -> int:
    for verb, what in reel:
        match verb:
            case "prints":
                os.write(1, what.replace("@SESSION@", session).encode("latin-1"))
            case "complains":
                os.write(2, what.encode())
            case "waits":
                select.select((), (), (), what)
            case "leaves a child":
                _leave_child()
            case "dies of":
                os.kill(os.getpid(), what)
            case "exits":
                return int(what)
            case _:
                raise ValueError(verb)
    return 0


def _session_in(argv: list[str], option: str) -> str | None:
    """The session that it is to go on in: after ``--name=``, or the word after ``-s``."""
    for at, word in enumerate(argv):
        if option.endswith("=") and word.startswith(option):
            return word.removeprefix(option)
        if word == option:
            return argv[at + 1]
    return None


def _launch(folder: str) -> int:
    number = 0
    while True:
        try:
            os.close(os.open(f"{folder}/launch-{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            number += 1
        else:
            return number


def _leave_child() -> None:
    if os.fork():
        return
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.execvp("sleep", ["sleep", CHILD_LIVES_S])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
