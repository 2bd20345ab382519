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


def main(folder: str) -> int:
    """Play the next reel of the folder; the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with open(f"{folder}/reels.json", "rb") as file:  # noqa: PTH123  # pathlib is slow to import
        reels = json.load(file)
    sys.stdin.buffer.read()
    return _play(reels[_launch(folder)])


def _play(reel: list[tuple[str, Any]]) -> int:
    for verb, what in reel:
        match verb:
            case "prints":
                os.write(1, what.encode("latin-1"))
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
    sys.exit(main(sys.argv[1]))
