"""Keys and lines from a file descriptor, read on the event loop: waiting can be cancelled."""

from __future__ import annotations

import codecs
import os
import termios
import tty
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager

import anyio

_NAMED = {
    "\r": "enter",
    "\n": "enter",
    "\t": "tab",
    "\x7f": "backspace",
    "\b": "backspace",
    "\x04": "closed",
    "\x1b": "escape",
}
_SEQUENCES = {
    "A": "up",
    "B": "down",
    "C": "right",
    "D": "left",
    "H": "home",
    "F": "end",
}
_READ_BYTES = 4096


async def read_some(descriptor: int) -> bytes:
    """What can be read now, or the next that comes; empty at the end."""
    try:
        await anyio.wait_readable(descriptor)
    except OSError:  # a plain file cannot be waited for, it is always readable
        await anyio.lowlevel.checkpoint()
    try:
        return os.read(descriptor, _READ_BYTES)
    except OSError:  # a terminal that has gone
        return b""


class Lines:
    """Lines of text, one at a time; what came with them is kept for the next. Mutable."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._left = b""
        self._ended = False

    async def next(self) -> str | None:
        """The next line without its end, or None when there are no more."""
        while b"\n" not in self._left and not self._ended:
            data = await read_some(self._descriptor)
            self._left += data
            if not data:
                # On a terminal Ctrl-D ends one line, not all that follow.
                self._ended = not os.isatty(self._descriptor)
                break
        line, newline, self._left = self._left.partition(b"\n")
        return line.decode("utf-8", "replace") if line or newline else None


class Keys:
    """Keys by name (``up``, ``enter``), or as the character they give. Mutable."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending: deque[str] = deque()

    async def next(self) -> str:
        """The next key; ``closed`` at the end of the input."""
        while not self._pending:
            data = await read_some(self._descriptor)
            if not data:
                return "closed"
            self._pending.extend(parsed(self._decoder.decode(data)))
        return self._pending.popleft()


def parsed(text: str) -> list[str]:
    """The keys in what a terminal sent; escape sequences that mean nothing here are left out."""
    keys: list[str] = []
    at = 0
    while at < len(text):
        if text[at] == "\x1b" and text[at + 1 : at + 2] in {"[", "O"}:
            at += 2
            while at < len(text) and not "@" <= text[at] <= "~":
                at += 1
            name = _SEQUENCES.get(text[at : at + 1])
            if name:
                keys.append(name)
        else:
            keys.append(_NAMED.get(text[at], text[at]))
        at += 1
    return keys


@contextmanager
def keys_from(descriptor: int) -> Generator[Keys]:
    """Single keys from a terminal, which echoes nothing meanwhile; Ctrl-C stays a signal.

    What was typed before is dropped: nobody has answered a question that was not there yet.
    """
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor, termios.TCSAFLUSH)
    try:
        yield Keys(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
